"""Finetuning a small classifier over bags of words; per-step logging as in the old language model scripts."""
import argparse
import glob
import json
import logging
import os
import random

import numpy as np
import torch
import torch.nn as nn
from torch.utils.data import DataLoader, RandomSampler, SequentialSampler, TensorDataset
from tqdm import tqdm, trange

logger = logging.getLogger(__name__)


def set_seed(args):
    random.seed(args.seed)
    np.random.seed(args.seed)
    torch.manual_seed(args.seed)
    if args.n_gpu > 0:
        torch.cuda.manual_seed_all(args.seed)


class BagClassifier(nn.Module):
    def __init__(self, vocab=200, dim=24, num_labels=3, dropout=0.1):
        super().__init__()
        self.num_labels = num_labels
        self.embed = nn.Embedding(vocab, dim, padding_idx=0)
        self.dropout = nn.Dropout(dropout)
        self.norm = nn.LayerNorm(dim)
        self.classifier = nn.Linear(dim, num_labels)

    def forward(self, input_ids=None, attention_mask=None, labels=None):
        mask = attention_mask.unsqueeze(-1).float()
        pooled = (self.embed(input_ids) * mask).sum(1) / mask.sum(1)
        logits = self.classifier(self.dropout(self.norm(pooled)))
        outputs = (logits,)
        if labels is not None:
            loss = nn.CrossEntropyLoss()(logits.view(-1, self.num_labels), labels.view(-1))
            outputs = (loss,) + outputs
        return outputs

    def save_pretrained(self, path):
        torch.save(self.state_dict(), os.path.join(path, "pytorch_model.bin"))


def load_and_cache_examples(args, evaluate=False):
    cached = os.path.join(args.data_dir, "cached_{}".format("dev" if evaluate else "train"))
    if os.path.exists(cached) and not args.overwrite_cache:
        logger.info("Loading features from cached file %s", cached)
        ids, mask, labels = torch.load(cached)
    else:
        r = np.random.RandomState(2 if evaluate else 1)
        n = 150 if evaluate else 480
        lengths = r.randint(4, 13, n)
        labels = r.randint(0, 3, n)
        ids = np.zeros((n, 12), np.int64)
        for i in range(n):
            ids[i, :lengths[i]] = 1 + (r.randint(0, 60, lengths[i]) + labels[i] * 40)
        mask = torch.tensor((ids > 0).astype(np.int64))
        ids, labels = torch.tensor(ids), torch.tensor(labels)
        torch.save((ids, mask, labels), cached)
    return TensorDataset(ids, mask, labels)


def train(args, train_dataset, model):
    args.train_batch_size = args.per_gpu_train_batch_size * max(1, args.n_gpu)
    train_sampler = RandomSampler(train_dataset)
    train_dataloader = DataLoader(train_dataset, sampler=train_sampler, batch_size=args.train_batch_size)
    t_total = len(train_dataloader) // args.gradient_accumulation_steps * args.num_train_epochs

    no_decay = ["bias", "norm.weight"]
    optimizer_grouped_parameters = [
        {"params": [p for n, p in model.named_parameters() if not any(nd in n for nd in no_decay)], "weight_decay": 0.01},
        {"params": [p for n, p in model.named_parameters() if any(nd in n for nd in no_decay)], "weight_decay": 0.0},
    ]
    optimizer = torch.optim.AdamW(optimizer_grouped_parameters, lr=args.learning_rate)
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda s: max(0.0, 1 - s / max(1, t_total)))

    logger.info("***** Running training *****")
    logger.info("  Num examples = %d", len(train_dataset))
    global_step = 0
    tr_loss, logging_loss = 0.0, 0.0
    history = []
    model.zero_grad()
    train_iterator = trange(int(args.num_train_epochs), desc="Epoch")
    set_seed(args)
    for _ in train_iterator:
        epoch_iterator = tqdm(train_dataloader, desc="Iteration")
        for step, batch in enumerate(epoch_iterator):
            model.train()
            batch = tuple(t.to(args.device) for t in batch)
            inputs = {"input_ids": batch[0], "attention_mask": batch[1], "labels": batch[2]}
            outputs = model(**inputs)
            loss = outputs[0]
            if args.gradient_accumulation_steps > 1:
                loss = loss / args.gradient_accumulation_steps
            loss.backward()
            tr_loss += loss.item()
            if (step + 1) % args.gradient_accumulation_steps == 0:
                torch.nn.utils.clip_grad_norm_(model.parameters(), args.max_grad_norm)
                optimizer.step()
                scheduler.step()
                model.zero_grad()
                global_step += 1
                if args.logging_steps > 0 and global_step % args.logging_steps == 0:
                    logs = {"loss": (tr_loss - logging_loss) / args.logging_steps, "lr": scheduler.get_last_lr()[0]}
                    logging_loss = tr_loss
                    history.append({**logs, "step": global_step})
                if args.save_steps > 0 and global_step % args.save_steps == 0:
                    output_dir = os.path.join(args.output_dir, "checkpoint-{}".format(global_step))
                    if not os.path.exists(output_dir):
                        os.makedirs(output_dir)
                    model_to_save = model.module if hasattr(model, "module") else model
                    model_to_save.save_pretrained(output_dir)
                    torch.save(args, os.path.join(output_dir, "training_args.bin"))
                    logger.info("Saving model checkpoint to %s", output_dir)
    with open(os.path.join(args.output_dir, "log.json"), "w") as f:
        json.dump(history, f)
    return global_step, tr_loss / global_step


def evaluate(args, model, prefix=""):
    eval_dataset = load_and_cache_examples(args, evaluate=True)
    eval_dataloader = DataLoader(eval_dataset, sampler=SequentialSampler(eval_dataset), batch_size=32)
    eval_loss, nb_eval_steps, preds, out_label_ids = 0.0, 0, None, None
    for batch in tqdm(eval_dataloader, desc="Evaluating"):
        model.eval()
        batch = tuple(t.to(args.device) for t in batch)
        with torch.no_grad():
            inputs = {"input_ids": batch[0], "attention_mask": batch[1], "labels": batch[2]}
            tmp_eval_loss, logits = model(**inputs)[:2]
            eval_loss += tmp_eval_loss.mean().item()
        nb_eval_steps += 1
        if preds is None:
            preds = logits.detach().cpu().numpy()
            out_label_ids = inputs["labels"].detach().cpu().numpy()
        else:
            preds = np.append(preds, logits.detach().cpu().numpy(), axis=0)
            out_label_ids = np.append(out_label_ids, inputs["labels"].detach().cpu().numpy(), axis=0)
    eval_loss = eval_loss / nb_eval_steps
    preds = np.argmax(preds, axis=1)
    result = {"acc": float((preds == out_label_ids).mean()), "eval_loss": eval_loss}
    with open(os.path.join(args.output_dir, prefix, "eval_results.txt"), "w") as writer:
        for key in sorted(result.keys()):
            logger.info("  %s = %s", key, str(result[key]))
            writer.write("%s = %s\n" % (key, str(result[key])))
    return result


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--data_dir", default="data", type=str)
    parser.add_argument("--output_dir", default="out", type=str)
    parser.add_argument("--per_gpu_train_batch_size", default=16, type=int)
    parser.add_argument("--gradient_accumulation_steps", default=1, type=int)
    parser.add_argument("--learning_rate", default=5e-3, type=float)
    parser.add_argument("--max_grad_norm", default=1.0, type=float)
    parser.add_argument("--num_train_epochs", default=2, type=int)
    parser.add_argument("--logging_steps", type=int, default=5)
    parser.add_argument("--save_steps", type=int, default=15)
    parser.add_argument("--eval_all_checkpoints", action="store_true", default=True)
    parser.add_argument("--overwrite_cache", action="store_true")
    parser.add_argument("--no_cuda", action="store_true")
    parser.add_argument("--seed", type=int, default=42)
    args = parser.parse_args()

    device = torch.device("cuda" if torch.cuda.is_available() and not args.no_cuda else "cpu")
    args.n_gpu = torch.cuda.device_count()
    args.device = device
    logging.basicConfig(format="%(levelname)s - %(name)s - %(message)s", level=logging.INFO)
    set_seed(args)
    os.makedirs(args.data_dir, exist_ok=True)
    if not os.path.exists(args.output_dir):
        os.makedirs(args.output_dir)
    model = BagClassifier()
    model.to(args.device)
    if args.n_gpu > 1:
        model = torch.nn.DataParallel(model)
    train_dataset = load_and_cache_examples(args)
    global_step, tr_loss = train(args, train_dataset, model)
    logger.info(" global_step = %s, average loss = %s", global_step, tr_loss)
    print("steps", global_step, "average loss %.4f" % tr_loss)

    model_to_save = model.module if hasattr(model, "module") else model
    model_to_save.save_pretrained(args.output_dir)
    results = {}
    checkpoints = [args.output_dir]
    if args.eval_all_checkpoints:
        checkpoints = list(os.path.dirname(c) for c in sorted(glob.glob(args.output_dir + "/**/pytorch_model.bin", recursive=True)))
    for checkpoint in checkpoints:
        step = checkpoint.split("-")[-1] if len(checkpoints) > 1 else ""
        model = BagClassifier()
        model.load_state_dict(torch.load(os.path.join(checkpoint, "pytorch_model.bin")))
        model.to(args.device)
        result = evaluate(args, model)
        results.update({k + "_{}".format(step): v for k, v in result.items()})
    for key in sorted(results):
        print(key, "%.4f" % results[key])
    return results


if __name__ == "__main__":
    main()
