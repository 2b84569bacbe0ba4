"""Starts the processes of a run by forking one that has imported torch already.

A suite of a hundred runs would spend most of its time importing torch. What is forked is the boot of `verify` itself;
only the interpreter, and with it the seed of its hashes, is shared.
"""

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from multicard.verify import launch
from multicard.verify.plan import PLAN_VARIABLE, Plan

SERVER = """
import importlib, json, os, signal, sys
import torch, numpy
import torch.distributed, torch.nn.parallel, torch.utils.data
for name in ("sklearn.datasets", "sklearn.metrics", "sklearn.model_selection", "multicard.verify.probe.boot"):
    importlib.import_module(name)
from multicard.verify.probe import batchnorm, groups, loaders, modules, monitor, outputs, randomness, scalars, shim
from multicard.verify.probe import contents, sizes, training, turns
print("ready", flush=True)
signal.signal(signal.SIGCHLD, signal.SIG_DFL)
for line in sys.stdin:
    order = json.loads(line)
    pid = os.fork()
    if pid == 0:
        os.setsid()
        os.chdir(order["working"])
        os.environ.clear()
        os.environ.update(order["environment"])
        for number, path in ((0, os.devnull), (1, order["out"]), (2, order["err"])):
            file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC if number else os.O_RDONLY)
            os.dup2(file, number)
            os.close(file)
        sys.argv[:] = ["-c"]
        if sys.path[0]:
            sys.path.insert(0, "")
        from multicard.verify.probe.boot import main
        main()
        sys.exit(0)
    print(pid, flush=True)
"""


class Forked:
    """A process that is not a child of ours, with the part of Popen that a launch needs."""

    def __init__(self, pid: int, codes: Path) -> None:
        self.pid = pid
        self.returncode: int | None = None
        self._codes = codes

    def poll(self) -> int | None:
        if self.returncode is None:
            with contextlib.suppress(FileNotFoundError):
                state = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
                if state[0] != "Z":
                    return None
                # the exit status is the last field, as wait() would give it
                status = int(state[-1])
                self.returncode = os.waitstatus_to_exitcode(status)
                return self.returncode
            self.returncode = -signal.SIGKILL
        return self.returncode

    def wait(self) -> int:
        while self.poll() is None:
            time.sleep(0.01)
        assert self.returncode is not None
        return self.returncode


class Server:
    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.process = subprocess.Popen(
            [sys.executable, "-c", SERVER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        assert self._line() == "ready"

    def _line(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()

    def start(self, plan: Plan, run: str, working: Path) -> launch.Rank:
        folder = Path(plan.folder)
        folder.mkdir(parents=True, exist_ok=True)
        plan_path = folder / "plan.json"
        plan.write(plan_path)
        environment = launch.environment(plan, run, plan_path, working)
        assert environment[PLAN_VARIABLE]
        order = {
            "working": str(working),
            "environment": environment,
            "out": str(folder / "out.txt"),
            "err": str(folder / "err.txt"),
        }
        assert self.process.stdin is not None
        with self.lock:
            self.process.stdin.write(json.dumps(order) + "\n")
            self.process.stdin.flush()
            process: Any = Forked(int(self._line()), folder)
        return launch.Rank(plan, process, time.monotonic())

    def close(self) -> None:
        with self.process:  # closes both pipes, which ends it, and waits
            pass


@contextlib.contextmanager
def serving() -> Iterator[Server]:
    server = Server()
    before = launch.start
    launch.start = server.start
    try:
        yield server
    finally:
        launch.start = before
        server.close()
