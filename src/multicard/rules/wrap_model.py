"""Wrap the trained model, so that gradients are averaged over the ranks.

Without it every rank trains a model of its own on its share of the data, and only rank 0's is kept.  The wrapper
comes after the model is on its device, compiled and given its heads, and before the first step.  A model that no
wrapper can serve (its loss comes from another method, or from parts of it) has its gradients averaged after the
backward pass instead.  A queue that the model fills one batch at a time takes the batches of all ranks.

Before:

    model = Net().to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

After:

    model = Net().to(device)
    model = DDP(model, device_ids=device_ids(model))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
"""

import ast
from collections.abc import Iterator

from multicard.edits import insert_after, replace
from multicard.facts import Facts, shared_parts
from multicard.interpret import Event, Wrap
from multicard.messages import Text
from multicard.plan import Finding, Kind
from multicard.queues import filled
from multicard.source import Module
from multicard.tree import held, nodes, walk
from multicard.unused import classes_of
from multicard.values import NOTHING, Const, Data, Obj, Values, data_of, join
from multicard.wraps import grown, identity, wrapper_options

CODE = "MC301"
TITLE = Text("Wrap the model in DDP", "模型用 DDP 包装")

_OPTIONS = {
    "find_unused_parameters=True": Text(
        "; parameters are frozen after it is wrapped, or a part gets no gradient, so unused ones are searched for",
        ";包装之后有参数被冻结,或有部分参数没有梯度,因此要查找未使用的参数",
    ),
    "**«own_buffers»()": Text(
        "; it is called several times before a backward pass, between which its buffers must not be overwritten",
        ";一次反向传播前有多次前向传播,期间不能覆盖缓冲区",
    ),
}


_BUFFER = Text(
    "the model fills its buffer `{name}` from its own batches; at each forward pass all ranks are given that of rank 0,"
    " and what the others wrote is lost",
    "模型用自己的批次填充缓冲区 `{name}`;每次前向传播时各进程都会得到 rank0 的缓冲区,其他进程写入的内容会丢失",
)
_QUEUE = Text(
    "the model fills a queue from its own batches; it takes those of all ranks, one after the other, so that all hold"
    " what one card would have put there",
    "模型用自己的批次填充队列;改为依次放入所有进程的批次,使各进程的队列与单卡放入的内容一致",
)
_GROWN = Text(
    "the new part must begin alike on all ranks",
    "新增部分的初始参数在各进程上必须一致",
)


def find(facts: Facts) -> Iterator[Finding]:
    """One finding for each place where a model is wrapped, and for each backward pass of a model that cannot be."""
    wraps: dict[Wrap, list[Obj]] = {}
    for model, wrap in facts.places:
        wraps.setdefault(wrap, []).append(model)
    for wrap, models in wraps.items():
        yield _wrapped(facts, wrap, models)
        yield from _own_buffers(facts, models)
    done: set[tuple[ast.AST, str]] = set()
    for model, reason, home in facts.unwrapped:
        yield from _averaged(facts, model, reason, home, done)
    yield from _loose(facts, done)
    yield from _set_by_hand(facts)


def _loose(facts: Facts, done: set[tuple[ast.AST, str]]) -> Iterator[Finding]:
    """Tensors that an optimizer holds beside models, such as the weights of losses: no wrapper sees them."""
    optimizers = {
        event.subject
        for event in facts.events("construct", dead=False)
        if isinstance(event.subject, Obj)
        and event.subject.kind == "optimizer"
        and any("leaf" in data_of(values).tags for values in event.subject.args.values())
    }
    for event in facts.events("backward", dead=False) if optimizers and facts.trained else ():
        if not isinstance(event.subject, Data) or "leaf" not in event.subject.tags:
            continue
        holder = _next_stepped(facts, event, optimizers)
        if (event.node, holder or "") in done:
            continue
        done.add((event.node, holder or ""))
        why = Text(
            "the optimizer holds tensors that are no module's, so no wrapper averages their gradients",
            "优化器中有不属于任何模块的张量,没有包装器会对它们的梯度做平均",
        )
        if holder is None:
            advice = Text(
                "call average_gradients(optimizer) from ddp_runtime after this line",
                "请在这一行之后调用 ddp_runtime 的 average_gradients(optimizer)",
            )
            yield Finding(CODE, facts.site(event.module, event.node), why, advice=advice, kind=Kind.LEFT)
            continue
        statement = facts.statement(event.module, event.node)
        line = insert_after(event.module, statement, f"«average_gradients»({holder})")
        yield Finding(CODE, facts.site(event.module, event.node), why, (line,))


def _next_stepped(facts: Facts, event: Event, optimizers: set[Obj]) -> str | None:
    """Of some optimizers, the one that is named next after a backward pass, or else anywhere near it."""
    scope = facts.scope(event.module, event.node)
    named = [
        node
        for node in walk(scope)
        if isinstance(node, ast.Name | ast.Attribute)
        and isinstance(node.ctx, ast.Load)
        and _path(node)
        and facts.scope(event.module, node) is scope
        and (values := facts.values(node))
        and all(isinstance(value, Obj) and value in optimizers for value in values)
    ]
    line = getattr(event.node, "lineno", 0)
    named.sort(key=lambda node: (node.lineno < line, node.lineno))
    return event.module.text(named[0]) if named else None


def _set_by_hand(facts: Facts) -> Iterator[Finding]:
    """Gradients that no backward pass brings: nothing averages them."""
    done: set[ast.AST] = set()
    for event in facts.events("set_grad", dead=False):
        models = event.subject.models if isinstance(event.subject, Data) else frozenset()
        if event.node in done or not any(facts.trainable(model) for model in models):
            continue
        done.add(event.node)
        yield Finding(
            CODE,
            facts.site(event.module, event.node),
            Text("gradients are set here by hand, each rank's own", "这里手动设置梯度,各进程各不相同"),
            advice=Text(
                "call average_gradients(model) from ddp_runtime before the optimizer's step",
                "请在优化器更新之前调用 ddp_runtime 的 average_gradients(model)",
            ),
            kind=Kind.LEFT,
        )


def _wrapped(facts: Facts, wrap: Wrap, models: list[Obj]) -> Finding:
    module = facts.module_of[wrap.target]
    name = module.text(wrap.target)
    options, trainable = wrapper_options(facts, models)
    given = "".join(f", {option}" for option in options)
    line = f"{name} = «DDP»({name}, device_ids=«device_ids»({name}){given})"
    lines = [f"with «all_trainable»({name}):", f"{module.unit}{line}"] if trainable else [line]
    edits = (insert_after(module, wrap.statement, *lines),)
    if stands_in_for(facts, wrap) is not None and not trainable:
        edits = (replace(module, wrap.statement, line),)
    return Finding(
        CODE,
        facts.site(module, wrap.statement),
        Text(
            f"gradients of `{name}` are averaged over the ranks in every backward pass"
            + "".join(_OPTIONS[option].en for option in options),
            f"每次反向传播时对 `{name}` 的梯度做多卡平均"
            + "".join(_OPTIONS[option].zh for option in options),
        ),
        edits,
    )


def _own_buffers(facts: Facts, models: list[Obj]) -> Iterator[Finding]:
    """Buffers that a model fills from its batches: a queue, a running mean."""
    classes = dict.fromkeys(cls for model in models for cls in classes_of(model))
    for cls in classes:
        names = {
            call.args[0].value
            for call in nodes(cls.node, ast.Call)
            if isinstance(call.func, ast.Attribute)
            and call.func.attr == "register_buffer"
            and call.args
            and isinstance(call.args[0], ast.Constant)
        }
        found: dict[str, ast.AST] = {}
        for node in walk(cls.node) if names else ():
            name, values = _written_buffer(facts, node)
            if name in names and any(isinstance(value, Data) and value.local for value in values):
                found.setdefault(name, node)
        fed = {}
        for name, node in found.items():
            method = facts.function(cls.module, node)
            if method not in fed:
                writes = [other for other in found.values() if facts.function(cls.module, other) is method]
                fed[method] = (
                    filled(facts, cls.module, method, writes) if isinstance(method, ast.FunctionDef) else []
                )
                for place in fed[method]:
                    yield Finding(CODE, facts.site(place.module, place.statement), _QUEUE, place.edits)
            if fed[method]:
                continue
            yield Finding(
                CODE,
                facts.site(cls.module, node),
                Text(_BUFFER.en.format(name=name), _BUFFER.zh.format(name=name)),
                advice=Text(
                    "gather what is written from all ranks first, or live with what rank 0 has seen",
                    "请先从所有进程收集要写入的内容,或接受它只包含 rank0 见过的数据",
                ),
                kind=Kind.LEFT,
            )


def _written_buffer(facts: Facts, node: ast.AST) -> tuple[str, Values]:
    """The attribute of `self` that a node writes, and what it is given."""
    match node:
        case ast.Assign(targets=[target], value=value) | ast.AugAssign(target=target, value=value):
            while isinstance(target, ast.Subscript):
                target = target.value
            if isinstance(target, ast.Attribute) and isinstance(target.value, ast.Name):
                return target.attr, facts.values(value)
        case ast.Call(func=ast.Attribute(value=owner, attr=method), args=[*_, argument]) if method.endswith(
            "_"
        ):
            while isinstance(owner, ast.Subscript | ast.Call):
                owner = owner.func if isinstance(owner, ast.Call) else owner.value
                owner = (
                    owner.value if isinstance(owner, ast.Attribute) and owner.attr.endswith("_") else owner
                )
            if isinstance(owner, ast.Attribute) and isinstance(owner.value, ast.Name):
                return owner.attr, join(facts.values(argument), facts.values(node))
        case _:
            pass
    return "", NOTHING


def stands_in_for(facts: Facts, wrap: Wrap) -> ast.Call | None:
    """The DataParallel whose statement, `model = nn.DataParallel(model)`, the wrapper takes over."""
    statement = wrap.statement
    if not isinstance(statement, ast.Assign) or len(statement.targets) != 1:
        return None
    module = facts.module_of[wrap.target]
    value = statement.value
    if not any(event.kind == "data_parallel" for event in facts.by_node.get(value, ())):
        return None
    if (
        isinstance(value, ast.Call)
        and value.args
        and module.text(value.args[0]) == module.text(statement.targets[0])
    ):
        return value if module.text(statement.targets[0]) == module.text(wrap.target) else None
    return None


def _averaged(
    facts: Facts, model: Obj, reason: str, home: Wrap | None, done: set[tuple[ast.AST, str]]
) -> Iterator[Finding]:
    """The model stays bare: its gradients are averaged after each backward pass."""
    own = {obj for obj in facts.run.born.values() if obj.kind == "model" and identity(obj) == identity(model)}
    whole = {obj.root for obj in own}
    why = Text(
        f"no wrapper can serve here ({reason}), so gradients are averaged over the ranks after the backward pass",
        f"这里无法使用包装器({reason}),因此在反向传播之后直接对梯度做多卡平均",
    )
    if home is not None and (home.statement, "home") not in done:
        done.add((home.statement, "home"))
        module = facts.module_of[home.target]
        lines = _broadcast(facts, module, home.target)
        edit = insert_after(module, home.statement, *lines)
        if stands_in_for(facts, home) is not None:
            edit = replace(module, home.statement, *lines)
        yield Finding(CODE, facts.site(module, home.statement), why, (edit,))
    for event in grown(facts, own, _given_rank_0s(facts, home)):
        base = _base(event.node)
        if base is None or (event.node, "grown") in done:
            continue
        done.add((event.node, "grown"))
        line = f"«broadcast_model»({event.module.text(base)})"
        statement = facts.statement(event.module, event.node)
        edits = (insert_after(event.module, statement, line),)
        yield Finding(CODE, facts.site(event.module, event.node), _GROWN, edits)
    for event in facts.backwards:
        if not own & set(getattr(event.subject, "models", ())) or event in facts.dropped:
            continue
        statement = facts.statement(event.module, event.node)
        holder = _holder(facts, event, whole, own) or _holder(facts, event, own, own)
        if (event.node, holder or "") in done:
            continue
        done.add((event.node, holder or ""))
        if holder is None:
            yield Finding(
                CODE,
                facts.site(event.module, event.node),
                Text(
                    f"gradients must be averaged here, and neither the model nor its optimizer is in sight ({reason})",
                    f"这里需要对梯度做多卡平均,但看不到模型或优化器({reason})",
                ),
                advice=Text(
                    "call average_gradients(model) from ddp_runtime after this line",
                    "请在这一行之后调用 ddp_runtime 的 average_gradients(model)",
                ),
                kind=Kind.LEFT,
            )
            continue
        line = f"«average_gradients»({holder})"
        yield Finding(
            CODE, facts.site(event.module, event.node), why, (insert_after(event.module, statement, line),)
        )


def _given_rank_0s(facts: Facts, home: Wrap | None) -> int:
    """When a model is given rank 0's weights, with all parts that it has by then."""
    if home is None:
        return 0
    inside = held(home.statement)
    return max(
        (
            event.order
            for event in facts.run.events
            if event.node is home.target or event.node in inside or not inside.isdisjoint(event.calls)
        ),
        default=0,
    )


def _broadcast(facts: Facts, module: Module, model: ast.AST) -> tuple[str, ...]:
    """The lines that give a model rank 0's weights; for one that a comprehension names, each of them."""
    line = f"«broadcast_model»({module.text(model)})"
    generator = _comprehended(facts, module, model)
    if generator is None:
        return (line,)
    return f"for {module.text(generator.target)} in {module.text(generator.iter)}:", f"    {line}"


def _comprehended(facts: Facts, module: Module, model: ast.AST) -> ast.comprehension | None:
    """The part of a comprehension that names a model, if one does: nobody else knows it by that name."""
    name = module.text(model).partition(".")[0]
    for parent in facts.ancestors(module, model):
        if isinstance(parent, ast.stmt):
            return None
        if isinstance(parent, ast.ListComp | ast.SetComp | ast.GeneratorExp | ast.DictComp):
            for generator in parent.generators:
                if any(isinstance(part, ast.Name) and part.id == name for part in walk(generator.target)):
                    return generator
    return None


def _base(node: ast.AST) -> ast.expr | None:
    """The model that gets a new part: `self` in `self.fc = ...`, `self.heads` in `self.heads.append(...)`."""
    match node:
        case ast.Attribute(value=base) | ast.Call(func=ast.Attribute(value=base)):
            return base
        case _:
            return None


def _holder(facts: Facts, event: Event, own: set[Obj], parts: set[Obj]) -> str | None:
    """The model, or an optimizer that holds its parameters, as it is written near a backward pass."""
    module = event.module
    scope = facts.scope(module, event.node)
    model: str | None = None
    optimizer: str | None = None
    unsure: str | None = None
    for node in walk(scope):
        if (
            not isinstance(node, ast.Name | ast.Attribute)
            or not isinstance(node.ctx, ast.Load)
            or not _path(node)
        ):
            continue
        if facts.scope(module, node) is not scope or _comprehended(facts, module, node) is not None:
            continue
        values = [value for value in facts.values(node) if value != Const(None)]
        if values and all(isinstance(value, Obj) and value in own for value in values):
            model = model or module.text(node)
        if values and all(isinstance(value, Obj) and value.kind == "optimizer" for value in values):
            held = {
                m
                for value in values
                if isinstance(value, Obj)
                for args in value.args.values()
                for m in data_of(args).models
            }
            shared = shared_parts(held) & parts
            if not shared and not {m.root for m in held} & {m.root for m in own}:
                continue
            if Const(None) in facts.values(node):
                unsure = unsure or module.text(node)
            elif shared:
                return module.text(node)  # the model in sight may hold less than the optimizer does
            else:
                optimizer = optimizer or module.text(node)
    inside = _self_holder(facts, module, scope, own) if isinstance(event.node, ast.Call) else None
    return model or optimizer or inside or unsure


def _self_holder(facts: Facts, module: Module, scope: ast.AST, own: set[Obj]) -> str | None:
    """`self.model`, where the object that runs holds the model under that name."""
    if not isinstance(scope, ast.FunctionDef) or not scope.args.args:
        return None
    first = scope.args.args[0].arg
    for node in walk(scope):
        if isinstance(node, ast.Name) and node.id == first:
            for value in facts.values(node):
                if isinstance(value, Obj):
                    for attr, values in value.attrs.items():
                        if attr.isidentifier() and any(item in own for item in values):
                            return f"{first}.{attr}"
    del module
    return None


def _path(node: ast.expr) -> bool:
    while isinstance(node, ast.Attribute):
        node = node.value
    return isinstance(node, ast.Name)
