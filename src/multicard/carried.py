"""What a batch loop carries out: counters, sums, lists; and whether shares of them can be put together again.

If each rank walks through its share of the batches, a sum over the ranks is the sum over the data set, and lists
joined in rank order are the list in data set order (evaluation deals whole batches in runs).  That holds for values
that start empty before the loop and only ever grow by what a batch gives.  Anything else that leaves the loop makes
it not understood, with the line and the reason, and then every rank walks through all batches.
"""

import ast
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from enum import Enum
from functools import cached_property
from typing import NamedTuple

from multicard.facts import Facts
from multicard.source import Module
from multicard.tree import children, held, is_none, nodes, walk, word_of
from multicard.values import Class, Func, Lib, Mod, Obj, data_of


class How(Enum):
    """How shares are put together."""

    SUM = "all_reduce_sum"
    MEAN = "all_reduce_mean"
    MAX = "all_reduce_max"
    MIN = "all_reduce_min"
    GATHER = "gather_in_order"
    STATE = "average_over_ranks"
    """Its numbers become their means, where it stands."""
    COUNT = "count"
    METER = "meter"
    LAST = "last"
    """Only the last batch's value is left."""


class Carried(NamedTuple):
    """One value that leaves a loop."""

    name: str
    """As it is written after the loop: `correct`, `self.total`."""
    how: How
    node: ast.AST


@dataclass(eq=False, repr=False)
class Reading:
    """A loop, read."""

    module: Module
    loop: ast.For
    carried: list[Carried] = field(default_factory=list)
    problems: list[tuple[ast.AST, str, str]] = field(default_factory=list)
    """What is not understood: where, and why in English and Chinese."""
    meters: dict[str, "Meter"] = field(default_factory=dict)
    own: set[str] = field(default_factory=set)
    """Objects of the user's that are made before the loop and that nobody reads after it."""
    by_number: list[Carried] = field(default_factory=list)
    """What depends on the number of the batch: shares of it fit where all ranks have as many batches."""
    apart: list[Carried] = field(default_factory=list)
    """What each rank has of its own after a training loop."""
    left: list[Carried] = field(default_factory=list)
    """What leaves the loop, grown or told in a way that is not understood."""
    running: list[str] = field(default_factory=list)
    """Running means: where all ranks have as many batches, the mean of theirs is that of all batches."""
    conditions: dict[str, ast.expr] = field(default_factory=dict)
    """The condition under which a value is there at all: it is bound before the loop under it."""
    reader: "_Reader | None" = None

    @property
    def writes(self) -> "dict[str, list[tuple[str, ast.AST, ast.expr | None]]]":
        """What the loop writes: kind, place and value, by name."""
        return self._by.writes

    @property
    def roots(self) -> dict[str, ast.expr]:
        """The expression of each name that is written."""
        return self._by.roots

    @property
    def _by(self) -> "_Reader":
        assert self.reader is not None
        return self.reader

    def alike(self, value: ast.expr) -> bool:
        """Whether all ranks have one value."""
        return self._by.alike(value)

    def tests(self, node: ast.AST) -> Iterator[ast.expr]:
        """The conditions under which a place in the loop is come by."""
        return self._by.tests(node)

    def start(self, name: str) -> str:
        """What a value is before the loop: zero, empty, …; nothing where that is not seen."""
        return self._by.start(name)

    def source(self) -> ast.expr:
        """What the loop goes over, as it is made."""
        return self._by.source()

    def around(self) -> ast.For | ast.While | None:
        """The loop that goes round this one, in its function."""
        return self._by.around()

    def outlives(self, name: str, root: ast.expr) -> bool:
        """Whether somebody reads a value after the loop, or the next time round."""
        return self._by.outlives(name, root, self.writes.get(name, []))

    def of(self, how: How) -> list[str]:
        """The names to be put together this way, in the order in which the loop changes them."""
        return list(dict.fromkeys(item.name for item in self.carried if item.how is how))

    def problem(self, node: ast.AST, en: str, zh: str) -> None:
        """Note that something is not understood."""
        self.problems.append((node, en, zh))


class Meter(NamedTuple):
    """A class that adds up: which attributes are sums, and what follows from them."""

    sums: tuple[str, ...]
    derived: tuple[tuple[str, str], ...]
    """Attribute and the expression over `self.` that gives it."""


GROWING = frozenset({"append", "extend"})
CHANGING = frozenset(
    {
        "add",
        "add_batch",
        "append",
        "appendleft",
        "clear",
        "collect",
        "extend",
        "feed",
        "insert",
        "log",
        "merge",
        "observe",
        "pop",
        "popleft",
        "process",
        "push",
        "put",
        "record",
        "remove",
        "setdefault",
        "store",
        "update",
        "write",
    }
)
HARMLESS = frozenset(
    {
        "criterion",
        "device",
        "file",
        "grad_mode",
        "iter",
        "loader",
        "metric",
        "model",
        "namespace",
        "optimizer",
        "scaler",
        "scheduler",
        "wrapped",
        "writer",
        "exception",
        "sampler",
        "dataset",
    }
)
"""Kinds of objects whose methods carry nothing out of a loop that ranks must put together; torchmetrics do so."""
SPEAKING = (
    "logging",
    "wandb",
    "time.",
    "datetime",
    "argparse",
    "torch.cuda",
    "torch.Generator",
    "re.",
    "builtins.open",
)
ASKING = frozenset(
    {
        "get",
        "copy",
        "keys",
        "values",
        "items",
        "format",
        "join",
        "split",
        "to",
        "index",
        "count",
        "tolist",
        "numpy",
    }
)
CAT = frozenset(
    {
        "torch.cat",
        "torch.concat",
        "torch.concatenate",
        "numpy.concatenate",
        "numpy.append",
        "torch.vstack",
        "numpy.vstack",
        "torch.hstack",
        "numpy.hstack",
    }
)


def read_loop(facts: Facts, module: Module, loop: ast.For) -> Reading:
    """Read one loop over batches."""
    return _Reader(facts, module, loop).read()


def batch_number(facts: Facts, module: Module, loop: ast.For) -> str:
    """The name that counts the batches of a loop, or nothing."""
    return _Reader(facts, module, loop).counter


class _Reader:
    def __init__(self, facts: Facts, module: Module, loop: ast.For) -> None:
        self.facts = facts
        self.module = module
        self.loop = loop
        self.reading = Reading(module, loop, reader=self)
        self.scope = facts.scope(module, loop)
        self.counter = self._counter()
        self.inside = held(loop)
        self.writes: dict[str, list[tuple[str, ast.AST, ast.expr | None]]] = {}
        self.roots: dict[str, ast.expr] = {}

    def _counter(self) -> str:
        """The name that counts the batches: `for i, batch in enumerate(loader)`, also if that has a name of its own."""
        target = self.loop.target
        node: ast.expr | None = self.source()
        while isinstance(node, ast.Call):
            function = node.func
            name = word_of(function)
            if name == "enumerate" and isinstance(target, ast.Tuple) and isinstance(target.elts[0], ast.Name):
                return target.elts[0].id
            node = node.args[0] if node.args else None
        return ""

    def source(self) -> ast.expr:
        """What the loop goes over: `enumerate(loader)`, also where that has a name, as a progress bar has."""
        over = self.loop.iter
        if isinstance(over, ast.Name):
            for statement in self._before(self.scope):
                match statement:
                    case ast.Assign(targets=[ast.Name(id=target)], value=ast.Call() as value) if (
                        target == over.id
                    ):
                        return value
                    case _ if over.id in _bound_by(statement):
                        return over
                    case _:
                        continue
        return over

    def read(self) -> Reading:
        self._collect(self.loop.body)
        for name, writes in self.writes.items():
            self._judge(name, writes)
        self._judge_counter()
        self._leaves()
        return self.reading

    # --- what is written ---------------------------------------------------------------------------------------

    def _collect(self, body: Iterable[ast.stmt]) -> None:
        for statement in body:
            for node in walk_scope(statement):
                self._collect_node(node)

    def _collect_node(self, node: ast.AST) -> None:
        match node:
            case ast.Assign(targets=targets, value=value):
                for target in targets:
                    self._assigned(target, node, value)
            case ast.AnnAssign(target=target, value=ast.expr() as value):
                self._assigned(target, node, value)
            case ast.AugAssign(target=target, op=op, value=value):
                kind = "add" if isinstance(op, ast.Add | ast.Sub) else "other"
                self._write(target, kind, node, value)
            case ast.NamedExpr(target=target, value=value):
                self._write(target, "set", node, value)
            case ast.For(target=target) if node is not self.loop:
                for part in walk(target):
                    if isinstance(part, ast.Name):
                        self._write(part, "set", node, None)
            case ast.withitem(optional_vars=ast.expr() as target):
                for part in walk(target):
                    if isinstance(part, ast.Name):
                        self._write(part, "set", node, None)
            case ast.Call(func=ast.Attribute(value=owner, attr=attr)):
                self._called(owner, attr, node)
            case _:
                pass

    def _assigned(self, target: ast.expr, node: ast.AST, value: ast.expr) -> None:
        if isinstance(target, ast.Tuple | ast.List):
            parts = value.elts if isinstance(value, ast.Tuple | ast.List) else []
            paired = len(parts) == len(target.elts) and not any(
                isinstance(part, ast.Starred) for part in (*parts, *target.elts)
            )
            given = parts if paired else [None] * len(target.elts)
            for element, part in zip(target.elts, given, strict=True):
                self._write(element.value if isinstance(element, ast.Starred) else element, "set", node, part)
        else:
            self._write(target, "set", node, value)

    def _write(self, target: ast.expr, kind: str, node: ast.AST, value: ast.expr | None) -> None:
        root = target
        item = False
        while isinstance(root, ast.Subscript):
            root, item = root.value, True
        if not isinstance(root, ast.Name | ast.Attribute):
            return
        name = self.module.text(root)
        if item and kind == "set" and value is not None and isinstance(target, ast.Subscript):
            added = self._added(target, value)
            kind, value = ("add", added) if added is not None else (kind, value)
        self.roots.setdefault(name, root)
        self.writes.setdefault(name, []).append((f"{kind} item" if item else kind, node, value))

    def _added(self, target: ast.Subscript, value: ast.expr) -> ast.expr | None:
        """What is added in `d[k] = d[k] + v` and `d[k] = d.get(k, 0) + v`."""
        key = self.module.text(target.slice)
        match value:
            case ast.BinOp(left=ast.Subscript(value=owner, slice=own), op=ast.Add(), right=added):
                pass
            case ast.BinOp(
                left=ast.Call(
                    func=ast.Attribute(value=owner, attr="get"), args=[own, ast.Constant(value=0 | 0.0)]
                ),
                op=ast.Add(),
                right=added,
            ):
                pass
            case _:
                return None
        same = self.module.text(owner) == self.module.text(target.value) and self.module.text(own) == key
        return added if same else None

    def _called(self, owner: ast.expr, attr: str, node: ast.Call) -> None:
        root, item = owner, False
        while isinstance(root, ast.Subscript):
            root, item = root.value, True
        if not isinstance(root, ast.Name | ast.Attribute):
            return
        name = self.module.text(root)
        kind = self._change(root, name, attr)
        if not kind:
            return
        self.roots.setdefault(name, root)
        value = node.args[0] if node.args else None
        self.writes.setdefault(name, []).append((f"{kind} item" if item else kind, node, value))

    def _change(self, root: ast.expr, name: str, attr: str) -> str:
        """What a method call does to its object, or nothing; in doubt it changes it in a way that is not understood."""
        if self._container(root):
            if attr in GROWING or attr == "add":
                return "grow"
            return {"update": "update"}.get(attr, "other") if attr in CHANGING else ""
        if attr in {"add_", "sub_"}:
            return "add"
        if self._meter(root) is not None:
            return "meter" if self.start(name) == "meter" else ""
        if all(isinstance(value, Obj) and value.kind in HARMLESS for value in self.facts.values(root)):
            return ""
        if any(isinstance(value, Lib | Mod | Class | Func) for value in self.facts.values(root)):
            return ""
        changes = attr in CHANGING or (attr.endswith("_") and not attr.endswith("__"))
        objects = [value for value in self.facts.values(root) if isinstance(value, Obj)]
        keeps = any(value.kind == "lib" and not value.name.startswith(SPEAKING) for value in objects)
        return "other" if changes or (keeps and attr not in ASKING) else ""

    def _container(self, node: ast.expr) -> bool:
        return any(
            isinstance(value, Obj) and value.kind in {"list", "set", "dict"}
            for value in self.facts.values(node)
        )

    def _meter(self, node: ast.expr) -> Obj | None:
        for value in self.facts.values(node):
            if isinstance(value, Obj) and value.kind == "instance" and value.cls is not None:
                return value
        return None

    # --- what is carried ---------------------------------------------------------------------------------------

    def _judge(self, name: str, writes: list[tuple[str, ast.AST, ast.expr | None]]) -> None:
        root = self.roots[name]
        if name in self.targets:
            return
        if not self.outlives(name, root, writes):
            if isinstance(root, ast.Name) and self.start(name) == "meter":
                self.reading.own.add(name)
            return
        kinds = {self._kind(name, kind, value) for kind, _, value in writes}
        kinds.discard("")
        node = writes[0][1]
        start = self.start(name)
        carried = self._how(kinds, start)
        if carried is How.METER and self._dependence(name, writes) is None:
            self._judge_meter(name, root, node)
        elif carried is None:
            if self._runs(name, writes):
                self.reading.running.append(name)
            elif kinds - {"set"} or all(_is_text(value) for _, _, value in writes):
                self.reading.left.append(Carried(name, How.LAST, node))
            self.reading.problem(
                node,
                f"`{name}` leaves the loop and is not a plain sum or list that starts before it",
                f"`{name}` 会带出循环,但不是循环前清空、循环内累加的计数或列表",
            )
        elif (why := self._dependence(name, writes)) is not None:
            if not self._depends_on_what_grows(name, writes):
                self.reading.by_number.append(Carried(name, carried, node))
            self.reading.problem(node, *why)
        else:
            self.reading.carried.append(Carried(name, carried, node))

    @staticmethod
    def _how(kinds: set[str], start: str) -> How | None:
        table = {
            (frozenset({"add"}), "zero"): How.SUM,
            (frozenset({"add"}), "dict"): How.SUM,
            (frozenset({"add item"}), "zero"): How.SUM,
            (frozenset({"add item"}), "list of zeros"): How.SUM,
            (frozenset({"add item"}), "dict"): How.SUM,
            (frozenset({"grow"}), "empty"): How.GATHER,
            (frozenset({"add"}), "empty"): How.GATHER,
            (frozenset({"grow", "add"}), "empty"): How.GATHER,
            (frozenset({"cat"}), "empty"): How.GATHER,
            (frozenset({"cat"}), "empty tensor"): How.GATHER,
            (frozenset({"set item"}), "dict"): How.GATHER,
            (frozenset({"update"}), "dict"): How.GATHER,
            (frozenset({"update"}), "empty"): How.GATHER,
            (frozenset({"grow item"}), "dict of lists"): How.GATHER,
            (frozenset({"add item"}), "dict of lists"): How.GATHER,
            (frozenset({"max"}), "zero"): How.MAX,
            (frozenset({"max"}), "number"): How.MAX,
            (frozenset({"min"}), "number"): How.MIN,
            (frozenset({"min"}), "zero"): How.MIN,
        }
        if kinds == {"meter"}:
            return How.METER
        return table.get((frozenset(kinds), start))

    def _kind(self, name: str, kind: str, value: ast.expr | None) -> str:
        """A write, told more closely."""
        if kind in {"add", "add item", "grow", "grow item", "meter", "update"}:
            if value is not None and kind.startswith("add") and self._reads_carried(value, name):
                return "other"
            return kind
        if kind == "set" and value is not None:
            match value:
                case ast.BinOp(left=left, op=ast.Add(), right=right):
                    if self._is(left, name) and not self._mentions(right, name):
                        return "add"
                    if self._is(right, name) and not self._mentions(left, name):
                        return "add"
                case ast.BinOp(left=left, op=ast.Sub(), right=right) if self._is(left, name):
                    return "add" if not self._mentions(right, name) else "other"
                case ast.Call(
                    func=function, args=[ast.Tuple(elts=[first, *rest]) | ast.List(elts=[first, *rest]), *_]
                ):
                    if (
                        self._named(function) & CAT
                        and self._is(first, name)
                        and rest
                        and self._first_axis(value)
                    ):
                        return "cat"
                case ast.Call(func=function, args=[first, second, *_]):
                    names = self._named(function)
                    if names & CAT and self._is(first, name) and self._first_axis(value):
                        return "cat"
                    if names & {"builtins.max", "builtins.min"} and (
                        self._is(first, name) or self._is(second, name)
                    ):
                        return "max" if "builtins.max" in names else "min"
                case _:
                    pass
            if not self._mentions(value, name):
                return "set"
        return "set item" if kind == "set item" else "set" if kind == "set" else "other"

    def _first_axis(self, call: ast.Call) -> bool:
        """Whether a concatenation goes along the first axis."""
        names = self._named(call.func)
        if any(name.endswith("hstack") for name in names):
            return False
        axes = [*(keyword.value for keyword in call.keywords if keyword.arg in {"dim", "axis"})]
        position = 2 if "numpy.append" in names else 1
        axes += call.args[position : position + 1]
        return all(isinstance(axis, ast.Constant) and axis.value == 0 for axis in axes)

    def _named(self, function: ast.expr) -> set[str]:
        return {getattr(value, "name", "") for value in self.facts.values(function)}

    def _is(self, node: ast.expr, name: str) -> bool:
        return isinstance(node, ast.Name | ast.Attribute) and self.module.text(node) == name

    def _mentions(self, node: ast.AST, name: str) -> bool:
        return any(
            isinstance(part, ast.Name | ast.Attribute) and self.module.text(part) == name
            for part in walk(node)
        )

    def _reads_carried(self, value: ast.expr, name: str) -> bool:
        """Whether an increment itself depends on a running total."""
        others = {
            other
            for other, writes in self.writes.items()
            if any(kind.startswith("add") for kind, _, _ in writes)
        }
        return any(
            self._mentions(value, other) for other in others if self._outside(other)
        ) or self._mentions(value, name)

    def _outside(self, name: str) -> bool:
        return self.start(name) != ""

    # --- running means -----------------------------------------------------------------------------------------

    def _runs(self, name: str, writes: list[tuple[str, ast.AST, ast.expr | None]]) -> bool:
        """Whether each write is linear in the value so far: `m = (m * i + x) / (i + 1)`, `m = 0.9 * m + 0.1 * x`."""
        mentioned = False
        if not _is_plain(self.roots[name]):
            return False
        for _, node, value in writes:
            if value is None or not all(self._asks_alike(test, name) for test in self.tests(node)):
                return False
            match node:
                case ast.Assign(targets=[ast.Name() | ast.Attribute()]):
                    linear = self._linear(value, name)
                    mentioned |= self._mentions(value, name)
                case ast.AugAssign(target=ast.Name() | ast.Attribute(), op=ast.Add() | ast.Sub()):
                    linear = self._linear(value, name)
                    mentioned |= self._mentions(value, name) or bool(data_of(self.facts.values(value)).models)
                case ast.AugAssign(target=ast.Name() | ast.Attribute(), op=ast.Mult() | ast.Div()):
                    linear = self.alike(value)
                    mentioned = True
                case _:
                    return False
            if not linear:
                return False
        return mentioned

    def _linear(self, value: ast.expr, name: str) -> bool:
        if not self._mentions(value, name):
            return True
        match value:
            case ast.Name() | ast.Attribute():
                return self._is(value, name)
            case ast.BinOp(left=left, op=ast.Add() | ast.Sub(), right=right):
                return self._linear(left, name) and self._linear(right, name)
            case ast.BinOp(left=left, op=ast.Mult(), right=right):
                return (self.alike(left) and self._linear(right, name)) or (
                    self._linear(left, name) and self.alike(right)
                )
            case ast.BinOp(left=left, op=ast.Div(), right=right):
                return self._linear(left, name) and self.alike(right)
            case ast.UnaryOp(op=ast.USub(), operand=inner):
                return self._linear(inner, name)
            case ast.IfExp(test=test, body=body, orelse=orelse):
                return (
                    self._asks_alike(test, name) and self._linear(body, name) and self._linear(orelse, name)
                )
            case _:
                return False

    def _asks_alike(self, test: ast.expr, name: str) -> bool:
        """Whether a test has one answer on all ranks: of the number of the batch, or whether there is a value yet."""
        match test:
            case ast.Compare(left=left, ops=[ast.Is() | ast.IsNot()], comparators=[ast.Constant(value=None)]):
                return self._is(left, name) or self.alike(left)
            case _:
                return self.alike(test)

    def alike(self, value: ast.expr) -> bool:
        """Whether all ranks have one value: of constants, the number of the batch, and what the loop leaves alone."""
        for part in walk(value):
            if isinstance(part, ast.Call | ast.Subscript | ast.Lambda):
                return False
            if isinstance(part, ast.Name | ast.Attribute):
                text = self.module.text(part)
                if text in self.numbered:
                    continue
                if text in self.writes or text in self.targets:
                    return False
        return True

    # --- what a write depends on -------------------------------------------------------------------------------

    def _dependence(
        self, name: str, writes: list[tuple[str, ast.AST, ast.expr | None]]
    ) -> tuple[str, str] | None:
        """Why shares do not add up though each write looks as if they did, in English and Chinese."""
        for _, node, value in writes:
            around = [*self.tests(node), *self._keys(node)]
            given = [
                *(node.args if isinstance(node, ast.Call) else ()),
                *([value] if value is not None else ()),
            ]
            if any(self._reads(part, self.numbered) for part in (*around, *given)):
                return (
                    f"`{name}` depends on the number of the batch, which each rank counts for itself",
                    f"`{name}` 取决于批次的序号,而每个进程各自计数",
                )
        if self._depends_on_what_grows(name, writes):
            return (
                f"`{name}` depends on what has grown so far, and each rank has grown its own",
                f"`{name}` 取决于此前累积的内容,而每个进程各自累积",
            )
        return None

    def _depends_on_what_grows(self, name: str, writes: list[tuple[str, ast.AST, ast.expr | None]]) -> bool:
        for kind, node, value in writes:
            around = [*self.tests(node), *self._keys(node)]
            given = [
                *(node.args if isinstance(node, ast.Call) else ()),
                *([value] if value is not None else ()),
            ]
            others = self.grown - {name} if kind == "set" else self.grown
            if any(self._reads(part, self.grown - self._whether_there(part)) for part in around) or any(
                self._reads(part, others) for part in given
            ):
                return True
        return False

    def _whether_there(self, test: ast.expr) -> frozenset[str]:
        """What a test only asks whether it is None, where the loop adds to it and never binds it anew."""
        found = set()
        for part in walk(test):
            match part:
                case ast.Compare(
                    left=ast.Name() | ast.Attribute() as left,
                    ops=[ast.Is() | ast.IsNot()],
                    comparators=[ast.Constant(value=None)],
                ):
                    name = self.module.text(left)
                    kinds = [kind for kind, _, _ in self.writes.get(name, [])]
                    if not {"set", "other"} & {*kinds} and self._named_in(test, name) == 1:
                        found.add(name)
                case _:
                    continue
        return frozenset(found)

    def _named_in(self, node: ast.AST, name: str) -> int:
        return sum(
            isinstance(part, ast.Name | ast.Attribute) and self.module.text(part) == name
            for part in walk(node)
        )

    def tests(self, node: ast.AST) -> Iterator[ast.expr]:
        """The conditions of a write: those round it, and those under which a batch is skipped before."""
        for parent in self.facts.ancestors(self.module, node):
            if parent is self.loop:
                break
            if isinstance(parent, ast.If | ast.While | ast.IfExp):
                yield parent.test
        for skip in nodes(self.loop, ast.Continue):
            for parent in self.facts.ancestors(self.module, skip):
                if isinstance(parent, ast.For | ast.While):
                    break
                if isinstance(parent, ast.If):
                    yield parent.test

    @staticmethod
    def _keys(node: ast.AST) -> Iterator[ast.expr]:
        """The keys and indices under which a write goes."""
        targets: list[ast.expr] = []
        if isinstance(node, ast.Assign):
            targets = node.targets
        elif isinstance(node, ast.AugAssign | ast.AnnAssign):
            targets = [node.target]
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            targets = [node.func.value]
        for target in targets:
            for part in walk(target):
                if isinstance(part, ast.Subscript):
                    yield part.slice

    def _reads(self, node: ast.expr, names: frozenset[str]) -> bool:
        return bool(names) and any(
            isinstance(part, ast.Name | ast.Attribute) and self.module.text(part) in names
            for part in walk(node)
        )

    @cached_property
    def targets(self) -> frozenset[str]:
        """The names of the loop's own target."""
        return frozenset(node.id for node in walk(self.loop.target) if isinstance(node, ast.Name))

    @cached_property
    def numbered(self) -> frozenset[str]:
        """The number of the batch, and what the loop computes from it."""
        return self._derived({self.counter}) if self.counter else frozenset()

    @cached_property
    def grown(self) -> frozenset[str]:
        """What has grown since the loop began, and what the loop computes from it."""
        growing = {
            name
            for name, writes in self.writes.items()
            if any(self._kind(name, kind, value) not in {"", "set"} for kind, _, value in writes)
            and self._outside(name)
        }
        return self._derived(growing)

    def _derived(self, names: set[str]) -> frozenset[str]:
        """Names, and those that the loop gives a value computed from them."""
        found = set(names)
        while True:
            more = {
                target.id
                for statement in nodes(self.loop, ast.Assign)
                for target in statement.targets
                if isinstance(target, ast.Name)
                and target.id not in found
                and self._reads(statement.value, frozenset(found))
            }
            if not more:
                return frozenset(found)
            found |= more

    def outlives(self, name: str, root: ast.expr, writes: list[tuple[str, ast.AST, ast.expr | None]]) -> bool:
        """Whether somebody reads the value after the loop, or the next time round."""
        if isinstance(root, ast.Attribute):
            base: ast.expr = root
            while isinstance(base, ast.Attribute | ast.Subscript):
                base = base.value
            if isinstance(base, ast.Name) and self._born_inside(base.id):
                return False
            return not self._of_model(root)
        end = self.loop.end_lineno or 0
        outer = self.around()
        for node in nodes(self.scope, ast.Name):
            if node.id != name or not isinstance(node.ctx, ast.Load) or node in self.inside:
                continue
            if node.lineno > end or (node.lineno == end):
                if self._overwritten_before(name, node) or self._rebound_round(node):
                    continue
                return True
            if outer is not None and node in held(outer) and not self._reset_in(name, outer):
                return True
        declared: tuple[ast.Global | ast.Nonlocal, ...]
        declared = (*nodes(self.scope, ast.Global), *nodes(self.scope, ast.Nonlocal))
        if any(name in node.names for node in declared):
            return True
        grows = any(kind.split()[0] in {"add", "grow", "update", "meter"} for kind, _, _ in writes)
        if grows and not self._born_inside(name):
            return self.start(name) == "" and not self._assigned_in_scope(name)
        return False

    def _of_model(self, root: ast.Attribute) -> bool:
        return any(
            isinstance(value, Obj)
            and value.kind in {"model", "wrapped", "optimizer", "scheduler", "file", "iter"}
            for value in self.facts.values(root.value)
        )

    def _born_inside(self, name: str) -> bool:
        """Whether the loop body binds the name itself, before it changes it."""
        writes = self.writes.get(name, [])
        return bool(writes) and writes[0][0] == "set" and not self._mentions_first(writes[0], name)

    def _mentions_first(self, write: tuple[str, ast.AST, ast.expr | None], name: str) -> bool:
        return write[2] is not None and self._mentions(write[2], name)

    def _assigned_in_scope(self, name: str) -> bool:
        return any(
            isinstance(node, ast.Name) and node.id == name and isinstance(node.ctx, ast.Store)
            for node in walk(self.scope)
            if node not in self.inside
        )

    def around(self) -> ast.For | ast.While | None:
        for parent in self.facts.ancestors(self.module, self.loop):
            if parent is self.scope:
                return None
            if isinstance(parent, ast.For | ast.While):
                return parent
        return None

    def _reset_in(self, name: str, outer: ast.For | ast.While) -> bool:
        """Whether the outer loop gives the name a fresh start before this loop."""
        return any(name in _bound_by(statement) for statement in self._before(outer))

    def _overwritten_before(self, name: str, node: ast.Name) -> bool:
        """Whether the name is bound anew between the loop and a read."""
        here: ast.AST = self.loop
        while here is not self.scope:
            parent = self.facts.parents(self.module)[here]
            if isinstance(here, ast.stmt):
                block = self.facts.block(self.module, here)
                later = block[block.index(here) + 1 :]
                if _rebound(later, name, node):
                    return True
                if any(node in held(statement) for statement in later):
                    return False
            here = parent
        return False

    def _before(self, stop: ast.AST) -> Iterator[ast.stmt]:
        """Statements that come before the loop in its blocks, nearest first, up to `stop`."""
        here: ast.AST = self.loop
        while here is not stop:
            if isinstance(here, ast.stmt):
                try:
                    block = self.facts.block(self.module, here)
                except AssertionError:
                    block = [here]
                yield from reversed(block[: block.index(here)])
            parent = self.facts.parents(self.module).get(here)
            if parent is None:
                return
            here = parent

    def start(self, name: str) -> str:
        """What the value is before the loop: zero, an empty list, …; nothing where that is not seen."""
        stop = self.around() or self.scope
        for statement in self._before(stop):
            if isinstance(statement, ast.Assign):
                for target in statement.targets:
                    value = _part(target, statement.value, name, self.module)
                    if value is not None:
                        return self._empty(value)
            elif isinstance(statement, ast.AnnAssign) and statement.value is not None:
                if self._is(statement.target, name):
                    return self._empty(statement.value)
            elif isinstance(statement, ast.AugAssign) and self._is(statement.target, name):
                return "other"
            elif isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call):
                function = statement.value.func
                if (
                    isinstance(function, ast.Attribute)
                    and self._is(function.value, name)
                    and function.attr == "reset"
                ):
                    return "meter"
            elif isinstance(statement, ast.If) and name in _bound_by(statement):
                return self._start_under(statement, name)
            elif name in _bound_by(statement):
                return "other"
        return ""

    def _start_under(self, branch: ast.If, name: str) -> str:
        """What a value is that is bound under a condition, on which all ranks agree: there it is, or it is None."""
        body, orelse = (self._bound_last(block, name) for block in (branch.body, branch.orelse))
        if not orelse and self._decided(branch):
            self.reading.conditions[name] = branch.test
            return body
        return _there_or_none(body, orelse) if orelse else "other"

    def _bound_last(self, block: list[ast.stmt], name: str) -> str:
        """What a block makes of a value; nothing where it leaves it alone."""
        for statement in reversed(block):
            if isinstance(statement, ast.Assign):
                for target in statement.targets:
                    value = _part(target, statement.value, name, self.module)
                    if value is not None:
                        return _NONE if is_none(value) else self._empty(value)
            if name in _bound_by(statement):
                return "other"
        return ""

    def _decided(self, branch: ast.If) -> bool:
        """Whether a condition has one answer on all ranks, which it keeps."""
        if not self.alike(branch.test):
            return False
        parts = [part for part in walk(branch.test) if isinstance(part, ast.Name | ast.Attribute)]
        if any(data_of(self.facts.values(part)).local for part in parts):
            return False
        names = {self.module.text(part) for part in parts}
        bound: tuple[ast.Name | ast.Attribute, ...] = (
            *nodes(self.scope, ast.Name),
            *nodes(self.scope, ast.Attribute),
        )
        return not any(
            isinstance(node.ctx, ast.Store)
            and node.lineno > branch.lineno
            and self.module.text(node) in names
            for node in bound
        )

    def _empty(self, value: ast.expr) -> str:
        match value:
            case ast.Constant(value=int() | float() as number):
                return "zero" if number == 0 else "number"
            case ast.UnaryOp(operand=inner):
                return "number" if self._empty(inner) in {"zero", "number"} else "other"
            case ast.List(elts=[]) | ast.Constant(value=""):
                return "empty"
            case ast.Set(elts=[]):
                return "empty"
            case ast.Dict(values=values):
                kinds = {self._empty(item) for item in values}
                return "dict of lists" if kinds == {"empty"} else "dict" if kinds <= {"zero"} else "other"
            case ast.DictComp(value=item):
                return {"zero": "dict", "empty": "dict of lists"}.get(self._empty(item), "other")
            case ast.ListComp(elt=item):
                return "list of zeros" if self._empty(item) == "zero" else "other"
            case ast.BinOp(left=ast.List(elts=[item]), op=ast.Mult()):
                return "list of zeros" if self._empty(item) == "zero" else "other"
            case ast.List(elts=items):
                return "list of zeros" if all(self._empty(item) == "zero" for item in items) else "other"
            case ast.IfExp(body=body, orelse=orelse):
                return _there_or_none(
                    *(_NONE if is_none(part) else self._empty(part) for part in (body, orelse))
                )
            case ast.Call(func=function, args=args):
                return self._empty_call(value, function, args)
            case _:
                return "other"

    def _empty_call(self, call: ast.Call, function: ast.expr, args: list[ast.expr]) -> str:
        if isinstance(function, ast.Attribute) and function.attr in {
            "to",
            "cuda",
            "float",
            "double",
            "long",
            "int",
            "cpu",
            "half",
            "astype",
            "type",
        }:
            return self._empty(function.value)
        names = self._named(function)
        if names & {
            "torch.zeros",
            "numpy.zeros",
            "torch.zeros_like",
            "numpy.zeros_like",
            "collections.Counter",
        }:
            return "dict" if "collections.Counter" in names else "zero"
        if names & {
            "torch.tensor",
            "numpy.array",
            "torch.as_tensor",
            "torch.FloatTensor",
            "torch.Tensor",
            "torch.LongTensor",
            "numpy.float64",
            "numpy.float32",
        }:
            if not args:
                return "empty tensor"
            inner = self._empty(args[0])
            return {"empty": "empty tensor", "list of zeros": "zero"}.get(inner, inner)
        if names & {"torch.empty", "numpy.empty"}:
            return "empty tensor" if args and self._leads_with_zero(args) else "other"
        if names & {"builtins.list", "builtins.set"} and not args:
            return "empty"
        if names & {"builtins.dict"} and not args:
            return "dict"
        if names & {"builtins.int", "builtins.float"} and not args:
            return "zero"
        if "collections.defaultdict" in names:
            kinds = {getattr(value, "name", "") for value in self.facts.values(args[0])} if args else set()
            if kinds == {"builtins.list"}:
                return "dict of lists"
            return "dict" if kinds & {"builtins.int", "builtins.float"} else "other"
        if any(isinstance(value, Obj) and value.kind == "instance" for value in self.facts.values(call)):
            return "meter"
        return "other"

    @staticmethod
    def _leads_with_zero(args: list[ast.expr]) -> bool:
        first = args[0].elts[0] if isinstance(args[0], ast.Tuple | ast.List) and args[0].elts else args[0]
        return isinstance(first, ast.Constant) and first.value == 0

    def _judge_meter(self, name: str, root: ast.expr, node: ast.AST) -> None:
        value = self._meter(root)
        start = self.start(name)
        meter = meter_of(value) if value is not None else None
        if meter is None or start != "meter":
            self.reading.problem(
                node,
                f"`{name}` keeps state of its own that was not understood",
                f"`{name}` 内部保存的状态无法识别",
            )
            return
        self.reading.carried.append(Carried(name, How.METER, node))
        self.reading.meters[name] = meter

    def _judge_counter(self) -> None:
        end = self.loop.end_lineno or 0
        for node in walk(self.scope):
            if (
                isinstance(node, ast.Name)
                and node.id in self.targets
                and isinstance(node.ctx, ast.Load)
                and node.lineno > end
                and node not in self.inside
                and not self._overwritten_before(node.id, node)
                and not self._rebound_round(node)
            ):
                if node.id == self.counter:
                    self.reading.carried.append(Carried(node.id, How.COUNT, node))
                else:
                    self.reading.problem(
                        node,
                        f"`{node.id}` is the last batch's, and each rank has another last batch",
                        f"`{node.id}` 是最后一个批次的值,而各卡的最后一个批次不同",
                    )
                return

    def _rebound_round(self, node: ast.Name) -> bool:
        """Whether a read after the loop belongs to another loop or comprehension that binds the name itself."""
        for parent in self.facts.ancestors(self.module, node):
            if parent is self.scope:
                return False
            if isinstance(parent, ast.For) and node.id in {
                part.id for part in walk(parent.target) if isinstance(part, ast.Name)
            }:
                return True
            if isinstance(parent, ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp):
                bound = {
                    part.id
                    for gen in parent.generators
                    for part in walk(gen.target)
                    if isinstance(part, ast.Name)
                }
                if node.id in bound:
                    return True
        return False

    def _leaves(self) -> None:
        """Ways out of the loop before its end."""
        for statement in self.loop.body:
            for node in walk_scope(statement):
                if isinstance(node, ast.Return):
                    self.reading.problem(node, "the loop returns before its end", "循环没走完就返回")
                elif isinstance(node, ast.Break) and self._breaks_this(node):
                    self.reading.problem(
                        node,
                        "the loop stops after some batches, counted by one process",
                        "循环中途停止,按单个进程的批次计数",
                    )

    def _breaks_this(self, node: ast.Break) -> bool:
        for parent in self.facts.ancestors(self.module, node):
            if isinstance(parent, ast.For | ast.While):
                return parent is self.loop
        return False


_NONE = "none"


def _there_or_none(one: str, other: str) -> str:
    """What a value is that may be None instead."""
    return one if other in {one, _NONE} else other if one == _NONE else "other"


def meter_of(value: Obj) -> Meter | None:
    """How an object of a user's class adds up, if it does nothing else."""
    if value.cls is None:
        return None
    sums: dict[str, None] = {}
    derived: dict[str, str] = {}
    for method in value.cls.node.body:
        if not isinstance(method, ast.FunctionDef) or method.name in {
            "__init__",
            "reset",
            "__str__",
            "__repr__",
            "summary",
        }:
            continue
        parameters = {arg.arg for arg in method.args.args[1:]}
        for node in _walk_scope_all(method.body):
            match node:
                case ast.AugAssign(target=ast.Attribute(value=ast.Name(id="self"), attr=attr), op=ast.Add()):
                    sums[attr] = None
                case ast.Assign(
                    targets=[ast.Attribute(value=ast.Name(id="self"), attr=attr)], value=expression
                ):
                    names = {part.id for part in walk(expression) if isinstance(part, ast.Name)}
                    if names <= parameters | {"float", "int"} and "self" not in names:
                        continue
                    if names <= {"self", "max", "min", "float", "math", "np", "torch"} and not _calls_methods(
                        expression
                    ):
                        derived[attr] = ast.unparse(expression)
                    else:
                        return None
                case ast.Assign(targets=[ast.Name()]) | ast.AnnAssign(target=ast.Name()):
                    continue
                case ast.Assign() | ast.AugAssign():
                    return None
                case ast.Call(func=ast.Attribute(value=ast.Attribute(value=ast.Name(id="self")), attr=attr)):
                    if attr in {"append", "extend", "update", "add", "insert", "pop", "add_", "popleft"}:
                        return None
                case _:
                    continue
    if not sums or set(derived) & set(sums):
        return None
    return Meter(tuple(sums), tuple(derived.items()))


def _calls_methods(expression: ast.expr) -> bool:
    return any(
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and isinstance(node.func.value, ast.Name)
        and node.func.value.id == "self"
        for node in walk(expression)
    )


def walk_scope(node: ast.AST) -> Iterator[ast.AST]:
    """A node and what stands in it, nested functions and classes left out."""
    yield node
    for child in children(node):
        if not isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Lambda):
            yield from walk_scope(child)


def _walk_scope_all(body: list[ast.stmt]) -> Iterator[ast.AST]:
    for statement in body:
        yield from walk_scope(statement)


def _bound_by(statement: ast.stmt) -> frozenset[str]:
    """Names that a statement binds, at any depth."""
    return frozenset(
        node.id
        for node in walk_scope(statement)
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
    )


def _rebound(block: list[ast.stmt], name: str, node: ast.Name) -> bool:
    """Whether statements bind a name, on every way through them, before they come to a read of it."""
    for statement in block:
        if node in held(statement):
            inner = [getattr(statement, field, []) for field in ("body", "orelse", "finalbody")]
            return any(_rebound(part, name, node) for part in inner)
        if _binds(statement, name):
            return True
    return False


def _binds(statement: ast.stmt, name: str) -> bool:
    """Whether a statement binds a name whatever happens; a loop is taken to go round at least once."""
    match statement:
        case ast.Assign() | ast.AnnAssign(value=ast.expr()):
            return name in _bound_by(statement)
        case ast.For(target=target):
            return any(isinstance(part, ast.Name) and part.id == name for part in walk(target))
        case ast.With(body=body) | ast.Try(body=body):
            return any(_binds(inner, name) for inner in body)
        case ast.If(body=body, orelse=orelse):
            return any(_binds(inner, name) for inner in body) and any(_binds(inner, name) for inner in orelse)
        case _:
            return False


def _part(target: ast.expr, value: ast.expr, name: str, module: Module) -> ast.expr | None:
    """What a name gets from an assignment, tuples taken apart."""
    if isinstance(target, ast.Name | ast.Attribute):
        return value if module.text(target) == name else None
    if isinstance(target, ast.Tuple | ast.List):
        for index, element in enumerate(target.elts):
            if isinstance(element, ast.Name | ast.Attribute) and module.text(element) == name:
                if isinstance(value, ast.Tuple | ast.List) and len(value.elts) == len(target.elts):
                    return value.elts[index]
                return value
    return None


def _is_plain(node: ast.expr) -> bool:
    """Whether an expression is a name, or an attribute of one: it means after the loop what it means in it."""
    while isinstance(node, ast.Attribute):
        node = node.value
    return isinstance(node, ast.Name)


def _is_text(value: ast.expr | None) -> bool:
    """Whether a value is a text with something filled in."""
    match value:
        case ast.JoinedStr():
            return True
        case ast.BinOp(left=left, op=ast.Mod() | ast.Add()):
            return _is_text(left) or (isinstance(left, ast.Constant) and isinstance(left.value, str))
        case ast.Call(func=ast.Attribute(value=ast.Constant(value=str()), attr="format")):
            return True
        case _:
            return False
