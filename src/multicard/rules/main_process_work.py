"""Leave work that only makes files and pictures to rank 0, with the model inside the wrapper.

Heat maps, sample pictures, screening of hard samples: done by every rank they cost the same time and write the same
files.  Under a guard the wrapped model must not be called: it broadcasts its buffers and waits for the other ranks,
also in eval mode.  So rank 0 gets the model inside.

Before:

    def show(model, path):
        model.eval()
        plt.imshow(model(noise).detach())
        plt.savefig(path)

    show(model, "samples.png")

After:

    def show(model, path):
        model.eval()
        plt.imshow(model(noise).detach())
        plt.savefig(path)

    if rank == 0:
        show(model.module, "samples.png")
"""

import ast
from collections.abc import Collection, Iterator

from multicard.edits import Edit, attribute, call_with, guard
from multicard.effects import Effect, all_effects, calls_named, mode_of, writes_to
from multicard.facts import Facts
from multicard.interpret import Event
from multicard.lasting import lasting
from multicard.libraries import EXITS
from multicard.meeting import meets
from multicard.messages import Text
from multicard.once import draws_in_common, is_metric, neighbours, statement_of
from multicard.plan import Finding
from multicard.reach import (
    below,
    functions_of,
    guarded,
    homes,
    is_wrapped,
    only_in,
    reached,
    takes_batches,
    training_begins,
)
from multicard.rules.reach_inside import PASSED_ON, always_wrapped, base_of
from multicard.source import Module
from multicard.tree import held, walk
from multicard.values import Const, Func, Obj, Values

CODE = "MC506"
TITLE = Text("Leave files and pictures to rank 0", "绘图等工作只交给主进程")

_TRAINS = frozenset({"step", "schedule", "freeze", "wrap", "unscale", "clip", "compile", "data_parallel"})
_SETS = frozenset({"load_state_dict", "load", "requires_grad_", "add_module", "register_buffer"})
_PASSED_ON = frozenset({"train", "eval", "zero_grad", "module", "training", "parameters"})


def find(facts: Facts) -> Iterator[Finding]:
    """One finding for each run of neighbouring calls, with what their arguments and globals need."""
    calls = kept_calls(facts)
    for module in facts.modules:
        own: dict[ast.stmt, ast.Call] = {
            statement: call
            for call in calls
            if homes(facts)[call] is module and (statement := statement_of(facts, module, call)) is not None
        }
        for run in neighbours(module, own):
            edits = guard(module, run, "if «rank 0»:")
            site = facts.site(module, run[0])
            why = Text(
                "its files and pictures are needed once; on rank 0 alone the model is called without its wrapper, which"
                " would wait for the other ranks",
                "文件和图只需要生成一次;主进程单独运行时要用内部模型,包装后的模型会等待其他进程",
            )
            assert edits is not None, "a call is no `elif`"
            bare = [edit for statement in run for edit in _arguments(facts, module, own[statement])]
            yield Finding(CODE, site, why, (*edits, *bare))
    yield from _sources(facts, calls)


# --- which calls --------------------------------------------------------------------------------------------------


def kept_calls(facts: Facts) -> dict[ast.Call, None]:
    """The calls that rank 0 makes alone, in order."""
    found = facts.answers.get("kept calls")
    if found is None:
        found = facts.answers["kept calls"] = dict.fromkeys(_kept(facts))
    assert isinstance(found, dict)
    return found


def _kept(facts: Facts) -> Iterator[ast.Call]:
    fit: dict[ast.Call, Module] = {}
    for module in facts.modules:
        for call in calls_named(facts, module, lambda name: name.startswith("local:")):
            if _fit(facts, module, call):
                fit[call] = module
    while True:
        shared = [call for call in fit if _shares_the_model(facts, call, fit)]
        if not shared:
            break
        for call in shared:
            del fit[call]
    inner = {call for call, module in fit.items() if only_in(facts, module, call, set(fit) - {call})}
    yield from (call for call in fit if call not in inner)


def _fit(facts: Facts, module: Module, call: ast.Call) -> bool:
    """Whether a call makes files or pictures and changes nothing that the other ranks need."""
    if statement_of(facts, module, call) is None or guarded(facts, module, call):
        return False
    functions = functions_of(facts, call)
    values = facts.values(call.func)
    if not functions or not all(isinstance(value, Func) for value in values):
        return False
    if not any(
        effect.what in {"write", "save", "show", "open"}
        for region in reached(facts, call)
        for effect in _effects_in(facts, region)
    ):
        return False
    happens = list(below(facts, call))
    if not happens or all(event.dead for event in happens):
        return False
    given = (*call.args, *(keyword.value for keyword in call.keywords))
    if any(is_wrapped(event.subject) and event.kind != "bind" for event in below(facts, *given)):
        return False
    return (
        _works(facts, call, happens)
        and not any(_forbids(facts, event) for event in happens)
        and not _leaves_gradients(facts, happens)
        and not lasting(facts, call)
        and not any(facts.understood(loop.node) for event in happens for loop in event.loops)
        and _mode_is_restored(facts, call, happens)
        and not meets(facts, *functions)
    )


def _works(facts: Facts, call: ast.Call, happens: list[Event]) -> bool:
    """Whether it writes or shows, and others had better stay away: it calls the model, draws, clears checkpoints."""
    regions = reached(facts, call)
    own = [effect for region in regions for effect in _effects_in(facts, region)]
    writes = any(
        effect.what in {"write", "save", "show"}
        or (effect.what == "open" and writes_to(mode_of(facts, effect)[1] or "r"))
        for effect in own
    )
    if not writes:
        return False
    nodes = frozenset().union(*(held(region) for region in regions))
    busy = any(
        event.node in nodes and (event.kind in {"forward", "through_method"} or takes_batches(facts, event))
        for event in happens
    )
    deletes = any(effect.what == "delete" for effect in own)
    checkpoint = any(event.kind == "method" and event.name == "state_dict" for event in happens)
    return busy or any(effect.what == "draw" for effect in own) or (deletes and checkpoint)


def _effects_in(facts: Facts, region: ast.AST) -> list[Effect]:
    memo = facts.memo.setdefault("effects of functions", {})
    assert isinstance(memo, dict)
    found = memo.get(region)
    if found is None:
        inside = held(region)
        found = memo[region] = [effect for effect in all_effects(facts) if effect.call in inside]
    assert isinstance(found, list)
    return found


def _forbids(facts: Facts, event: Event) -> bool:
    """Whether an event is one that every rank must take part in, or that changes what they share."""
    if event.kind in _TRAINS or (isinstance(event.node, ast.Call) and is_metric(facts, event.node)):
        return True
    if event.kind == "optimizer" and event.name not in {"state_dict", "zero_grad"}:
        return True
    if event.kind == "method" and event.name in _SETS:
        return True
    if event.kind == "call" and event.name in EXITS | {"builtins.exit", "builtins.input"}:
        return True
    if takes_batches(facts, event) and event.order < training_begins(facts):
        return _drawn_later(facts, event)
    return draws_in_common(facts, event) and _drawn_later(facts, event)


def _leaves_gradients(facts: Facts, happens: list[Event]) -> bool:
    """Whether gradients of a trained model stay for an optimizer step that comes later."""
    backward = [event for event in happens if event in facts.backwards]
    if not backward:
        return False
    last = max(event.order for event in backward)
    cleared = any(event.name == "zero_grad" and event.order > last for event in happens)
    loops = {loop.node for event in backward for loop in event.loops}
    return not cleared and any(
        step.order > last or loops & {loop.node for loop in step.loops}
        for step in facts.events("step", dead=False)
    )


def _drawn_later(facts: Facts, event: Event) -> bool:
    """Whether random numbers that decide data are drawn between here and training, other than together with this."""
    around = event.calls[0] if event.calls else None
    return any(
        other.order > event.order and around is not other.node and around not in other.calls
        for other in _drawn_in_common(facts)
    )


def _drawn_in_common(facts: Facts) -> tuple[Event, ...]:
    found = facts.memo.get("drawn in common")
    if found is None:
        found = tuple(event for event in facts.events("call", dead=False) if draws_in_common(facts, event))
        facts.memo["drawn in common"] = found
    assert isinstance(found, tuple)
    return found


def _mode_is_restored(facts: Facts, call: ast.Call, happens: list[Event]) -> bool:
    """Whether training that comes later sets `train()` itself, as rank 0 alone would be in eval mode."""
    last: dict[Obj, bool] = {}
    for event in sorted(happens, key=lambda item: item.order):
        if event.kind == "method" and event.name in {"train", "eval"} and isinstance(event.subject, Obj):
            off = event.name == "eval" or Const(False) in event.args.get(
                "0", event.args.get("mode", frozenset())
            )
            last[_bare(event.subject)] = not off
    evaluated = {model for model, training in last.items() if not training}
    if not evaluated:
        return True
    first = min(happens, key=lambda item: item.order)
    depth = first.calls.index(call) if call in first.calls else len(first.calls)
    round_it = {loop.node for loop in first.loops if len(loop.calls) <= depth}
    own = {event.order for event in happens}
    for training in facts.trainings:
        if not evaluated & {_bare(model) for model in training.models}:
            continue
        shared = {loop.node for loop in training.backward.loops} & round_it
        later = training.backward.order > first.order
        if not shared and not later:
            continue
        if not any(
            event.name == "train"
            and event.order not in own
            and shared <= {loop.node for loop in event.loops}
            and _between(first.order, event.order, training.backward.order)
            for event in facts.events("method", dead=False)
            if isinstance(event.subject, Obj) and _bare(event.subject) in evaluated
        ):
            return False
    return True


def _between(call: int, mode: int, training: int) -> bool:
    """Whether a mode is set after the call and before training, in this turn of a loop or in the next."""
    return call < mode < training if call < training else mode > call or mode < training


def _bare(obj: Obj) -> Obj:
    return obj.inner if obj.kind == "wrapped" and obj.inner is not None else obj


def _shares_the_model(facts: Facts, call: ast.Call, fit: dict[ast.Call, Module]) -> bool:
    """Whether a place under the call that uses a wrapped model is also reached from elsewhere."""
    places: set[ast.AST] = set()
    for event in below(facts, call):
        if is_wrapped(event.subject) and event.kind in {
            "forward",
            "attr",
            "unwrap",
            "escape",
            "through_method",
        }:
            places.add(event.node)
    return any(
        not only_in(facts, facts.module_of[node], node, fit) for node in places if node in facts.module_of
    )


# --- the model inside ---------------------------------------------------------------------------------------------


def _arguments(facts: Facts, module: Module, call: ast.Call) -> Iterator[Edit]:
    """Arguments that are the wrapped model become the model inside, unless the function reaches inside itself."""
    if call in _reaching(facts):
        return
    for argument in (*call.args, *(keyword.value for keyword in call.keywords)):
        if not isinstance(argument, ast.Starred) and any(
            is_wrapped(value) for value in facts.values(argument)
        ):
            yield from bare(facts, module, argument)


def _reaching(facts: Facts) -> frozenset[ast.Call]:
    """Calls under which `reach_inside` writes `.module`, which a model without wrapper does not have."""
    found = facts.answers.get("reaching")
    if found is None:
        calls = {call: reached(facts, call) for call in kept_calls(facts)}
        reaching = {call for call in calls if any(_is_reached(facts, event) for event in below(facts, call))}
        while True:
            functions = {function for call in reaching for function in calls[call]}
            more = {call for call, own in calls.items() if own & functions} - reaching
            if not more:
                break
            reaching |= more
        facts.answers["reaching"] = found = frozenset(reaching)
    assert isinstance(found, frozenset)
    return found


def _is_reached(facts: Facts, event: Event) -> bool:
    return (
        event.kind == "attr"
        and is_wrapped(event.subject)
        and event.name not in PASSED_ON
        and (base := base_of(event.node)) is not None
        and always_wrapped(facts.values(base))
    )


def bare(facts: Facts, module: Module, node: ast.expr) -> tuple[Edit, ...]:
    """The model inside: `model.module`, or `unwrap(model)` where it may be compiled or have no wrapper."""
    values = facts.values(node)
    if isinstance(node, ast.Name | ast.Attribute | ast.Subscript | ast.Call) and _plainly_wrapped(values):
        return (attribute(module, node, "module"),)
    return call_with(module, node, "«unwrap»")


def _plainly_wrapped(values: Values) -> bool:
    return all(
        isinstance(value, Obj)
        and value.kind == "wrapped"
        and value.inner is not None
        and "*compiled" not in value.inner.args
        for value in values
    )


def _sources(facts: Facts, calls: Collection[ast.Call]) -> Iterator[Finding]:
    """Wrapped models that functions under the guard take from globals and objects, not from arguments."""
    regions = reached(facts, *calls)
    called = {node for function in reached(facts, *_reaching(facts)) for node in walk(function)}
    for module in facts.modules:
        for function in regions and (node for node in walk(module.tree) if node in regions):
            assert isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
            if not only_in(
                facts, module, function.body if isinstance(function, ast.Lambda) else function.body[0], calls
            ):
                continue
            own = {node.arg for node in walk(function.args) if isinstance(node, ast.arg)}
            own |= {
                node.id
                for node in walk(function)
                if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
            }
            for node in walk(function):
                if not isinstance(node, ast.expr):
                    continue
                if (
                    _is_used_whole(facts, module, node)
                    if node in called
                    else _is_source(facts, module, node, own)
                ):
                    yield Finding(
                        CODE,
                        facts.site(module, node),
                        Text(
                            "rank 0 is alone here, and the wrapper would wait for the other ranks",
                            "这里只有主进程,包装后的模型会等待其他进程",
                        ),
                        bare(facts, module, node),
                    )


def _is_used_whole(facts: Facts, module: Module, node: ast.expr) -> bool:
    """Whether a wrapped model is called here, or handed to a library that may call it."""
    if not isinstance(node, ast.Name | ast.Attribute | ast.Subscript) or not isinstance(node.ctx, ast.Load):
        return False
    if not any(is_wrapped(value) for value in facts.values(node)):
        return False
    parent = facts.parents(module).get(node)
    if isinstance(parent, ast.keyword):
        parent = facts.parents(module).get(parent)
    match parent:
        case ast.Call(func=func) if func is node:
            return True
        case ast.Call(func=ast.Name(id="getattr" | "setattr" | "hasattr")):
            return False  # `reach_inside` looks after these
        case ast.Call():
            return not functions_of(facts, parent)
        case _:
            return False


def _is_source(facts: Facts, module: Module, node: ast.expr, own: set[str]) -> bool:
    match node:
        case ast.Name(id=name, ctx=ast.Load()) if name not in own:
            pass
        case ast.Attribute(ctx=ast.Load()) | ast.Subscript(ctx=ast.Load()):
            if any(is_wrapped(value) for value in facts.values(node.value)):
                return False
        case _:
            return False
    parent = facts.parents(module).get(node)
    if isinstance(parent, ast.Attribute) and parent.attr in _PASSED_ON:
        return False
    return any(is_wrapped(value) for value in facts.values(node))
