"""Decides after which statement a model is wrapped, by trying.

A wrapper must come after the model is on its device, loaded, compiled and given its heads, and before the first
forward pass that trains; and every such pass must go through it.  Which name that is, in which function, depends on
how the model travels.  So a place is proposed, the program is followed again with the wrap in it, and the place is
taken only if no training forward pass reaches the bare model.
"""

import ast
import itertools
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from multicard.bound import bound_after, none_after
from multicard.facts import Facts, key
from multicard.interpret import Event, Interpreter, Loop, Wrap
from multicard.program import Program
from multicard.source import Module
from multicard.tree import held, walk
from multicard.unused import chosen_by_data, has_parameters, ignores_output, partly_used
from multicard.values import NOTHING, Class, Const, Obj, Values, objects

SETUP = frozenset(
    {
        "to",
        "cuda",
        "half",
        "double",
        "float",
        "bfloat16",
        "apply",
        "share_memory",
        "type",
        "npu",
        "xpu",
        "resize_token_embeddings",
        "gradient_checkpointing_enable",
        "add_module",
    }
)
TRIES = 5

Identity = tuple[object, ...]


def identity(obj: Obj) -> Identity:
    """The same object in another run over the same program."""
    return (obj.site.node if obj.site else None, obj.name, *obj.by[-6:])


class Group(NamedTuple):
    """A trained model."""

    models: tuple[Obj, ...]
    first: int
    """When the first of them is called in training."""

    @property
    def ids(self) -> frozenset[Identity]:
        """The models in any run."""
        return frozenset(identity(model) for model in self.models)


def follow(program: Program, wraps: tuple[Wrap, ...] = (), models: frozenset[ast.AST] = frozenset()) -> Facts:
    """Follow the program with these wraps in it, but not what nothing calls: it tells nothing of wrappers."""
    run = Interpreter(program, wraps, models)
    run.run()
    return Facts(program, run, wraps=wraps)


def _unknown_models(program: Program, bare: Facts) -> frozenset[ast.AST]:
    """Calls and classes of libraries that must make models: what they give is asked for its parameters."""
    if not any(True for _ in bare.events("parameters", dead=False)):
        return frozenset()
    run = Interpreter(program, tracing=True)
    run.run()
    found: set[ast.AST] = set()
    for event in run.events:
        made = event.subject
        if event.kind != "parameters" or event.dead or not isinstance(made, Obj):
            continue
        if made.cls is not None:
            found.add(made.cls.node)
        elif made.call is not None:
            found.add(made.call)
    return frozenset(found)


def wrap_models(program: Program) -> Facts:
    """Facts of the run with every trained model wrapped, where a place for its wrapper was found."""
    bare = follow(program)
    models = _unknown_models(program, bare)
    if models:
        bare = follow(program, models=models)
    groups = grouped(bare)
    known: dict[tuple[ast.stmt, str], Wrap] = {}
    proposals = [
        [
            known.setdefault((wrap.statement, ast.unparse(wrap.target)), wrap)
            for wrap in itertools.islice(_places(bare, group), TRIES)
        ]
        for group in groups
    ]
    unfit = {id(group): _unfit(bare, group) for group in groups}
    first = tuple(
        dict.fromkeys(
            places[0]
            for group, places in zip(groups, proposals, strict=True)
            if places and not unfit[id(group)]
        )
    )
    facts = follow(program, first, models) if first else bare
    if first and all(
        unfit[id(group)] or (places and accepted(facts, group))
        for group, places in zip(groups, proposals, strict=True)
    ):
        chosen = [(g, p[0]) for g, p in zip(groups, proposals, strict=True) if p and not unfit[id(g)]]
    else:
        fit = [(g, p) for g, p in zip(groups, proposals, strict=True) if not unfit[id(g)]]
        facts, chosen = _one_by_one(bare, models, fit)
    facts.run.rest()
    facts = Facts(program, facts.run, wraps=facts.wraps)
    done = {id(group) for group, _ in chosen}
    bare_ids = frozenset().union(*(group.ids for group in groups if id(group) not in done))
    facts.places = tuple((group.models[0], wrap) for group, wrap in chosen)
    facts.unwrapped = tuple(
        (
            group.models[0],
            unfit[id(group)]
            or "no statement was found after which every training forward pass meets the wrapper",
            _home(bare, group, bare_ids, places),
        )
        for group, places in zip(groups, proposals, strict=True)
        if id(group) not in done
    )
    return facts


def _home(facts: Facts, group: Group, bare: frozenset[Identity], places: list[Wrap]) -> Wrap | None:
    """Where a model that stays bare is given rank 0's weights: under a name of its own, or of such models alone."""
    for ids in (bare, group.ids):
        for wrap in places:
            if all(identity(model) in ids for model in _models_in(facts, wrap.target)):
                return wrap
    return next(iter(places), None)


def _models_in(facts: Facts, node: ast.AST) -> list[Obj]:
    return objects(facts.values(node), "model")


def _one_by_one(
    bare: Facts, models: frozenset[ast.AST], proposals: list[tuple[Group, list[Wrap]]]
) -> tuple[Facts, list[tuple[Group, Wrap]]]:
    """The first place of each group that is good beside those taken before, and the run with all of them.

    Groups that go through the same names have the same places, so each set of wraps is tried once.
    """
    facts, chosen = bare, list[tuple[Group, Wrap]]()
    good: dict[tuple[Wrap, ...], frozenset[int]] = {}
    for group, places in proposals:
        wanted = {id(group), *(id(other) for other, _ in chosen)}
        for place in places:
            wraps = tuple(dict.fromkeys([*(wrap for _, wrap in chosen), place]))
            trial = None
            if wraps not in good:
                trial = follow(bare.program, wraps, models)
                good[wraps] = frozenset(id(other) for other, _ in proposals if accepted(trial, other))
            if wanted <= good[wraps]:
                facts = trial or follow(bare.program, wraps, models)
                chosen.append((group, place))
                break
    return facts, chosen


def grouped(facts: Facts) -> list[Group]:
    """Trained models and when each is first called in training."""
    first: dict[Obj, int] = {}
    for event in facts.events("forward", "through_method", dead=False):
        model = bare_of(event)
        if model is not None and event.grad and (facts.trains(event) or not facts.trainings):
            first.setdefault(model, event.order)
    for event in facts.backwards:
        for model in getattr(event.subject, "models", ()):
            first.setdefault(model, event.order)
    last = len(facts.run.events)
    return [Group((model,), first.get(model, last)) for model in facts.trained]


def bare_of(event: Event) -> Obj | None:
    """The model of an event, the wrapper taken off."""
    subject = event.subject
    if not isinstance(subject, Obj):
        return None
    return subject.inner if subject.kind == "wrapped" else subject


def accepted(facts: Facts, group: Group) -> bool:
    """Whether every training forward pass of the group goes through a wrapper."""
    through = 0
    for event in facts.events("forward", "through_method", dead=False):
        model = bare_of(event)
        if model is None or identity(model) not in group.ids or not facts.trains(event):
            continue
        if (
            event.kind == "through_method"
            or not isinstance(event.subject, Obj)
            or event.subject.kind != "wrapped"
        ):
            return False
        through += 1
    return through > 0


def _unfit(facts: Facts, group: Group) -> str:
    """Why no wrapper can serve a group, or nothing."""
    members = set(group.models)
    for event in facts.events("through_method", dead=False):
        if bare_of(event) in members and facts.trains(event):
            return f"`{event.name}` is called in training, and a wrapper only sees `forward`"
    for event in facts.events("forward", dead=False):
        model = bare_of(event)
        if (
            model is not None
            and model not in members
            and model.root in members
            and facts.trains(event)
            and event.grad
            and event.args  # what is asked without an argument is no layer
            and not any(whole.cls is not None and whole.cls is model.root.cls for whole in event.inside)
        ):
            return "parts of it are called in training, and a wrapper only sees the whole"
    for event in facts.events("autograd_grad", dead=False):
        if facts.trains(event) and members & set(getattr(event.subject, "models", ())):
            return "`autograd.grad` goes through it, which a wrapper does not see"
    if not any(bare_of(e) in members and facts.trains(e) for e in facts.events("forward", dead=False)):
        return "its forward pass in training was not seen"
    if any(_may_be_empty(facts, model) and not _held_alone(facts, model) for model in members):
        return "it may be made without parameters, which a wrapper refuses"
    if any(_may_freeze_whole(facts, model) for model in members):
        return "a setting may freeze all of it, and a wrapper refuses a model without trainable parameters"
    if any(ignores_output(facts, model) for model in members):
        return "an output with parameters of its own is left aside in training, and a wrapper waits for them"
    if grown(facts, members, group.first):
        return "it is given new parts after training has begun"
    if _several_backwards(facts, members):
        return "one forward pass is followed by several backward passes, of which a wrapper sees one"
    toggled = _toggles(facts, group)
    if toggled:
        return "its parameters are frozen and thawed between steps"
    if _searched(facts, members) and _reentrant(facts):
        return "unused parameters must be searched for, which reentrant checkpoints do not allow"
    return ""


def _searched(facts: Facts, members: set[Obj]) -> bool:
    """Whether a wrapper would have to search for unused parameters."""
    return any(_of(event, members) for event in facts.events("freeze", dead=False)) or any(
        partly_used(facts, model) or chosen_by_data(facts, model) for model in members
    )


def _reentrant(facts: Facts) -> bool:
    """Whether activations are computed again in a backward pass within the backward pass: the default of torch."""
    return any(
        event.name in {"torch.utils.checkpoint.checkpoint", "torch.utils.checkpoint.checkpoint_sequential"}
        and event.args.get("use_reentrant", NOTHING) != frozenset({Const(False)})
        for event in facts.events("call", dead=False)
    )


def _may_be_empty(facts: Facts, model: Obj) -> bool:
    """Whether all the parameters of a model of the script's are made under conditions."""
    if model.cls is None:
        return False
    for cls in model.cls.mro():
        if not isinstance(cls, Class):
            if cls.name != "torch.nn.Module":
                return False
            continue
        for function in cls.node.body:
            if isinstance(function, ast.FunctionDef) and function.name == "__init__":
                if any(_makes_parameters(facts, part) for part in function.body):
                    return False
    return any(
        isinstance(value, Obj) and (value.kind == "model" or value.name.endswith("nn.Parameter"))
        for values in model.attrs.values()
        for value in values
    )


def _held_alone(facts: Facts, model: Obj) -> bool:
    """Whether an optimizer takes the parameters of this model and no others: it refuses to hold none."""
    for event in facts.events("construct", dead=False):
        if not isinstance(event.subject, Obj) or event.subject.kind != "optimizer":
            continue
        call = event.node
        given = (
            [*call.args[:1], *(item.value for item in call.keywords)] if isinstance(call, ast.Call) else []
        )
        for part in given:
            match part:
                case ast.Call(func=ast.Attribute(value=owner, attr="parameters")) if any(
                    isinstance(value, Obj) and model.root in {value.root, value.inner and value.inner.root}
                    for value in facts.values(owner)
                ):
                    return True
                case _:
                    pass
    return False


def _may_freeze_whole(facts: Facts, model: Obj) -> bool:
    """Whether a setting decides if any parameter of a model is trainable."""
    freezes = [event for event in facts.events("freeze", dead=False) if _of(event, {model.root})]
    if not any(_is_set(event.args.get("value", NOTHING)) for event in freezes):
        return False
    touched = {event.subject for event in freezes}
    parts = [part for values in model.root.attrs.values() for part in objects(values, "model")]
    return model.root in touched or not any(part not in touched and has_parameters(part) for part in parts)


def _is_set(values: Values) -> bool:
    """Whether a setting of the user's decides what this is."""
    return any(not isinstance(value, Const) or (value.config and not value.value) for value in values)


def _makes_parameters(facts: Facts, statement: ast.stmt) -> bool:
    """Whether a statement makes parameters in any case, or does what cannot be followed."""
    if isinstance(statement, ast.If):
        return bool(statement.orelse) and all(
            any(_makes_parameters(facts, part) for part in branch)
            for branch in (statement.body, statement.orelse)
        )
    for node in walk(statement):
        if not isinstance(node, ast.Call):
            continue
        name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        if name in {"setattr", "add_module", "register_parameter", "append", "extend", "update"}:
            return True
        for value in facts.values(node):
            if isinstance(value, Obj) and (
                (value.kind == "model" and has_parameters(value)) or value.name.endswith("nn.Parameter")
            ):
                return True
    return False


def grown(facts: Facts, members: set[Obj], since: int) -> list[Event]:
    """Where a model gets new parts outside of its construction, from a moment on."""
    return [
        event
        for event in facts.events("grow", dead=False)
        if event.order > since
        and isinstance(event.subject, Obj)
        and (event.subject in members or event.subject.root in members)
    ]


def _several_backwards(facts: Facts, members: set[Obj]) -> bool:
    """Whether more backward passes than forward passes of a model may come in one turn of a training loop."""
    backwards = [event for event in facts.backwards if members & set(getattr(event.subject, "models", ()))]
    if any(Const(True) in event.args.get("retain_graph", ()) for event in backwards):
        return True
    for training in facts.trainings:
        kept = _together(facts, [event for event in backwards if _in_loop(event, training.loop)])
        forwards = {
            event.node
            for event in facts.events("forward", dead=False)
            if bare_of(event) in members and _in_loop(event, training.loop)
        }
        if forwards and len(kept) > len(forwards):
            return True
    return False


def _in_loop(event: Event, loop: Loop) -> bool:
    return any(key(outer) == key(loop) for outer in event.loops)


def _together(facts: Facts, events: Iterable[Event]) -> list[Event]:
    """One event of each place, without those that other branches leave out."""
    kept: list[Event] = []
    for event in {event.node: event for event in events}.values():
        if not any(exclude(facts, event, other) for other in kept):
            kept.append(event)
    return kept


def exclude(facts: Facts, first: Event, second: Event) -> bool:
    """Whether two places stand in different branches of one `if`."""
    if first.module is not second.module:
        return False
    for parent in facts.ancestors(first.module, first.node):
        if isinstance(parent, ast.If):
            a, b = (_branch(parent, event.node) for event in (first, second))
            if a and b and a != b:
                return True
    return False


def _branch(statement: ast.If, node: ast.AST) -> str:
    if any(node in held(part) for part in statement.body):
        return "body"
    return "orelse" if any(node in held(part) for part in statement.orelse) else ""


def _toggles(facts: Facts, group: Group) -> bool:
    """Whether requires_grad is set anew inside the batch loop."""
    members = set(group.models)
    return any(
        event.subject in members or (isinstance(event.subject, Obj) and event.subject.root in members)
        for event in facts.events("freeze", dead=False)
        if facts.trains(event)
    )


def _places(facts: Facts, group: Group) -> Iterator[Wrap]:
    """Statements after which the group may be wrapped, the latest first."""
    members = set(group.models)
    births: dict[object, tuple[Loop, ...]] = {
        event.subject: event.loops
        for event in facts.events("construct", dead=False)
        if event.subject in members
    }
    binds: dict[ast.AST, list[Event]] = {}
    for event in facts.events("bind", dead=False):
        if event.subject in members and event.order < group.first:
            binds.setdefault(event.node, []).append(event)
    uses = [event for event in facts.events(*_USES) if event.order >= group.first and _uses(event, members)]
    for node, events in sorted(binds.items(), key=lambda item: -item[1][-1].order):
        if not isinstance(node, ast.Name | ast.Attribute):
            continue
        ways = {(event.calls, event.subject) for event in events}
        if len({calls for calls, _ in ways}) > len({event.subject for event in events}):
            continue
        if any(not _same_loops(event, births.get(event.subject)) for event in events):
            continue
        module = events[0].module
        statement = facts.statement(module, node)
        if isinstance(statement, ast.For | ast.While | ast.With):
            continue
        for place in reversed(list(_levels(facts, uses, module, statement, module.text(node)))):
            yield Wrap(_settled(facts, members, uses, module, place, events[-1].order), node)


def _levels(
    facts: Facts, uses: list[Event], module: Module, statement: ast.stmt, name: str
) -> Iterator[ast.stmt]:
    """A statement and the branches round it in which nothing trains yet, up to the function or loop.

    Behind a branch that may leave the name unbound nothing can be said of it.
    """
    yield statement
    for parent in facts.ancestors(module, statement):
        if not isinstance(parent, ast.If | ast.Try | ast.With) or _happens_in(uses, parent):
            return
        if bound_after(facts, module, name, parent) and not none_after(facts, module, name, parent):
            yield parent


def _happens_in(events: Iterable[Event], statement: ast.stmt) -> bool:
    """Whether any of these events happens inside a statement, or in what it calls."""
    nodes = held(statement)
    return any(event.node in nodes or any(call in nodes for call in event.calls) for event in events)


_USES = ("forward", "through_method", "backward")


def _uses(event: Event, members: set[Obj]) -> bool:
    """Whether a model of a group is called, or a loss goes backward into it."""
    if event.kind != "backward":
        model = bare_of(event)
        return model is not None and (model in members or model.root in members)
    return bool(members & set(getattr(event.subject, "models", ())))


def _same_loops(event: Event, born: tuple[Loop, ...] | None) -> bool:
    """Whether a name is bound as often as the model is made."""
    return not event.loops or (born is not None and len(born) == len(event.loops))


def _settled(
    facts: Facts, members: set[Obj], uses: list[Event], module: Module, statement: ast.stmt, order: int
) -> ast.stmt:
    """The last statement of the block that still sets the model up: moves it, compiles it, gives it a head."""
    block = facts.block(module, statement)
    thawed = [
        event.order
        for event in facts.events("freeze", dead=False)
        if event.args.get("value") and Const(True) in event.args["value"] and _of(event, members)
    ]
    later = [event for event in uses if event.order > order]
    setting_up = [
        event for event in facts.events(*_SETS_UP) if event.order > order and _sets_up(event, members, thawed)
    ]
    last = statement
    for sibling in block[block.index(statement) + 1 :] if setting_up else ():
        if _happens_in(later, sibling):
            break
        if _happens_in(setting_up, sibling):
            last = sibling
    return last


def wrapper_options(facts: Facts, models: list[Obj]) -> tuple[list[str], bool]:
    """Arguments that DDP needs for these models, and whether they must be trainable while they are wrapped."""
    ids = {identity(model) for model in models}
    ours = {obj for obj in facts.run.born.values() if obj.kind == "model" and identity(obj) in ids}
    when = min((e.order for e in facts.events("wrap") if bare_of(e) in ours), default=0)
    frozen_before = frozen_after = thawed_after = False
    for event in facts.events("freeze", dead=False):
        if not _of(event, ours):
            continue
        off = Const(True) not in event.args.get("value", frozenset())
        frozen_before |= off and event.order < when
        frozen_after |= event.order > when and event.args.get("value") != frozenset({Const(True)})
        thawed_after |= event.order > when and event.args.get("value") != frozenset({Const(False)})
    options = []
    if (
        frozen_after
        or (frozen_before and thawed_after)
        or any(partly_used(facts, model) or chosen_by_data(facts, model) for model in ours)
    ):
        options.append("find_unused_parameters=True")
    if keeps_own_buffers(facts, ours):
        options.append("**«own_buffers»()")
    return options, frozen_before and thawed_after


def keeps_own_buffers(facts: Facts, models: Iterable[Obj]) -> bool:
    """Whether the wrapper of these models does not send buffers, as several forward passes share a backward pass."""
    models = list(models)
    return any(_called_often(facts, model) for model in models) and any(map(has_statistics, models))


def _called_often(facts: Facts, model: Obj) -> bool:
    """Whether several forward passes may come before one backward pass."""
    forwards = [e for e in facts.events("forward", dead=False) if bare_of(e) is model and facts.trains(e)]
    for training in facts.trainings:
        here = [event for event in forwards if _in_loop(event, training.loop)]
        backwards = [event for event in facts.backwards if _in_loop(event, training.loop)]
        if any(_repeated(event, training.loop, backwards) for event in here):
            return True
        last = max((event.order for event in backwards), default=len(facts.run.events))
        if len([event for event in _together(facts, here) if event.order < last]) > 1:
            return True
    return False


def _repeated(forward: Event, batches: Loop, backwards: list[Event]) -> bool:
    """Whether a forward pass comes again in a loop within the batch loop, in which nothing goes backward."""
    around = [key(loop) for loop in forward.loops]
    inner = set(around[around.index(key(batches)) + 1 :])
    return bool(inner) and not any(inner & {key(loop) for loop in event.loops} for event in backwards)


def has_statistics(model: Obj, depth: int = 0) -> bool:
    """Whether a model keeps running statistics, as far as its parts are seen."""
    if any(word in model.name for word in ("BatchNorm", "models.", "SpectralNorm", "create_model")):
        return True
    parts = [value for values in (*model.attrs.values(), model.rest) for value in values]
    for part in parts:
        if isinstance(part, Obj) and part is not model and depth < 8:
            inner = [part] if part.kind == "model" else [v for v in part.rest if isinstance(v, Obj)]
            inner += [v for values in part.items or () for v in values if isinstance(v, Obj)]
            if any(item.kind == "model" and has_statistics(item, depth + 1) for item in inner):
                return True
    return False


def _of(event: Event, members: set[Obj]) -> bool:
    subject = event.subject
    if not isinstance(subject, Obj):
        return False
    model = subject.inner if subject.kind == "wrapped" and subject.inner else subject
    return model in members or model.root in members


_SETS_UP = ("method", "freeze", "compile", "data_parallel", "setattr", "grow")


def _sets_up(event: Event, members: set[Obj], thawed: list[int]) -> bool:
    if not _of(event, members):
        return False
    if event.kind == "method":
        return event.name in SETUP
    return event.kind != "freeze" or not any(order > event.order for order in thawed)
