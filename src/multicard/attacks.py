"""Attacks on the input: forward and backward passes of which only the input's gradient is used.

Through a wrapper each would average gradients that nobody uses, and all ranks would have to make as many; through the
model inside each rank attacks its own samples for as long as it likes.  With statistics of the batch, samples hang on
each other, and on those of other ranks where these are taken over all: there the wrapper stays.
"""

import ast
from typing import NamedTuple

from multicard.facts import Facts, key
from multicard.interpret import Event
from multicard.quotients import calls_behind
from multicard.reach import is_wrapped
from multicard.values import Data, Obj
from multicard.wraps import bare_of, has_statistics

_DEEP = 6
"""Names that the result of a model is given to, one after the other, before it goes backward."""


class Attacks(NamedTuple):
    """What attacks do."""

    inside: tuple[Event, ...]
    """Calls of wrapped models that the model inside can answer."""
    silent: frozenset[Event]
    """Backward passes through no wrapper."""


def attacks(facts: Facts) -> Attacks:
    """The attacks of training; found once."""
    found = facts.memo.get("attacks")
    if found is None:
        found = facts.memo["attacks"] = _found(facts) if facts.dropped else Attacks((), frozenset())
    assert isinstance(found, Attacks)
    return found


def _found(facts: Facts) -> Attacks:
    used = set().union(*(_behind(facts, event) for event in facts.backwards if event not in facts.dropped))
    inside: dict[ast.AST, Event] = {}
    silent = set()
    for backward in facts.dropped:
        behind = _behind(facts, backward)
        calls = [
            event
            for event in facts.events("forward", dead=False)
            if event.node in behind and is_wrapped(event.subject) and facts.trains(event)
        ]
        data = backward.subject if isinstance(backward.subject, Data) else Data()
        models = {model.root for model in data.models}
        called = {bare.root for event in calls if (bare := bare_of(event)) is not None}
        if used & {event.node for event in calls}:
            continue
        if not any(_mixes_samples(event) or _waiting(facts, event) for event in calls):
            inside |= {event.node: event for event in calls}
            if models & _wrapped(facts) <= called:
                silent.add(backward)
    return Attacks(tuple(sorted(inside.values(), key=lambda event: event.order)), frozenset(silent))


def _mixes_samples(call: Event) -> bool:
    """Whether the model takes statistics of the batch."""
    model = bare_of(call)
    return model is not None and has_statistics(model.root) and not call.evaluating


def _wrapped(facts: Facts) -> set[Obj]:
    events = facts.events("forward", dead=False)
    bare = (bare_of(event) for event in events if is_wrapped(event.subject))
    return {model.root for model in bare if model is not None}


def _behind(facts: Facts, backward: Event) -> set[ast.AST]:
    """The calls that gave what goes backward, as far as its function shows."""
    match backward.node:
        case ast.Call(func=ast.Attribute(value=loss)):
            return set(calls_behind(facts, backward.module, loss, _DEEP))
        case _:
            return set()


def _waiting(facts: Facts, call: Event) -> bool:
    """Whether the wrapper waits for the backward pass of another call: it would take this one for it."""
    model, turn = bare_of(call), [key(loop) for loop in call.loops]
    for event in reversed(facts.events("forward", "backward", "step", dead=False)):
        if event.order >= call.order or [key(loop) for loop in event.loops] != turn[: len(event.loops)]:
            continue
        if event.kind == "step" or (event.kind == "backward" and event not in facts.dropped):
            return False
        if event.kind == "forward" and is_wrapped(event.subject) and bare_of(event) is model:
            if event.grad and event.node is not call.node:
                return True
    return False
