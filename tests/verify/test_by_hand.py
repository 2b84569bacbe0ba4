"""Steps that a script makes without an optimizer: what counts as one, and when it has ended."""

import copy
from collections.abc import Callable, Iterator
from types import SimpleNamespace

import pytest
import torch
from torch import Tensor, nn

from multicard.verify.probe import by_hand, modules, training
from multicard.verify.probe import record as recording


class Told:
    """What has been told of steps."""

    def __init__(self) -> None:
        self.begun: list[list[float]] = []
        self.ended: list[by_hand.Hand] = []

    def moves(self, hand: by_hand.Hand) -> None:
        self.begun.append([float(p.detach().sum()) for p in hand.param_groups[0]["params"]])

    def moved(self, hand: by_hand.Hand) -> None:
        self.ended.append(hand)


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> Iterator[Told]:
    found = Told()
    monkeypatch.setattr(recording, "record", lambda: SimpleNamespace(mine=True))
    monkeypatch.setattr(training, "hand_moves", found.moves)
    monkeypatch.setattr(training, "hand_moved", found.moved)
    for name in (*by_hand.WRITES, "data"):
        monkeypatch.setattr(Tensor, name, getattr(Tensor, name))
    for name in by_hand.TOGETHER:
        monkeypatch.setattr(torch, name, getattr(torch, name))
    yield found
    for kept in (by_hand.HANDS, by_hand.WEIGHTS):
        kept.clear()
    for kept_in_order in (by_hand.HELD, by_hand.MOVING, by_hand.WATCHED):
        kept_in_order.clear()


def trained(monkeypatch: pytest.MonkeyPatch) -> nn.Linear:
    """A model with gradients, after a backward."""
    model = nn.Linear(3, 1, bias=False)
    monkeypatch.setattr(modules, "roots_alive", lambda: [model])
    model(torch.ones(2, 3)).sum().backward()
    by_hand.backward_ended(0)
    return model


def no_grad(write: Callable[[Tensor], object]) -> Callable[[Tensor], None]:
    def written(p: Tensor) -> None:
        with torch.no_grad():
            write(p)

    return written


def gradient(p: Tensor) -> Tensor:
    assert p.grad is not None
    return p.grad


STEPS: dict[str, Callable[[Tensor], object]] = {
    "data in place": lambda p: p.data.add_(gradient(p), alpha=-0.1),
    "data, augmented": lambda p: setattr(p, "data", p.data.__isub__(0.1 * gradient(p))),
    "data set": lambda p: setattr(p, "data", p.data - 0.1 * gradient(p)),
    "data, an index": lambda p: p.data.__setitem__(0, -gradient(p)[0]),
    "the weight itself": no_grad(lambda p: p.__isub__(0.1 * gradient(p))),
    "copied": no_grad(lambda p: p.copy_(p - 0.1 * gradient(p))),
    "decayed first": no_grad(lambda p: p.mul_(0.9)),
    "all together": no_grad(lambda p: torch._foreach_add_([p], [gradient(p)], alpha=-0.1)),
}
NO_STEPS: dict[str, Callable[[Tensor], object]] = {
    "gradients are cleared": lambda p: gradient(p).zero_(),
    "gradients are scaled": lambda p: gradient(p).mul_(0.5),
    "a copy is moved": lambda p: copy.deepcopy(p).data.add_(p.data),
    "read only": lambda p: p.data + 1,
}


@pytest.mark.parametrize("write", STEPS.values(), ids=STEPS)
def test_a_write_to_a_weight_is_a_step(
    write: Callable[[Tensor], object], told: Told, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = trained(monkeypatch)
    before = float(model.weight.detach().sum())
    write(model.weight)
    write(model.weight)
    assert told.begun == [[before]]
    assert not told.ended
    by_hand.ended()
    by_hand.ended()
    assert len(told.ended) == 1
    write(model.weight)
    assert len(told.begun) == 1


@pytest.mark.parametrize("write", NO_STEPS.values(), ids=NO_STEPS)
def test_other_writes_are_none(
    write: Callable[[Tensor], object], told: Told, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(trained(monkeypatch).weight)
    by_hand.ended()
    assert not told.begun
    assert not told.ended


def test_a_script_with_an_optimizer_is_not_watched(told: Told, monkeypatch: pytest.MonkeyPatch) -> None:
    model = nn.Linear(3, 1)
    monkeypatch.setattr(modules, "roots_alive", lambda: [model])
    model(torch.ones(2, 3)).sum().backward()
    by_hand.backward_ended(1)
    model.weight.data.zero_().add_(1)
    assert not told.begun
