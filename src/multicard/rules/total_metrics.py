"""Add up over all ranks what a loop counts.

Each rank has counted its own share.  Sums are summed, predictions joined in data set order, and everything that is
computed from them afterwards is computed on every rank from the same numbers: those of the whole data set.
What training writes down of each step, in curves and meters, becomes the mean over the ranks; samples that it counts
on and on, over all epochs, are those that all ranks have seen; what cannot be put together is noted.

Before:

    correct, total = 0, 0
    for x, y in val_loader:
        correct += (model(x).argmax(1) == y).sum().item()
        total += len(y)
    print(correct / total)

After:

    correct, total = 0, 0
    for x, y in val_loader:
        correct += (model(x).argmax(1) == y).sum().item()
        total += len(y)
    correct, total = all_reduce_sum(correct, total)
    print(correct / total)
"""

import ast
from collections.abc import Iterator
from functools import partial

from multicard.carried import Carried, How, Reading, read_loop
from multicard.counters import counters
from multicard.curves import curves, left_apart
from multicard.edits import insert_after
from multicard.facts import Facts, Training
from multicard.last_batch import last_losses
from multicard.messages import Text
from multicard.plan import Finding, Kind
from multicard.quotients import given_by, returned
from multicard.rules import agree_to_stop
from multicard.rules.share_batches import drawn, shared_loop
from multicard.source import Module
from multicard.tree import held, nodes, walk
from multicard.values import Data, Func, data_of, shown_by

CODE = "MC401"
TITLE = Text("Total the metrics over the ranks", "全局聚合指标")

_TOTAL = Text(
    "each rank counted its own share; from here on all ranks have the numbers of the whole data set",
    "每个进程只统计了自己的一份;聚合之后所有进程得到整个数据集的结果",
)

_OWN_COUNT = Text(
    "the number of the last batch is that of this rank's share, and no name gives the loader whose batches to count",
    "最后一个批次的编号只是本进程那一份的编号,而这里没有可以用来统计全部批次的 loader 名称",
)
_COUNT_ALL = Text(
    "divide by global_batches(loader) of ddp_runtime, with the loader that the loop goes over",
    "请除以 ddp_runtime 的 global_batches(loader),其中 loader 是循环所遍历的那一个",
)
_SEEN = Text(
    "each rank counts on and on what it sees itself; what is shown of it, or hangs on it, is what all have seen",
    "每个进程只累计自己看到的数量;显示、保存或据以判断的应是所有进程看到的总数",
)


def find(facts: Facts) -> Iterator[Finding]:
    """One finding after each loop that walks through a share."""
    done: set[ast.AST] = set()
    for visit in facts.dealing.visits:
        if facts.dealing.shared(visit) and visit.node not in done:
            done.add(visit.node)
            yield from _totals(facts, visit.module, visit.node, visit.reading)
    visits = (visit for visit in facts.dealing.visits if not visit.dead)
    whole = {visit.node for visit in visits if not facts.dealing.shared(visit)}
    for training in facts.trainings:
        node = training.loop.node
        if (
            isinstance(node, ast.For)
            and node not in done
            and node not in whole
            and (training.loaders or shared_loop(facts, training) or drawn(facts, training))
        ):
            done.add(node)
            module = training.loop.module
            reading = of_training(facts, training, module, node)
            yield from _totals(facts, module, node, reading)
            yield from _told(facts, module, reading)
            yield from _filled(facts, training, module, node)
    for counter in counters(facts):
        yield Finding(CODE, facts.site(counter.module, counter.statement), _SEEN, counter.edits())


def of_training(facts: Facts, training: Training, module: Module, loop: ast.For) -> Reading:
    """What a training loop counts: totals, or means where they are divided by what this rank counted.

    Ranks train on as many batches, of one size: the mean of their means is that of all.
    """
    reading = read_loop(facts, module, loop)
    shared = bool(training.loaders) or shared_loop(facts, training) is not None
    in_step = bool(training.loaders) or not shared
    steps = curves(facts, reading, partial(_agreed, facts, module)) if in_step else []
    noted = {item.name for item in steps}
    carried = []
    totals = (*reading.carried, *(reading.by_number if training.loaders else ())) if shared else ()
    for item in totals:
        if item.how is How.COUNT or item.name in noted or counted_alike(facts, module, loop, item.name):
            continue
        if adds_up(facts, module, loop, item.name, item.how):
            carried.append(item)
        elif item.how is How.SUM and divided_by_own(facts, module, loop, item.name):
            carried.append(Carried(item.name, How.MEAN, item.node))
    if not shared and drawn(facts, training):
        carried += [
            Carried(item.name, How.MEAN, item.node)
            for item in reading.carried
            if item.how is How.SUM and item.name not in noted and _of_models(facts, reading, item.name)
        ]
    if in_step:
        carried += [Carried(name, How.MEAN, loop) for name in reading.running if name not in noted]
        carried += steps
        known = {item.name for item in carried}
        carried += [item for item in last_losses(facts, module, loop) if item.name not in known]
    if in_step:
        apart = left_apart(facts, reading, carried)
        reading.apart = [item for item in apart if not counted_alike(facts, module, loop, item.name)]
    reading.carried = carried
    return reading


def _of_models(facts: Facts, reading: Reading, name: str) -> bool:
    """Whether what a loop adds to a total comes out of a model."""
    written = [data_of(facts.values(value)) for _, _, value in reading.writes.get(name, ()) if value]
    return bool(written) and all(data.models or "local" in data.tags for data in written)


def _agreed(facts: Facts, module: Module) -> frozenset[int]:
    """Where conditions of a module begin on which the ranks are made to agree."""
    return frozenset(
        edit.span.start
        for finding in facts.findings(agree_to_stop)
        for edit in finding.edits
        if edit.module is module
    )


def _told(facts: Facts, module: Module, reading: Reading) -> Iterator[Finding]:
    """A word on what is rank 0's own after a training loop."""
    for item in reading.apart:
        why = Text(
            f"`{item.name}` holds what each rank saw itself: what is shown or written of it is rank 0's share",
            f"`{item.name}` 是各进程自己看到的内容:显示或写出的只是 rank0 的那一份",
        )
        yield Finding(CODE, facts.site(module, item.node), why, kind=Kind.NOTE)


def _filled(facts: Facts, training: Training, module: Module, loop: ast.For) -> Iterator[Finding]:
    """A place for each sample of the data set, of which each rank fills those that it counts for itself."""
    if not any(facts.dealt(loader) for loader in training.loaders):
        return
    done: set[str] = set()
    for home, part in _run_in(facts, module, loop):
        for statement in nodes(part, ast.Assign):
            for target in statement.targets:
                name = home.text(target.value) if isinstance(target, ast.Subscript) else ""
                if (
                    isinstance(target, ast.Subscript)
                    and name not in done
                    and _cuts_out(target.slice)
                    and data_of(facts.values(target.value)).tags >= {"all", "size"}
                    and data_of(facts.values(statement.value)).local
                ):
                    done.add(name)
                    why = Text(
                        f"`{name}` has a place for each sample, and each rank fills those that it counts for itself:"
                        " the first ones, and the others stay as they were",
                        f"`{name}` 为每个样本留有位置,而各进程按自己的计数填写:只填了前面一部分,其余保持原样",
                    )
                    advice = Text(
                        "collect what is written in a list, and join it after the loop with gather_in_order(...) of"
                        " ddp_runtime",
                        "请把写入的内容收集到列表里,循环之后用 ddp_runtime 的 gather_in_order(...) 拼接",
                    )
                    yield Finding(CODE, facts.site(home, statement), why, (), advice, Kind.LEFT)


def _cuts_out(index: ast.expr) -> bool:
    """Whether an index takes some places out of the middle: `[start:end]`, `[0, start:end]`."""
    return any(cut.lower is not None or cut.upper is not None for cut in nodes(index, ast.Slice))


def _run_in(facts: Facts, module: Module, loop: ast.For) -> Iterator[tuple[Module, ast.AST]]:
    """A loop, and the functions of the script that it calls, three deep."""
    found: dict[ast.AST, Module] = {loop: module}
    parts: list[ast.AST] = [loop]
    for _ in range(3):
        called = [
            value
            for part in parts
            for call in nodes(part, ast.Call)
            for value in facts.values(call.func)
            if isinstance(value, Func) and value.node not in found
        ]
        found.update((function.node, function.module) for function in called)
        parts = [function.node for function in called]
    yield from ((home, part) for part, home in found.items())


def counted_alike(facts: Facts, module: Module, loop: ast.For, name: str) -> bool:
    """Whether all ranks count the same: constants, under conditions on which they agree."""
    writes = [
        node
        for node in nodes(loop, ast.AugAssign)
        if isinstance(node.target, ast.Name | ast.Attribute) and module.text(node.target) == name
    ]
    if not writes or not all(isinstance(node.value, ast.Constant) for node in writes):
        return False
    shared = _agreed(facts, module)
    return all(
        any(
            isinstance(parent, ast.If) and module.span(parent.test).start in shared
            for parent in facts.ancestors(module, node)
        )
        for node in writes
    )


def _totals(facts: Facts, module: Module, loop: ast.For, reading: Reading) -> Iterator[Finding]:
    lines = []
    for how in (How.SUM, How.MEAN, How.MAX, How.MIN, How.GATHER):
        for condition, names in _by_condition(module, reading, how).items():
            together = ", ".join(names)
            line = f"{together} = «{how.value}»({together})"
            lines += [f"if {condition}:", f"{module.unit}{line}"] if condition else [line]
    if held_on := reading.of(How.STATE):
        lines.append(f"«{How.STATE.value}»({', '.join(held_on)})")
    for name, meter in reading.meters.items():
        if name not in reading.of(How.METER):
            continue
        sums = ", ".join(f"{name}.{attr}" for attr in meter.sums)
        lines.append(f"{sums} = «all_reduce_sum»({sums})")
        for attr, expression in meter.derived:
            lines.append(f"{name}.{attr} = {_of(expression, name)}")
    for name in reading.of(How.COUNT):
        loader = _loader_text(facts, module, reading.source())
        if loader:
            lines.append(f"{name} = «global_batches»({loader}) - 1")
        else:
            yield Finding(CODE, facts.site(module, loop), _OWN_COUNT, advice=_COUNT_ALL, kind=Kind.LEFT)
    if lines:
        yield Finding(CODE, facts.site(module, loop), _TOTAL, (insert_after(module, loop, *lines),))


def _by_condition(module: Module, reading: Reading, how: How) -> dict[str, list[str]]:
    """The values to be put together one way, by the condition under which they are there."""
    found: dict[str, list[str]] = {}
    for name in reading.of(how):
        test = reading.conditions.get(name)
        found.setdefault(module.text(test) if test is not None else "", []).append(name)
    return found


def _of(expression: str, name: str) -> str:
    """An expression over `self.` as one over the object."""
    tree = ast.parse(expression, mode="eval")
    for node in walk(tree):
        if isinstance(node, ast.Name) and node.id == "self":
            node.id = name
    return ast.unparse(tree)


def _loader_text(facts: Facts, module: Module, over: ast.expr) -> str:
    """How a loader is written that a loop goes over, or a progress bar that goes through it."""
    for node in walk(over):
        if isinstance(node, ast.Name | ast.Attribute | ast.Subscript) and facts.only(
            shown_by(facts.values(node)), facts.loaders
        ):
            return module.text(node)
    return ""


def adds_up(facts: Facts, module: Module, loop: ast.For, name: str, how: How) -> bool:
    """Whether a total of a training loop is only ever divided by what is a total too."""
    if how not in {How.SUM, How.METER, How.GATHER, How.MAX, How.MIN}:
        return False
    scope, end = facts.scope(module, loop), loop.end_lineno or 0
    return not divided_by_own(facts, module, loop, name) and not any(
        _handed_on(facts, module, call) for call in nodes(scope, ast.Call) if call.lineno > end
    )


def divided_by_own(facts: Facts, module: Module, loop: ast.For, name: str) -> bool:
    """Whether a total is divided by a number of batches that this rank counted for itself."""
    end = loop.end_lineno or 0
    inside = held(loop)
    counters = {part.id for part in walk(loop.target) if isinstance(part, ast.Name)}
    for node in walk(facts.scope(module, loop)):
        if not isinstance(node, ast.BinOp | ast.AugAssign) or not isinstance(node.op, ast.Div | ast.FloorDiv):
            continue
        if node in inside or node.lineno < end:
            continue
        left = node.left if isinstance(node, ast.BinOp) else node.target
        right = node.right if isinstance(node, ast.BinOp) else node.value
        if not _mentions(module, left, name):
            continue
        if any(isinstance(part, ast.Name) and part.id in counters for part in walk(right)):
            return True
        if _kept_length(facts, right):
            return True
    scope = facts.scope(module, loop)
    return name in returned(scope) and _callers_divide(facts, scope)


def _kept_length(facts: Facts, divisor: ast.expr) -> bool:
    """Whether a divisor was counted from the length of a loader earlier, and is this rank's own."""
    return any(
        isinstance(value, Data) and "length" in value.tags
        for part in walk(divisor)
        if isinstance(part, ast.Name | ast.Attribute) and isinstance(part.ctx, ast.Load)
        for value in facts.values(part)
    )


def _callers_divide(facts: Facts, function: ast.AST) -> bool:
    """Whether a caller divides what a function gives back by a number of batches that it kept."""
    return any(function in given_by(facts, module, total) for module, total in _divided(facts))


def _divided(facts: Facts) -> tuple[tuple[Module, ast.expr], ...]:
    """What is divided by a number of batches that was kept; found once."""
    found = facts.memo.get("divided by kept lengths")
    if found is None:
        found = facts.memo["divided by kept lengths"] = tuple(
            (module, total)
            for module in facts.modules
            for total, divisor in _quotients(module)
            if _kept_length(facts, divisor)
        )
    assert isinstance(found, tuple)
    return found


def _quotients(module: Module) -> Iterator[tuple[ast.expr, ast.expr]]:
    for quotient in nodes(module.tree, ast.BinOp):
        if isinstance(quotient.op, ast.Div | ast.FloorDiv):
            yield quotient.left, quotient.right
    for statement in nodes(module.tree, ast.AugAssign):
        if isinstance(statement.op, ast.Div | ast.FloorDiv):
            yield statement.target, statement.value


def _handed_on(facts: Facts, module: Module, call: ast.Call) -> bool:
    """Whether a call asks for the length of a loader and gives it to somebody who may divide by it."""
    if not any(event.kind == "len" for event in facts.by_node.get(call, ())):
        return False
    for parent in facts.ancestors(module, call):
        match parent:
            case ast.Return() | ast.Yield():
                return True
            case ast.Call(func=ast.Name(id=name)) if name not in {"print", "float", "int", "max", "str"}:
                return True
            case ast.BinOp() | ast.stmt() | ast.JoinedStr():
                return False
            case _:
                continue
    return False


def _mentions(module: Module, node: ast.AST, name: str) -> bool:
    return any(
        isinstance(part, ast.Name | ast.Attribute) and module.text(part) == name for part in walk(node)
    )
