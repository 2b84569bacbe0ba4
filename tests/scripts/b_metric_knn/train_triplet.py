from types import SimpleNamespace
import random

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset
from sklearn.datasets import load_digits

from samplers import BalancedBatchSampler
from losses import BatchHardTriplet, hardness

cfg = SimpleNamespace(
    P=6,
    K=6,
    dim=16,
    margin=0.3,
    lr=2e-3,
    epochs=8,
    batches_per_epoch=25,
    seed=17,
    recalls=(1, 5),
    out="embedder.pt",
)

random.seed(cfg.seed)
np.random.seed(cfg.seed)
torch.manual_seed(cfg.seed)
device = "cuda" if torch.cuda.is_available() else "cpu"


def get_data():
    x, y = load_digits(return_X_y=True)
    x = torch.tensor(x / 16.0).float()
    y = torch.tensor(y).long()
    perm = torch.randperm(len(x))
    x, y = x[perm], y[perm]
    train = TensorDataset(x[:1000], y[:1000])
    gallery = TensorDataset(x[1000:1500], y[1000:1500])
    query = TensorDataset(x[1500:], y[1500:])
    return train, gallery, query


class Embedder(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.dim = dim
        self.net = nn.Sequential(nn.Linear(64, 96), nn.BatchNorm1d(96), nn.ReLU(), nn.Linear(96, dim))

    def forward(self, x):
        return F.normalize(self.net(x), dim=1)


@torch.no_grad()
def embed_all(model, loader):
    model.eval()
    embeddings, labels = [], []
    for x, y in loader:
        embeddings.append(model(x.to(device)).cpu())
        labels.append(y)
    return torch.cat(embeddings), torch.cat(labels)


def recall_at(query, q_labels, gallery, g_labels, ks):
    d = torch.cdist(query, gallery)
    order = d.argsort(dim=1)
    res = {}
    for k in ks:
        hit = (g_labels[order[:, :k]] == q_labels[:, None]).any(dim=1)
        res[k] = hit.float().mean().item()
    return res


train_set, gallery_set, query_set = get_data()
labels = train_set.tensors[1]
train_loader = DataLoader(train_set, batch_sampler=BalancedBatchSampler(labels, cfg.P, cfg.K, cfg.batches_per_epoch))
gallery_loader = DataLoader(gallery_set, batch_size=128)
query_loader = DataLoader(query_set, batch_size=128)

model = Embedder(cfg.dim).to(device)
loss_fn = BatchHardTriplet(cfg.margin)
optim = torch.optim.Adam(model.parameters(), lr=cfg.lr)
print(f"{sum(p.numel() for p in model.parameters())} parameters, {len(train_loader)} batches of {cfg.P * cfg.K}")

best = 0
for epoch in range(cfg.epochs):
    model.train()
    losses, active = [], []
    for x, y in train_loader:
        x, y = x.to(device), y.to(device)
        e = model(x)
        loss = loss_fn(e, y)
        optim.zero_grad()
        loss.backward()
        optim.step()
        losses.append(loss.item())
        active.append(hardness(e.detach(), y, cfg.margin))

    g, gl = embed_all(model, gallery_loader)
    q, ql = embed_all(model, query_loader)
    assert len(g) == len(gallery_set) and len(q) == len(query_set)
    rec = recall_at(q, ql, g, gl, cfg.recalls)
    print(f"[{epoch:02d}] loss {np.mean(losses):.4f}  active {np.mean(active):.2%}  " +
          "  ".join(f"R@{k} {v:.4f}" for k, v in rec.items()))
    if rec[1] > best:
        best = rec[1]
        torch.save({"model": model.state_dict(), "dim": model.dim, "recall": rec, "epoch": epoch}, cfg.out)

ck = torch.load(cfg.out)
model.load_state_dict(ck["model"])
g, gl = embed_all(model, gallery_loader)
np.save("gallery.npy", g.numpy())
# class centres, just to look at
for c in range(10):
    centre = g[gl == c].mean(0)
    print(c, "spread %.3f" % (g[gl == c] - centre).norm(dim=1).mean())
print("best R@1", round(best, 4), "in epoch", ck["epoch"])
