"""From a path to a plan: the whole pipeline up to, but not including, writing.

Everything here is a pure function of source text and options; the command line writes what `Plan.texts` holds.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from multicard.plan import Plan


@dataclass(frozen=True)
class Options:
    """What the user may choose."""

    batch: Literal["per-card", "global"] = "per-card"
    runtime: Literal["vendor", "package"] = "vendor"
    select: frozenset[str] = frozenset()
    """Codes, or beginnings of codes (`MC2`), to keep; empty: all."""
    ignore: frozenset[str] = frozenset()
    """Codes, or beginnings of codes, to leave out."""


def migrate(path: Path, options: Options = Options()) -> Plan:
    """Read the script and its local modules, and decide every change; raises `MulticardError`."""
    raise NotImplementedError
