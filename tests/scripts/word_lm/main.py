# coding: utf-8
import argparse
import math
import time

import torch
import torch.nn as nn
from torch.nn.utils import clip_grad_norm_

import data
import model

parser = argparse.ArgumentParser(description='recurrent language model on a small text')
parser.add_argument('--data', default='./data')
parser.add_argument('--model', default='LSTM', help='LSTM or GRU')
parser.add_argument('--emsize', type=int, default=200)
parser.add_argument('--nhid', type=int, default=200)
parser.add_argument('--nlayers', type=int, default=1)
parser.add_argument('--lr', type=float, default=20)
parser.add_argument('--clip', type=float, default=0.25)
parser.add_argument('--epochs', type=int, default=40)
parser.add_argument('--batch_size', type=int, default=20)
parser.add_argument('--bptt', type=int, default=35, help='sequence length')
parser.add_argument('--dropout', type=float, default=0.2)
parser.add_argument('--tied', action='store_true')
parser.add_argument('--seed', type=int, default=1111)
parser.add_argument('--cuda', action='store_true')
parser.add_argument('--log-interval', type=int, default=10)
parser.add_argument('--save', default='model.pt')
args = parser.parse_args()

torch.manual_seed(args.seed)
if torch.cuda.is_available() and not args.cuda:
    print("there is a GPU, --cuda would use it")
device = torch.device("cuda" if args.cuda else "cpu")

# ------------------------------------------------------------------ data

corpus = data.Corpus(args.data)
EVAL_BSZ = 10


def batchify(ids, bsz):
    """cut the text into bsz columns of equal length, side by side"""
    rows = ids.size(0) // bsz
    return ids[:rows * bsz].view(bsz, rows).t().contiguous().to(device)


train_data = batchify(corpus.train, args.batch_size)
val_data = batchify(corpus.valid, EVAL_BSZ)
test_data = batchify(corpus.test, EVAL_BSZ)


def get_batch(source, i):
    n = min(args.bptt, len(source) - 1 - i)
    return source[i:i + n], source[i + 1:i + 1 + n].reshape(-1)


# ----------------------------------------------------------------- model

ntokens = len(corpus.dictionary)
model = model.RNNModel(args.model, ntokens, args.emsize, args.nhid, args.nlayers, args.dropout, args.tied).to(device)
criterion = nn.CrossEntropyLoss()


def repackage_hidden(h):
    """same values, no history"""
    if torch.is_tensor(h):
        return h.detach()
    return tuple(repackage_hidden(v) for v in h)


def evaluate(source):
    model.eval()
    total = 0.
    hidden = model.init_hidden(EVAL_BSZ)
    with torch.no_grad():
        for i in range(0, source.size(0) - 1, args.bptt):
            words, targets = get_batch(source, i)
            output, hidden = model(words, hidden)
            total += len(words) * criterion(output.view(-1, ntokens), targets).item()
            hidden = repackage_hidden(hidden)
    return total / (len(source) - 1)


def train(epoch, lr):
    model.train()
    running = 0.
    tick = time.time()
    hidden = model.init_hidden(args.batch_size)
    for batch, i in enumerate(range(0, train_data.size(0) - 1, args.bptt)):
        words, targets = get_batch(train_data, i)
        hidden = repackage_hidden(hidden)
        model.zero_grad()
        output, hidden = model(words, hidden)
        loss = criterion(output.view(-1, ntokens), targets)
        loss.backward()

        clip_grad_norm_(model.parameters(), args.clip)
        # plain gradient descent, no need of an optimizer for that
        for p in model.parameters():
            p.data.add_(p.grad, alpha=-lr)

        running += loss.item()
        if batch % args.log_interval == 0 and batch > 0:
            mean = running / args.log_interval
            ms = 1000 * (time.time() - tick) / args.log_interval
            print('[{:2d}] {:4d}/{:4d} lr {:.2f} {:.1f} ms loss {:.3f} ppl {:.2f}'.format(
                epoch, batch, len(train_data) // args.bptt, lr, ms, mean, math.exp(mean)))
            running = 0
            tick = time.time()


lr = args.lr
best = None
try:
    for epoch in range(1, args.epochs + 1):
        train(epoch, lr)
        val_loss = evaluate(val_data)
        print('[{:2d}] valid loss {:.3f} ppl {:.2f}'.format(epoch, val_loss, math.exp(val_loss)))
        if not best or val_loss < best:
            with open(args.save, 'wb') as f:
                torch.save(model, f)
            best = val_loss
        else:
            lr /= 4.0   # no better: smaller steps
except KeyboardInterrupt:
    print('enough')

with open(args.save, 'rb') as f:
    model = torch.load(f, weights_only=False)
    model.rnn.flatten_parameters()

test_loss = evaluate(test_data)
print('test loss {:.3f} ppl {:.2f}'.format(test_loss, math.exp(test_loss)))
