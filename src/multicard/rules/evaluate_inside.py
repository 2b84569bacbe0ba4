"""Evaluate with the model inside the wrapper, its buffers the same on every rank.

The forward pass of a wrapped model is collective: it broadcasts buffers, also in eval mode.  Ranks that evaluate
different numbers of batches would wait for each other for ever.  And BatchNorm statistics differ between ranks
until they are made equal, so that is done once, before the loop.

Before:

    for x, y in val_loader:
        loss += criterion(model(x), y).item()

After:

    sync_buffers(model)
    for x, y in val_loader:
        loss += criterion(model.module(x), y).item()
"""

import ast
from collections.abc import Iterator

from multicard.dealing import Visit, forwards_of
from multicard.edits import Edit, attribute, call_with, insert_before, wrap
from multicard.facts import Facts
from multicard.meeting import evaluated_by_rank_0
from multicard.messages import Text
from multicard.plan import Finding
from multicard.rules.reach_inside import always_wrapped
from multicard.values import Func, Obj
from multicard.wraps import keeps_own_buffers

CODE = "MC303"
TITLE = Text("Evaluate with the model inside", "验证时使用内部模型")

_SYNC = Text(
    "BatchNorm statistics follow each rank's own batches; evaluation must see the same on all ranks",
    "BatchNorm 统计量只跟随本进程的批次;验证前让各进程一致",
)
_INSIDE = Text(
    "the wrapper's forward pass is collective, and ranks may hold different numbers of batches here",
    "包装后的前向传播是集合通信,而这里各进程的批次数可能不同,会互相等待",
)


def find(facts: Facts) -> Iterator[Finding]:
    """One finding a loop for its buffers, and one for each call of the model in it."""
    done: set[ast.AST] = set()
    for visit in facts.dealing.visits:
        if not facts.dealing.shared(visit):
            if visit.models and _each_with_its_own(facts, visit):
                yield Finding(CODE, facts.site(visit.module, visit.node), _SYNC, _synced(visit))
            continue
        if visit.models:
            yield Finding(CODE, facts.site(visit.module, visit.node), _SYNC, _synced(visit))
        for forward in forwards_of(facts, visit):
            if forward.node in done:
                continue
            done.add(forward.node)
            callee = forward.node.func
            if isinstance(callee, ast.Attribute) and callee.attr == "forward":
                callee = callee.value
            if any(isinstance(value, Func) for value in facts.values(callee)):
                continue
            edits: tuple[Edit, ...]
            if forward.by_mode:
                text = forward.module.text(callee)
                edits = wrap(forward.module, callee, "«forward_of»(", f", trains={text}.training)")
            elif forward.mixed:
                edits = call_with(forward.module, callee, "«forward_of»")
            elif always_wrapped(facts.values(callee)):
                edits = (attribute(forward.module, callee, "module"),)
            else:
                edits = call_with(forward.module, callee, "«unwrap»")
            yield Finding(CODE, facts.site(forward.module, forward.node), _INSIDE, edits)


def _each_with_its_own(facts: Facts, visit: Visit) -> bool:
    """Whether all ranks walk through all batches, with statistics that no wrapper makes the same."""
    if visit.dead or visit.also_trains or evaluated_by_rank_0(facts, visit.module, visit.node):
        return False
    called = [event for forward in forwards_of(facts, visit) for event in facts.by_node.get(forward.node, ())]
    wrapped = {
        event.subject.inner for event in called if isinstance(event.subject, Obj) and event.subject.inner
    }
    return keeps_own_buffers(facts, wrapped)


def _synced(visit: Visit) -> tuple[Edit, ...]:
    lines = [f"«sync_buffers»({name})" for name in visit.models]
    return (insert_before(visit.module, visit.node, *lines),)
