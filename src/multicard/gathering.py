"""Where samples of all ranks are gathered for a loss that compares them with each other.

Gathered with gradients where the loss is called, they make every rank compute the loss of the whole batch, and the mean
of the ranks' gradients is that of one card.  It is right only if all that the loss sees of a batch is gathered, in the
order of the whole batch, and if nothing of the rank's own share meets the result.  Where that is not certain, nothing
is gathered.
"""

import ast
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from multicard import couplings
from multicard.edits import Edit, insert_before, wrap
from multicard.facts import Facts, FunctionNode
from multicard.interpret import Event
from multicard.reach import functions_of, homes, reached, under
from multicard.source import Module
from multicard.tree import held, nodes, walk, word_of
from multicard.values import Obj, Unknown, Values, data_of

FREE, MEAN, SIZE, SHARE, UNCLEAR = "free", "mean", "size", "share", "unclear"
"""What an expression holds of a batch: nothing, a mean over it, its size, the samples of this rank; or not known."""

_SIZES = r"(?i)(^|_)(batch_?size|bs|bsz|b_?size|n_?batch)$"
_KEEPS = frozenset({"append", "appendleft", "extend", "add", "update", "put"})
_ORDERED = frozenset({"chunk", "split", "roll", "tensor_split"})
_HOLDERS = frozenset({"list", "tuple", "dict", "set", "iter", "namespace", "loader", "dataset", "optimizer"})
_DEEPEST = 4


@dataclass(frozen=True)
class Gathering:
    """The edits, and the calls and statements from which on all is that of the whole batch."""

    places: frozenset[ast.Call | ast.stmt]
    """The calls of the loss, or the statements before which samples are gathered."""
    parts: dict[ast.expr, tuple[Edit, ...]]
    """What is gathered, and the edits for it."""
    whole: frozenset[ast.AST]

    def holds(self, event: Event) -> bool:
        """Whether an event happens where all is of the whole batch already."""
        return any(call in self.whole for call in event.calls) or any(
            event.node in held(node) for node in self.whole if isinstance(node, ast.stmt)
        )


@dataclass
class _Way:
    """One way on which the program comes to the comparison, and what was decided on it."""

    facts: Facts
    event: Event
    calls: set[ast.Call] = field(default_factory=set)
    statements: set[ast.stmt] = field(default_factory=set)
    parts: dict[ast.expr, tuple[Edit, ...]] = field(default_factory=dict)
    whole: set[ast.AST] = field(default_factory=set)
    samples: int = 0
    known: bool = False
    """Whether the order of what was gathered is known to be that of views, one after the other."""


def gathering(facts: Facts, event: Event) -> Gathering | None:
    """What gathers the samples of all ranks for a comparison; nothing where that is not certain to be right."""
    ways = [
        other for other in facts.by_node.get(event.node, ()) if other.kind == event.kind and not other.dead
    ]
    places: set[ast.Call | ast.stmt] = set()
    parts: dict[ast.expr, tuple[Edit, ...]] = {}
    whole: set[ast.AST] = set()
    for other in ways:
        if not facts.trains(other):
            if other.grad:
                return None
            continue
        if other.tainted or any(model.root in facts.trained for model in other.inside):
            return None
        way = _Way(facts, other)
        if not _gathers(way):
            return None
        places |= way.calls | way.statements
        parts |= way.parts
        whole |= way.whole
    return Gathering(frozenset(places), parts, frozenset(whole)) if parts else None


def _gathers(way: _Way) -> bool:
    """Whether the samples of all ranks can be gathered on one way to a comparison."""
    call = next((call for call in way.event.calls if _apart(way, call)), None)
    if isinstance(call, ast.Call):
        module = homes(way.facts)[call]
        if _sees_only_arguments(way, call) and _given(way, module, call) and _followed(way, module, call):
            _compare_alike(way, module, call)
            return True
        return False
    return _in_place(way)


def _in_place(way: _Way) -> bool:
    """Whether samples can be gathered by name, as soon as they are given to the statements that compare them."""
    facts, module = way.facts, way.event.module
    scope = facts.scope(module, way.event.node)
    compared = {
        facts.statement(module, event.node)
        for event in facts.events("coupled", dead=False)
        if event.module is module and facts.scope(module, event.node) is scope
    }
    first = min(compared, key=lambda statement: module.span(statement).start)
    if isinstance(first, ast.AugAssign | ast.For | ast.While | ast.If | ast.With):
        return False
    names = _shares(way, module, compared, first)
    if not names or len({way.facts.block(module, statement)[0] for statement in compared}) > 1:
        return False
    first = _as_soon_as_given(facts, module, first, names)
    if any(_meets(way, part, _NONE, names, strict=True) for part in _own(first)):
        return False
    if not _followed_from(way, module, first, _NONE, names, _DEEPEST):
        return False
    start = module.span(first).start
    loads = [
        min(
            (item for item in _loads(scope, name) if module.span(item).start >= start),
            key=lambda item: module.span(item).start,
        )
        for name in sorted(names)
    ]
    known = any(couplings.stacks(data_of(facts.values(item))) for item in loads)
    if len(names) == 1 and not known and _orders(node for node in way.whole if isinstance(node, ast.stmt)):
        return False
    texts = []
    for item in sorted(loads, key=lambda item: module.span(item).start):
        views = _views(facts, module, item)
        if views is None:
            return False
        texts.append((item.id, f"«all_gather_with_grad»({item.id}{views})"))
    line = ", ".join(name for name, _ in texts) + " = " + ", ".join(text for _, text in texts)
    place = next(part for part in walk(first) if isinstance(part, ast.expr))
    way.parts[place] = (insert_before(module, first, line),)
    way.statements.add(first)
    return True


_NONE = ast.Constant(None)


def _as_soon_as_given(facts: Facts, module: Module, first: ast.stmt, names: set[str]) -> ast.stmt:
    """The statement after the one that gives the last of some names, so that sizes are those of all ranks too."""
    block = facts.block(module, first)
    for index in range(block.index(first) - 1, -1, -1):
        if any(_stores(block[index], name) for name in names):
            after = block[index + 1]
            return after if isinstance(block[index], ast.Assign) else first
    return first


def _loads(root: ast.AST, name: str) -> list[ast.Name]:
    return [item for item in nodes(root, ast.Name) if item.id == name and isinstance(item.ctx, ast.Load)]


def _shares(way: _Way, module: Module, compared: set[ast.stmt], first: ast.stmt) -> set[str]:
    """The names of samples that some statements compare, given before the first of them; none if one is not."""
    facts = way.facts
    start = module.span(first).start
    names: set[str] = set()
    for statement in compared:
        if any(isinstance(item, ast.Call) and _runs_model(facts, item) for item in walk(statement)):
            return set()
        for item in nodes(statement, ast.Name):
            data = data_of(facts.values(item))
            if not isinstance(item.ctx, ast.Load) or not couplings.depends(data):
                continue
            stores = _stores(facts.scope(module, item), item.id)
            if any(module.span(store).start < start for store in stores):
                if content(facts, item) != SHARE or not _fresh(way, module, item, item):
                    return set()
                names.add(item.id)
    return names


def _runs_model(facts: Facts, call: ast.Call) -> bool:
    """Whether a call runs a model that is trained."""
    return any(
        event.kind == "forward"
        and isinstance(event.subject, Obj)
        and (event.subject.inner or event.subject).root in facts.trained
        for event in under(facts).get(call, ())
    )


def _compare_alike(way: _Way, module: Module, call: ast.Call) -> None:
    """Gather for what else is computed of the same samples, such as how many pairs are hard."""
    names = {
        item.id
        for part in way.parts
        for item in walk(part)
        if isinstance(item, ast.Name) and content(way.facts, item) == SHARE
    }
    here = module.span(call).start
    for other in nodes(way.facts.scope(module, call), ast.Call):
        used = {item.id for part in other.args for item in walk(part) if isinstance(item, ast.Name)}
        if module.span(other).start <= here or not names or not names <= used or other in way.calls:
            continue
        beside = _Way(way.facts, way.event)
        if (
            _apart(beside, other)
            and _sees_only_arguments(beside, other)
            and _given(beside, module, other)
            and _followed(beside, module, other)
        ):
            way.calls |= beside.calls
            way.parts |= beside.parts
            way.whole |= beside.whole


# --- the call of the loss ---------------------------------------------------------------------------------


def _apart(way: _Way, call: ast.AST) -> bool:
    """Whether a call neither runs a model nor trains one: it only computes."""
    facts = way.facts
    if not isinstance(call, ast.Call) or call not in homes(facts) or not functions_of(facts, call):
        return False
    for event in under(facts).get(call, ()):
        if call not in event.calls:
            continue
        if event.kind in {"backward", "step", "next"}:
            return False
        if event.kind == "forward" and isinstance(event.subject, Obj):
            if (event.subject.inner or event.subject).root in facts.trained:
                return False
    return True


def _given(way: _Way, module: Module, call: ast.Call) -> bool:
    """Whether every argument that holds samples can be gathered."""
    if any(isinstance(item, ast.Starred) for item in call.args) or any(
        item.arg is None for item in call.keywords
    ):
        return False
    parts = [*call.args, *(item.value for item in call.keywords)]
    if not all(_gather(way, module, part, call) for part in parts) or not way.samples:
        return False
    way.whole.add(call)
    way.calls.add(call)
    return way.samples > 1 or way.known or not _orders(_functions(way.facts, call))


def _gather(way: _Way, module: Module, part: ast.expr, before: ast.expr) -> bool:
    """Gather what holds samples; whether that, or leaving it, is right."""
    if isinstance(part, ast.List | ast.Tuple) and not any(
        isinstance(item, ast.Starred) for item in part.elts
    ):
        return all(_gather(way, module, item, before) for item in part.elts)
    match content(way.facts, part):
        case "free":
            return _fresh(way, module, part, before) and not _made_by_hand(way.facts, module, part)
        case "share":
            views = _views(way.facts, module, part)
            if views is None or not _fresh(way, module, part, before):
                return False
            way.samples += 1
            way.known = way.known or bool(views)
            way.parts[part] = wrap(module, part, "«all_gather_with_grad»(", f"{views})")
            return True
        case _:
            return False


def content(facts: Facts, part: ast.expr) -> str:
    """What an expression holds of a batch."""
    values = facts.values(part)
    if not values or any(isinstance(value, Unknown) for value in values):
        return UNCLEAR
    data = data_of(values)
    if not (data.loaders or data.local or "batch" in data.tags):
        return FREE
    if any(isinstance(value, Obj) and value.kind in _HOLDERS for value in values):
        return UNCLEAR
    if "size" in data.tags and not data.models and "batch" not in data.tags:
        return SIZE
    if "averaged" in data.tags and not data.tags & {"summed", "count", "each"}:
        return MEAN
    unclear = {couplings.TURNED, couplings.COLUMNS, couplings.RELAID, "summed", "count"}
    return UNCLEAR if not data.loaders or data.tags & unclear else SHARE


def _views(facts: Facts, module: Module, part: ast.expr) -> str | None:
    """The argument that says how many views are joined in samples; None where that is not certain."""
    joined = couplings.stacks(data_of(facts.values(part)))
    if not joined:
        return ""
    function = facts.scope(module, part)
    found = [
        call
        for call in nodes(function, ast.Call)
        if call.args and any(tag == f"stacked at {id(call)}" for tag in joined)
    ]
    if len(joined) != 1 or len(found) != 1 or "selected" in data_of(facts.values(part)).tags:
        return None
    match found[0].args[0]:
        case ast.List(elts=parts) | ast.Tuple(elts=parts) if not any(
            isinstance(item, ast.Starred) for item in parts
        ):
            return f", views={len(parts)}"
        case ast.Name(id=name) if len(_stores(function, name)) <= 1:
            return f", views=len({name})"
        case _:
            return None


def _stores(function: ast.AST, name: str) -> list[ast.Name]:
    return [item for item in nodes(function, ast.Name) if item.id == name and isinstance(item.ctx, ast.Store)]


def _made_by_hand(facts: Facts, module: Module, part: ast.expr) -> bool:
    """Whether something that holds nothing of a batch is laid out for a batch of one rank all the same."""
    function = facts.scope(module, part)
    names = {item.id for item in walk(part) if isinstance(item, ast.Name)}
    given = [
        statement.value
        for statement in nodes(function, ast.Assign)
        if any(isinstance(item, ast.Name) and item.id in names for item in statement.targets)
    ]
    return any(
        re.search(_SIZES, word_of(item))
        or (isinstance(item, ast.Attribute) and item.attr in {"arange", "eye", "ones", "zeros", "full"})
        for value in (part, *given)
        for item in walk(value)
    )


def _fresh(way: _Way, module: Module, part: ast.expr, before: ast.expr, deep: int = _DEEPEST) -> bool:
    """Whether samples are of the batch at hand, and not kept from earlier ones."""
    facts = way.facts
    function = facts.function(module, before)
    loops = [training.loop.node for training in facts.trainings if before in held(training.loop.node)]
    region: ast.AST = min(loops, key=lambda loop: len(held(loop)), default=function or module.tree)
    here = module.span(before).start
    for item in walk(part):
        if isinstance(item, ast.Attribute) and _of_object(facts, item):
            return False
        if not isinstance(item, ast.Name):
            continue
        stores = _stores(region, item.id)
        if any(module.span(store).start < here for store in stores):
            continue
        if stores:
            return False
        if not data_of(_plain(facts.values(item))).loaders:
            continue
        if (
            not deep
            or function is None
            or region is not function
            or not _passed(way, function, item.id, deep)
        ):
            return False
    return True


def _passed(way: _Way, function: FunctionNode, name: str, deep: int) -> bool:
    """Whether what a function gets under a name is of the batch at hand."""
    facts = way.facts
    for call in way.event.calls:
        if isinstance(call, ast.Call) and function in functions_of(facts, call):
            for part in (*call.args, *(item.value for item in call.keywords)):
                if not _fresh(way, homes(facts)[call], part, call, deep - 1):
                    return False
            return name in {item.arg for item in nodes(function.args, ast.arg)}
    return False


def _of_object(facts: Facts, item: ast.Attribute) -> bool:
    """Whether an attribute of an object holds something of a batch, or of earlier ones."""
    if not any(isinstance(value, Obj) for value in facts.values(item.value)):
        return False
    return bool(data_of(_plain(facts.values(item))).loaders) or item.attr in _kept(facts)


def _kept(facts: Facts) -> frozenset[str]:
    """The attributes that are set again after they were made."""
    found = facts.memo.get("attributes set again")
    if found is None:
        found = frozenset(
            item.attr
            for module in facts.modules
            for item in _changed(module)
            if facts.training_nodes & {*facts.ancestors(module, item)}
            or getattr(facts.function(module, item), "name", "__init__") != "__init__"
        )
        facts.memo["attributes set again"] = found
    assert isinstance(found, frozenset)
    return found


def _changed(module: Module) -> Iterator[ast.Attribute]:
    """The attributes that are set, whole or in part, or changed in place."""
    yield from (item for item in nodes(module.tree, ast.Attribute) if isinstance(item.ctx, ast.Store))
    for part in nodes(module.tree, ast.Subscript):
        if isinstance(part.ctx, ast.Store) and isinstance(part.value, ast.Attribute):
            yield part.value
    for call in nodes(module.tree, ast.Call):
        match call.func:
            case ast.Attribute(value=ast.Attribute() as owner, attr=attr) if attr.endswith("_"):
                yield owner
            case _:
                pass


def _plain(values: Values) -> Values:
    return frozenset(value for value in values if not isinstance(value, Obj) or value.kind in _HOLDERS)


# --- what the functions of the loss see besides ------------------------------------------------------------


def _functions(facts: Facts, call: ast.Call) -> frozenset[FunctionNode]:
    own = functions_of(facts, call)
    return frozenset(own) | reached(facts, *own)


def _sees_only_arguments(way: _Way, call: ast.Call) -> bool:
    """Whether what a call runs sees nothing of a batch but its arguments, keeps nothing, and knows no batch size."""
    return not any(_sees_more(way.facts, function) for function in _functions(way.facts, call))


def _sees_more(facts: Facts, function: FunctionNode) -> bool:
    module = next((module for module in facts.modules if function in held(module.tree)), None)
    if module is None:
        return True
    own = {item.id for item in nodes(function, ast.Name) if isinstance(item.ctx, ast.Store)}
    own |= {item.arg for item in nodes(function, ast.arg)}
    for item in walk(function):
        match item:
            case ast.Attribute(ctx=ast.Store()) | ast.Global() | ast.Nonlocal():
                return True
            case ast.Subscript(ctx=ast.Store(), value=ast.Attribute()):
                return True
            case ast.Call(func=ast.Attribute(value=ast.Attribute() as kept, attr=attr)) if (
                attr in _KEEPS or attr.endswith("_")
            ) and any(isinstance(value, Obj) for value in facts.values(kept.value)):
                return True
            case ast.Attribute() if _of_object(facts, item):
                return True
            case ast.Name(id=name) if name not in own and data_of(_plain(facts.values(item))).loaders:
                return True
            case _:
                pass
    owner = facts.parents(module).get(function)
    return _knows_size(facts, owner if isinstance(owner, ast.ClassDef) else function)


def _knows_size(facts: Facts, node: ast.AST) -> bool:
    """Whether a function or class is told the size of a batch, and does not take it from what it is given."""
    for item in walk(node):
        if re.search(_SIZES, word_of(item)):
            if isinstance(item, ast.Name) and isinstance(item.ctx, ast.Store):
                continue
            if not isinstance(item, ast.Name) or content(facts, item) != SIZE:
                return True
    return False


def _orders(code: Iterable[ast.AST]) -> bool:
    """Whether some code tells samples apart by their place in the batch."""
    for part in code:
        for item in walk(part):
            match item:
                case ast.BinOp(op=ast.FloorDiv() | ast.Mod()):
                    return True
                case ast.Call(func=ast.Attribute(attr=attr)) if attr in _ORDERED:
                    return True
                case ast.Call(func=ast.Attribute(attr="diag" | "diagonal"), args=[_, *_]) if (
                    len(item.args) > 1
                ):
                    return True
                case ast.Subscript(slice=index) if couplings.cuts(index):
                    return True
                case _:
                    pass
    return False


# --- what becomes of the result ----------------------------------------------------------------------------


def _followed(way: _Way, module: Module, seed: ast.expr, deep: int = _DEEPEST) -> bool:
    """Whether nothing of this rank's share meets what was computed of the whole batch, and nothing counts it twice."""
    facts = way.facts
    values = facts.values(seed)
    if not values or any(isinstance(value, Unknown) for value in values):
        return False
    return _followed_from(way, module, facts.statement(module, seed), seed, set(), deep)


def _followed_from(
    way: _Way, module: Module, first: ast.stmt, seed: ast.expr, given: set[str], deep: int
) -> bool:
    """The same from a statement on, from which some names are of the whole batch."""
    facts = way.facts
    names = set(given)
    scope = facts.scope(module, first)
    if isinstance(scope, ast.Lambda):
        return False
    later = sorted(
        (
            statement
            for statement in walk(scope)
            if isinstance(statement, ast.stmt) and module.span(statement).start >= module.span(first).start
        ),
        key=lambda statement: module.span(statement).start,
    )
    for statement in later:
        parts = list(_own(statement))
        touched = [part for part in parts if _touches(part, seed, names)]
        if not touched:
            names -= _targets(statement)
            continue
        if any(_meets(way, part, seed, names, strict=_strict(facts, part, seed, names)) for part in touched):
            return False
        if any(_beside(way, module, part, names) for part in touched):
            return False
        way.whole.add(statement)
        if not _goes_on(way, module, statement, names, deep):
            return False
    return True


def _own(statement: ast.stmt) -> Iterator[ast.expr]:
    """The expressions of a statement itself, not of those inside it."""
    for child in ast.iter_child_nodes(statement):
        if isinstance(child, ast.expr):
            yield child
        elif isinstance(child, ast.withitem):
            yield child.context_expr


def _touches(part: ast.expr, seed: ast.expr, names: set[str]) -> bool:
    return any(
        item is seed or (isinstance(item, ast.Name) and item.id in names and isinstance(item.ctx, ast.Load))
        for item in walk(part)
    )


def _strict(facts: Facts, part: ast.expr, seed: ast.expr, names: set[str]) -> bool:
    """Whether something of the whole batch that is no mean over it is used."""
    return any(
        (item is seed or (isinstance(item, ast.Name) and item.id in names)) and content(facts, item) != MEAN
        for item in walk(part)
        if isinstance(item, ast.expr)
    )


def _meets(way: _Way, part: ast.expr, seed: ast.expr, names: set[str], *, strict: bool) -> bool:
    """Whether samples of this rank alone, or their number, are combined with what is of the whole batch."""
    if part is seed:
        return False
    if not _touches(part, seed, names):
        held_here = content(way.facts, part)
        if isinstance(part, ast.Name | ast.Attribute) and not isinstance(part.ctx, ast.Load):
            return False
        if held_here == UNCLEAR:
            return bool(data_of(_plain(way.facts.values(part))).tags & {"summed", "count"})
        return held_here == SHARE or (strict and held_here == SIZE)
    return any(_meets(way, child, seed, names, strict=strict) for child in (_expressions(part)))


def _beside(way: _Way, module: Module, part: ast.expr, names: set[str]) -> bool:
    """Whether something laid out for the batch of one rank stands beside what is of the whole batch."""
    return any(
        isinstance(item, ast.Name)
        and isinstance(item.ctx, ast.Load)
        and item.id not in names
        and content(way.facts, item) == FREE
        and _made_by_hand(way.facts, module, item)
        for item in walk(part)
    )


def _expressions(part: ast.AST) -> Iterator[ast.expr]:
    for child in ast.iter_child_nodes(part):
        if isinstance(child, ast.expr):
            yield child
        elif isinstance(child, ast.keyword):
            yield child.value


def _targets(statement: ast.stmt) -> set[str]:
    match statement:
        case ast.Assign(targets=targets):
            return {item.id for target in targets for item in walk(target) if isinstance(item, ast.Name)}
        case _:
            return set()


def _goes_on(way: _Way, module: Module, statement: ast.stmt, names: set[str], deep: int) -> bool:
    """Note the names that hold something of the whole batch; whether a statement does not count it N times."""
    facts = way.facts
    match statement:
        case ast.Return(value=ast.expr() as value):
            if _is_mean(facts, value):
                return True
            return deep > 0 and _returned(way, module, statement, deep)
        case ast.Assign(targets=targets):
            names |= _targets(statement)
            return all(_can_hold(facts, target, statement.value) for target in targets)
        case ast.AnnAssign(target=ast.Name(id=name)):
            names.add(name)
            return True
        case ast.AugAssign(target=target, value=value):
            if isinstance(target, ast.Name) and _is_mean(facts, target):
                names.add(target.id)
            return _adds_up(facts, value)
        case ast.Expr(value=ast.Call(func=ast.Attribute(attr=attr), args=args)) if attr in _KEEPS:
            return all(_adds_up(facts, item) or content(facts, item) == SIZE for item in args)
        case ast.Expr() | ast.If() | ast.While() | ast.Assert() | ast.With():
            return True
        case _:
            return False


def _can_hold(facts: Facts, target: ast.expr, value: ast.expr) -> bool:
    """Whether a target is a name of the function, or keeps nothing but means."""
    if isinstance(target, ast.Tuple | ast.List):
        return all(_can_hold(facts, item, value) for item in target.elts)
    return isinstance(target, ast.Name) or _is_mean(facts, value)


def _is_mean(facts: Facts, value: ast.expr) -> bool:
    """Whether a value is a mean over the batch, or several."""
    if isinstance(value, ast.Tuple | ast.List):
        return all(_is_mean(facts, item) for item in value.elts)
    return content(facts, value) in {MEAN, FREE}


def _adds_up(facts: Facts, value: ast.expr) -> bool:
    """Whether a value may be added up over batches: a mean, or one weighed by the size of this rank's batch."""
    match value:
        case ast.BinOp(op=ast.Mult(), left=left, right=right):
            return {content(facts, left), content(facts, right)} <= {MEAN, FREE, SIZE}
        case _:
            return _is_mean(facts, value)


def _returned(way: _Way, module: Module, statement: ast.stmt, deep: int) -> bool:
    """Whether the callers of a function do well with what it gives back of the whole batch."""
    facts = way.facts
    function = facts.function(module, statement)
    callers = [
        call
        for call in way.event.calls
        if isinstance(call, ast.Call) and function is not None and function in functions_of(facts, call)
    ]
    return bool(callers) and all(_followed(way, homes(facts)[call], call, deep - 1) for call in callers)
