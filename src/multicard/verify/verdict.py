"""What came of a comparison: every check by name, held, failed or not applicable, and why.

A comparison that compared nothing is a failure; that is decided here and nowhere else.
"""

from dataclasses import dataclass
from typing import Literal

from multicard.messages import Text

State = Literal["held", "told", "failed", "skipped"]


@dataclass(frozen=True)
class Cause:
    """The likely reason for a failed check: the rule that it breaks, and where in the migrated script."""

    code: str
    why: Text
    site: str | None = None


@dataclass(frozen=True)
class Check:
    """One thing that was compared.

    `told` has held, with something the reader should know; `skipped` could not be compared, for the reason
    given.
    """

    name: str
    title: Text
    state: State
    detail: Text
    cause: Cause | None = None


def check(name: str, title: Text, state: State, en: str, zh: str) -> Check:
    return Check(name, title, state, Text(en, zh))


@dataclass(frozen=True)
class Curve:
    """One quantity of both runs, step by step."""

    name: str
    original: tuple[float | None, ...]
    migrated: tuple[float | None, ...]


@dataclass(frozen=True)
class Where:
    """Where one rank stood when a run ended before its time."""

    rank: int
    state: str
    doing: str
    site: str | None
    source: str
    chain: tuple[str, ...] = ()  # the lines through which it came there, innermost first


@dataclass(frozen=True)
class Verdict:
    """The outcome of `verify`."""

    original: str
    migrated: str
    nproc: int
    ended: str  # compared, hung, failed, timeout, incomparable
    checks: tuple[Check, ...]
    steps: int
    seconds: tuple[float, float]
    where: tuple[Where, ...] = ()
    traceback: str = ""
    replaced: tuple[str, ...] = ()
    shortened: bool = False
    curves: tuple[Curve, ...] = ()

    @property
    def failed(self) -> tuple[Check, ...]:
        return tuple(check for check in self.checks if check.state == "failed")

    @property
    def exit_code(self) -> int:
        """0 the same, 1 differs or hangs, 2 could not be compared."""
        if self.ended == "incomparable":
            return 2
        if self.ended != "compared" or self.failed or self.steps < 1:
            return 1
        return 0
