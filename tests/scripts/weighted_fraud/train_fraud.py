"""Rare events in a table, drawn more often than they come."""
import copy
import random
from collections import Counter, defaultdict

import numpy as np
import pandas as pd
import torch
import torch.nn as nn
from sklearn.datasets import make_classification
from sklearn.metrics import average_precision_score, f1_score, balanced_accuracy_score
from sklearn.model_selection import train_test_split
from sklearn.preprocessing import RobustScaler
from torch.utils.data import DataLoader, TensorDataset, WeightedRandomSampler

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
BATCH_SIZE = 64
MAX_EPOCHS = 8
PATIENCE = 3


def load(seed=None):
    x, y = make_classification(n_samples=2400, n_features=20, n_informative=6, weights=[0.95], flip_y=0.01,
                               class_sep=1.2, random_state=0)
    x_tr, x_te, y_tr, y_te = train_test_split(x, y, test_size=0.3, stratify=y, random_state=seed)
    sc = RobustScaler().fit(x_tr)
    as_t = lambda a, b: TensorDataset(torch.tensor(sc.transform(a), dtype=torch.float), torch.tensor(b))
    return as_t(x_tr, y_tr), as_t(x_te, y_te)


def weighted_loader(ds, bs=BATCH_SIZE):
    targets = ds.tensors[1]
    counts = torch.bincount(targets)
    print("classes:", dict(Counter(targets.tolist())))
    weights = (1.0 / counts.float())[targets]
    sampler = WeightedRandomSampler(weights, num_samples=len(weights), replacement=True)
    return DataLoader(ds, batch_size=bs, sampler=sampler)


class Net(nn.Module):
    def __init__(self, d_in=20, d_hid=48):
        super().__init__()
        layers = []
        for i in range(2):
            layers += [nn.Linear(d_in if i == 0 else d_hid, d_hid), nn.BatchNorm1d(d_hid), nn.ReLU(), nn.Dropout(0.2)]
        self.body = nn.Sequential(*layers)
        self.head = nn.Linear(d_hid, 2)

    def forward(self, x):
        return self.head(self.body(x))


def train_epoch(model, loader, opt, crit, device=DEVICE):
    model.train()
    losses, drawn = [], np.zeros(2, dtype=int)
    for x, y in loader:
        x, y = x.to(device), y.to(device)
        opt.zero_grad()
        loss = crit(model(x), y)
        loss.backward()
        opt.step()
        losses.append(loss.item())
        drawn += np.bincount(y.cpu().numpy(), minlength=2)
    return np.mean(losses), drawn


def evaluate(model, loader, crit, device=DEVICE):
    model.eval()
    stats = defaultdict(float)
    right, seen = np.zeros(2), np.zeros(2)
    y_true, y_score = [], []
    with torch.no_grad():
        for x, y in loader:
            out = model(x.to(device))
            stats["loss"] += crit(out, y.to(device)).item() * x.shape[0]
            stats["n"] += x.shape[0]
            prob = out.softmax(1)[:, 1].cpu()
            pred = (prob > 0.5).long()
            for c in range(2):
                sel = y == c
                seen[c] += sel.sum().item()
                right[c] += (pred[sel] == c).sum().item()
            y_true.append(y.numpy())
            y_score.append(prob.numpy())
    y_true, y_score = np.hstack(y_true), np.hstack(y_score)
    res = {
        "loss": stats["loss"] / stats["n"],
        "ap": average_precision_score(y_true, y_score),
        "f1": f1_score(y_true, y_score > 0.5),
        "bacc": balanced_accuracy_score(y_true, y_score > 0.5),
    }
    for c in range(2):
        res["recall_%d" % c] = right[c] / seen[c]
    return res


def main():
    train_ds, test_ds = load()
    train_loader = weighted_loader(train_ds)
    test_loader = DataLoader(test_ds, batch_size=100)
    model = Net().to(DEVICE)
    opt = torch.optim.AdamW(model.parameters(), lr=2e-3)
    crit = nn.CrossEntropyLoss()

    rows, best, wait, best_state = [], -1, 0, None
    for epoch in range(1, MAX_EPOCHS + 1):
        loss, drawn = train_epoch(model, train_loader, opt, crit)
        res = evaluate(model, test_loader, crit)
        rows.append({"epoch": epoch, "train_loss": loss, **res})
        print("%2d  train %.4f drawn %s | " % (epoch, loss, drawn) + " ".join("%s %.4f" % kv for kv in res.items()))
        if res["ap"] > best:
            best, wait = res["ap"], 0
            best_state = copy.deepcopy(model.state_dict())
        else:
            wait += 1
            if wait >= PATIENCE:
                print("no better for %d epochs" % PATIENCE)
                break

    model.load_state_dict(best_state)
    print("best:", evaluate(model, test_loader, crit))
    pd.DataFrame(rows).to_csv("fraud_log.csv", index=False)
    torch.save(best_state, "fraud.pt")


if __name__ == "__main__":
    main()
