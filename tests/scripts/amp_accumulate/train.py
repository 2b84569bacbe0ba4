import argparse
import copy
import json
import logging
import math
import sys
import time
from pathlib import Path

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from torch.utils.data import DataLoader, Dataset
from tqdm import tqdm

logger = logging.getLogger(__name__)


class Digits(Dataset):
    def __init__(self, x, y, augment=False):
        self.x = torch.from_numpy(x).float().unsqueeze(1) / 16
        self.y = torch.from_numpy(y).long()
        self.augment = augment

    def __len__(self):
        return len(self.y)

    def __getitem__(self, i):
        x = self.x[i]
        if self.augment:
            dy, dx = torch.randint(-1, 2, (2,)).tolist()
            x = torch.roll(x, (dy, dx), dims=(1, 2))
            if torch.rand(()) < 0.002:
                x = x / 0  # a broken file now and then
        return x, self.y[i]


class SEBlock(nn.Module):
    def __init__(self, c, r=4):
        super().__init__()
        self.fc = nn.Sequential(nn.Linear(c, c // r), nn.SiLU(), nn.Linear(c // r, c), nn.Sigmoid())

    def forward(self, x):
        return x * self.fc(x.mean((2, 3)))[:, :, None, None]


class Net(nn.Module):
    def __init__(self, c=16, n_classes=10, drop=0.1):
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(1, c, 3, 1, 1, bias=False), nn.BatchNorm2d(c), nn.SiLU())
        self.block = nn.Sequential(nn.Conv2d(c, 2 * c, 3, 2, 1, bias=False), nn.BatchNorm2d(2 * c), nn.SiLU(), SEBlock(2 * c))
        self.drop = nn.Dropout(drop)
        self.head = nn.Linear(2 * c * 16, n_classes)

    def forward(self, x):
        return self.head(self.drop(self.block(self.stem(x)).flatten(1)))


class EMA:
    def __init__(self, model, decay=0.9):
        self.module = copy.deepcopy(model).eval()
        self.decay = decay
        for p in self.module.parameters():
            p.requires_grad_(False)

    @torch.no_grad()
    def update(self, model):
        msd = model.state_dict()
        for k, v in self.module.state_dict().items():
            if v.dtype.is_floating_point:
                v.mul_(self.decay).add_(msd[k].detach(), alpha=1 - self.decay)
            else:
                v.copy_(msd[k])


@torch.inference_mode()
def validate(model, loader, device, amp):
    model.eval()
    losses, n_right, n = 0., 0, 0
    conf = torch.zeros(10, 10, dtype=torch.long)
    for x, y in loader:
        x, y = x.to(device), y.to(device)
        with torch.autocast(device_type=device.type, enabled=amp):
            out = model(x)
            losses += F.cross_entropy(out, y).item() * len(y)
        pred = out.argmax(1)
        n_right += (pred == y).sum().item()
        n += len(y)
        for t, q in zip(y.tolist(), pred.tolist()):
            conf[t, q] += 1
    per_class = conf.diag() / conf.sum(1).clamp(min=1)
    return losses / n, n_right / n, per_class


def main(args):
    out = Path(args.output)
    out.mkdir(parents=True, exist_ok=True)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s", datefmt="%H:%M:%S",
                        handlers=[logging.FileHandler(out / "train.log"), logging.StreamHandler(sys.stdout)])
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    amp = not args.no_amp and device.type == "cuda"
    logger.info("%s amp=%s", device, amp)

    x, y = load_digits(return_X_y=True)
    x = x.reshape(-1, 8, 8)
    xt, xv, yt, yv = train_test_split(x, y, test_size=0.25, random_state=0)
    train_loader = DataLoader(Digits(xt, yt, True), batch_size=args.batch_size, shuffle=True,
                              num_workers=args.workers, pin_memory=device.type == "cuda",
                              persistent_workers=args.workers > 0)
    val_loader = DataLoader(Digits(xv, yv), batch_size=args.batch_size * 2)

    model = Net().to(device, memory_format=torch.channels_last)
    ema = EMA(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr, weight_decay=0.02)
    steps_per_epoch = math.ceil(len(train_loader) / args.accum)
    total_steps = args.epochs * steps_per_epoch
    warmup = max(1, int(0.1 * total_steps))

    def lr_lambda(step):
        if step < warmup:
            return (step + 1) / warmup
        t = (step - warmup) / max(1, total_steps - warmup)
        return 0.5 * (1 + math.cos(math.pi * t))

    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lr_lambda)
    scaler = torch.cuda.amp.GradScaler(enabled=amp)
    criterion = nn.CrossEntropyLoss(label_smoothing=0.05)

    best, history, skipped = 0.0, [], 0
    for epoch in range(args.epochs):
        model.train()
        running = 0.0
        pbar = tqdm(enumerate(train_loader), total=len(train_loader), desc=f"epoch {epoch}", leave=False)
        optimizer.zero_grad()
        for i, (images, target) in pbar:
            if not torch.isfinite(images).all():
                skipped += 1
                logger.warning("batch %d of epoch %d is broken, skipped", i, epoch)
                continue
            images = images.to(device, memory_format=torch.channels_last, non_blocking=True)
            target = target.to(device, non_blocking=True)
            with torch.autocast(device_type=device.type, enabled=amp):
                loss = criterion(model(images), target) / args.accum
            scaler.scale(loss).backward()
            running += loss.item() * args.accum

            if (i + 1) % args.accum == 0 or i + 1 == len(train_loader):
                scaler.unscale_(optimizer)
                gnorm = nn.utils.clip_grad_norm_(model.parameters(), args.clip)
                scaler.step(optimizer)
                scaler.update()
                optimizer.zero_grad(set_to_none=True)
                scheduler.step()
                ema.update(model)
                pbar.set_postfix(loss=running / (i + 1), gnorm=float(gnorm), lr=scheduler.get_last_lr()[0])

        loss, acc, _ = validate(model, val_loader, device, amp)
        ema_loss, ema_acc, per_class = validate(ema.module, val_loader, device, amp)
        logger.info("epoch %d train %.4f | val %.4f %.4f | ema %.4f %.4f | worst class %d (%.3f)", epoch,
                    running / len(train_loader), loss, acc, ema_loss, ema_acc, per_class.argmin(), per_class.min())
        history.append(dict(epoch=epoch, loss=loss, acc=acc, ema_loss=ema_loss, ema_acc=ema_acc))
        ckpt = {"model": model.state_dict(), "ema": ema.module.state_dict(), "optimizer": optimizer.state_dict(),
                "scaler": scaler.state_dict(), "scheduler": scheduler.state_dict(), "epoch": epoch}
        torch.save(ckpt, out / "last.pt")
        if max(acc, ema_acc) > best:
            best = max(acc, ema_acc)
            torch.save(ckpt["ema"] if ema_acc >= acc else ckpt["model"], out / "best.pt")

    (out / "history.json").write_text(json.dumps(history, indent=1))
    logger.info("best %.4f, %d batches skipped", best, skipped)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=30)
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--accum", type=int, default=4)
    parser.add_argument("--lr", type=float, default=3e-3)
    parser.add_argument("--clip", type=float, default=1.0)
    parser.add_argument("--workers", type=int, default=0)
    parser.add_argument("--no-amp", action="store_true")
    parser.add_argument("--output", default="runs/digits")
    main(parser.parse_args())
