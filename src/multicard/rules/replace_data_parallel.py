"""Take `nn.DataParallel` away: each process has one card.

DataParallel splits every batch over all cards that one process sees.  Under torchrun each process sees them all and
has one; its DDP wrapper comes later.  `.module` that reached through DataParallel stays where DDP wraps the model.

Before:

    net = nn.DataParallel(model)
    net.module.fc.reset_parameters()

After:

    net = model
    net.fc.reset_parameters()
"""

import ast
from collections.abc import Iterator

from multicard.edits import Edit, delete_statement, replace, wrap
from multicard.facts import Facts
from multicard.interpret import Event
from multicard.messages import Text
from multicard.plan import Finding, Kind
from multicard.rules.wrap_model import stands_in_for
from multicard.source import Module, Span
from multicard.tree import walk
from multicard.values import Obj, Values

CODE = "MC309"
TITLE = Text("Take DataParallel away", "去掉 DataParallel")

_GONE = Text(
    "each process has one card, so there is nothing to split a batch over; DDP takes its place",
    "每个进程只用一张卡,不再需要在一个进程里切分批次;由 DDP 代替",
)
_MODULE = Text(
    "the model is not wrapped yet at this line, so it has no `.module`",
    "这一行模型还没有包装,没有 `.module`",
)
_OTHERS = Text(
    "it uses the cards of the other processes, and what it computes there goes past DDP",
    "它会占用其他进程的卡,而且在那里计算的梯度不经过 DDP",
)
_BY_HAND = frozenset({"torch.nn.parallel.replicate", "torch.nn.parallel.parallel_apply"})

_PREFIX = Text(
    "names of the model's parts begin with `module.` no more",
    "模型各部分的名字不再以 `module.` 开头",
)
PREFIX = "module."
_CUT = Text(
    "names in a checkpoint of this script begin with `module.` no more; older ones still do",
    "本脚本的检查点里的名字不再以 `module.` 开头;旧的检查点仍然有",
)


def find(facts: Facts) -> Iterator[Finding]:
    """Each DataParallel, and each `.module` where no wrapper stands."""
    taken = [wrap for _, wrap in facts.places] + [home for _, _, home in facts.unwrapped if home is not None]
    done: set[ast.AST | None] = {stands_in_for(facts, wrap) for wrap in taken}
    for event in facts.events("data_parallel"):
        if event.node in done or not isinstance(event.node, ast.Call):
            continue
        done.add(event.node)
        edits = _without(facts, event, event.node)
        if edits:
            yield Finding(CODE, facts.site(event.module, event.node), _GONE, edits)
    for event in facts.events("unwrap"):
        if event.node in done or event.name != "module" or not isinstance(event.node, ast.Attribute):
            continue
        done.add(event.node)
        values = facts.values(event.node.value)
        if _bare(values):
            edits = _unwrapped(event.module, event.node, always=not _wrapped(values))
            yield Finding(CODE, facts.site(event.module, event.node), _MODULE, edits)
    yield from _names(facts)
    yield from _calls(facts, done)


def _names(facts: Facts) -> Iterator[Finding]:
    """Parameters told apart by a name that begins with DataParallel's own."""
    if not any(not event.dead for event in facts.events("data_parallel")):
        return
    for module in facts.modules:
        for node in walk(module.tree):
            match node:
                case ast.For(iter=source):
                    sources = [source]
                case ast.ListComp() | ast.SetComp() | ast.DictComp() | ast.GeneratorExp():
                    sources = [generator.iter for generator in node.generators]
                case _:
                    continue
            if any(_gives_names(facts, source) for source in sources):
                for constant in walk(node):
                    if _is_prefixed(constant):
                        text = module.text(constant).replace(PREFIX, "", 1)
                        yield Finding(
                            CODE, facts.site(module, constant), _PREFIX, (replace(module, constant, text),)
                        )
            yield from _cuts(facts, module, node)


def _cuts(facts: Facts, module: Module, loop: ast.AST) -> Iterator[Finding]:
    """`k[7:]` for the names in a loop, which cuts `module.` off whether it is there or not."""
    if any(isinstance(part, ast.Constant) and part.value in {PREFIX, "module"} for part in walk(loop)):
        return
    generators = [loop] if isinstance(loop, ast.For) else getattr(loop, "generators", [])
    names = {
        part.id
        for generator in generators
        for part in walk(generator.target)
        if isinstance(part, ast.Name) and _over_names(generator.iter)
    }
    for part in walk(loop):
        match part:
            case ast.Subscript(
                value=ast.Name(id=name), slice=ast.Slice(lower=ast.Constant(value=7), upper=None, step=None)
            ) if name in names:
                alone = isinstance(facts.parents(module).get(part), ast.Assign | ast.DictComp | ast.Call)
                opened, closed = ("", "") if alone else ("(", ")")
                kept = f' if {name}.startswith("{PREFIX}") else {name}{closed}'
                edits = wrap(module, part, opened, kept)
                yield Finding(CODE, facts.site(module, part), _CUT, edits)
            case _:
                pass


def _over_names(node: ast.expr) -> bool:
    match node:
        case ast.Call(func=ast.Attribute(attr="items" | "keys")):
            return True
        case _:
            return False


def _is_prefixed(node: ast.AST) -> bool:
    match node:
        case ast.Constant(value=str(name)):
            return name.startswith(PREFIX) and name != PREFIX
        case _:
            return False


def _gives_names(facts: Facts, node: ast.expr) -> bool:
    """Whether a loop goes through the names of a model's parts."""
    match node:
        case ast.Call(func=ast.Name(id="list" | "sorted" | "enumerate" | "dict"), args=[inner, *_]):
            return _gives_names(facts, inner)
        case ast.Call(func=ast.Attribute(value=inner, attr="items" | "keys")):
            return _gives_names(facts, inner)
        case ast.Call(
            func=ast.Attribute(
                value=model, attr="named_parameters" | "named_modules" | "named_buffers" | "state_dict"
            )
        ):
            values = facts.values(model)
            return _bare(values) or _wrapped(values)
        case _:
            return False


def _calls(facts: Facts, done: set[ast.AST | None]) -> Iterator[Finding]:
    """Models that are called on a batch split over several cards, or copied to them."""
    for event in facts.events("parallel_call", "call"):
        by_hand = event.kind == "call"
        if event.node in done or (by_hand and event.name not in _BY_HAND):
            continue
        done.add(event.node)
        edits = _called(facts, event) if not by_hand else ()
        if edits:
            yield Finding(CODE, facts.site(event.module, event.node), _GONE, edits)
        else:
            advice = Text("call the model itself on the whole batch", "请直接用模型处理整个批次")
            yield Finding(CODE, facts.site(event.module, event.node), _OTHERS, (), advice, Kind.LEFT)


def _called(facts: Facts, event: Event) -> tuple[Edit, ...]:
    """`data_parallel(model, inputs, ...)` as `model(inputs)`."""
    module, call = event.module, event.node
    if (
        not isinstance(call, ast.Call)
        or len(call.args) < 2
        or any(k.arg == "module_kwargs" for k in call.keywords)
    ):
        return ()
    model, inputs = call.args[:2]
    inside = bool(event.inside)
    spread = isinstance(inputs, ast.Tuple) or any(
        isinstance(value, Obj) and value.kind == "tuple" for value in facts.values(inputs)
    )
    outer, first, second = module.span(call), module.span(model), module.span(inputs)
    return (
        Edit(module, Span(outer.start, first.start), "" if inside else "«forward_of»("),
        Edit(module, Span(first.end, second.start), ("(" if inside else ")(") + ("*" if spread else "")),
        Edit(module, Span(second.end, outer.end), ")"),
    )


def _without(facts: Facts, event: Event, call: ast.Call) -> tuple[Edit, ...]:
    """The edits that leave the model in place of `DataParallel(model, ...)`."""
    module = event.module
    given = [*call.args, *(keyword.value for keyword in call.keywords)]
    model = next((part for part in given if event.subject in facts.values(part)), None)
    if model is None:
        return ()
    statement = facts.statement(module, call)
    if isinstance(statement, ast.Assign) and statement.value is call and len(statement.targets) == 1:
        if module.text(statement.targets[0]) == module.text(model):
            return (delete_statement(facts.block(module, statement), module, statement),)
    outer, inner = module.span(call), module.span(model)
    return (
        Edit(module, Span(outer.start, inner.start), ""),
        Edit(module, Span(inner.end, outer.end), ""),
    )


def _bare(values: Values) -> bool:
    return any(isinstance(value, Obj) and value.kind == "model" for value in values)


def _wrapped(values: Values) -> bool:
    return any(isinstance(value, Obj) and value.kind == "wrapped" for value in values)


def _unwrapped(module: Module, node: ast.Attribute, *, always: bool) -> tuple[Edit, ...]:
    """`x.module` as `x`, or as `unwrap(x)` where it may be wrapped on another way of getting there."""
    span, base = module.span(node), module.span(node.value)
    if always:
        return (Edit(module, Span(base.end, span.end), ""),)
    return (
        Edit(module, Span(base.start, base.start), "«unwrap»("),
        Edit(module, Span(base.end, span.end), ")"),
    )
