"""Putting functions of ours in place of torch's, and keeping the ones they stand for."""

import functools
from collections.abc import Callable
from typing import Any

Function = Callable[..., Any]


def replace(owner: Any, name: str, make: Callable[[Function], Function]) -> Function | None:
    """Replace `owner.name` by what `make` builds from it, where this torch has such a name."""
    original: Function | None = getattr(owner, name, None)
    if original is None:
        return None
    replacement = make(original)
    functools.update_wrapper(replacement, original, updated=())
    setattr(owner, name, replacement)
    return original
