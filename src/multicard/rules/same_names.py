"""Give files and folders the same name on every rank.

Each rank reads the clock for itself, a second apart, and so makes a folder of its own; what rank 0 saved there, the
others then look for in vain.  Names that come from the clock, from chance or from what is already on the disk are
rank 0's on every rank.

Before:

    stamp = time.strftime("%Y%m%d_%H%M%S")
    os.makedirs(os.path.join("runs", stamp), exist_ok=True)

After:

    stamp = broadcast_value(time.strftime("%Y%m%d_%H%M%S"))
    os.makedirs(os.path.join("runs", stamp), exist_ok=True)
"""

import ast
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from multicard.edits import Edit, call_with, insert_after, wrap
from multicard.effects import (
    Effect,
    all_effects,
    calls_named,
    effect_of,
    named,
    names_of,
    placed,
    running,
)
from multicard.facts import Facts
from multicard.meeting import evaluated_by_rank_0, kept_by_rank_0, no_meeting, prepared
from multicard.messages import Text
from multicard.plan import Finding, Kind
from multicard.reach import below, callers, functions_of, given_to, guarded, per_sample, tests_existence
from multicard.source import Module
from multicard.tree import held, nodes, walk

CODE = "MC507"
TITLE = Text("Agree on names", "各卡使用相同的路径名")

_CLOCKS = frozenset({
    "time.time", "time.strftime", "time.ctime", "time.asctime", "time.localtime", "time.gmtime", "time.time_ns",
    "datetime.datetime.now", "datetime.datetime.today", "datetime.datetime.utcnow", "datetime.date.today",
    "datetime.now", "uuid.uuid4", "uuid.uuid1", "secrets.token_hex", "secrets.token_urlsafe", "os.getpid",
    "socket.gethostname", "platform.node", "pandas.Timestamp.now", "pendulum.now", "arrow.now", "shortuuid.uuid",
    "coolname.generate_slug",
})  # fmt: skip
_MADE = frozenset({"tempfile.mkdtemp"})
_LISTED = frozenset({"os.listdir", "glob.glob", "os.scandir"})
_SCREEN = frozenset(
    {"print", "info", "debug", "warning", "error", "log", "critical", "exception", "set_description"}
)
_KEEPS = frozenset({
    "strftime", "isoformat", "replace", "split", "rsplit", "strip", "lower", "upper", "zfill", "timestamp", "format",
    "date", "time", "ctime", "hex",
})  # fmt: skip
_WRAPPERS = frozenset({"str", "int", "round", "repr", "float"})
_SINKS = frozenset({"folder", "open", "write", "save", "writer", "delete"})
_ONE_NAME = Text(
    "each rank would read the clock for itself and get another name; all take rank 0's",
    "每张卡各自读取时间会得到不同的名字;统一使用主进程的",
)
_ONE_NUMBER = Text(
    "a rank that looks later would find what another has just made and take another name; all take rank 0's",
    "较晚查看的进程会看到别的进程刚创建的内容而取不同的名字;统一使用主进程的",
)
_ADVICE = Text(
    "make the name where all ranks come together after the start, and broadcast it",
    "请在初始化之后、所有进程都会执行到的地方生成名字并广播",
)


def find(facts: Facts) -> Iterator[Finding]:
    """Expressions that read the clock, and loops that look for a free name, if a path comes of it."""
    for module, call in (way for ways in _finders(facts).values() for way in ways):
        made = any(
            effect.what == "folder"
            for function in functions_of(facts, call)
            for effect in _effects(facts, function)
        )
        yield _agreed(facts, module, call, made=made, listed=True)
    for reading in _readings(facts):
        yield _agreed(facts, reading.module, reading.node, made=reading.made, listed=reading.listed)
    for module in facts.modules:
        yield from _free_names(facts, module)


class _Reading(NamedTuple):
    """A call that gives each rank another name, and the expression that it is part of."""

    module: Module
    call: ast.Call
    node: ast.expr
    made: bool
    listed: bool


def _readings(facts: Facts) -> tuple[_Reading, ...]:
    """Readings of the clock, of chance and of the disk that end in a path."""
    found = facts.answers.get("readings")
    if found is None:
        found = facts.answers["readings"] = tuple(_read(facts))
    assert isinstance(found, tuple)
    return found


def _read(facts: Facts) -> Iterator[_Reading]:
    done: set[ast.AST] = set()
    finders = _finders(facts)
    for module in facts.modules:
        for call in calls_named(facts, module, _tells):
            names = names_of(facts, call)
            listed = any(map(_lists, names))
            node = _whole(facts, module, call, counted=listed)
            if node is None or node in done or (listed and facts.function(module, call) in finders):
                continue
            done.add(node)
            if evaluated_by_rank_0(facts, module, node):
                continue
            if not _is_settled(facts, module, node) and _Flow(facts).follow(module, node):
                yield _Reading(module, call, node, bool(names & _MADE), listed)


def _tells(name: str) -> bool:
    """Whether a call by this name may tell each rank something else."""
    return name in _CLOCKS or name in _MADE or _lists(name)


def _lists(name: str) -> bool:
    return name in _LISTED or _lists_lazily(name)


def _lists_lazily(name: str) -> bool:
    """Whether a listing is made as it is walked through, and cannot be sent as it is."""
    return name.endswith((".glob", ".iterdir")) and name not in _LISTED


def gives_a_name(facts: Facts, module: Module, call: ast.Call) -> bool:
    """Whether a listing is agreed on here already, because a name comes of it."""
    return facts.function(module, call) in _finders(facts) or any(
        item.call is call for item in _readings(facts)
    )


def _finders(facts: Facts) -> dict[ast.AST, list[tuple[Module, ast.Call]]]:
    """Functions that give back a name after looking what is there, and the calls whose value ends in a path."""
    memo = facts.memo.get("finders")
    if memo is not None:
        assert isinstance(memo, dict)
        return memo
    found: dict[ast.AST, list[tuple[Module, ast.Call]]] = {}
    facts.memo["finders"] = found
    for module in facts.modules:
        tests = [node for node in nodes(module.tree, ast.If) if tests_existence(facts, node.test)]
        round_tests = {outer for test in tests for outer in facts.ancestors(module, test)}
        for function in running(facts, module, ast.FunctionDef) if tests else ():
            if function not in round_tests or not _looks(facts, function):
                continue
            ways = [
                (place, call)
                for place, call in callers(facts).get(function, ())
                if isinstance(call, ast.Call)
                and facts.function(place, call) is not function
                and not _is_settled(facts, place, call)
                and not evaluated_by_rank_0(facts, place, call)
                and any(not event.dead for event in below(facts, call))
                and _Flow(facts).follow(place, call)
            ]
            if ways:
                found[function] = ways
    return found


def _looks(facts: Facts, function: ast.FunctionDef) -> bool:
    """Whether a function returns one thing if a path is there and another if it is not."""
    tests = [
        node
        for node in nodes(function, ast.If)
        if tests_existence(facts, node.test)
        and any(part.value is not None for part in nodes(node, ast.Return))
    ]
    if not tests:
        return False
    reads = any(
        effect.what in {"read", "open"} for effect in _effects(facts, function) if effect.name not in _LISTED
    )
    loops = any(
        isinstance(node, ast.For | ast.While) and test in walk(node)
        for node in walk(function)
        for test in tests
    )
    return not reads and not loops


def _effects(facts: Facts, function: ast.AST) -> list[Effect]:
    inside = held(function)
    return [effect for effect in all_effects(facts) if effect.call in inside]


def _is_settled(facts: Facts, module: Module, node: ast.AST) -> bool:
    """Whether one process alone comes here, or each for samples of its own."""
    place = (facts, module, node)
    return (
        guarded(*place)
        or kept_by_rank_0(*place)
        or per_sample(*place)
        or prepared(*place)
        or any(
            isinstance(outer, ast.Call) and getattr(outer.func, "id", "") == "broadcast_value"
            for outer in facts.ancestors(module, node)
        )
    )


def _agreed(facts: Facts, module: Module, node: ast.expr, *, made: bool, listed: bool) -> Finding:
    site = facts.site(module, node)
    why = _ONE_NUMBER if listed else _ONE_NAME
    problem = _problem(facts, module, node)
    if problem is not None:
        said = Text(f"{why.en}; but {problem.en}", f"{why.zh};但是{problem.zh}")
        return Finding(CODE, site, said, (), _ADVICE, Kind.LEFT)
    edits: tuple[Edit, ...]
    if made:
        edits = wrap(module, node, "«broadcast_value»(", " if «rank 0» else None)")
    elif isinstance(node, ast.Call) and any(map(_lists_lazily, names_of(facts, node))):
        edits = wrap(module, node, "«broadcast_value»(list(", "))")
    else:
        edits = call_with(module, node, "«broadcast_value»")
    return Finding(CODE, site, why, edits)


def _problem(facts: Facts, module: Module, node: ast.expr) -> Text | None:
    """Why ranks cannot exchange a value here, or nothing."""
    function = facts.function(module, node)
    parents = list(facts.ancestors(module, node))
    if any(isinstance(outer, ast.arguments) for outer in parents):
        return Text("a default is made before the ranks have started", "默认值在进程启动之前就已确定")
    if function is None and (
        module is not facts.program.entry or any(isinstance(outer, ast.ClassDef) for outer in parents)
    ):
        if all(
            isinstance(outer, ast.expr | ast.Assign | ast.AnnAssign | ast.ClassDef | ast.Module)
            for outer in parents
        ):
            return None  # `broadcast_value` starts the processes if it is the first to be called
        return Text(
            "it runs on import, and maybe not on every rank", "它在导入时执行,而且未必每个进程都会执行"
        )
    return no_meeting(facts, module, node)


def _whole(facts: Facts, module: Module, call: ast.Call, *, counted: bool) -> ast.expr | None:
    """The expression that a reading of the clock is part of: formatted, cut, in an f-string; None for a duration."""
    node: ast.expr = call
    if _is_duration(facts, module, call):
        return None
    while True:
        parent = facts.parents(module).get(node)
        match parent:
            case ast.Attribute(attr=attr) if attr in _KEEPS or counted:
                node = parent
            case ast.Call(func=func) if func is node:
                node = parent
            case ast.Call(func=ast.Name(id=name)) if name in _WRAPPERS or (
                counted and name in {"len", "max", "sorted"}
            ):
                node = parent
            case ast.Subscript(value=value) if value is node:
                node = parent
            case ast.FormattedValue() | ast.JoinedStr():
                node = parent  # places inside f-strings are not to be relied on
            case ast.ListComp() | ast.GeneratorExp() | ast.comprehension() if counted:
                node = parent if isinstance(parent, ast.expr) else node
                if isinstance(parent, ast.comprehension):
                    outer = facts.parents(module)[parent]
                    assert isinstance(outer, ast.expr)
                    node = outer
            case ast.BinOp(op=ast.Add(), right=ast.Constant(value=int())) if counted:
                node = parent
            case _:
                return node if placed(facts, module, node) else None


def _is_duration(facts: Facts, module: Module, call: ast.Call) -> bool:
    """Whether times are subtracted or compared here, or a given time is put into words."""
    names = names_of(facts, call)
    if "time.strftime" in names and len(call.args) > 1:
        inner = call.args[1]
        return not (isinstance(inner, ast.Call) and not inner.args)
    if names & {"time.gmtime", "time.localtime", "time.ctime"} and call.args:
        return True
    for outer in facts.ancestors(module, call):
        if isinstance(outer, ast.BinOp) and isinstance(outer.op, ast.Sub):
            return True
        if isinstance(outer, ast.Compare | ast.stmt):
            return isinstance(outer, ast.Compare)
    return False


# --- where a name goes --------------------------------------------------------------------------------------------


@dataclass(eq=False, repr=False)
class _Flow:
    """Follows a value through names, attributes, arguments and returns, to the paths that it ends in."""

    facts: Facts
    seen: set[tuple[object, str]] = field(default_factory=set)
    found: bool = False

    def follow(self, module: Module, node: ast.expr) -> bool:
        """Whether a path comes of an expression."""
        self._from(module, node)
        return self._spread()

    def follow_names(self, module: Module, target: ast.expr) -> bool:
        """Whether a path comes of what a target is bound to."""
        self._bind(module, target)
        return self._spread()

    def _spread(self) -> bool:
        waiting = list(self.seen)
        done: set[tuple[object, str]] = set()
        while waiting and not self.found:
            carrier = waiting.pop()
            if carrier in done:
                continue
            done.add(carrier)
            for place, use in self._uses(carrier):
                self._from(place, use)
            waiting += [item for item in self.seen if item not in done]
        return self.found

    def _from(self, module: Module, node: ast.expr) -> None:
        inner: ast.AST = node
        for outer in self.facts.ancestors(module, node):
            match outer:
                case ast.BinOp(op=ast.Sub()) | ast.Compare() | ast.Subscript() if (
                    getattr(outer, "slice", None) is not inner
                ):
                    if not isinstance(outer, ast.Subscript):
                        return
                case ast.Call():
                    if self._call(module, outer, inner):
                        return
                case ast.Assign(targets=targets):
                    for target in targets:
                        self._bind(module, target)
                    return
                case (
                    ast.AnnAssign(target=target) | ast.NamedExpr(target=target) | ast.AugAssign(target=target)
                ):
                    self._bind(module, target)
                    if isinstance(outer, ast.stmt):
                        return
                case ast.Return():
                    function = self.facts.function(module, outer)
                    if isinstance(function, ast.FunctionDef) and _is_property(function):
                        self.seen.add(("attribute", function.name))
                    for place, call in callers(self.facts).get(function, ()) if function is not None else ():
                        key = (call, "returned")
                        if key not in self.seen:
                            self.seen.add(key)
                            self._from(place, call)
                    return
                case ast.arguments():
                    self._default(module, outer, inner)
                    return
                case ast.stmt():
                    return
                case _:
                    pass
            inner = outer

    def _default(self, module: Module, arguments: ast.arguments, value: ast.AST) -> None:
        """Follow the default of a parameter into its function."""
        function = self.facts.parents(module)[arguments]
        positional = [*arguments.posonlyargs, *arguments.args]
        pairs = [
            *zip(reversed(positional), reversed(arguments.defaults), strict=False),
            *zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True),
        ]
        self.seen |= {(function, argument.arg) for argument, default in pairs if default is value}

    def _call(self, module: Module, call: ast.Call, inner: ast.AST) -> bool:
        """Follow an argument into a call; whether it goes no further out."""
        if inner is call.func:
            self.found |= _is_file(self.facts, module, call)
            return self.found
        name = getattr(call.func, "id", getattr(call.func, "attr", ""))
        if name in _SCREEN:
            return True
        if name == "add_argument":
            self._option(call)
            return True
        effect = effect_of(self.facts, module, call)
        if effect is not None and effect.what in _SINKS:
            inside = effect.path is not None and inner in {effect.path, *walk(effect.path)}
            if inside or effect.what == "writer":
                self.found = True
                return True
        names = names_of(self.facts, call)
        if any(item.endswith(("FileHandler", "basicConfig", "SummaryWriter")) for item in names):
            self.found = True
            return True
        functions = functions_of(self.facts, call)
        for function in functions:
            self._parameters(function, call, inner)
        return False

    def _parameters(
        self, function: ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda, call: ast.Call, inner: ast.AST
    ) -> None:
        value = inner.value if isinstance(inner, ast.keyword) else inner
        self.seen.update((function, name) for name, given in given_to(function, call) if given is value)

    def _option(self, call: ast.Call) -> None:
        for argument in call.args:
            if isinstance(argument, ast.Constant) and isinstance(argument.value, str):
                self.seen.add(("attribute", argument.value.lstrip("-").replace("-", "_")))

    def _bind(self, module: Module, target: ast.expr) -> None:
        match target:
            case ast.Name(id=name):
                scope = self.facts.scope(module, target)
                parents = self.facts.ancestors(module, target)
                if any(isinstance(outer, ast.ClassDef) for outer in parents) and scope is module.tree:
                    self.seen.add(("attribute", name))
                else:
                    self.seen.add((scope, name))
                    if scope is module.tree:
                        self.seen.add(("attribute", name))  # `config.RUN_DIR`
            case ast.Attribute(attr=name):
                self.seen.add(("attribute", name))
            case ast.Subscript(slice=ast.Constant(value=str(name))):
                self.seen.add(("item", name))
            case ast.Tuple(elts=elements):
                for element in elements:
                    self._bind(module, element)
            case _:
                pass

    def _uses(self, carrier: tuple[object, str]) -> Iterator[tuple[Module, ast.expr]]:
        owner, name = carrier
        for module, node in _loads(self.facts, name):
            match node:
                case ast.Name():
                    found = self._sees(module, node, owner)
                case ast.Attribute():
                    found = owner == "attribute"
                case _:
                    found = owner == "item"
            if found:
                yield module, node

    def _sees(self, module: Module, node: ast.Name, owner: object) -> bool:
        """Whether a name is that of a scope: its own function's, or the module's where no function binds it."""
        if not isinstance(owner, ast.AST):
            return False
        scopes = [
            outer
            for outer in self.facts.ancestors(module, node)
            if isinstance(outer, ast.FunctionDef | ast.Lambda)
        ]
        if owner in scopes:
            return True
        return owner is module.tree and not any(
            node.id in {argument.arg for argument in walk(scope.args) if isinstance(argument, ast.arg)}
            for scope in scopes
        )


def _is_file(facts: Facts, module: Module, call: ast.Call) -> bool:
    """Whether a method of a path writes there: `path.mkdir()`, `(folder / name).open("w")`."""
    effect = effect_of(facts, module, call)
    return (
        effect is not None
        and effect.what in _SINKS
        and isinstance(call.func, ast.Attribute)
        and effect.path is call.func.value
    )


def _is_property(function: ast.FunctionDef) -> bool:
    """Whether a method is read like an attribute."""
    return any(
        getattr(decorator, "id", getattr(decorator, "attr", "")) in {"property", "cached_property"}
        for decorator in function.decorator_list
    )


def _loads(facts: Facts, word: str) -> Iterator[tuple[Module, ast.expr]]:
    """Where names, attributes and items by a constant are read, by their word."""
    for module in facts.modules:
        for node in named(facts, module, word):
            if isinstance(node.ctx, ast.Load):
                yield module, node
    yield from _items(facts).get(word, ())


def _items(facts: Facts) -> dict[str, list[tuple[Module, ast.expr]]]:
    """Where items by a constant are read, by the constant."""
    found = facts.memo.get("items")
    if found is None:
        index: dict[str, list[tuple[Module, ast.expr]]] = {}
        for module in facts.modules:
            for item in running(facts, module, ast.Subscript):
                if isinstance(item.slice, ast.Constant) and isinstance(item.ctx, ast.Load):
                    index.setdefault(str(item.slice.value), []).append((module, item))
        facts.memo["items"] = found = index
    assert isinstance(found, dict)
    return found


# --- loops that look for a free name ------------------------------------------------------------------------------


def _free_names(facts: Facts, module: Module) -> Iterator[Finding]:
    for loop in (*running(facts, module, ast.While), *running(facts, module, ast.For)):
        if (isinstance(loop, ast.While) and tests_existence(facts, loop.test)) or (
            isinstance(loop, ast.For | ast.While)
            and any(
                isinstance(part, ast.If)
                and tests_existence(facts, part.test)
                and isinstance(part.body[-1], ast.Break | ast.Return)
                for part in loop.body
            )
        ):
            pass
        else:
            continue
        if _is_settled(facts, module, loop):
            continue
        yield from _told(facts, module, loop)


def _told(facts: Facts, module: Module, loop: ast.For | ast.While) -> Iterator[Finding]:
    """The names that a loop leaves behind, or gives back, made rank 0's."""
    bound = {node.id for node in walk(loop) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
    scope = facts.scope(module, loop)
    last = loop.end_lineno or loop.lineno
    used = sorted(
        {
            node.id
            for node in walk(scope)
            if isinstance(node, ast.Name)
            and isinstance(node.ctx, ast.Load)
            and node.id in bound
            and node.lineno > last
        }
    )
    flow = [node for node in walk(loop) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)]
    if not any(_Flow(facts).follow_names(module, node) for node in flow):
        return
    probe = loop.test if isinstance(loop, ast.While) else loop.iter
    problem = _problem(facts, module, probe)
    returns = [node for node in walk(loop) if isinstance(node, ast.Return) and node.value is not None]
    edits = [
        edit
        for node in returns
        if node.value is not None
        for edit in call_with(module, node.value, "«broadcast_value»")
    ]
    if used:
        names = ", ".join(used)
        edits.append(
            insert_after(
                module, loop, f"{names} = «broadcast_value»({names if len(used) == 1 else f'({names})'})"
            )
        )
    if problem is not None or not edits:
        reason = problem or Text("its names are used inside the loop", "循环内部还要使用这些名字")
        said = Text(f"{_ONE_NUMBER.en}; but {reason.en}", f"{_ONE_NUMBER.zh};但是{reason.zh}")
        yield Finding(CODE, facts.site(module, loop), said, (), _ADVICE, Kind.LEFT)
        return
    yield Finding(CODE, facts.site(module, loop), _ONE_NUMBER, tuple(edits))
