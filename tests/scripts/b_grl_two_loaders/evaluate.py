import os

import torch
from torch.utils.data import DataLoader

import params
from datasets import make_domain


def evaluate(domain):
    loader = DataLoader(make_domain(domain, split='test'), batch_size=100, shuffle=False)
    net = torch.load(os.path.join(params.out, 'current.pth'), weights_only=False)
    net.eval()
    gpu = torch.cuda.is_available()
    if gpu:
        net = net.cuda()

    it = iter(loader)
    i, right, seen = 0, 0, 0
    while i < len(loader):
        x, y = next(it)
        if gpu:
            x, y = x.cuda(), y.cuda()
        with torch.no_grad():
            out, _ = net(x)
        pred = out.data.max(1)[1]
        right += pred.eq(y).cpu().sum()
        seen += y.size(0)
        i += 1
    return right.item() / seen
