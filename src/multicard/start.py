"""Where a script starts its processes, and so which names exist from there on.

`local_rank, rank, world_size = setup_ddp()` must run before the first device is used, file written or line printed,
also by a local module while it is imported; and it must not run when somebody only imports the script.
"""

import ast
from typing import NamedTuple

from multicard.facts import Facts
from multicard.source import Module
from multicard.tree import walk

NAMES = ("local_rank", "rank", "world_size")
_ACTS = frozenset({"call", "construct", "load", "forward", "iterate", "data_call", "method", "next"})


class Start(NamedTuple):
    """The statement before which the processes start, and where they end."""

    module: Module
    before: ast.stmt
    inside_guard: bool
    last: ast.stmt
    """The statement after which the process group is destroyed."""
    names: bool
    """Whether `local_rank, rank, world_size` are free to be used as names of the entry module."""


def start(facts: Facts) -> Start:
    """Where the entry script starts and ends; found once."""
    found = facts.memo.get("start")
    if found is None:
        found = facts.memo["start"] = _start(facts)
    assert isinstance(found, Start)
    return found


def _start(facts: Facts) -> Start:
    module = facts.program.entry
    names = not facts.bound_names(module) & set(NAMES)
    active = _active(facts, module)
    for statement in module.tree.body:
        if _is_guard(statement):
            assert isinstance(statement, ast.If)
            return Start(module, statement.body[0], inside_guard=True, last=statement.body[-1], names=names)
        if statement in active or not _inert(statement):
            return Start(module, statement, inside_guard=False, last=_last(module), names=names)
    return Start(module, module.tree.body[-1], inside_guard=False, last=_last(module), names=names)


def _last(module: Module) -> ast.stmt:
    last = module.tree.body[-1]
    if _is_guard(last):
        assert isinstance(last, ast.If)
        return last.body[-1]
    return last


def _is_guard(statement: ast.stmt) -> bool:
    return (
        isinstance(statement, ast.If)
        and isinstance(statement.test, ast.Compare)
        and isinstance(statement.test.left, ast.Name)
        and statement.test.left.id == "__name__"
    )


def _active(facts: Facts, module: Module) -> set[ast.stmt]:
    """Import statements of the entry whose modules do something that must come after the start."""
    busy = {
        frame.module
        for event in facts.run.events
        if event.kind in _ACTS and not event.dead and not event.calls[:-1]
        for frame in event.frames[-1:]
        if frame.node is None and frame.module is not module and _matters(event.kind, event.name)
    }
    found: set[ast.stmt] = set()
    for statement in module.tree.body:
        if isinstance(statement, ast.Import):
            names = [alias.name for alias in statement.names]
        elif isinstance(statement, ast.ImportFrom):
            names = [
                statement.module or "",
                *(f"{statement.module}.{alias.name}" for alias in statement.names),
            ]
        else:
            continue
        if any(facts.program.find(name) in busy for name in names if name):
            found.add(statement)
    return found


def _matters(kind: str, name: str) -> bool:
    if kind == "call":
        return name in {
            "builtins.print",
            "builtins.open",
            "torch.cuda.set_device",
            "torch.save",
            "os.makedirs",
            "os.mkdir",
        }
    return kind in {"data_call", "forward", "iterate", "method", "load"}


def _inert(statement: ast.stmt) -> bool:
    """Whether a top-level statement may run before the processes start."""
    match statement:
        case (
            ast.Import()
            | ast.ImportFrom()
            | ast.FunctionDef()
            | ast.AsyncFunctionDef()
            | ast.ClassDef()
            | ast.Pass()
        ):
            return True
        case ast.Expr(value=ast.Constant()):
            return True
        case ast.Expr(
            value=ast.Call(
                func=ast.Attribute(value=ast.Name(id="warnings" | "matplotlib" | "mpl" | "sns" | "plt"))
            )
        ):
            return True
        case ast.Expr(
            value=ast.Call(func=ast.Attribute(value=ast.Attribute(value=ast.Name(id="sys"), attr="path")))
        ):
            return True
        case ast.Assign(
            targets=[ast.Subscript(value=ast.Attribute(value=ast.Name(id="os"), attr="environ"))]
        ):
            return True
        case ast.Assign(targets=targets, value=value):
            return _constant(value) and all(isinstance(target, ast.Name | ast.Tuple) for target in targets)
        case ast.AnnAssign(value=ast.expr() as value):
            return _constant(value)
        case ast.Try():
            return all(_inert(inner) for inner in statement.body) and all(
                _inert(inner) for handler in statement.handlers for inner in handler.body
            )
        case _:
            return False


_CONSTANT = (ast.Constant, ast.List, ast.Tuple, ast.Dict, ast.Set, ast.UnaryOp, ast.BinOp, ast.Name)


def _constant(value: ast.expr) -> bool:
    return all(isinstance(node, _CONSTANT) for node in walk(value))
