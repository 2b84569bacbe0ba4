"""Which code rank 0 runs alone, and which may be left to it without harm.

A statement under `if rank == 0:` must hide no collective (the other ranks never come), bind no name that later code
needs, change no object that lives on, and draw no random number before the ranks part.  Every rule that puts
something under a guard asks here.
"""

import ast
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from multicard.edits import Edit, Side, guard, insert_before, wrap
from multicard.effects import Effect, calls_in, names_of, running_nodes
from multicard.facts import Facts, FunctionNode
from multicard.interpret import Event, Loop
from multicard.messages import Text
from multicard.plan import Finding, Kind
from multicard.source import Module, Span
from multicard.start import start
from multicard.tree import held, walk
from multicard.values import Class, Const, Func, Lib, Obj, Values, contained, data_of

MUTATORS = frozenset({
    "append", "appendleft", "extend", "insert", "add", "update", "pop", "popleft", "popitem", "remove", "clear",
    "discard", "setdefault", "sort", "reverse", "put", "load_state_dict", "requires_grad_", "fill_", "zero_", "copy_",
})  # fmt: skip
_VIEWS = frozenset({
    "view", "reshape", "numpy", "detach", "squeeze", "unsqueeze", "permute", "transpose", "cpu", "to", "flatten", "get",
    "items", "values", "t",
})  # fmt: skip
_RANK = re.compile(
    r"\b(\w*rank|is_main_process|is_master|is_main|is_rank_?(0|zero)|main_process|get_rank|master_process)\b",
    re.IGNORECASE,
)


# --- what runs where ----------------------------------------------------------------------------------------------


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
        for node in walk(waiting.pop()):
            if isinstance(node, ast.Call):
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
            case Obj(cls=cls) if cls is not None:
                wanted = ("forward",) if value.kind in {"model", "wrapped"} else ("__call__",)
                found += _methods(cls.names, wanted)
            case Class(names=names):
                found += _methods(names, ("__init__",))
            case _:
                pass
    return found


def _methods(names: dict[str, Values], wanted: Sequence[str]) -> list[FunctionNode]:
    return [value.node for name in wanted for value in names.get(name, ()) if isinstance(value, Func)]


def callers(facts: Facts) -> dict[ast.AST, list[tuple[Module, ast.expr]]]:
    """The calls that may run each function of the program, and where else it is named: handed on, it may run too."""
    found = facts.memo.get("callers")
    if found is None:
        index: dict[ast.AST, list[tuple[Module, ast.expr]]] = {}
        for module in facts.modules:
            called = set()
            for call in calls_in(facts, module):
                called.add(call.func)
                for function in functions_of(facts, call):
                    index.setdefault(function, []).append((module, call))
            for node in running_nodes(facts, module):
                if (
                    isinstance(node, ast.Name | ast.Attribute)
                    and isinstance(node.ctx, ast.Load)
                    and node not in called
                ):
                    name = node.id if isinstance(node, ast.Name) else node.attr
                    for value in facts.values(node):
                        if isinstance(value, Func) and getattr(value.node, "name", "") == name:
                            index.setdefault(value.node, []).append((module, node))
        facts.memo["callers"] = found = index
    assert isinstance(found, dict)
    return found


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


_COLLECTIVE = re.compile(
    r"«(broadcast_value|all_reduce_\w+|gather_in_order|sync_buffers|any_rank|average_gradients|broadcast_model"
    r"|all_gather_with_grad|scale_by_count)»|«dist»\.barrier"
)


def meets(facts: Facts, *roots: ast.AST) -> bool:
    """Whether another rule makes ranks meet inside some nodes, or in what they call."""
    places = _meetings(facts)
    if not places:
        return False
    owners = _owners(facts)
    regions = [*roots, *reached(facts, *roots)]
    return any(
        module is owners.get(region, module)
        and module.span(region).start <= offset <= module.span(region).end
        for region in regions
        for module, offset in places
        if region in owners
    )


def _meetings(facts: Facts) -> tuple[tuple[Module, int], ...]:
    """Where other rules put collectives."""
    found = facts.memo.get("meetings")
    if found is None:
        from multicard.rules import agree_to_stop, evaluate_inside, share_batches, total_metrics, whole_loss

        facts.memo["meetings"] = ()
        facts.memo["meetings"] = found = tuple(
            (edit.module, edit.span.start)
            for rule in (agree_to_stop, evaluate_inside, share_batches, total_metrics, whole_loss)
            for finding in rule.find(facts)
            for edit in finding.edits
            if _COLLECTIVE.search(edit.text)
        )
    assert isinstance(found, tuple)
    return found


def _owners(facts: Facts) -> dict[ast.AST, Module]:
    """The module of each statement and function."""
    found = facts.memo.get("owners")
    if found is None:
        found = {
            node: module
            for module in facts.modules
            for node in running_nodes(facts, module)
            if isinstance(node, ast.stmt | ast.Lambda)
        }
        facts.memo["owners"] = found
    assert isinstance(found, dict)
    return found


# --- what may be left to rank 0 -----------------------------------------------------------------------------------


def hides(facts: Facts, statement: ast.stmt) -> str:
    """Why a statement must run on every rank, or nothing."""
    for node in walk(statement):
        match node:
            case ast.NamedExpr() | ast.Yield() | ast.YieldFrom() | ast.Await():
                return "it binds a name or gives control away"
            case ast.Call(func=ast.Attribute(attr=attr)) if attr in MUTATORS and _mutates(facts, node):
                return f"`{attr}` in it changes an object that lives on"
            case ast.Call() if "builtins.input" in names_of(facts, node):
                return "it waits for an answer that all ranks need"
            case _:
                pass
    why = lasting(facts, statement)
    if why:
        return f"it calls a function that {why}"
    if reached(facts, statement) and meets(facts, statement):
        return "all ranks meet in a function that it calls"
    for event in below(facts, statement):
        if event.kind == "forward" and is_wrapped(event.subject) and event.node not in held(statement):
            return "the wrapped model is called in it, which all ranks must do together"
        if takes_batches(facts, event) and not event.dead and event.order < training_begins(facts):
            return "it takes a batch, and with it a random number that all ranks must draw alike"
        if draws_in_common(facts, event):
            return "it draws random numbers while all ranks must draw alike"
    return ""


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


def draws_in_common(facts: Facts, event: Event) -> bool:
    """Whether an event draws random numbers that must be equal on all ranks, as before training."""
    if event.dead or event.order >= training_begins(facts) or event.inside:
        return False
    return event.kind == "call" and _draws(event.name)


_NO_DRAW = frozenset({
    "numpy.random.RandomState", "numpy.random.default_rng", "numpy.random.Generator", "numpy.random.seed",
    "numpy.random.get_state", "numpy.random.set_state", "random.seed", "random.Random", "random.getstate",
    "random.setstate", "numpy.random.SeedSequence", "numpy.random.PCG64",
})  # fmt: skip


def _draws(name: str) -> bool:
    if name in _NO_DRAW or name.rpartition(".")[0] in _NO_DRAW:
        return False
    return name.startswith(("numpy.random.", "random.")) or (
        name.startswith("torch.")
        and name.rpartition(".")[2]
        in {"rand", "randn", "randint", "randperm", "bernoulli", "multinomial", "normal", "random_split"}
    )


def _mutates(facts: Facts, call: ast.Call) -> bool:
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


@dataclass(frozen=True)
class Change:
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
                if not _fresh(facts, base, own) and _mutates(facts, node):
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


# --- work that is left to rank 0 ----------------------------------------------------------------------------------


def rank_0_only(facts: Facts, event: Event) -> bool:
    """Whether an event happens only on rank 0 after migration: under a call that `main_process_work` guards."""
    kept = facts.memo.get("kept")
    if kept is None:
        from multicard.rules.main_process_work import kept_calls

        kept = facts.memo["kept"] = frozenset(kept_calls(facts))
    assert isinstance(kept, frozenset)
    return any(call in kept for call in (event.node, *event.calls))


def kept_by_rank_0(facts: Facts, module: Module, node: ast.AST) -> bool:
    """Whether a node runs only under calls that `main_process_work` guards."""
    from multicard.rules.main_process_work import kept_calls

    return only_in(facts, module, node, kept_calls(facts))


def prepared(facts: Facts, module: Module, node: ast.AST) -> bool:
    """Whether a node runs only where `prepare_once` lets one process of each machine go first."""
    from multicard.rules.prepare_once import first_statements

    return only_in(facts, module, node, first_statements(facts))


def amid_preparation(facts: Facts, event: Event) -> bool:
    """Whether one process of each machine comes here before the others: no place for them to meet."""
    from multicard.rules.prepare_once import first_statements

    first = first_statements(facts)
    if not first:
        return False
    home = homes(facts)
    chain = [(event.module, event.node), *((home[call], call) for call in event.calls if call in home)]
    return any(outer in first for module, node in chain for outer in (node, *facts.ancestors(module, node)))


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


# --- waiting for rank 0 -------------------------------------------------------------------------------------------

_EXISTS = frozenset({"exists", "isfile", "isdir", "is_file", "is_dir", "lexists", "getsize"})


def tests_existence(facts: Facts, test: ast.expr) -> list[ast.Call]:
    """The calls in a test that ask whether a file is there, in functions of the program too."""
    found = []
    for node in walk(test):
        if isinstance(node, ast.Call):
            name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            inside = (inner for function in functions_of(facts, node) for inner in walk(function))
            if name in _EXISTS or any(
                isinstance(inner, ast.Call)
                and isinstance(inner.func, ast.Attribute)
                and inner.func.attr in _EXISTS
                for inner in inside
            ):
                found.append(node)
    return found


def homes(facts: Facts) -> dict[ast.AST, Module]:
    """The module of each call."""
    found = facts.memo.get("homes")
    if found is None:
        found = {call: module for module in facts.modules for call in calls_in(facts, module)}
        facts.memo["homes"] = found
    assert isinstance(found, dict)
    return found


def where_to_wait(
    facts: Facts, event: Event, written: Sequence[Event] = ()
) -> tuple[Module, ast.stmt] | Text:
    """The statement before which all ranks must wait for a file of rank 0's, or why they cannot.

    It stands outside of every test whether the file exists, which a rank may make too early, and of every branch that
    ranks may take differently; but after what was `written`.
    """
    if event.dead or per_sample(facts, event.module, event.node):
        return _UNSEEN
    if in_batches(facts, event):
        return Text(in_batches(facts, event), "它在按批次的循环里,各卡的批次数可能不同")
    home = homes(facts)
    chain = [(event.module, event.node)]
    chain += [(home[call], call) for call in reversed(event.calls) if call in home and call is not event.node]
    place = (event.module, facts.statement(event.module, event.node))
    for module, node in chain:
        inner: ast.AST = node
        for outer in facts.ancestors(module, node):
            if isinstance(outer, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
                break
            before = (other for other in written if other.order < event.order)
            holds = any(held(outer) & {other.node, *other.calls} for other in before)
            match outer:
                case ast.If(test=test) if inner is not test and _may_part(facts, module, test):
                    if holds:
                        return Text(
                            "it is written and read in one branch, which ranks may take differently",
                            "写入和读取在同一分支里,而各进程可能走不同的分支",
                        )
                    place = (module, outer)
                case ast.Try(body=body) if inner in body and outer.handlers and not holds:
                    place = (module, outer)
                case ast.With(items=items) if (
                    inner not in items and not holds and any(_opens(item) for item in items)
                ):
                    place = (module, outer)
                case _:
                    pass
            inner = outer
    module, statement = place
    while isinstance(parent := facts.parents(module)[statement], ast.If) and parent.orelse == [statement]:
        if not isinstance(statement, ast.If):
            break
        statement = parent
    return no_meeting(facts, module, statement) or (module, statement)


def _may_part(facts: Facts, module: Module, test: ast.expr) -> bool:
    """Whether ranks may answer a test differently: by what is on the disk, or by values of their own."""
    if tests_existence(facts, test):
        return True
    start_of_test = module.span(test).start
    agreed = any(where is module and offset == start_of_test for where, offset in _meetings(facts))
    return data_of(facts.values(test)).local and not agreed


_UNSEEN = Text("it was not seen to run on every rank", "看不到它在每张卡上都会执行")


def no_meeting(facts: Facts, module: Module, node: ast.AST) -> Text | None:
    """Why ranks cannot wait for each other at a place: not all of them come there equally often; None if they do."""
    if before_start(facts, module, node):
        return Text("it runs on import, before the ranks have started", "它在导入时执行,早于进程启动")
    if per_sample(facts, module, node):
        return Text("worker processes come here", "数据加载进程会执行到这里")
    ways = list(_ways(facts, module, node))
    if not ways:
        return _UNSEEN
    for event, loops in ways:
        if rank_0_only(facts, event):
            return Text("rank 0 also comes here alone", "主进程也会单独执行到这里")
        if amid_preparation(facts, event):
            return Text("one process comes here before the others", "这里由一个进程先执行")
        if any(loop.loaders and (loop.node, loop.calls) not in facts.training_frames for loop in loops):
            return Text("ranks may come here a different number of times", "各卡到这里的次数可能不同")
    return None


def _ways(facts: Facts, module: Module, node: ast.AST) -> Iterator[tuple[Event, list[Loop]]]:
    """Events that tell how code is reached, each with the loops round it: its own, or others of its function."""
    statement = facts.statement(module, node)
    inside = held(statement)
    own = [event for event in below(facts, statement) if not event.dead]
    if own:
        for event in own:
            yield (
                event,
                [loop for loop in event.loops if loop.node not in inside and not inside & set(loop.calls)],
            )
        return
    scope = facts.scope(module, node)
    for event in facts.run.events:
        if (
            not event.dead
            and event.module is module
            and event.frames
            and (event.frames[-1].node or module.tree) is scope
        ):
            yield (
                event,
                [
                    loop
                    for loop in event.loops
                    if loop.node not in held(scope) or statement in held(loop.node)
                ],
            )


def _opens(item: ast.withitem) -> bool:
    match item.context_expr:
        case ast.Call(func=ast.Name(id="open") | ast.Attribute(attr="open")):
            return True
        case _:
            return False


def may_be_same_file(facts: Facts, first: ast.expr | None, second: ast.expr | None) -> bool:
    """Whether two paths may name one file, as far as their ends and constants tell."""
    if first is None or second is None:
        return True
    one, other = (_known(facts, node) for node in (first, second))
    if one and other:
        return bool(one & other)
    ends = [_end(node) for node in (first, second)]
    return not all(ends) or ends[0].endswith(ends[1]) or ends[1].endswith(ends[0])


def _known(facts: Facts, node: ast.expr) -> frozenset[str]:
    """All that a path may be, if that is known."""
    if isinstance(node, ast.Constant):
        return frozenset({str(node.value)})
    values = facts.values(node)
    texts = [value.value for value in values if isinstance(value, Const) and isinstance(value.value, str)]
    return frozenset(texts) if texts and len(texts) == len(values) else frozenset()


def _end(node: ast.expr) -> str:
    """The literal end of a path."""
    match node:
        case ast.Constant(value=str(text)):
            return text.rpartition("/")[2]
        case ast.JoinedStr(values=[*_, ast.Constant(value=str(text))]):
            return text.rpartition("/")[2]
        case ast.BinOp(left=ast.Constant(value=str(text)), op=ast.Mod()):
            return text.rpartition("/")[2].rpartition("%")[2][1:]
        case ast.BinOp(op=ast.Add() | ast.Div(), right=right):
            return _end(right)
        case ast.Call(func=ast.Attribute(value=ast.Constant(value=str(text)), attr="format")):
            return text.rpartition("/")[2].rpartition("}")[2]
        case ast.Call(func=ast.Attribute(attr="join" | "joinpath"), args=[*_, last]):
            return _end(last)
        case ast.Call(args=[only]):
            return _end(only)
        case _:
            return ""


def surely_same_file(facts: Facts, first: Effect, second: Effect) -> bool:
    """Whether two effects name one file: by the same words, the same constant, or the same literal end."""
    if first.path is None or second.path is None:
        return False
    if first.module.text(first.path) == second.module.text(second.path) and _same_names(facts, first, second):
        return True
    one, other = (_known(facts, node) for node in (first.path, second.path))
    if one and other:
        return bool(one & other)
    ends = [_end(node) for node in (first.path, second.path)]
    return ends[0] == ends[1] and "." in ends[0].lstrip(".")


_READS = {
    "pandas.read_csv": ("csv", "tsv", "txt", "data", "dat"),
    "pandas.read_json": ("json", "jsonl"),
    "pandas.read_pickle": ("pkl", "pickle"),
    "pandas.read_parquet": ("parquet",),
    "numpy.load": ("npy", "npz"),
    "numpy.loadtxt": ("txt", "csv"),
    "joblib.load": ("joblib", "pkl"),
    "PIL.Image.open": ("png", "jpg", "jpeg", "bmp"),
    "cv2.imread": ("png", "jpg", "jpeg", "bmp"),
}


def likely_same_file(facts: Facts, written: Effect, read: Effect) -> bool:
    """Whether a path that is not known at the read may be one that was written: its kind of file fits."""
    if surely_same_file(facts, written, read):
        return True
    if written.path is None or read.path is None or _known(facts, read.path) or _end(read.path):
        return False
    return (_end(written.path) or "").rpartition(".")[2] in _READS.get(read.name, ())


def before_start(facts: Facts, module: Module, node: ast.AST) -> bool:
    """Whether code runs while a local module is imported, before the processes have started."""
    if module is facts.program.entry or facts.function(module, node) is not None:
        return False
    return not isinstance(start(facts).before, ast.Import | ast.ImportFrom)


def _same_names(facts: Facts, first: Effect, second: Effect) -> bool:
    """Whether the same words mean the same: they stand in one function, or name nothing that a function binds."""
    assert first.path is not None
    assert second.path is not None
    scopes = [facts.scope(effect.module, effect.call) for effect in (first, second)]
    if scopes[0] is scopes[1]:
        return True
    used = {node.id for node in walk(first.path) if isinstance(node, ast.Name)} - {"self"}
    local = {
        node.arg if isinstance(node, ast.arg) else node.id
        for scope in scopes
        if isinstance(scope, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
        for node in walk(scope)
        if isinstance(node, ast.arg) or (isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store))
    }
    return not used & local


def follows(written: Event, read: Event) -> bool:
    """Whether a write comes before a read in this run, also in an earlier turn of a loop round both."""
    together = {(loop.node, loop.calls) for loop in written.loops} & {
        (loop.node, loop.calls) for loop in read.loops
    }
    return not written.dead and (written.order < read.order or bool(together))


def waits(facts: Facts, code: str, reads: list[tuple[Event, list[Event]]]) -> Iterator[Finding]:
    """A barrier before each read of what rank 0 has written; one for several in a row."""
    waited: Event | None = None
    done = facts.memo.setdefault("barriers", set())
    assert isinstance(done, set)
    for read, written in reads:
        if (
            rank_0_only(facts, read)
            or guarded(facts, read.module, read.node)
            or amid_preparation(facts, read)
        ):
            continue
        if waited is not None and _still_fresh(written, waited, read):
            continue
        place = where_to_wait(facts, read, written)
        if isinstance(place, Text):
            yield Finding(
                code,
                facts.site(read.module, read.node),
                Text(
                    f"this rank may read the file before rank 0 has written it: {place.en}",
                    f"可能在主进程写完之前就读取文件:{place.zh}",
                ),
                (),
                Text(
                    "call `dist.barrier()` where all ranks come, after it is written and before this",
                    "请在写入之后、读取之前,在所有进程都会执行到的地方调用 `dist.barrier()`",
                ),
                Kind.LEFT,
            )
            continue
        module, statement = place
        waited = read
        if statement in done:
            continue
        done.add(statement)
        yield Finding(
            code,
            facts.site(module, statement),
            Text(
                "rank 0 writes the file; the others must wait until it is there",
                "文件由主进程写入,其他进程要等它写完再读",
            ),
            (insert_before(module, statement, "«dist».barrier()"),),
        )


def _still_fresh(written: list[Event], waited: Event, read: Event) -> bool:
    """Whether all that was written was waited for by an earlier read of the same turn."""
    same_loops = [loop.node for loop in waited.loops] == [loop.node for loop in read.loops]
    return same_loops and not any(waited.order < event.order < read.order for event in written)


# --- what rank 0 alone evaluates ----------------------------------------------------------------------------------


def found_by(facts: Facts, code: str, find: Callable[[Facts], Iterator[Finding]]) -> tuple[Finding, ...]:
    """The findings of a rule, made once."""
    found = facts.memo.get(code)
    if found is None:
        found = facts.memo[code] = tuple(find(facts))
    assert isinstance(found, tuple)
    return found


def evaluated_by_rank_0(facts: Facts, module: Module, node: ast.AST) -> bool:
    """Whether other rules put a node under a guard, or into `... if rank == 0 else ...`: no rank but 0 sees it."""
    span = module.span(node)
    return any(where is module and reach.holds(span) for where, reach in _left_to_rank_0(facts))


def _left_to_rank_0(facts: Facts) -> tuple[tuple[Module, Span], ...]:
    found = facts.memo.get("left to rank 0")
    if found is None:
        from multicard.rules import print_once, save_once, show_progress_once, write_files_once

        found = facts.memo["left to rank 0"] = tuple(
            (edit.module, edit.reach)
            for rule in (print_once, save_once, show_progress_once, write_files_once)
            for finding in rule.find(facts)
            for edit in finding.edits
            if edit.reach is not None
            and (edit.side is Side.GUARD or (edit.side is Side.CLOSE and "if «rank 0»" in edit.text))
        )
    assert isinstance(found, tuple)
    return found


# --- making guards ------------------------------------------------------------------------------------------------


def statement_of(facts: Facts, module: Module, call: ast.Call) -> ast.Expr | None:
    """The statement that is this call and nothing else."""
    parent = facts.parents(module).get(call)
    return parent if isinstance(parent, ast.Expr) else None


def neighbours(module: Module, statements: Iterable[ast.stmt]) -> Iterator[list[ast.stmt]]:
    """Statements in runs that stand next to each other in one suite, in the order of the source."""
    run: list[ast.stmt] = []
    for statement in sorted(set(statements), key=lambda item: (item.lineno, item.col_offset)):
        suite = module.suites[statement][1]
        if run and module.suites[run[-1]][1] is suite and suite.index(statement) == suite.index(run[-1]) + 1:
            run.append(statement)
        else:
            if run:
                yield run
            run = [statement]
    if run:
        yield run


def keep_to_rank_0(facts: Facts, code: str, module: Module, statements: list[ast.stmt], why: Text) -> Finding:
    """One finding that puts neighbouring statements under `if rank == 0:`; left where no such line can stand."""
    edits = guard(module, statements, "if «rank 0»:")
    site = facts.site(module, statements[0])
    if edits is None:
        return Finding(code, site, why, (), UNDER_A_GUARD, Kind.LEFT)
    return Finding(code, site, why, edits)


UNDER_A_GUARD = Text("put it under `if rank == 0:`", "请放到 `if rank == 0:` 之下")


def path_or_devnull(module: Module, path: ast.expr) -> tuple[Edit, ...]:
    """`path` becomes `path if rank == 0 else os.devnull`."""
    opened, closed = ("(", ")") if isinstance(path, ast.IfExp | ast.Lambda) else ("", "")
    return wrap(module, path, opened, f"{closed} if «rank 0» else «os».devnull")
