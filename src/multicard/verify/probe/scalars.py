"""The numbers that a script takes out of tensors while it trains: losses, accuracies, norms of a batch.

What rank 0 shows of a batch is of its own share. It is known by these numbers, of which the mean or the sum over
the ranks is what the original has.
"""

import math
import sys
from typing import Any

import torch
from torch import Tensor

from multicard.verify.probe import record as recording
from multicard.verify.probe import steps_between
from multicard.verify.probe.patching import Function, replace

MOST = 64  # between two steps
TAKEN: list[float] = []
ROWS = [0]  # samples in the batch at hand


def take() -> list[float]:
    """What has been taken out since this was last asked."""
    taken = TAKEN[:]
    TAKEN.clear()
    return taken


def _item(original: Function) -> Function:
    def item(self: Tensor) -> Any:
        value = original(self)
        trains = torch.is_grad_enabled() or not steps_between.EVALUATED[0]
        if len(TAKEN) < MOST and isinstance(value, (int, float)) and trains:
            caller = sys._getframe(1).f_code.co_filename  # noqa: SLF001
            if recording.is_the_users(caller) and recording.record().mine and math.isfinite(value):
                TAKEN.append(float(value))
        return value

    return item


def install() -> None:
    replace(Tensor, "item", _item)
    replace(Tensor, "__float__", _item)
