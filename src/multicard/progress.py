"""How far an epoch has come, told in samples: the number of the batch times the samples in one.

Each rank counts its own batches.  `[1920/4000 (97%)]` is what rank 0 has seen of its share; on all ranks together as
many samples are done as there are ranks times that.  Where the product is only told (printed, logged, written as the
step of a curve), it is multiplied; where it chooses samples or is divided by, it stays this rank's.
"""

import ast
from collections.abc import Iterator

from multicard.carried import batch_number
from multicard.counters import is_batch_size, rows
from multicard.dealing import measured_by
from multicard.facts import Facts, FunctionNode, Training
from multicard.reach import callers, functions_of, given_to
from multicard.source import Module
from multicard.tree import nodes, walk, word_of
from multicard.values import Const, Obj, data_of

_CALLED = 2
"""Calls through which the number of a batch is followed."""


def told_samples(facts: Facts) -> Iterator[tuple[Module, ast.expr]]:
    """What says how many samples this rank has seen, where it is only told: products, and steps of a bar."""
    found: dict[ast.BinOp, Module] = {}
    steps: dict[ast.expr, Module] = {}
    for training in facts.trainings:
        loop = training.loop
        if isinstance(loop.node, ast.For) and training.loaders and all(map(facts.dealt, training.loaders)):
            number = batch_number(facts, loop.module, loop.node)
            region = _region(facts, loop.module, loop.node, number)
            samples = _Samples(facts, training, number)
            found |= dict(samples.in_code(loop.module, region))
            steps |= dict.fromkeys(samples.steps_of_bars(loop.module, loop.node), loop.module)
    yield from ((module, step) for step, module in steps.items())
    for node, module in found.items():
        if _is_told(facts, module, node, set()):
            yield module, node


def _region(facts: Facts, module: Module, loop: ast.For, number: str) -> ast.AST:
    """Where the number of the batch may be read: after the loop too, if no other loop counts by this name."""
    scope = facts.scope(module, loop)
    counted = [
        other
        for other in nodes(scope, ast.For)
        if any(isinstance(part, ast.Name) and part.id == number for part in walk(other.target))
    ]
    return loop if len(counted) > 1 else scope


class _Samples:
    """Tells which expressions are numbers of samples, from the name that counts the batches."""

    def __init__(self, facts: Facts, training: Training, number: str, deep: int = _CALLED) -> None:
        self.facts = facts
        self.training = training
        self.name = number
        self.deep = deep

    def in_code(self, module: Module, region: ast.AST) -> Iterator[tuple[ast.BinOp, Module]]:
        """The outermost such expressions of some code, and of the functions to which it gives the number."""
        if not self.name:
            return
        inside = set[ast.AST]()
        for node in nodes(region, ast.BinOp):
            if node not in inside and self.counts(module, node):
                inside.update(walk(node))
                yield node, module
        for call in nodes(region, ast.Call) if self.deep else ():
            for function, name in self._given(call):
                followed = self.facts.run.functions.get(function)
                if followed is not None and len(callers(self.facts).get(function, ())) == 1:
                    further = _Samples(self.facts, self.training, name, self.deep - 1)
                    yield from further.in_code(followed.module, function)

    def steps_of_bars(self, module: Module, loop: ast.For) -> Iterator[ast.expr]:
        """The numbers of samples by which a bar over all samples grows: `bar.update(len(x))`."""
        for call in nodes(loop, ast.Call):
            match call:
                case ast.Call(func=ast.Attribute(value=bar, attr="update"), args=[step]):
                    made = [value for value in self.facts.values(bar) if isinstance(value, Obj)]
                    if made and all(map(self._is_over_all, made)):
                        if self.is_size(module, step, constant=False):
                            yield step
                case _:
                    pass

    def _is_over_all(self, bar: Obj) -> bool:
        """Whether a bar ends at a number that is not this rank's share of one."""
        if bar.name != "tqdm" or bar.items or "total" not in bar.args or bar.site is None:
            return False
        return not any(self._asks_for_batches(call) for call in nodes(bar.site.node, ast.Call))

    def _asks_for_batches(self, call: ast.Call) -> bool:
        """Whether a call gives the number of batches of this rank."""
        asked = measured_by(call)
        return asked is not None and self.facts.only(self.facts.values(asked), self.training.loaders)

    def _given(self, call: ast.Call) -> Iterator[tuple[FunctionNode, str]]:
        """The functions to which a call gives the number of the batch, and what they call it."""
        for function in functions_of(self.facts, call):
            yield from ((function, name) for name, value in given_to(function, call) if self.is_number(value))

    def counts(self, module: Module, node: ast.expr) -> bool:
        """Whether an expression is a number of samples seen in this epoch, or since the start."""
        match node:
            case ast.BinOp(op=ast.Mult()):
                factors = list(_factors(node))
                numbers = [factor for factor in factors if self.is_number(factor)]
                sizes = [factor for factor in factors if self.is_size(module, factor)]
                others = [factor for factor in factors if not isinstance(factor, ast.Constant)]
                return len(numbers) == 1 and len(sizes) == 1 and set(others) <= {*numbers, *sizes}
            case ast.BinOp(op=ast.Add(), left=left, right=right):
                parts = [self.counts(module, part) for part in (left, right)]
                return all(parts) or (
                    any(parts) and self.is_size(module, right if parts[0] else left, constant=False)
                )
            case _:
                return False

    def is_number(self, node: ast.expr) -> bool:
        """Whether an expression is the number of the batch, from 0 or from 1, in this epoch or since the start."""
        match node:
            case ast.Name(id=name):
                return name == self.name
            case ast.BinOp(op=ast.Add() | ast.Sub(), left=left, right=ast.Constant()):
                return self.is_number(left)
            case ast.BinOp(op=ast.Add(), left=left, right=right):
                return (self.is_number(left) and self._is_epochs(right)) or (
                    self.is_number(right) and (isinstance(left, ast.Constant) or self._is_epochs(left))
                )
            case _:
                return False

    def _is_epochs(self, node: ast.expr) -> bool:
        """Whether an expression is the number of batches of the epochs before."""
        return isinstance(node, ast.BinOp) and any(
            isinstance(factor, ast.Call) and self._asks_for_batches(factor) for factor in _factors(node)
        )

    def is_size(self, module: Module, node: ast.expr, *, constant: bool = True) -> bool:
        """Whether an expression is the number of samples in a batch of this rank."""
        data = data_of(self.facts.values(node))
        if data.loaders & set(self.training.loaders) and not data.models and "size" in data.tags:
            return rows(self.facts, module, node)
        if isinstance(node, ast.Constant) and not constant:
            return False
        return is_batch_size(self.facts, self.training, node)


def _factors(node: ast.expr) -> Iterator[ast.expr]:
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult):
        yield from _factors(node.left)
        yield from _factors(node.right)
    else:
        yield node


# --------------------------------------------------------------------------------------- what becomes of it

_KEEPING = frozenset({"abs", "float", "int", "max", "min", "round", "str"})
_TELLING = frozenset(
    {
        "add_scalar",
        "add_scalars",
        "debug",
        "format",
        "info",
        "log",
        "log_scalar",
        "log_value",
        "plot",
        "print",
        "set_description",
        "set_postfix",
        "set_postfix_str",
        "warning",
        "write",
    }
)


def _is_told(facts: Facts, module: Module, node: ast.expr, seen: set[tuple[ast.AST, str]]) -> bool:
    """Whether people read a number, and nothing else does."""
    inner: ast.AST = node
    for outer in facts.ancestors(module, node):
        match outer:
            case ast.JoinedStr() | ast.BinOp(left=ast.Constant(value=str()), op=ast.Mod()):
                return True
            case ast.BinOp(left=left, op=ast.Mod()) if left is not inner:
                texts = facts.values(left)
                return bool(texts) and all(isinstance(v, Const) and isinstance(v.value, str) for v in texts)
            case ast.BinOp(op=ast.Add() | ast.Sub() | ast.Mult()):
                pass
            case ast.BinOp(left=left, op=ast.Div() | ast.FloorDiv()) if left is inner:
                pass
            case ast.Call(func=function) if function is not inner:
                word = word_of(function)
                if word == "append" and isinstance(function, ast.Attribute):
                    return _is_drawn(facts, module, function.value)
                if word in _TELLING:
                    return True
                if word not in _KEEPING:
                    return False
            case ast.Assign(targets=[ast.Name() as target], value=value) if value is inner:
                return _name_is_told(facts, module, target, seen)
            case ast.Tuple() if isinstance(statement := facts.parents(module)[outer], ast.Assign):
                name = _target_of(statement, inner)
                return name is not None and _name_is_told(facts, module, name, seen)
            case ast.FormattedValue() | ast.keyword() | ast.Tuple() | ast.Dict():
                pass
            case _:
                return False
        inner = outer
    return False


def _target_of(statement: ast.Assign, value: ast.AST) -> ast.Name | None:
    """The name that gets one of several values: `loss, current = loss.item(), (batch + 1) * len(X)`."""
    match statement:
        case ast.Assign(targets=[ast.Tuple(elts=names)], value=ast.Tuple(elts=parts)):
            pairs = zip(names, parts, strict=False)
            return next((n for n, part in pairs if part is value and isinstance(n, ast.Name)), None)
        case _:
            return None


def _name_is_told(facts: Facts, module: Module, target: ast.Name, seen: set[tuple[ast.AST, str]]) -> bool:
    """Whether wherever a name is read, people alone read it."""
    scope = facts.scope(module, target)
    if (scope, target.id) in seen:
        return True
    seen.add((scope, target.id))
    declared: tuple[ast.Global | ast.Nonlocal, ...] = (*nodes(scope, ast.Global), *nodes(scope, ast.Nonlocal))
    if any(target.id in item.names for item in declared):
        return False
    return all(
        _is_told(facts, module, use, seen)
        for use in nodes(scope, ast.Name)
        if use.id == target.id and isinstance(use.ctx, ast.Load)
    )


def _is_drawn(facts: Facts, module: Module, held: ast.expr) -> bool:
    """Whether a list is only filled, and given to functions of libraries: the axis of a picture."""
    word = word_of(held)
    paths: tuple[ast.Name | ast.Attribute, ...]
    paths = (*nodes(module.tree, ast.Name), *nodes(module.tree, ast.Attribute))
    uses = [use for use in paths if word_of(use) == word and isinstance(use.ctx, ast.Load)]
    parents = facts.parents(module)
    return bool(word) and all(
        (isinstance(parent, ast.Attribute) and parent.attr == "append")
        or (isinstance(parent, ast.Call) and parent.func is not use and not functions_of(facts, parent))
        for use in uses
        for parent in [parents[use]]
    )
