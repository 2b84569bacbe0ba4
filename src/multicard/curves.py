"""What a training loop writes down of its steps, and how shares of it make the whole: curves, meters, last averages.

Each rank writes down what it saw of a step.  Ranks make as many steps, on batches of one size: what the losses of a
step are on all ranks is their mean, step by step, and so it is with whatever grows evenly with them.  Joined one
after the other they would be a curve in another order.
"""

import ast
from collections.abc import Callable, Iterable, Iterator
from functools import cached_property

from multicard.carried import Carried, How, Reading, walk_scope
from multicard.facts import Facts
from multicard.last_batch import read_after
from multicard.tree import held, nodes, walk
from multicard.values import Class, Const, Data, Func, Obj, data_of

_SAME_NUMBER = frozenset(
    {"detach", "cpu", "numpy", "clone", "double", "float", "tolist", "cuda", "to", "item"}
)
_NUMBERS = frozenset({"float", "round", "int"})
_OTHER_TRADE = frozenset(
    {"model", "wrapped", "optimizer", "loader", "writer", "file", "dataset", "scheduler", "scaler", "iter"}
)
"""An object that holds one of these does more than to add up."""
_CHOOSING = frozenset({"argmax", "argmin", "max", "min", "multinomial", "sample", "choice", "topk", "sort"})
_DEEP = 5


def curves(facts: Facts, reading: Reading, agreed: Callable[[], frozenset[int]]) -> list[Carried]:
    """What a training loop writes down, where the mean of what ranks wrote is what one card would have written.

    `agreed` says where conditions begin on which the ranks are made to agree.
    """
    return _Steps(facts, reading, agreed).found()


def left_apart(facts: Facts, reading: Reading, done: Iterable[Carried]) -> Iterator[Carried]:
    """What a training loop writes down of the model's results and somebody reads later; each rank has its own."""
    known = {item.name for item in done}
    steps = _Steps(facts, reading, frozenset)
    for item in (*reading.carried, *reading.by_number, *reading.left):
        if item.name in known or item.how is How.COUNT:
            continue
        known.add(item.name)
        places = [place for _, place, _ in reading.writes.get(item.name, [])]
        given = [part for place in places for part in _given_by(place)]
        if any(data_of(facts.values(part)).models for part in given) and not any(map(steps.evaluated, given)):
            yield item
    for name, (root, node) in steps.odd.items():
        if name not in known and steps.read_later(root):
            yield Carried(name, How.LAST, node)


def _given_by(place: ast.AST) -> list[ast.expr]:
    """What a statement or a call writes."""
    match place:
        case ast.Call(args=args, keywords=keywords):
            return [*args, *(keyword.value for keyword in keywords)]
        case ast.Assign(value=value) | ast.AugAssign(value=value) | ast.NamedExpr(value=value):
            return [value]
        case ast.AnnAssign(value=ast.expr() as value):
            return [value]
        case _:
            return []


class _Steps:
    def __init__(self, facts: Facts, reading: Reading, agreed: Callable[[], frozenset[int]]) -> None:
        self.facts = facts
        self.module = reading.module
        self.loop = reading.loop
        self.reading = reading
        self.find_agreed = agreed
        self.inside = held(self.loop)
        self.known: frozenset[str] = frozenset()
        self.asked: list[str] = []
        self.odd_ones: dict[str, tuple[ast.Name | ast.Attribute, ast.AST]] = {}

    def found(self) -> list[Carried]:
        return [*self._holders(), *self._lists(), *self._averages()]

    # --- lists -----------------------------------------------------------------------------------------------

    def _lists(self) -> Iterator[Carried]:
        appended: dict[str, list[tuple[ast.AST, ast.expr, ast.expr]]] = {}
        for node, owner, value in self._appends():
            appended.setdefault(self.module.text(owner), []).append((node, owner, value))
        for name, places in appended.items():
            node, owner, _ = places[0]
            root = _root(owner)
            if root is None or not all(self._alike(key) for key in _keys(owner)):
                continue
            if not all(self._every_rank(place) for place, _, _ in places) or not self.read_later(root):
                continue
            rows = [self._noted(value) for _, _, value in places]
            if not any(rows) or not all(
                row or self._bare(place[2]) for row, place in zip(rows, places, strict=True)
            ):
                continue
            plain = owner is root and all(self._number(value) for _, _, value in places)
            fresh = self.reading.start(name) == "empty"
            yield Carried(name, How.MEAN if plain and fresh else How.STATE, node)

    def _appends(self) -> Iterator[tuple[ast.AST, ast.expr, ast.expr]]:
        for node in self._nodes:
            match node:
                case ast.Call(func=ast.Attribute(value=owner, attr="append"), args=[value], keywords=[]):
                    yield node, owner, value
                case ast.AugAssign(target=owner, op=ast.Add(), value=ast.List(elts=[value])):
                    yield node, owner, value
                case _:
                    pass

    def _noted(self, value: ast.expr) -> bool:
        """Whether a row of a curve holds numbers of the step, and besides nothing of the model or the data."""
        match value:
            case ast.Tuple(elts=parts) | ast.List(elts=parts) | ast.Dict(values=parts):
                rows = [self._noted(part) for part in parts]
                return any(rows) and all(
                    row or self._bare(part) for row, part in zip(rows, parts, strict=True)
                )
            case ast.Name(id=name) if (writes := self.reading.writes.get(name)) and all(
                isinstance(given, ast.Tuple | ast.List | ast.Dict) for _, _, given in writes
            ):
                return all(given is not None and self._noted(given) for _, _, given in writes)
            case _:
                return self._number(value)

    def _bare(self, value: ast.expr) -> bool:
        """Whether a value has nothing of the model or of the data: what all ranks have, a rate, a time."""
        data = data_of(self.facts.values(value))
        own = data.local and "clock" not in data.tags
        sizes = "size" in data.tags and not data.tags & {"count", "extent", "mask", "selected"}
        if sizes and not data.models and data.loaders and data.loaders <= self.facts.train_loaders:
            return True  # all ranks have as many samples, and as many batches, of what they train on
        return self._alike(value) or not (data.models or data.loaders or own)

    # --- objects ---------------------------------------------------------------------------------------------

    def _holders(self) -> Iterator[Carried]:
        done = set(self.reading.of(How.METER))
        for name, (root, node) in self.even.items():
            if name not in done and self.read_later(root):
                yield Carried(name, How.STATE, node)

    @cached_property
    def even(self) -> dict[str, tuple[ast.Name | ast.Attribute, ast.AST]]:
        """Objects of the script's that are told numbers of each step, and only add them up, by name."""
        found = self._told_evenly()
        while len(found) > len(self.known):  # one may be told what another has added up
            self.known = frozenset(found)
            found = self._told_evenly()
        return found

    def _told_evenly(self) -> dict[str, tuple[ast.Name | ast.Attribute, ast.AST]]:
        found: dict[str, tuple[ast.Name | ast.Attribute, ast.AST]] = {}
        odd = set()
        for node in self._nodes:
            match node:
                case ast.Call(func=ast.Attribute(value=owner, attr=attr), args=args, keywords=keywords):
                    given = [*args, *(keyword.value for keyword in keywords if keyword.arg is not None)]
                case _:
                    continue
            root = _root(owner)
            if root is None or not any(data_of(self.facts.values(part)).models for part in given):
                continue
            name = self.module.text(root)
            found.setdefault(name, (root, node))
            if not (
                self._adds_evenly(owner, attr) and self._every_rank(node) and all(map(self._told, given))
            ):
                odd.add(name)
        self.odd_ones = {
            name: (root, node) for name, (root, node) in found.items() if name in odd and self._keeps(node)
        }
        return {name: place for name, place in found.items() if name not in odd}

    @property
    def odd(self) -> dict[str, tuple[ast.Name | ast.Attribute, ast.AST]]:
        """Objects of the script's that keep in another way what they are told."""
        return self.odd_ones if self.even is not None else {}

    def _keeps(self, call: ast.AST) -> bool:
        """Whether a method of an object that does nothing else changes what it keeps."""
        assert isinstance(call, ast.Call)
        assert isinstance(call.func, ast.Attribute)
        return any(
            isinstance(obj, Obj)
            and obj.kind == "instance"
            and obj.cls is not None
            and not _works(obj)
            and call.func.attr in _methods(obj.cls)
            and _changes(_methods(obj.cls)[call.func.attr])
            for obj in self.facts.values(call.func.value)
        )

    def _told(self, value: ast.expr) -> bool:
        """Whether a meter is told a number, a sum over the batch, its size, or what all ranks have."""
        match value:
            case ast.Tuple(elts=parts) | ast.List(elts=parts) | ast.Dict(values=parts):
                return all(map(self._told, parts))
            case ast.Starred():
                return False
            case ast.BinOp(left=left, op=ast.Mult(), right=right) if self._size(right):
                return self._told(left)
            case _:
                return self._alike(value) or self._size(value) or self._counted(value) or self._scalar(value)

    def _scalar(self, value: ast.expr) -> bool:
        """Whether a value is one number, chosen by nobody: `loss.item()`, and not `out.argmax().item()`."""
        if self._number(value):
            return True
        match value:
            case ast.Call(func=ast.Attribute(value=inner, attr="item")):
                writes = self.reading.writes.get(self.module.text(inner), [])
                chosen = [inner, *(given for _, _, given in writes if given is not None)]
                return not any(
                    isinstance(part, ast.Attribute) and part.attr in _CHOOSING
                    for one in chosen
                    for part in walk(one)
                )
            case ast.Call(func=ast.Name(id="sum")):
                return True
            case ast.Name(id=name) if told := self.reading.writes.get(name):
                return all(isinstance(given, ast.Call) and self._scalar(given) for _, _, given in told)
            case ast.Call() if any(isinstance(item, Func) for item in self.facts.values(value.func)):
                data = [item for item in self.facts.values(value) if isinstance(item, Data) and item.models]
                return bool(data) and all(item.tags & {"averaged", "summed", "count"} for item in data)
            case _:
                return False

    def _adds_evenly(self, owner: ast.expr, method: str) -> bool:
        """Whether a method only adds to what objects of the script's classes keep, in proportion to what it is told."""
        objs = [value for value in self.facts.values(owner) if value != Const(None)]
        return bool(objs) and all(
            isinstance(obj, Obj) and obj.kind == "instance" and obj.cls is not None and _evenly(obj, method)
            for obj in objs
        )

    # --- averages --------------------------------------------------------------------------------------------

    def _averages(self) -> Iterator[Carried]:
        """Names that get an average anew from time to time, and are read after the loop."""
        for name, writes in self.reading.writes.items():
            root = self.reading.roots[name]
            if not all(kind == "set" and value is not None for kind, _, value in writes):
                continue
            values = [value for _, _, value in writes if value is not None]
            if not all(self._number(value) for value in values) or all(map(self._alike, values)):
                continue
            read = self._read_after(root) if isinstance(root, ast.Attribute) else self._read_next(name)
            if read and all(self._every_rank(node) for _, node, _ in writes):
                yield Carried(name, How.MEAN, writes[0][1])

    # --- numbers ---------------------------------------------------------------------------------------------

    def _number(self, value: ast.expr, deep: int = _DEEP) -> bool:
        """Whether a value is one number that is a mean over the batch, or grows evenly with such numbers."""
        match value:
            case ast.Call(func=ast.Attribute(value=inner, attr="item"), args=[]):
                return self._mean(inner) or self._number(inner, deep)
            case ast.Call(func=ast.Attribute(attr="mean"), args=[], keywords=[]):
                return self._mean(value)
            case ast.Call(func=ast.Name(id=name), args=[inner, *_]) if name in _NUMBERS:
                return self._mean(inner) or self._number(inner, deep)
            case ast.Call(func=ast.Attribute(value=inner, attr=attr)) if attr in _SAME_NUMBER:
                return self._number(inner, deep)
            case ast.Attribute(value=inner, attr="data"):
                return self._number(inner, deep)
            case ast.Call() if self._gives_numbers(value):
                return self._mean(value)
            case ast.Name(id=name):
                return (name in self.losses and self._mean(value)) or self._named(name, deep)
            case ast.BinOp(left=ast.Subscript(value=one), op=ast.Div(), right=ast.Subscript(value=other)) if (
                self.module.text(one) == self.module.text(other)
            ):
                return self.module.text(one) in self.known
            case ast.BinOp(left=left, op=ast.Add() | ast.Sub(), right=right):
                parts = [self._number(left, deep), self._number(right, deep)]
                return any(parts) and all(
                    number or self._alike(part) for number, part in zip(parts, (left, right), strict=True)
                )
            case ast.BinOp(left=left, op=ast.Mult(), right=right):
                return (self._alike(left) and self._number(right, deep)) or (
                    self._number(left, deep) and self._alike(right)
                )
            case ast.BinOp(left=left, op=ast.Div(), right=right):
                if self._counted(left) and self._size(right):
                    return True
                return self._number(left, deep) and (self._alike(right) or self._size(right))
            case _:
                return False

    def _gives_numbers(self, call: ast.Call) -> bool:
        """Whether a call is of the script's own functions, which give back one number: `return loss.item()`."""
        functions = [value.node for value in self.facts.values(call.func) if isinstance(value, Func)]
        given = [item.value for function in functions for item in nodes(function, ast.Return)]
        return bool(given) and all(
            isinstance(value, ast.Call)
            and (
                (isinstance(value.func, ast.Attribute) and value.func.attr == "item")
                or (isinstance(value.func, ast.Name) and value.func.id == "float")
            )
            for value in given
        )

    def _named(self, name: str, deep: int) -> bool:
        """Whether all that the loop gives a name are such numbers, or what all ranks have."""
        writes = self.reading.writes.get(name, [])
        if any(isinstance(node, ast.Name) and node.id == name for node in walk(self.loop.target)):
            return False
        if name in self.asked:
            return True  # what it was the turn before
        if not deep or not writes or not all(self._every_rank(node) for _, node, _ in writes):
            return False
        self.asked.append(name)
        numbers = [
            kind in {"set", "add"}
            and value is not None
            and (self._alike(value) or self._number(value, deep - 1))
            for kind, _, value in writes
        ]
        self.asked.pop()
        return all(numbers) and not all(value is not None and self._alike(value) for _, _, value in writes)

    def _mean(self, value: ast.expr) -> bool:
        """Whether a tensor of the model's is a mean over the batch, as far as is seen."""
        data = [item for item in self.facts.values(value) if isinstance(item, Data)]
        if isinstance(value, ast.Name) and value.id in self.losses:
            return not any(
                item.tags & {"summed", "count", "each"} and "averaged" not in item.tags for item in data
            )
        return any(item.models and "averaged" in item.tags for item in data)

    def _counted(self, value: ast.expr) -> bool:
        """Whether a value is a sum over the batch."""
        while (
            isinstance(value, ast.Call)
            and isinstance(value.func, ast.Attribute)
            and value.func.attr in _SAME_NUMBER
        ):
            value = value.func.value
        if isinstance(value, ast.BinOp) and isinstance(value.op, ast.Mult):
            sides = (value.left, value.right)
            return any(self._counted(one) and self._alike(other) for one, other in (sides, sides[::-1]))
        data = [item for item in self.facts.values(value) if isinstance(item, Data) and item.models]
        return bool(data) and all(item.tags & {"summed", "count"} for item in data)

    def _size(self, value: ast.expr) -> bool:
        """Whether a divisor is the same on all ranks: what comes from the size of a batch, not from the model."""
        data = [item for item in self.facts.values(value) if isinstance(item, Data)]
        return not any(item.models or item.tags & {"mask", "selected"} for item in data)

    @cached_property
    def losses(self) -> frozenset[str]:
        """The names of what goes backward in this loop."""
        return frozenset(
            node.id
            for event in self.facts.backwards
            if event.node in self.inside and isinstance(event.node, ast.Call)
            for node in nodes(event.node, ast.Name)
        )

    # --- where ------------------------------------------------------------------------------------------------

    @cached_property
    def _nodes(self) -> tuple[ast.AST, ...]:
        return tuple(node for statement in self.loop.body for node in walk_scope(statement))

    def _alike(self, value: ast.expr) -> bool:
        return self.reading.alike(value) or (
            not any(isinstance(part, ast.Call | ast.Subscript | ast.Lambda) for part in walk(value))
            and all(
                self.reading.alike(part) or self.module.text(part) in self._counters
                for part in walk(value)
                if isinstance(part, ast.Name | ast.Attribute)
            )
        )

    @cached_property
    def _counters(self) -> frozenset[str]:
        """Names that each turn of the loop changes in the same way: `step += 1`, `lr *= factor`."""
        return frozenset(
            name
            for name, writes in self.reading.writes.items()
            if all(
                isinstance(node, ast.AugAssign)
                and self.reading.alike(node.value)
                and all(map(self.reading.alike, self.reading.tests(node)))
                for _, node, _ in writes
            )
        )

    def _every_rank(self, node: ast.AST) -> bool:
        """Whether all ranks come by, each as often: only conditions that they share stand round it."""
        tests = [test for test in self.reading.tests(node) if not self._alike(test)]
        return all(self.module.span(test).start in self.agreed for test in tests)

    @cached_property
    def agreed(self) -> frozenset[int]:
        """Where conditions stand on which the ranks will agree."""
        return self.find_agreed()

    def evaluated(self, value: ast.expr) -> bool:
        """Whether a value comes from a function that walks through data of its own, as an evaluation does."""
        if isinstance(value, ast.Name):
            places = [place for _, place, _ in self.reading.writes.get(value.id, [])]
            return any(self.evaluated(place.value) for place in places if isinstance(place, ast.Assign))
        return isinstance(value, ast.Call) and any(
            isinstance(function, Func)
            and bool(nodes(function.node, ast.Return))
            and self._walks(function.node, 2)
            for function in self.facts.values(value.func)
        )

    def _walks(self, function: ast.AST, deep: int) -> bool:
        """Whether a function, or one that it calls, goes through batches."""
        return any(
            event.kind == "iterate"
            for loop in nodes(function, ast.For)
            for event in self.facts.by_node.get(loop, ())
        ) or (
            deep > 0
            and any(
                isinstance(inner, Func) and self._walks(inner.node, deep - 1)
                for call in nodes(function, ast.Call)
                for inner in self.facts.values(call.func)
            )
        )

    def read_later(self, root: ast.Name | ast.Attribute) -> bool:
        """Whether somebody reads a value after the loop, and it was there before."""
        name = self.module.text(root)
        base: ast.expr = root
        while isinstance(base, ast.Attribute):
            base = base.value
        if isinstance(base, ast.Name) and self._made_inside(base.id):
            return False
        return isinstance(root, ast.Attribute) or self._comes_from_outside(name) or self._read_after(root)

    def _comes_from_outside(self, name: str) -> bool:
        """Whether a function got a value from its caller, or from its module, who may read it."""
        scope = self.facts.scope(self.module, self.loop)
        return isinstance(scope, ast.FunctionDef) and not any(
            node.id == name and isinstance(node.ctx, ast.Store) for node in nodes(scope, ast.Name)
        )

    def _read_after(self, root: ast.expr) -> bool:
        """Whether somebody reads a value after the loop, in its function or as an attribute."""
        name = self.module.text(root)
        if isinstance(root, ast.Attribute):
            return any(
                isinstance(node.ctx, ast.Load) and node not in self.inside and self.module.text(node) == name
                for node in nodes(self.module.tree, ast.Attribute)
            )
        scope, end = self.facts.scope(self.module, self.loop), self.loop.end_lineno or 0
        around = self.reading.around()
        return self.reading.outlives(name, root) and any(
            node.id == name
            and isinstance(node.ctx, ast.Load)
            and node not in self.inside
            and (node.lineno >= end or (around is not None and node in held(around)))
            for node in nodes(scope, ast.Name)
        )

    def _read_next(self, name: str) -> bool:
        return read_after(self.facts, self.module, self.loop, name)

    def _made_inside(self, name: str) -> bool:
        """Whether a turn of the loop makes the value anew."""
        targets = {node.id for node in walk(self.loop.target) if isinstance(node, ast.Name)}
        writes = self.reading.writes.get(name, [])
        always = [node for _, node, _ in writes if node in self.loop.body]
        return name in targets or bool(
            writes and always and writes[0][0] == "set" and writes[0][1] is always[0]
        )


def _root(owner: ast.expr) -> ast.Name | ast.Attribute | None:
    """The name or attribute at the bottom of `meters["loss"]`."""
    while isinstance(owner, ast.Subscript):
        owner = owner.value
    base: ast.expr = owner
    while isinstance(base, ast.Attribute):
        base = base.value
    return owner if isinstance(owner, ast.Name | ast.Attribute) and isinstance(base, ast.Name) else None


def _keys(owner: ast.expr) -> Iterator[ast.expr]:
    while isinstance(owner, ast.Subscript):
        yield owner.slice
        owner = owner.value


def _works(obj: Obj) -> bool:
    """Whether an object does more than to keep numbers."""
    return any(
        isinstance(value, Obj) and value.kind in _OTHER_TRADE
        for values in obj.attrs.values()
        for value in values
    )


def _evenly(obj: Obj, method: str) -> bool:
    """Whether a method of an object changes it in proportion to what it is given, and the object does nothing else."""
    if obj.cls is None or _works(obj):
        return False
    functions = _methods(obj.cls)
    if method not in functions or len(functions) > _MANY:
        return False
    reached, waiting = {method: functions[method]}, [functions[method]]
    while waiting:
        for node in nodes(waiting.pop(), ast.Attribute):
            if node.attr in functions and node.attr not in reached and node.attr != "__init__":
                reached[node.attr] = functions[node.attr]
                waiting.append(functions[node.attr])
    changes = any(map(_changes, reached.values()))
    return changes and all(map(_proportional, reached.values()))


_MANY = 20


def _methods(cls: Class) -> dict[str, ast.FunctionDef]:
    found: dict[str, ast.FunctionDef] = {}
    for one in cls.mro():
        if isinstance(one, Class):
            for node in one.node.body:
                if isinstance(node, ast.FunctionDef):
                    found.setdefault(node.name, node)
    return found


def _changes(function: ast.FunctionDef) -> bool:
    """Whether a method changes what its object keeps."""
    for node in walk(function):
        match node:
            case ast.Attribute(ctx=ast.Store()) | ast.Subscript(ctx=ast.Store()):
                return True
            case ast.Call(func=ast.Attribute(attr="append" | "update" | "add" | "extend" | "appendleft")):
                return True
            case _:
                continue
    return False


def _proportional(function: ast.FunctionDef) -> bool:
    """Whether what a method is given goes into sums, and decides nothing: no maximum, no square, no threshold."""
    given = {arg.arg for arg in [*function.args.args, *function.args.kwonlyargs]} - {"self"}
    given |= {arg.arg for arg in (function.args.vararg, function.args.kwarg) if arg is not None}
    for loop in nodes(function, ast.For):
        if any(isinstance(node, ast.Name) and node.id in given for node in walk(loop.iter)):
            given |= {node.id for node in walk(loop.target) if isinstance(node, ast.Name)}
    for node in walk(function):
        match node:
            case ast.Compare(ops=[ast.Lt() | ast.LtE() | ast.Gt() | ast.GtE() | ast.Eq() | ast.NotEq()]):
                if _names(node) & given and not _asks_kind(node):
                    return False
            case ast.BinOp(op=ast.Pow()):
                return False
            case ast.BinOp(left=left, op=ast.Mult(), right=right):
                if _names(left) & _names(right) & given:
                    return False
            case ast.Call(func=ast.Name(id="max" | "min" | "open" | "sorted")):
                return False
            case ast.Call(
                func=ast.Attribute(attr="exp" | "log" | "sqrt" | "pow" | "square" | "backward" | "step")
            ):
                return False
            case _:
                continue
    return True


def _names(node: ast.AST) -> set[str]:
    return {part.id for part in walk(node) if isinstance(part, ast.Name)}


def _asks_kind(node: ast.Compare) -> bool:
    """Whether a comparison asks for a kind of value, or counts: `type(v) == float`, `n == 0`."""
    return any(isinstance(part, ast.Call) for part in walk(node.left)) and not any(
        isinstance(part, ast.Attribute) and part.attr == "item" for part in walk(node)
    )
