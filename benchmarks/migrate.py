"""How long `multicard migrate` takes: a script of 1,000 lines, and a project of 50 modules and 20,000 lines.

Instant is a promise of the tool: under 0.1 s beyond the start of the interpreter for a script of 1,000 lines, and
linear in the number of lines.  `python benchmarks/migrate.py` prints what it takes here: seconds of one processor,
the smallest of some runs, because whatever else runs on a machine can only add to it.
"""

import argparse
import gc
import os
import resource
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from multicard.migrate import migrate
from multicard.program import read_program

BLOCK = '''
class Block{n}(nn.Module):
    """A residual block: two convolutions and a shortcut."""

    def __init__(self, channels, stride=1, dropout=0.1):
        super().__init__()
        width = channels * {width}
        self.conv1 = nn.Conv2d(channels, width, 3, stride=stride, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, width, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(width)
        self.dropout = nn.Dropout(dropout)
        self.shortcut = nn.Sequential()
        if stride != 1 or channels != width:
            self.shortcut = nn.Sequential(
                nn.Conv2d(channels, width, 1, stride=stride, bias=False),
                nn.BatchNorm2d(width),
            )

    def forward(self, x):
        out = F.relu(self.bn1(self.conv1(x)))
        out = self.dropout(self.bn2(self.conv2(out)))
        return F.relu(out + self.shortcut(x))
'''
HELPER = '''
def measure{n}(scores, labels, threshold=0.{n}):
    """Precision, recall and their harmonic mean at a threshold."""
    found = (scores > threshold).astype(int)
    hits = int(((found == 1) & (labels == 1)).sum())
    wrong = int(((found == 1) & (labels == 0)).sum())
    missed = int(((found == 0) & (labels == 1)).sum())
    precision = hits / max(1, hits + wrong)
    recall = hits / max(1, hits + missed)
    if precision + recall == 0:
        return precision, recall, 0.0
    rows = []
    for row, (score, label) in enumerate(zip(scores, labels)):
        if abs(score - threshold) < 0.05:
            rows.append((row, float(score), int(label)))
    return precision, recall, 2 * precision * recall / (precision + recall)
'''
IMPORTS = """import argparse
import os

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, Dataset
"""
DATA = """

class Pictures(Dataset):
    def __init__(self, folder, train=True):
        self.folder, self.train = folder, train
        self.names = sorted(os.listdir(folder))
        self.labels = np.load(os.path.join(folder, "labels.npy"))

    def __len__(self):
        return len(self.names)

    def __getitem__(self, index):
        picture = torch.from_numpy(np.load(os.path.join(self.folder, self.names[index])))
        if self.train and torch.rand(1) < 0.5:
            picture = picture.flip(-1)
        return picture.float() / 255, int(self.labels[index])
"""
NET = '''

class Net(nn.Module):
    """All blocks in a row and a linear head."""

    def __init__(self, classes=10):
        super().__init__()
        self.stem = nn.Conv2d(3, 16, 3, padding=1)
        self.blocks = nn.Sequential({blocks})
        self.head = nn.Linear(16, classes)

    def forward(self, x):
        x = self.blocks(self.stem(x))
        return self.head(x.mean((2, 3)))
'''
ENGINE = """

def train_one_epoch(model, loader, criterion, optimizer, device, epoch):
    model.train()
    running, hits, total = 0.0, 0, 0
    for step, (x, y) in enumerate(loader):
        x, y = x.to(device), y.to(device)
        out = model(x)
        loss = criterion(out, y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        running += loss.item() * x.size(0)
        hits += (out.argmax(1) == y).sum().item()
        total += y.size(0)
        if step % 50 == 0:
            print(f"epoch {epoch} step {step} loss {loss.item():.4f}")
    return running / total, hits / total


@torch.no_grad()
def evaluate(model, loader, criterion, device):
    model.eval()
    loss, hits, total = 0.0, 0, 0
    scores, labels = [], []
    for x, y in loader:
        x, y = x.to(device), y.to(device)
        out = model(x)
        loss += criterion(out, y).item() * x.size(0)
        hits += (out.argmax(1) == y).sum().item()
        total += y.size(0)
        scores.append(out.softmax(1)[:, 1].cpu().numpy())
        labels.append(y.cpu().numpy())
    return loss / total, hits / total, np.concatenate(scores), np.concatenate(labels)
"""
MAIN = """

def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", default="data")
    parser.add_argument("--epochs", type=int, default=30)
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--lr", type=float, default=0.1)
    args = parser.parse_args()
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    train_loader = DataLoader(Pictures(args.data), args.batch_size, shuffle=True, num_workers=4, drop_last=True)
    val_loader = DataLoader(Pictures(args.data, train=False), args.batch_size, shuffle=False, num_workers=4)
    model = Net().to(device)
    criterion = nn.CrossEntropyLoss()
    optimizer = torch.optim.SGD(model.parameters(), lr=args.lr, momentum=0.9)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, args.epochs)
    os.makedirs("runs", exist_ok=True)
    best, waited = 0.0, 0
    for epoch in range(args.epochs):
        loss, accuracy = train_one_epoch(model, train_loader, criterion, optimizer, device, epoch)
        val_loss, val_accuracy, scores, labels = evaluate(model, val_loader, criterion, device)
        scheduler.step()
        print(epoch, loss, accuracy, val_loss, val_accuracy)
        for measure in ({measures}):
            print(measure.__name__, measure(scores, labels))
        if val_accuracy > best:
            best, waited = val_accuracy, 0
            torch.save(model.state_dict(), "runs/best.pth")
        else:
            waited += 1
        if waited >= 5:
            break
    model.load_state_dict(torch.load("runs/best.pth"))
    print(evaluate(model, val_loader, criterion, device)[:2])


if __name__ == "__main__":
    main()
"""


def main() -> None:
    """Make both, measure both, print a table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--runs", type=int, default=5, help="the smallest time of so many is told")
    runs = parser.parse_args().runs
    gc.disable()  # as the command does
    with tempfile.TemporaryDirectory() as folder:
        single = write_script(Path(folder) / "script")
        project = write_project(Path(folder) / "project")
        bare = smallest(lambda: command("-c", "pass"), runs)
        print(f"python -c pass: {bare:.3f} s")
        for name, entry in (("script", single), ("project", project)):
            modules = {module.path: module for module in read_program(entry).modules.values()}
            lines = sum(module.data.count(b"\n") for module in modules.values())
            inside = smallest(lambda entry=entry: in_process(entry), runs)  # type: ignore[misc]  # bound to its own
            whole = smallest(lambda entry=entry: command("-m", "multicard", "migrate", str(entry)), runs)  # type: ignore[misc]  # the same
            print(
                f"{name}: {lines} lines in {len(modules)} modules:"
                f" {inside:.3f} s in process ({lines / inside:,.0f} lines a second),"
                f" {whole:.3f} s as a command, {whole - bare:.3f} s beyond the interpreter's start"
            )


def write_script(folder: Path) -> Path:
    """One file of 1,000 lines."""
    folder.mkdir()
    blocks, helpers = range(20), range(1, 10)
    parts = [IMPORTS, DATA]
    parts += [BLOCK.format(n=n, width=1) for n in blocks]
    parts += [HELPER.format(n=n) for n in helpers]
    parts += [NET.format(blocks=", ".join(f"Block{n}(16)" for n in blocks)), ENGINE]
    parts += [MAIN.format(measures=", ".join(f"measure{n}" for n in helpers))]
    text = "\n".join(parts)
    missing = 1000 - text.count("\n")
    text = text.replace(IMPORTS, IMPORTS + "".join(f"SETTING_{n} = {n}\n" for n in range(missing)), 1)
    (folder / "train.py").write_text(text)
    return folder / "train.py"


def write_project(folder: Path) -> Path:
    """50 modules of 400 lines: data, engine, blocks and measures in packages, the entry beside them."""
    for package in ("nets", "measures"):
        (folder / package).mkdir(parents=True)
        (folder / package / "__init__.py").write_text("")
    (folder / "data.py").write_text(IMPORTS + DATA)
    (folder / "engine.py").write_text(IMPORTS + ENGINE)
    blocks: list[str] = []
    imports = ["from data import Pictures", "from engine import evaluate, train_one_epoch"]
    for module in range(23):
        numbers = range(100 * module, 100 * module + 19)
        (folder / "nets" / f"net{module}.py").write_text(
            IMPORTS + "\n".join(BLOCK.format(n=n, width=1) for n in numbers)
        )
        imports.append(f"from nets.net{module} import {', '.join(f'Block{n}' for n in numbers[:3])}")
        blocks += [f"Block{n}(16)" for n in numbers[:3]]
    measures: list[str] = []
    for module in range(22):
        numbers = range(100 * module + 1, 100 * module + 25)
        (folder / "measures" / f"m{module}.py").write_text(
            IMPORTS + "\n".join(HELPER.format(n=n) for n in numbers)
        )
        imports.append(f"from measures.m{module} import measure{numbers[0]}")
        measures.append(f"measure{numbers[0]}")
    text = IMPORTS + "\n".join(imports) + NET.format(blocks=", ".join(blocks))
    (folder / "train.py").write_text(text + MAIN.format(measures=", ".join(measures)))
    return folder / "train.py"


def in_process(entry: Path) -> None:
    """All that the command does between its start and writing."""
    assert migrate(entry).changed


def command(*arguments: str) -> None:
    """One run of the interpreter; `migrate` itself ends with 0 or 1."""
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    outcome = subprocess.run([sys.executable, *arguments], check=False, stdout=subprocess.DEVNULL, env=kept)
    assert outcome.returncode in {0, 1}


def smallest(action: Callable[[], None], runs: int) -> float:
    """The shortest of some runs, in seconds of a processor, those of processes that were started too."""
    times = []
    for _ in range(runs):
        gc.collect()
        begin = processor_time()
        action()
        times.append(processor_time() - begin)
    return min(times)


def processor_time() -> float:
    """Seconds that this process and those that it has waited for have worked."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(usage.ru_utime + usage.ru_stime for usage in used)


if __name__ == "__main__":
    main()
