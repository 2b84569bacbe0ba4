"""What a process writes down, line by line, and where in the user's script it is.

Each line is out before the next thing happens: a process that is killed in a hang has told all it did until
then.
"""

import json
import os
import sys
import time
from pathlib import Path
from types import FrameType
from typing import IO, Any

from multicard.verify.plan import Plan

HELPER = "ddp_runtime.py"


class Record:
    """The trace of this process."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.pid = os.getpid()
        self.events = 0
        self.waiting: str | None = None
        self.doing = ""
        self.steps = 0
        self._start = time.monotonic()
        self._once: set[tuple[Any, ...]] = set()
        self._file: IO[str] = (Path(plan.folder) / "trace.jsonl").open("w", encoding="utf-8")

    @property
    def mine(self) -> bool:
        """False in children of the process: DataLoader workers inherit this object."""
        return os.getpid() == self.pid

    def write(self, kind: str, **fields: Any) -> None:
        if not self.mine:
            return
        self.events += 1
        fields["kind"] = kind
        fields["t"] = round(time.monotonic() - self._start, 4)
        self._file.write(json.dumps(fields, separators=(",", ":")) + "\n")
        self._file.flush()

    def write_once(self, kind: str, *key: Any, **fields: Any) -> None:
        if (kind, *key) not in self._once:
            self._once.add((kind, *key))
            self.write(kind, **fields)

    def close(self) -> None:
        self._file.close()

    def elapsed(self) -> float:
        return time.monotonic() - self._start


_record: list[Record] = []
_roots: list[str] = []


def begin(plan: Plan) -> Record:
    _record[:] = [Record(plan)]
    _roots[:] = [plan.scratch + os.sep]
    return _record[0]


def record() -> Record:
    return _record[0]


def is_the_users(filename: str) -> bool:
    return filename.startswith(_roots[0]) and not filename.endswith(HELPER)


def user_frames(frame: FrameType | None) -> list[tuple[str, int, str]]:
    """(file, line, function) of the user's own frames, innermost first."""
    found = []
    while frame is not None:
        if is_the_users(frame.f_code.co_filename):
            found.append((frame.f_code.co_filename, frame.f_lineno, frame.f_code.co_name))
        frame = frame.f_back
    return found


def chain() -> list[str]:
    """The lines of the user's script that are being run, innermost first."""
    return [f"{file}:{line}" for file, line, _ in user_frames(sys._getframe(1))[:5]]  # noqa: SLF001


def site() -> str | None:
    """The line of the user's script that is being run, as file:line."""
    frame: FrameType | None = sys._getframe(1)  # noqa: SLF001
    while frame is not None:
        if is_the_users(frame.f_code.co_filename):
            return f"{frame.f_code.co_filename}:{frame.f_lineno}"
        frame = frame.f_back
    return None
