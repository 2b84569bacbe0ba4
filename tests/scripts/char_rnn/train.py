#!/usr/bin/env python
# teach a network to write like a text file
import argparse, os, time, math
import torch
import torch.nn as nn
from torch.autograd import Variable
from tqdm import tqdm

from text import *
from rnn import *

ap = argparse.ArgumentParser()
ap.add_argument('filename')
ap.add_argument('--kind', default='gru', help='gru | lstm')
ap.add_argument('--n_epochs', type=int, default=2000)
ap.add_argument('--print_every', type=int, default=100)
ap.add_argument('--hidden_size', type=int, default=100)
ap.add_argument('--layers', type=int, default=2)
ap.add_argument('--lr', type=float, default=0.01)
ap.add_argument('--chunk_len', type=int, default=200)
ap.add_argument('--batch_size', type=int, default=100)
ap.add_argument('--cuda', action='store_true')
args = ap.parse_args()

book = TextFile(args.filename)
print('%d characters, %d different' % (len(book), len(set(book.text))))

model = CharModel(n_chars, args.hidden_size, n_chars, args.kind, args.layers)
optim = torch.optim.Adam(model.parameters(), lr=args.lr)
crit = nn.CrossEntropyLoss()
if args.cuda:
    print('on the GPU')
    model.cuda()


def step():
    x, y = book.random_batch(args.chunk_len, args.batch_size)
    x, y = Variable(x), Variable(y)
    if args.cuda:
        x = x.cuda(); y = y.cuda()
    state = model.empty_state(args.batch_size, args.cuda)
    model.zero_grad()
    loss = 0
    for t in range(args.chunk_len):
        scores, state = model(x[:, t], state)
        loss = loss + crit(scores, y[:, t])
    loss.backward()
    optim.step()
    return loss.item() / args.chunk_len


def save():
    name = os.path.splitext(os.path.basename(args.filename))[0] + '.pt'
    torch.save(model, name)
    print('saved', name)


losses = []
recent = 0
t0 = time.time()
try:
    for epoch in tqdm(range(1, args.n_epochs + 1)):
        l = step()
        recent += l
        if epoch % args.print_every == 0:
            print('%d (%d%%) %.1fs  loss %.4f  %.3f bits/char' % (
                epoch, 100. * epoch / args.n_epochs, time.time() - t0, l, l / math.log(2)))
            print(babble(model, 'Th', gpu=args.cuda))
            losses.append(recent / args.print_every)
            recent = 0
    save()
except KeyboardInterrupt:
    print('stopped by hand')
    save()
