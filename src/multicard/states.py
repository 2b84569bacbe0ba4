"""States that go from one batch into the next: `output, hidden = model(batch, hidden)`.

Each batch takes up what the model gave for the one before, so no rank may leave one out.
"""

import ast
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from multicard.facts import Facts, Training
from multicard.interpret import Event
from multicard.reach import functions_of
from multicard.tree import held, nodes
from multicard.values import Obj

RECURRENT = ("RNN", "LSTM", "GRU", "RNNCell", "LSTMCell", "GRUCell")
DEEP = 3
"""How far calls are followed in which a state may be taken up or begun anew."""


class Slot(NamedTuple):
    """Where a state is kept: under a name, or in an attribute of whatever object."""

    name: str
    attribute: bool

    def is_at(self, node: ast.AST) -> bool:
        """Whether a node stands for it."""
        if self.attribute:
            return isinstance(node, ast.Attribute) and node.attr == self.name
        return isinstance(node, ast.Name) and node.id == self.name


def carried_state(facts: Facts, training: Training) -> Event | None:
    """A forward pass whose state goes on to the next batch."""
    loop = training.loop.node
    if not isinstance(loop, ast.For | ast.While):
        return None
    for event in facts.events("forward", dead=False):
        if event.name == "model" and facts.trains(event):
            for call in (event.node, *event.calls):
                if isinstance(call, ast.Call) and call in held(loop):
                    slots = {*_taken_back(loop, call), *_kept_inside(facts, call)}
                    if any(_reads_first(facts, loop.body, slot, DEEP) for slot in slots):
                        return event
    return None


def _taken_back(loop: ast.For | ast.While, call: ast.Call) -> set[Slot]:
    """What a call is given that a turn of the loop puts in the place of what the call gave."""
    given = set(_slots((*call.args, *(keyword.value for keyword in call.keywords)), ast.Load))
    assigned = [node for node in nodes(loop, ast.Assign) if given and not _is_played(node.value)]
    made: set[Slot] = set()
    for _ in range(DEEP):
        for statement in assigned:
            if call in held(statement.value) or made.intersection(_slots([statement.value], ast.Load)):
                made.update(_slots(statement.targets, ast.Store))
    return given & made


def _is_played(value: ast.expr) -> bool:
    """Whether an environment answers, `env.step(action)`: what it says is no state of the model's."""
    return isinstance(value, ast.Call) and isinstance(value.func, ast.Attribute) and value.func.attr == "step"


def _slots(parts: Iterable[ast.AST], context: type[ast.expr_context]) -> Iterator[Slot]:
    for part in parts:
        yield from (
            Slot(node.id, attribute=False) for node in nodes(part, ast.Name) if isinstance(node.ctx, context)
        )
        yield from (
            Slot(node.attr, attribute=True)
            for node in nodes(part, ast.Attribute)
            if isinstance(node.ctx, context)
        )


def _kept_inside(facts: Facts, call: ast.Call) -> Iterator[Slot]:
    """Attributes in which the model keeps what its recurrent layers gave."""
    for function in functions_of(facts, call):
        for statement in nodes(function, ast.Assign):
            if isinstance(statement.value, ast.Call) and any(
                isinstance(value, Obj) and value.kind == "model" and value.name.endswith(RECURRENT)
                for value in facts.values(statement.value.func)
            ):
                yield from (slot for slot in _slots(statement.targets, ast.Store) if slot.attribute)


def _reads_first(facts: Facts, body: list[ast.stmt], slot: Slot, deep: int) -> bool | None:
    """Whether statements may read a slot before they fill it; None if they do neither for sure."""
    for statement in body:
        found = _first(facts, statement, slot, deep)
        if found is not None:
            return found
    return None


def _first(facts: Facts, statement: ast.stmt, slot: Slot, deep: int) -> bool | None:
    match statement:
        case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
            return None
        case ast.If(test=test, body=body, orelse=orelse):
            branches = [_reads_first(facts, branch, slot, deep) for branch in (body, orelse)]
            if True in branches or _reads(test, slot):
                return True
            return None if None in branches else False
        case ast.For(target=part, iter=head, body=body) | ast.While(test=part as head, body=body):
            bound = _fills(part, slot)
            return _reads(head, slot) or (not bound and _reads_first(facts, body, slot, deep)) or None
        case ast.With(items=items, body=body):
            if any(_reads(item.context_expr, slot) for item in items):
                return True
            return _reads_first(facts, body, slot, deep)
        case ast.Try(body=body, finalbody=last):
            return _reads_first(facts, [*body, *last], slot, deep)
        case _:
            return _simple(facts, statement, slot, deep)


def _simple(facts: Facts, statement: ast.stmt, slot: Slot, deep: int) -> bool | None:
    if _reads(statement, slot) or (isinstance(statement, ast.AugAssign) and slot.is_at(statement.target)):
        return True
    if slot.attribute and deep:
        for call in nodes(statement, ast.Call):
            for function in functions_of(facts, call):
                if any(map(slot.is_at, nodes(function, ast.Attribute))) and not isinstance(
                    function, ast.Lambda
                ):
                    found = _reads_first(facts, function.body, slot, deep - 1)
                    if found is not None:
                        return found
    return False if _fills(statement, slot) else None


def _reads(part: ast.AST, slot: Slot) -> bool:
    return slot in _slots([part], ast.Load)


def _fills(part: ast.AST, slot: Slot) -> bool:
    return slot in _slots([part], ast.Store)
