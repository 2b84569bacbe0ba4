"""
Handwritten digits with a small CNN. One process or many:

$ python ddp_raw_model.py --epochs=4
$ torchrun --standalone --nproc_per_node=2 ddp_raw_model.py --epochs=4

Every process evaluates the whole validation set: it is small, and nothing has to be gathered.
"""

import csv
import os
import random
import time
from argparse import ArgumentParser

import torch
import torch.nn as nn
from sklearn.datasets import load_digits
from torch.distributed import broadcast, destroy_process_group, init_process_group
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Dataset, Subset, random_split
from torch.utils.data.distributed import DistributedSampler

# -----------------------------------------------------------------------------
parser = ArgumentParser()
parser.add_argument("--batch_size", type=int, default=32)
parser.add_argument("--epochs", type=int, default=4)
parser.add_argument("--lr", type=float, default=0.02)
parser.add_argument("--patience", type=int, default=2)
parser.add_argument("--seed", type=int, default=1)
parser.add_argument("--out", default="out")
args = parser.parse_args()

ddp = int(os.environ.get("RANK", -1)) != -1
if ddp:
    init_process_group(backend="nccl" if torch.cuda.is_available() else "gloo")
    ddp_rank = int(os.environ["RANK"])
    ddp_local_rank = int(os.environ["LOCAL_RANK"])
    ddp_world_size = int(os.environ["WORLD_SIZE"])
    device = f"cuda:{ddp_local_rank}" if torch.cuda.is_available() else "cpu"
    if device != "cpu":
        torch.cuda.set_device(device)
    master_process = ddp_rank == 0
    seed_offset = ddp_rank  # each process gets a different seed; DDP gives all of them the weights of rank 0
else:
    ddp_rank, ddp_local_rank, ddp_world_size = 0, 0, 1
    device = "cuda" if torch.cuda.is_available() else "cpu"
    master_process = True
    seed_offset = 0
if master_process:
    os.makedirs(args.out, exist_ok=True)
torch.manual_seed(args.seed + seed_offset)
random.seed(args.seed + seed_offset)


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
        super().__init__()
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


# data: the split has a generator of its own, so that all processes agree on it
train_idx, val_idx = random_split(range(1797), [1440, 357], generator=torch.Generator().manual_seed(42))
train_set = Subset(Digits(augment=True), list(train_idx))
val_set = Subset(Digits(), list(val_idx))
sampler = DistributedSampler(train_set, ddp_world_size, ddp_rank, shuffle=True, seed=args.seed, drop_last=True)
train_loader = DataLoader(train_set, batch_size=args.batch_size, sampler=sampler, drop_last=True)
val_loader = DataLoader(val_set, batch_size=64)

model = Net().to(device)
if ddp:
    model = DDP(model, device_ids=[ddp_local_rank] if device != "cpu" else None)
raw_model = model.module if ddp else model  # unwrap DDP container if needed
optimizer = torch.optim.SGD(model.parameters(), lr=args.lr, momentum=0.9, weight_decay=1e-4)
scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=args.epochs)


@torch.no_grad()
def evaluate():
    if ddp:  # running statistics of rank 0 for everybody: those that it will save
        for buf in raw_model.buffers():
            broadcast(buf, src=0)
    raw_model.eval()
    logits = torch.cat([raw_model(x.to(device)) for x, _ in val_loader])
    labels = torch.cat([y for _, y in val_loader]).to(device)
    loss = F.cross_entropy(logits, labels).item()
    predictions = logits.argmax(dim=1)
    acc = (predictions == labels).float().mean().item()
    return loss, acc, predictions.tolist()


if master_process:
    print(f"{len(train_set)} training images, {len(val_set)} validation images")
best_loss, bad_epochs = float("inf"), 0
history = []
for epoch in range(1, args.epochs + 1):
    t0 = time.time()
    sampler.set_epoch(epoch - 1)
    model.train()
    total = torch.zeros(2, dtype=torch.float64, device=device)
    for X, Y in train_loader:
        X, Y = X.to(device), Y.to(device)
        loss = F.cross_entropy(model(X), Y)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        total += torch.tensor([loss.item() * len(Y), len(Y)], dtype=torch.float64, device=device)
    if ddp:
        torch.distributed.all_reduce(total)
    train_loss = (total[0] / total[1]).item()
    val_loss, val_acc, _ = evaluate()
    lr = optimizer.param_groups[0]["lr"]
    scheduler.step()
    history.append([epoch, train_loss, val_loss, val_acc])
    if master_process:
        print(
            f"Epoch {epoch}: train loss {train_loss:.4f}, val loss {val_loss:.4f}, "
            f"val acc {val_acc:.4f}, lr {lr:.4f} ({time.time() - t0:.1f}s)"
        )
    if val_loss < best_loss:
        best_loss, bad_epochs = val_loss, 0
        if master_process:
            torch.save(raw_model.state_dict(), os.path.join(args.out, "best.pt"))
    else:
        bad_epochs += 1
    stop = torch.tensor(float(bad_epochs >= args.patience), device=device)
    if ddp:
        broadcast(stop, src=0)
    if stop > 0:
        if master_process:
            print(f"No improvement in {args.patience} epochs, stopping")
        break

if ddp:
    torch.distributed.barrier()
raw_model.load_state_dict(torch.load(os.path.join(args.out, "best.pt"), map_location=device))
val_loss, val_acc, predictions = evaluate()
if master_process:
    with open(os.path.join(args.out, "history.csv"), "w", newline="") as f:
        writer = csv.writer(f)
        writer.writerow(["epoch", "train_loss", "val_loss", "val_acc"])
        writer.writerows(history)
    print(f"Best model: val loss {val_loss:.4f}, val acc {val_acc:.4f}")
    with open(os.path.join(args.out, "predictions.csv"), "w", newline="") as f:
        writer = csv.writer(f)
        writer.writerow(["image", "label", "prediction"])
        for i, prediction in zip(val_idx, predictions):
            writer.writerow([i, int(val_set.dataset.labels[i]), prediction])
if ddp:
    destroy_process_group()
