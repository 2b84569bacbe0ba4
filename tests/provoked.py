"""A plugin for pytest that writes down which refusals the tests provoke: the lines where they are made.

pytest -p provoked tests/rules        with PROVOKED=file.json
"""

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path

from multicard.errors import MulticardError
from multicard.plan import Finding

PLACES: set[tuple[str, int]] = set()


def _noting(cls: type, made: Callable[..., None]) -> None:
    def init(self: Finding | MulticardError, *args: object, **kwargs: object) -> None:
        made(self, *args, **kwargs)
        here = sys._getframe(1)
        PLACES.add((here.f_code.co_filename, here.f_lineno))

    cls.__init__ = init  # type: ignore[misc]  # all that is made of the class from here on


def pytest_configure() -> None:
    _noting(Finding, Finding.__init__)
    _noting(MulticardError, MulticardError.__init__)


def pytest_sessionfinish() -> None:
    Path(os.environ["PROVOKED"]).write_text(json.dumps(sorted(PLACES)), encoding="utf-8")
