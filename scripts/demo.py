"""Show the tool at work: migrate the example, train it on one process and on two, compare.

Both results stand side by side, and what must hold of them is checked, so that a demonstration cannot pass
while the result is wrong: every validation sample counted once, the same checkpoint keys, each checkpoint
loads into the original's own model, and scores there what the two processes had printed.
"""

import contextlib
import csv
import importlib.util
import io
import os
import re
import shutil
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from statistics import mean
from types import ModuleType

import torch
from rich.console import Console
from rich.table import Table

ROOT = Path(__file__).resolve().parent.parent
EXAMPLE = ROOT / "examples" / "finetune"
WORK = ROOT / "build" / "demo"
DATA = WORK / "data" / "digits"
CHECKPOINTS = ("stage1_best.pth", "stage2_best.pth")
PROGRESS = re.compile(r"阶段\d Epoch|提前结束|训练完成|rror")
LAUNCH = ("-m", "torch.distributed.run", "--standalone", "--local-addr=127.0.0.1", "--nproc-per-node=2")
TIMEOUT = 400
ACCURACY = 0.95


@dataclass(frozen=True)
class Run:
    """What one training left behind."""

    folder: Path
    seconds: float
    lines: tuple[str, ...]

    def found(self, pattern: str) -> str:
        """The last match of `pattern` in what was printed."""
        *_, last = re.finditer(pattern, "\n".join(self.lines))
        return last[1]

    @property
    def epochs(self) -> list[float]:
        """Seconds of each epoch of the second stage, validation included."""
        return [float(found[1]) for line in self.lines if (found := re.search(r"阶段2.*用时=([\d.]+)", line))]

    @property
    def accuracy(self) -> str:
        """Of the last validation, as printed."""
        return self.found(r"验证集：Loss=.*?准确率=([\d.]+)")

    @property
    def loss(self) -> str:
        """Of the last validation, as printed."""
        return self.found(r"验证集：Loss=([\d.]+)")

    @property
    def counted(self) -> int:
        """Validation samples in the last validation."""
        return int(self.found(r"准确率=[\d.]+ \(\d+/(\d+)\)"))

    @property
    def predicted(self) -> list[str]:
        """The paths in the file of predictions."""
        with (self.folder / "predictions.csv").open(encoding="utf-8-sig", newline="") as file:
            return [row["path"] for row in csv.DictReader(file)]

    @property
    def files(self) -> set[str]:
        """Everything written, by name."""
        return {path.relative_to(self.folder).as_posix() for path in self.folder.rglob("*") if path.is_file()}

    @property
    def repeated(self) -> int:
        """Lines that should come once and came more often."""
        once = Counter(line for line in self.lines if re.search(r"阶段\d Epoch|训练完成|已保存", line))
        return sum(count - 1 for count in once.values())

    def state(self, name: str) -> dict[str, torch.Tensor]:
        """A checkpoint."""
        state: dict[str, torch.Tensor] = torch.load(self.folder / name, map_location="cpu")
        return state


def main() -> int:
    """Every step in turn; 1 if something that must hold does not."""
    console = Console(highlight=False)
    WORK.mkdir(parents=True, exist_ok=True)

    console.rule("data")
    subprocess.run([sys.executable, EXAMPLE / "make_data.py", DATA], check=True)

    console.rule("multicard migrate examples/finetune/train.py -o build/demo/multi")
    migrate()

    console.rule("the original, one process")
    single = train("single", EXAMPLE / "train.py", ())
    console.rule("migrated, two processes")
    multi = train("multi", WORK / "multi" / "train.py", LAUNCH)

    console.rule("side by side")
    held = compare(single, multi)
    console.print(side_by_side(single, multi))
    for claim, holds in held.items():
        console.print("[green]holds[/]" if holds else "[red]FAILS[/]", claim)
    return 0 if all(held.values()) else 1


def migrate() -> None:
    """Migrate the example into a new folder; go on if something is left to the reader (exit 1)."""
    out = WORK / "multi"
    shutil.rmtree(out, ignore_errors=True)
    command = [sys.executable, "-m", "multicard", "migrate", str(EXAMPLE / "train.py"), "-o", str(out)]
    command += ["--report", str(WORK / "report.html")]
    if subprocess.run(command, check=False).returncode > 1 or not (out / "train.py").exists():
        sys.exit("the example was not migrated")


def train(name: str, script: Path, launcher: tuple[str, ...]) -> Run:
    """Run a training to its end, showing a line for each epoch."""
    folder = WORK / "output" / name
    shutil.rmtree(folder, ignore_errors=True)
    environment = os.environ | {
        "DATA_DIR": str(DATA),
        "SAVE_DIR": str(folder),
        "OMP_NUM_THREADS": "1",
        "PYTHONUNBUFFERED": "1",
        "PYTHONIOENCODING": "utf-8",
    }
    log = WORK / f"{name}.log"
    start = time.perf_counter()
    lines = []
    with (
        log.open("wb") as errors,
        subprocess.Popen(
            [sys.executable, *launcher, script],
            cwd=WORK,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            encoding="utf-8",
        ) as process,
        ended_after(TIMEOUT, process),
    ):
        assert process.stdout is not None
        for line in process.stdout:
            lines.append(line.rstrip("\n"))
            if PROGRESS.search(line):
                print(line, end="", flush=True)
    if process.returncode:
        print(log.read_text(encoding="utf-8", errors="replace")[-4000:], file=sys.stderr)
        sys.exit(f"{script.relative_to(ROOT)} ended with {process.returncode}; the whole output is in {log}")
    return Run(folder, time.perf_counter() - start, tuple(lines))


@contextlib.contextmanager
def ended_after(seconds: float, process: subprocess.Popen[str]) -> Iterator[None]:
    """End a training that hangs: torchrun, asked to end, takes its ranks with it."""
    timer = threading.Timer(seconds, process.terminate)
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def compare(single: Run, multi: Run) -> dict[str, bool]:
    """What must hold of the migrated run, and whether it does."""
    images = sorted(path.relative_to(DATA).as_posix() for path in (DATA / "val").rglob("*.png"))
    original = load_original()
    scores = [score(original, multi.folder / name) for name in CHECKPOINTS]
    printed = (multi.loss, multi.accuracy)
    return {
        f"each of the {len(images)} validation samples is counted once": multi.counted == len(images),
        "each is predicted once": sorted(multi.predicted) == images,
        "files: the same names as the original's": multi.files == single.files,
        "lines: none is printed by both processes": multi.repeated == 0,
        "checkpoints: the same keys as the original's": all(
            list(single.state(name)) == list(multi.state(name)) for name in CHECKPOINTS
        ),
        "checkpoints: load strictly into the original's model": None not in scores,
        f"{CHECKPOINTS[-1]}: the original's validation prints the same loss and accuracy": printed
        == scores[-1],
        f"accuracy is over {ACCURACY}": float(multi.accuracy) > ACCURACY,
    }


def load_original() -> ModuleType:
    """The original script as a module."""
    os.environ |= {"DATA_DIR": str(DATA), "NUM_WORKERS": "0"}
    spec = importlib.util.spec_from_file_location("train", EXAMPLE / "train.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def score(original: ModuleType, checkpoint: Path) -> tuple[str, str] | None:
    """Loss and accuracy of a checkpoint by the original's own code; None if its model does not take it."""
    model = original.build_model()
    try:
        model.load_state_dict(torch.load(checkpoint, map_location=original.DEVICE), strict=True)
    except RuntimeError:
        return None
    criterion = torch.nn.CrossEntropyLoss(label_smoothing=original.LABEL_SMOOTHING)
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        _, loader = original.build_dataloader()
        loss, accuracy = original.validate(model, loader, criterion)
    return f"{loss:.4f}", f"{accuracy:.4f}"


def side_by_side(single: Run, multi: Run) -> Table:
    """Both runs, a column each."""
    table = Table("", "original", "migrated", title="examples/finetune/train.py")
    table.add_row("processes", "1", "2")
    for title, cell in (
        ("seconds, start to end", lambda run: f"{run.seconds:.1f}"),
        ("epochs of stage 2", lambda run: str(len(run.epochs))),
        ("seconds an epoch", lambda run: f"{mean(run.epochs):.2f}"),
        ("validation accuracy", lambda run: run.accuracy),
        ("validation loss", lambda run: run.loss),
        ("validation samples counted", lambda run: str(run.counted)),
        ("rows of predictions.csv", lambda run: str(len(run.predicted))),
        ("keys of stage2_best.pth", lambda run: str(len(run.state(CHECKPOINTS[-1])))),
        ("files written", lambda run: str(len(run.files))),
        ("lines printed", lambda run: str(len(run.lines))),
    ):
        table.add_row(title, cell(single), cell(multi))
    return table


if __name__ == "__main__":
    sys.exit(main())
