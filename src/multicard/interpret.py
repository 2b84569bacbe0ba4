"""Follows the program from its first line as Python would, with sets of values in place of values.

Calls are followed into local functions, classes and modules with what they are given, so that `run(model, loader,
train=True)` and `run(model, loader, train=False)` are two stories; branches that such a literal decides are taken
or not.  What happens on the way (a model is called, a loss goes backward, a file is written) is recorded as events,
each with the loops and calls round it.  Loops get their meaning from these events, not from the words in the script.
"""

import ast
import builtins
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import reduce
from typing import NamedTuple

from multicard import couplings, libraries
from multicard.program import Program, absolute
from multicard.source import Module, Site
from multicard.tree import children, walk
from multicard.values import (
    NONE,
    NOTHING,
    PLAIN,
    SOME,
    Class,
    Const,
    Data,
    Func,
    Lib,
    Member,
    Method,
    Mod,
    Obj,
    Unknown,
    Value,
    Values,
    average_at,
    averages_in,
    bent_at,
    constant,
    contained,
    coupled_at,
    data_of,
    in_source,
    join,
    mean_at,
    merge,
    mixed_at,
    objects,
    one,
    ordered,
    ratio_at,
    sums_in,
)

BUILTINS = frozenset(dir(builtins))
DEEPEST = 24
ROUNDS = 4  # what is followed late defines more that nothing has called yet
Written = dict[tuple[Obj, str], tuple[Values | None, Values | None]]
"""Attributes that a branch writes: what they held before it, and at its end."""
_NOWHERE = ast.Tuple([], ast.Load())
OFTEN, SELDOM = 40, 4
"""How many calls of one function are followed; the fewer where the program makes very many calls."""
MANY = 3000
_PLACED = (ast.expr, ast.stmt)
_IDENTITY = (ast.Is, ast.IsNot)
_MEMBERSHIP = (ast.In, ast.NotIn)
_MADE = (Obj, Func, Class)
CONTAINERS = frozenset({"list", "tuple", "dict", "set", "iter"})


@dataclass(eq=False, repr=False)
class Loop:
    """A loop while its body is followed."""

    node: ast.For | ast.AsyncFor | ast.While | ast.comprehension
    module: Module
    over: Values
    loaders: tuple[Obj, ...]
    calls: tuple[ast.AST, ...]
    exits: list[dict[str, Values]] = field(default_factory=list)


@dataclass(eq=False, repr=False)
class Event:
    """Something that happened, and round it the loops, the calls and the grad mode."""

    kind: str
    name: str
    node: ast.AST
    module: Module
    subject: Value | None
    args: dict[str, Values]
    loops: tuple[Loop, ...]
    calls: tuple[ast.AST, ...]
    frames: tuple["Frame", ...]
    grad: bool
    evaluating: bool
    dead: bool
    inside: tuple[Obj, ...]
    order: int
    tainted: bool
    result: Values = NOTHING

    def loop_nodes(self) -> tuple[ast.AST, ...]:
        """The loops round it, outermost first."""
        return tuple(loop.node for loop in self.loops)


@dataclass(eq=False, repr=False)
class Frame:
    """A scope while its code is followed."""

    module: Module
    node: ast.AST | None
    names: dict[str, Values]
    parent: "Frame | None" = None
    top: "Frame | None" = None
    returns: Values = NOTHING
    yields: Values = NOTHING
    walks: bool = False
    """Whether what it yields comes out of a loader as it goes."""
    globals: set[str] = field(default_factory=set)
    nonlocals: set[str] = field(default_factory=set)
    self_value: Obj | None = None
    cls: Class | None = None


class Wrap(NamedTuple):
    """After this statement the target is bound to the wrapped model (planned, then followed)."""

    statement: ast.stmt
    target: ast.expr


class Interpreter:
    """One run over a program."""

    def __init__(
        self,
        program: Program,
        wraps: Iterable[Wrap] = (),
        models: frozenset[ast.AST] = frozenset(),
        *,
        tracing: bool = False,
    ) -> None:
        self.program = program
        self.models = models
        """Calls and classes of which it is known that they make models, though their makers cannot be followed."""
        self.tracing = tracing
        """Give identity to what unknown calls return, to learn where it was made."""
        self.guessed: set[Obj] = set()
        self.sums: dict[str, tuple[Module, ast.Call, bool]] = {}
        """Where sums over the batch are made, by their tags, and whether they may be sums of each sample."""
        self.averages: dict[str, tuple[Module, ast.Call]] = {}
        """Where means over the batch are made, by their tags."""
        self.wraps: dict[ast.stmt, list[Wrap]] = {}
        for wrap in wraps:
            self.wraps.setdefault(wrap.statement, []).append(wrap)
        self.events: list[Event] = []
        self.frames: dict[Module, Frame] = {}
        self.born: dict[tuple[object, ...], Obj] = {}
        self.first: dict[Class, Obj] = {}
        self.loops: list[Loop] = []
        self.calls: list[ast.AST] = []
        self.stack: list[Frame] = []
        self.inside: list[Obj] = []
        self.iterating: set[Obj] = set()
        self.graded: set[Obj] = set()
        """Models, and parts of them, that were called with gradients on."""
        self.grad = True
        self.evaluating: dict[Obj, bool] = {}
        self.dead = False
        self.taint = 0
        self.unsure = 0
        """How many tests stand around that may go either way."""
        self.journals: list[dict[tuple[Obj, str], Values | None]] = []
        """What the attributes held that the branches around have written."""
        self.frame: Frame = Frame(program.entry, None, {})
        self.visited: set[ast.AST] = set()
        self.pruned: list[tuple[list[ast.stmt], Frame, dict[str, Values]]] = []
        self.functions: dict[ast.AST, Func] = {}
        self.count: dict[ast.AST, int] = {}
        self.followed = 0
        self.known: dict[ast.AST, Values] = {}
        self.seen: dict[ast.AST, Values] = {}
        self.wrapped: dict[Obj, Obj] = {}
        self._statements: dict[type[ast.stmt], Callable[..., bool]] = {
            kind: getattr(self, f"exec_{kind.__name__}")
            for kind in ast.stmt.__subclasses__()
            if hasattr(self, f"exec_{kind.__name__}")
        }
        self._expressions: dict[type[ast.expr], Callable[..., Values]] = {
            kind: getattr(self, f"eval_{kind.__name__}")
            for kind in ast.expr.__subclasses__()
            if hasattr(self, f"eval_{kind.__name__}")
        }

    # --- running ---------------------------------------------------------------------------------------------

    def run(self) -> None:
        """Follow the entry, then the branches that it leaves aside, marked as dead."""
        self.module(self.program.entry)
        self._commands()
        self.dead = True
        self._aside()

    def rest(self) -> None:
        """Follow the functions that nothing calls, marked as dead."""
        for _ in range(ROUNDS):
            unreached = [
                function
                for node, function in list(self.functions.items())
                if node not in self.count and not isinstance(node, ast.Lambda)
            ]
            for function in unreached:
                bound = self._orphan(function.cls) if function.cls else None
                given: Value = Func(
                    function.node, function.module, function.closure, bound, function.cls, function.decorators
                )
                self.apply(given, None, [], {}, starred=True)
            self._aside()
            if not unreached:
                break

    def _aside(self) -> None:
        """Follow the branches left aside so far, and those within them."""
        for _ in range(ROUNDS):
            waiting = [item for item in self.pruned if item[0] and item[0][0] not in self.visited]
            self.pruned = []
            for body, frame, names in waiting:
                self._resume(frame, names, body)
            if not waiting:
                break

    def _commands(self) -> None:
        """Follow what the command line chooses among: functions under `@app.command()`."""
        for node, function in list(self.functions.items()):
            if node not in self.count and function.module is self.program.entry and _is_command(node):
                self.frame = self.frames[function.module]
                self.apply(function, None, [], {}, starred=True)

    def _orphan(self, cls: Class) -> Obj:
        known = self.first.get(cls)
        return known or self.birth(self._kind_of(cls), cls.node.name, cls.node, cls=cls, module=cls.module)

    def _resume(self, frame: Frame, names: dict[str, Values], body: list[ast.stmt]) -> None:
        before, current = frame.names, self.frame
        frame.names, self.frame = dict(names), frame
        self.stack.append(frame)
        self.block(body)
        self.stack.pop()
        frame.names, self.frame = before, current

    def module(self, module: Module) -> Frame:
        """The frame of a local module, followed on its first import."""
        if module in self.frames:
            return self.frames[module]
        frame = Frame(module, None, {})
        frame.top = frame
        name = "__main__" if module is self.program.entry else module.name
        frame.names["__name__"] = one(Const(name))
        frame.names["__file__"] = SOME
        self.frames[module] = frame
        current, self.frame = self.frame, frame
        loops, self.loops = self.loops, []
        self.stack.append(frame)
        self.block(module.tree.body)
        self.stack.pop()
        self.frame, self.loops = current, loops
        return frame

    def record(
        self,
        kind: str,
        name: str,
        node: ast.AST,
        subject: Value | None = None,
        args: dict[str, Values] | None = None,
        result: Values = NOTHING,
    ) -> Event:
        """Note that something happened here and now."""
        evaluating = bool(self.evaluating) and all(self.evaluating.values())
        if isinstance(subject, Obj):
            model = subject.inner or subject
            evaluating = self.evaluating.get(model, self.evaluating.get(model.root, False))
        event = Event(
            kind,
            name,
            node,
            self.frame.module,
            subject,
            args or {},
            tuple(self.loops),
            tuple(self.calls),
            tuple(self.stack),
            self.grad,
            evaluating,
            self.dead,
            tuple(self.inside),
            len(self.events),
            self.taint > 0,
            result,
        )
        self.events.append(event)
        return event

    def birth(
        self,
        kind: str,
        name: str,
        node: ast.AST,
        *,
        cls: Class | None = None,
        module: Module | None = None,
    ) -> Obj:
        """The object born at a node on this way of getting there: the same one each time."""
        key = (node, kind, *self.calls[-6:])
        found = self.born.get(key)
        if found is None or (found.cls is not cls and cls is not None):
            site = None
            if isinstance(node, _PLACED) and hasattr(node, "lineno"):
                site = Site(module or self.frame.module, node)
            found = Obj(
                kind, name, site, cls, call=node if isinstance(node, ast.Call) else None, by=tuple(self.calls)
            )
            self.born[key] = found
        if cls is not None:
            self.first.setdefault(cls, found)
        return found

    # --- statements ------------------------------------------------------------------------------------------

    def block(self, body: list[ast.stmt]) -> bool:
        """Follow statements; whether control falls out of the end."""
        for statement in body:
            self.visited.add(statement)
            method = self._statements.get(statement.__class__)
            falls = True if method is None else method(statement)
            if statement in self.wraps:
                for wrap in self.wraps[statement]:
                    self._wrap(wrap)
            if falls is False:
                return False
        return True

    def _wrap(self, wrap: Wrap) -> None:
        values = self.eval(wrap.target)
        changed: Values = NOTHING
        for value in ordered(values):
            if isinstance(value, Obj) and value.kind == "model":
                changed = join(changed, one(self.wrapper(value)))
            elif isinstance(value, Obj) and value.kind == "wrapped":
                changed = join(changed, one(value))
        if changed:
            for value in changed:
                self.record("wrap", "", wrap.target, value)
            self.store(wrap.target, changed | frozenset(v for v in values if v == Const(None)), strong=True)

    def wrapper(self, model: Obj, name: str = "DDP") -> Obj:
        """The wrapper of a model."""
        found = self.wrapped.get(model)
        if found is None:
            found = Obj("wrapped", name, model.site, inner=model)
            self.wrapped[model] = found
        return found

    def exec_Expr(self, node: ast.Expr) -> bool:
        self.eval(node.value)
        return not (isinstance(node.value, ast.Call) and self._exits(node.value))

    def _exits(self, call: ast.Call) -> bool:
        return any(
            isinstance(value, Lib) and value.name in libraries.EXITS for value in self.seen.get(call.func, ())
        )

    def exec_Assign(self, node: ast.Assign) -> bool:
        values = self.eval(node.value)
        for target in node.targets:
            self.store(target, values)
        return True

    def exec_AnnAssign(self, node: ast.AnnAssign) -> bool:
        if node.value is not None:
            self.store(node.target, self.eval(node.value))
        return True

    def exec_AugAssign(self, node: ast.AugAssign) -> bool:
        old = self.eval(_as_load(node.target))
        new = self.eval(node.value)
        for value in old:
            if isinstance(value, Obj) and value.kind == "list":
                self.extend(value, new)
                return True
        united = self._united(node, node.op, old, new)
        if united is not None:
            self.store(node.target, one(united))
            return True
        left, right = data_of(old), data_of(new)
        if isinstance(node.op, ast.Add) and (counted := self._counted(old, new)):
            result = counted
        elif isinstance(node.op, ast.Mult):
            result = self.multiplied(node, left, right)
        elif isinstance(node.op, ast.Div):
            result = self.divided(node, left, right, new)
        elif isinstance(node.op, ast.Add | ast.Sub):
            result = self._added(node, left, right)
            if "size" in right.tags and not result.models and self._goes_on(node):
                result = Data(result.models, result.loaders, result.tags | {"running"})
        else:
            result = merge([left, right])
        self.store(node.target, one(result))
        return True

    def _goes_on(self, node: ast.AugAssign) -> bool:
        """Whether what is added up here goes on from batch to batch, and is no size of one batch."""
        loop = self.loops[-1] if self.loops else None
        if loop is None or not isinstance(loop.node, ast.For | ast.While):
            return False
        steps = any(isinstance(part, ast.Attribute) and part.attr == "backward" for part in walk(loop.node))
        target = ast.unparse(node.target)
        return bool(loop.loaders or steps) and not any(
            isinstance(statement, ast.Assign) and target in map(ast.unparse, statement.targets)
            for statement in loop.node.body
        )

    def _counted(self, old: Values, new: Values) -> Data | None:
        """A number of things that a batch brings, counted one by one: each rank counts its own."""
        over = [data_of(loop.over) for loop in self.loops if not loop.loaders]
        within = [data for data in over if "batch" in data.tags and data.loaders]
        ones = all(isinstance(value, Const) and isinstance(value.value, int) for value in new)
        if not within or not ones or not all(_is_number(value) for value in old):
            return None
        return Data(loaders=merge(within).loaders, tags=frozenset({"local", "count"}))

    def extend(self, target: Obj, values: Values) -> None:
        """Elements of `values` go into a list."""
        for value in values:
            if isinstance(value, Obj) and value.kind in CONTAINERS and value is not target:
                for item in value.items or ():
                    target.rest = join(target.rest, item)
                target.rest = join(target.rest, value.rest)
            elif isinstance(value, Data):
                target.rest = join(target.rest, one(value))

    def exec_Return(self, node: ast.Return) -> bool:
        self.frame.returns = join(self.frame.returns, self.eval(node.value) if node.value else NONE)
        return False

    def exec_Raise(self, node: ast.Raise) -> bool:
        if node.exc is not None:
            self.eval(node.exc)
        return False

    def exec_Break(self, node: ast.Break) -> bool:
        if self.loops:
            self.loops[-1].exits.append(dict(self.frame.names))
        return False

    def exec_Continue(self, node: ast.Continue) -> bool:
        return self.exec_Break(ast.Break())

    def exec_Global(self, node: ast.Global) -> bool:
        self.frame.globals.update(node.names)
        return True

    def exec_Nonlocal(self, node: ast.Nonlocal) -> bool:
        self.frame.nonlocals.update(node.names)
        return True

    def exec_Delete(self, node: ast.Delete) -> bool:
        for target in node.targets:
            if isinstance(target, ast.Attribute | ast.Subscript):
                self.eval(target)
        return True

    def exec_Assert(self, node: ast.Assert) -> bool:
        self.eval(node.test)
        return True

    def exec_Import(self, node: ast.Import) -> bool:
        for alias in node.names:
            value = self._imported(alias.name)
            if alias.asname:
                self.frame.names[alias.asname] = one(value)
            else:
                first = alias.name.partition(".")[0]
                self.frame.names[first] = one(self._imported(first))
        return True

    def _imported(self, name: str) -> Value:
        module = self.program.find(name)
        if module is not None and name != "__main__":
            return Mod(module, self.module(module))
        return Lib(libraries.canonical(name))

    def exec_ImportFrom(self, node: ast.ImportFrom) -> bool:
        base = absolute(self.frame.module, node)
        module = self.program.find(base) if base else None
        for alias in node.names:
            name = alias.asname or alias.name
            if alias.name == "*":
                if module is not None:
                    frame = self.module(module)
                    for key, values in frame.names.items():
                        if not key.startswith("__"):
                            self.frame.names[key] = values
                else:
                    brought = libraries.star(base)
                    for key in brought:
                        self.frame.names[key] = one(Lib(libraries.canonical(f"{base}.{key}")))
                    for key, name in () if brought else libraries.USUAL.items():
                        self.frame.names.setdefault(key, one(Lib(name)))
                continue
            dotted = f"{base}.{alias.name}" if base else alias.name
            inner = self.program.find(dotted)
            if module is not None:
                frame = self.module(module)
                if alias.name in frame.names:
                    self.frame.names[name] = frame.names[alias.name]
                    continue
            if inner is not None:
                self.frame.names[name] = one(Mod(inner, self.module(inner)))
            elif module is not None:
                self.frame.names[name] = one(Unknown(f"`{alias.name}` is not defined in {base}"))
            else:
                self.frame.names[name] = one(Lib(libraries.canonical(dotted)))
        return True

    def exec_FunctionDef(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
        decorators = []
        for decorator in node.decorator_list:
            self.eval(decorator)
            target = decorator.func if isinstance(decorator, ast.Call) else decorator
            for value in self.seen.get(target, NOTHING):
                if isinstance(value, Lib | Method):
                    decorators += [value.name]
        function = Func(node, self.frame.module, self.frame, cls=self.frame.cls, decorators=tuple(decorators))
        self.functions.setdefault(node, function)
        self.frame.names[node.name] = self._decorated(node, one(function))
        return True

    def _decorated(self, node: ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef, made: Values) -> Values:
        """What the script's own decorators make of a definition: a registry keeps it, a wrapper stands for it."""
        for decorator in reversed(node.decorator_list):
            for value in self.seen.get(decorator, NOTHING) or self.eval(decorator):
                if isinstance(value, Func) or (isinstance(value, Obj) and value.cls is not None):
                    result = self.apply(value, None, [made], {})
                    kept = frozenset(item for item in result if isinstance(item, Func | Class))
                    made = kept or made
        return made

    exec_AsyncFunctionDef = exec_FunctionDef

    def exec_ClassDef(self, node: ast.ClassDef) -> bool:
        bases = tuple(self.eval(base) for base in node.bases)
        cls = Class(node, self.frame.module, self.frame, bases)
        body = Frame(self.frame.module, node, cls.names, self.frame, self.frame.top, cls=cls)
        current, self.frame = self.frame, body
        self.block(node.body)
        self.frame = current
        self.frame.names[node.name] = one(cls)
        for decorator in node.decorator_list:
            self.eval(decorator)
        self.frame.names[node.name] = self._decorated(node, one(cls))
        return True

    def exec_If(self, node: ast.If) -> bool:
        values = self.eval(node.test)
        decided = truth(values)
        if decided is not None:
            taken, left = (node.body, node.orelse) if decided else (node.orelse, node.body)
            if left:
                self.pruned.append((left, self.frame, dict(self.frame.names)))
            return self.block(taken)
        tainted = data_of(values).local
        self.taint += tainted
        self.unsure += 1
        before = self.frame.names
        self.frame.names = dict(before)
        self.narrow(node.test)
        first_falls, first_written = self._branch(node.body)
        first = self.frame.names
        self.frame.names = dict(before)
        for (obj, attr), (old, _) in first_written.items():
            _put(obj, attr, old)
        second_falls, second_written = self._branch(node.orelse)
        second = self.frame.names
        self._meet(first_written, second_written, both=first_falls and second_falls)
        self.taint -= tainted
        self.unsure -= 1
        if first_falls and second_falls:
            self.frame.names = joined(first, second, tainted=tainted)
        else:
            self.frame.names = first if first_falls else second
        return first_falls or second_falls

    def _branch(self, body: list[ast.stmt]) -> tuple[bool, Written]:
        """Follow one of two branches; whether control falls out of it, and the attributes that it writes."""
        self.journals.append({})
        falls = self.block(body)
        journal = self.journals.pop()
        return falls, {(obj, attr): (old, obj.attrs.get(attr)) for (obj, attr), old in journal.items()}

    def _meet(self, first: Written, second: Written, *, both: bool) -> None:
        """Give each attribute that was written in a branch what it may hold behind both."""
        for obj, attr in {**first, **second}:
            ways = [written[obj, attr] for written in (first, second) if (obj, attr) in written]
            old = ways[0][0]
            held = [value for _, value in ways if value is not None]
            if both and len(ways) == 1 and old is not None:
                held.append(old)
            _put(obj, attr, reduce(join, held) if held else None)
            for journal in self.journals[-1:]:
                journal.setdefault((obj, attr), old)

    def narrow(self, test: ast.expr) -> None:
        """`if x is not None:` leaves None out of x in the body."""
        match test:
            case ast.Compare(
                left=ast.Name(id=name), ops=[ast.IsNot()], comparators=[ast.Constant(value=None)]
            ):
                pass
            case ast.Name(id=name):
                pass
            case _:
                return
        values = self.frame.names.get(name)
        if values and len(values) > 1:
            self.frame.names[name] = values - NONE

    def exec_For(self, node: ast.For | ast.AsyncFor) -> bool:
        over = self.eval(node.iter)
        items = self._unrolled(over)
        if items is not None:
            for index, item in enumerate(items):
                loop = Loop(node, self.frame.module, over, (), tuple(self.calls))
                self.loops.append(loop)
                self.calls.append(_turn(node, index))
                self.store(node.target, item, strong=True)
                self.block(node.body)
                self.calls.pop()
                self.loops.pop()
                for names in loop.exits:
                    self.frame.names = joined(self.frame.names, names)
            self.block(node.orelse)
            return True
        loop = Loop(node, self.frame.module, over, tuple(self.loaders_of(over)), tuple(self.calls))
        for loader in loop.loaders:
            self.record("iterate", "for", node, loader)
        self._loop(loop, node.body, lambda: self.store(node.target, self.iterate(over)), node.orelse)
        return True

    exec_AsyncFor = exec_For

    def _unrolled(self, over: Values) -> list[Values] | None:
        if len(over) != 1:
            return None
        (value,) = over
        if not isinstance(value, Obj) or value.items is None or value.rest or not 1 <= len(value.items) <= 4:
            return None
        if value.kind not in {"list", "tuple"}:
            return None
        for item in value.items:
            if not all(isinstance(inner, Const) and isinstance(inner.value, str) for inner in item):
                return None
        return [
            frozenset(Const(inner.value) for inner in item if isinstance(inner, Const))
            for item in value.items
        ]

    def exec_While(self, node: ast.While) -> bool:
        self.eval(node.test)
        loop = Loop(node, self.frame.module, NOTHING, (), tuple(self.calls))
        self._loop(loop, node.body, lambda: self.eval(node.test), node.orelse)
        return True

    def _loop(
        self, loop: Loop, body: list[ast.stmt], begin: Callable[[], object], orelse: list[ast.stmt]
    ) -> None:
        self.loops.append(loop)
        before = dict(self.frame.names)
        assigned = _assigned(loop.node)
        for name in assigned:
            values = self.frame.names.get(name)
            if values and any(isinstance(value, Const) and value.value is not None for value in values):
                kept = frozenset(
                    value for value in values if not isinstance(value, Const) or value.value is None
                )
                self.frame.names[name] = join(kept, SOME)
        for turn in range(2):
            entered = dict(self.frame.names)
            begin()
            if self.block(body):
                loop.exits.append(self.frame.names)
            after = self.frame.names
            for names in loop.exits:
                after = joined(after, names)
            loop.exits = []
            self.frame.names = joined(entered, after)
            if turn or not any(_grown(before.get(name), self.frame.names.get(name)) for name in assigned):
                break
        if isinstance(loop.node, ast.While):
            begin()  # the condition is asked again, of what the body has made
        self.loops.pop()
        self.block(orelse)

    def exec_With(self, node: ast.With | ast.AsyncWith) -> bool:
        grad = self.grad
        for item in node.items:
            values = self.eval(item.context_expr)
            for value in values:
                if isinstance(value, Obj) and value.kind == "grad_mode":
                    enabled = value.args.get("mode", SOME)
                    self.grad = truth(enabled) is not False
            if item.optional_vars is not None:
                entered: Values = NOTHING
                for value in values:
                    method = self.lookup(value, "__enter__") if isinstance(value, Obj) and value.cls else None
                    entered = join(entered, self.call_values(method, None, [], {}) if method else one(value))
                self.store(item.optional_vars, entered)
        falls = self.block(node.body)
        self.grad = grad
        return falls

    exec_AsyncWith = exec_With

    def exec_Try(self, node: ast.Try) -> bool:
        before = dict(self.frame.names)
        falls = self.block(node.body)
        if falls and node.orelse:
            falls = self.block(node.orelse)
        outcome = self.frame.names
        any_falls = falls
        for handler in node.handlers:
            self.frame.names = joined(before, outcome)
            if handler.type is not None:
                self.eval(handler.type)
            if handler.name:
                self.frame.names[handler.name] = SOME
            if self.block(handler.body):
                outcome = joined(outcome, self.frame.names) if any_falls else self.frame.names
                any_falls = True
        self.frame.names = outcome
        if node.finalbody:
            any_falls = self.block(node.finalbody) and any_falls
        return any_falls

    exec_TryStar = exec_Try

    def exec_Match(self, node: ast.Match) -> bool:
        self.eval(node.subject)
        before = dict(self.frame.names)
        outcome, falls = dict(before), True
        for case in node.cases:
            self.frame.names = dict(before)
            for part in walk(case.pattern):
                name = getattr(part, "name", None)
                if isinstance(name, str):
                    self.frame.names[name] = SOME
            if self.block(case.body):
                outcome = joined(outcome, self.frame.names)
        self.frame.names = outcome
        return falls

    # --- names -----------------------------------------------------------------------------------------------

    def load(self, name: str) -> Values:
        """What a name may be."""
        found = self.frame.names.get(name)
        if found is not None:
            return found
        frame = self.frame.parent
        while frame is not None:
            if name in frame.names and not isinstance(frame.node, ast.ClassDef):
                return frame.names[name]
            frame = frame.parent
        top = self.frame.top
        if top is not None and name in top.names:
            return top.names[name]
        if name in BUILTINS:
            return libraries.named(f"builtins.{name}")
        return one(Unknown(f"`{name}` is not defined before this line"))

    def store(self, target: ast.expr, values: Values, *, strong: bool = False) -> None:
        """Bind a target."""
        match target:
            case ast.Name(id=name):
                frame = self.frame
                if name in frame.globals and frame.top is not None:
                    frame.top.names[name] = join(frame.top.names.get(name, NOTHING), values)
                    if strong or not self.loops:
                        frame.top.names[name] = values
                elif name in frame.nonlocals and frame.parent is not None:
                    holder: Frame | None = frame.parent
                    while holder is not None and name not in holder.names:
                        holder = holder.parent
                    if holder is not None:
                        holder.names[name] = join(holder.names[name], values)
                else:
                    if (frame.node is None or isinstance(frame.node, ast.ClassDef)) and not strong:
                        values = _configured(values)
                    frame.names[name] = values
                self._bound(target, values)
            case ast.Attribute(value=base, attr=attr):
                for value in self.eval(base):
                    self.store_attribute(value, attr, values, target, strong=strong)
                self._bound(target, values)
            case ast.Subscript(value=base, slice=index):
                key = self.eval(index)
                for value in self.eval(base):
                    self.store_item(value, key, values, strong=strong)
                if isinstance(base, ast.Name):
                    self._filled(base.id, data_of(key))
                self._bound(target, values)
            case ast.Tuple(elts=elements) | ast.List(elts=elements):
                for element, part in zip(elements, self.unpack(values, elements), strict=True):
                    self.store(element.value if isinstance(element, ast.Starred) else element, part)
            case ast.Starred(value=inner):
                self.store(inner, values)

    def _bound(self, target: ast.expr, values: Values) -> None:
        self.seen[target] = join(self.seen.get(target, NOTHING), values)
        if self.inside:
            return
        for value in ordered(values):
            if isinstance(value, Obj) and value.kind in {"model", "wrapped"}:
                self.record("bind", "", target, value)

    def store_attribute(
        self, value: Value, attr: str, values: Values, target: ast.AST, *, strong: bool = False
    ) -> None:
        """`value.attr = values`."""
        match value:
            case Obj(kind="wrapped", inner=Obj() as inner):
                self.record("attr", attr, target, value)
                self.store_attribute(inner, attr, values, target)
            case Obj():
                old = value.attrs.get(attr)
                for journal in self.journals[-1:]:
                    journal.setdefault((value, attr), old)
                simple = self.calls and len(self.stack) > 0 and not self.loops
                value.attrs[attr] = values if strong or old is None or simple else join(old, values)
                if value.kind == "model":
                    self._adopt(value, values)
                    if not any(inside is value for inside in self.inside):
                        self.record("setattr", attr, target, value, {"value": values})
                    if is_part(values) and not self.being_made(value):
                        self.record("grow", attr, target, value)
            case Class():
                value.names[attr] = join(value.names.get(attr, NOTHING), values)
            case Mod():
                value.frame.names[attr] = join(value.frame.names.get(attr, NOTHING), values)
            case Data() if attr == "grad" and data_of(values).loaders:
                self.record("set_grad", "", target, value)
            case Data() if attr == "requires_grad":
                for model in value.models:
                    self.record("freeze", "", target, model, {"value": values})
                if values == one(Const(True)) and isinstance(target, ast.Attribute):
                    self._make_leaf(target.value)
            case _:
                pass

    def rebind(self, place: ast.AST, data: Data) -> None:
        """`x.addmm_(...)`: from here on the name stands for what was made of it."""
        match place:
            case ast.Call(func=ast.Attribute(value=ast.Name(id=name))) if name in self.frame.names:
                self.frame.names[name] = one(data)
            case _:
                pass

    def make_leaf(self, place: ast.AST) -> None:
        """`x.requires_grad_()`: from here on the name stands for a tensor that may be trained."""
        if isinstance(place, ast.Call) and isinstance(place.func, ast.Attribute):
            self._make_leaf(place.func.value)

    def _make_leaf(self, node: ast.expr) -> None:
        spaces: list[dict[str, Values]] = []
        if isinstance(node, ast.Name):
            spaces = [self.frame.names]
        elif isinstance(node, ast.Attribute):
            spaces = [value.attrs for value in self.eval(node.value) if isinstance(value, Obj)]
        name = getattr(node, "id", getattr(node, "attr", ""))
        for space in spaces:
            if name in space:
                space[name] = frozenset(
                    libraries.leaf(value) if isinstance(value, Data) else value for value in space[name]
                )

    def in_a_constructor(self) -> bool:
        """Whether a module of the script's is being made."""
        return any(
            isinstance(frame.node, ast.FunctionDef)
            and frame.node.name == "__init__"
            and isinstance(frame.self_value, Obj)
            and frame.self_value.kind == "model"
            for frame in self.stack
        )

    def constructing(self, obj: Obj) -> bool:
        """Whether the object's `__init__` is running."""
        return any(
            frame.self_value is obj
            and isinstance(frame.node, ast.FunctionDef)
            and frame.node.name == "__init__"
            for frame in self.stack
        )

    def being_made(self, model: Obj) -> bool:
        """Whether the `__init__` of a model, or of one that holds it, is running."""
        seen: set[int] = set()
        here: Obj | None = model
        while here is not None and id(here) not in seen:
            if self.constructing(here):
                return True
            seen.add(id(here))
            here = here.owner
        return False

    def _adopt(self, owner: Obj, values: Values) -> None:
        for value in values:
            if isinstance(value, Obj) and value.kind == "wrapped" and value.inner is not None:
                value = value.inner  # noqa: PLW2901  # the module inside is the part
            if isinstance(value, Obj):
                if value.kind == "model" and value is not owner and owner.root is not value:
                    if value.owner is None:
                        value.owner = owner
                elif value.kind in {"list", "dict", "tuple"} and value.name == "torch.nn.ModuleList":
                    for item in [*(value.items or ()), value.rest]:
                        self._adopt(owner, item)

    def store_item(self, value: Value, key: Values, values: Values, *, strong: bool = False) -> None:
        """`value[key] = values`."""
        if not isinstance(value, Obj):
            return
        for item in key:
            if isinstance(item, Const) and isinstance(item.value, str):
                old = value.attrs.get(item.value)
                value.attrs[item.value] = values if old is None or strong else join(old, values)
                return
        if value.items is not None and len(key) == 1:
            (index,) = key
            if (
                isinstance(index, Const)
                and isinstance(index.value, int)
                and -len(value.items) <= index.value < len(value.items)
            ):
                value.items[index.value] = values
                return
        value.rest = join(value.rest, values)
        if value.kind == "list" and value.items is not None:
            value.items = [join(item, values) for item in value.items]
        if value.kind == "model":
            self._adopt(value, values)

    def _filled(self, name: str, where: Data) -> None:
        """A new tensor gets values where a batch says: it becomes a mask of that batch."""
        old = self.frame.names.get(name, NOTHING)
        if where.loaders and "size" not in where.tags and not any(isinstance(v, Obj) for v in old):
            data = data_of(old)
            if old and not data.models and not (data.loaders and "size" not in data.tags):
                self.frame.names[name] = one(Data(frozenset(), where.loaders, frozenset({"local", "mask"})))

    def unpack(self, values: Values, elements: list[ast.expr]) -> list[Values]:
        """What each target of a tuple gets."""
        parts: list[Values] = [NOTHING] * len(elements)
        star = next((i for i, element in enumerate(elements) if isinstance(element, ast.Starred)), None)
        for value in values:
            if (
                isinstance(value, Obj)
                and value.items is not None
                and (
                    len(value.items) == len(elements)
                    or (star is not None and len(value.items) >= len(elements) - 1)
                )
            ):
                items = list(value.items)
                if star is not None:
                    tail = len(elements) - star - 1
                    middle = items[star : len(items) - tail]
                    held = self.birth("list", "list", elements[star])
                    for item in middle:
                        held.rest = join(held.rest, item)
                    items = [*items[:star], one(held), *items[len(items) - tail :]]
                for i, item in enumerate(items):
                    parts[i] = join(parts[i], item)
            else:
                splits = isinstance(value, Obj) and value.kind == "dataset" and libraries.streams(value)
                element = one(value) if splits else self.iterate(one(value))
                for i in range(len(elements)):
                    parts[i] = join(parts[i], element)
        return parts

    # --- iteration -------------------------------------------------------------------------------------------

    def loaders_of(self, values: Values) -> list[Obj]:
        """The loaders whose batches a loop over these values walks through."""
        found: dict[Obj, None] = {}
        chain = [value for value in values if isinstance(value, Obj)]
        for value in chain:
            if value.kind == "loader":
                found[value] = None
            elif value.kind == "iter":
                inner = [item for base in value.items or () for item in base if isinstance(item, Obj)]
                chain += [item for item in inner if item not in chain]
                if value.walks:
                    found.update(dict.fromkeys(data_of(value.rest).loaders))
        return sorted(found, key=in_source)

    def iterate(self, values: Values) -> Values:
        """What a loop over these values is given; an iterator over itself gives nothing new."""
        result: Values = NOTHING
        for value in values:
            if isinstance(value, Obj):
                if value not in self.iterating:
                    self.iterating.add(value)
                    result = join(result, self._element(value))
                    self.iterating.remove(value)
            else:
                result = join(result, self._element(value))
        return result or SOME

    def _element(self, value: Value) -> Values:
        match value:
            case Data():
                return one(value)
            case Obj(kind="loader"):
                tags = {"local", "batch"} | ({"selected"} if _batches_vary(value) else set())
                return one(Data(loaders=frozenset({value}), tags=frozenset(tags)))
            case Obj(kind="iter", name="enumerate"):
                pair = self.birth("tuple", "tuple", value.call or _NOWHERE)
                base = value.items[0] if value.items else SOME
                pair.items = [SOME, self.iterate(base)]
                return one(pair)
            case Obj(kind="iter", name="zip"):
                pair = self.birth("tuple", "tuple", value.call or _NOWHERE)
                pair.items = [self.iterate(base) for base in value.items or ()]
                return one(pair)
            case Obj(kind="iter"):
                return self._chained(value)
            case Obj(kind="list" | "tuple" | "set"):
                result = value.rest
                for item in value.items or ():
                    result = join(result, item)
                return result or SOME
            case Obj(kind="dict"):
                return SOME
            case Obj(kind="dataset"):
                method = self.lookup(value, "__getitem__")
                del method
                return one(Data(tags=frozenset({"sample"})))
            case Obj(kind="lib" | "loaded") if self.tracing:
                return one(value)
            case Obj() if value in self.guessed:
                return one(value)
            case Obj(kind="model"):
                result = value.rest
                for item in value.attrs.values():
                    result = join(
                        result, frozenset(v for v in item if isinstance(v, Obj) and v.kind == "model")
                    )
                return result or one(Data(models=frozenset({value})))
            case Obj(cls=Class()):
                method = self.lookup(value, "__iter__")
                if method:
                    given = self.call_values(method, None, [], {})
                    if value in given:
                        return self.call_values(self.lookup(value, "__next__"), None, [], {}) or SOME
                    return self.iterate(given)
                method = self.lookup(value, "__next__")
                if method:
                    return self.call_values(method, None, [], {})
                method = self.lookup(value, "__getitem__")
                if method:
                    return self.call_values(method, None, [SOME], {})
                return SOME
            case Obj():
                return one(data_of(one(value)))
            case _:
                return SOME

    def _chained(self, first: Obj) -> Values:
        """What an iterator over iterators gives, each looked into once."""
        result: Values = NOTHING
        chain = [first]
        for here in chain:
            result = join(result, here.rest)
            for value in [value for base in here.items or () for value in base]:
                if isinstance(value, Obj) and value.kind == "iter" and value.name not in {"zip", "enumerate"}:
                    chain += [value] if value not in chain else []
                else:
                    result = join(result, self.iterate(one(value)))
        return result or SOME

    # --- expressions -----------------------------------------------------------------------------------------

    def eval(self, node: ast.expr) -> Values:
        """What an expression may be."""
        kind = node.__class__
        if kind is ast.Constant:
            return constant(node.value)  # type: ignore[attr-defined]  # the class was just compared
        if kind is ast.Name:
            found = self.load(node.id)  # type: ignore[attr-defined]  # the same
        else:
            method = self._expressions.get(kind)
            if method is None:
                for child in children(node):
                    if isinstance(child, ast.expr):
                        self.eval(child)
                return SOME
            found = method(node)
        known = self.seen.get(node)
        if known is not found:
            self.seen[node] = found if known is None else join(known, found)
        return found

    def eval_Attribute(self, node: ast.Attribute) -> Values:
        result: Values = NOTHING
        for value in ordered(self.eval(node.value)):
            result = join(result, self.attribute(value, node.attr, node))
        return result

    def attribute(self, value: Value, attr: str, node: ast.expr) -> Values:
        """What `value.attr` may be."""
        match value:
            case Mod(frame=frame, module=module):
                if attr == "__dict__":
                    return one(self._namespace_of(value, node))
                if attr in frame.names:
                    return frame.names[attr]
                inner = self.program.find(f"{module.name}.{attr}")
                if inner is not None:
                    return one(Mod(inner, self.module(inner)))
                return one(Unknown(f"`{attr}` is not defined in {module.name}"))
            case Lib(name=name):
                if attr == "__dict__":
                    return one(value)
                return libraries.named(f"{name}.{attr}")
            case Obj(kind="wrapped" | "model") if attr == "forward" and not any(
                item is (value.inner or value) for item in self.inside
            ):
                return one(Method(value, attr, node))
            case Obj(kind="wrapped", inner=Obj() as inner):
                if attr in {"module", "_orig_mod"}:
                    self.record("unwrap", attr, node, value)
                    return one(inner)
                self.record("attr", attr, node, value)
                return self.attribute_of(inner, attr, node, through=value)
            case Obj(kind="model") if attr == "_orig_mod" or (
                attr == "module" and not self._owns(value, attr)
            ):
                self.record("unwrap", attr, node, value)
                return one(value)
            case Obj():
                if value.kind == "model" and not any(item is value for item in self.inside):
                    self.record("attr", attr, node, value)
                return self.attribute_of(value, attr, node)
            case Class():
                found = self._class_attribute(value, attr, None)
                if found and _is_enumeration(value) and not any(isinstance(item, Func) for item in found):
                    return one(Const(Member(value, attr)))
                return found or one(Unknown(f"no `{attr}` in the class"))
            case Const(value=Member(cls=cls, name=name)) if attr in {"name", "value"}:
                return one(Const(name)) if attr == "name" else self._class_attribute(cls, name, None)
            case Data():
                if attr == "shape":
                    return one(
                        Data(
                            frozenset(),
                            value.loaders,
                            frozenset({"size"}) | (value.tags & {"local", "selected"}),
                        )
                    )
                if attr == "T":
                    return one(couplings.laid_out(value, couplings.TURNED))
                if attr == "data":
                    return one(Data(frozenset(), value.loaders, value.tags - {"leaf"}))
                if attr in libraries.DATA_ATTRIBUTES:
                    return one(value)
                return one(Method(value, attr, node))
            case Const():
                return one(Method(value, attr, node))
            case Unknown():
                return one(value)
            case _:
                return SOME

    def _owns(self, model: Obj, attr: str) -> bool:
        """Whether a model has an attribute of its own by this name."""
        if model.cls is not None and _splits(model.cls):
            return True
        return attr in model.attrs or bool(model.cls and self._class_attribute(model.cls, attr, model))

    def _namespace_of(self, module: Mod, node: ast.expr) -> Obj:
        """`module.__dict__`: the functions and classes that the module holds."""
        space = self.birth("dict", "__dict__", node)
        for name, values in module.frame.names.items():
            held = frozenset(value for value in values if isinstance(value, Func | Class))
            if held:
                space.attrs[name] = join(space.attrs.get(name, NOTHING), held)
        return space

    def attribute_of(self, obj: Obj, attr: str, node: ast.expr, through: Obj | None = None) -> Values:
        """An attribute of an object: its own, its class's, or the library's method."""
        if attr in obj.attrs:
            found = obj.attrs[attr]
            whole = not self.inside or self.inside[0] is obj or not self._in_forward()
            if obj.kind == "model" and whole and any(_is_parameter(value) for value in found):
                tags = frozenset() if self._in_forward() else frozenset({"params"})
                found = join(found, one(Data(models=frozenset({obj}), tags=tags)))
            unknown = obj.attrs.get("*", NOTHING)
            return join(found, unknown)
        if obj.cls is not None:
            self.calls.append(node)  # a property makes its things anew wherever it is asked for
            values = self._class_attribute(obj.cls, attr, obj)
            self.calls.pop()
            if values:
                return values
        if obj.kind == "namespace":
            return one(Const(None, config=True)) if attr == "local_rank" else SOME
        if obj.kind == "loader" and attr == "dataset":
            return obj.args.get("dataset", SOME)
        if obj.kind == "loader" and attr in {"sampler", "batch_sampler", "batch_size"}:
            return obj.args.get(attr, SOME)
        if obj.kind == "dataset" and attr == "dataset":
            return obj.args.get("dataset", SOME)
        if obj.kind == "model" and attr not in libraries.MODEL_METHODS and obj.cls is not None:
            return one(Data(models=frozenset({obj}), tags=frozenset({"params"})))
        if obj.kind == "model" and attr in {"weight", "bias"}:
            tags = frozenset() if self._in_forward() else frozenset({"params"})
            return one(Data(models=frozenset({obj}), tags=tags))
        if obj.kind == "model" and attr not in libraries.MODEL_METHODS:
            inner = self.birth("model", f"{obj.name}.{attr}", node)
            inner.owner = obj
            obj.attrs[attr] = one(inner)
            return one(inner)
        if obj.kind == "instance" and obj.cls is not None and "*" in obj.attrs:
            return obj.attrs["*"]
        return one(Method(through or obj, attr, node))

    def _in_forward(self) -> bool:
        """Whether a model is computing its output, and not, say, a penalty on its weights."""
        return bool(self.inside) and any(
            isinstance(frame.node, ast.FunctionDef) and frame.node.name in {"forward", "__call__"}
            for frame in self.stack
        )

    def _class_attribute(self, cls: Class, attr: str, bound: Obj | None) -> Values:
        for item in cls.mro():
            if isinstance(item, Class) and attr in item.names:
                return self._bind(item.names[attr], bound, cls)
        return NOTHING

    def _bind(self, values: Values, bound: "Obj | None", cls: Class) -> Values:
        result: Values = NOTHING
        for value in ordered(values):
            if isinstance(value, Func) and value.bound is None:
                if "builtins.staticmethod" in value.decorators:
                    result = join(result, one(value))
                elif "builtins.classmethod" in value.decorators:
                    result = join(result, one(_bound_to(value, cls)))
                elif bound is not None and "builtins.property" in value.decorators:
                    result = join(result, self.apply(_bound_to(value, bound), None, [], {}))
                elif bound is not None:
                    result = join(result, one(_bound_to(value, bound)))
                else:
                    result = join(result, one(value))
            else:
                result = join(result, one(value))
        return result

    def lookup(self, obj: Value, attr: str) -> Values:
        """A method of a user's class, or nothing."""
        if isinstance(obj, Obj) and obj.cls is not None:
            return self._class_attribute(obj.cls, attr, obj)
        return NOTHING

    def eval_Subscript(self, node: ast.Subscript) -> Values:
        key = self.eval(node.slice)
        result: Values = NOTHING
        for value in ordered(self.eval(node.value)):
            result = join(result, self._item(value, key, node))
        if data_of(key).local and not any(isinstance(value, Obj) for value in result):
            # which of them it is, each rank finds out for itself
            whole = merge([data_of(result), data_of(key)])
            return one(Data(whole.models, whole.loaders, whole.tags - {"size", "count"}))
        return result or SOME

    def _item(self, value: Value, key: Values, node: ast.Subscript) -> Values:
        consts = [item.value for item in key if isinstance(item, Const)]
        match value:
            case Data():
                if "mask" in data_of(key).tags:
                    return one(Data(value.models, value.loaders, value.tags | {"selected"}))
                if "size" in value.tags and consts and 0 not in consts:
                    return one(Data(value.models, value.loaders, value.tags | {"extent"}))
                layout = couplings.indexed(node.slice)
                if layout and not self.in_a_network():
                    return one(couplings.laid_out(value, layout))
                return one(couplings.apart(value) if couplings.cuts(node.slice) else value)
            case Lib(name=name):
                return one(Lib(f"{name}.*"))
            case Obj(kind="dict" | "namespace"):
                known = [
                    value.attrs[item] for item in consts if isinstance(item, str) and item in value.attrs
                ]
                if known and len(consts) == len(key):
                    result: Values = NOTHING
                    for item in known:
                        result = join(result, item)
                    return result
                result = value.rest
                if not (consts and len(consts) == len(key) and value.rest):
                    for item in value.attrs.values():
                        result = join(result, item)
                return result
            case Obj(kind="dataset") if libraries.streams(value):
                return one(value)
            case Obj(kind="list" | "tuple" | "iter", items=items):
                if isinstance(node.slice, ast.Slice):
                    return one(value)
                index = consts[0] if len(consts) == 1 and len(key) == 1 else None
                if (
                    items is not None
                    and isinstance(index, int)
                    and not (value.rest and (index < 0 or value.kind != "list"))
                    and -len(items) <= index < len(items)
                ):
                    return items[index]
                return self.iterate(one(value))
            case Obj(kind="dataset"):
                method = self.lookup(value, "__getitem__")
                return (
                    self.call_values(method, None, [key], {})
                    if method
                    else one(Data(tags=frozenset({"sample"})))
                )
            case Obj(kind="wrapped", inner=Obj() as inner):
                self.record("attr", "[]", node, value)
                return self._item(inner, key, node)
            case Obj(kind="model"):
                if not any(item is value for item in self.inside):
                    self.record("attr", "[]", node, value)
                held = _held(value, consts) if value.owner is None else NOTHING
                if held:
                    return held
                inner = self.birth("model", f"{value.name}[]", node)
                if inner is not value:
                    inner.owner = inner.owner or value
                return one(inner)
            case Obj(cls=Class()):
                method = self.lookup(value, "__getitem__")
                return self.call_values(method, None, [key], {}) if method else SOME
            case Obj():
                return one(data_of(one(value)))
            case Unknown():
                return one(value)
            case _:
                return SOME

    def eval_Slice(self, node: ast.Slice) -> Values:
        for part in (node.lower, node.upper, node.step):
            if part is not None:
                self.eval(part)
        return SOME

    def eval_Starred(self, node: ast.Starred) -> Values:
        return self.eval(node.value)

    def eval_NamedExpr(self, node: ast.NamedExpr) -> Values:
        values = self.eval(node.value)
        self.store(node.target, values)
        return values

    def eval_Tuple(self, node: ast.Tuple) -> Values:
        return self._sequence("tuple", node, node.elts)

    def eval_List(self, node: ast.List) -> Values:
        return self._sequence("list", node, node.elts)

    def eval_Set(self, node: ast.Set) -> Values:
        return self._sequence("set", node, node.elts)

    def _sequence(self, kind: str, node: ast.expr, elements: list[ast.expr]) -> Values:
        obj = self.birth(kind, kind, node)
        starred = any(isinstance(element, ast.Starred) for element in elements)
        items = [self.eval(element) for element in elements]
        if starred:
            for element, item in zip(elements, items, strict=True):
                obj.rest = join(obj.rest, self.iterate(item) if isinstance(element, ast.Starred) else item)
        elif elements or obj.items is None:
            obj.items = items
        return one(obj)

    def eval_Dict(self, node: ast.Dict) -> Values:
        obj = self.birth("dict", "dict", node)
        for key, value in zip(node.keys, node.values, strict=True):
            values = self.eval(value)
            if key is None:
                for inner in objects(values, "dict"):
                    obj.attrs.update(inner.attrs)
                    obj.rest = join(obj.rest, inner.rest)
                continue
            keys = self.eval(key)
            named = [item.value for item in keys if isinstance(item, Const) and isinstance(item.value, str)]
            if len(named) == 1:
                obj.attrs[named[0]] = values
            else:
                obj.rest = join(obj.rest, values)
        return one(obj)

    def eval_JoinedStr(self, node: ast.JoinedStr) -> Values:
        parts = []
        for part in node.values:
            if isinstance(part, ast.FormattedValue):
                values = self.eval(part.value)
                libraries.written_out(self, part, values)
                parts.append(data_of(values))
        return one(merge(parts)) if parts else SOME

    def eval_BinOp(self, node: ast.BinOp) -> Values:
        left, right = self.eval(node.left), self.eval(node.right)
        if isinstance(node.op, ast.Mod):
            libraries.written_out(self, node, right)
        if len(left) == 1 and len(right) == 1:
            (first,), (second,) = left, right
            if isinstance(first, Const) and isinstance(second, Const):
                folded = _fold(node.op, first, second)
                if folded is not None:
                    return one(folded)
        op = node.op.__class__
        if op is ast.Add or op is ast.Mult:
            lists = [
                value for value in left | right if isinstance(value, Obj) and value.kind in {"list", "tuple"}
            ]
            if lists:
                obj = self.birth("list", "list", node)
                items = _put_together(left, right) if op is ast.Add else None
                if items is not None:
                    obj.items = items
                    return one(obj)
                for value in lists:
                    self.extend(obj, one(value))
                return one(obj)
        united = self._united(node, node.op, left, right)
        if united is not None:
            return one(united)
        first_data, second_data = data_of(left), data_of(right)
        if op is ast.Div:
            return one(self._bent_by(node, self.divided(node, first_data, second_data, right), left, right))
        if op is ast.Mult:
            return one(self._bent_by(node, self.multiplied(node, first_data, second_data), left, right))
        parts = [first_data, second_data]
        if op is ast.Pow:
            inverse = Const(-1) in right
            return one(
                self.divided(node, PLAIN, first_data, left) if inverse else self.bent(node, merge(parts))
            )
        if (op is ast.Add or op is ast.Sub) and not couplings.pairs(parts, product=False):
            return one(self._added(node, first_data, second_data))
        return one(self.combined(node, parts, product=op is ast.MatMult))

    def _united(self, place: ast.AST, op: ast.operator, left: Values, right: Values) -> Obj | None:
        """The set that two sets make: `a | b`, `a - b`."""
        if not isinstance(op, ast.BitOr | ast.BitAnd | ast.BitXor | ast.Sub):
            return None
        first, second = objects(left, "set"), objects(right, "set")
        return self.set_of(place, left, right) if first or (second and not isinstance(op, ast.Sub)) else None

    def set_of(self, place: ast.AST, *sources: Values) -> Obj:
        """A set of the elements of containers."""
        made = self.birth("set", "set", place)
        for source in sources:
            for value in source:
                if isinstance(value, Obj) and value.kind in CONTAINERS and value is not made:
                    for item in (*(value.items or ()), value.rest):
                        made.rest = join(made.rest, item)
        return made

    def averaged(self, place: ast.AST, data: Data) -> Data:
        """A mean over all samples of a batch, marked with where it is made: not one of a sample among them."""
        singles = any(not loop.loaders and data_of(loop.over).loaders for loop in self.loops)
        if singles or not isinstance(place, ast.Call) or not data.loaders or self.in_a_network():
            return data
        tag = average_at(place)
        self.averages[tag] = self.frame.module, place
        self.record("average", "", place, data)
        return Data(data.models, data.loaders, data.tags | {tag})

    def bent(self, node: ast.AST, data: Data) -> Data:
        """A mean over the batch, or a sum, is put through what makes something else than a mean or a sum of it."""
        sums = sums_in(data)
        if sums and data.models and "summed" in data.tags and "params" not in data.tags:
            if not self.in_a_network():
                self.record("ratio", "", node, data)
                kept = data.tags - sums - {"summed", "count"}
                return Data(data.models, data.loaders, kept | {"averaged", ratio_at(node)})
        if not averages_in(data) or self.in_a_network():
            return data
        self.record("bent", "", node, data)
        return Data(data.models, data.loaders, data.tags | {bent_at(node)})

    def _bent_by(self, node: ast.BinOp, data: Data, left: Values, right: Values) -> Data:
        """Two means over the batch are multiplied, or one divides."""
        first, second = averages_in(data_of(left)), averages_in(data_of(right))
        bends = second if isinstance(node.op, ast.Div) else first and second
        return self.bent(node, data) if bends and mean_at(node) not in data.tags else data

    def combined(self, node: ast.AST, parts: list[Data], *, product: bool) -> Data:
        """What an operation on these gives; where it combines each sample with each other one, that is noted."""
        return self.coupled(node, parts) if couplings.pairs(parts, product=product) else merge(parts)

    def coupled(self, node: ast.AST, parts: list[Data]) -> Data:
        """What depends on pairs of samples."""
        whole = merge(parts)
        self.record("coupled", "", node, whole)
        return Data(
            whole.models,
            whole.loaders,
            (whole.tags - couplings.LAYOUTS) | {coupled_at(node)},
        )

    def in_a_network(self) -> bool:
        """Whether the code followed is that of a module with parts of its own, where axes may be anything."""
        return any(objects(values, "model") for obj in self.inside for values in obj.attrs.values())

    def _added(self, node: ast.BinOp | ast.AugAssign, left: Data, right: Data) -> Data:
        """A total: of a sum over the batch and what does not grow with it, only the sum grows with the ranks."""
        whole = merge([left, right])
        for side, grows, other in (("left", left, right), ("right", right, left)):
            if _is_sum(grows) and not _is_sum(other) and _keeps_its_size(other):
                self.record("mixed_sum", side, node, whole)
                return Data(
                    whole.models, whole.loaders, (whole.tags - {"summed"}) | {"averaged", mixed_at(node)}
                )
            if _is_sum(grows) and "params" in other.tags and "params" not in grows.tags:
                return Data(whole.models, whole.loaders, whole.tags | {"averaged"})
        return whole

    def divided(self, node: ast.AST, left: Data, right: Data, by: Values) -> Data:
        """A quotient: of a sum it makes a mean, over a count that each rank has to itself a local one.

        The share that one size has of another is none; what a batch's size divides may be multiplied by a sum later.
        """
        whole = merge([left, right])
        over, under = sums_in(left), sums_in(right)
        if left.models and right.models and over and under:
            self.record("ratio", "", node, whole)
            kept = whole.tags - over - under - {"summed", "count"}
            return Data(whole.models, whole.loaders, kept | {"averaged", ratio_at(node)})
        if not left.models and "mask" in left.tags and {"mask", "averaged"} <= right.tags:
            self.record("mask_mean", "", node, whole)
            return Data(whole.models, whole.loaders, (whole.tags - {"averaged"}) | {mean_at(node)})
        if not right.loaders and not right.tags and self._is_batch_size(node, by):
            right = Data(right.models, right.loaders | left.loaders, right.tags | {"size"})
        if left.models and "summed" in left.tags:
            if "count" in right.tags or _comes_with_batch(right) or {"size", "selected"} <= right.tags:
                self.record("local_mean", "", node, whole)
                whole = Data(whole.models, whole.loaders, whole.tags | {mean_at(node)})
            if (right.loaders or "size" in right.tags or "count" in right.tags) and "all" not in right.tags:
                return Data(whole.models, whole.loaders, (whole.tags - {"summed", "count"}) | {"averaged"})
        if not left.models and right.tags & {"size", "count"}:
            kept = whole.tags - {"size", "count"}
            shares = not left.loaders and not left.tags and "all" not in right.tags
            return Data(whole.models, whole.loaders, kept | ({"reciprocal"} if shares else set()))
        return whole

    def _is_batch_size(self, node: ast.AST, values: Values) -> bool:
        """Whether what divides is the number that a loader was given as the size of its batches, or is called so."""
        match node:
            case ast.BinOp(right=divisor) | ast.AugAssign(value=divisor) | ast.Call(args=[*_, divisor]):
                word = getattr(divisor, "attr", getattr(divisor, "id", ""))
            case _:
                word = ""
        sizes = {
            size
            for loader in self.born.values()
            if loader.kind == "loader"
            for size in loader.args.get("batch_size", NOTHING)
            if isinstance(size, Const) and size.value
        }
        return bool(values & sizes) or bool(re.search(BATCH_SIZE, word))

    def multiplied(self, node: ast.AST, left: Data, right: Data) -> Data:
        """A product: a mean times the size of the batch is a sum, and a sum by one over the size is a mean."""
        whole = merge([left, right])
        for loss, factor in ((left, right), (right, left)):
            batch = "size" in factor.tags and not factor.tags & {"extent", "running"}
            if loss.models and "averaged" in loss.tags and batch and not factor.models:
                return Data(whole.models, whole.loaders, (whole.tags - {"averaged", "size"}) | {"summed"})
            if loss.models and "summed" in loss.tags and "reciprocal" in factor.tags and not factor.models:
                size = Data(factor.models, factor.loaders, (factor.tags - {"reciprocal"}) | {"size"})
                if "batch" in factor.tags:
                    size = Data(factor.models, factor.loaders, (factor.tags - {"reciprocal"}) | {"count"})
                return self.divided(node, loss, size, NOTHING)
        return whole

    def eval_UnaryOp(self, node: ast.UnaryOp) -> Values:
        values = self.eval(node.operand)
        if isinstance(node.op, ast.Not):
            decided = truth(values)
            if decided is not None:
                return one(Const(not decided))
        if len(values) == 1 and isinstance(node.op, ast.USub):
            (value,) = values
            if isinstance(value, Const) and isinstance(value.value, int | float):
                return one(Const(-value.value, config=value.config))
        return one(data_of(values))

    def eval_BoolOp(self, node: ast.BoolOp) -> Values:
        result: Values = NOTHING
        absorbing = isinstance(node.op, ast.Or)
        decided: list[bool | None] = []
        for part in node.values:
            values = self.eval(part)
            decided.append(truth(values))
            result = join(result, values)
        if any(item is absorbing for item in decided) and all(item is not None for item in decided[:1]):
            return one(Const(absorbing))
        if all(item is (not absorbing) for item in decided):
            return one(Const(not absorbing))
        return result

    def eval_Compare(self, node: ast.Compare) -> Values:
        left = self.eval(node.left)
        rights = [self.eval(item) for item in node.comparators]
        if len(rights) == 1:
            decided = _compare(node.ops[0], left, rights[0])
            if decided is not None:
                return one(Const(decided))
        result = merge([data_of(left), *(data_of(right) for right in rights)])
        if any(isinstance(value, Data) for value in left):
            result = Data(result.models, result.loaders, result.tags | {"mask"})
        return one(result)

    def eval_IfExp(self, node: ast.IfExp) -> Values:
        decided = truth(self.eval(node.test))
        if decided is not None:
            return self.eval(node.body if decided else node.orelse)
        return join(self.eval(node.body), self.eval(node.orelse))

    def eval_Lambda(self, node: ast.Lambda) -> Values:
        function = Func(node, self.frame.module, self.frame)
        return one(function)

    def eval_Await(self, node: ast.Await) -> Values:
        return self.eval(node.value)

    def eval_Yield(self, node: ast.Yield) -> Values:
        values = self.eval(node.value) if node.value else NONE
        self.frame.yields = join(self.frame.yields, values)
        return SOME

    def eval_YieldFrom(self, node: ast.YieldFrom) -> Values:
        over = self.eval(node.value)
        self.frame.yields = join(self.frame.yields, self.iterate(over))
        self.frame.walks |= bool(self.loaders_of(over))
        return SOME

    def eval_ListComp(self, node: ast.ListComp | ast.SetComp | ast.GeneratorExp) -> Values:
        kind = {"ListComp": "list", "SetComp": "set", "GeneratorExp": "iter"}[type(node).__name__]
        obj = self.birth(kind, kind, node)
        before = len(self.events)
        obj.rest = join(obj.rest, self._comprehend(node.generators, node.elt))
        obj.walks |= self._walked(before)
        return one(obj)

    def _walked(self, before: int) -> bool:
        """Whether batches were taken out of a loader since an event."""
        return any(event.kind in {"iterate", "next"} for event in self.events[before:])

    eval_SetComp = eval_ListComp
    eval_GeneratorExp = eval_ListComp

    def eval_DictComp(self, node: ast.DictComp) -> Values:
        obj = self.birth("dict", "dict", node)
        for generator in node.generators:
            items = self._unrolled(self.eval(generator.iter))
            if items is not None and len(node.generators) == 1 and isinstance(generator.target, ast.Name):
                for index, item in enumerate(items):
                    self.calls.append(_turn(node, index))
                    for key in item:
                        if isinstance(key, Const):
                            obj.attrs[str(key.value)] = self._comprehend(node.generators, node.value, item)
                    self.calls.pop()
                return one(obj)
        obj.rest = join(obj.rest, self._comprehend(node.generators, node.value, key=node.key))
        return one(obj)

    def _comprehend(
        self,
        generators: list[ast.comprehension],
        element: ast.expr,
        item: Values | None = None,
        key: ast.expr | None = None,
    ) -> Values:
        names = dict(self.frame.names)
        pushed = 0
        for generator in generators:
            over = self.eval(generator.iter)
            loop = Loop(generator, self.frame.module, over, tuple(self.loaders_of(over)), tuple(self.calls))
            for loader in loop.loaders:
                self.record("iterate", "comprehension", generator.iter, loader)
            self.loops.append(loop)
            pushed += 1
            self.store(generator.target, item if item is not None else self.iterate(over))
            for test in generator.ifs:
                self.eval(test)
        if key is not None:
            self.eval(key)
        values = self.eval(element)
        del self.loops[len(self.loops) - pushed :]
        self.frame.names = names
        return values

    # --- calls -----------------------------------------------------------------------------------------------

    def eval_Call(self, node: ast.Call) -> Values:
        callees = self.eval(node.func)
        args: list[Values] = []
        starred = False
        unrolled: Values = NOTHING
        for argument in node.args:
            values = self.eval(argument)
            if isinstance(argument, ast.Starred):
                spread = next(
                    (v for v in values if isinstance(v, Obj) and v.items is not None and not v.rest), None
                )
                if spread is not None and spread.items is not None:
                    args += spread.items
                else:
                    starred = True
                    unrolled = join(unrolled, values)
            else:
                args.append(values)
        kwargs: dict[str, Values] = {}
        for keyword in node.keywords:
            values = self.eval(keyword.value)
            if keyword.arg is not None:
                kwargs[keyword.arg] = values
                continue
            spread_dicts = objects(values, "dict")
            if spread_dicts and not any(item.rest for item in spread_dicts):
                for item in spread_dicts:
                    kwargs.update(item.attrs)
                starred = starred or not any(item.attrs for item in spread_dicts)
            else:
                starred = True
        result: Values = NOTHING
        if isinstance(node.func, ast.Attribute) and node.func.attr in libraries.PARAMETERS:
            self._holds_parameters(node.func.value, node.func.attr)
        self.calls.append(node)
        for callee in ordered(callees):
            result = join(result, self.apply(callee, node, args, kwargs, starred=starred))
        self.calls.pop()
        self._hold(node, result, unrolled)
        if node in self.models and not any(isinstance(v, Obj) and v.kind == "model" for v in result):
            return self._guessed(node, callees, args, kwargs) | (result & NONE)
        return result or SOME

    def _hold(self, call: ast.Call, result: Values, parts: Values) -> None:
        """What a library's model is made of where its parts come out of a list: `nn.Sequential(*layers)`."""
        for value in result if parts else ():
            if isinstance(value, Obj) and value.kind == "model" and value.call is call and value.cls is None:
                for part in contained(parts, "model"):
                    value.rest = join(value.rest, one(part))
                    self._adopt(value, one(part))

    def _holds_parameters(self, node: ast.expr, attr: str) -> None:
        """Note what is asked for its parameters and is not known to be a model."""
        values = self.seen.get(node, NOTHING)
        if any(isinstance(value, Obj) and value.kind in {"model", "wrapped", "super"} for value in values):
            return
        if any(isinstance(value, Data) and value.models for value in values):
            return
        for value in ordered(values):
            match value:
                case Data() | Unknown() | Obj(kind="lib" | "loaded"):
                    self.record("parameters", attr, node, value)
                case Obj(kind="instance", cls=Class()) if attr not in value.attrs and not self.lookup(
                    value, attr
                ):
                    self.record("parameters", attr, node, value)
                case _:
                    pass

    def _guessed(
        self, node: ast.Call, callees: Values, args: list[Values], kwargs: dict[str, Values]
    ) -> Values:
        """The model that a call makes which cannot be followed."""
        names = [value.name for value in callees if isinstance(value, Lib)]
        model = self.birth("model", names[0] if names else self.frame.module.text(node.func), node)
        model.args = {str(index): values for index, values in enumerate(args)} | kwargs
        self.guessed.add(model)
        if not self.inside:
            self.record("construct", "model", node, model)
        return one(model)

    def call_values(
        self, callees: Values, node: ast.Call | None, args: list[Values], kwargs: dict[str, Values]
    ) -> Values:
        """Call each of some values."""
        result: Values = NOTHING
        for callee in ordered(callees):
            result = join(result, self.apply(callee, node, args, kwargs))
        return result

    def apply(
        self,
        callee: Value,
        node: ast.Call | None,
        args: list[Values],
        kwargs: dict[str, Values],
        *,
        starred: bool = False,
    ) -> Values:
        """What a call gives back, and what it does."""
        match callee:
            case Func():
                return self.call_function(callee, node, args, kwargs, starred=starred)
            case Class():
                return self.instantiate(callee, node, args, kwargs, starred=starred)
            case Lib(name=name):
                return libraries.call(self, name, node, args, kwargs, starred=starred)
            case Method():
                return libraries.method(self, callee, node, args, kwargs)
            case Obj(kind="wrapped", inner=Obj() as inner):
                return self.forward(inner, node, args, kwargs, through=callee)
            case Obj(kind="model" | "criterion"):
                return self.forward(callee, node, args, kwargs)
            case Obj(kind="partial"):
                bound = list(callee.items or ())
                return self.call_values(callee.rest, node, [*bound, *args], {**callee.attrs, **kwargs})
            case Obj(cls=Class()):
                method = self.lookup(callee, "__call__")
                if method:
                    return self.call_values(method, node, args, kwargs)
                return one(merge([data_of(item) for item in (*args, *kwargs.values())] or [PLAIN]))
            case Data():
                data = merge([callee, *(data_of(item) for item in (*args, *kwargs.values()))])
                return one(libraries.traced(self, "", node, data))
            case _:
                if node is not None:
                    self.escape(node, args, kwargs, "")
                data = merge([data_of(item) for item in (*args, *kwargs.values())] or [PLAIN])
                return one(libraries.traced(self, "", node, data))

    def escape(self, node: ast.Call, args: list[Values], kwargs: dict[str, Values], name: str) -> None:
        """Models and functions go where they cannot be followed."""
        for values in (*args, *kwargs.values()):
            for value in ordered(values):
                if isinstance(value, Obj) and value.kind in {"model", "wrapped"}:
                    self.record("escape", name, node, value)
                elif isinstance(value, Func) and value.node not in self.count:
                    self.apply(value, None, [], {}, starred=True)

    def forward(
        self,
        model: Obj,
        node: ast.Call | None,
        args: list[Values],
        kwargs: dict[str, Values],
        through: Obj | None = None,
    ) -> Values:
        """A model is called."""
        if self.grad and not self.dead:
            self.graded.add(model)
        given = merge([data_of(item) for item in (*args, *kwargs.values())] or [PLAIN])
        if node is not None and not any(item.root is model.root for item in self.inside):
            bound = {str(i): item for i, item in enumerate(args)} | kwargs
            self.record("forward", model.kind, node, through or model, bound)
        method = self.lookup(model, "forward")
        if method and len(self.inside) < DEEPEST:
            self.inside.append(model)
            inner = self.call_values(method, node, args, kwargs)
            self.inside.pop()
            given = merge([given, data_of(inner)])
        else:
            inner = NOTHING
        kept = [value for value in inner if isinstance(value, Obj) and value.kind in CONTAINERS]
        own = model if not self.inside else self.inside[0]
        reached = given.models if model.kind == "criterion" else given.models | {own}
        tags = given.tags | {"local"} if reached or given.local else given.tags
        tags = tags - {"count", "size", "params"} - couplings.LAYOUTS
        if model.kind == "model":
            tags = tags - {"selected"}  # what a network passes over inside is no choice among samples
        if model.kind == "criterion":
            match self._reduction(model, node, args):
                case "each":
                    tags |= {"each"}
                case "summed":
                    tags = (tags - {"averaged"}) | {"summed"}
                case mean:
                    tags = (tags - {"summed"}) | {mean, "averaged"}
        result = Data(reached, given.loaders, tags)
        if model.kind == "model":
            result = Data(
                reached, given.loaders, frozenset(tag for tag in tags if not tag.startswith(_MEANS))
            )
        elif not method and node is not None:
            result = self.bent(node, result)
            result = self.averaged(node, result) if "averaged" in tags else result
        parts = [data_of(item) for item in args]
        if not method and node is not None and couplings.pairs(parts, product=False):
            result = merge([result, self.coupled(node, parts)])
        for item in kept:
            if item.items and len(inner) == 1 and item.kind == "tuple":
                pair = self.birth("tuple", "tuple", node or _NOWHERE)
                pair.items = [one(merge([result, data_of(part)])) for part in item.items]
                return one(pair)
        return one(result)

    def _reduction(self, criterion: Obj, node: ast.Call | None, args: list[Values]) -> str:
        """Whether a criterion adds up or averages; over what it does not ignore, it averages locally."""
        reduction = criterion.args.get("reduction", NOTHING)
        if Const("sum") in reduction or Const(False) in criterion.args.get("size_average", NOTHING):
            return "summed"
        if Const("none") in reduction or Const(False) in criterion.args.get("reduce", NOTHING):
            return "each"
        if node is not None and isinstance(node.func, ast.Name | ast.Attribute):
            name = self.frame.module.text(node.func)
            counts = libraries.counted(
                criterion.name.removesuffix("Loss"), criterion.args, f"{name}.weight", f"{name}.ignore_index"
            )
            if counts is not None:
                self.record("local_mean", counts, node, merge([data_of(item) for item in args] or [PLAIN]))
                return mean_at(node)
        if node is not None and any("selected" in data_of(item).tags for item in args):
            self.record("local_mean", libraries.CHOSEN, node, merge([data_of(item) for item in args]))
            return mean_at(node)
        return "averaged"

    def call_function(
        self,
        function: Func,
        node: ast.Call | None,
        args: list[Values],
        kwargs: dict[str, Values],
        *,
        starred: bool = False,
    ) -> Values:
        """Follow a call into a function of the program."""
        definition = function.node
        times = self.count.get(definition, 0)
        active = sum(1 for frame in self.stack if frame.node is definition)
        often = OFTEN if self.followed < MANY else SELDOM
        if active > 1 or len(self.stack) > DEEPEST or (times > often and definition in self.known):
            return _recalled(self.known.get(definition, SOME), [*args, *kwargs.values()])
        self.count[definition] = times + 1
        self.followed += 1
        before = len(self.events)
        frame = Frame(function.module, definition, {}, function.closure, function.closure.top)
        frame.cls = None
        self.bind_parameters(frame, function, args, kwargs, starred=starred)
        current, self.frame = self.frame, frame
        grad, loops = self.grad, self.loops
        if any(name in libraries.NO_GRAD for name in function.decorators):
            self.grad = False
        self.stack.append(frame)
        entered = self._enter_model(function)
        if isinstance(definition, ast.Lambda):
            frame.returns = self.eval(definition.body)
        elif self.block(definition.body):
            frame.returns = join(frame.returns, NONE)
        if entered:
            self.inside.pop()
        self.stack.pop()
        self.frame, self.loops = current, loops
        self._through_method(function, node, frame.returns)
        if self.grad is False and grad:
            self.grad = grad
        result = frame.returns
        if frame.yields:
            made = self.birth("iter", "generator", node or definition)
            made.rest = join(made.rest, frame.yields)
            made.walks |= frame.walks or self._walked(before)
            result = one(made)
        self.known[definition] = join(self.known.get(definition, NOTHING), result)
        return result

    def _enter_model(self, function: Func) -> bool:
        bound = function.bound
        if (
            isinstance(bound, Obj)
            and bound.kind == "model"
            and (not self.inside or self.inside[-1] is not bound)
        ):
            self.inside.append(bound)
            return True
        return False

    def _through_method(self, function: Func, node: ast.Call | None, returned: Values) -> None:
        """A method of a model other than `forward` was called from outside it."""
        model = function.bound
        if (
            not isinstance(model, Obj)
            or model.kind != "model"
            or node is None
            or isinstance(function.node, ast.Lambda)
        ):
            return
        if function.node.name in {"forward", "__init__", "__call__"} or any(
            i.root is model.root for i in self.inside
        ):
            return
        data = data_of(returned)
        if model in data.models and "params" not in data.tags:
            self.record("through_method", function.node.name, node, self.wrapped_of(node, model))

    def wrapped_of(self, node: ast.Call, model: Obj) -> Obj:
        """The wrapper through which a method call reaches the model, or the model itself."""
        if isinstance(node.func, ast.Attribute):
            for value in self.seen.get(node.func.value, NOTHING):
                if isinstance(value, Obj) and value.kind == "wrapped" and value.inner is model:
                    return value
        return model

    def bind_parameters(
        self, frame: Frame, function: Func, args: list[Values], kwargs: dict[str, Values], *, starred: bool
    ) -> None:
        """Arguments to parameters, as Python does it."""
        spec = function.node.args
        names = [item.arg for item in (*spec.posonlyargs, *spec.args)]
        given = list(args)
        if function.bound is not None:
            given.insert(0, one(function.bound))
            if isinstance(function.bound, Obj):
                frame.self_value = function.bound
        defaults = dict(zip(reversed(names), reversed(spec.defaults), strict=False))
        for name, values in zip(names, given, strict=False):
            frame.names[name] = values
        if spec.vararg is not None:
            rest = self.birth("tuple", "tuple", spec.vararg)
            rest.items = list(given[len(names) :]) if not starred else None
            rest.rest = SOME if starred else NOTHING
            frame.names[spec.vararg.arg] = one(rest)
        known = {*names, *(item.arg for item in spec.kwonlyargs)}
        for name, values in kwargs.items():
            if name in known:
                frame.names[name] = values
        if spec.kwarg is not None:
            extra = self.birth("dict", "dict", spec.kwarg)
            extra.attrs = {name: values for name, values in kwargs.items() if name not in known}
            extra.rest = SOME if starred else NOTHING
            frame.names[spec.kwarg.arg] = one(extra)
        keyword_defaults = {
            item.arg: default
            for item, default in zip(spec.kwonlyargs, spec.kw_defaults, strict=True)
            if default
        }
        current, self.frame = self.frame, function.closure
        for name in [*names, *(item.arg for item in spec.kwonlyargs)]:
            if name not in frame.names:
                default = defaults.get(name) or keyword_defaults.get(name)
                values = self.eval(default) if default is not None else one(Unknown(f"`{name}` is not given"))
                frame.names[name] = join(values, SOME) if starred else values
        self.frame = current

    def instantiate(
        self,
        cls: Class,
        node: ast.Call | None,
        args: list[Values],
        kwargs: dict[str, Values],
        *,
        starred: bool = False,
    ) -> Values:
        """An object of a class of the program."""
        if node is not None and _splits(cls):
            for value in [value for values in (*args, *kwargs.values()) for value in values]:
                if isinstance(value, Obj) and value.kind in {"model", "wrapped"}:
                    self.record("data_parallel", cls.node.name, node, value)
                    return one(value)
        kind = self._kind_of(cls)
        obj = self.birth(kind, cls.node.name, node or cls.node, cls=cls)
        obj.cls = cls
        obj.starred = starred
        obj.args.update({str(index): values for index, values in enumerate(args)} | kwargs)
        if kind == "exception":
            return one(obj)
        method = self._class_attribute(cls, "__init__", obj)
        if kind == "model":
            self.inside.append(obj)
        if method:
            for item in method:
                self.apply(item, node, args, kwargs, starred=starred)
        elif kind == "instance":
            self._dataclass(obj, cls, args, kwargs)
        if kind == "model":
            self.inside.pop()
        if kind in {"loader", "dataset", "sampler", "optimizer"} and node is not None:
            self.record("construct", kind, node, obj, {str(i): v for i, v in enumerate(args)} | kwargs)
        if kind == "model" and node is not None and not self.inside:
            self.record("construct", kind, node, obj)
        return one(obj)

    def _dataclass(self, obj: Obj, cls: Class, args: list[Values], kwargs: dict[str, Values]) -> None:
        fields = [
            item.target.id
            for item in cls.node.body
            if isinstance(item, ast.AnnAssign) and isinstance(item.target, ast.Name)
        ]
        obj.attrs.update(zip(fields, args, strict=False))
        obj.attrs.update(kwargs)

    def _kind_of(self, cls: Class) -> str:
        for base in cls.mro():
            if isinstance(base, Class) and base.node in self.models:
                return "model"
            if isinstance(base, Lib):
                kind = libraries.kind_of_base(base.name)
                if kind:
                    return kind
        return "instance"

    def escape_function(self, values: Values) -> None:
        """A function is handed to a library, which will call it."""
        for value in ordered(values):
            if isinstance(value, Func):
                self.apply(value, None, [], {}, starred=True)


def _splits(cls: Class) -> bool:
    """Whether a class of the script's is a DataParallel."""
    return any(isinstance(base, Lib) and base.name == "torch.nn.DataParallel" for base in cls.mro())


def _is_command(node: ast.AST) -> bool:
    """Whether a function is a command of click's or typer's."""
    decorators = node.decorator_list if isinstance(node, ast.FunctionDef) else []
    makers = [item.func if isinstance(item, ast.Call) else item for item in decorators]
    return any(isinstance(item, ast.Attribute) and item.attr == "command" for item in makers)


def _is_number(value: Value) -> bool:
    """Whether a value is a number written in the program, or a count of such."""
    match value:
        case Const(value=int() | float()):
            return True
        case Data(models=models, tags=tags):
            return not models and tags <= {"count", "local"}
        case _:
            return False


def is_part(values: Values) -> bool:
    """Whether values hold a module or a parameter that the script has made."""
    return any(
        isinstance(value, Obj) and value.call is not None and (value.kind == "model" or _is_parameter(value))
        for value in values
    )


def _is_parameter(value: Value) -> bool:
    return isinstance(value, Obj) and value.name.endswith("nn.Parameter")


_MEANS = ("average at ", "bent at ")


def _is_sum(data: Data) -> bool:
    """Whether this is a sum over the batch and nothing else."""
    return bool(data.models) and "summed" in data.tags and "averaged" not in data.tags


def _put_together(left: Values, right: Values) -> list[Values] | None:
    """The items of two lists, if they are known; of lists that it may be, those of the longest."""
    found: list[Values] = []
    for side in (left, right):
        lists = [value for value in side if isinstance(value, Obj) and value.items is not None]
        if not lists or len(lists) < len(side) or any(value.rest for value in lists):
            return None
        longest: list[Values] = []
        for value in lists:
            longest = max(longest, value.items or [], key=len)
        found += longest
    return found


def _is_enumeration(cls: Class) -> bool:
    """Whether the names of a class stand for its members: each is one thing, whatever value it is given."""
    return any(isinstance(base, Lib) and base.name in _ENUMERATIONS for base in cls.mro())


_ENUMERATIONS = frozenset({"enum.Enum", "enum.IntEnum", "enum.StrEnum", "enum.Flag", "enum.IntFlag"})


def _recalled(known: Values, given: list[Values]) -> Values:
    """What a function gave before, for what it is given now: not from the batches of other calls."""
    loaders = frozenset(loader for values in given for loader in data_of(values).loaders)
    if not loaders:
        return known
    return frozenset(
        Data(value.models, loaders, value.tags) if isinstance(value, Data) and value.loaders else value
        for value in known
    )


def _held(holder: Obj, keys: list[object]) -> Values:
    """What a module that only holds others has under a key; anything it holds where that is not sure."""
    if holder.name not in libraries.HOLDERS or not all(isinstance(key, int | str) for key in keys):
        return NOTHING
    everything: Values = frozenset().union(holder.rest, *holder.attrs.values())
    if len(keys) != 1:
        return everything
    key = keys[0]
    if isinstance(key, int) and key < 0:
        if holder.rest:
            return everything
        key += len(holder.attrs)
    return holder.attrs.get(str(key), everything)


def _batches_vary(loader: Obj) -> bool:
    """Whether a batch sampler of the program decides how many samples a batch has."""
    return any(isinstance(item, Obj) and item.cls for item in loader.args.get("batch_sampler", NOTHING))


def _comes_with_batch(data: Data) -> bool:
    """Whether a number was brought by a batch (tokens, valid pixels) and is not the batch's size."""
    other = {"size", "summed", "averaged"}
    return "batch" in data.tags and not data.models and not data.tags & other


def _keeps_its_size(data: Data) -> bool:
    """Whether this part of a loss is the same for a batch of any size: a mean, or a penalty of the weights."""
    if not data.models or "summed" in data.tags:
        return False
    return "averaged" in data.tags or ("params" in data.tags and not data.loaders and not data.local)


BATCH_SIZE = r"(?i)batch_?size|^bsz?$"


def truth(values: Values) -> bool | None:
    """Whether a test is decided by a literal (not by configuration, which the user may change)."""
    outcomes = set()
    for value in values:
        if isinstance(value, Const) and not value.config:
            outcomes.add(bool(value.value))
        elif isinstance(value, Func | Class | Mod) or (
            isinstance(value, Obj)
            and value.kind
            in {
                "model",
                "wrapped",
                "optimizer",
                "loader",
                "scaler",
                "scheduler",
            }
        ):
            outcomes.add(True)
        else:
            return None
    return outcomes.pop() if len(outcomes) == 1 else None


def joined(
    first: dict[str, Values], second: dict[str, Values], *, tainted: bool = False
) -> dict[str, Values]:
    """Either of two scopes; with `tainted`, names that differ depend on a local decision."""
    if first is second:
        return first
    result = dict(first)
    for name, values in second.items():
        mine = result.get(name)
        if mine is None:
            result[name] = values
        elif mine is not values and mine != values:
            result[name] = join(mine, values)
            if tainted and not any(isinstance(v, _MADE) for v in result[name]):
                result[name] = join(result[name], one(Data(tags=frozenset({"local"}))))
    return result


def _grown(before: Values | None, after: Values | None) -> bool:
    """Whether a loop gave a name an object that it did not have when the loop began."""
    if not after:
        return False
    new = after - (before or NOTHING)
    return any(isinstance(value, _MADE) for value in new) and before is not None


_ASSIGNED: dict[ast.AST, frozenset[str]] = {}


def _assigned(loop: ast.AST) -> frozenset[str]:
    found = _ASSIGNED.get(loop)
    if found is None:
        found = frozenset(
            node.id for node in walk(loop) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
        )
        _ASSIGNED[loop] = found
    return found


_TURNS: dict[tuple[ast.AST, int], ast.AST] = {}


def _put(obj: Obj, attr: str, values: Values | None) -> None:
    if values is None:
        obj.attrs.pop(attr, None)
    else:
        obj.attrs[attr] = values


def _turn(node: ast.AST, index: int) -> ast.AST:
    """A marker in the calls for one turn of an unrolled loop, the same each time."""
    return _TURNS.setdefault((node, index), ast.Pass())


def turn_of(node: ast.AST, mark: ast.AST) -> int | None:
    """Which turn of the unrolled loop a marker in the calls stands for."""
    return next((index for (loop, index), known in _TURNS.items() if known is mark and loop is node), None)


def _as_load(target: ast.expr) -> ast.expr:
    return target


def _bound_to(function: Func, owner: "Obj | Class") -> Func:
    return Func(function.node, function.module, function.closure, owner, function.cls, function.decorators)


def _configured(values: Values) -> Values:
    if any(isinstance(value, Const) and not value.config for value in values):
        return frozenset(
            Const(value.value, config=True) if isinstance(value, Const) and value.value is not None else value
            for value in values
        )
    return values


def _fold(op: ast.operator, first: Const, second: Const) -> Const | None:
    config = first.config or second.config
    a, b = first.value, second.value
    if isinstance(op, ast.Add) and isinstance(a, str) and isinstance(b, str):
        return Const(a + b, config=config)
    if isinstance(a, int | float) and isinstance(b, int | float):
        match op:
            case ast.Add():
                return Const(a + b, config=config)
            case ast.Sub():
                return Const(a - b, config=config)
            case ast.Mult():
                return Const(a * b, config=config)
            case _:
                return None
    return None


def _compare(op: ast.cmpop, left: Values, right: Values) -> bool | None:
    """A comparison that literals decide."""
    if isinstance(op, _IDENTITY) and right == NONE:
        known = {value == Const(None) for value in left}
        if any(isinstance(value, Data | Unknown) for value in left) or len(known) != 1:
            return None
        if any(isinstance(value, Const) and value.config for value in left):
            return None
        return known.pop() is isinstance(op, ast.Is)
    if len(left) != 1:
        return None
    (a,) = left
    if not isinstance(a, Const) or a.config:
        return None
    if isinstance(op, _MEMBERSHIP) and len(right) == 1:
        (container,) = right
        if isinstance(container, Obj) and container.items is not None and not container.rest:
            members = [value for item in container.items for value in item]
            if all(isinstance(value, Const) for value in members):
                return (a in members) is isinstance(op, ast.In)
        return None
    if len(right) != 1:
        return None
    (b,) = right
    if not isinstance(b, Const) or b.config:
        return None
    match op:
        case ast.Eq() | ast.Is():
            return a.value == b.value
        case ast.NotEq() | ast.IsNot():
            return a.value != b.value
        case _:
            return None


def walk_events(events: Iterable[Event], *kinds: str) -> Iterator[Event]:
    """The events of some kinds."""
    return (event for event in events if event.kind in kinds)
