# -*- coding: utf-8 -*-
import random
import time

import torch
import torch.optim as optim

from lib.corpus import Dictionary, build
from lib.tagger import Tagger

torch.manual_seed(1)
random.seed(1)

BATCH_SIZE = 16
EPOCH = 6
use_cuda = torch.cuda.is_available()


def batches(data, size):
    """把长度相近的句子放在一起"""
    data = sorted(data, key=lambda d: len(d[0]), reverse=True)
    res = [data[i:i + size] for i in range(0, len(data), size)]
    return res


def to_tensor(batch, dic):
    lengths = [len(w) for w, _ in batch]
    T = max(lengths)
    x = torch.zeros(len(batch), T).long()
    y = torch.zeros(len(batch), T).long()
    mask = torch.zeros(len(batch), T)
    for i, (w, t) in enumerate(batch):
        x[i, :len(w)] = torch.LongTensor([dic.word2id.get(k, 1) for k in w])
        y[i, :len(t)] = torch.LongTensor([dic.tag2id[k] for k in t])
        mask[i, :len(w)] = 1
    if use_cuda:
        x, y, mask = x.cuda(), y.cuda(), mask.cuda()
    return x, y, mask, lengths


def entities(tags):
    spans, start, kind = set(), None, None
    for i, t in enumerate(list(tags) + ["O"]):
        if t.startswith("I-") and kind == t[2:]:
            continue
        if kind is not None:
            spans.add((start, i, kind))
            kind = None
        if t.startswith("B-"):
            start, kind = i, t[2:]
    return spans


def evaluate(model, data, dic):
    model.eval()
    tp, n_pred, n_gold = 0, 0, 0
    tokens_right, tokens = 0, 0
    with torch.no_grad():
        for batch in batches(data, BATCH_SIZE):
            x, y, mask, lengths = to_tensor(batch, dic)
            out = model.predict(x, lengths)
            tokens_right += ((out == y).float() * mask).sum().item()
            tokens += mask.sum().item()
            for row, (words, gold) in zip(out.tolist(), batch):
                pred = entities([dic.id2tag[k] for k in row[:len(words)]])
                gold = entities(gold)
                tp += len(pred & gold)
                n_pred += len(pred)
                n_gold += len(gold)
    p = tp / n_pred if n_pred else 0.
    r = tp / n_gold if n_gold else 0.
    f = 2 * p * r / (p + r) if p + r else 0.
    return tokens_right / tokens, p, r, f


def main():
    train_data = build(500, seed=1)
    dev_data = build(117, seed=2)
    dic = Dictionary()
    dic.fit(train_data)
    model = Tagger(len(dic.word2id), len(dic.tag2id))
    if use_cuda:
        model.cuda()
    optimizer = optim.Adam(model.parameters(), lr=0.01)
    best_f = 0.
    for epoch in range(EPOCH):
        model.train()
        t0 = time.time()
        total_loss, n = 0., 0
        bs = batches(train_data, BATCH_SIZE)
        random.shuffle(bs)
        for i, batch in enumerate(bs):
            x, y, mask, lengths = to_tensor(batch, dic)
            model.zero_grad()
            loss = model.neg_log_likelihood(x, y, mask, lengths)
            loss.backward()
            optimizer.step()
            total_loss += loss.item() * len(batch)
            n += len(batch)
            if (i + 1) % 10 == 0:
                print("epoch %d batch %d/%d loss %.4f" % (epoch, i + 1, len(bs), total_loss / n))
        acc, p, r, f = evaluate(model, dev_data, dic)
        print("epoch %d: acc %.4f  P %.4f R %.4f F %.4f  (%.2fs)" % (epoch, acc, p, r, f, time.time() - t0))
        if f > best_f:
            best_f = f
            torch.save(model.state_dict(), "tagger.pt")
    print("best F: %.4f" % best_f)


if __name__ == "__main__":
    main()
