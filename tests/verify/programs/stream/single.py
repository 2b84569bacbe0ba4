"""Power drawn by a machine, from a stream of readings: an MLP on what comes, in a shuffled buffer.

    python single.py --epochs 3
"""
import argparse
import json
import math
import os
import random
from itertools import islice

import torch
from torch import nn
from torch.utils.data import DataLoader, IterableDataset, get_worker_info


def readings(first, last):
    """What the sensors say at each moment: four numbers, and the power."""
    rng = random.Random(3)
    for t in range(last):
        load, wear = rng.random(), rng.gauss(0, 1)
        x = [load, wear, math.sin(t / 7), math.cos(t / 7)]
        power = 2 * load + 0.5 * wear * load + 0.3 * x[2] + rng.gauss(0, 0.1)
        if t >= first:
            yield x, power


class Readings(IterableDataset):
    def __init__(self, first, last, buffer=1, jitter=0.0):
        self.first, self.last = first, last
        self.buffer, self.jitter = buffer, jitter

    def shuffled(self, items):
        held = []
        for item in items:
            held.append(item)
            if len(held) >= self.buffer:
                yield held.pop(random.randrange(len(held)))
        random.shuffle(held)
        yield from held

    def __iter__(self):
        items = readings(self.first, self.last)
        worker = get_worker_info()
        if worker is not None:
            items = islice(items, worker.id, None, worker.num_workers)
        for x, power in self.shuffled(items):
            x = torch.tensor(x)
            if self.jitter:
                x = x + self.jitter * torch.randn(4)
            yield x, torch.tensor([power])


def evaluate(model, loader, device):
    model.eval()
    squares, count = 0.0, 0
    with torch.no_grad():
        for x, y in loader:
            squares += ((model(x.to(device)) - y.to(device)) ** 2).sum().item()
            count += len(y)
    return math.sqrt(squares / count)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--batch-size", type=int, default=16)
    parser.add_argument("--workers", type=int, default=0)
    parser.add_argument("--lr", type=float, default=0.05)
    parser.add_argument("--seed", type=int, default=5)
    args = parser.parse_args()

    torch.manual_seed(args.seed)
    random.seed(args.seed)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    train_loader = DataLoader(Readings(0, 480, buffer=64), batch_size=args.batch_size,
                              num_workers=args.workers, drop_last=True)
    val_loader = DataLoader(Readings(480, 601), batch_size=32)

    model = nn.Sequential(nn.Linear(4, 32), nn.Tanh(), nn.Dropout(0.1), nn.Linear(32, 1)).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=args.lr, momentum=0.9)
    log = []
    for epoch in range(args.epochs):
        model.train()
        total, steps = 0.0, 0
        for x, y in train_loader:
            x, y = x.to(device), y.to(device)
            x = x + 0.01 * torch.randn_like(x)
            loss = nn.functional.mse_loss(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.item()
            steps += 1
        error = evaluate(model, val_loader, device)
        print(f"epoch {epoch}: loss {total / steps:.5f}, error {error:.5f}")
        log.append({"epoch": epoch, "loss": total / steps, "error": error})
    os.makedirs("out", exist_ok=True)
    torch.save(model.state_dict(), "out/model.pt")
    with open("out/log.json", "w") as f:
        json.dump(log, f)


if __name__ == "__main__":
    main()
