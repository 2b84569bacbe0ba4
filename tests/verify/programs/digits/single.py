"""Handwritten digits with a small CNN.

    python single.py --epochs 4
"""
import argparse
import csv
import os
import random
import time

import torch
import torch.nn as nn
import torch.nn.functional as F
import torch.optim as optim
from sklearn.datasets import load_digits
from torch.utils.data import DataLoader, Dataset, Subset, random_split


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
    return total_loss / total


def test(model, device, test_loader):
    model.eval()
    test_loss, correct = 0.0, 0
    predictions = []
    with torch.no_grad():
        for data, target in test_loader:
            data, target = data.to(device), target.to(device)
            output = model(data)
            test_loss += F.cross_entropy(output, target, reduction="sum").item()
            pred = output.argmax(dim=1)
            correct += pred.eq(target).sum().item()
            predictions.extend(pred.tolist())
    test_loss /= len(test_loader.dataset)
    accuracy = correct / len(test_loader.dataset)
    return test_loss, accuracy, predictions


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--lr", type=float, default=0.02)
    parser.add_argument("--patience", type=int, default=2)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--out", default="out")
    args = parser.parse_args()

    torch.manual_seed(args.seed)
    random.seed(args.seed)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    os.makedirs(args.out, exist_ok=True)

    train_idx, val_idx = random_split(range(1797), [1440, 357], generator=torch.Generator().manual_seed(42))
    train_set = Subset(Digits(augment=True), list(train_idx))
    val_set = Subset(Digits(), list(val_idx))
    train_loader = DataLoader(train_set, batch_size=args.batch_size, shuffle=True, drop_last=True)
    val_loader = DataLoader(val_set, batch_size=64, shuffle=False)
    print(f"{len(train_set)} training images, {len(val_set)} validation images")

    model = Net().to(device)
    optimizer = optim.SGD(model.parameters(), lr=args.lr, momentum=0.9, weight_decay=1e-4)
    scheduler = optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=args.epochs)

    best_loss, bad_epochs = float("inf"), 0
    history = []
    for epoch in range(1, args.epochs + 1):
        start = time.time()
        train_loss = train(args, model, device, train_loader, optimizer, epoch)
        val_loss, val_acc, _ = test(model, device, val_loader)
        lr = optimizer.param_groups[0]["lr"]
        scheduler.step()
        print(
            f"Epoch {epoch}: train loss {train_loss:.4f}, val loss {val_loss:.4f}, "
            f"val acc {val_acc:.4f}, lr {lr:.4f} ({time.time() - start:.1f}s)"
        )
        history.append([epoch, train_loss, val_loss, val_acc])
        if val_loss < best_loss:
            best_loss, bad_epochs = val_loss, 0
            torch.save(model.state_dict(), os.path.join(args.out, "best.pt"))
        else:
            bad_epochs += 1
            if bad_epochs >= args.patience:
                print(f"No improvement in {args.patience} epochs, stopping")
                break

    with open(os.path.join(args.out, "history.csv"), "w", newline="") as f:
        writer = csv.writer(f)
        writer.writerow(["epoch", "train_loss", "val_loss", "val_acc"])
        writer.writerows(history)

    model.load_state_dict(torch.load(os.path.join(args.out, "best.pt"), map_location=device))
    val_loss, val_acc, predictions = test(model, device, val_loader)
    print(f"Best model: val loss {val_loss:.4f}, val acc {val_acc:.4f}")
    with open(os.path.join(args.out, "predictions.csv"), "w", newline="") as f:
        writer = csv.writer(f)
        writer.writerow(["image", "label", "prediction"])
        for (i, prediction) in zip(val_idx, predictions):
            writer.writerow([i, int(val_set.dataset.labels[i]), prediction])


if __name__ == "__main__":
    main()
