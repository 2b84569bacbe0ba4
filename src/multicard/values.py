"""What an expression may be while the program is followed: values by birthplace.

Every constructor or factory call makes one `Obj` for each way of getting there.  Names, attributes, elements and
returns hold sets of values; what cannot be followed is `Unknown`, with the reason.
"""

import ast
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cached_property, lru_cache, reduce
from typing import TYPE_CHECKING, NamedTuple

from multicard.source import Module, Site

if TYPE_CHECKING:
    from multicard.interpret import Frame


class Const:
    """A constant.  `config`: it stands at module level or in the command line, so a user may change it."""

    __slots__ = ("config", "value")

    def __init__(self, value: object, *, config: bool = False) -> None:
        self.value = value
        self.config = config

    def __repr__(self) -> str:
        return f"Const(value={self.value!r}, config={self.config!r})"

    def __hash__(self) -> int:
        return hash((type(self.value), self.value, self.config))

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, Const)
            and type(self.value) is type(other.value)
            and self.value == other.value
            and self.config == other.config
        )


class Data(NamedTuple):
    """Numbers, tensors, arrays: what they depend on.

    `models` were called on the way (gradients flow back to them), `loaders` gave the batch.  `tags`: `local` differs
    between ranks, `random` was drawn, `clock` was read from the clock, `params` are parameters of `models`.
    """

    models: frozenset["Obj"] = frozenset()
    loaders: frozenset["Obj"] = frozenset()
    tags: frozenset[str] = frozenset()

    @property
    def local(self) -> bool:
        """Whether ranks may hold different values."""
        return bool(self.tags & LOCAL)


LOCAL = frozenset({"local", "random", "clock"})
PLAIN = Data()


@dataclass(eq=False, repr=False)
class Obj:
    """An object with identity, born at one place."""

    kind: str
    name: str
    """Qualified name of its class or factory."""
    site: Site | None
    cls: "Class | None" = None
    attrs: dict[str, "Values"] = field(default_factory=dict)
    items: list["Values"] | None = None
    """Elements of a list or tuple of known length."""
    rest: "Values" = frozenset()
    """Elements that were added, or all where the length is not known."""
    args: dict[str, "Values"] = field(default_factory=dict)
    """Arguments of the constructor, by the name of the parameter."""
    call: ast.Call | None = None
    makers: list[tuple[Module, ast.Call]] = field(default_factory=list)
    """For a loader: the calls that hand its arguments to the library, also `super().__init__(...)` in branches."""
    starred: bool = False
    owner: "Obj | None" = None
    """The module that holds this submodule."""
    inner: "Obj | None" = None
    """What a wrapper wraps."""
    by: tuple[ast.AST, ...] = ()
    """The calls that led to its birth."""
    why: list[str] = field(default_factory=list)
    walks: bool = False
    """Whether an iterator takes batches out of a loader as it goes; without it, it gives what was kept of them."""

    def __repr__(self) -> str:
        return f"<{self.kind} {self.name} {self.site}>"

    @cached_property
    def place(self) -> tuple[str, int, int, tuple[int, ...]]:
        """Where it stands in the source, and then the calls that led to it."""
        calls = tuple(getattr(call, "lineno", 0) * 1000 + getattr(call, "col_offset", 0) for call in self.by)
        if self.site is None:
            return "", 0, 0, calls
        return self.site.module.name, self.site.line, self.site.node.col_offset, calls

    @property
    def root(self) -> "Obj":
        """The outermost module that holds this one."""
        if self.owner is None:
            return self
        seen, here = {id(self)}, self
        while here.owner is not None and id(here.owner) not in seen:
            here = here.owner
            seen.add(id(here))
        return here


@dataclass(eq=False, repr=False)
class Func:
    """A function of the program, perhaps bound to an object."""

    node: ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda
    module: Module
    closure: "Frame"
    bound: "Obj | Class | None" = None
    cls: "Class | None" = None
    decorators: tuple[str, ...] = ()


@dataclass(eq=False, repr=False)
class Class:
    """A class of the program."""

    node: ast.ClassDef
    module: Module
    closure: "Frame"
    bases: tuple["Values", ...]
    names: dict[str, "Values"] = field(default_factory=dict)

    def mro(self) -> list["Class | Lib"]:
        """The class and its bases, depth first; good enough for lookups."""
        found: list[Class | Lib] = [self]
        for base in self.bases:
            for value in base:
                if isinstance(value, Class) and value is not self:
                    found += [item for item in value.mro() if item not in found]
                elif isinstance(value, Lib) and value not in found:
                    found.append(value)
        return found


class Member(NamedTuple):
    """What one name of an enumeration stands for: the value of a constant."""

    cls: Class
    name: str


class Lib(NamedTuple):
    """Something of a library, by qualified name: a module, a function, a class."""

    name: str


@dataclass(eq=False, repr=False)
class Mod:
    """A local module."""

    module: Module
    frame: "Frame"


class Method(NamedTuple):
    """A library's method, bound to a value: `m.to`, `loss.backward`, `rows.append`."""

    owner: "Value"
    name: str
    node: ast.expr


class Unknown(NamedTuple):
    """What cannot be followed, and why."""

    reason: str


Value = Const | Data | Obj | Func | Class | Lib | Mod | Method | Unknown
Values = frozenset[Value]

NOTHING: Values = frozenset()
SOME: Values = frozenset({PLAIN})
NONE: Values = frozenset({Const(None)})


def one(value: Value) -> Values:
    """The set of one value."""
    return frozenset((value,))


@lru_cache(maxsize=4096, typed=True)
def constant(value: object) -> Values:
    """What a literal may be."""
    return one(Const(value))


def join(first: Values, second: Values) -> Values:
    """Either; data are merged into one, so that sets stay small."""
    if first is second or not second:
        return first
    if not first:
        return second
    both = first | second
    if len(both) == len(first):
        return first
    if len(both) == len(second):
        return second
    data = [value for value in both if isinstance(value, Data)]
    if len(data) > 1:
        both = (both - frozenset(data)) | {merge(data)}
    return _fewer(both) if len(both) > MOST else both


MOST = 24


def _fewer(values: Values) -> Values:
    """Many literals, or containers made in many places, as one value that depends on what they depend on."""
    consts = frozenset(value for value in values if isinstance(value, Const))
    if consts:
        values = (values - consts) | {PLAIN}
    held = frozenset(
        value
        for value in values
        if isinstance(value, Obj) and value.kind in _LOOKED_INTO and value.cls is None
    )
    if len(held) > MOST:
        others = values - held
        data = merge([data_of(held), *(value for value in others if isinstance(value, Data))])
        values = frozenset(value for value in others if not isinstance(value, Data)) | {data}
    return values


def merge(data: list[Data]) -> Data:
    """One value that depends on all that these depend on."""
    if len(data) == 1:
        return data[0]
    if len(data) > 2:
        data = [item for item in data if item is not PLAIN]
    if len(data) < 2:
        return data[0] if data else PLAIN
    if len(data) == 2:
        first, second = data
        if first is PLAIN:
            return second
        if second is PLAIN or first is second:
            return first
        if first.models >= second.models and first.loaders >= second.loaders and first.tags >= second.tags:
            return first
        if first.models <= second.models and first.loaders <= second.loaders and first.tags <= second.tags:
            return second
    return Data(
        frozenset().union(*[item.models for item in data]),
        frozenset().union(*[item.loaders for item in data]),
        frozenset().union(*[item.tags for item in data]),
    )


_LOOKED_INTO = frozenset({"list", "tuple", "dict", "set", "iter", "instance", "lib"})


_CROWD = 200
"""Containers that are looked into before what lies deeper is passed over."""


def data_of(values: Values) -> Data:
    """What a set of values depends on, containers looked into, each once and four deep."""
    if len(values) == 1:
        (only,) = values
        if not isinstance(only, Obj):
            return only if isinstance(only, Data) else PLAIN
        if only.kind == "model":
            return Data(models=frozenset({only}))
        if only.kind not in _LOOKED_INTO:
            return PLAIN
    found: dict[Data, None] = {}
    seen: set[Obj] = set()
    waiting = [values]
    for _ in range(5):
        inner: list[Values] = []
        for value in [value for part in waiting for value in part]:
            if isinstance(value, Data):
                found[value] = None
            elif isinstance(value, Obj):
                if value.kind == "model":
                    found[Data(models=frozenset({value}))] = None
                elif value.kind in _LOOKED_INTO and value not in seen:
                    seen.add(value)
                    inner += [
                        item for item in (*(value.items or ()), value.rest, *value.attrs.values()) if item
                    ]
        waiting = inner
        if not waiting or len(seen) > _CROWD:
            break
    return merge(list(found)) if found else PLAIN


def in_source(obj: Obj) -> tuple[str, int, int, tuple[int, ...]]:
    """Sorts objects as they stand in the source, then as the calls that led to them do."""
    return obj.place


def ordered(values: Values) -> Iterable[Value]:
    """Values in an order that is the same in every run: what is followed first may decide what comes after."""
    return values if len(values) < 2 else sorted(values, key=_rank)


def _rank(value: Value) -> tuple[object, ...]:
    match value:
        case Obj():
            return (0, *in_source(value))
        case Func(bound=bound):
            of = _rank(bound) if bound is not None else ()
            return 1, value.module.name, value.node.lineno, value.node.col_offset, of
        case Class():
            return 1, value.module.name, value.node.lineno, value.node.col_offset, ()
        case Lib(name=name):
            return 2, name, 0, 0, ()
        case Method(owner=owner, name=name, node=node):
            return 3, name, node.lineno, node.col_offset, _rank(owner)
        case Const(value=known):
            return 4, repr(known) if isinstance(known, str | int | float | None) else "", 0, 0, ()
        case Data(models=models, loaders=loaders, tags=tags):
            return 5, " ".join(sorted(tags)), len(models), len(loaders), ()
        case Mod(module=module):
            return 6, module.name, 0, 0, ()
        case Unknown(reason=reason):
            return 7, reason, 0, 0, ()


def objects(values: Values, kind: str) -> list[Obj]:
    """The objects of a kind among values, in a stable order."""
    found = [value for value in values if isinstance(value, Obj) and value.kind == kind]
    return sorted(found, key=in_source)


def contained(values: Values, kind: str) -> list[Obj]:
    """The objects of a kind among values and inside their containers, four deep."""
    found: dict[Obj, None] = {}
    seen: set[Obj] = set()
    waiting = [values]
    for _ in range(5):
        inner: list[Values] = []
        for value in [value for part in waiting for value in part if isinstance(value, Obj)]:
            if value.kind == kind:
                found[value] = None
            elif value.kind in {"list", "tuple", "dict", "set", "iter"} and value not in seen:
                seen.add(value)
                inner += [item for item in (*(value.items or ()), value.rest, *value.attrs.values()) if item]
        waiting = inner
    return list(found)


def shown_by(values: Values) -> Values:
    """What progress bars go through, and all else as it is."""
    found = NOTHING
    for value in values:
        bar = isinstance(value, Obj) and (value.kind, value.name) == ("iter", "tqdm") and value.items
        found = join(found, reduce(join, bar) if bar else frozenset({value}))
    return found


def mean_at(node: ast.AST) -> str:
    """The tag of a mean over a number that each rank has to itself: where it is made."""
    return f"mean at {id(node)}"


def mixed_at(node: ast.AST) -> str:
    """The tag of a total of a sum over the batch and of what does not grow with it: where they are added up."""
    return f"mixed at {id(node)}"


def ratio_at(node: ast.AST) -> str:
    """The tag of a ratio of sums over the batch: where it is made."""
    return f"ratio at {id(node)}"


def sum_at(node: ast.AST) -> str:
    """The tag of a sum over the batch: where it is made."""
    return f"sum at {id(node)}"


def coupled_at(node: ast.AST) -> str:
    """The tag of what depends on pairs of samples: where they meet."""
    return f"coupled at {id(node)}"


def stacked_at(node: ast.AST) -> str:
    """The tag of what holds several views of a batch one after the other: where they were joined."""
    return f"stacked at {id(node)}"


def average_at(node: ast.AST) -> str:
    """The tag of a mean over all samples of a batch: where it is made."""
    return f"average at {id(node)}"


def bent_at(node: ast.AST) -> str:
    """The tag of what is no mean over samples, since a mean over them was put through more than sums: where."""
    return f"bent at {id(node)}"


def averages_in(data: Data) -> frozenset[str]:
    """The tags of the means over the batch that a value is made of."""
    return frozenset(tag for tag in data.tags if tag.startswith("average at "))


def sums_in(data: Data) -> frozenset[str]:
    """The tags of the sums over the batch that a value is made of."""
    return frozenset(tag for tag in data.tags if tag.startswith("sum at "))
