"""What `multicard verify` costs beyond the training that it watches: the example, run plainly and proved.

Both scripts have to be run to be compared, so the least that a proof can take is one plain run of each.  `python
benchmarks/verify.py` runs the example's original with python and its migrated version with torchrun on two processes,
then `multicard verify --full` on the same two for as many epochs, and prints what each takes: seconds of one processor,
of all processes together, and seconds on the clock, which depend on what else the machine is doing.  Two numbers of
epochs tell what the start costs from what each epoch costs.
"""

import argparse
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

EXAMPLE = Path(__file__).resolve().parent.parent / "examples" / "finetune"
TORCHRUN = ("-m", "torch.distributed.run", "--standalone", "--local-addr=127.0.0.1", "--nproc-per-node=2")
VERIFY = ("-m", "multicard", "verify", "train.py", "train_ddp.py", "--full", "--timeout", "3000")


@dataclass(frozen=True)
class Cost:
    """Seconds of a processor, and on the clock."""

    processor: float
    clock: float

    def __add__(self, other: "Cost") -> "Cost":
        return Cost(self.processor + other.processor, self.clock + other.clock)

    def __sub__(self, other: "Cost") -> "Cost":
        return Cost(self.processor - other.processor, self.clock - other.clock)

    def over(self, number: int) -> "Cost":
        return Cost(self.processor / number, self.clock / number)


def main() -> None:
    """Run all for each number of epochs, print a table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--epochs", type=int, nargs=2, default=(2, 8), help="of the second stage")
    parser.add_argument("--runs", type=int, default=1, help="the smallest of so many is told")
    arguments = parser.parse_args()
    costs: list[tuple[Cost, Cost]] = []
    print("epochs | original + torchrun: processor, clock | verify: processor, clock | times as much")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        subprocess.run([sys.executable, EXAMPLE / "make_data.py", folder / "digits"], check=True)
        for epochs in arguments.epochs:
            plain = smallest(folder, epochs, arguments.runs, ("train.py",)) + smallest(
                folder, epochs, arguments.runs, (*TORCHRUN, "train_ddp.py")
            )
            costs.append((plain, smallest(folder, epochs, arguments.runs, VERIFY)))
            told(str(epochs), *costs[-1])
    more = arguments.epochs[1] - arguments.epochs[0]
    told("each more", *((long - short).over(more) for short, long in zip(*costs, strict=True)))


def smallest(folder: Path, epochs: int, runs: int, command: tuple[str, ...]) -> Cost:
    """The least of some runs, each in a folder of its own."""
    costs = [cost(folder / "work", folder / "digits", epochs, command) for _ in range(runs)]
    return Cost(min(one.processor for one in costs), min(one.clock for one in costs))


def cost(work: Path, digits: Path, epochs: int, command: tuple[str, ...]) -> Cost:
    """One run of a command in a fresh copy of the example."""
    shutil.rmtree(work, ignore_errors=True)
    shutil.copytree(EXAMPLE, work, ignore=shutil.ignore_patterns("output", "data", "__pycache__"))
    environment = {
        **os.environ,
        "DATA_DIR": str(digits),
        "STAGE1_EPOCHS": "1",
        "STAGE2_EPOCHS": str(epochs),
        "EARLY_STOP_PATIENCE": "1000",
        "NUM_WORKERS": "0",
        "OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS", "1"),
    }
    clock, processor = time.monotonic(), of_children()
    outcome = subprocess.run(
        [sys.executable, *command], cwd=work, env=environment, check=False, capture_output=True, text=True
    )
    assert outcome.returncode == 0, outcome.stdout + outcome.stderr[-3000:]
    return Cost(of_children() - processor, time.monotonic() - clock)


def of_children() -> float:
    """Seconds that the processes waited for, and those that they waited for, have worked."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def told(name: str, plain: Cost, proved: Cost) -> None:
    """One line of the table."""
    print(
        f"{name} | {plain.processor:.1f} s, {plain.clock:.1f} s | {proved.processor:.1f} s, {proved.clock:.1f} s"
        f" | {proved.processor / plain.processor:.2f}, {proved.clock / plain.clock:.2f}",
        flush=True,
    )


if __name__ == "__main__":
    main()
