#!/usr/bin/env python
import argparse
import math
import os
import random
import shutil
import time

import numpy as np
import torch
import torch.nn as nn
from sklearn.datasets import load_digits
from sklearn.neighbors import KNeighborsClassifier

import builder


parser = argparse.ArgumentParser(description='MoCo on digits')
parser.add_argument('--epochs', default=100, type=int)
parser.add_argument('-b', '--batch-size', default=64, type=int)
parser.add_argument('--lr', default=0.02, type=float)
parser.add_argument('--momentum', default=0.9, type=float)
parser.add_argument('--wd', default=1e-4, type=float)
parser.add_argument('-p', '--print-freq', default=6, type=int)
parser.add_argument('--resume', default='', type=str)
parser.add_argument('--gpu', default=None, type=int)
parser.add_argument('--moco-dim', default=16, type=int)
parser.add_argument('--moco-k', default=1024, type=int)
parser.add_argument('--moco-m', default=0.98, type=float)
parser.add_argument('--moco-t', default=0.2, type=float)
parser.add_argument('--results-dir', default='moco_ckpt', type=str)


class TwoCrops(torch.utils.data.Dataset):
    def __init__(self, x):
        self.x = x

    def aug(self, im):
        im = np.roll(im, np.random.randint(-1, 2, 2), (0, 1))
        im = im * np.random.uniform(.5, 1.2) + np.random.normal(0, .08, im.shape)
        return torch.tensor(im, dtype=torch.float32)[None]

    def __getitem__(self, i):
        return self.aug(self.x[i]), self.aug(self.x[i])

    def __len__(self):
        return len(self.x)


def base_encoder(dim):
    return nn.Sequential(nn.Conv2d(1, 12, 3, padding=1), nn.BatchNorm2d(12), nn.ReLU(), nn.MaxPool2d(2),
                         nn.Flatten(), nn.Linear(12 * 16, 48), nn.ReLU(), nn.Linear(48, dim))


def main():
    args = parser.parse_args()
    if args.gpu is not None:
        torch.cuda.set_device(args.gpu)
    print(args)
    digits = load_digits()
    x = (digits.images / 16).astype(np.float32)
    y = digits.target

    model = builder.MoCo(base_encoder, args.moco_dim, args.moco_k, args.moco_m, args.moco_t)
    if torch.cuda.is_available():
        model = model.cuda(args.gpu)
    criterion = nn.CrossEntropyLoss()
    optimizer = torch.optim.SGD(model.parameters(), args.lr, momentum=args.momentum, weight_decay=args.wd)

    start_epoch = 0
    if args.resume:
        if os.path.isfile(args.resume):
            ckpt = torch.load(args.resume)
            start_epoch = ckpt['epoch']
            model.load_state_dict(ckpt['state_dict'])
            optimizer.load_state_dict(ckpt['optimizer'])
        else:
            print("=> no checkpoint found at '{}'".format(args.resume))

    loader = torch.utils.data.DataLoader(TwoCrops(x[:1350]), batch_size=args.batch_size, shuffle=True, drop_last=True)
    if not os.path.exists(args.results_dir):
        os.mkdir(args.results_dir)

    best = 0.
    for epoch in range(start_epoch, args.epochs):
        adjust_learning_rate(optimizer, epoch, args)
        train(loader, model, criterion, optimizer, epoch, args)
        acc = knn_test(model, x, y)
        print('epoch %d kNN acc %.4f' % (epoch, acc))
        is_best = acc > best
        best = max(acc, best)
        save_checkpoint({'epoch': epoch + 1, 'state_dict': model.state_dict(), 'optimizer': optimizer.state_dict()},
                        is_best, args.results_dir, 'checkpoint_{:04d}.pth.tar'.format(epoch))
    print('best', best)


def train(loader, model, criterion, optimizer, epoch, args):
    batch_time, data_time = Meter('Time', ':5.3f'), Meter('Data', ':5.3f')
    losses, top1 = Meter('Loss', ':.4f'), Meter('Acc@1', ':6.2f')
    model.train()
    end = time.time()
    for i, images in enumerate(loader):
        data_time.update(time.time() - end)
        if torch.cuda.is_available():
            images = [im.cuda(args.gpu, non_blocking=True) for im in images]
        output, target = model(im_q=images[0], im_k=images[1])
        loss = criterion(output, target)
        acc1 = (output.argmax(1) == target).float().mean() * 100
        losses.update(loss.item(), images[0].size(0))
        top1.update(acc1.item(), images[0].size(0))

        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        batch_time.update(time.time() - end)
        end = time.time()
        if i % args.print_freq == 0:
            print('Epoch: [{}][{:3d}/{:3d}]  '.format(epoch, i, len(loader)) +
                  '  '.join(map(str, [batch_time, data_time, losses, top1])))


def knn_test(model, x, y):
    model.eval()
    with torch.no_grad():
        dev = model.queue.device
        f = model.encoder_q(torch.from_numpy(x)[:, None].to(dev))
        f = nn.functional.normalize(f, dim=1).cpu().numpy()
    knn = KNeighborsClassifier(5).fit(f[:1350], y[:1350])
    return knn.score(f[1350:], y[1350:])


def save_checkpoint(state, is_best, folder, filename):
    torch.save(state, os.path.join(folder, filename))
    if is_best:
        shutil.copyfile(os.path.join(folder, filename), os.path.join(folder, 'model_best.pth.tar'))


class Meter(object):
    def __init__(self, name, fmt):
        self.name, self.fmt = name, fmt
        self.val = self.sum = self.count = self.avg = 0

    def update(self, val, n=1):
        self.val = val
        self.sum += val * n
        self.count += n
        self.avg = self.sum / self.count

    def __str__(self):
        return ('{} {%s} ({%s})' % (self.fmt, self.fmt)).format(self.name, self.val, self.avg)


def adjust_learning_rate(optimizer, epoch, args):
    lr = args.lr * 0.5 * (1. + math.cos(math.pi * epoch / args.epochs))
    for g in optimizer.param_groups:
        g['lr'] = lr


if __name__ == '__main__':
    main()
