'''Leave a loop together.

Early stopping that one rank decides alone leaves the others waiting for it for ever.  Rank 0 decides, all follow;
where the metric is the same on all ranks already this costs one small broadcast an epoch.

Before:

    for epoch in range(100):
        loss = train_one_epoch()
        if loss > best:
            break

After:

    for epoch in range(100):
        loss = train_one_epoch()
        if broadcast_value(loss > best):
            break
'''

import ast
from collections.abc import Iterator

from multicard.edits import call_with
from multicard.facts import Facts
from multicard.messages import Text
from multicard.plan import Finding
from multicard.source import Module
from multicard.tree import walk
from multicard.values import Data, Lib, Obj, Unknown, Values

CODE = "MC403"
TITLE = Text("Stop together", "早停信号同步")

_STOP = Text(
    "rank 0 decides and all ranks leave together; one that left alone would leave the others waiting for ever",
    "由 rank0 判断,所有进程一起退出;只有一个进程退出会让其他进程一直等待",
)
_SKIP = Text(
    "a batch is skipped by all ranks or by none; otherwise gradients of different batches are averaged",
    "要么所有进程都跳过这个批次,要么都不跳过;否则会把不同批次的梯度平均在一起",
)
_PLATEAU = Text(
    "every rank must take the same step of the learning rate, so all are given rank 0's metric",
    "各进程的学习率必须一致,因此统一使用 rank0 的指标",
)


def find(facts: Facts) -> Iterator[Finding]:
    """Exits under conditions that may differ between ranks, and schedulers that look at a metric."""
    yield from _exits(facts)
    yield from _plateaus(facts)


def _exits(facts: Facts) -> Iterator[Finding]:
    batch = facts.training_nodes
    done: set[ast.AST] = set()
    for module in facts.modules:
        for node in walk(module.tree):
            loop = _left_loop(facts, module, node)
            if loop is None:
                continue
            in_batches = loop in batch
            if not in_batches and loop not in facts.epoch_nodes:
                continue
            for test in _tests(facts, module, node, loop):
                if test in done or not may_differ(facts.values(test)) or not _is_local(facts, module, test):
                    continue
                done.add(test)
                function = "«any_rank»" if isinstance(node, ast.Continue) else "«broadcast_value»"
                why = _SKIP if isinstance(node, ast.Continue) else _STOP
                yield Finding(CODE, facts.site(module, test), why, call_with(module, test, function))


def _left_loop(facts: Facts, module: Module, node: ast.AST) -> ast.AST | None:
    """The training loop that a statement leaves, or a batch of it that it skips."""
    if isinstance(node, ast.Break | ast.Continue):
        for parent in facts.ancestors(module, node):
            if isinstance(parent, ast.For | ast.While):
                if isinstance(node, ast.Continue) and parent not in facts.training_nodes:
                    return None
                return parent
            if isinstance(parent, ast.FunctionDef | ast.Lambda):
                return None
    exits = isinstance(node, ast.Return | ast.Raise) or (
        isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Call)
        and any(isinstance(value, Lib) and value.name in {"sys.exit", "os._exit", "builtins.exit", "builtins.quit"} for value in facts.values(node.value.func))
    )
    if exits:
        for parent in facts.ancestors(module, node):
            if isinstance(parent, ast.For | ast.While) and (parent in facts.epoch_nodes or parent in facts.training_nodes):
                return parent
            if isinstance(parent, ast.FunctionDef | ast.Lambda):
                return None
    return None


def _tests(facts: Facts, module: Module, node: ast.AST, loop: ast.AST) -> Iterator[ast.expr]:
    """The conditions between a loop and a statement in it, outermost first."""
    found = []
    for parent in facts.ancestors(module, node):
        if parent is loop:
            break
        if isinstance(parent, ast.If):
            found.append(parent.test)
    yield from reversed(found)


def may_differ(values: Values) -> bool:
    """Whether a value may differ between ranks; what is not known may."""
    for value in values:
        if isinstance(value, Data) and value.local:
            return True
        if isinstance(value, Unknown):
            return True
        if isinstance(value, Obj) and value.kind not in {"model", "wrapped", "optimizer", "scheduler", "loader"}:
            return True
    return False


def _is_local(facts: Facts, module: Module, test: ast.expr) -> bool:
    """Whether some part of a condition may differ: a counter compared with a limit does not."""
    for part in walk(test):
        if isinstance(part, ast.Name | ast.Attribute | ast.Call) and may_differ(facts.values(part)):
            values = facts.values(part)
            if any(isinstance(value, Data) and value.local or isinstance(value, Unknown) for value in values):
                return True
    del module
    return False


def _plateaus(facts: Facts) -> Iterator[Finding]:
    done: set[ast.AST] = set()
    for event in facts.events("schedule", dead=False):
        subject = event.subject
        if not isinstance(subject, Obj) or not subject.name.endswith("ReduceLROnPlateau"):
            continue
        node = event.node
        if not isinstance(node, ast.Call) or node in done:
            continue
        done.add(node)
        metric = node.args[0] if node.args else next((k.value for k in node.keywords if k.arg == "metrics"), None)
        if metric is not None and may_differ(facts.values(metric)):
            yield Finding(CODE, facts.site(event.module, metric), _PLATEAU, call_with(event.module, metric, "«broadcast_value»"))
