"""Train a small mixer on noisy digits. Plain PyTorch, one file."""

from __future__ import annotations

import argparse
import dataclasses
import json
import math
import time
from pathlib import Path

import torch
import torch.nn.functional as F
from sklearn.datasets import load_digits
from torch import Tensor, nn
from torch.utils.data import DataLoader, RandomSampler, TensorDataset


@dataclasses.dataclass(frozen=True)
class Config:
    steps: int = 2000
    batch_size: int = 64
    lr: float = 4e-3
    min_lr_ratio: float = 0.1
    warmup: int = 20
    weight_decay: float = 0.05
    eval_every: int = 30
    patience: int = 3
    width: int = 32
    depth: int = 2
    seed: int = 1337
    out: Path = Path("out")
    compile: bool = True

    @classmethod
    def from_cli(cls) -> Config:
        parser = argparse.ArgumentParser(description=__doc__)
        for f in dataclasses.fields(cls):
            name = "--" + f.name.replace("_", "-")
            if isinstance(f.default, bool):
                parser.add_argument(name, action=argparse.BooleanOptionalAction, default=f.default)
            else:
                parser.add_argument(name, type=type(f.default), default=f.default)
        return cls(**vars(parser.parse_args()))


class Block(nn.Module):
    def __init__(self, tokens: int, width: int) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.token_mix = nn.Sequential(nn.Linear(tokens, 2 * tokens), nn.GELU(), nn.Linear(2 * tokens, tokens))
        self.channel_mix = nn.Sequential(nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width))

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.token_mix(self.norm1(x).mT).mT
        return x + self.channel_mix(self.norm2(x))


class Mixer(nn.Module):
    def __init__(self, cfg: Config, n_classes: int = 10) -> None:
        super().__init__()
        self.embed = nn.Conv2d(1, cfg.width, 2, 2)
        self.blocks = nn.ModuleList(Block(16, cfg.width) for _ in range(cfg.depth))
        self.head = nn.Linear(cfg.width, n_classes)

    def forward(self, x: Tensor) -> Tensor:
        x = self.embed(x).flatten(2).mT
        for block in self.blocks:
            x = block(x)
        return self.head(x.mean(1))

    def configure_optimizer(self, cfg: Config, device: torch.device) -> torch.optim.Optimizer:
        decay = [p for p in self.parameters() if p.ndim >= 2]
        plain = [p for p in self.parameters() if p.ndim < 2]
        groups = [{"params": decay, "weight_decay": cfg.weight_decay}, {"params": plain, "weight_decay": 0.0}]
        return torch.optim.AdamW(groups, lr=cfg.lr, betas=(0.9, 0.98), fused=device.type == "cuda")


def lr_at(step: int, cfg: Config) -> float:
    if step < cfg.warmup:
        return cfg.lr * (step + 1) / cfg.warmup
    t = (step - cfg.warmup) / max(1, cfg.steps - cfg.warmup)
    return cfg.lr * (cfg.min_lr_ratio + (1 - cfg.min_lr_ratio) * 0.5 * (1 + math.cos(math.pi * t)))


def datasets() -> tuple[TensorDataset, TensorDataset]:
    bunch = load_digits()
    x = torch.tensor(bunch.images, dtype=torch.float32).unsqueeze(1).div_(8).sub_(1)
    y = torch.tensor(bunch.target)
    perm = torch.randperm(len(y), generator=torch.Generator().manual_seed(0))
    train, val = perm[:1440], perm[1440:]
    return TensorDataset(x[train], y[train]), TensorDataset(x[val], y[val])


@torch.inference_mode()
def evaluate(model: nn.Module, loader: DataLoader, device: torch.device) -> dict[str, float]:
    model.eval()
    loss = correct = count = 0.0
    for x, y in loader:
        x, y = x.to(device), y.to(device)
        logits = model(x)
        loss += F.cross_entropy(logits, y, reduction="sum").item()
        correct += (logits.argmax(-1) == y).sum().item()
        count += y.numel()
    model.train()
    return {"val_loss": loss / count, "val_acc": correct / count}


def main() -> None:
    cfg = Config.from_cli()
    torch.manual_seed(cfg.seed)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    cfg.out.mkdir(parents=True, exist_ok=True)
    (cfg.out / "config.json").write_text(json.dumps(dataclasses.asdict(cfg), default=str, indent=2))

    train_set, val_set = datasets()
    endless = RandomSampler(train_set, replacement=True, num_samples=cfg.steps * cfg.batch_size)
    train_loader = DataLoader(train_set, cfg.batch_size, sampler=endless, drop_last=True)
    val_loader = DataLoader(val_set, 2 * cfg.batch_size)

    model = Mixer(cfg).to(device)
    optimizer = model.configure_optimizer(cfg, device)
    if cfg.compile:
        model = torch.compile(model)
    n_params = sum(p.numel() for p in model.parameters())
    print(f"{n_params:,} parameters, {len(train_loader)} steps on {device}")

    best: dict[str, Tensor] | None = None
    best_loss, waited = float("inf"), 0
    t0 = time.perf_counter()
    with (cfg.out / "log.jsonl").open("w") as log:
        for step, (x, y) in enumerate(train_loader):
            for group in optimizer.param_groups:
                group["lr"] = lr_at(step, cfg)
            x, y = x.to(device, non_blocking=True), y.to(device, non_blocking=True)
            x = x + 0.3 * torch.randn_like(x)
            with torch.autocast(device.type, dtype=torch.bfloat16, enabled=device.type == "cuda"):
                loss = F.cross_entropy(model(x), y, label_smoothing=0.1)
            loss.backward()
            grad_norm = nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)

            if (step + 1) % cfg.eval_every == 0 or step + 1 == cfg.steps:
                row = {"step": step + 1, "loss": loss.item(), "grad_norm": grad_norm.item(),
                       "lr": optimizer.param_groups[0]["lr"], **evaluate(model, val_loader, device)}
                print("  ".join(f"{k} {v:.4g}" for k, v in row.items()))
                log.write(json.dumps(row) + "\n")
                if row["val_loss"] < best_loss:
                    best_loss, waited = row["val_loss"], 0
                    best = {k.removeprefix("_orig_mod."): v.detach().cpu().clone() for k, v in model.state_dict().items()}
                else:
                    waited += 1
                if waited >= cfg.patience:
                    print("no progress, stopping")
                    break

    torch.save(best, cfg.out / "best.pt")
    fresh = Mixer(cfg).to(device)
    fresh.load_state_dict(torch.load(cfg.out / "best.pt", map_location=device))
    print(f"best {evaluate(fresh, val_loader, device)}  {time.perf_counter() - t0:.1f}s")


if __name__ == "__main__":
    main()
