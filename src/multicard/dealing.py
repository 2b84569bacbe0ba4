"""Which loaders are dealt out to the ranks, and which loops may walk through a share.

Training loaders always are.  An evaluation loader is dealt out if at least one loop over it is understood: what it
carries out can be put together again, nothing in it must happen once for each batch of the whole set, and the bare
model can be called in it.  Loops over the same loader that are not understood walk through all of it on every rank:
right, and not faster.
"""

import ast
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from multicard.carried import Reading, read_loop
from multicard.facts import Facts, key
from multicard.interpret import Event, turn_of
from multicard.libraries import WRITES, streams
from multicard.quotients import dividend, given_by
from multicard.source import Module
from multicard.tree import held, nodes, walk
from multicard.values import Class, Const, Data, Func, Method, Obj, Unknown, Value, Values, in_source
from multicard.wraps import bare_of

Problem = tuple[ast.AST, str, str]


class Forward(NamedTuple):
    """A call of a wrapped model in evaluation, and how to reach the model inside."""

    module: Module
    node: ast.Call
    mixed: bool
    """The same call trains on another way of getting there."""
    by_mode: bool = False
    """Gradients are recorded on all ways; the model's mode tells where it trains."""


@dataclass(eq=False, repr=False)
class Visit:
    """One loop over loaders that does not train, on all ways of getting there."""

    module: Module
    node: ast.For
    loaders: tuple[Obj, ...]
    reading: Reading
    problems: list[Problem] = field(default_factory=list)
    forwards: list[Forward] = field(default_factory=list)
    models: list[str] = field(default_factory=list)
    """The wrapped models it calls, as they are written where the loop stands."""
    also_trains: bool = False
    dead: bool = False

    @property
    def understood(self) -> bool:
        """Whether shares of it can be put together again."""
        return not self.problems and not self.reading.problems

    def why(self) -> Problem:
        """The first thing that was not understood."""
        return (*self.problems, *self.reading.problems)[0]


class Site(NamedTuple):
    """One `DataLoader(...)` in the source and the loaders that it makes."""

    module: Module
    call: ast.Call
    train: tuple[Obj, ...]
    evaluate: tuple[Obj, ...]
    condition: str = ""
    """An expression that is true where a training loader is made; empty where the site makes one kind."""
    spilled: tuple[Obj, ...] = ()
    """Loaders that are dealt out as training loaders are, because nothing at the site tells them apart."""


@dataclass(eq=False, repr=False)
class Dealing:
    """The decisions."""

    sites: list[Site] = field(default_factory=list)
    visits: list[Visit] = field(default_factory=list)
    dealt: frozenset[Obj] = frozenset()
    whole: list[tuple[Module, ast.expr, str, str]] = field(default_factory=list)
    """Expressions that must give a whole loader, and why."""
    lost: list[Visit] = field(default_factory=list)
    """Loops that must see all of a loader, where no expression gives it."""
    unclear: frozenset[Obj] = frozenset()
    """Training loaders whose arguments cannot be seen: they are left to the reader."""

    def understood(self, node: ast.AST) -> bool:
        """Whether a loop walks through shares that are put together after it."""
        return any(visit.node is node and self.shared(visit) for visit in self.visits)

    def shared(self, visit: Visit) -> bool:
        """Whether a loop walks through a share."""
        return (
            visit.understood and bool(visit.loaders) and all(loader in self.dealt for loader in visit.loaders)
        )


def deal(facts: Facts) -> Dealing:
    """Decide for every loader and every loop over one."""
    visits = list(_visits(facts))
    for visit in visits:
        visit.problems += _problems(facts, visit)
    wanted = {
        loader
        for visit in visits
        if visit.understood and not visit.dead and visit.forwards
        for loader in visit.loaders
        if loader not in facts.train_loaders
    }
    sites = list(_sites(facts, wanted))
    dealt = frozenset(loader for site in sites for loader in site.evaluate)
    dealing = Dealing(sites, visits, dealt)
    dealing.unclear = frozenset(
        loader for site in sites for loader in site.train if not written(facts, site.call).dataset
    )
    dealing.whole = list(_whole(facts, dealing))
    return dealing


# --- loops ----------------------------------------------------------------------------------------------------------


def _visits(facts: Facts) -> Iterator[Visit]:
    found: dict[ast.AST, list[Event]] = {}
    for event in facts.events("iterate"):
        if isinstance(event.node, ast.For):
            found.setdefault(event.node, []).append(event)
    for node, events in found.items():
        assert isinstance(node, ast.For)
        plain = [event for event in events if (event.node, event.calls) not in facts.training_frames]
        if not plain:
            continue
        if any(isinstance(part, ast.Yield | ast.YieldFrom) for part in walk(node)):
            continue
        module = events[0].module
        loaders = tuple(dict.fromkeys(event.subject for event in plain if isinstance(event.subject, Obj)))
        visit = Visit(module, node, loaders, read_loop(facts, module, node))
        visit.also_trains = len(plain) < len(events)
        visit.dead = all(event.dead for event in plain)
        _add_forwards(facts, visit)
        yield visit


def inside(facts: Facts, node: ast.AST) -> Iterator[Event]:
    """Events in a loop, on every way of getting there on which it does not train."""
    return (
        event
        for event in facts.run.events
        if any(loop.node is node and key(loop) not in facts.training_frames for loop in event.loops)
    )


def _add_forwards(facts: Facts, visit: Visit) -> None:
    seen: set[ast.AST] = set()
    for event in inside(facts, visit.node):
        if event.kind not in {"forward", "through_method"} or facts.trains(event):
            continue
        subject = event.subject
        if not isinstance(subject, Obj) or not isinstance(event.node, ast.Call) or event.node in seen:
            continue
        if subject.kind != "wrapped":
            if subject.kind == "model":
                visit.forwards.append(Forward(event.module, event.node, mixed=False))
                seen.add(event.node)
                bare = expression_for(facts, visit, subject) if subject in facts.trained else None
                if bare is not None and bare not in visit.models:
                    visit.models.append(bare)
            continue
        seen.add(event.node)
        others = [other for other in facts.by_node.get(event.node, ()) if other.kind == event.kind]
        mixed = any(facts.trains(other) for other in others)
        silent = all(not other.grad for other in others if not facts.trains(other))
        by_mode = mixed and not silent and all(other.evaluating != facts.trains(other) for other in others)
        visit.forwards.append(Forward(event.module, event.node, mixed, by_mode))
        name = expression_for(facts, visit, subject)
        if name is None:
            visit.problems.append(
                (
                    event.node,
                    "the model that is called here is out of sight of the loop",
                    "这里调用的模型在循环处不可见",
                )
            )
        elif name not in visit.models:
            visit.models.append(name)
        if mixed and not silent and not by_mode:
            visit.problems.append(
                (
                    event.node,
                    "the same call trains, and here gradients are recorded too",
                    "同一处调用也用于训练,且这里也记录梯度",
                )
            )


def expression_for(facts: Facts, visit: Visit, wrapped: Obj) -> str | None:
    """How the wrapped model is written in or just before a loop."""
    bound = {
        part.id for part in walk(visit.node) if isinstance(part, ast.Name) and isinstance(part.ctx, ast.Store)
    }
    regions: list[ast.AST] = [visit.node, facts.scope(visit.module, visit.node)]
    for region in regions:
        for node in walk(region):
            if not isinstance(node, ast.Name | ast.Attribute):
                continue
            if not isinstance(node.ctx, ast.Load) or not _is_path(node):
                continue
            values = facts.values(node)
            if wrapped in values and all(
                value == Const(None) or (isinstance(value, Obj) and value.kind in {"wrapped", "model"})
                for value in values
            ):
                root = node
                while isinstance(root, ast.Attribute):
                    root = root.value  # type: ignore[assignment]  # a path is made of names and attributes
                if isinstance(root, ast.Name) and root.id not in bound:
                    if region is not visit.node and facts.scope(visit.module, node) is not region:
                        continue
                    return visit.module.text(node)
    return None


def _is_path(node: ast.expr) -> bool:
    while isinstance(node, ast.Attribute):
        node = node.value
    return isinstance(node, ast.Name)


def _problems(facts: Facts, visit: Visit) -> Iterator[Problem]:
    for event in inside(facts, visit.node):
        if any(_only_first(facts, visit, node) for node in (event.node, *event.calls)):
            continue
        if _writes(event):
            yield event.node, "a file is written for each batch", "每个批次都会写文件"
            return
        if event.kind == "call" and event.name.startswith("matplotlib."):
            yield event.node, "something is drawn for each batch", "每个批次都会画图"
            return
        if event.kind == "step" or (event.kind == "backward" and facts.trains(event)):
            yield event.node, "the loop trains as well", "循环里还在训练"
            return
    yield from _mutations(facts, visit)
    for loader in visit.loaders:
        if loader not in facts.train_loaders and not _can_be_dealt(facts, loader):
            yield (
                visit.node,
                "the loader has a sampler of its own, or arguments that cannot be seen",
                "该 loader 自带采样器,或有看不到的参数",
            )
            return
    if any(loader in facts.train_loaders for loader in visit.loaders):
        yield visit.node, "its batches come from the training loader", "批次来自训练用的 loader"


def _writes(event: Event) -> bool:
    if event.kind == "data_call":
        return event.name in WRITES
    if event.kind != "call":
        return False
    tail = event.name.rpartition(".")[2]
    if event.name in {"builtins.open", "io.open"}:
        modes = [value.value for value in event.args.get("mode", ()) if isinstance(value, Const)]
        return any(isinstance(mode, str) and set(mode) & set("wax+") for mode in modes)
    if event.name in {
        "torch.save",
        "numpy.save",
        "numpy.savez",
        "numpy.savetxt",
        "torchvision.utils.save_image",
        "cv2.imwrite",
        "pickle.dump",
        "json.dump",
    }:
        return True
    if isinstance(event.subject, Obj) and event.subject.kind in {"file", "writer"}:
        return True
    return tail in WRITES or tail in {
        "writerow",
        "writerows",
        "add_scalar",
        "add_image",
        "save_image",
        "imsave",
    }


def _only_first(facts: Facts, visit: Visit, node: ast.AST) -> bool:
    """Whether code runs in the first batch alone: `if i == 0:`; rank 0 has that batch."""
    for parent in facts.ancestors(visit.module, node):
        if parent is visit.node:
            return False
        match parent:
            case ast.If(
                test=ast.Compare(left=ast.Name(), ops=[ast.Eq()], comparators=[ast.Constant(value=0)])
            ):
                return node not in {inner for part in parent.orelse for inner in walk(part)}
            case _:
                continue
    return False


def _mutations(facts: Facts, visit: Visit) -> Iterator[Problem]:
    """Local functions called in the loop that change what lives on."""
    seen: set[ast.AST] = set()
    waiting: list[tuple[Module, ast.AST, int]] = [
        (visit.module, statement, 0) for statement in visit.node.body
    ]
    while waiting:
        module, region, depth = waiting.pop()
        for node in walk(region):
            if not isinstance(node, ast.Call):
                continue
            if isinstance(node.func, ast.Attribute) and depth == 0:
                owner = visit.module.text(node.func.value) if module is visit.module else ""
                if owner in visit.reading.meters or owner in visit.reading.own:
                    continue
            for value in _called(facts, node):
                if value is None:
                    yield (
                        node if depth == 0 else visit.node,
                        "an object of a library is given the batch, and may keep it",
                        "库的对象接收了批次,可能会保存其内容",
                    )
                    return
                if value.node in seen or isinstance(value.node, ast.Lambda):
                    continue
                seen.add(value.node)
                if isinstance(value.bound, Obj) and value.bound.kind in {"model", "criterion", "dataset"}:
                    continue
                if isinstance(value.bound, Obj) and value.bound in [
                    item for item in facts.values(node.func) if isinstance(item, Obj)
                ]:
                    continue
                culprit = _mutates(value)
                if culprit is not None and not _private(value, culprit):
                    yield (
                        node if depth == 0 else visit.node,
                        f"`{value.node.name}` changes what lives on after the loop (line {culprit.lineno})",
                        f"`{value.node.name}` 会修改循环之后仍然存在的状态(第 {culprit.lineno} 行)",
                    )
                    return
                if depth < 4:
                    waiting.append((value.module, value.node, depth + 1))


def _in_source(value: Value) -> tuple[int, str]:
    """Sorts functions as they stand in the source, so that the first is told whatever the hash seed."""
    return (value.node.lineno, "") if isinstance(value, Func) else (0, repr(value))


def _called(facts: Facts, call: ast.Call) -> Iterator[Func | None]:
    """The local functions that a call may run, `__call__` of local classes too.

    None stands for a library's object that is called for what it does, not for what it gives back.
    """
    for value in sorted(facts.values(call.func), key=_in_source):
        if isinstance(value, Func):
            yield value
        elif isinstance(value, Obj) and value.cls is not None and value.kind not in _MODULES:
            for cls in value.cls.mro():
                made = cls.names.get("__call__", ()) if isinstance(cls, Class) else ()
                yield from (item for item in made if isinstance(item, Func))
        elif isinstance(value, Obj) and value.kind == "lib":
            module = facts.module_of.get(call)
            if module is not None and isinstance(facts.parents(module).get(call), ast.Expr):
                yield None


_MODULES = frozenset({"model", "criterion", "dataset", "wrapped"})


def _mutates(function: Func) -> ast.expr | ast.stmt | None:
    """The first place where a function changes its arguments, its object or globals."""
    node = function.node
    outside = {arg.arg for arg in (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs)}
    local = {
        part.id for part in walk(node) if isinstance(part, ast.Name) and isinstance(part.ctx, ast.Store)
    } - outside
    for part in walk(node):
        match part:
            case ast.Global() | ast.Nonlocal():
                return part
            case ast.Attribute(ctx=ast.Store()) | ast.Subscript(ctx=ast.Store()):
                root: ast.expr = part
                while isinstance(root, ast.Attribute | ast.Subscript):
                    root = root.value
                if isinstance(root, ast.Name) and root.id not in local:
                    return part
            case ast.Call(func=ast.Attribute(value=ast.expr() as owner, attr=attr)) if attr in {
                "append",
                "extend",
                "insert",
                "add",
                "update",
                "pop",
                "clear",
                "remove",
                "add_",
                "copy_",
                "fill_",
            }:
                root = owner
                while isinstance(root, ast.Attribute | ast.Subscript):
                    root = root.value
                if (
                    isinstance(root, ast.Name)
                    and root.id not in local
                    and (root.id in outside or root is not owner)
                ):
                    return part
            case _:
                continue
    return None


def _private(function: Func, culprit: ast.expr | ast.stmt) -> bool:
    """Whether a function's globals are its own: a progress bar's clock, nothing that anybody else reads."""
    if not isinstance(culprit, ast.Global):
        return False
    own = held(function.node)
    return not any(
        isinstance(node, ast.Name)
        and node.id in culprit.names
        and isinstance(node.ctx, ast.Load)
        and node not in own
        for node in walk(function.module.tree)
    )


# --- loaders --------------------------------------------------------------------------------------------------------


def makers(loader: Obj) -> list[tuple[Module, ast.Call]]:
    """The calls in the source that make a loader."""
    if loader.makers:
        return loader.makers
    if loader.call is not None and loader.site is not None:
        return [(loader.site.module, loader.call)]
    return []


def _can_be_dealt(facts: Facts, loader: Obj) -> bool:
    calls = makers(loader)
    return (
        bool(calls)
        and not _given(loader, "sampler")
        and not _given(loader, "batch_sampler")
        and not iterable(loader)
        and all(written(facts, call).dataset for _, call in calls)
    )


class Written(NamedTuple):
    """The arguments of a `DataLoader(...)` as they are written."""

    given: dict[str, ast.expr]
    spread: ast.keyword | None
    """`**options`, where it may hold the shuffle; None where it is known not to."""
    unclear: bool
    """Several `**`, or one that cannot be read twice."""

    @property
    def dataset(self) -> bool:
        """Whether the data set can be named."""
        return not self.unclear and ("dataset" in self.given or self.spread is not None)


POSITIONS = ("dataset", "batch_size", "shuffle", "sampler", "batch_sampler", "num_workers", "collate_fn")
DECIDING = ("dataset", "batch_size", "shuffle", "sampler", "batch_sampler")


def written(facts: Facts, call: ast.Call) -> Written:
    """Read the arguments of a call that makes a loader."""
    given = dict(zip(POSITIONS, call.args, strict=False))
    given.update({keyword.arg: keyword.value for keyword in call.keywords if keyword.arg})
    unclear = any(isinstance(value, ast.Starred) for value in call.args)
    spreads = [
        keyword
        for keyword in call.keywords
        if keyword.arg is None and _may_decide(facts, keyword.value, given)
    ]
    unclear |= len(spreads) > 1 or any(not _is_path(keyword.value) for keyword in spreads)
    return Written(given, spreads[0] if spreads and not unclear else None, unclear)


def _may_decide(
    facts: Facts, node: ast.expr, given: dict[str, ast.expr], names: tuple[str, ...] = DECIDING
) -> bool:
    """Whether a dict may hold the data set, the batch size, the shuffle or a sampler."""
    known = [value for value in facts.values(node) if isinstance(value, Obj) and value.kind == "dict"]
    if not known or any(value.rest for value in known) or len(known) < len(facts.values(node)):
        return True
    return any(name in value.attrs and name not in given for value in known for name in names)


def may_hold(facts: Facts, spread: ast.keyword, name: str) -> bool:
    """Whether `**options` may hold an argument of this name."""
    return _may_decide(facts, spread.value, {}, (name,))


def _given(loader: Obj, name: str) -> bool:
    values = loader.args.get(name)
    return bool(values) and values != frozenset({Const(None)})


def iterable(loader: Obj) -> bool:
    """Whether the loader reads an IterableDataset."""
    for value in loader.args.get("dataset", ()):
        if isinstance(value, Obj):
            bases = value.cls.mro() if value.cls is not None else []
            if any(getattr(base, "name", "").endswith("IterableDataset") for base in bases):
                return True
            if value.name.endswith("IterableDataset") or streams(value):
                return True
    return False


def _sites(facts: Facts, wanted: set[Obj]) -> Iterator[Site]:
    calls: dict[tuple[Module, ast.Call], list[Obj]] = {}
    for loader in facts.loaders:
        for maker in makers(loader):
            calls.setdefault(maker, []).append(loader)
    for (module, call), loaders in calls.items():
        train = tuple(loader for loader in loaders if loader in facts.train_loaders)
        rest = tuple(loader for loader in loaders if loader not in facts.train_loaders)
        evaluate = (
            tuple(loader for loader in rest if _can_be_dealt(facts, loader)) if set(rest) & wanted else ()
        )
        if train and rest:
            condition = _condition(facts, module, call, train, rest) if evaluate else ""
            shared = evaluate if condition else ()
            spilled = tuple(loader for loader in rest if loader not in shared)
            yield Site(module, call, train, shared, condition, spilled)
        elif train or evaluate:
            yield Site(module, call, train, evaluate)


def _condition(
    facts: Facts, module: Module, call: ast.Call, train: tuple[Obj, ...], rest: tuple[Obj, ...]
) -> str:
    """An expression at the site that tells training loaders from the others."""
    shuffle = next((keyword.value for keyword in call.keywords if keyword.arg == "shuffle"), None)
    if shuffle is not None and not isinstance(shuffle, ast.Constant) and _tells(train, rest):
        text = module.text(shuffle)
        return text if isinstance(shuffle, ast.Name | ast.Attribute) else f"({text})"
    for name, value_of in _distinguishing(facts, module, call):
        ours = {value_of(loader) for loader in train}
        others = {value_of(loader) for loader in rest}
        if None in ours or None in others or ours & others:
            continue
        if ours == {True} and others == {False}:
            return name
        if ours == {False} and others == {True}:
            return f"not {name}"
        words = sorted(ours, key=repr)
        if len(words) == 1:
            return f"{name} == {words[0]!r}".replace("'", '"')
        return f"{name} in ({', '.join(repr(word) for word in words)})".replace("'", '"')
    return ""


def _tells(train: tuple[Obj, ...], rest: tuple[Obj, ...]) -> bool:
    """Whether training loaders shuffle and the others do not."""
    return all(_constants(loader.args.get("shuffle")) == {True} for loader in train) and all(
        _constants(loader.args.get("shuffle")) == {False} for loader in rest
    )


def _constants(values: Values | None) -> set[object]:
    if not values:
        return {False}
    return {value.value if isinstance(value, Const) else None for value in values}


def _distinguishing(facts: Facts, module: Module, call: ast.Call) -> Iterator[tuple[str, "_ValueOf"]]:
    """Names in sight of a call that hold one literal on each way of getting there."""
    for parent in facts.ancestors(module, call):
        generators: Iterable[ast.comprehension | ast.For] = ()
        if isinstance(parent, ast.DictComp | ast.ListComp):
            generators = parent.generators
        elif isinstance(parent, ast.For):
            generators = (parent,)
        for generator in generators:
            if isinstance(generator.target, ast.Name):
                yield generator.target.id, _ValueOf(facts, parent, generator, None, "")
        if isinstance(parent, ast.FunctionDef):
            for index, arg in enumerate(parent.args.args):
                yield arg.arg, _ValueOf(facts, parent, None, index, arg.arg)
            return


@dataclass(frozen=True, eq=False, repr=False)
class _ValueOf:
    """The literal that a loop variable or parameter held when a loader was made."""

    facts: Facts
    parent: ast.AST
    generator: ast.comprehension | ast.For | None
    index: int | None
    name: str

    def __call__(self, loader: Obj) -> object:
        if self.generator is not None:
            return self._turn(loader)
        return self._argument(loader)

    def _turn(self, loader: Obj) -> object:
        assert self.generator is not None
        for mark in loader.by:
            index = turn_of(self.parent, mark)
            if index is None:
                continue
            for value in self.facts.values(self.generator.iter):
                if isinstance(value, Obj) and value.items is not None and index < len(value.items):
                    constants = _constants(value.items[index])
                    return constants.pop() if len(constants) == 1 else None
        return None

    def _argument(self, loader: Obj) -> object:
        """The last call on the way to the loader that went into the function that holds it."""
        assert isinstance(self.parent, ast.FunctionDef)
        for node in reversed(loader.by):
            if not isinstance(node, ast.Call):
                continue
            functions = [value for value in self.facts.values(node.func) if isinstance(value, Func)]
            if not any(function.node is self.parent for function in functions):
                continue
            shift = 1 if any(function.bound is not None for function in functions) else 0
            given: ast.expr | None = next((k.value for k in node.keywords if k.arg == self.name), None)
            position = (self.index or 0) - shift
            if given is None and 0 <= position < len(node.args):
                given = node.args[position]
            if given is None:
                defaults = self.parent.args.defaults
                offset = (self.index or 0) - (len(self.parent.args.args) - len(defaults))
                given = defaults[offset] if 0 <= offset < len(defaults) else None
            return given.value if isinstance(given, ast.Constant) else None
        return None


# --- whole loaders --------------------------------------------------------------------------------------------------


def _whole(facts: Facts, dealing: Dealing) -> Iterator[tuple[Module, ast.expr, str, str]]:
    """Uses of dealt loaders that must see every batch."""
    spilled = {loader for site in dealing.sites for loader in site.spilled}
    done: set[ast.AST] = set()
    for loader in sorted(spilled, key=in_source):
        call = _made_by(facts, loader, spilled)
        if call is None or call in done:
            continue
        done.add(call)
        module = next(module for module in facts.modules if call in held(module.tree))
        en, zh = "the line that makes it makes the training loader too", "创建它的那一行也创建训练用的 loader"
        yield module, call, en, zh
    spilled = {loader for loader in spilled if not done & set(loader.by)}
    train = facts.train_loaders | spilled
    for visit in dealing.visits:
        touched = [loader for loader in visit.loaders if loader in dealing.dealt or loader in train]
        if not touched or dealing.shared(visit):
            continue
        if visit.also_trains:
            continue
        _, en, zh = visit.why() if not visit.understood else (visit.node, "it is not dealt out", "没有分片")
        given = list(loader_expressions(facts, visit.node.iter, touched))
        if not given and visit.forwards and not visit.dead:
            dealing.lost.append(visit)
        for node in given:
            for same in (node, *_measured(facts, visit, node, touched)):
                if same not in done:
                    done.add(same)
                    yield visit.module, same, en, zh
    for event in facts.events("call", dead=False):
        if event.name in LOOPS_ITSELF and isinstance(event.node, ast.Call):
            for node in loader_expressions(facts, event.node, list(facts.loaders)):
                if node not in done:
                    done.add(node)
                    yield event.module, node, "a library walks through it", "由库函数遍历"
    for event in facts.events("next", "iterate", "len"):
        if (
            event.subject not in (spilled if event.kind == "len" else dealing.dealt | spilled)
            or isinstance(event.node, ast.For)
            or not isinstance(event.node, ast.expr)
        ):
            continue
        assert isinstance(event.subject, Obj)
        for node in loader_expressions(facts, event.node, [event.subject]):
            if node not in done:
                done.add(node)
                yield event.module, node, "it takes batches one by one", "逐个取批次"


LOOPS_ITSELF = frozenset({"torch.optim.swa_utils.update_bn"})
"""Functions of libraries that walk through a loader and must see all of it."""


def _measured(facts: Facts, visit: Visit, loader: ast.expr, touched: list[Obj]) -> Iterator[ast.expr]:
    """Where the length of a loader is asked for after the loop that walks through all of it, before it trains again.

    Also in a caller that divides by it what the loop's function gave back.
    """
    text = visit.module.text(loader)
    begin = visit.node.end_lineno or 0
    others = {
        training.loop.node.lineno
        for training in facts.trainings
        if training.loop.module is visit.module and isinstance(training.loop.node, ast.stmt)
    }
    end = min((line for line in others if line > begin), default=sys.maxsize)
    scope = facts.scope(visit.module, visit.node)
    own = nodes(scope, ast.Call)
    for call in own:
        asked = measured_by(call)
        if asked is not None and visit.module.text(asked) == text and begin < call.lineno < end:
            yield asked
    for event in facts.events("len"):
        node = event.node
        if event.subject not in touched or not isinstance(node, ast.Call) or node in own:
            continue
        asked = measured_by(node)
        if asked is None or event.subject not in facts.values(asked):
            continue
        total = dividend(facts, event.module, node)
        if total is not None and scope in given_by(facts, event.module, total):
            yield asked


def measured_by(call: ast.Call) -> ast.expr | None:
    """What a call asks for its length: `len(loader)`, `loader.__len__()`."""
    match call:
        case ast.Call(func=ast.Name(id="len"), args=[asked]):
            return asked
        case ast.Call(func=ast.Attribute(value=asked, attr="__len__"), args=[]):
            return asked
        case _:
            return None


def _made_by(facts: Facts, loader: Obj, others: Iterable[Obj]) -> ast.Call | None:
    """The outermost call on the way to a loader that gives it, or others of its kind, and nothing else."""
    calls = (node for node in loader.by if isinstance(node, ast.Call))
    return next((call for call in calls if facts.only(facts.values(call), others)), None)


def loader_expressions(facts: Facts, region: ast.expr, loaders: list[Obj]) -> Iterator[ast.expr]:
    """The innermost expressions of a region that give these loaders themselves."""
    for node in walk(region):
        values = facts.values(node)
        if (
            isinstance(node, ast.Name | ast.Attribute | ast.Subscript | ast.Call)
            and facts.only(values, facts.loaders)
            and any(loader in values for loader in loaders)
        ):
            yield node
            return
    for node in walk(region):  # taken out of what holds other things too
        others = facts.values(node) - set(facts.loaders)
        if (
            isinstance(node, ast.Name | ast.Attribute | ast.Subscript)
            and any(loader in facts.values(node) for loader in loaders)
            and all(isinstance(value, Unknown | Data | Method) for value in others)
        ):
            yield node
            return


def forwards_of(facts: Facts, visit: Visit) -> list[Forward]:
    """Calls of wrapped models in a loop."""
    return [
        forward
        for forward in visit.forwards
        if any(
            bare_of(event) is not event.subject
            for event in facts.by_node.get(forward.node, ())
            if event.kind in {"forward", "through_method"}
        )
    ]
