import argparse
import itertools
import os
import time

import numpy as np
import torch
from sklearn.metrics import log_loss, roc_auc_score
from torch import nn
from torch.utils.data import DataLoader

from stream import ClickStream, write_shards


class WideAndDeep(nn.Module):
    def __init__(self, buckets, dim=8, fields=7):
        super().__init__()
        self.wide = nn.EmbeddingBag(buckets, 1, mode="sum")
        self.deep_emb = nn.Embedding(buckets, dim)
        self.deep = nn.Sequential(nn.Linear(fields * dim, 32), nn.ReLU(), nn.Linear(32, 1))
        nn.init.normal_(self.deep_emb.weight, std=0.05)
        nn.init.zeros_(self.wide.weight)

    def forward(self, ids):
        return (self.wide(ids) + self.deep(self.deep_emb(ids).flatten(1))).squeeze(1)


def forever(loader):
    for epoch in itertools.count():
        yield from loader
        print(f"-- went through the data {epoch + 1} times")


@torch.no_grad()
def evaluate(model, loader, device):
    model.eval()
    scores, labels = [], []
    for ids, y in loader:
        scores.append(torch.sigmoid(model(ids.to(device))).cpu())
        labels.append(y)
    model.train()
    scores, labels = torch.cat(scores).numpy(), torch.cat(labels).numpy()
    return log_loss(labels, scores.clip(1e-6, 1 - 1e-6)), roc_auc_score(labels, scores), len(labels)


def keep_last(folder, n=3):
    files = sorted(f for f in os.listdir(folder) if f.startswith("step"))
    for f in files[:-n]:
        os.remove(os.path.join(folder, f))


def run(a):
    device = torch.device("cuda:0" if torch.cuda.is_available() else "cpu")
    if not os.path.exists(a.data):
        write_shards(a.data)
    train_dl = DataLoader(ClickStream(f"{a.data}/part-*.tsv", a.buckets, a.buffer), batch_size=a.batch,
                          num_workers=a.workers, drop_last=True)
    test_dl = DataLoader(ClickStream(f"{a.data}/heldout.tsv", a.buckets), batch_size=128)

    model = WideAndDeep(a.buckets).to(device)
    opt = torch.optim.Adagrad(model.parameters(), lr=a.lr)
    crit = nn.BCEWithLogitsLoss()
    if not os.path.exists(a.out):
        os.makedirs(a.out)

    model.train()
    ema, t0 = None, time.time()
    for step, (ids, y) in enumerate(forever(train_dl), start=1):
        ids, y = ids.to(device), y.to(device)
        loss = crit(model(ids), y)
        opt.zero_grad()
        loss.backward()
        opt.step()
        ema = loss.item() if ema is None else 0.95 * ema + 0.05 * loss.item()
        if step % a.log_every == 0:
            ll, auc, n = evaluate(model, test_dl, device)
            print(f"step {step:5d} loss {ema:.4f} heldout logloss {ll:.4f} auc {auc:.4f} n {n} "
                  f"{step * a.batch / (time.time() - t0):.0f} rows/s")
            torch.save({"step": step, "model": model.state_dict(), "opt": opt.state_dict()}, f"{a.out}/step{step:06d}.pt")
            keep_last(a.out)
        if step >= a.steps:
            break


if __name__ == "__main__":
    ap = argparse.ArgumentParser()
    ap.add_argument("--data", default="clicks")
    ap.add_argument("--out", default="ckpt")
    ap.add_argument("--buckets", type=int, default=2000)
    ap.add_argument("--buffer", type=int, default=200)
    ap.add_argument("--batch", type=int, default=32)
    ap.add_argument("--workers", type=int, default=2)
    ap.add_argument("--lr", type=float, default=0.05)
    ap.add_argument("--steps", type=int, default=2000)
    ap.add_argument("--log_every", type=int, default=20)
    run(ap.parse_args())
