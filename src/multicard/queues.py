"""Queues that a model fills from its batches, one batch at a time: the keys of a contrastive loss, for instance.

Each rank would fill its own, of which the wrapper keeps rank 0's.  Given the batches of all ranks one after the other,
all hold what one card would have put there, however many ranks there are.
"""

import ast
from collections.abc import Iterator
from typing import NamedTuple

from multicard.counters import on_every_rank
from multicard.edits import Edit, guard, replace
from multicard.facts import Facts
from multicard.reach import callers
from multicard.source import Module
from multicard.tree import nodes, walk
from multicard.values import data_of


class Filled(NamedTuple):
    """A statement that has a queue filled, and what gives it the batches of all ranks."""

    module: Module
    statement: ast.stmt
    edits: tuple[Edit, ...]


def filled(facts: Facts, module: Module, method: ast.FunctionDef, writes: list[ast.AST]) -> list[Filled]:
    """The statements that call a method which fills queues; none where not all of them can be given all batches."""
    if any(item.value is not None for item in nodes(method, ast.Return)):
        return []
    rows = [node for node in writes if not _counts(facts, node)]
    if not rows or not all(_takes_its_turn(method, node) for node in rows):
        return []
    found = []
    for place, call in callers(facts).get(method, []):
        statement = facts.statement(place, call)
        edits = _given_all(facts, place, statement, method)
        recorded = not (_without_gradients(module, method) or _under_no_grad(facts, place, statement))
        if not edits or recorded or not on_every_rank(facts, place, statement, frozenset()):
            return []
        found.append(Filled(place, statement, edits))
    return found


def _counts(facts: Facts, write: ast.AST) -> bool:
    """Whether a write tells where the next batch goes."""
    match write:
        case ast.Assign(value=value) | ast.AugAssign(value=value):
            tags = data_of(facts.values(value)).tags
            return "size" in tags and "batch" not in tags
        case _:
            return False


def _takes_its_turn(method: ast.FunctionDef, write: ast.AST) -> bool:
    """Whether a write puts a batch where the one before ended, or at one end of what is there."""
    match write:
        case ast.Assign(targets=[ast.Subscript(slice=part)]):
            slices = any(item.upper is not None for item in nodes(part, ast.Slice))
            sums: tuple[ast.BinOp | ast.AugAssign, ...] = (
                *nodes(method, ast.BinOp),
                *nodes(method, ast.AugAssign),
            )
            return slices and any(isinstance(item.op, ast.Mod) for item in sums)
        case ast.Assign(targets=[ast.Attribute(attr=attr)]):
            return _joined_to(write, attr)
        case ast.Call(func=ast.Attribute(value=ast.Attribute(attr=attr), attr="copy_")):
            return _joined_to(write, attr)
        case _:
            return False


def _joined_to(write: ast.AST, attr: str) -> bool:
    return any(
        getattr(call.func, "attr", getattr(call.func, "id", "")) in {"cat", "concat", "concatenate"}
        and any(isinstance(part, ast.Attribute) and part.attr == attr for part in walk(call))
        for call in nodes(write, ast.Call)
    )


def _without_gradients(module: Module, method: ast.FunctionDef) -> bool:
    return any("no_grad" in module.text(item) for item in method.decorator_list)


def _under_no_grad(facts: Facts, module: Module, statement: ast.stmt) -> bool:
    return any(
        "no_grad" in module.text(item.context_expr)
        for outer in facts.ancestors(module, statement)
        if isinstance(outer, ast.With)
        for item in outer.items
    )


def _given_all(
    facts: Facts, module: Module, statement: ast.stmt, method: ast.FunctionDef
) -> tuple[Edit, ...]:
    """The edits that repeat a call for the batches of all ranks."""
    match statement:
        case ast.Expr(value=ast.Call(args=[_, *_] as args, keywords=[])):
            pass
        case _:
            return ()
    names = list(_names(facts, module, statement, method))[: len(args)]
    if len(names) < len(args) or not all(data_of(facts.values(item)).local for item in args):
        return ()
    given = ", ".join(module.text(item) for item in args)
    header = f"for {', '.join(names)} in «batches_of_ranks»({given}):"
    repeated = guard(module, [statement], header)
    if repeated is None:
        return ()
    return (*repeated, *(replace(module, item, name) for item, name in zip(args, names, strict=True)))


def _names(facts: Facts, module: Module, statement: ast.stmt, method: ast.FunctionDef) -> Iterator[str]:
    """What to call a batch: as the method calls it."""
    scope = facts.scope(module, statement)
    taken = {item.id for item in nodes(scope, ast.Name)} | {item.arg for item in nodes(scope, ast.arg)}
    for item in method.args.args[1:]:
        name = item.arg
        while name in taken:
            name += "_"
        yield name
