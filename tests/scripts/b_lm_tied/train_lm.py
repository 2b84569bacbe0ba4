# coding: utf-8
import argparse
import math
import time

import torch
import torch.nn as nn

from corpus import Corpus
from rnn import RNNLM

parser = argparse.ArgumentParser(description='LSTM language model on a toy grammar')
parser.add_argument('--emsize', type=int, default=40)
parser.add_argument('--nhid', type=int, default=40)
parser.add_argument('--nlayers', type=int, default=1)
parser.add_argument('--lr', type=float, default=10)
parser.add_argument('--clip', type=float, default=0.25)
parser.add_argument('--epochs', type=int, default=40)
parser.add_argument('--batch_size', type=int, default=16)
parser.add_argument('--bptt', type=int, default=20)
parser.add_argument('--dropout', type=float, default=0.1)
parser.add_argument('--tied', action='store_true')
parser.add_argument('--seed', type=int, default=1111)
parser.add_argument('--cuda', action='store_true', help='use CUDA')
parser.add_argument('--log-interval', type=int, default=15)
parser.add_argument('--save', type=str, default='model.pt')
args = parser.parse_args()

torch.manual_seed(args.seed)
if torch.cuda.is_available() and not args.cuda:
    print("WARNING: there is a CUDA device, --cuda would use it")
device = torch.device("cuda" if args.cuda else "cpu")

corpus = Corpus()


def columns(ids, bsz):
    # a b c d e f -> two columns: a b c / d e f; the rest is cut off
    n = ids.size(0) // bsz
    return ids[:n * bsz].view(bsz, n).t().contiguous().to(device)


def chunk(source, i):
    n = min(args.bptt, len(source) - 1 - i)
    return source[i:i + n], source[i + 1:i + 1 + n].reshape(-1)


def detach(h):
    if isinstance(h, torch.Tensor):
        return h.detach()
    return tuple(detach(v) for v in h)


eval_batch_size = 10
train_data = columns(corpus.train, args.batch_size)
val_data = columns(corpus.valid, eval_batch_size)
test_data = columns(corpus.test, eval_batch_size)
ntokens = len(corpus.dictionary)
model = RNNLM(ntokens, args.emsize, args.nhid, args.nlayers, args.dropout, args.tied).to(device)
criterion = nn.CrossEntropyLoss()


def evaluate(source):
    model.eval()
    nll, n = 0., 0
    hidden = model.init_hidden(eval_batch_size)
    with torch.no_grad():
        for i in range(0, source.size(0) - 1, args.bptt):
            data, targets = chunk(source, i)
            output, hidden = model(data, hidden)
            nll += criterion(output, targets).item() * targets.numel()
            n += targets.numel()
    return nll / n


def train(epoch, lr):
    model.train()
    window, start = [], time.time()
    hidden = model.init_hidden(args.batch_size)
    starts = range(0, train_data.size(0) - 1, args.bptt)
    for b, i in enumerate(starts, 1):
        data, targets = chunk(train_data, i)
        hidden = detach(hidden)      # no gradient beyond the chunk
        output, hidden = model(data, hidden)
        loss = criterion(output, targets)
        model.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), args.clip)
        # plain SGD
        for p in model.parameters():
            p.data.add_(p.grad, alpha=-lr)
        window.append(loss.item())
        if b % args.log_interval == 0:
            mean = sum(window) / len(window)
            print('%2d: %3d/%3d  lr %.3f  loss %.3f  ppl %.2f  %.1fs' % (
                epoch, b, len(starts), lr, mean, math.exp(mean), time.time() - start))
            window = []


lr = args.lr
best = float('inf')
try:
    for epoch in range(1, args.epochs + 1):
        train(epoch, lr)
        val = evaluate(val_data)
        print('=== epoch %d  valid loss %.4f  ppl %.3f' % (epoch, val, math.exp(val)))
        if val < best:
            best = val
            with open(args.save, 'wb') as f:
                torch.save(model, f)
        else:
            lr /= 4.0       # anneal when it got worse
except KeyboardInterrupt:
    print('stopped by hand')

model = torch.load(open(args.save, 'rb'), weights_only=False)
model.rnn.flatten_parameters()
test = evaluate(test_data)
print('=== test loss %.4f  ppl %.3f  (%d words in the vocabulary)' % (test, math.exp(test), model.ntoken))
