"""Reach the model's own attributes through the wrapper.

DDP has no `features`, `fc` or `init_hidden`, and its `state_dict` carries `module.` before every name.  What the
wrapper passes on itself (`train`, `eval`, `parameters`, `zero_grad`, …) stays as it is.

Before:

    for param in model.features.parameters():
        param.requires_grad = False

After:

    for param in model.module.features.parameters():
        param.requires_grad = False
"""

import ast
from collections.abc import Iterator

from multicard.edits import Edit, attribute, call_with
from multicard.effects import placed
from multicard.facts import Facts
from multicard.interpret import Event
from multicard.messages import Text
from multicard.plan import Finding, Kind
from multicard.source import Module
from multicard.tree import walk
from multicard.values import NOTHING, Const, Lib, Obj, Values

CODE = "MC302"
TITLE = Text("Reach inside the wrapper", "通过 .module 访问模型")

PASSED_ON = frozenset(
    {
        "train",
        "eval",
        "parameters",
        "zero_grad",
        "to",
        "cuda",
        "cpu",
        "requires_grad_",
        "training",
        "modules",
        "buffers",
        "half",
        "float",
        "double",
        "bfloat16",
        "apply",
        "module",
        "no_sync",
        "forward",
        "share_memory",
        "type",
        "_orig_mod",
        "named_modules_",
        "join",
    }
)
LOOKED_AT = frozenset(
    {
        "builtins.id",
        "builtins.callable",
        "torch.save",
        "torch.jit.save",
        "torch.onnx.export",
        "pickle.dump",
    }
)
_OF_A_WRAPPER = frozenset(
    {"torch.nn.Module", "torch.nn.DataParallel", "torch.nn.parallel.DistributedDataParallel"}
)
NAMED = frozenset(
    {
        "state_dict",
        "load_state_dict",
        "named_parameters",
        "named_modules",
        "named_buffers",
        "named_children",
        "children",
    }
)
_WHY = Text(
    "`{name}` is the model's, not the wrapper's",
    "`{name}` 属于模型本身,不属于包装器",
)
_STATE = Text(
    "without the wrapper's `module.` before every name, so the single-card script can load it and this one can load"
    " the single card's",
    "去掉 `module.` 前缀,单卡脚本可以直接加载,也能加载单卡保存的权重",
)


def find(facts: Facts) -> Iterator[Finding]:
    """Each attribute of a wrapped model that the wrapper does not have."""
    found: dict[ast.AST, Event] = {}
    for event in facts.events("attr"):
        if isinstance(event.subject, Obj) and event.subject.kind == "wrapped" and event.subject.name == "DDP":
            if event.name not in PASSED_ON or (event.name == "modules" and _each_counts(facts, event)):
                found.setdefault(event.node, event)
    for node, event in found.items():
        yield from _attribute(facts, event, node)
    yield from _given_away(facts)


def _each_counts(facts: Facts, event: Event) -> bool:
    """Whether it may matter that the wrapper is among its modules: no loop looks for those of a class."""
    parents = facts.parents(event.module)
    call = parents.get(event.node)
    match parents.get(call) if call is not None else None:
        case ast.For(iter=over, target=ast.Name(id=name), body=body) if over is call:
            looked_at: list[ast.AST] = list(body)
        case ast.comprehension(iter=over, target=ast.Name(id=name), ifs=tests) if over is call:
            looked_at = list(tests)
        case _:
            return True
    return not any(
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Name)
        and node.args
        and isinstance(node.args[0], ast.Name)
        and node.args[0].id == name
        and not (node.func.id == "isinstance" and _any_module(facts, node))
        and node.func.id not in {"print", "str", "type", "repr"}
        for part in looked_at
        for node in walk(part)
    )


def _given_away(facts: Facts) -> Iterator[Finding]:
    """Wrapped models given to a library that copies, traces or draws them: it wants the model itself."""
    done: set[ast.AST] = set()
    for event in facts.events("escape"):
        subject = event.subject
        if not isinstance(subject, Obj) or subject.kind != "wrapped" or subject.name != "DDP":
            continue
        if event.name in LOOKED_AT or not event.name:
            continue
        if event.name == "builtins.isinstance" and _any_module(facts, event.node):
            continue
        for argument in _given(event.node):
            if argument in done or subject not in facts.values(argument) or isinstance(argument, ast.Starred):
                continue
            done.add(argument)
            edits = inner(facts, event.module, argument, named=True)
            if edits is not None:
                name = event.name.removeprefix("builtins.")
                why = Text(
                    f"`{name}` must get the model, not the wrapper",
                    f"`{name}` 需要的是模型本身,而不是包装器",
                )
                yield Finding(CODE, facts.site(event.module, argument), why, edits)


def _given(node: ast.AST) -> tuple[ast.expr, ...]:
    """What a call is given, or what is written into a text."""
    match node:
        case ast.Call(args=args, keywords=keywords):
            return (*args, *(keyword.value for keyword in keywords))
        case ast.BinOp(op=ast.Mod(), right=ast.Tuple(elts=parts)):
            return tuple(parts)
        case ast.BinOp(op=ast.Mod(), right=part) | ast.FormattedValue(value=part):
            return (part,)
        case _:
            return ()


def _any_module(facts: Facts, call: ast.AST) -> bool:
    """Whether a question for the class of a model has the same answer for its wrapper."""
    if not isinstance(call, ast.Call):
        return False
    asked = facts.values(call.args[1]) if len(call.args) > 1 else NOTHING
    several = [part for value in asked if isinstance(value, Obj) for part in value.items or ()]
    asked = asked.union(*several)
    return any(isinstance(value, Lib) and value.name in _OF_A_WRAPPER for value in asked)


def _attribute(facts: Facts, event: Event, node: ast.AST) -> Iterator[Finding]:
    module = event.module
    base = base_of(node)
    if base is None:
        return
    why = (
        _STATE
        if event.name in {"state_dict", "load_state_dict"}
        else Text(_WHY.en.format(name=event.name), _WHY.zh.format(name=event.name))
    )
    edits = inner(facts, module, base, named=event.name in NAMED)
    if edits is None:
        yield Finding(
            CODE,
            facts.site(module, base),
            why,
            advice=Text(
                "write `.module.` here where the model is wrapped", "模型已包装时,请在这里加上 `.module.`"
            ),
            kind=Kind.LEFT,
        )
        return
    yield Finding(CODE, facts.site(module, base), why, edits)


def base_of(node: ast.AST) -> ast.expr | None:
    """The expression whose attribute, item or method is asked for."""
    match node:
        case ast.Attribute(value=base) | ast.Subscript(value=base):
            return base
        case ast.Call(func=ast.Name(id="getattr" | "setattr" | "hasattr"), args=[base, *_]):
            return base
        case ast.Call(func=ast.Attribute(value=base)):
            return base
        case _:
            return None


def inner(facts: Facts, module: Module, base: ast.expr, *, named: bool) -> tuple[Edit, ...] | None:
    """Edits that turn an expression for the wrapped model into one for the model inside.

    `named`: parameter names matter, and `torch.compile` puts a prefix of its own before them.
    """
    values = facts.values(base)
    if not placed(facts, module, base):
        return None
    if (
        always_wrapped(values)
        and not (named and compiled(values))
        and isinstance(base, ast.Name | ast.Attribute | ast.Subscript | ast.Call)
    ):
        return (attribute(module, base, "module"),)
    if isinstance(base, ast.Name | ast.Attribute | ast.Subscript | ast.Call):
        return call_with(module, base, "«unwrap»")
    return None


def always_wrapped(values: Values) -> bool:
    """Whether an expression is a wrapped model on every way of getting there."""
    rest = [value for value in values if value != Const(None)]
    return bool(rest) and all(isinstance(value, Obj) and value.kind == "wrapped" for value in rest)


def compiled(values: Values) -> bool:
    """Whether `torch.compile` may stand between the wrapper and the model."""
    return any(
        isinstance(value, Obj) and value.inner is not None and "*compiled" in value.inner.args
        for value in values
    )
