"""Whether a step may leave parameters of a model without a gradient.

DistributedDataParallel waits for every gradient, and stops the script at the next step if one did not come.  So it
must be told to look for unused parameters where a part is made and not called, called only without gradients, left
out by chance, or where a library's model is used in parts.
"""

import ast
from collections.abc import Iterable, Iterator

from multicard.facts import Facts
from multicard.libraries import WITHOUT_PARAMETERS
from multicard.source import Module
from multicard.tree import held, nodes, parents, walk
from multicard.values import Class, Const, Data, Func, Lib, Obj

_BY_NAME = frozenset({"getattr", "vars"})
_BY_LIST = frozenset({"children", "modules", "named_children", "named_modules", "_modules", "__dict__"})
_WHOLE = ("torchvision.models.", "timm.", "transformers.", "segmentation_models_pytorch.", "torch.hub.")


def partly_used(facts: Facts, model: Obj) -> bool:
    """Whether a part of a model, or of one of its parts, may get no gradient in a step."""
    return _head_switched_off(facts, model) or _partly_used(facts, model, set())


def has_parameters(model: Obj, seen: frozenset[Obj] = frozenset()) -> bool:
    """Whether a module may hold parameters: an activation or a loss does not."""
    if model.cls is None:
        tail = model.name.rpartition(".")[2]
        return tail not in WITHOUT_PARAMETERS and not tail.endswith("Loss")
    if _makes_parameters(model.cls):
        return True
    seen |= {model}
    parts = (part for values in model.attrs.values() for part in values if isinstance(part, Obj))
    return any(part.kind == "model" and part not in seen and has_parameters(part, seen) for part in parts)


def _makes_parameters(cls: Class) -> bool:
    """Whether a class makes parameters itself, holds parts in a container or rests on a class of a library's."""
    for base in cls.mro():
        if isinstance(base, Lib):
            if base.name not in {"torch.nn.Module", "torch.nn.modules.module.Module", "builtins.object"}:
                return True
        elif any(
            node.attr in {"Parameter", "register_parameter", "add_module", "ModuleList", "ModuleDict"}
            for node in nodes(base.node, ast.Attribute)
        ):
            return True
    return False


def _head_switched_off(facts: Facts, model: Obj) -> bool:
    """Whether `model.aux_logits = False` leaves a head of a library's model unused."""
    return any(
        event.subject is model and event.name == "aux_logits" and Const(False) in event.args.get("value", ())
        for event in facts.events("setattr", dead=False)
    )


def _partly_used(facts: Facts, model: Obj, seen: set[Obj]) -> bool:
    if model.cls is None or model in seen:
        return False
    seen.add(model)
    methods = _in_training(facts, model)
    if not methods or any(_by_other_means(method) for method in methods):
        return False
    followed = any(part in facts.run.graded for values in model.attrs.values() for part in values)
    for name, values in model.attrs.items():
        parts = [part for part in values if isinstance(part, Obj) and part.kind == "model"]
        held_back = not name.isidentifier() or any(_frozen(facts, part) for part in parts)
        if held_back or not any(has_parameters(part) for part in parts):
            continue
        if any(part in facts.run.graded for part in parts):
            if any(_partly_used(facts, part, seen) for part in parts):
                return True
        elif _without_gradient(facts, parts, _uses(methods, name), followed=followed):
            return True
    return False


def _without_gradient(facts: Facts, parts: list[Obj], uses: set[str], *, followed: bool) -> bool:
    """Whether a part that no forward pass with gradients was seen of can have none."""
    if not uses:
        return any(part.call is not None for part in parts)  # not a size asked of a library's model
    if uses == {"call"} and followed:
        return True
    return uses <= {"call", "part"} and all(
        part.cls is None and part.name.startswith(_WHOLE) and not _headless(facts, part) for part in parts
    )


def _headless(facts: Facts, model: Obj) -> bool:
    """Whether parts of a library's model were replaced: what is not used may be what was taken off."""
    return any(event.subject is model for event in facts.events("setattr", "grow", dead=False))


def _frozen(facts: Facts, part: Obj) -> bool:
    """Whether the parameters of a part, or of what holds it, are frozen somewhere."""
    holders: list[Obj] = []
    here: Obj | None = part
    while here is not None and here not in holders:
        holders.append(here)
        here = here.owner
    return any(
        event.subject in holders and Const(True) not in event.args.get("value", ())
        for event in facts.events("freeze", dead=False)
    )


def _in_training(facts: Facts, model: Obj) -> list[ast.FunctionDef]:
    """The methods that a forward pass in training goes through: `forward`, those called beside it, and theirs."""
    own: dict[str, list[ast.FunctionDef]] = {}
    assert model.cls is not None
    for cls in model.cls.mro():
        for node in cls.node.body if isinstance(cls, Class) else ():
            if isinstance(node, ast.FunctionDef):
                own.setdefault(node.name, []).append(node)
    names = {"forward"} & own.keys()
    names |= {
        event.name
        for event in facts.events("through_method", dead=False)
        if isinstance(event.subject, Obj)
        and (event.subject.inner or event.subject) is model
        and facts.trains(event)
    } & own.keys()
    waiting = list(names)
    for name in waiting:
        for method in own[name]:
            called = {node.attr for node in nodes(method, ast.Attribute)} & own.keys() - names
            names |= called
            waiting += called
    return [method for name in waiting for method in own[name]] if "forward" in names else []


def _by_other_means(method: ast.FunctionDef) -> bool:
    """Whether a method reaches parts by a name that is made, or by listing them all."""
    return any(node.id in _BY_NAME for node in nodes(method, ast.Name)) or any(
        node.attr in _BY_LIST for node in nodes(method, ast.Attribute)
    )


def _uses(methods: Iterable[ast.FunctionDef], name: str) -> set[str]:
    """How methods use an attribute: called, for a part of it, or otherwise."""
    found: set[str] = set()
    for method in methods:
        for node in nodes(method, ast.Attribute):
            if node.attr != name or not isinstance(node.ctx, ast.Load):
                continue
            match parents(method).get(node):
                case ast.Call(func=function) if function is node:
                    found.add("call")
                case ast.Attribute():
                    found.add("part")
                case _:
                    found.add("other")
    return found


def chosen_by_data(facts: Facts, model: Obj) -> bool:
    """Whether a batch, or chance, decides in the model's own code which of its parts are used."""
    for cls in classes_of(model):
        branches: tuple[ast.If | ast.IfExp, ...] = (*nodes(cls.node, ast.If), *nodes(cls.node, ast.IfExp))
        if any(
            _by_content(facts, node.test) and _chooses_parts(facts, cls.module, node) for node in branches
        ):
            return True
    return False


def classes_of(model: Obj) -> Iterator[Class]:
    """The classes of a model and of its parts, as far as the script makes them itself."""
    seen: dict[Obj, None] = {model: None}
    waiting = [model]
    for here in waiting:
        inner = [
            value for values in (*here.attrs.values(), *(here.items or ()), here.rest) for value in values
        ]
        for value in inner:
            if (
                isinstance(value, Obj)
                and value.kind in {"model", "list", "dict", "tuple"}
                and value not in seen
            ):
                seen[value] = None
                waiting.append(value)
    found = [item for part in seen if part.cls is not None for item in part.cls.mro()]
    yield from dict.fromkeys(item for item in found if isinstance(item, Class))


def _by_content(facts: Facts, test: ast.expr) -> bool:
    """Whether a test asks for the numbers in a batch, or for chance; not for shapes, and not whether it is there."""
    match test:
        case ast.BoolOp(values=parts):
            return any(_by_content(facts, part) for part in parts)
        case ast.UnaryOp(operand=inner):
            return _by_content(facts, inner)
        case ast.Compare(ops=[ast.Is() | ast.IsNot()]):
            return False
        case ast.Compare(left=left, comparators=rights):
            return any(_by_content(facts, part) for part in (left, *rights))
        case ast.Call() | ast.Subscript() | ast.Name():
            return any(
                isinstance(value, Data) and value.local and "size" not in value.tags
                for value in facts.values(test)
            )
        case _:
            return False


def _chooses_parts(facts: Facts, module: Module, branch: ast.If | ast.IfExp) -> bool:
    """Whether a branch calls a part of a model, or leaves before one that is called otherwise."""
    inside = held(branch)
    function = facts.function(module, branch)
    leaves = any(isinstance(node, ast.Return | ast.Continue | ast.Break) for node in inside)
    beyond = walk(function) if leaves and function is not None else ()
    return any(
        isinstance(node, ast.Call) and _is_part(facts, node)
        for node in (*inside, *beyond)
        if node not in held(branch.test)
    )


def _is_part(facts: Facts, call: ast.Call) -> bool:
    """Whether a part of a model is called that may hold parameters, or a method of the model."""
    return any(
        (isinstance(value, Obj) and value.kind == "model" and has_parameters(value))
        or (isinstance(value, Func) and isinstance(value.bound, Obj) and value.bound.kind == "model")
        for value in facts.values(call.func)
    )


# --- outputs that are not used ------------------------------------------------------------------------------------


def ignores_output(facts: Facts, model: Obj) -> bool:
    """Whether training leaves an output aside that parameters of its own were used for: `score, _ = model(x)`.

    A search for unused parameters starts at the outputs, and so takes those for used.
    """
    if model.cls is None:
        return False
    method = next(
        (
            node
            for cls in model.cls.mro()
            if isinstance(cls, Class)
            for node in cls.node.body
            if isinstance(node, ast.FunctionDef) and node.name == "forward"
        ),
        None,
    )
    if method is None:
        return False
    outputs = [node.value.elts for node in nodes(method, ast.Return) if isinstance(node.value, ast.Tuple)]
    if len(outputs) != 1 or len(nodes(method, ast.Return)) != 1:
        return False
    apart = {index for index, output in enumerate(outputs[0]) if _has_a_head(facts, method, output)}
    return bool(apart) and any(
        apart & _left_aside(facts, event.module, event.node, len(outputs[0]))
        for event in facts.events("forward", dead=False)
        if isinstance(event.subject, Obj)
        and (event.subject.inner or event.subject) is model
        and event.grad
        and facts.trains(event)
    )


def _left_aside(facts: Facts, module: Module, call: ast.AST, count: int) -> set[int]:
    """Which of the outputs of a call nobody reads."""
    match facts.parents(module).get(call):
        case ast.Assign(targets=[ast.Tuple(elts=targets)]) if len(targets) == count:
            scope = facts.scope(module, call)
            read = {node.id for node in nodes(scope, ast.Name) if isinstance(node.ctx, ast.Load)}
            return {
                index
                for index, target in enumerate(targets)
                if isinstance(target, ast.Name) and (target.id == "_" or target.id not in read)
            }
        case ast.Subscript(slice=ast.Constant(value=int(index))):
            return set(range(count)) - {index % count}
        case _:
            return set()


def _has_a_head(facts: Facts, method: ast.FunctionDef, output: ast.expr) -> bool:
    """Whether a part with parameters is called for this output and for nothing else."""
    made = [output]
    if isinstance(output, ast.Name):
        loads = [node for node in nodes(method, ast.Name) if node.id == output.id]
        if sum(isinstance(node.ctx, ast.Load) for node in loads) > 1:
            return False
        made = [
            node.value
            for node in nodes(method, ast.Assign)
            if any(isinstance(target, ast.Name) and target.id == output.id for target in node.targets)
        ]
    texts = [ast.dump(call.func) for call in nodes(method, ast.Call)]
    return any(
        texts.count(ast.dump(call.func)) == 1 and _is_layer(facts, call)
        for value in made
        for call in nodes(value, ast.Call)
    )


def _is_layer(facts: Facts, call: ast.Call) -> bool:
    return any(
        isinstance(value, Obj) and value.kind == "model" and has_parameters(value)
        for value in facts.values(call.func)
    )
