"""Load on every rank, after rank 0 has written, onto the rank's own device.

A checkpoint remembers the card that it was saved from: without `map_location` every rank loads onto card 0.  And what
rank 0 writes, the others may want to read before it is there.

Before:

    torch.save(model.state_dict(), "best.pth")
    model.load_state_dict(torch.load("best.pth"))

After:

    torch.save(model.state_dict(), "best.pth")
    dist.barrier()
    model.load_state_dict(torch.load("best.pth", map_location=own_device()))
"""

import ast
from collections.abc import Iterator

from multicard.edits import add_argument, attribute
from multicard.effects import calls_in, calls_named, names_of
from multicard.facts import Facts
from multicard.interpret import Event
from multicard.meeting import amid_preparation, follows, waits
from multicard.messages import Text
from multicard.paths import may_be_same_file
from multicard.plan import Finding
from multicard.quotients import calls_behind
from multicard.source import Module
from multicard.tree import nodes, walk
from multicard.values import Obj, Values, contained

CODE = "MC502"
TITLE = Text("Load on every rank", "每张卡都加载权重")

_KEYS = frozenset({
    "model", "state_dict", "model_state_dict", "net", "optimizer", "optimizer_state_dict", "optim", "weights", "ema",
})  # fmt: skip


def find(facts: Facts) -> Iterator[Finding]:
    """Loads without a device of their own, and loads of what this run has saved."""
    for module in facts.modules:
        for call in calls_named(facts, module, "torch.load".__eq__):
            if _lacks_device(call) and (_loads_weights(facts, module, call) or _loads_own_model(facts, call)):
                device = _device(facts, module, call)
                edits = [add_argument(module, call, f"map_location={device}")]
                edits += [attribute(module, state, "cpu()") for state in _states(facts, module, call)]
                yield Finding(
                    CODE,
                    facts.site(module, call),
                    Text(
                        "without `map_location` every rank loads onto the card that it was saved from",
                        "不写 `map_location` 时,所有进程都会加载到保存时所在的那张卡",
                    ),
                    tuple(edits),
                )
    yield from _waits(facts)


def _lacks_device(call: ast.Call) -> bool:
    starred = any(isinstance(argument, ast.Starred) for argument in call.args)
    named = {keyword.arg for keyword in call.keywords}
    return not starred and len(call.args) < 2 and not named & {"map_location", None}


# --- whose weights ------------------------------------------------------------------------------------------------


def _loads_weights(facts: Facts, module: Module, call: ast.Call, depth: int = 0) -> bool:
    """Whether what is loaded goes into a model or an optimizer, or is a model; data stay where they were saved."""
    parent = facts.parents(module).get(call)
    for outer in facts.ancestors(module, call):
        if (
            isinstance(outer, ast.Call)
            and isinstance(outer.func, ast.Attribute)
            and outer.func.attr == "load_state_dict"
        ):
            return True
        if isinstance(outer, ast.stmt):
            break
    scope = facts.scope(module, call)
    match parent:
        case ast.Assign(targets=[target]) | ast.AnnAssign(target=target):
            return _is_weights(module, scope, target) or (
                any(
                    isinstance(node.value, ast.Name) and module.text(node.value) == module.text(target)
                    for node in nodes(scope, ast.Return)
                )
                and _gives_weights(facts, scope, depth)
            )
        case ast.Attribute() | ast.Subscript():
            return isinstance(parent, ast.Subscript) and _is_key(parent.slice)
        case ast.Return():
            return _gives_weights(facts, scope, depth)
        case _:
            return False


def _loads_own_model(facts: Facts, call: ast.Call) -> bool:
    """Whether a file is loaded in which this script saves models or their weights."""
    loads = [event for event in facts.by_node.get(call, ()) if event.kind == "load" and not event.dead]
    saved = [
        save.node.args[0]
        for save in facts.events("call", dead=False)
        if save.name == "torch.save" and isinstance(save.node, ast.Call) and save.node.args
        if any(_same_file(facts, save, load) for load in loads)
    ]
    return bool(saved) and all(
        any(contained(facts.values(what), kind) for kind in ("model", "wrapped", "state")) for what in saved
    )


def _gives_weights(facts: Facts, function: ast.AST, depth: int) -> bool:
    """Whether what a function gives back goes into a model or an optimizer where it is called."""
    return (
        depth < 2
        and isinstance(function, ast.FunctionDef)
        and any(
            _loads_weights(facts, other, user, depth + 1)
            for other in facts.modules
            for user in calls_in(facts, other)
            if any(getattr(value, "node", None) is function for value in facts.values(user.func))
        )
    )


def _is_weights(module: Module, scope: ast.AST, target: ast.expr) -> bool:
    if isinstance(target, ast.Tuple | ast.List):
        return False
    name = module.text(target)
    for node in walk(scope):
        match node:
            case ast.Call(func=ast.Attribute(value=owner, attr=attr), args=args):
                inside = {module.text(part) for argument in args for part in walk(argument) if _is_path(part)}
                if attr == "load_state_dict" and name in inside:
                    return True
                if module.text(owner) == name and attr in {"eval", "train", "parameters", "cuda"}:
                    return True
                if module.text(owner) == name and attr in {"get", "pop"} and args and _is_key(args[0]):
                    return True
            case ast.Subscript(value=owner, slice=index) if module.text(owner) == name and _is_key(index):
                return True
            case _:
                pass
    return False


def _is_path(node: ast.AST) -> bool:
    return isinstance(node, ast.Name | ast.Attribute)


def _is_key(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value in _KEYS


# --- which device -------------------------------------------------------------------------------------------------


_LISTS = frozenset({"os.listdir", "os.scandir", "os.walk", "glob.glob", "glob.iglob"})
_GENERATORS = frozenset({"torch.set_rng_state", "torch.random.set_rng_state", "torch.cuda.set_rng_state"})


def _states(facts: Facts, module: Module, call: ast.Call) -> Iterator[ast.expr]:
    """The states of random number generators in what is loaded; torch takes them from the CPU only."""
    match facts.parents(module).get(call):
        case ast.Assign(targets=[target]) | ast.AnnAssign(target=target):
            name = module.text(target)
        case _:
            return
    for other in nodes(facts.scope(module, call), ast.Call):
        for state in other.args[:1] if names_of(facts, other) & _GENERATORS else ():
            if isinstance(state, ast.Name | ast.Attribute | ast.Subscript | ast.Call) and any(
                _is_path(part) and module.text(part) == name for part in walk(state)
            ):
                yield state


def _device(facts: Facts, module: Module, call: ast.Call) -> str:
    """The script's own name for the device of this rank, where it can be seen; else `own_device()`."""
    function = facts.function(module, call)
    if function is not None:
        for argument in walk(function.args):
            if isinstance(argument, ast.arg) and argument.arg in {"device", "DEVICE"}:
                return argument.arg
    for scope in dict.fromkeys([facts.scope(module, call), module.tree]):
        for node in walk(scope):
            if (
                isinstance(node, ast.Name)
                and isinstance(node.ctx, ast.Store)
                and facts.scope(module, node) is scope
                and _is_device(facts.values(node))
                and (node.lineno < call.lineno or scope is not facts.scope(module, call))
                and isinstance(
                    facts.parents(module)[facts.statement(module, node)], ast.Module | ast.FunctionDef
                )
            ):
                return node.id
    return "«own_device»()"


def _is_device(values: Values) -> bool:
    return bool(values) and all(isinstance(value, Obj) and value.kind == "device" for value in values)


# --- waiting ------------------------------------------------------------------------------------------------------


def _waits(facts: Facts) -> Iterator[Finding]:
    """Barriers before loads of what this run may have saved."""
    saves = [
        event
        for event in facts.events("call", dead=False)
        if event.name == "torch.save" and not amid_preparation(facts, event)
    ]
    reads = []
    for load in facts.events("load", dead=False):
        if isinstance(load.node, ast.Call) and not amid_preparation(facts, load):
            before = [save for save in saves if follows(save, load) and _same_file(facts, save, load)]
            if before:
                reads.append((_listing(facts, load, before) or load, before))
    yield from waits(facts, CODE, reads)


def _listing(facts: Facts, load: Event, before: list[Event]) -> Event | None:
    """Where a folder was listed for the file that is loaded: it must not be looked into too early either."""
    assert isinstance(load.node, ast.Call)
    named = {keyword.arg: keyword.value for keyword in load.node.keywords}
    path = load.node.args[0] if load.node.args else named.get("f")
    for call in calls_behind(facts, load.module, path) if path is not None else ():
        if any(
            name in _LISTS or name.endswith((".glob", ".iterdir", ".rglob")) for name in names_of(facts, call)
        ):
            for event in facts.by_node.get(call, ()):
                if event.order < load.order and any(follows(save, event) for save in before):
                    return event
    return None


def _same_file(facts: Facts, save: Event, load: Event) -> bool:
    paths = []
    for event in (save, load):
        assert isinstance(event.node, ast.Call)
        named = {keyword.arg: keyword.value for keyword in event.node.keywords}
        position = 1 if event is save else 0
        inside = event.node.args[position] if len(event.node.args) > position else named.get("f")
        paths.append(inside)
    return may_be_same_file(facts, paths[0], paths[1])
