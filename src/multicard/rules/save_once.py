"""Save checkpoints on rank 0 alone, whole or not at all, with the model inside the wrapper.

`torch.save` empties the file before it writes: ranks that save to one path leave a torn file, and a run that is killed
meanwhile leaves none.  A model that is saved whole must be the one inside, or a single card cannot load it.

Before:

    torch.save(model, "last.pth")

After:

    save_checkpoint(unwrap(model), "last.pth")
"""

import ast
from collections.abc import Iterator

from multicard.edits import Edit, call_with, replace
from multicard.effects import calls_named, names_of, running_nodes, running_paths
from multicard.facts import Facts
from multicard.meeting import prepared
from multicard.messages import Text
from multicard.once import UNDER_A_GUARD, hides, keep_to_rank_0, statement_of
from multicard.plan import Finding, Kind
from multicard.reach import guarded, is_wrapped, per_sample
from multicard.source import Module
from multicard.values import Lib, Method, Obj, contained, one

CODE = "MC501"
TITLE = Text("Save once", "只在主进程保存")

_WHOLE = {"torch.jit.save": 0, "torch.onnx.export": 0, "torch.export.save": 0, "torch.onnx.dynamo_export": 0}
_PICKLES = {
    "pickle.dump": 0,
    "pickle.dumps": 0,
    "dill.dump": 0,
    "cloudpickle.dump": 0,
    "joblib.dump": 0,
    "torch.jit.trace": 0,
    "torch.jit.script": 0,
    "torch.export.export": 0,
}
_TORN = Text(
    "ranks that write one file at the same time tear it; rank 0 writes it, whole or not at all",
    "多张卡同时写一个文件会把它写坏;只由主进程写入,并保证要么完整写入、要么保持原样",
)
_INSIDE = Text(
    "saved whole, it must be the model inside the wrapper, or a single card cannot load it",
    "整体保存时必须保存包装器内部的模型,否则单卡脚本无法加载",
)


def find(facts: Facts) -> Iterator[Finding]:
    """Saves, and models that reach them whole."""
    unwrapped: set[ast.AST] = set()
    saves = one(Lib("torch.save"))
    known = facts.run.seen.get
    for module in facts.modules:
        for node in [node for node in running_paths(facts, module) if known(node) == saves]:
            yield from _save(facts, module, node)
        for call in calls_named(facts, module, _may_save):
            names = names_of(facts, call)
            if "torch.save" in names or names & set(_PICKLES):
                yield from _whole_models(facts, module, call, unwrapped)
            elif names & set(_WHOLE) or _saves_itself(facts, call):
                yield from _export(facts, module, call)


def _may_save(name: str) -> bool:
    return name == "torch.save" or name in _PICKLES or name in _WHOLE or name.endswith(".save")


def _save(facts: Facts, module: Module, node: ast.Name | ast.Attribute) -> Iterator[Finding]:
    if isinstance(node, ast.Name) and node.id != "save":
        return  # another name for it, bound where it is found as well
    if guarded(facts, module, node) or prepared(facts, module, node):
        return
    site = facts.site(module, facts.statement(module, node))
    if per_sample(facts, module, node):
        why = Text(
            "worker processes of every rank save here, each its own samples",
            "每张卡的数据加载进程都会在这里保存各自的样本",
        )
        yield Finding(
            CODE,
            site,
            why,
            (),
            Text("prepare the files before training", "请在训练之前生成这些文件"),
            Kind.LEFT,
        )
        return
    yield Finding(CODE, site, _TORN, (replace(module, node, "«save_checkpoint»"),))


def _saves_itself(facts: Facts, call: ast.Call) -> bool:
    """`model.save(path)` of a scripted model."""
    return any(
        isinstance(value, Method)
        and value.name == "save"
        and isinstance(value.owner, Obj)
        and value.owner.kind in {"model", "wrapped"}
        for value in facts.values(call.func)
    )


def _export(facts: Facts, module: Module, call: ast.Call) -> Iterator[Finding]:
    if guarded(facts, module, call):
        return
    statement = statement_of(facts, module, call)
    why = hides(facts, statement) if statement is not None else "its value is used"
    if statement is None or why:
        said = Text(f"every rank would write this file: {why}", f"每张卡都会写这个文件:{why}")
        yield Finding(CODE, facts.site(module, call), said, (), UNDER_A_GUARD, Kind.LEFT)
        return
    guard = keep_to_rank_0(facts, CODE, module, [statement], _TORN)
    inner = [edit for node in _given(call)[:1] for edit in _bare(facts, module, node)]
    yield Finding(CODE, guard.site, guard.why, (*guard.edits, *inner), guard.advice, guard.kind)


def _given(call: ast.Call) -> list[ast.expr]:
    named = [keyword.value for keyword in call.keywords if keyword.arg in {"obj", "model", "m"}]
    return [argument for argument in call.args if not isinstance(argument, ast.Starred)][:1] or named


def _bare(facts: Facts, module: Module, node: ast.expr) -> tuple[Edit, ...]:
    return (
        call_with(module, node, "«unwrap»") if any(is_wrapped(value) for value in facts.values(node)) else ()
    )


# --- models inside what is saved ----------------------------------------------------------------------------------


def _whole_models(facts: Facts, module: Module, call: ast.Call, done: set[ast.AST]) -> Iterator[Finding]:
    """Wrapped models in the first argument: itself, or inside containers, wherever these are built."""
    for saved in _given(call):
        values = facts.values(saved)
        if any(isinstance(value, Obj) and value.kind == "instance" and _holds(value) for value in values):
            said = Text("the object that is saved holds the wrapped model", "被保存的对象里含有包装后的模型")
            advice = Text("save its state, with `unwrap(model)`", "请保存它的状态,并使用 `unwrap(model)`")
            yield Finding(CODE, facts.site(module, call), said, (), advice, Kind.LEFT)
            continue
        wrapped = contained(values, "wrapped")
        if not wrapped:
            continue
        places = list(_places(facts, module, saved))
        found = {value for _, node in places for value in facts.values(node)}
        if not places or not set(wrapped) <= found or _used_otherwise(facts, values):
            said = Text(
                "a wrapped model is saved whole inside a container that is used otherwise too",
                "容器里整体保存了包装后的模型,而该容器还有其他用途",
            )
            advice = Text("save `unwrap(model)` in its place", "请改为保存 `unwrap(model)`")
            yield Finding(CODE, facts.site(module, call), said, (), advice, Kind.LEFT)
            continue
        for place, node in places:
            if node not in done:
                done.add(node)
                yield Finding(CODE, facts.site(place, node), _INSIDE, call_with(place, node, "«unwrap»"))


def _holds(owner: Obj) -> bool:
    return any(contained(values, "wrapped") for values in owner.attrs.values())


def _places(facts: Facts, module: Module, saved: ast.expr) -> Iterator[tuple[Module, ast.expr]]:
    """The expressions that put wrapped models into what is saved."""
    values = facts.values(saved)
    if any(is_wrapped(value) for value in values):
        yield module, saved
    containers = _containers(values)
    for other in facts.modules:
        for node in running_nodes(facts, other):
            match node:
                case ast.Dict() | ast.List() | ast.Tuple() | ast.Call() if facts.values(node) & containers:
                    for part in _parts(node):
                        if any(is_wrapped(value) for value in facts.values(part)):
                            yield other, part
                case ast.Assign(targets=[ast.Subscript(value=base)], value=part) if (
                    facts.values(base) & containers
                ):
                    if any(is_wrapped(value) for value in facts.values(part)):
                        yield other, part
                case _:
                    pass


def _parts(node: ast.expr) -> list[ast.expr]:
    match node:
        case ast.Dict(values=values):
            return values
        case ast.List(elts=elements) | ast.Tuple(elts=elements):
            return elements
        case ast.Call(func=ast.Name(id="dict" | "OrderedDict"), keywords=keywords):
            return [keyword.value for keyword in keywords]
        case _:
            return []


def _containers(values: frozenset[object]) -> frozenset[object]:
    found: set[object] = set()
    for value in values:
        if isinstance(value, Obj) and value.kind in {"dict", "list", "tuple"} and value not in found:
            found.add(value)
            for inner in (*(value.items or ()), value.rest, *value.attrs.values()):
                found |= _containers(inner)
    return frozenset(found)


def _used_otherwise(facts: Facts, values: frozenset[object]) -> bool:
    """Whether a model is taken out of a container that is saved, or a loop goes over it."""
    containers = _containers(values)
    for module in facts.modules:
        for node in running_nodes(facts, module):
            match node:
                case (
                    ast.Subscript(value=base, ctx=ast.Load())
                    | ast.For(iter=base)
                    | ast.comprehension(iter=base)
                ):
                    pass
                case ast.Attribute(value=base, attr="values" | "items" | "get" | "pop"):
                    pass
                case _:
                    continue
            if facts.values(base) & containers:
                taken = facts.values(node) if isinstance(node, ast.Subscript) else facts.values(base)
                if contained(taken, "wrapped"):
                    return True
    return False
