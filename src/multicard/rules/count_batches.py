"""Divide by the number of batches on all ranks.

`len(val_loader)` is the number of this rank's batches once the loader is dealt out; a total over all ranks must be
divided by the number over all ranks.  The number of samples that a line of progress tells (`i * len(x)`) is this
rank's share as well, and is multiplied by the number of ranks.

Before:

    val_loss = 0.0
    with torch.no_grad():
        for x, y in val_loader:
            val_loss += criterion(model(x), y).item()
    val_loss /= len(val_loader)

After:

    val_loss = 0.0
    with torch.no_grad():
        for x, y in val_loader:
            val_loss += criterion(model(x), y).item()
    val_loss /= global_batches(val_loader)
"""

import ast
from collections.abc import Iterator
from typing import TYPE_CHECKING

from multicard.counters import counters, of_all_ranks
from multicard.dealing import measured_by
from multicard.edits import Edit, replace
from multicard.facts import Facts, Training
from multicard.messages import Text
from multicard.plan import Finding, Kind
from multicard.progress import told_samples
from multicard.quotients import dividend, given_by, returned
from multicard.source import Module
from multicard.tree import nodes, walk
from multicard.values import Obj, shown_by

if TYPE_CHECKING:
    from multicard.interpret import Event

CODE = "MC404"
TITLE = Text("Count the batches of all ranks", "批次数按所有进程计算")

_WHY = Text(
    "once dealt out, the loader's length is this rank's share; the total is divided by all batches",
    "分片之后 loader 的长度只是本进程的一份;总和要除以全部批次数",
)
_ADVICE = Text(
    "divide by global_batches(loader) of ddp_runtime, with the loader that the bar goes through",
    "请除以 ddp_runtime 的 global_batches(loader),其中 loader 是进度条所遍历的那一个",
)
_WHY_SAMPLES = Text(
    "once dealt out, the sampler's length is this rank's share; the total is divided by what all ranks draw",
    "分片之后 sampler 的长度只是本进程的一份;总和要除以全部进程取出的数目",
)
_WHY_TOLD = Text(
    "so many samples has this rank seen of its share; all ranks together have seen as many times the number of ranks",
    "这是本进程在自己那一份中看到的样本数;所有进程合计要再乘以进程数",
)
_COUNTED = {"sampler": "global_samples", "batch_sampler": "global_batches"}


def find(facts: Facts) -> Iterator[Finding]:
    """Each `len(loader)` of a dealt loader that a total is divided by."""
    found: dict[ast.AST, list[Event]] = {}
    for event in facts.events("len"):
        found.setdefault(event.node, []).append(event)
    for node, events in found.items():
        asked = measured_by(node) if isinstance(node, ast.Call) else None
        if asked is None or not isinstance(node, ast.Call):
            continue
        module = events[0].module
        subjects = [event.subject for event in events if isinstance(event.subject, Obj)]
        evaluating = all(subject in facts.dealing.dealt for subject in subjects)
        shown = not any(subject in facts.values(asked) for subject in subjects)
        dealt = (any if shown else all)(facts.dealt(subject) for subject in subjects)
        divides = dividend(facts, module, node) is not None
        if dealt and (divides or (evaluating and _computes(facts, module, node))):
            if not evaluating and not _of_total(facts, module, node):
                continue
            edits: tuple[Edit, ...] = (replace(module, node.func, "«global_batches»"),)
            if not node.args:
                edits = (replace(module, node, f"«global_batches»({module.text(asked)})"),)
            if shown:
                direct = facts.only(shown_by(facts.values(node.args[0])), facts.loaders)
                name = _name_of(facts, module, node, subjects)
                if name is None and not direct:
                    yield Finding(CODE, facts.site(module, node), _WHY, advice=_ADVICE, kind=Kind.LEFT)
                    continue
                if name is not None:
                    edits = (replace(module, node, f"«global_batches»({name})"),)
            yield Finding(CODE, facts.site(module, node), _WHY, edits)
    for module in facts.modules:
        yield from _of_samplers(facts, module)
    for module, node in told_samples(facts):
        yield Finding(CODE, facts.site(module, node), _WHY_TOLD, of_all_ranks(module, node))


def _of_samplers(facts: Facts, module: Module) -> Iterator[Finding]:
    """Each `len(loader.sampler)` of a dealt loader that a total is divided by, or that stands by a counter."""
    for node in nodes(module.tree, ast.Call):
        asked = measured_by(node)
        if not isinstance(asked, ast.Attribute) or asked.attr not in _COUNTED:
            continue
        loaders = [value for value in facts.values(asked.value) if isinstance(value, Obj)]
        known = loaders and facts.only(facts.values(asked.value), facts.loaders)
        if not known or not all(facts.dealt(loader) for loader in loaders):
            continue
        divides = dividend(facts, module, node) is not None
        if all(loader in facts.dealing.dealt for loader in loaders):
            wanted = divides or _computes(facts, module, node)
        else:
            wanted = divides and _of_total(facts, module, node)
        if wanted or (asked.attr == "sampler" and _by_a_counter(facts, module, node)):
            edit = replace(module, node, f"«{_COUNTED[asked.attr]}»({module.text(asked.value)})")
            yield Finding(CODE, facts.site(module, node), _WHY_SAMPLES, (edit,))


def _by_a_counter(facts: Facts, module: Module, node: ast.Call) -> bool:
    """Whether a number is written with a counter that is made to count what all ranks have seen."""
    names = {module.text(found.statement.target) for found in counters(facts) if found.module is module}
    return any(_written(module, part) in names for part in walk(facts.statement(module, node)))


def _name_of(facts: Facts, module: Module, node: ast.Call, loaders: list[Obj]) -> str | None:
    """How the loader is written that a progress bar, whose length is asked for, goes through."""
    bar = module.text(node.args[0])
    for part in walk(facts.scope(module, node)):
        if (
            isinstance(part, ast.Name | ast.Attribute)
            and isinstance(part.ctx, ast.Load)
            and module.text(part) != bar
            and facts.only(facts.values(part), facts.loaders)
            and all(loader in facts.values(part) for loader in loaders)
        ):
            return module.text(part)
    return None


def _computes(facts: Facts, module: Module, node: ast.Call) -> bool:
    """Whether an evaluation loader's length goes into a computation, and is not just shown."""
    for parent in facts.ancestors(module, node):
        match parent:
            case ast.Call(func=ast.Name(id="float" | "int" | "max" | "min")):
                continue
            case ast.Call() | ast.JoinedStr() | ast.FormattedValue() | ast.keyword() | ast.Compare():
                return False
            case ast.Assign() | ast.AugAssign() | ast.Return():
                return True
            case ast.stmt():
                return False
            case _:
                continue
    return False


def _of_total(facts: Facts, module: Module, node: ast.Call) -> bool:
    """Whether what a training loader's length divides is a total over the ranks."""
    scope = facts.scope(module, node)
    total = dividend(facts, module, node)
    givers = given_by(facts, module, total) if total is not None else frozenset()
    for training in facts.trainings:
        loop = training.loop
        if not isinstance(loop.node, ast.For):
            continue
        function = facts.scope(loop.module, loop.node)
        if function is scope and loop.module is module:
            names = _totals_of(facts, training)
            statement = facts.statement(module, node)
            if any(_written(module, part) in names for part in walk(statement)):
                return True
        elif function in givers and _totals_of(facts, training) & returned(function):
            return True
    return False


def _totals_of(facts: Facts, training: Training) -> frozenset[str]:
    """What a training loop counts and is added up over the ranks after it."""
    from multicard.carried import How  # read only where a length is found
    from multicard.rules.total_metrics import of_training

    loop = training.loop
    assert isinstance(loop.node, ast.For)
    counted = of_training(facts, training, loop.module, loop.node).carried
    return frozenset(item.name for item in counted if item.how in {How.SUM, How.GATHER})


def _written(module: Module, part: ast.AST) -> str:
    return module.text(part) if isinstance(part, ast.Name | ast.Attribute) else ""
