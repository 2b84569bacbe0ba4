"""Batches that a script makes by hand and deals out with `share_of`: the original gets those of all ranks together.

Where the batches of a round can be put together, the original trains on the whole; where a round is made of numbers
at which a batch begins, it takes the ranks' batches in turn and its optimizer steps on the mean of their gradients.
"""

import ast
import builtins
import json
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from multicard.verify.plan import Plan
from multicard.verify.probe import randomness
from multicard.verify.probe import record as recording
from multicard.verify.probe.patching import replace

DEALS, SPEAKS, VARIES = "share_of", "print_log", "vary_seed"
SHARE, TOGETHER, SAY = "__multicard_share__", "__multicard_together__", "__multicard_say__"
VARY = "__multicard_vary__"
HEARD = {SPEAKS: SAY, VARIES: VARY}
LINES = 5000
SAID = [0]
Loop = tuple[str, str]  # what is walked through, and what each batch is called


@dataclass
class Turn:
    """Whose batch the original is at, where it takes them one after the other."""

    at: int = 0
    of: int = 1
    uneven: bool = False  # the batch at hand is of shares that are not of one size
    loops: int = 0  # loops of this kind that are being walked through

    @property
    def waits(self) -> bool:
        """Whether the batches of other ranks come before the step."""
        return self.at < self.of - 1


TURN = Turn()
GRADIENTS: dict[int, tuple[Tensor, Tensor]] = {}  # of each parameter, the sum over the turns so far
PASSES: dict[Loop, int] = {}


def put_aside(parameters: Iterable[Tensor]) -> None:
    """Keep the gradients of this turn; an optimizer leaves parameters without one alone."""
    for parameter in parameters:
        if parameter.grad is not None:
            _, so_far = GRADIENTS.get(id(parameter), (parameter, torch.zeros_like(parameter.grad)))
            GRADIENTS[id(parameter)] = (parameter, so_far + parameter.grad)
            parameter.grad = None


def put_together(parameters: Iterable[Tensor]) -> None:
    """Make the gradients of the last turn the mean over all."""
    for parameter in parameters:
        _, so_far = GRADIENTS.pop(id(parameter), (None, None))
        if so_far is None:
            if parameter.grad is not None and TURN.of > 1 and id(parameter) not in DONE:
                parameter.grad = parameter.grad / TURN.of
        elif parameter.grad is None:
            parameter.grad = so_far / TURN.of
        else:
            parameter.grad = (so_far + parameter.grad) / TURN.of
        DONE.add(id(parameter))


DONE: set[int] = set()  # parameters whose gradients have been put together in this round


def mean_over_turns(values: list[Any]) -> list[Any]:
    """Of numbers that came once a turn, the means."""
    each, left = divmod(len(values), TURN.of)
    if TURN.of == 1 or left or not each or None in values:
        return values
    return [sum(values[at::each]) / TURN.of for at in range(each)]


def together(parts: Sequence[Any]) -> Any:
    """Batches put together into one; None where that cannot be done."""
    first = parts[0]
    if isinstance(first, (Tensor, np.ndarray)):
        if first.ndim == 0 or any(part.shape[1:] != first.shape[1:] for part in parts):
            return None
        return torch.cat(list(parts)) if isinstance(first, Tensor) else np.concatenate(parts)
    if isinstance(first, dict):
        columns = {key: together([part[key] for part in parts]) for key in first}
        return None if any(value is None for value in columns.values()) else columns
    if isinstance(first, list) and not (first and isinstance(first[0], (Tensor, np.ndarray, list))):
        return [item for part in parts for item in part]
    if isinstance(first, (tuple, list)) and all(len(part) == len(first) for part in parts):
        column = [together(values) for values in zip(*parts, strict=True)]
        return None if not column or any(value is None for value in column) else type(first)(column)
    return None


def rows_of(batch: Any) -> int:
    """How many samples a batch holds, as far as its first part tells."""
    if isinstance(batch, (Tensor, np.ndarray)):
        return len(batch)
    if isinstance(batch, dict):
        return rows_of(next(iter(batch.values()), []))
    if isinstance(batch, list) and not (batch and isinstance(batch[0], (Tensor, np.ndarray, list))):
        return len(batch)
    return rows_of(batch[0]) if isinstance(batch, (tuple, list)) and batch else 0


class Walk:
    """Stands for what a loop walks through."""

    def __init__(self, items: Any, walked: Callable[[], Iterator[Any]], length: int | None) -> None:
        self.items, self.walked, self.length = items, walked, length

    def __iter__(self) -> Iterator[Any]:
        TURN.loops += 1
        try:
            yield from self.walked()
        finally:
            TURN.loops -= 1
            TURN.at, TURN.of, TURN.uneven = 0, 1, False

    def __len__(self) -> int:
        return len(self.items) if self.length is None else self.length

    def __getattr__(self, name: str) -> Any:
        return getattr(self.items, name)


def begin(loop: Loop) -> tuple[int, int]:
    """What random draws of this pass are for."""
    number = PASSES[loop] = PASSES.get(loop, -1) + 1
    return zlib.crc32("\n".join(loop).encode()), number


def share(items: Any, *loop: str) -> Any:
    """In the migrated script: a rank's share, with random numbers that the original can draw too."""
    recording.record().write_once("turns", loop, expression=loop[0], target=loop[1])
    plan = PLAN[0]

    def walked() -> Iterator[Any]:
        key = begin((loop[0], loop[1]))
        for at, item in enumerate(items):
            _draw_as(key, at, item, plan.rank, plan.world_size)
            yield item
        randomness.PHASE.turn((*key, 0))

    return Walk(items, walked, None)


def _draw_as(key: tuple[int, int], at: int, item: Any, rank: int, ranks: int) -> None:
    """Draw what this rank draws for its share of a round."""
    if together([item, item]) is None:
        randomness.PHASE.turn((*key, at + 1, rank))
    else:
        randomness.PHASE.turn((*key, at + 1), [rows_of(item)] * ranks, rank)


def all_shares(items: Any, *loop: str) -> Any:
    """In the original: the batches of all ranks, round by round."""
    ranks = len(PLAN[0].recorded)

    def walked() -> Iterator[Any]:
        key = begin((loop[0], loop[1]))
        for at, parts in enumerate(rounds(items, ranks)):
            whole = together(parts)
            DONE.clear()
            if whole is None or PLAN[0].turns > 1:
                for turn, part in enumerate(parts):
                    TURN.at, TURN.of = turn, ranks
                    _draw_as(key, at, part, turn, ranks)
                    yield part
                TURN.at, TURN.of = 0, 1
                continue
            sizes = [rows_of(part) for part in parts]
            TURN.uneven = len(set(sizes)) > 1
            randomness.PHASE.turn((*key, at + 1), sizes)
            yield whole
            TURN.uneven = False
        randomness.PHASE.turn((*key, 0))

    return Walk(items, walked, None)


def rounds(items: Any, ranks: int) -> Iterator[list[Any]]:
    """What the ranks have at the same time, as `share_of` deals it."""
    if hasattr(items, "__len__") and hasattr(items, "__getitem__"):
        count = len(items)
        for first in range(0, count, ranks):
            yield [items[(first + rank) % count] for rank in range(ranks)]
        return
    parts: list[Any] = []
    for item in items:
        parts.append(item)
        if len(parts) == ranks:
            yield parts
            parts = []


def say(speaker: Callable[..., Any], *args: Any, **keywords: Any) -> Any:
    """Note what a rank other than 0 would have said."""
    if PLAN[0].rank and recording.record().mine and SAID[0] < LINES:
        SAID[0] += 1
        recording.record().write("said", text=" ".join(map(str, args)))
    return speaker(*args, **keywords)


def vary(variation: Callable[..., Any], *args: Any, **keywords: Any) -> Any:
    """Note that the ranks' generators differ from here on, and let them draw alike all the same."""
    with randomness.generators_kept():
        result = variation(*args, **keywords)
        recording.record().write("generators", **randomness.states())
    randomness.SETTLED[:] = [True]
    return result


def _in_any_order(original: Callable[..., Any]) -> Callable[..., Any]:
    """Batches that are sorted by length are not when they are put together; what is packed is the same."""

    def pack(
        input: Tensor,  # noqa: A002
        lengths: Any,
        batch_first: bool = False,  # noqa: FBT001, FBT002
        enforce_sorted: bool = True,  # noqa: FBT001, FBT002
    ) -> Any:
        known = [int(length) for length in lengths]
        in_order = enforce_sorted and known == sorted(known, reverse=True)
        return original(input, lengths, batch_first=batch_first, enforce_sorted=in_order)

    return pack


class Rewrite(ast.NodeTransformer):
    """Puts the walks above in the place of what loops walk through, and listens to what ranks keep to themselves."""

    def __init__(self, loops: set[Loop] | None) -> None:
        self.loops = loops  # None: in the migrated script, where `share_of` shows them

    def visit_Call(self, node: ast.Call) -> ast.AST:
        self.generic_visit(node)
        match node.func:
            case ast.Name(id=name) if name in HEARD and self.loops is None:
                call = ast.Call(ast.Name(HEARD[name], ast.Load()), [node.func, *node.args], node.keywords)
                return ast.copy_location(call, node)
            case _:
                return node

    def visit_For(self, node: ast.For) -> ast.AST:
        self.generic_visit(node)
        target = ast.unparse(node.target)
        for part in ast.walk(node.iter):
            if not isinstance(part, ast.expr):
                continue
            if self.loops is None:
                if dealt := _dealt(part):
                    node.iter = _replaced(node.iter, part, SHARE, ast.unparse(dealt), target)
                    break
            elif (ast.unparse(part), target) in self.loops:
                node.iter = _replaced(node.iter, part, TOGETHER, ast.unparse(part), target)
                break
        return node


def _dealt(node: ast.expr) -> ast.expr | None:
    """What is dealt out by a call of `share_of`."""
    match node:
        case ast.Call(func=ast.Name(id=name) | ast.Attribute(attr=name), args=[dealt], keywords=[]):
            return dealt if name == DEALS else None
        case _:
            return None


def _replaced(whole: ast.expr, part: ast.expr, function: str, expression: str, target: str) -> ast.expr:
    call = ast.Call(
        ast.Name(function, ast.Load()), [part, ast.Constant(expression), ast.Constant(target)], []
    )
    ast.copy_location(call, part)

    class Put(ast.NodeTransformer):
        def visit(self, node: ast.AST) -> Any:
            return call if node is part else self.generic_visit(node)

    return Put().visit(whole)  # type: ignore[no-any-return]


PLAN: list[Plan] = []
LOOPS: set[Loop] = set()


def rewrites(source: bytes) -> bool:
    """Whether a file may have such a loop."""
    if not PLAN:
        return False
    if PLAN[0].role == "migrated":
        return any(f"{name}(".encode() in source for name in (DEALS, *HEARD))
    return bool(LOOPS)


def rewritten(tree: ast.Module) -> ast.Module:
    found = Rewrite(None if PLAN[0].role == "migrated" else LOOPS).visit(tree)
    return ast.fix_missing_locations(found)  # type: ignore[no-any-return]


def install(plan: Plan) -> None:
    PLAN[:] = [plan]
    setattr(builtins, SHARE, share)
    setattr(builtins, TOGETHER, all_shares)
    setattr(builtins, SAY, say)
    setattr(builtins, VARY, vary)
    if plan.recorded:
        replace(torch.nn.utils.rnn, "pack_padded_sequence", _in_any_order)
    if plan.turns and plan.recorded:
        for line in Path(plan.recorded[0]).read_text(encoding="utf-8").splitlines():
            if '"kind":"turns"' in line:
                event = json.loads(line)
                LOOPS.add((event["expression"], event["target"]))
