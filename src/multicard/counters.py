"""What training counts on and on, from one epoch to the next: samples and tokens seen so far.

Each rank sees its own.  What is shown, saved, or asked for a learning rate is meant to be what all have seen, so that
is what is added.  Where ranks surely add as many, it is a product; else a sum over them.  A number by which a total is
divided stays this rank's own, as the total is.
"""

import ast
import re
from collections.abc import Iterator
from typing import NamedTuple

from multicard.carried import read_loop, walk_scope
from multicard.dealing import iterable
from multicard.edits import Edit, call_with, wrap
from multicard.facts import Facts, Training
from multicard.interpret import BATCH_SIZE
from multicard.meeting import no_meeting
from multicard.reach import callers, functions_of, given_to, passed_by, reached
from multicard.source import Module
from multicard.tree import nodes, word_of
from multicard.values import NOTHING, Const, Func, Obj, contained, data_of
from multicard.wraps import bare_of

Key = tuple[object, ...]
"""A counter: a name in its scope, an attribute by its name, an item by its key."""


class Counter(NamedTuple):
    """A statement that adds to a counter what a batch gives."""

    module: Module
    statement: ast.AugAssign
    alike: bool
    """Whether all ranks add as much."""

    def edits(self) -> tuple[Edit, ...]:
        """What makes it add what all ranks have seen."""
        added = self.statement.value
        if not self.alike:
            return call_with(self.module, added, "«all_reduce_sum»")
        return of_all_ranks(self.module, added)


def of_all_ranks(module: Module, node: ast.expr) -> tuple[Edit, Edit]:
    """A number that is alike on all ranks becomes that of all of them together."""
    loose = isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add)
    return wrap(module, node, "(" * loose, ")" * loose + " * «dist».get_world_size()")


def counters(facts: Facts) -> Iterator[Counter]:
    """The statements by which training counts on and on, where nothing is divided by the counter."""
    found: dict[Key, dict[ast.AugAssign, Counter]] = {}
    for training in facts.trainings:
        if training.loaders:
            for key, counter in _counted(facts, training):
                found.setdefault(key, {}).setdefault(counter.statement, counter)
    for key, some in found.items():
        all_of_them = all(node in some for _, node in _additions(facts, key))
        if all_of_them and not _divides(facts, key, set()):
            if all(on_every_rank(facts, item.module, item.statement, frozenset()) for item in some.values()):
                yield from some.values()


def on_every_rank(facts: Facts, module: Module, node: ast.AST, seen: frozenset[ast.AST]) -> bool:
    """Whether all ranks come to a place, and equally often, by every way that leads to it."""
    function = facts.function(module, node)
    if passed_by(facts, module, node) or any(
        outer not in facts.training_nodes and contained(facts.values(outer.iter), "loader")
        for outer in facts.ancestors(module, node)
        if isinstance(outer, ast.For)
    ):
        return False
    if function is None or function in seen:
        return no_meeting(facts, module, node) is None
    followed = function in _followed(facts)
    if followed and no_meeting(facts, module, node) is not None:
        return False
    ways = [*callers(facts).get(function, []), *_calls_of_models(facts, function)]
    return (followed or bool(ways)) and all(
        on_every_rank(facts, place, call, seen | {function}) for place, call in ways
    )


def _calls_of_models(facts: Facts, function: ast.AST) -> Iterator[tuple[Module, ast.expr]]:
    """The calls of models, wrapped or not, that run a function as their forward pass."""
    for event in facts.events("forward", dead=False):
        model = bare_of(event)
        if isinstance(event.node, ast.expr) and model is not None and model.cls is not None:
            passes = model.cls.names.get("forward", NOTHING)
            if any(isinstance(value, Func) and value.node is function for value in passes):
                yield event.module, event.node


def _followed(facts: Facts) -> frozenset[ast.AST]:
    """The functions in which anything happens that tells how they are reached."""
    found = facts.memo.get("functions with events")
    if found is None:
        ends = (event.frames[-1].node for event in facts.run.events if event.frames)
        found = facts.memo["functions with events"] = frozenset(node for node in ends if node is not None)
    assert isinstance(found, frozenset)
    return found


def _counted(facts: Facts, training: Training) -> Iterator[tuple[Key, Counter]]:
    module, loop = training.loop.module, training.loop.node
    if not isinstance(loop, ast.For | ast.While):
        return
    reading = read_loop(facts, module, loop) if isinstance(loop, ast.For) else None
    totals = {item.name for item in (*reading.carried, *reading.by_number)} if reading else set()
    for node in walk_scope(loop):
        if isinstance(node, ast.AugAssign) and module.text(_root(node.target)) not in totals:
            yield from _counter(facts, training, module, node)
    for function in reached(facts, loop):
        followed = facts.run.functions.get(function)
        if followed is not None:
            for node in nodes(function, ast.AugAssign):
                if not isinstance(node.target, ast.Name):
                    yield from _counter(facts, training, followed.module, node)


def _counter(
    facts: Facts, training: Training, module: Module, node: ast.AugAssign
) -> Iterator[tuple[Key, Counter]]:
    key = _key(facts, module, node.target)
    if key is None or not isinstance(node.op, ast.Add):
        return
    if not isinstance(node.value, ast.Constant) and is_batch_size(facts, training, node.value):
        yield key, Counter(module, node, alike=True)
        return
    data = data_of(facts.values(node.value))
    seen = data.loaders & set(training.loaders) and not data.models
    counts = data.tags & {"size", "count", "summed"} and not data.tags & {"all", "averaged"}
    if seen and counts:
        alike = (
            not data.tags & {"count", "extent", "selected", "summed"}
            and rows(facts, module, node.value)
            and all(_deals_alike(loader) for loader in training.loaders)
        )
        yield key, Counter(module, node, alike)


def is_batch_size(facts: Facts, training: Training, node: ast.expr) -> bool:
    """Whether an expression is the batch size of this rank's loader; a setting for all cards together is not."""
    if isinstance(node, ast.Attribute) and node.attr == "batch_size":
        if facts.only(facts.values(node.value), training.loaders):
            return True
    values = frozenset({Const(node.value)}) if isinstance(node, ast.Constant) else facts.values(node)
    given = {loader.args.get("batch_size", NOTHING) for loader in training.loaders}
    return (
        facts.batch == "per-card"
        and bool(values)
        and given == {values}
        and (isinstance(node, ast.Constant) or re.search(BATCH_SIZE, word_of(node)) is not None)
    )


def _deals_alike(loader: Obj) -> bool:
    """Whether the batches of all ranks have as many rows, whatever part of them is asked."""
    own = ("batch_sampler", "collate_fn")
    return not iterable(loader) and all(loader.args.get(name, NOTHING) <= {Const(None)} for name in own)


def rows(facts: Facts, module: Module, node: ast.expr, deep: int = 2) -> bool:
    """Whether a number is that of the rows of a tensor."""
    match node:
        case (
            ast.Call(func=ast.Name(id="len"))
            | ast.Call(func=ast.Attribute(attr="size"), args=[ast.Constant(value=0)])
            | ast.Subscript(value=ast.Attribute(attr="shape"), slice=ast.Constant(value=0))
            | ast.Subscript(value=ast.Call(func=ast.Attribute(attr="size")), slice=ast.Constant(value=0))
        ):
            return True
        case ast.Name(id=name) if deep:
            given = list(_given(facts.scope(module, node), name))
            return bool(given) and all(
                value is not None and rows(facts, module, value, deep - 1) for value in given
            )
        case _:
            return False


def _given(scope: ast.AST, name: str) -> Iterator[ast.expr | None]:
    """The values that a name gets; None for one that is not seen."""
    seen = set()
    for statement in nodes(scope, ast.Assign):
        for target in statement.targets:
            if isinstance(target, ast.Name) and target.id == name:
                seen.add(target)
                yield statement.value
    yield from (
        None
        for item in nodes(scope, ast.Name)
        if item.id == name and isinstance(item.ctx, ast.Store) and item not in seen
    )
    if isinstance(scope, ast.FunctionDef | ast.AsyncFunctionDef):
        yield from (None for item in nodes(scope.args, ast.arg) if item.arg == name)


# ------------------------------------------------------------------------------------- who looks at a counter


def _root(target: ast.expr) -> ast.expr:
    while isinstance(target, ast.Subscript):
        target = target.value
    return target


def _key(facts: Facts, module: Module, target: ast.expr) -> Key | None:
    match target:
        case ast.Name(id=name):
            return ("name", module, _home(facts, module, target), name)
        case ast.Attribute(attr=attr):
            return ("attribute", attr)
        case ast.Subscript(slice=ast.Constant(value=str(item))):
            return ("item", item)
        case _:
            return None


def _home(facts: Facts, module: Module, name: ast.Name) -> ast.AST:
    """The function that a name belongs to, or the module."""
    function = facts.function(module, name)
    while function is not None:
        outside = any(name.id in item.names for item in nodes(function, ast.Global))
        inherited = any(name.id in item.names for item in nodes(function, ast.Nonlocal))
        if outside:
            break
        if not inherited:
            return function
        function = facts.function(module, function)
    return module.tree


def _is(node: ast.AST, key: Key) -> bool:
    match key, node:
        case ("name", _, _, name), ast.Name(id=word):
            return name == word
        case ("attribute", attr), ast.Attribute(attr=word):
            return attr == word
        case ("item", item), ast.Subscript(slice=ast.Constant(value=word)):
            return item == word
        case _:
            return False


def _places(facts: Facts, key: Key) -> Iterator[tuple[Module, ast.AST]]:
    """Where a counter may stand."""
    match key:
        case ("name", Module() as module, ast.AST() as home, _):
            yield module, home
        case _:
            yield from ((module, module.tree) for module in facts.modules)


_KINDS: dict[object, type[ast.expr]] = {
    "name": ast.Name,
    "attribute": ast.Attribute,
    "item": ast.Subscript,
}


def _additions(facts: Facts, key: Key) -> Iterator[tuple[Module, ast.AugAssign]]:
    for module, place in _places(facts, key):
        for node in nodes(place, ast.AugAssign):
            if _is(node.target, key):
                yield module, node


def _divides(facts: Facts, key: Key, seen: set[Key]) -> bool:
    """Whether anything is divided by a counter, or found or left out by it, or nobody knows."""
    if key in seen:
        return False
    seen.add(key)
    return any(
        _used_up(facts, module, node, seen)
        for module, place in _places(facts, key)
        for node in nodes(place, _KINDS[key[0]])
        if _is(node, key) and isinstance(getattr(node, "ctx", None), ast.Load)
    )


_SAME = frozenset({"abs", "float", "int", "max", "min", "round", "sum"})
_TAKING = frozenset(
    {"arange", "islice", "linspace", "narrow", "randint", "randperm", "range", "seek", "select", "split"}
)


def _used_up(facts: Facts, module: Module, node: ast.AST, seen: set[Key]) -> bool:
    inner = node
    for outer in facts.ancestors(module, node):
        match outer:
            case ast.BinOp(left=ast.Constant(value=str()), op=ast.Mod()) | ast.JoinedStr() | ast.Compare():
                return False
            case ast.BinOp(right=right, op=ast.Div() | ast.FloorDiv() | ast.Mod() | ast.Pow()) if (
                right is inner
            ):
                return True
            case ast.Subscript(slice=part) if part is inner:
                return True
            case ast.Call(func=function) if function is not inner:
                name = word_of(function)
                if name in _TAKING:
                    return True
                if name not in _SAME:
                    return _handed(facts, outer, inner, seen)
            case ast.Return():
                return _given_back(facts, module, outer, node, seen)
            case ast.Yield() | ast.Lambda():
                return True
            case ast.AugAssign(op=ast.Add() | ast.Sub(), target=target):
                return _passed_to(facts, module, [target], seen)
            case ast.AugAssign():
                return True
            case ast.Assign(targets=targets):
                return _passed_to(facts, module, targets, seen)
            case ast.NamedExpr(target=target) if _passed_to(facts, module, [target], seen):
                return True
            case ast.stmt():
                return False
            case _:
                pass
        inner = outer
    return False


def _passed_to(facts: Facts, module: Module, targets: list[ast.expr], seen: set[Key]) -> bool:
    """Whether what a counter is given on to is used up."""
    for target in targets:
        for part in (target, *(target.elts if isinstance(target, ast.Tuple) else ())):
            key = _key(facts, module, part)
            if key is not None and key[0] != "item" and _divides(facts, key, seen):
                return True
    return False


def _given_back(facts: Facts, module: Module, statement: ast.Return, node: ast.AST, seen: set[Key]) -> bool:
    """Whether a caller uses up what a function gives back."""
    function = facts.function(module, statement)
    value = statement.value
    place = value.elts.index(node) if isinstance(value, ast.Tuple) and node in value.elts else None
    if function is None or (place is None and isinstance(value, ast.Tuple | ast.List | ast.Dict)):
        return True
    return any(_taken_back(facts, home, call, place, seen) for home, call in callers(facts).get(function, []))


def _taken_back(facts: Facts, module: Module, call: ast.expr, place: int | None, seen: set[Key]) -> bool:
    match facts.parents(module)[call]:
        case ast.Expr():
            return False
        case ast.Assign(targets=[ast.Tuple(elts=parts)]) if place is not None and place < len(parts):
            starred = any(isinstance(part, ast.Starred) for part in parts)
            return starred or _passed_to(facts, module, [parts[place]], seen)
        case _ if place is None and isinstance(call, ast.Call):
            known = ("call", call) in seen
            seen.add(("call", call))
            return not known and _used_up(facts, module, call, seen)
        case _:
            return True


def _handed(facts: Facts, call: ast.Call, argument: ast.AST, seen: set[Key]) -> bool:
    """Whether a function of the program uses up what it is given."""
    for function in functions_of(facts, call):
        followed = facts.run.functions.get(function)
        if followed is None:
            return True
        value = argument.value if isinstance(argument, ast.keyword) else argument
        names = [name for name, given in given_to(function, call) if given is value]
        if any(_divides(facts, ("name", followed.module, function, name), seen) for name in names):
            return True
    return False
