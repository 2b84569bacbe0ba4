"""Batches made by hand: found in both scripts, put together, or taken in turn."""

import ast
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch

from multicard.verify.evidence import known_pairs
from multicard.verify.probe import turns

LEFT, RIGHT = torch.zeros(2, 3), torch.ones(1, 3)
TOGETHER: dict[str, tuple[Any, Any, int | None]] = {
    "tensors": (LEFT, RIGHT, 3),
    "arrays": (LEFT.numpy(), RIGHT.numpy(), 3),
    "tuples of tensors": ((LEFT, LEFT), (RIGHT, RIGHT), 3),
    "tuples in tuples": (((LEFT, LEFT), LEFT), ((RIGHT, RIGHT), RIGHT), 3),
    "dicts": ({"x": LEFT}, {"x": RIGHT}, 3),
    "lists of tensors": ([LEFT, LEFT], [RIGHT, RIGHT], 3),
    "lists of samples": ([("a", 1), ("b", 2)], [("c", 3)], 3),
    "lists of indices": ([0, 1], [2], 3),
    "numbers": (0, 32, None),
    "tensors that are padded otherwise": (LEFT, torch.ones(1, 4), None),
    "numbers in tuples": ((LEFT, 1), (RIGHT, 1), None),
}


@pytest.mark.parametrize(("one", "two", "rows"), TOGETHER.values(), ids=TOGETHER)
def test_batches_are_put_together(one: object, two: object, rows: int | None) -> None:
    whole = turns.together([one, two])
    assert (None if whole is None else turns.rows_of(whole)) == rows


def test_a_sequence_is_filled_up_and_a_generator_is_not() -> None:
    assert list(turns.rounds([1, 2, 3], 2)) == [[1, 2], [3, 1]]
    assert list(turns.rounds(iter([1, 2, 3]), 2)) == [[1, 2]]


REWRITTEN = {
    "for i, b in enumerate(share_of(bs)):\n    pass": "enumerate(__multicard_share__(share_of(bs), 'bs', '(i, b)'))",
    "for b in rt.share_of(range(0, n, 8)):\n    pass": (
        "__multicard_share__(rt.share_of(range(0, n, 8)), 'range(0, n, 8)', 'b')"
    ),
    "for b in bs:\n    print_log(b, sep='')": "bs",
}


@pytest.mark.parametrize(("source", "walked"), REWRITTEN.items(), ids=REWRITTEN)
def test_dealt_loops_are_found_in_the_migrated_script(source: str, walked: str) -> None:
    tree = turns.Rewrite(None).visit(ast.parse(source))
    assert ast.unparse(tree.body[0].iter) == walked


def test_the_same_loops_are_found_in_the_original() -> None:
    source = "for i, b in enumerate(bs):\n    pass\nfor b in bs:\n    pass"
    tree = turns.Rewrite({("bs", "(i, b)")}).visit(ast.parse(source))
    assert ast.unparse(tree.body[0].iter) == "enumerate(__multicard_together__(bs, 'bs', '(i, b)'))"
    assert ast.unparse(tree.body[1].iter) == "bs"


@pytest.fixture
def turn() -> Iterator[turns.Turn]:
    yield turns.TURN
    turns.TURN.at, turns.TURN.of = 0, 1
    turns.DONE.clear()
    turns.GRADIENTS.clear()


def test_an_optimizer_gets_the_mean_of_the_turns(turn: turns.Turn) -> None:
    both, last = torch.zeros(2, requires_grad=True), torch.zeros(2, requires_grad=True)
    turn.at, turn.of = 0, 2
    assert turns.TURN.waits
    both.grad = torch.tensor([1.0, 2.0])
    turns.put_aside([both, last])
    assert [p.grad for p in (both, last)] == [None, None]
    turn.at = 1
    both.grad, last.grad = torch.tensor([3.0, 2.0]), torch.tensor([4.0, 4.0])
    for _ in range(2):  # clipped, and then used
        turns.put_together([both, last])
    assert [p.grad.tolist() for p in (both, last) if p.grad is not None] == [[2.0, 2.0], [2.0, 2.0]]


def test_losses_are_the_means_of_the_turns(turn: turns.Turn) -> None:
    turn.of = 2
    assert turns.mean_over_turns([1.0, 10.0, 3.0, 30.0]) == [2.0, 20.0]
    assert turns.mean_over_turns([1.0, None]) == [1.0, None]


def test_numbers_of_a_batch_are_known_where_the_ranks_have_them_in_sum_or_mean() -> None:
    def step(*scalars: float) -> dict[str, Any]:
        return {"kind": "step", "number": 0, "step": 0, "losses": [1.0], "scalars": list(scalars)}

    own = step(0.5, 12.0, 0.7)
    ranks = [[step(0.25, 5.0, 0.1)], [step(0.75, 7.0, 0.2)]]
    assert set(known_pairs([own], ranks)) == {(1.0, 1.0), (1.0, 2.0), (0.5, 0.25), (12.0, 5.0)}


def test_arrays_count_their_rows() -> None:
    assert turns.rows_of((np.zeros((4, 2)), 1)) == 4


def test_what_ranks_keep_to_themselves_is_heard() -> None:
    tree = turns.Rewrite(None).visit(ast.parse("vary_seed()\nprint_log('acc', acc, sep='')"))
    assert ast.unparse(tree) == (
        "__multicard_vary__(vary_seed)\n__multicard_say__(print_log, 'acc', acc, sep='')"
    )
