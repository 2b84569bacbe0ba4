"""Files that one rank makes and another looks for, with nothing between them but luck.

Two ranks that both find a file missing before either has written it, or one that reads what another is about to write,
are a matter of microseconds: the fault shows in one run of a hundred.  So a rank that finds nothing waits a moment
before it hears so, and whoever looks at about the same time finds nothing either; and a rank that is about to write
waits a moment, so that whoever does not wait for it comes too early.  Ranks that let one of them go first, and wait for
it, lose a moment and nothing else.
"""

import os
import pathlib
import sys
import time
from typing import Any

import torch

from multicard.verify.plan import Plan
from multicard.verify.probe import record as recording
from multicard.verify.probe.patching import Function, replace
from multicard.verify.scratch import OPENING

MOMENT = 0.1
"""Seconds."""
MANY = 20
"""Paths for which a rank waits; a script that looks for thousands has its reasons."""


class Lookups:
    """The paths of the script's own folders for which a rank has waited."""

    def __init__(self, scratch: str) -> None:
        self.scratch = scratch
        self.waited: dict[str, set[str]] = {"missing": set(), "written": set()}

    def linger(self, path: Any, why: str) -> None:
        """Wait a moment, the first time that a path is missing, or written."""
        if not isinstance(path, str | bytes | os.PathLike) or not recording.record().mine:
            return
        name, waited = os.path.abspath(os.fsdecode(path)), self.waited[why]
        if name.endswith(OPENING):
            return
        if name in waited or len(waited) >= MANY or not name.startswith(self.scratch + os.sep):
            return
        waited.add(name)
        time.sleep(MOMENT)

    def opened(self, event: str, args: tuple[Any, ...]) -> None:
        """The audit hook."""
        if event == "open" and isinstance(args[1], str) and set(args[1]) & set("wxa+"):
            self.linger(args[0], "written")

    def test(self, original: Function) -> Function:
        """A test for a file, as the script's own lines make it."""

        def found(path: Any, *args: Any, **keywords: Any) -> Any:
            answer = original(path, *args, **keywords)
            if not answer and recording.is_the_users(sys._getframe(1).f_code.co_filename):  # noqa: SLF001
                self.linger(path, "missing")
            return answer

        return found

    def save(self, original: Function) -> Function:
        """A path that torch opens in C++, where nobody tells."""

        def save(thing: Any, f: Any, *args: Any, **keywords: Any) -> Any:
            self.linger(f, "written")
            return original(thing, f, *args, **keywords)

        return save


def install(plan: Plan) -> None:
    """Only where several ranks run: one process meets nobody."""
    if plan.world_size == 1:
        return
    lookups = Lookups(plan.scratch)
    for name in ("exists", "isfile", "isdir"):
        replace(os.path, name, lookups.test)
    for name in ("exists", "is_file", "is_dir"):
        replace(pathlib.Path, name, lookups.test)
    replace(torch, "save", lookups.save)
    sys.addaudithook(lookups.opened)
