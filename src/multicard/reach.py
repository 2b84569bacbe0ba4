"""How code is reached: what happens under a call, who calls a function, and which rank may come there.

A guard, a barrier or a broadcast is right or wrong by all the ways that lead to it, not by the lines round it.
"""

import ast
import re
from collections.abc import Collection, Iterable, Iterator, Sequence

from multicard.effects import calls_in, calls_named, words
from multicard.facts import Facts, FunctionNode
from multicard.interpret import Event
from multicard.source import Module
from multicard.tree import held, nodes, walk
from multicard.values import Class, Data, Func, Obj, Values, contained

_RANK = re.compile(
    r"\b(\w*rank|is_main_process|is_master|is_main|is_rank_?(0|zero)|main_process|get_rank|master_process)\b",
    re.IGNORECASE,
)

_TELLING = frozenset({ast.Name, ast.Attribute, ast.Call, ast.Subscript})
"""Expressions of which it is known what they may be."""
_EXISTS = frozenset({"exists", "isfile", "isdir", "is_file", "is_dir", "lexists", "getsize"})


def guarded(facts: Facts, module: Module, node: ast.AST) -> bool:
    """Whether the user keeps a node to one rank already."""
    inner = node
    for outer in facts.ancestors(module, node):
        match outer:
            case ast.If(test=test, body=body) if inner in body and _RANK.search(module.text(test)):
                return True
            case ast.IfExp(test=test, body=body) if inner is body and _RANK.search(module.text(test)):
                return True
            case ast.With(items=items) if inner not in items and any(
                "main_process_first" in module.text(item.context_expr) for item in items
            ):
                return True
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.Lambda():
                return False
            case _:
                inner = outer
    return False


def under(facts: Facts) -> dict[ast.AST, list[Event]]:
    """The events at a call and everywhere below it."""
    found = facts.memo.get("under")
    if found is None:
        index: dict[ast.AST, list[Event]] = {}
        for event in facts.run.events:
            for node in {event.node, *event.calls}:
                index.setdefault(node, []).append(event)
        facts.memo["under"] = found = index
    assert isinstance(found, dict)
    return found


def below(facts: Facts, *roots: ast.AST) -> Iterator[Event]:
    """The events at some nodes, inside them, and in what they call."""
    index = under(facts)
    seen: set[int] = set()
    for root in roots:
        for node in walk(root):
            for event in index.get(node, ()):
                if event.order not in seen:
                    seen.add(event.order)
                    yield event


def reached(facts: Facts, *roots: ast.AST) -> frozenset[FunctionNode]:
    """The functions of the program that some nodes may call, at any distance."""
    found: set[FunctionNode] = set()
    waiting = list(roots)
    while waiting:
        for node in nodes(waiting.pop(), ast.Call):
            for function in functions_of(facts, node):
                if function not in found:
                    found.add(function)
                    waiting.append(function)
    return frozenset(found)


def functions_of(facts: Facts, call: ast.Call) -> list[FunctionNode]:
    """The functions of the program that a call may run, constructors included."""
    found: list[FunctionNode] = []
    for value in facts.values(call.func):
        match value:
            case Func(node=node):
                found.append(node)
            case Obj() if (cls := (value.inner or value).cls) is not None:
                wanted = ("forward",) if value.kind in {"model", "wrapped"} else ("__call__",)
                found += _methods(cls.names, wanted)
            case Class(names=names):
                found += _methods(names, ("__init__",))
            case _:
                pass
    return found


def _methods(names: dict[str, Values], wanted: Sequence[str]) -> list[FunctionNode]:
    return [value.node for name in wanted for value in names.get(name, ()) if isinstance(value, Func)]


def given_to(function: FunctionNode, call: ast.Call) -> Iterator[tuple[str, ast.expr]]:
    """What a call gives to the parameters of a function, by name; the object that a method is of is not given."""
    names = [item.arg for item in (*function.args.posonlyargs, *function.args.args)]
    if names[:1] in (["self"], ["cls"]):
        names = names[1:]
    yield from zip(names, call.args, strict=False)
    yield from ((item.arg, item.value) for item in call.keywords if item.arg)


def callers(facts: Facts) -> dict[ast.AST, list[tuple[Module, ast.expr]]]:
    """The calls that may run each function of the program, and where else it is named: handed on, it may run too."""
    found = facts.memo.get("callers")
    if found is None:
        index: dict[ast.AST, list[tuple[Module, ast.expr]]] = {}
        functions = {getattr(function, "name", "") for function in facts.run.functions}
        for module in facts.modules:
            called = set()
            for call in calls_named(facts, module, _may_be_local):
                called.add(call.func)
                for function in functions_of(facts, call):
                    index.setdefault(function, []).append((module, call))
            for word, uses in words(facts, module).items():
                for node in uses if word in functions else ():
                    if isinstance(node.ctx, ast.Load) and node not in called:
                        for value in facts.values(node):
                            if isinstance(value, Func) and getattr(value.node, "name", "") == word:
                                index.setdefault(value.node, []).append((module, node))
        facts.memo["callers"] = found = index
    assert isinstance(found, dict)
    return found


def _may_be_local(name: str) -> bool:
    """Whether a call by this name may run a function of the program: what `functions_of` looks at."""
    return name.startswith("local:") or name == "?"


def training_begins(facts: Facts) -> int:
    """The order of the first event of training: before it all ranks must draw alike."""
    return min((event.order for event in facts.backwards), default=len(facts.run.events))


def in_batches(facts: Facts, event: Event) -> str:
    """Why the ranks may come here a different number of times, or nothing."""
    for loop in event.loops:
        if loop.loaders and (loop.node, loop.calls) not in facts.training_frames:
            return "it stands in a loop over batches, of which ranks may have different numbers"
    if event.tainted and facts.trains(event):
        return "it stands in a branch that each rank takes by its own batch"
    return ""


def per_sample(facts: Facts, module: Module, node: ast.AST) -> bool:
    """Whether code belongs to a data set's access to one sample, which runs in worker processes."""
    names = {"__getitem__", "__iter__", "__getitems__"}
    inner: ast.AST = node
    for outer in facts.ancestors(module, node):
        if isinstance(outer, ast.ClassDef) and isinstance(inner, ast.FunctionDef):
            return inner.name in names or (inner.name in _called_per_sample(outer))
        inner = outer
    return False


def _called_per_sample(cls: ast.ClassDef) -> frozenset[str]:
    """Methods that `__getitem__` calls on self."""
    for item in cls.body:
        if isinstance(item, ast.FunctionDef) and item.name == "__getitem__":
            return frozenset(
                node.func.attr
                for node in walk(item)
                if isinstance(node, ast.Call)
                and isinstance(node.func, ast.Attribute)
                and isinstance(node.func.value, ast.Name)
                and node.func.value.id == "self"
            )
    return frozenset()


def takes_batches(facts: Facts, event: Event) -> bool:
    """Whether an event takes batches from a loader itself, not from what was computed of some."""
    match event.kind, event.node:
        case "next", _:
            return True
        case "iterate", ast.For(iter=over):
            return bool(contained(facts.values(over), "loader"))
        case "iterate", ast.expr() as over:
            return bool(contained(facts.values(over), "loader"))
        case _:
            return False


def is_wrapped(subject: object) -> bool:
    """Whether a value is a model inside DDP."""
    return isinstance(subject, Obj) and subject.kind == "wrapped"


def differs(facts: Facts, test: ast.expr) -> bool:
    """Whether a condition is seen to depend on this rank's data, noise or clock."""
    alike = {
        inner for part in nodes(test, ast.Compare) if asks_whether_given(facts, part) for inner in walk(part)
    }
    return any(
        isinstance(value, Data) and value.local
        for part in telling(test)
        if part not in alike
        for value in facts.values(part)
    )


def asks_whether_given(facts: Facts, test: ast.Compare) -> bool:
    """Whether a condition asks if an optional argument was given: which one is, the call says, not its data."""
    match test:
        case ast.Compare(
            left=ast.Name(id=name), ops=[ast.Is() | ast.IsNot()], comparators=[ast.Constant(value=None)]
        ):
            module = next((module for module in facts.modules if test in facts.parents(module)), None)
            function = facts.function(module, test) if module is not None else None
        case _:
            return False
    if function is None:
        return False
    spec = function.args
    optional = spec.args[len(spec.args) - len(spec.defaults) :] + spec.kwonlyargs
    kept = not any(item.id == name and isinstance(item.ctx, ast.Store) for item in nodes(function, ast.Name))
    return kept and any(item.arg == name for item in optional)


def telling(test: ast.expr) -> list[ast.AST]:
    """The parts of a condition that may tell ranks apart: of what kind a value is, they all say alike."""
    parts = [part for part in walk(test) if part.__class__ in _TELLING]
    alike = {inner for part in parts if asks_for_kind(part) for inner in walk(part)}
    return [part for part in parts if part not in alike] if alike else parts


def asks_for_kind(node: ast.AST) -> bool:
    """Whether a call asks what kind of value it is given."""
    match node:
        case ast.Call(func=ast.Name(id="isinstance" | "issubclass" | "hasattr" | "callable")):
            return True
        case _:
            return False


def left_out(facts: Facts, module: Module, branch: ast.If) -> Iterator[ast.stmt]:
    """The statements of a function or of a loop's turn that are not reached where a branch leaves it."""
    leaves = [part for statement in branch.body for part in walk(statement)]
    returns = any(isinstance(part, ast.Return) for part in leaves)
    if not returns and not any(isinstance(part, ast.Continue | ast.Break) for part in branch.body):
        return
    ends = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef) + (() if returns else (ast.For, ast.While))
    here: ast.stmt = branch
    while not isinstance(here, ends):
        block = facts.block(module, here)
        yield from block[block.index(here) + 1 :]
        parent = facts.parents(module)[here]
        if not isinstance(parent, ast.stmt):
            return
        here = parent


def passed_by(facts: Facts, module: Module, node: ast.AST) -> bool:
    """Whether ranks may come to a place or not, as their own data say."""
    for branch in nodes(facts.scope(module, node), ast.If):
        beyond = (*branch.body, *branch.orelse, *left_out(facts, module, branch))
        if any(node in held(statement) for statement in beyond) and differs(facts, branch.test):
            return True
    return False


def only_in(facts: Facts, module: Module, node: ast.AST, calls: Iterable[ast.AST]) -> bool:
    """Whether a node runs only under some calls: its function, and those that call it, are reached no other way."""
    wanted = set(calls)
    if not wanted:
        return False
    return _only_in(facts, module, node, wanted, set())


def _only_in(facts: Facts, module: Module, node: ast.AST, wanted: set[ast.AST], seen: set[ast.AST]) -> bool:
    if any(outer in wanted for outer in (node, *facts.ancestors(module, node))):
        return True
    function = facts.function(module, node)
    if function is None or function in seen:
        return function is not None
    ways = callers(facts).get(function, [])
    return bool(ways) and all(_only_in(facts, place, call, wanted, seen | {function}) for place, call in ways)


def tests_existence(facts: Facts, test: ast.expr) -> list[ast.Call]:
    """The calls in a test that ask whether a file is there, in functions of the program too."""
    memo = facts.memo.setdefault("tests of existence", {})
    assert isinstance(memo, dict)
    found = memo.get(test)
    if found is None:
        found = memo[test] = [
            node for node in walk(test) if isinstance(node, ast.Call) and _asks(facts, node)
        ]
    assert isinstance(found, list)
    return found


def _asks(facts: Facts, call: ast.Call) -> bool:
    """Whether a call asks whether a file is there."""
    name = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
    return name in _EXISTS or any(
        isinstance(inner.func, ast.Attribute) and inner.func.attr in _EXISTS
        for function in functions_of(facts, call)
        for inner in nodes(function, ast.Call)
    )


def homes(facts: Facts) -> dict[ast.AST, Module]:
    """The module of each call."""
    found = facts.memo.get("homes")
    if found is None:
        found = {call: module for module in facts.modules for call in calls_in(facts, module)}
        facts.memo["homes"] = found
    assert isinstance(found, dict)
    return found


def happens_within(facts: Facts, event: Event, statements: Collection[ast.AST]) -> bool:
    """Whether an event happens inside one of these statements, or in what they call."""
    home = homes(facts)
    chain = [(event.module, event.node), *((home[call], call) for call in event.calls if call in home)]
    return any(
        outer in statements for module, node in chain for outer in (node, *facts.ancestors(module, node))
    )
