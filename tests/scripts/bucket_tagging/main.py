import argparse
import os
import random
import time

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader

from data import IGNORE, TAGS, TaggingDataset, TokenBatchSampler, Vocab, make_corpus, pad_collate, spans


def set_seed(args):
    random.seed(args.seed)
    np.random.seed(args.seed)
    torch.manual_seed(args.seed)
    if torch.cuda.is_available():
        torch.cuda.manual_seed_all(args.seed)


class Tagger(nn.Module):
    def __init__(self, n_words, n_tags, dim=24, hidden=24):
        super().__init__()
        self.embed = nn.Embedding(n_words, dim, padding_idx=0)
        self.conv = nn.Conv1d(dim, hidden, 3, padding=1)
        self.gru = nn.GRU(hidden, hidden, batch_first=True, bidirectional=True)
        self.cls = nn.Linear(2 * hidden, n_tags)

    def forward(self, words):
        x = self.embed(words)
        x = F.relu(self.conv(x.transpose(1, 2))).transpose(1, 2)
        x, _ = self.gru(F.dropout(x, 0.2, self.training))
        return self.cls(x)


def token_loss(logits, tags):
    n_tokens = (tags != IGNORE).sum()
    loss = F.cross_entropy(logits.flatten(0, 1), tags.flatten(), ignore_index=IGNORE, reduction="sum")
    return loss / n_tokens, n_tokens.item()


class F1:
    def __init__(self):
        self.tp = self.n_pred = self.n_gold = 0

    def update(self, pred, gold):
        p, g = spans(pred), spans(gold)
        self.tp += len(p & g)
        self.n_pred += len(p)
        self.n_gold += len(g)

    def compute(self):
        pr = self.tp / max(self.n_pred, 1)
        rc = self.tp / max(self.n_gold, 1)
        return 2 * pr * rc / max(pr + rc, 1e-9)


def evaluate(model, loader, device):
    model.eval()
    f1 = F1()
    loss_sum, n_tok, n_right = 0.0, 0, 0
    with torch.no_grad():
        for words, tags in loader:
            words, tags = words.to(device), tags.to(device)
            logits = model(words)
            loss, n = token_loss(logits, tags)
            loss_sum += loss.item() * n
            n_tok += n
            pred = logits.argmax(-1)
            mask = tags != IGNORE
            n_right += ((pred == tags) & mask).sum().item()
            for p, g, m in zip(pred, tags, mask):
                f1.update(p[m].tolist(), g[m].tolist())
    return {"loss": loss_sum / n_tok, "acc": n_right / n_tok, "f1": f1.compute(), "tokens": n_tok}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--seed", type=int, default=42)
    parser.add_argument("--max_tokens", type=int, default=240)
    parser.add_argument("--num_epochs", type=int, default=20)
    parser.add_argument("--patience", type=int, default=2)
    parser.add_argument("--lr", type=float, default=8e-3)
    parser.add_argument("--warmup_ratio", type=float, default=0.1)
    parser.add_argument("--output_dir", default="tagger_out")
    args = parser.parse_args()

    set_seed(args)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    args.device = device

    train_examples, dev_examples = make_corpus(420, 1), make_corpus(101, 2)
    vocab = Vocab(train_examples)
    train_ds, dev_ds = TaggingDataset(train_examples, vocab), TaggingDataset(dev_examples, vocab)
    train_loader = DataLoader(train_ds, batch_sampler=TokenBatchSampler(train_ds.lengths(), args.max_tokens),
                              collate_fn=pad_collate)
    dev_loader = DataLoader(dev_ds, batch_size=16, collate_fn=pad_collate)

    model = Tagger(len(vocab), len(TAGS)).to(device)
    no_decay = ["bias", "embed"]
    groups = [
        {"params": [p for n, p in model.named_parameters() if not any(d in n for d in no_decay)], "weight_decay": 1e-2},
        {"params": [p for n, p in model.named_parameters() if any(d in n for d in no_decay)], "weight_decay": 0.0},
    ]
    t_total = len(train_loader) * args.num_epochs
    warmup = int(t_total * args.warmup_ratio)
    opt = {"adam": torch.optim.AdamW(groups, lr=args.lr)}
    sched = torch.optim.lr_scheduler.LambdaLR(
        opt["adam"], lambda s: (s + 1) / max(1, warmup) if s < warmup else max(0.0, (t_total - s) / max(1, t_total - warmup)))

    if not os.path.exists(args.output_dir):
        os.makedirs(args.output_dir)
    best_f1, bad_epochs, global_step = 0.0, 0, 0
    for epoch in range(args.num_epochs):
        model.train()
        tr_loss, tr_tokens = 0.0, 0
        start = time.time()
        for step, batch in enumerate(train_loader):
            words, tags = tuple(t.to(args.device) for t in batch)
            logits = model(words)
            loss, n = token_loss(logits, tags)
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 5.0)
            opt["adam"].step()
            sched.step()
            model.zero_grad()
            tr_loss += loss.item() * n
            tr_tokens += n
            global_step += 1
        res = evaluate(model, dev_loader, device)
        print("epoch %d step %d/%d  train %.4f  dev loss %.4f acc %.4f f1 %.4f (%d tokens)  %.0f tok/s" % (
            epoch, global_step, t_total, tr_loss / tr_tokens, res["loss"], res["acc"], res["f1"], res["tokens"],
            tr_tokens / (time.time() - start)))
        if res["f1"] > best_f1:
            best_f1, bad_epochs = res["f1"], 0
            torch.save({"model": model.state_dict(), "vocab": vocab.itos, "args": vars(args)},
                       os.path.join(args.output_dir, "best.bin"))
        else:
            bad_epochs += 1
            if bad_epochs > args.patience:
                break
    print("best f1 %.4f" % best_f1)


if __name__ == "__main__":
    main()
