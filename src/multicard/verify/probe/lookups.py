"""Files that are looked for and not found, which ranks must not make at the same time.

Two ranks that both look before either has written are a matter of microseconds: the fault shows in one run of a
hundred.  So a rank that finds nothing waits a moment before it hears so, and whoever looks at about the same time finds
nothing either.  Ranks that let one of them go first lose a moment and nothing else.
"""

import os
import pathlib
import sys
import time
from typing import Any

from multicard.verify.plan import Plan
from multicard.verify.probe import record as recording
from multicard.verify.probe.patching import Function, replace

MOMENT = 0.1
"""Seconds."""
MANY = 30
"""Paths for which a rank waits; a script that looks for thousands has its reasons."""


class Lookups:
    """The paths that were missing when the script looked for them."""

    def __init__(self, scratch: str) -> None:
        self.scratch = scratch
        self.missing: set[str] = set()

    def linger(self, path: Any) -> None:
        """Wait a moment, the first time that a path of the script's own folders is missing."""
        if not isinstance(path, str | bytes | os.PathLike) or not recording.record().mine:
            return
        name = os.path.abspath(os.fsdecode(path))
        if name in self.missing or len(self.missing) >= MANY or not name.startswith(self.scratch + os.sep):
            return
        self.missing.add(name)
        time.sleep(MOMENT)

    def test(self, original: Function) -> Function:
        """A test for a file, as the script's own lines make it."""

        def found(path: Any, *args: Any, **keywords: Any) -> Any:
            answer = original(path, *args, **keywords)
            if not answer and recording.is_the_users(sys._getframe(1).f_code.co_filename):  # noqa: SLF001
                self.linger(path)
            return answer

        return found


def install(plan: Plan) -> None:
    """Only where several ranks run: one process meets nobody."""
    if plan.world_size == 1:
        return
    lookups = Lookups(plan.scratch)
    for name in ("exists", "isfile", "isdir"):
        replace(os.path, name, lookups.test)
    for name in ("exists", "is_file", "is_dir"):
        replace(pathlib.Path, name, lookups.test)
