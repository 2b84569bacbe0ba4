"""Which total a number divides, also where a function gives the total back and its caller divides it."""

import ast
from collections.abc import Iterator

from multicard.facts import Facts, FunctionNode
from multicard.source import Module
from multicard.tree import nodes, walk
from multicard.values import Func

_PASSED_ON = 3
"""Names that a total is given to, one after the other, before it is divided."""


def dividend(facts: Facts, module: Module, node: ast.AST) -> ast.expr | None:
    """What a number divides, itself or as a factor, a maximum or a rounded value."""
    child = node
    for parent in facts.ancestors(module, node):
        match parent:
            case ast.BinOp(op=ast.Div() | ast.FloorDiv(), left=left, right=right) if right is child:
                return left
            case ast.AugAssign(op=ast.Div() | ast.FloorDiv(), target=target, value=value) if value is child:
                return target
            case ast.BinOp() | ast.Call(func=ast.Name(id="float" | "int" | "max")) | ast.UnaryOp():
                child = parent
            case _:
                return None
    return None


def given_by(facts: Facts, module: Module, total: ast.expr) -> frozenset[FunctionNode]:
    """The functions of the program that gave a total: called in it, or where its name last got a value."""
    return frozenset(
        value.node
        for call in calls_behind(facts, module, total)
        for value in facts.values(call.func)
        if isinstance(value, Func)
    )


def calls_behind(facts: Facts, module: Module, value: ast.expr, deep: int = _PASSED_ON) -> Iterator[ast.Call]:
    """The calls that gave a value: in it, or where its name last got one."""
    for part in walk(value):
        if isinstance(part, ast.Call):
            yield part
        elif isinstance(part, ast.Name | ast.Attribute) and deep:
            assigned = _last_assigned(facts, module, part)
            if assigned is not None:
                yield from calls_behind(facts, module, assigned, deep - 1)


def _last_assigned(facts: Facts, module: Module, name: ast.Name | ast.Attribute) -> ast.expr | None:
    """The value that a name got last, as the lines stand, in the function that it stands in."""
    text = module.text(name)
    found: ast.Assign | None = None
    for statement in nodes(facts.scope(module, name), ast.Assign):
        if (statement.end_lineno or 0) < name.lineno and (found is None or statement.lineno > found.lineno):
            targets = (part for target in statement.targets for part in walk(target))
            if any(
                isinstance(part, ast.Name | ast.Attribute) and module.text(part) == text for part in targets
            ):
                found = statement
    return found.value if found is not None else None


def returned(function: ast.AST) -> frozenset[str]:
    """The names that a function gives back."""
    values = (item.value for item in nodes(function, ast.Return) if item.value is not None)
    return frozenset(part.id for value in values for part in walk(value) if isinstance(part, ast.Name))
