"""What was understood of a script: every role, where it comes from, the evidence, and how sure it is.

A rule that leaves a line alone, or changes one that it should not, is wrong because of what it took a value for.
This tells it from the same facts that the rules see, in words.
"""

import ast
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from multicard.carried import read_loop
from multicard.dealing import Visit
from multicard.errors import MulticardError
from multicard.facts import Facts, Training
from multicard.interpret import Event, Loop
from multicard.messages import Text
from multicard.program import read_program
from multicard.rules.total_metrics import adds_up
from multicard.source import Module
from multicard.tree import walk
from multicard.values import (
    Class,
    Const,
    Data,
    Func,
    Lib,
    Method,
    Mod,
    Obj,
    Unknown,
    Value,
    data_of,
    in_source,
)
from multicard.wraps import wrap_models

KINDS = {
    "model": Text("models", "模型"),
    "optimizer": Text("optimizers", "优化器"),
    "scheduler": Text("schedulers", "学习率调度器"),
    "scaler": Text("gradient scalers", "梯度缩放器"),
    "criterion": Text("criteria", "损失函数"),
    "loader": Text("loaders", "数据加载器"),
    "dataset": Text("data sets", "数据集"),
    "sampler": Text("samplers", "采样器"),
    "device": Text("devices", "设备"),
    "writer": Text("writers", "日志写入器"),
}
"""Roles of values, in the order in which they are told."""

_ONE = {
    "model": Text("a model", "模型"),
    "optimizer": Text("an optimizer", "优化器"),
    "scheduler": Text("a scheduler", "学习率调度器"),
    "scaler": Text("a gradient scaler", "梯度缩放器"),
    "criterion": Text("a criterion", "损失函数"),
    "loader": Text("a loader", "数据加载器"),
    "dataset": Text("a data set", "数据集"),
    "sampler": Text("a sampler", "采样器"),
    "device": Text("a device", "设备"),
    "writer": Text("a writer", "日志写入器"),
    "instance": Text("an object", "对象"),
    "namespace": Text("options", "命令行选项"),
    "iter": Text("an iterator", "迭代器"),
    "file": Text("a file", "文件"),
    "loaded": Text("what was loaded from a file", "从文件加载的内容"),
}
_TAGS = {
    "local": Text("differs between ranks", "各进程不同"),
    "random": Text("drawn at random", "随机抽取"),
    "clock": Text("read from the clock", "来自时钟"),
    "params": Text("parameters", "参数"),
    "batch": Text("a batch", "一个批次"),
    "summed": Text("a sum over the batch", "对批次求和"),
    "averaged": Text("a mean over the batch", "对批次取平均"),
}
FOLLOWED = Text("followed from its constructor", "从构造处一路跟踪")
STARRED = Text(
    "followed, but some of its arguments are out of sight (`*` or `**`)",
    "已跟踪,但部分参数(`*` 或 `**`)看不到",
)
BY_NAME = Text(
    "which class is decided at run time: it is taken for one by its family's name",
    "类在运行时才确定:按所属模块的名字推断",
)
DEAD = Text("in code that is never reached from the entry", "位于从入口无法到达的代码中")


@dataclass(frozen=True)
class Place:
    """A line of a module, and what stands there."""

    path: str
    line: int
    source: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}"


@dataclass(frozen=True)
class Role:
    """What one value of the script is for."""

    kind: str
    names: tuple[str, ...]
    born: Place
    evidence: tuple[Text, ...]
    sure: Text


@dataclass(frozen=True)
class Walk:
    """One loop over batches, and what it carries out."""

    kind: str
    place: Place
    about: tuple[Text, ...]
    carries: tuple[tuple[str, str], ...]
    """Names and how shares of them are put together."""
    not_understood: tuple[tuple[Place, Text], ...]


@dataclass(frozen=True)
class Understood:
    """All that is told about a script, or about one of its lines."""

    script: str
    roles: tuple[Role, ...]
    walks: tuple[Walk, ...]
    unknown: tuple[tuple[Place, str], ...]
    line: int | None = None
    names: tuple[tuple[str, tuple[Text, ...]], ...] = ()
    round: tuple[Text, ...] = ()


# --- what is known ------------------------------------------------------------------------------------------------


@dataclass
class _Teller:
    """Facts, indexed for telling."""

    facts: Facts

    def __post_init__(self) -> None:
        self.home: dict[ast.AST, Module] = {
            node: module for module in self.facts.modules for node in walk(module.tree)
        }
        self.named: dict[Obj, dict[str, None]] = {}
        for module in self.facts.modules:
            for node in walk(module.tree):
                if isinstance(node, ast.Name | ast.Attribute) and isinstance(node.ctx, ast.Store):
                    for value in self.facts.values(node):
                        if isinstance(value, Obj):
                            self._remember(value, module.text(node), 0)

    def _remember(self, value: Obj, name: str, depth: int) -> None:
        """A value's name, and with it those of what it holds: `loaders["train"]`."""
        self.named.setdefault(_bare(value), {})[name] = None
        if value.kind not in {"list", "tuple", "dict"} or depth > 2:
            return
        parts = [(f'{name}["{key}"]', values) for key, values in value.attrs.items()]
        parts += [(f"{name}[{index}]", values) for index, values in enumerate(value.items or ())]
        for part, values in [*parts, (f"{name}[...]", value.rest)]:
            for inner in values:
                if isinstance(inner, Obj) and inner is not value and inner not in self.named:
                    self._remember(inner, part, depth + 1)

    def place(self, module: Module, node: ast.AST) -> Place:
        site = self.facts.site(module, node)
        return Place(module.path.name, site.line, module.line(site.line).strip())

    def name(self, obj: Obj) -> str:
        """How a value is written, or what it is where it has no name."""
        return next(iter(self.named.get(obj, {})), f"{obj.name.rpartition('.')[2]}(...)")

    def said(self, events: Iterable[Event]) -> Iterator[Place]:
        """The lines of events, each once."""
        yield from dict.fromkeys(self.place(event.module, event.node) for event in events)

    # --- roles ---------------------------------------------------------------------------------------------------

    def roles(self) -> Iterator[Role]:
        groups: dict[tuple[str, ast.AST], list[Obj]] = {}
        for obj in [*self.facts.run.born.values()]:
            if obj.kind in KINDS and obj.site is not None and self._counts(obj):
                groups.setdefault((obj.kind, obj.site.node), []).append(obj)
        found = [self.role(kind, objs) for (kind, _), objs in groups.items()]
        order = list(KINDS)
        yield from sorted(found, key=lambda role: (order.index(role.kind), role.born.path, role.born.line))

    def _counts(self, obj: Obj) -> bool:
        """Whether a value is worth telling: layers of a model are not, nor modules reached by an index."""
        if obj.kind == "model":
            return obj in self.facts.trained or (obj.owner is None and self._acts(obj))
        if obj.kind == "criterion":
            return obj in self.named or self._acts(obj)
        return True

    def _acts(self, obj: Obj) -> bool:
        return any(
            _subject(event) is obj and event.kind in {"forward", "load", "freeze"} for event in self.events
        )

    @property
    def events(self) -> list[Event]:
        return self.facts.run.events

    def role(self, kind: str, objs: list[Obj]) -> Role:
        first = objs[0]
        assert first.site is not None
        names = dict.fromkeys(name for obj in objs for name in self.named.get(obj, {}))
        evidence = tuple(dict.fromkeys(text for obj in objs for text in self.evidence(obj)))
        born = self.place(first.site.module, first.site.node)
        return Role(kind, tuple(names), born, evidence, self.sure(objs))

    def sure(self, objs: list[Obj]) -> Text:
        if any(obj.starred for obj in objs):
            return STARRED
        if any(obj.name.endswith(".*") for obj in objs):
            return BY_NAME
        born = [event for event in self.facts.events("construct") if event.subject in objs]
        return DEAD if born and all(event.dead for event in born) else FOLLOWED

    def evidence(self, obj: Obj) -> Iterator[Text]:
        """Why a value is what it is taken for."""
        yield self._made(obj)
        match obj.kind:
            case "model":
                yield from self._model(obj)
            case "optimizer":
                yield from self._optimizer(obj)
            case "loader":
                yield from self._loader(obj)
            case "scheduler":
                yield from self._at("schedule", obj, Text("steps in {}", "在 {} 步进"))
            case "scaler":
                yield from self._at("unscale", obj, Text("unscales in {}", "在 {} 还原梯度"))
            case "criterion":
                yield from self._at("forward", obj, Text("gives a loss in {}", "在 {} 给出损失"))
            case "dataset":
                yield from self._read_by(obj)
            case _:
                return

    def _made(self, obj: Obj) -> Text:
        if obj.cls is None:
            return Text(f"made by `{obj.name}`", f"由 `{obj.name}` 创建")
        bases = [base.name for base in obj.cls.mro() if isinstance(base, Lib)]
        place = self.place(obj.cls.module, obj.cls.node)
        base = f" <- {bases[0]}" if bases else ""
        return Text(
            f"made by the script's class `{obj.cls.node.name}`{base} ({place})",
            f"由脚本中的类 `{obj.cls.node.name}`{base}({place})创建",
        )

    def _at(self, kind: str, obj: Obj, text: Text) -> Iterator[Text]:
        events = [event for event in self.facts.events(kind) if _subject(event) is obj]
        for place in self.said(events):
            yield Text(text.en.format(place), text.zh.format(place))

    def _model(self, model: Obj) -> Iterator[Text]:
        whole = {model}
        for event in self.facts.backwards:
            if isinstance(event.subject, Data) and any(item.root in whole for item in event.subject.models):
                place = self.place(event.module, event.node)
                yield Text(f"its loss goes backward in {place}", f"损失在 {place} 反向传播")
        for optimizer in self._held_by(model):
            assert optimizer.site is not None
            name = self.name(optimizer)
            yield Text(
                f"`{name}` holds its parameters ({optimizer.site})",
                f"`{name}` 持有它的参数({optimizer.site})",
            )
        calls = [event for event in self.facts.events("forward") if _subject(event) is model]
        for trains, text in (
            (True, Text("called in training in {}", "训练时在 {} 调用")),
            (False, Text("called outside training in {}", "训练之外在 {} 调用")),
        ):
            for place in self.said(event for event in calls if self.facts.trains(event) is trains):
                yield Text(text.en.format(place), text.zh.format(place))
        yield from self._wrapping(model)

    def _held_by(self, model: Obj) -> Iterator[Obj]:
        done: set[Obj] = set()
        for event in self.facts.events("construct", "optimizer"):
            optimizer = event.subject
            if not isinstance(optimizer, Obj) or optimizer.kind != "optimizer" or optimizer in done:
                continue
            held = {item.root for values in event.args.values() for item in data_of(values).models}
            if model in held:
                done.add(optimizer)
                yield optimizer

    def _wrapping(self, model: Obj) -> Iterator[Text]:
        for other, wrap in self.facts.places:
            if _same(other, model):
                module = self.facts.module_of[wrap.target]
                place = self.place(module, wrap.statement)
                yield Text(f"to be wrapped after {place}", f"将在 {place} 之后包装")
        for other, reason, _ in self.facts.unwrapped:
            if _same(other, model):
                yield Text(f"no wrapper: {reason}", f"不使用包装器:{reason}")

    def _optimizer(self, optimizer: Obj) -> Iterator[Text]:
        held: dict[str, None] = {}
        for event in self.facts.events("construct", "optimizer"):
            if event.subject is optimizer:
                for values in event.args.values():
                    held.update(dict.fromkeys(self.name(model.root) for model in data_of(values).models))
        for name in held:
            yield Text(f"holds parameters of `{name}`", f"持有 `{name}` 的参数")
        yield from self._at("step", optimizer, Text("steps in {}", "在 {} 更新参数"))

    def _loader(self, loader: Obj) -> Iterator[Text]:
        for values in (loader.args.get("dataset", frozenset()),):
            for value in values:
                if isinstance(value, Obj):
                    yield Text(f"reads `{self.name(value)}`", f"读取 `{self.name(value)}`")
        trains = {training.loop.node for training in self.facts.trainings if loader in training.loaders}
        if loader in self.facts.train_loaders:
            for training in self.facts.trainings:
                if loader in training.loaders:
                    place = self.place(training.loop.module, training.loop.node)
                    yield Text(
                        f"its batches are trained on in the loop of {place}",
                        f"其批次在 {place} 的循环里用于训练",
                    )
        loops = [event for event in self.facts.events("iterate", "next") if event.subject is loader]
        for place in self.said(event for event in loops if event.node not in trains):
            yield Text(f"walked through in {place}", f"在 {place} 被遍历")
        if self.facts.dealt(loader):
            yield Text("to be dealt out to the ranks", "将分片到各进程")
        elif loops:
            yield Text("stays whole on every rank", "在每个进程上保持完整")

    def _read_by(self, dataset: Obj) -> Iterator[Text]:
        for loader in self.facts.loaders:
            if dataset in loader.args.get("dataset", frozenset()):
                assert loader.site is not None
                yield Text(
                    f"read by `{self.name(loader)}` ({loader.site})",
                    f"由 `{self.name(loader)}` 读取({loader.site})",
                )

    # --- loops ---------------------------------------------------------------------------------------------------

    def walks(self) -> Iterator[Walk]:
        done: set[ast.AST] = set()
        for training in self.facts.trainings:
            if training.loop.node not in done:
                done.add(training.loop.node)
                yield self._training(training)
        for visit in self.facts.dealing.visits:
            yield self._evaluation(visit)

    def _training(self, training: Training) -> Walk:
        loop = training.loop
        about = [
            Text(
                f"trains {_list(self.name(item) for item in training.models)}",
                f"训练 {_list(self.name(item) for item in training.models)}",
            )
        ]
        if training.loaders:
            names = _list(self.name(loader) for loader in training.loaders)
            about.append(Text(f"batches of {names}", f"批次来自 {names}"))
        else:
            about.append(Text("batches from no loader", "批次不来自 DataLoader"))
        backward = self.place(training.backward.module, training.backward.node)
        about.append(Text(f"backward in {backward}", f"反向传播在 {backward}"))
        if training.epochs is not None:
            epochs = self.place(training.epochs.module, training.epochs.node)
            about.append(Text(f"epochs counted in {epochs}", f"epoch 循环在 {epochs}"))
        carries: dict[tuple[str, str], None] = {}
        if isinstance(loop.node, ast.For):
            reading = read_loop(self.facts, loop.module, loop.node)
            carries.update(
                dict.fromkeys(
                    (item.name, item.how.value)
                    for item in reading.carried
                    if adds_up(self.facts, loop.module, loop.node, item.name, item.how)
                )
            )
        return Walk("training", self.place(loop.module, loop.node), tuple(about), tuple(carries), ())

    def _evaluation(self, visit: Visit) -> Walk:
        about = []
        if visit.loaders:
            names = _list(self.name(loader) for loader in visit.loaders)
            about.append(Text(f"batches of {names}", f"批次来自 {names}"))
        for forward in visit.forwards:
            place = self.place(forward.module, forward.node)
            about.append(Text(f"the model is called in {place}", f"模型在 {place} 调用"))
        shared = self.facts.dealing.shared(visit)
        about.append(
            Text("each rank walks through its share", "每个进程遍历自己的一份")
            if shared
            else Text("every rank walks through all batches", "每个进程遍历全部批次")
        )
        carries = dict.fromkeys((item.name, item.how.value) for item in visit.reading.carried)
        problems = [*visit.problems, *visit.reading.problems]
        missed = tuple(
            (self.place(self.home.get(node, visit.module), node), Text(en, zh)) for node, en, zh in problems
        )
        kind = "evaluation" if visit.forwards else "loop"
        return Walk(kind, self.place(visit.module, visit.node), tuple(about), tuple(carries), missed)

    # --- what is not known ---------------------------------------------------------------------------------------

    def unknown(self) -> Iterator[tuple[Place, str]]:
        """Calls that could not be followed because their function is unknown, each reason once."""
        done: set[str] = set()
        for module in self.facts.modules:
            for node in walk(module.tree):
                if not isinstance(node, ast.Call):
                    continue
                for value in self.facts.values(node.func):
                    if isinstance(value, Unknown) and value.reason not in done and not _left_out(value):
                        done.add(value.reason)
                        yield self.place(module, node), value.reason

    # --- one line ------------------------------------------------------------------------------------------------

    def line(self, number: int) -> Iterator[tuple[str, tuple[Text, ...]]]:
        """What is known of every name, attribute and call that stands on a line of the entry."""
        module = self.facts.program.entry
        done: set[str] = set()
        for node in walk(module.tree):
            if (
                not isinstance(node, ast.Name | ast.Attribute | ast.Call | ast.Subscript)
                or node.lineno != number
            ):
                continue
            text = " ".join(module.text(node).split())
            values = self.facts.values(node)
            if text in done or not values or (isinstance(node, ast.Call) and len(text) > 60):
                continue
            done.add(text)
            said = dict.fromkeys(self.value(value) for value in sorted(values, key=_rank))
            yield text, tuple(said)

    def round(self, number: int) -> Iterator[Text]:
        """The loops that a line stands in."""
        module = self.facts.program.entry
        spans = [
            (self._training(item).place, item.loop, Text("training loop", "训练循环"))
            for item in self.facts.trainings
        ]
        done = set()
        for place, loop, what in spans:
            if loop.module is module and _holds(loop, number) and place not in done:
                done.add(place)
                yield Text(f"in the {what.en} of {place}", f"位于 {place} 的{what.zh}中")
        for visit in self.facts.dealing.visits:
            if visit.module is module and visit.node.lineno <= number <= (visit.node.end_lineno or 0):
                place = self.place(module, visit.node)
                if place not in done:
                    done.add(place)
                    yield Text(f"in the evaluation loop of {place}", f"位于 {place} 的验证循环中")

    def value(self, value: Value) -> Text:
        """One value in a few words."""
        match value:
            case Obj():
                return self._object(value)
            case Data():
                return self._data(value)
            case Const(value=literal, config=config):
                tail = (
                    Text(" (an option or constant of the script)", "(脚本的选项或常量)")
                    if config
                    else Text("", "")
                )
                return Text(f"the literal {literal!r}{tail.en}", f"字面量 {literal!r}{tail.zh}")
            case Func(node=node, module=module):
                name = getattr(node, "name", "lambda")
                return Text(
                    f"the script's function `{name}` ({self.place(module, node)})",
                    f"脚本中的函数 `{name}`({self.place(module, node)})",
                )
            case Class(node=node, module=module):
                return Text(
                    f"the script's class `{node.name}` ({self.place(module, node)})",
                    f"脚本中的类 `{node.name}`({self.place(module, node)})",
                )
            case Mod(module=module):
                return Text(f"the local module {module.path.name}", f"本地模块 {module.path.name}")
            case Lib(name=name):
                return Text(f"`{name}` of a library", f"库中的 `{name}`")
            case Method(owner=Data(), name=name):
                return Text(f"method `{name}` of data", f"数据的方法 `{name}`")
            case Method(owner=owner, name=name):
                whose = self.value(owner)
                return Text(f"method `{name}` of {whose.en}", f"{whose.zh}的方法 `{name}`")
            case Unknown(reason=reason):
                return Text(f"not followed: {reason}", f"无法跟踪:{reason}")

    def _object(self, obj: Obj) -> Text:
        bare = _bare(obj)
        what = _ONE.get(bare.kind, Text(f"a {bare.kind}", bare.kind))
        name = bare.name if bare.cls is None else bare.cls.node.name
        born = Text(f" ({bare.site})", f"({bare.site})") if bare.site is not None else Text("", "")
        role = Text("", "")
        if bare.kind == "model" and bare.root in self.facts.trained:
            role = Text(", trained", ",被训练")
        elif bare in self.facts.train_loaders:
            role = Text(", trained on", ",用于训练")
        return Text(f"{what.en}: `{name}`{born.en}{role.en}", f"{what.zh}:`{name}`{born.zh}{role.zh}")

    def _data(self, data: Data) -> Text:
        models = _list(self.name(item) for item in sorted(data.models, key=in_source))
        loaders = _list(self.name(item) for item in sorted(data.loaders, key=in_source))
        parts = [_TAGS[tag] for tag in _TAGS if tag in data.tags]
        if models:
            parts.insert(
                0,
                Text(
                    f"computed by {models}" if "params" not in data.tags else f"of {models}",
                    f"由 {models} 计算" if "params" not in data.tags else f"属于 {models}",
                ),
            )
        if loaders:
            parts.append(Text(f"from batches of {loaders}", f"来自 {loaders} 的批次"))
        if not parts:
            return Text("plain data", "普通数据")
        return Text(
            "data: " + ", ".join(part.en for part in parts), "数据:" + ",".join(part.zh for part in parts)
        )


def _left_out(value: Unknown) -> bool:
    """A parameter of a function that nobody calls: nothing is missing from the story."""
    return value.reason.endswith("is not given")


def _bare(obj: Obj) -> Obj:
    return obj.inner if obj.kind == "wrapped" and obj.inner is not None else obj


def _subject(event: Event) -> Obj | None:
    return _bare(event.subject) if isinstance(event.subject, Obj) else None


def _same(first: Obj, second: Obj) -> bool:
    """The same model, perhaps of another run over the program."""
    return first.site is not None and second.site is not None and first.site.node is second.site.node


def _rank(value: Value) -> tuple[int, str]:
    """Objects first, unknown last."""
    order = (Obj, Class, Func, Mod, Lib, Method, Data, Const, Unknown)
    return next(index for index, kind in enumerate(order) if isinstance(value, kind)), repr(value)


def _holds(loop: Loop, number: int) -> bool:
    node = loop.node
    return isinstance(node, ast.stmt) and node.lineno <= number <= (node.end_lineno or 0)


def _list(names: Iterable[str]) -> str:
    return ", ".join(f"`{name}`" for name in dict.fromkeys(names))


def understand(path: Path, line: int | None = None) -> Understood:
    """What is known of a script, or of one of its lines; raises `MulticardError`."""
    facts = wrap_models(read_program(path))
    teller = _Teller(facts)
    script = facts.program.entry.path.name
    if line is None:
        return Understood(script, tuple(teller.roles()), tuple(teller.walks()), tuple(teller.unknown()))
    last = len(facts.program.entry.starts)
    if not 1 <= line <= last:
        raise MulticardError(
            Text(f"{script} has {last} lines, and no line {line}", f"{script} 共 {last} 行,没有第 {line} 行")
        )
    return Understood(script, (), (), (), line, tuple(teller.line(line)), tuple(teller.round(line)))
