"""Runs many scripts on several ranks from one process that has torch imported: a start costs seconds, a fork none.

    python tests/zygote.py jobs.json results.json

A job: folder, entry, args, world, seconds, perhaps env.  A result: for each rank its exit code (None: it had to be
ended), what it printed, and what it said on stderr.
"""

import json
import os
import random
import runpy
import signal
import socket
import sys
import time
import traceback
from pathlib import Path
from typing import Any

os.environ |= {"OMP_NUM_THREADS": "1", "MPLBACKEND": "Agg"}

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import PIL.Image
import sklearn.datasets
import sklearn.metrics
import sklearn.model_selection
import torch
import torch.distributed
import torch.nn.parallel
import torch.optim.swa_utils
import torch.utils.data
import tqdm

IMPORTED = (plt, pd, PIL.Image, sklearn.datasets, torch.optim.swa_utils, tqdm)
GRACE = 15


def main(jobs: Path, results: Path) -> None:
    """Run every job, one after the other."""
    torch.set_num_threads(1)
    outcomes = {job["name"]: run(job) for job in json.loads(jobs.read_text(encoding="utf-8"))}
    results.write_text(json.dumps(outcomes), encoding="utf-8")


def run(job: dict[str, Any]) -> list[dict[str, Any]]:
    """One script on its ranks."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    ranks: dict[int, int] = {}
    for rank in range(job["world"]):
        pid = os.fork()
        if pid == 0:
            child(job, rank, port)
        ranks[pid] = rank
    codes = wait(ranks, job["seconds"])
    folder = Path(job["folder"])
    return [
        {
            "code": codes[rank],
            "out": (folder / f"out.{rank}").read_text(encoding="utf-8", errors="replace"),
            "err": (folder / f"err.{rank}").read_text(encoding="utf-8", errors="replace"),
        }
        for rank in range(job["world"])
    ]


def wait(ranks: dict[int, int], seconds: float) -> dict[int, int | None]:
    """Exit codes by rank; when one rank has failed the others get a little longer, then they are ended."""
    codes: dict[int, int | None] = {}
    end = time.monotonic() + seconds
    while len(codes) < len(ranks):
        for pid, rank in ranks.items():
            if rank in codes:
                continue
            ended, status = os.waitpid(pid, os.WNOHANG)
            if ended:
                codes[rank] = os.waitstatus_to_exitcode(status)
                if codes[rank]:
                    end = min(end, time.monotonic() + GRACE)
            elif time.monotonic() > end:
                os.kill(pid, signal.SIGKILL)
                os.waitpid(pid, 0)
                codes[rank] = None
        time.sleep(0.02)
    return codes


def child(job: dict[str, Any], rank: int, port: int) -> None:
    """Become one rank of a script, as torchrun would start it."""
    folder = Path(job["folder"])
    for number, name in ((1, "out"), (2, "err")):
        os.dup2(os.open(folder / f"{name}.{rank}", os.O_WRONLY | os.O_CREAT | os.O_TRUNC), number)
    sys.stdout = os.fdopen(1, "w", encoding="utf-8", closefd=False)
    sys.stderr = os.fdopen(2, "w", encoding="utf-8", closefd=False)
    os.chdir(folder)
    os.environ |= job.get("env", {})
    if job["world"] > 1:
        os.environ |= {
            "RANK": str(rank),
            "LOCAL_RANK": str(rank),
            "WORLD_SIZE": str(job["world"]),
            "LOCAL_WORLD_SIZE": str(job["world"]),
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": str(port),
        }
    entry = folder / job["entry"]
    sys.argv = [job["entry"], *map(str, job["args"])]
    sys.path[0] = str(entry.parent)
    random.seed(os.urandom(16))
    np.random.seed(int.from_bytes(os.urandom(4), "little"))  # noqa: NPY002  # the generator that scripts draw from
    torch.seed()
    code = 0
    try:
        runpy.run_path(str(entry), run_name="__main__")
    except SystemExit as error:
        code = error.code if isinstance(error.code, int) else int(error.code is not None)
    except BaseException:  # noqa: BLE001  # whatever a script raises is its outcome
        traceback.print_exc()
        code = 1
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))
