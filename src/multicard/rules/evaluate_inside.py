"""Evaluate with the model inside the wrapper, its buffers the same on every rank.

The forward pass of a wrapped model is collective: it broadcasts buffers, also in eval mode.  Ranks that evaluate
different numbers of batches would wait for each other for ever.  And BatchNorm statistics differ between ranks
until they are made equal, so that is done once, before the loop.  An attack on the input in training, of which no other
gradient is used, asks the model inside too.

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

from multicard.attacks import attacks
from multicard.dealing import Visit, forwards_of
from multicard.edits import Edit, attribute, call_with, insert_before, wrap
from multicard.facts import Facts
from multicard.meeting import evaluated_by_rank_0
from multicard.messages import Text
from multicard.plan import Finding
from multicard.rules.reach_inside import always_wrapped
from multicard.source import Module
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

_ATTACK = Text(
    "only the gradient of the input is used here: the model inside gives it, without averaging the others, and each"
    " rank attacks its own samples for as long as it takes",
    "这里只用到输入的梯度:用内部模型即可得到,不必对其余梯度做多卡平均,各进程各自攻击自己的样本",
)


def find(facts: Facts) -> Iterator[Finding]:
    """One finding a loop for its buffers, and one for each call of the model in it."""
    done: set[ast.AST] = set()
    for event in attacks(facts).inside:
        if isinstance(event.node, ast.Call):
            done.add(event.node)
            inside = _reached(facts, event.module, _callee(event.node))
            yield Finding(CODE, facts.site(event.module, event.node), _ATTACK, inside)
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
            callee = _callee(forward.node)
            if any(isinstance(value, Func) for value in facts.values(callee)):
                continue
            edits: tuple[Edit, ...]
            if forward.by_mode:
                text = forward.module.text(callee)
                edits = wrap(forward.module, callee, "«forward_of»(", f", trains={text}.training)")
            elif forward.mixed:
                edits = call_with(forward.module, callee, "«forward_of»")
            else:
                edits = _reached(facts, forward.module, callee)
            yield Finding(CODE, facts.site(forward.module, forward.node), _INSIDE, edits)


def _callee(call: ast.Call) -> ast.expr:
    """The model that a call calls, itself or by `forward`."""
    function = call.func
    return function.value if isinstance(function, ast.Attribute) and function.attr == "forward" else function


def _reached(facts: Facts, module: Module, callee: ast.expr) -> tuple[Edit, ...]:
    """The edits that call the model inside; none where a function may be called instead."""
    values = facts.values(callee)
    if any(isinstance(value, Func) for value in values):
        return ()
    if always_wrapped(values):
        return (attribute(module, callee, "module"),)
    return call_with(module, callee, "«unwrap»")


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
