""" Fine-tune a (tiny) transformer on sentence sentiment. """
from __future__ import absolute_import, division, print_function

import argparse
import logging
import os
import random

import numpy as np
import torch
from sklearn.metrics import f1_score
from torch.utils.data import DataLoader, RandomSampler, SequentialSampler, TensorDataset
from tqdm import tqdm, trange

from modeling import TinyConfig, TinyForSequenceClassification

logging.basicConfig(format='%(asctime)s - %(levelname)s - %(name)s - %(message)s',
                    datefmt='%m/%d/%Y %H:%M:%S', level=logging.INFO)
logger = logging.getLogger(__name__)

GOOD = 'great lovely warm funny brilliant moving sharp fine'.split()
BAD = 'dull awful flat boring silly weak slow empty'.split()
REST = 'the film was and plot actor scene a in of it this with not very quite really ending music'.split()


def set_seed(args):
    random.seed(args.seed)
    np.random.seed(args.seed)
    torch.manual_seed(args.seed)
    torch.cuda.manual_seed_all(args.seed)


def make_examples(n, seed):
    r = random.Random(seed)
    examples = []
    for _ in range(n):
        label = r.randint(0, 1)
        words = [r.choice(REST) for _ in range(r.randint(4, 20))]
        for _ in range(r.randint(1, 3)):
            words.insert(r.randint(0, len(words)), r.choice(GOOD if label else BAD))
        if r.random() < 0.1:
            words.insert(0, r.choice(BAD if label else GOOD))
        examples.append((' '.join(words), label))
    return examples


def load_and_cache_examples(args, vocab, mode):
    cached = os.path.join(args.data_dir, 'cached_{}_{}'.format(mode, args.max_seq_length))
    if os.path.exists(cached):
        logger.info('Loading features from cached file %s', cached)
        features = torch.load(cached)
    else:
        examples = make_examples(600 if mode == 'train' else 203, seed=3 if mode == 'train' else 4)
        ids, masks, labels = [], [], []
        for text, label in examples:
            tokens = [vocab['[CLS]']] + [vocab.get(w, 1) for w in text.split()][:args.max_seq_length - 1]
            pad = args.max_seq_length - len(tokens)
            ids.append(tokens + [0] * pad)
            masks.append([1] * len(tokens) + [0] * pad)
            labels.append(label)
        features = {'ids': torch.tensor(ids), 'masks': torch.tensor(masks), 'labels': torch.tensor(labels)}
        logger.info('Saving features into cached file %s', cached)
        torch.save(features, cached)
    return TensorDataset(features['ids'], features['masks'], features['labels'])


def warmup_linear(step, warmup, total):
    if step < warmup:
        return float(step) / float(max(1, warmup))
    return max(0.0, float(total - step) / float(max(1.0, total - warmup)))


def train(args, train_dataset, eval_dataset, model):
    train_sampler = RandomSampler(train_dataset)
    train_dataloader = DataLoader(train_dataset, sampler=train_sampler, batch_size=args.train_batch_size)
    t_total = len(train_dataloader) // args.gradient_accumulation_steps * args.num_train_epochs

    no_decay = ['bias', 'LayerNorm.weight', 'LayerNorm1.weight', 'LayerNorm2.weight']
    grouped = [
        {'params': [p for n, p in model.named_parameters() if not any(nd in n for nd in no_decay)], 'weight_decay': 0.01},
        {'params': [p for n, p in model.named_parameters() if any(nd in n for nd in no_decay)], 'weight_decay': 0.0},
    ]
    # the head learns faster
    head = [p for n, p in model.named_parameters() if n.startswith('classifier')]
    grouped[0]['params'] = [p for p in grouped[0]['params'] if not any(p is h for h in head)]
    grouped[1]['params'] = [p for p in grouped[1]['params'] if not any(p is h for h in head)]
    grouped.append({'params': head, 'weight_decay': 0.0, 'lr': args.learning_rate * 3})
    optimizer = torch.optim.AdamW(grouped, lr=args.learning_rate, eps=1e-8)
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda s: warmup_linear(s, args.warmup_steps, t_total))

    logger.info('***** Running training *****')
    logger.info('  Num examples = %d', len(train_dataset))
    logger.info('  Total optimization steps = %d', t_total)
    global_step = 0
    tr_loss = 0.0
    model.zero_grad()
    for _ in trange(int(args.num_train_epochs), desc='Epoch'):
        for step, batch in enumerate(tqdm(train_dataloader, desc='Iteration', disable=args.quiet)):
            model.train()
            batch = tuple(t.to(args.device) for t in batch)
            inputs = {'input_ids': batch[0], 'attention_mask': batch[1], 'labels': batch[2]}
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
        result = evaluate(args, eval_dataset, model)
        logger.info('step %d  train loss %.4f  %s', global_step, tr_loss / global_step,
                    '  '.join('%s %.4f' % kv for kv in sorted(result.items())))
    return global_step, tr_loss / global_step


def evaluate(args, eval_dataset, model, prefix=''):
    eval_sampler = SequentialSampler(eval_dataset)
    eval_dataloader = DataLoader(eval_dataset, sampler=eval_sampler, batch_size=args.eval_batch_size)
    eval_loss = 0.0
    nb_eval_steps = 0
    preds = None
    out_label_ids = None
    for batch in tqdm(eval_dataloader, desc='Evaluating', disable=args.quiet):
        model.eval()
        batch = tuple(t.to(args.device) for t in batch)
        with torch.no_grad():
            loss, logits = model(batch[0], batch[1], labels=batch[2])
        eval_loss += loss.mean().item()
        nb_eval_steps += 1
        if preds is None:
            preds = logits.detach().cpu().numpy()
            out_label_ids = batch[2].detach().cpu().numpy()
        else:
            preds = np.append(preds, logits.detach().cpu().numpy(), axis=0)
            out_label_ids = np.append(out_label_ids, batch[2].detach().cpu().numpy(), axis=0)
    eval_loss = eval_loss / nb_eval_steps
    preds = np.argmax(preds, axis=1)
    return {'loss': eval_loss, 'acc': (preds == out_label_ids).mean(), 'f1': f1_score(out_label_ids, preds)}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument('--data_dir', default='cache', type=str)
    parser.add_argument('--output_dir', default=None, type=str, required=True)
    parser.add_argument('--max_seq_length', default=24, type=int)
    parser.add_argument('--do_train', action='store_true')
    parser.add_argument('--do_eval', action='store_true')
    parser.add_argument('--train_batch_size', default=16, type=int)
    parser.add_argument('--eval_batch_size', default=32, type=int)
    parser.add_argument('--gradient_accumulation_steps', default=2, type=int)
    parser.add_argument('--learning_rate', default=2e-3, type=float)
    parser.add_argument('--max_grad_norm', default=1.0, type=float)
    parser.add_argument('--num_train_epochs', default=3.0, type=float)
    parser.add_argument('--warmup_steps', default=5, type=int)
    parser.add_argument('--no_cuda', action='store_true')
    parser.add_argument('--quiet', action='store_true')
    parser.add_argument('--seed', type=int, default=42)
    args = parser.parse_args()

    if os.path.exists(args.output_dir) and os.listdir(args.output_dir) and args.do_train:
        raise ValueError('Output directory ({}) already exists and is not empty.'.format(args.output_dir))
    if not os.path.exists(args.data_dir):
        os.makedirs(args.data_dir)
    args.device = torch.device('cuda' if torch.cuda.is_available() and not args.no_cuda else 'cpu')
    set_seed(args)

    words = ['[PAD]', '[UNK]', '[CLS]'] + sorted(set(GOOD + BAD + REST))
    vocab = {w: i for i, w in enumerate(words)}
    model = TinyForSequenceClassification(TinyConfig(len(vocab)))
    model.to(args.device)

    train_dataset = load_and_cache_examples(args, vocab, 'train')
    eval_dataset = load_and_cache_examples(args, vocab, 'dev')
    if args.do_train:
        global_step, tr_loss = train(args, train_dataset, eval_dataset, model)
        logger.info(' global_step = %s, average loss = %s', global_step, tr_loss)
        if not os.path.exists(args.output_dir):
            os.makedirs(args.output_dir)
        model_to_save = model.module if hasattr(model, 'module') else model
        torch.save(model_to_save.state_dict(), os.path.join(args.output_dir, 'pytorch_model.bin'))
        torch.save(args, os.path.join(args.output_dir, 'training_args.bin'))
    if args.do_eval:
        model.load_state_dict(torch.load(os.path.join(args.output_dir, 'pytorch_model.bin')))
        result = evaluate(args, eval_dataset, model)
        with open(os.path.join(args.output_dir, 'eval_results.txt'), 'w') as writer:
            for key in sorted(result.keys()):
                logger.info('  %s = %s', key, str(result[key]))
                writer.write('%s = %s\n' % (key, str(result[key])))


if __name__ == '__main__':
    main()
