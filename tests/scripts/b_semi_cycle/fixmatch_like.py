from itertools import cycle
import copy
import math
import os

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, Dataset, Subset
from sklearn.datasets import load_digits
from tqdm import tqdm

N_LABELLED = 60
BS = 20
MU = 4            # unlabelled batch = MU * BS
EPOCHS = 7
THRESHOLD = 0.9
LAMBDA_U = 1.0
EMA = 0.97


def weak(x):
    return x + 0.05 * torch.randn_like(x)


def strong(x):
    x = torch.roll(x, int(torch.randint(-1, 2, (1,))), dims=-1)
    x = x * (torch.rand_like(x) > 0.2)
    return x + 0.15 * torch.randn_like(x)


class Digits(Dataset):
    def __init__(self, x, y, mode):
        self.x, self.y, self.mode = x, y, mode

    def __getitem__(self, i):
        x = self.x[i]
        if self.mode == 'labelled':
            return weak(x), self.y[i]
        if self.mode == 'unlabelled':
            return weak(x), strong(x)
        return x, self.y[i]

    def __len__(self):
        return len(self.y)


def build_loaders():
    d = load_digits()
    x = torch.tensor(d.images / 16, dtype=torch.float32).unsqueeze(1)
    y = torch.tensor(d.target)
    test_x, test_y = x[1400:], y[1400:]
    x, y = x[:1400], y[:1400]
    # the same number of labels for each class
    idx = []
    for c in range(10):
        idx.extend(torch.where(y == c)[0][:N_LABELLED // 10].tolist())
    lab = Digits(x[idx], y[idx], 'labelled')
    unl = Digits(x, y, 'unlabelled')
    tst = Digits(test_x, test_y, 'test')
    return (DataLoader(lab, BS, shuffle=True, drop_last=True),
            DataLoader(unl, BS * MU, shuffle=True, drop_last=True),
            DataLoader(tst, 128, shuffle=False))


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(1, 16, 3, padding=1)
        self.conv2 = nn.Conv2d(16, 32, 3, padding=1)
        self.gn = nn.GroupNorm(4, 32)
        self.fc = nn.Linear(32 * 4, 10)

    def forward(self, x):
        x = F.max_pool2d(F.relu(self.conv1(x)), 2)
        x = F.adaptive_max_pool2d(F.relu(self.gn(self.conv2(x))), 2)
        return self.fc(x.flatten(1))


def test(model, loader, device):
    model.eval()
    right = 0
    loss = 0
    with torch.no_grad():
        for x, y in loader:
            x, y = x.to(device), y.to(device)
            out = model(x)
            loss += F.cross_entropy(out, y, reduction='sum').item()
            right += (out.argmax(dim=1) == y).sum().item()
    return loss / len(loader.dataset), right / len(loader.dataset)


def main():
    device = torch.device('cuda' if torch.cuda.is_available() else 'cpu')
    lab_loader, unl_loader, test_loader = build_loaders()
    model = Net().to(device)
    shadow = {k: v.detach().clone() for k, v in model.state_dict().items()}
    opt = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, nesterov=True)
    total = EPOCHS * len(unl_loader)
    sched = torch.optim.lr_scheduler.LambdaLR(opt, lambda s: math.cos(7 * math.pi * s / (16 * total)))
    best = 0.0

    for epoch in range(EPOCHS):
        model.train()
        mean_s, mean_u, mean_mask = 0.0, 0.0, 0.0
        bar = tqdm(zip(cycle(lab_loader), unl_loader), total=len(unl_loader), desc='epoch %d' % epoch)
        for i, ((xl, yl), (uw, us)) in enumerate(bar):
            xl, yl, uw, us = xl.to(device), yl.to(device), uw.to(device), us.to(device)
            n = xl.size(0)
            logits = model(torch.cat([xl, uw, us]))
            logit_l = logits[:n]
            logit_w, logit_s = logits[n:].chunk(2)
            loss_s = F.cross_entropy(logit_l, yl)

            p = torch.softmax(logit_w.detach(), dim=-1)
            conf, pseudo = p.max(dim=-1)
            mask = conf.ge(THRESHOLD).float()
            loss_u = (F.cross_entropy(logit_s, pseudo, reduction='none') * mask).sum() / mask.sum().clamp(min=1)
            loss = loss_s + LAMBDA_U * loss_u

            opt.zero_grad()
            loss.backward()
            opt.step()
            sched.step()
            with torch.no_grad():
                for k, v in model.state_dict().items():
                    shadow[k].mul_(EMA).add_(v, alpha=1 - EMA)

            # running means
            mean_s += (loss_s.item() - mean_s) / (i + 1)
            mean_u += (loss_u.item() - mean_u) / (i + 1)
            mean_mask += (mask.mean().item() - mean_mask) / (i + 1)
            bar.set_postfix(sup='%.3f' % mean_s, unsup='%.3f' % mean_u, mask='%.2f' % mean_mask)

        raw = test(model, test_loader, device)
        # swap the averaged weights in, and out again
        backup = copy.deepcopy(model.state_dict())
        model.load_state_dict(shadow)
        ema_loss, ema_acc = test(model, test_loader, device)
        if ema_acc > best:
            best = ema_acc
            torch.save({'ema': shadow, 'model': backup, 'epoch': epoch, 'acc': ema_acc}, 'semi_best.tar')
        model.load_state_dict(backup)
        print(f'epoch {epoch}: acc {raw[1]:.4f}  ema acc {ema_acc:.4f} loss {ema_loss:.4f}  best {best:.4f}')


if __name__ == '__main__':
    main()
