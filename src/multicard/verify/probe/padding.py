"""Batches that are padded to their longest sample: a rank's share of one that was padded as a whole.

Where a model or a loss sees the padding, a rank that pads to the longest of its own samples computes something else
than one card that pads to the longest of all. That is no fault, but hides whether there is any other.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch

Array = torch.Tensor | np.ndarray
MOST = 16


class NoPartError(Exception):
    """It cannot be told which part of this is of which sample."""


def shapes_of(batch: Any) -> list[list[int]]:
    """The shapes of the tensors of a batch, without how many samples it has."""
    found: list[list[int]] = []
    _collect(batch, found)
    return found


def _collect(thing: Any, found: list[list[int]]) -> None:
    if len(found) >= MOST:
        return
    if isinstance(thing, torch.Tensor | np.ndarray):
        found.append([int(n) for n in thing.shape[1:]])
    elif isinstance(thing, Mapping | list | tuple):
        for part in thing.values() if isinstance(thing, Mapping) else thing:
            _collect(part, found)


def part_of(batch: Any, total: int, first: int, count: int) -> Any:
    """These samples of a batch of so many; None where they cannot be told from the others."""
    try:
        return _part(batch, total, first, count)
    except NoPartError:
        return None


def _part(thing: Any, total: int, first: int, count: int) -> Any:
    if isinstance(thing, torch.Tensor | np.ndarray):
        return _rows(thing, total, first, count)
    if type(thing) is dict:
        return {key: _part(value, total, first, count) for key, value in thing.items()}
    if isinstance(thing, list | tuple):
        if len(thing) == total and not all(_counts(part, total) for part in thing):
            return type(thing)(thing[first : first + count])
        parts = [_part(value, total, first, count) for value in thing]
        return type(thing)(*parts) if hasattr(thing, "_fields") else type(thing)(parts)
    if thing is None or isinstance(thing, str | int | float | bool):
        return thing
    raise NoPartError


def _counts(thing: Any, total: int) -> bool:
    """Whether this has a part for each sample."""
    return isinstance(thing, torch.Tensor | np.ndarray) and total in thing.shape[:2]


def _rows(array: Array, total: int, first: int, count: int) -> Array:
    if array.ndim == 0:
        return array
    axis = next((axis for axis, size in enumerate(array.shape[:2]) if size == total), None)
    if axis is None:
        raise NoPartError
    part = array[first : first + count] if axis == 0 else array[:, first : first + count]
    return part.clone() if isinstance(part, torch.Tensor) else part.copy()
