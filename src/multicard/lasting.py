"""What a call changes that lives on after it: globals, attributes, arguments.

What rank 0 does alone must leave nothing behind in its memory that the other ranks then lack.
"""

import ast
from collections.abc import Iterator
from typing import NamedTuple

from multicard.facts import Facts, FunctionNode
from multicard.reach import functions_of, reached
from multicard.tree import walk
from multicard.values import Func, Lib, Obj

MUTATORS = frozenset({
    "append", "appendleft", "extend", "insert", "add", "update", "pop", "popleft", "popitem", "remove", "clear",
    "discard", "setdefault", "sort", "reverse", "put", "load_state_dict", "requires_grad_", "fill_", "zero_", "copy_",
})  # fmt: skip

_VIEWS = frozenset({
    "view", "reshape", "numpy", "detach", "squeeze", "unsqueeze", "permute", "transpose", "cpu", "to", "flatten", "get",
    "items", "values", "t",
})  # fmt: skip


def mutates(facts: Facts, call: ast.Call) -> bool:
    """Whether the owner of a mutating method is something of the program, not of a library."""
    assert isinstance(call.func, ast.Attribute)
    values = facts.values(call.func.value)
    return not values or not all(
        isinstance(value, Lib) or (isinstance(value, Obj) and value.kind in {"lib", "file", "writer", "iter"})
        for value in values
    )


def lasting(facts: Facts, *roots: ast.AST) -> str:
    """What the functions that some nodes call change that lives on after them; nothing if they change nothing.

    An object that is made on the way may be changed on the way.
    """
    functions = reached(facts, *roots)
    made = {node for region in (*roots, *functions) for node in walk(region)}
    selves: dict[FunctionNode, set[Obj]] = {}
    for region in (*roots, *functions):
        for node in walk(region):
            if isinstance(node, ast.Call):
                for value in facts.values(node.func):
                    if isinstance(value, Func) and isinstance(value.bound, Obj):
                        selves.setdefault(value.node, set()).add(value.bound)
                    elif isinstance(value, Obj):
                        for function in functions_of(facts, node):
                            selves.setdefault(function, set()).add(value)
    for function in sorted(functions, key=lambda item: item.lineno):
        for change in changes(facts, function):
            bound = selves.get(function, set())
            own = change.of_self and all(obj.site is not None and obj.site.node in made for obj in bound)
            if not own:
                return change.what
    return ""


class Change(NamedTuple):
    """Something that a function changes and that it did not make."""

    what: str
    of_self: bool = False
    """It belongs to the object whose method this is."""


def changes(facts: Facts, function: FunctionNode) -> tuple[Change, ...]:
    """What a function itself changes that lives on after it."""
    memo = facts.memo.setdefault("changes", {})
    assert isinstance(memo, dict)
    found = memo.get(function)
    if found is None:
        memo[function] = found = tuple(_changes(facts, function))
    assert isinstance(found, tuple)
    return found


def _changes(facts: Facts, function: FunctionNode) -> Iterator[Change]:
    own = _own_names(function)
    first = next(iter(function.args.args), None)
    itself = first.arg if first is not None and first.arg == "self" else ""
    for node in walk(function):
        match node:
            case ast.Global(names=names):
                yield Change(f"sets the global `{names[0]}`")
            case ast.Yield() | ast.YieldFrom():
                yield Change("yields")
            case ast.Attribute(ctx=ast.Store() | ast.Del()) | ast.Subscript(ctx=ast.Store() | ast.Del()):
                if not _fresh(facts, node.value, own):
                    yield Change(f"sets `{ast.unparse(node)}`, which lives on", _root(node) == itself != "")
            case ast.AugAssign(target=ast.Name(id=name)) if name not in own:
                yield Change(f"changes `{name}`, which lives on")
            case ast.Call(func=ast.Attribute(value=base, attr=attr)) if attr in MUTATORS:
                if not _fresh(facts, base, own) and mutates(facts, node):
                    yield Change(
                        f"changes `{ast.unparse(base)}`, which lives on", _root(base) == itself != ""
                    )
            case ast.Call(func=ast.Name(id="setattr" | "exec" | "delattr")):
                yield Change("sets attributes by name")
            case _:
                pass


def _root(node: ast.expr) -> str:
    while isinstance(node, ast.Attribute | ast.Subscript | ast.Call):
        node = node.func if isinstance(node, ast.Call) else node.value
    return node.id if isinstance(node, ast.Name) else ""


def _own_names(function: FunctionNode) -> dict[str, list[ast.expr | None]]:
    """Names that a function binds itself, and to what; parameters are not among them."""
    found: dict[str, list[ast.expr | None]] = {}

    def bind(target: ast.expr, value: ast.expr | None) -> None:
        match target:
            case ast.Name(id=name):
                found.setdefault(name, []).append(value)
            case ast.Tuple(elts=elements) | ast.List(elts=elements):
                values = value.elts if isinstance(value, ast.Tuple | ast.List) else []
                for index, element in enumerate(elements):
                    bind(element, values[index] if len(values) == len(elements) else value)
            case ast.Starred(value=inner):
                bind(inner, value)
            case _:
                pass

    for node in walk(function):
        match node:
            case ast.Assign(targets=targets, value=value):
                for target in targets:
                    bind(target, value)
            case ast.AnnAssign(target=target, value=value) | ast.NamedExpr(target=target, value=value):
                bind(target, value)
            case ast.For(target=target, iter=value) | ast.comprehension(target=target, iter=value):
                bind(target, value)
            case ast.withitem(optional_vars=ast.expr() as target, context_expr=value):
                bind(target, value)
            case ast.FunctionDef(name=name) if node is not function:
                found.setdefault(name, []).append(None)
            case _:
                pass
    parameters = {node.arg for node in walk(function.args) if isinstance(node, ast.arg)}
    return {name: values for name, values in found.items() if name not in parameters}


def _fresh(facts: Facts, node: ast.expr, own: dict[str, list[ast.expr | None]], depth: int = 0) -> bool:
    """Whether an expression is something that the function made itself."""
    if depth > 8:
        return False
    match node:
        case ast.Name(id=name) if name in own:
            return all(value is None or _fresh(facts, value, own, depth + 1) for value in own[name])
        case ast.Name():
            return False
        case ast.Attribute(value=base) | ast.Subscript(value=base) | ast.Starred(value=base):
            return _fresh(facts, base, own, depth + 1)
        case ast.Call(func=ast.Attribute(value=base, attr=attr)) if attr in _VIEWS:
            return _fresh(facts, base, own, depth + 1) or _is_library(facts, base)
        case ast.Call(func=ast.Name(id="zip" | "enumerate" | "reversed" | "iter" | "next"), args=args):
            return all(
                _fresh(facts, argument, own, depth + 1) or _gives_batches(facts, argument)
                for argument in args
            )
        case ast.IfExp(body=first, orelse=second):
            return _fresh(facts, first, own, depth + 1) and _fresh(facts, second, own, depth + 1)
        case _:
            return True


def _is_library(facts: Facts, node: ast.expr) -> bool:
    return any(isinstance(value, Lib) for value in facts.values(node))


def _gives_batches(facts: Facts, node: ast.expr) -> bool:
    values = facts.values(node)
    return bool(values) and all(
        isinstance(value, Obj) and value.kind in {"loader", "dataset", "iter"} for value in values
    )
