"""Adversarial training on small digits (PGD inside the loop)."""
import argparse
import os

import torch
import torch.nn as nn
import torch.nn.functional as F
from sklearn.datasets import load_digits
from torch.utils.data import DataLoader, TensorDataset, random_split


def parse():
    p = argparse.ArgumentParser()
    p.add_argument('--epochs', type=int, default=30)
    p.add_argument('--batch-size', type=int, default=48)
    p.add_argument('--eps', type=float, default=0.15)
    p.add_argument('--alpha', type=float, default=0.05)
    p.add_argument('--steps', type=int, default=7)
    p.add_argument('--lr', type=float, default=0.05)
    p.add_argument('--device', default='cuda' if torch.cuda.is_available() else 'cpu')
    p.add_argument('--save-dir', default='ckpt')
    return p.parse_args()


class SmallCNN(nn.Module):
    def __init__(self):
        super().__init__()
        self.features = nn.Sequential(nn.Conv2d(1, 12, 3, padding=1), nn.ReLU(), nn.Conv2d(12, 24, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2))
        self.fc = nn.Linear(24 * 16, 10)

    def forward(self, x):
        return self.fc(self.features(x).flatten(1))


def pgd_attack(model, x, y, eps, alpha, steps):
    model.eval()
    x_adv = x.detach() + torch.empty_like(x).uniform_(-eps, eps)
    x_adv = x_adv.clamp(0, 1)
    for _ in range(steps):
        x_adv.requires_grad_()
        loss = F.cross_entropy(model(x_adv), y)
        grad = torch.autograd.grad(loss, x_adv)[0]
        x_adv = x_adv.detach() + alpha * grad.sign()
        x_adv = torch.min(torch.max(x_adv, x - eps), x + eps).clamp(0, 1)
    model.train()
    return x_adv.detach()


def evaluate(model, loader, args):
    model.eval()
    nat, rob, total = 0, 0, 0
    for x, y in loader:
        x, y = x.to(args.device), y.to(args.device)
        with torch.no_grad():
            nat += (model(x).argmax(1) == y).sum().item()
        x_adv = pgd_attack(model, x, y, args.eps, args.alpha, args.steps)
        model.eval()
        with torch.no_grad():
            rob += (model(x_adv).argmax(1) == y).sum().item()
        total += len(y)
    return nat / total, rob / total


def main():
    args = parse()
    torch.manual_seed(0)
    os.makedirs(args.save_dir, exist_ok=True)
    d = load_digits()
    data = TensorDataset(torch.tensor(d.images, dtype=torch.float32)[:, None] / 16, torch.tensor(d.target))
    train_set, test_set = random_split(data, [1400, 397])
    train_loader = DataLoader(train_set, args.batch_size, shuffle=True, drop_last=True)
    test_loader = DataLoader(test_set, 100)
    model = SmallCNN().to(args.device)
    opt = torch.optim.SGD(model.parameters(), lr=args.lr, momentum=0.9)
    best = 0
    for epoch in range(args.epochs):
        model.train()
        running = 0.0
        for i, (x, y) in enumerate(train_loader):
            x, y = x.to(args.device), y.to(args.device)
            x_adv = pgd_attack(model, x, y, args.eps, args.alpha, args.steps)
            opt.zero_grad()
            loss = F.cross_entropy(model(x_adv), y)
            loss.backward()
            opt.step()
            running += loss.item()
        nat, rob = evaluate(model, test_loader, args)
        print(f'epoch {epoch}: loss {running / (i + 1):.4f}  natural {nat:.4f}  robust {rob:.4f}')
        if rob > best:
            best = rob
            torch.save({'model': model.state_dict(), 'robust': rob, 'args': vars(args)}, os.path.join(args.save_dir, 'best.pt'))


if __name__ == '__main__':
    main()
