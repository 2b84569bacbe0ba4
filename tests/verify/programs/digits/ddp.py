"""Handwritten digits with a small CNN, on several processes.

    torchrun --nproc-per-node=2 ddp.py --epochs 4
"""
import argparse
import csv
import os
import random
import time

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
import torch.optim as optim
from sklearn.datasets import load_digits
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Dataset, DistributedSampler, Subset, random_split


class Digits(Dataset):
    def __init__(self, augment=False):
        data = load_digits()
        self.images = torch.tensor(data.images, dtype=torch.float32).unsqueeze(1) / 16.0
        self.labels = torch.tensor(data.target)
        self.augment = augment

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, i):
        image = self.images[i]
        if self.augment:
            shift = (random.randint(-1, 1), random.randint(-1, 1))
            image = torch.roll(image, shift, dims=(1, 2))
            image = image + 0.05 * torch.randn(image.shape)
        return image, self.labels[i]


class Net(nn.Module):
    def __init__(self):
        super(Net, self).__init__()
        self.conv1 = nn.Conv2d(1, 16, 3, padding=1)
        self.bn1 = nn.BatchNorm2d(16)
        self.conv2 = nn.Conv2d(16, 32, 3, padding=1)
        self.bn2 = nn.BatchNorm2d(32)
        self.dropout = nn.Dropout(0.3)
        self.fc1 = nn.Linear(32 * 4 * 4, 64)
        self.fc2 = nn.Linear(64, 10)

    def forward(self, x):
        x = F.relu(self.bn1(self.conv1(x)))
        x = F.max_pool2d(F.relu(self.bn2(self.conv2(x))), 2)
        x = torch.flatten(x, 1)
        x = self.dropout(F.relu(self.fc1(x)))
        return self.fc2(x)


def setup():
    """The process group: torchrun's, or one of a single process under plain python."""
    cuda = torch.cuda.is_available()
    local_rank = int(os.environ.get("LOCAL_RANK", 0))
    if cuda:
        torch.cuda.set_device(local_rank)
    backend = "nccl" if cuda else "gloo"
    if "RANK" in os.environ:
        dist.init_process_group(backend)
    else:
        dist.init_process_group(backend, store=dist.HashStore(), rank=0, world_size=1)
    device = torch.device(f"cuda:{local_rank}" if cuda else "cpu")
    return dist.get_rank(), dist.get_world_size(), device


def sync_buffers(model):
    """Running statistics are each rank's own after a training epoch: average them."""
    for buffer in model.buffers():
        if buffer.is_floating_point():
            dist.all_reduce(buffer)
            buffer /= dist.get_world_size()
        else:
            dist.broadcast(buffer, src=0)


def train(args, model, device, train_loader, optimizer, epoch):
    model.train()
    total_loss, total = 0.0, 0
    for batch_idx, (data, target) in enumerate(train_loader):
        data, target = data.to(device), target.to(device)
        optimizer.zero_grad()
        output = model(data)
        loss = F.cross_entropy(output, target)
        loss.backward()
        optimizer.step()
        total_loss += loss.item() * len(target)
        total += len(target)
    sums = torch.tensor([total_loss, total], dtype=torch.float64, device=device)
    dist.all_reduce(sums)
    return (sums[0] / sums[1]).item()


def test(model, device, test_loader):
    sync_buffers(model)
    model.eval()
    test_loss, correct = 0.0, 0
    predictions = []
    with torch.no_grad():
        for data, target in test_loader:
            data, target = data.to(device), target.to(device)
            output = model.module(data)
            test_loss += F.cross_entropy(output, target, reduction="sum").item()
            pred = output.argmax(dim=1)
            correct += pred.eq(target).sum().item()
            predictions.extend(pred.tolist())
    sums = torch.tensor([test_loss, correct, len(predictions)], dtype=torch.float64, device=device)
    dist.all_reduce(sums)
    test_loss, correct, total = sums.tolist()
    shares = [None] * dist.get_world_size()
    dist.all_gather_object(shares, predictions)
    predictions = [p for share in shares for p in share]
    return test_loss / total, correct / total, predictions


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--batch-size", type=int, default=32, help="per process")
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--lr", type=float, default=0.02)
    parser.add_argument("--patience", type=int, default=2)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--out", default="out")
    args = parser.parse_args()

    rank, world_size, device = setup()
    torch.manual_seed(args.seed)
    random.seed(args.seed)
    if rank == 0:
        os.makedirs(args.out, exist_ok=True)

    train_idx, val_idx = random_split(range(1797), [1440, 357], generator=torch.Generator().manual_seed(42))
    train_set = Subset(Digits(augment=True), list(train_idx))
    val_set = Subset(Digits(), list(val_idx))
    n = len(val_set)
    # contiguous shares, nothing repeated: put one after the other they are the data set in order
    val_share = Subset(val_set, range(rank * n // world_size, (rank + 1) * n // world_size))
    train_sampler = DistributedSampler(train_set, shuffle=True, seed=args.seed)
    train_loader = DataLoader(train_set, batch_size=args.batch_size, sampler=train_sampler, drop_last=True)
    val_loader = DataLoader(val_share, batch_size=64, shuffle=False)
    if rank == 0:
        print(f"{len(train_set)} training images, {len(val_set)} validation images")

    model = Net().to(device)
    model = DDP(model, device_ids=[device.index] if device.type == "cuda" else None)
    optimizer = optim.SGD(model.parameters(), lr=args.lr, momentum=0.9, weight_decay=1e-4)
    scheduler = optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=args.epochs)

    # from here on every rank draws its own augmentation and dropout
    torch.manual_seed(args.seed + rank)
    random.seed(args.seed + rank)

    best_loss, bad_epochs = float("inf"), 0
    history = []
    for epoch in range(1, args.epochs + 1):
        start = time.time()
        train_sampler.set_epoch(epoch - 1)
        train_loss = train(args, model, device, train_loader, optimizer, epoch)
        val_loss, val_acc, _ = test(model, device, val_loader)
        lr = optimizer.param_groups[0]["lr"]
        scheduler.step()
        if rank == 0:
            print(
                f"Epoch {epoch}: train loss {train_loss:.4f}, val loss {val_loss:.4f}, "
                f"val acc {val_acc:.4f}, lr {lr:.4f} ({time.time() - start:.1f}s)"
            )
        history.append([epoch, train_loss, val_loss, val_acc])
        if val_loss < best_loss:
            best_loss, bad_epochs = val_loss, 0
            if rank == 0:
                torch.save(model.module.state_dict(), os.path.join(args.out, "best.pt"))
        else:
            bad_epochs += 1
        stop = torch.tensor(int(bad_epochs >= args.patience), device=device)
        dist.broadcast(stop, src=0)
        if stop.item():
            if rank == 0:
                print(f"No improvement in {args.patience} epochs, stopping")
            break

    if rank == 0:
        with open(os.path.join(args.out, "history.csv"), "w", newline="") as f:
            writer = csv.writer(f)
            writer.writerow(["epoch", "train_loss", "val_loss", "val_acc"])
            writer.writerows(history)

    dist.barrier()
    model.module.load_state_dict(torch.load(os.path.join(args.out, "best.pt"), map_location=device))
    val_loss, val_acc, predictions = test(model, device, val_loader)
    if rank == 0:
        print(f"Best model: val loss {val_loss:.4f}, val acc {val_acc:.4f}")
        with open(os.path.join(args.out, "predictions.csv"), "w", newline="") as f:
            writer = csv.writer(f)
            writer.writerow(["image", "label", "prediction"])
            for (i, prediction) in zip(val_idx, predictions):
                writer.writerow([i, int(val_set.dataset.labels[i]), prediction])
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
