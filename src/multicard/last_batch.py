"""Losses of the last batch that are shown after the loop: `print(epoch, loss.item())`.

On one card it is the loss of a whole batch; each rank has that of its own share of it, and only rank 0's is shown.
"""

import ast
from collections.abc import Iterator

from multicard.carried import Carried, How
from multicard.facts import Facts
from multicard.source import Module
from multicard.tree import held, nodes
from multicard.values import Data


def last_losses(facts: Facts, module: Module, loop: ast.For) -> Iterator[Carried]:
    """The losses that a training loop leaves behind and that are read after it, and how shares make the whole."""
    inside = held(loop)
    backward = {
        node.id
        for event in facts.backwards
        if event.node in inside and isinstance(event.node, ast.Call)
        for node in nodes(event.node.func, ast.Name)
    }
    scaled = {
        node.id
        for event in facts.backwards
        if event.node in inside and isinstance(event.node, ast.Call)
        for call in nodes(event.node.func, ast.Call)
        for argument in call.args
        for node in nodes(argument, ast.Name)
    }
    bound: dict[str, list[ast.expr]] = {}
    for name, value in _bound(loop.body):
        bound.setdefault(name, []).append(value)
    for name, values in bound.items():
        loss = name in backward | scaled or _is_number(facts, values[-1])
        data = [item for item in facts.values(values[-1]) if isinstance(item, Data)]
        if not loss or not any(item.models for item in data) or not read_after(facts, module, loop, name):
            continue
        if _from_before(loop, name, len(values)):
            continue
        tags = {tag for item in data for tag in item.tags}
        summed = bool(tags & {"summed", "count"}) and "averaged" not in tags
        yield Carried(name, How.SUM if summed else How.MEAN, values[-1])


def _bound(body: list[ast.stmt]) -> Iterator[tuple[str, ast.expr]]:
    """The names that each turn of a loop binds anew, whatever the batch."""
    for statement in body:
        match statement:
            case ast.Assign(targets=[ast.Name(id=name)], value=value):
                yield name, value
            case ast.With(body=inner):
                yield from _bound(inner)
            case _:
                pass


def _is_number(facts: Facts, value: ast.expr) -> bool:
    """Whether a value is one number out of a tensor that a model gave: `loss.item()`."""
    match value:
        case ast.Call(func=ast.Attribute(value=inner, attr="item")):
            return any(isinstance(item, Data) and bool(item.models) for item in facts.values(inner))
        case _:
            return False


def _from_before(loop: ast.For, name: str, times: int) -> bool:
    """Whether a turn of a loop uses what the turn before left, or binds the name under a condition too."""
    uses = sorted(
        (node for node in nodes(loop, ast.Name) if node.id == name),
        key=lambda node: (node.lineno, node.col_offset),
    )
    stores = [node for node in uses if isinstance(node.ctx, ast.Store)]
    first = next(
        statement for statement in loop.body if any(node in stores for node in nodes(statement, ast.Name))
    )
    early = [
        node for node in uses if isinstance(node.ctx, ast.Load) and node.lineno <= (first.end_lineno or 0)
    ]
    read_first = isinstance(first, ast.Assign) and any(node in held(first.value) for node in early)
    return len(stores) != times or read_first or any(node.lineno < first.lineno for node in early)


def read_after(facts: Facts, module: Module, loop: ast.For, name: str) -> bool:
    """Whether the next that happens to a name after a loop is that it is read."""
    scope = facts.scope(module, loop)
    end = loop.end_lineno or 0
    after = [
        node
        for node in nodes(scope, ast.Name)
        if node.id == name and node.lineno > end and facts.scope(module, node) is scope
    ]
    first = min(after, key=lambda node: (node.lineno, node.col_offset), default=None)
    return first is not None and isinstance(first.ctx, ast.Load)
