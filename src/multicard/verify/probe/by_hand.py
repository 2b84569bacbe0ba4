"""Steps without an optimizer: the script moves the weights itself, by what backward has left in their gradients.

Nothing is called at such a step. It begins with the first write to a weight that has a gradient, after a backward,
and has ended when a model is called again, or another batch or backward comes.  Writes are watched only where the
script has trained without having made an optimizer.
"""

import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from multicard.verify.probe import modules, turns
from multicard.verify.probe import record as recording
from multicard.verify.probe.patching import Function, replace

WRITES = (
    "add_",
    "addcdiv_",
    "addcmul_",
    "copy_",
    "div_",
    "lerp_",
    "mul_",
    "sub_",
    "__iadd__",
    "__imul__",
    "__isub__",
    "__itruediv__",
    "__setitem__",
)
TOGETHER = (
    "_foreach_add_",
    "_foreach_addcdiv_",
    "_foreach_addcmul_",
    "_foreach_copy_",
    "_foreach_mul_",
    "_foreach_sub_",
)


class Hand:
    """Stands for the optimizer of one model that the script moves by hand."""

    def __init__(self, model: nn.Module) -> None:
        self.param_groups = [{"params": list(model.parameters())}]


HANDS: dict[int, Hand] = {}  # by the model
HELD: list[nn.Module] = []  # an id must not be given to another model
WEIGHTS: dict[
    int, nn.Module
] = {}  # where each weight is kept that may be moved now, and of which model it is
MOVING: list[Hand] = []
WATCHED: list[bool] = []
NAMED: list[bool] = []  # whether an optimizer is named in the script, once that has been looked up


def expected() -> bool:
    """Whether the script names no optimizer anywhere, and has a model that can be trained."""
    if not NAMED:
        files = [getattr(module, "__file__", None) or "" for module in list(sys.modules.values())]
        texts = (Path(file).read_bytes() for file in files if recording.is_the_users(file))
        NAMED.append(any(b"optim" in text for text in texts))
    return not NAMED[0] and any(p.requires_grad for root in modules.roots_alive() for p in root.parameters())


def backward_ended(optimizers: int) -> None:
    """Gradients are there: whatever moves a weight from here on uses them."""
    if optimizers > len(HANDS) or turns.TURN.of > 1:
        return
    WEIGHTS.clear()
    for root in modules.roots_alive():
        for weight in root.parameters():
            if weight.grad is not None and weight.numel():
                WEIGHTS.setdefault(_place(weight), root)
    if WEIGHTS and not WATCHED:
        WATCHED.append(True)
        _watch()


def ended() -> None:
    """What follows is not part of a step any more."""
    from multicard.verify.probe import training

    while MOVING:
        training.hand_moved(MOVING.pop(0))


def _place(tensor: Tensor) -> int:
    return tensor.untyped_storage().data_ptr() if tensor.layout == torch.strided else 0


def _about_to_write(tensors: Iterable[Any]) -> None:
    from multicard.verify.probe import training

    if not WEIGHTS or not recording.record().mine:
        return
    for tensor in tensors:
        model = WEIGHTS.get(_place(tensor)) if isinstance(tensor, Tensor) else None
        if model is None:
            continue
        for place in [place for place, held in WEIGHTS.items() if held is model]:
            del WEIGHTS[place]
        if id(model) not in HANDS:
            HANDS[id(model)] = Hand(model)
            HELD.append(model)
        training.hand_moves(HANDS[id(model)])
        MOVING.append(HANDS[id(model)])


def _write(original: Function) -> Function:
    def write(self: Tensor, *args: Any, **keywords: Any) -> Any:
        _about_to_write((self,))
        return original(self, *args, **keywords)

    return write


def _write_all(original: Function) -> Function:
    def write(tensors: Any, *args: Any, **keywords: Any) -> Any:
        _about_to_write(tensors)
        return original(tensors, *args, **keywords)

    return write


def _watch() -> None:
    for name in WRITES:
        replace(Tensor, name, _write)
    for name in TOGETHER:
        replace(torch, name, _write_all)
    data: Any = Tensor.data
    put: Callable[[Any, Any], None] = _write(data.__set__)
    Tensor.data = property(data.__get__, put)  # type: ignore[assignment]
