#!/usr/bin/env python3
import argparse
import random

import numpy as np
import torch
import torch.nn as nn
from sklearn.datasets import load_digits
from torch.utils.data import ConcatDataset, DataLoader, Subset, TensorDataset


def seed_everything(s):
    random.seed(s)
    np.random.seed(s)
    torch.manual_seed(s)


def make_model():
    return nn.Sequential(nn.Linear(64, 96), nn.ReLU(), nn.Linear(96, 48), nn.ReLU(), nn.Linear(48, 10))


def train(model, dataset, epochs, device):
    loader = DataLoader(dataset, batch_size=32, shuffle=True, num_workers=0)
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    criterion = nn.CrossEntropyLoss()
    model.train()
    for epoch in range(epochs):
        total_loss, seen = 0.0, 0
        for inputs, targets in loader:
            inputs, targets = inputs.to(device), targets.to(device)
            optimizer.zero_grad()
            loss = criterion(model(inputs), targets)
            loss.backward()
            optimizer.step()
            total_loss += loss.item() * inputs.size(0)
            seen += inputs.size(0)
    return total_loss / seen


@torch.no_grad()
def predict(model, dataset, device):
    model.eval()
    probs = []
    for inputs, _ in DataLoader(dataset, batch_size=256, shuffle=False):
        probs.append(torch.softmax(model(inputs.to(device)), dim=1).cpu())
    return torch.cat(probs)


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument('--rounds', type=int, default=4)
    ap.add_argument('--epochs', type=int, default=3)
    ap.add_argument('--threshold', type=float, default=0.8)
    opt = ap.parse_args()
    seed_everything(7)
    device = torch.device('cuda:0' if torch.cuda.is_available() else 'cpu')

    d = load_digits()
    x = torch.tensor(d.data / 16, dtype=torch.float32)
    y = torch.tensor(d.target)
    perm = np.random.permutation(len(x))
    labelled, unlabelled, test = perm[:300], perm[300:1400], perm[1400:]
    full = TensorDataset(x, y)
    labelled_set, test_set = Subset(full, labelled), Subset(full, test)
    pool = TensorDataset(x[unlabelled], torch.full((len(unlabelled),), -1))

    current = labelled_set
    for r in range(opt.rounds):
        model = make_model().to(device)
        loss = train(model, current, opt.epochs, device)
        acc = (predict(model, test_set, device).argmax(1) == y[test]).float().mean().item()
        conf, pseudo = predict(model, pool, device).max(1)
        keep = conf > opt.threshold
        right = (pseudo[keep] == y[unlabelled][keep]).float().mean().item() if keep.any() else 0
        print('round %d: trained on %d, loss %.4f, test acc %.4f, kept %d (%.2f%% right)' % (
            r, len(current), loss, acc, int(keep.sum()), 100 * right))
        current = ConcatDataset([labelled_set, TensorDataset(x[unlabelled][keep], pseudo[keep])])
    torch.save(model.state_dict(), 'self_trained.pt')


if __name__ == '__main__':
    main()
