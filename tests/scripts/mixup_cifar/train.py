#!/usr/bin/env python3 -u
"""Small pictures with mixup (or cutmix, --cut)."""
from __future__ import print_function

import argparse
import csv
import os
import time

import numpy as np
import torch
import torch.nn as nn
import torch.optim as optim
import torch.backends.cudnn as cudnn
from torch.autograd import Variable

import datasets
import models
from transforms import *

p = argparse.ArgumentParser()
p.add_argument('--model', default="narrow8")
p.add_argument('--lr', default=0.1, type=float)
p.add_argument('--decay', default=1e-4, type=float)
p.add_argument('--batch-size', default=128, type=int)
p.add_argument('--epoch', default=200, type=int)
p.add_argument('--alpha', default=1., type=float, help='0: no mixing')
p.add_argument('--cut', action='store_true')
p.add_argument('--no-augment', dest='augment', action='store_false')
p.add_argument('--seed', default=0, type=int, help='0: do not seed')
p.add_argument('--sess', default='default', help='name of this run')
p.add_argument('-r', '--resume', action='store_true')
args = p.parse_args()

use_cuda = torch.cuda.is_available()
best_acc, start_epoch = 0, 0
if args.seed != 0:
    torch.manual_seed(args.seed)
    np.random.seed(args.seed)
    random.seed(args.seed)

norm = Normalize((0.49, 0.48, 0.45), (0.2, 0.2, 0.2))
plain = Compose([ToTensor(), norm])
augmented = Compose([RandomCrop(32, padding=4), RandomHorizontalFlip(), ToTensor(), norm])
trainloader = torch.utils.data.DataLoader(
    datasets.CIFAR10(root='data', train=True, download=True, transform=augmented if args.augment else plain),
    batch_size=args.batch_size, shuffle=True)
testloader = torch.utils.data.DataLoader(
    datasets.CIFAR10(root='data', train=False, download=True, transform=plain), batch_size=30, shuffle=False)

ckpt_path = 'checkpoint/%s_%d.t7' % (args.sess, args.seed)
if args.resume:
    saved = torch.load(ckpt_path, weights_only=False)
    net, best_acc, start_epoch = saved['net'], saved['acc'], saved['epoch'] + 1
    torch.set_rng_state(saved['rng_state'])
    print('resumed after epoch', start_epoch - 1)
else:
    net = models.__dict__[args.model]()

if use_cuda:
    net = torch.nn.DataParallel(net.cuda())
    cudnn.benchmark = True

criterion = nn.CrossEntropyLoss()
optimizer = optim.SGD(net.parameters(), lr=args.lr, momentum=0.9, weight_decay=args.decay)


def mix(x, y):
    """x mixed with a shuffled copy of itself; both targets; share of the first"""
    if args.alpha <= 0:
        return x, y, y, 1.
    lam = np.random.beta(args.alpha, args.alpha)
    perm = torch.randperm(x.size(0))
    if use_cuda:
        perm = perm.cuda()
    if args.cut:
        h, w = x.size(2), x.size(3)
        ch, cw = int(h * np.sqrt(1 - lam)), int(w * np.sqrt(1 - lam))
        top, left = np.random.randint(0, h - ch + 1), np.random.randint(0, w - cw + 1)
        x = x.clone()
        x[:, :, top:top + ch, left:left + cw] = x[perm, :, top:top + ch, left:left + cw]
        return x, y, y[perm], 1. - ch * cw / float(h * w)
    return lam * x + (1 - lam) * x[perm], y, y[perm], lam


def run_train():
    net.train()
    total_loss, hits, seen = 0., 0., 0
    for x, y in trainloader:
        if use_cuda:
            x, y = x.cuda(), y.cuda()
        x, ya, yb, lam = mix(x, y)
        x, ya, yb = Variable(x), Variable(ya), Variable(yb)
        out = net(x)
        loss = lam * criterion(out, ya) + (1 - lam) * criterion(out, yb)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

        total_loss += loss.data.item()
        pred = out.data.max(1)[1]
        hits += lam * pred.eq(ya).cpu().sum().float() + (1 - lam) * pred.eq(yb).cpu().sum().float()
        seen += y.size(0)
    return total_loss / len(trainloader), 100. * hits.item() / seen


def run_test():
    net.eval()
    total_loss, hits, seen = 0., 0, 0
    with torch.no_grad():
        for x, y in testloader:
            if use_cuda:
                x, y = x.cuda(), y.cuda()
            out = net(x)
            total_loss += criterion(out, y).data.item()
            hits += out.data.max(1)[1].eq(y).cpu().sum()
            seen += y.size(0)
    return total_loss / len(testloader), 100. * hits.item() / seen


for d in ('results', 'checkpoint'):
    if not os.path.isdir(d):
        os.mkdir(d)
log = 'results/%s_%s.csv' % (net.__class__.__name__, args.sess)
if not os.path.exists(log):
    with open(log, 'w') as f:
        csv.writer(f).writerow(['epoch', 'lr', 'train_loss', 'train_acc', 'test_loss', 'test_acc'])

for epoch in range(start_epoch, args.epoch):
    # a tenth after half of the epochs
    lr = args.lr * (0.1 if epoch >= args.epoch // 2 else 1)
    for g in optimizer.param_groups:
        g['lr'] = lr
    tic = time.time()
    tr = run_train()
    te = run_test()
    print('epoch %d  train %.3f %.2f%%  test %.3f %.2f%%  %.1fs' % ((epoch,) + tr + te + (time.time() - tic,)))
    with open(log, 'a') as f:
        csv.writer(f).writerow([epoch, lr] + ['%.4f' % v for v in tr + te])

    if te[1] > best_acc or epoch == args.epoch - 1:
        best_acc = max(best_acc, te[1])
        torch.save({'net': net.module if use_cuda else net, 'acc': te[1], 'epoch': epoch,
                    'rng_state': torch.get_rng_state()}, ckpt_path)
