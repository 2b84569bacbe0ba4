import os
import random

import numpy as np
import torch
import torch.nn as nn
import torch.optim as optim

import params
from datasets import make_domain
from net import AdaptNet
from evaluate import evaluate

os.environ['CUDA_VISIBLE_DEVICES'] = '0'

seed = random.randint(1, 9999)
print('random seed:', seed)
random.seed(seed)
torch.manual_seed(seed)

use_gpu = torch.cuda.is_available()
if not os.path.exists(params.out):
    os.mkdir(params.out)

src_set = make_domain('clean', split='train')
tgt_set = make_domain('noisy', split='train')
src_loader = torch.utils.data.DataLoader(src_set, batch_size=params.batch_size, shuffle=True)
tgt_loader = torch.utils.data.DataLoader(tgt_set, batch_size=params.batch_size, shuffle=True)

net = AdaptNet(n_class=10)
label_criterion = nn.CrossEntropyLoss()
domain_criterion = nn.BCEWithLogitsLoss()
if use_gpu:
    net.cuda()
    label_criterion.cuda()
    domain_criterion.cuda()
optimizer = optim.SGD(net.parameters(), lr=params.lr, momentum=0.9)

steps = min(len(src_loader), len(tgt_loader))
total = steps * params.epochs
best_tgt = 0.0
best_src = 0.0

for epoch in range(params.epochs):
    src_iter = iter(src_loader)
    tgt_iter = iter(tgt_loader)
    net.train()
    for i in range(steps):
        # the usual schedule: lambda goes 0 -> 1, the lr goes down
        progress = (epoch * steps + i) / total
        lam = 2.0 / (1.0 + np.exp(-10 * progress)) - 1
        for g in optimizer.param_groups:
            g['lr'] = params.lr / (1 + 10 * progress) ** 0.75

        xs, ys = next(src_iter)
        xt, _ = next(tgt_iter)     # labels of the target are never looked at
        ds = torch.zeros(xs.size(0))
        dt = torch.ones(xt.size(0))
        if use_gpu:
            xs, ys, xt = xs.cuda(), ys.cuda(), xt.cuda()
            ds, dt = ds.cuda(), dt.cuda()

        net.zero_grad()
        class_out, dom_out = net(xs, lam)
        loss_y = label_criterion(class_out, ys)
        loss_ds = domain_criterion(dom_out, ds)
        _, dom_out = net(xt, lam)
        loss_dt = domain_criterion(dom_out, dt)
        loss = loss_y + 0.3 * (loss_ds + loss_dt)
        loss.backward()
        optimizer.step()

        if i % 5 == 0:
            print('\repoch %d [%d/%d] y %.3f  d_src %.3f  d_tgt %.3f' % (
                epoch, i, steps, loss_y.item(), loss_ds.item(), loss_dt.item()), end='')
    print()

    torch.save(net, '%s/current.pth' % params.out)
    acc_src = evaluate('clean')
    acc_tgt = evaluate('noisy')
    print('   test acc: source %.4f   target %.4f' % (acc_src, acc_tgt))
    if acc_tgt > best_tgt:
        best_src, best_tgt = acc_src, acc_tgt
        torch.save(net, '%s/best.pth' % params.out)

print('BEST  source %.4f  target %.4f' % (best_src, best_tgt))
