"""Share out batches that the script cuts by hand.

Without a DataLoader there is no sampler: a loop over `range(0, n, batch_size)` or over a list of batches makes every
rank do the same work.  Each rank takes every N-th batch, all equally many.  Where batches are drawn at random, each
rank draws its own.

Before:

    for epoch in range(3):
        order = torch.randperm(len(inputs))
        for start in range(0, len(inputs), 32):
            batch = order[start : start + 32]
            loss = criterion(model(inputs[batch]), labels[batch])
            loss.backward()

After:

    for epoch in range(3):
        order = torch.randperm(len(inputs))
        for start in share_of(range(0, len(inputs), 32)):
            batch = order[start : start + 32]
            loss = criterion(model(inputs[batch]), labels[batch])
            loss.backward()
"""

import ast
from collections.abc import Iterator

from multicard.edits import call_with, wrap
from multicard.facts import Facts, FrameKey, Training, key
from multicard.interpret import Event, Loop
from multicard.messages import Text
from multicard.plan import Finding, Kind
from multicard.source import Module
from multicard.states import carried_state
from multicard.tree import nodes, walk
from multicard.values import Const, Data, Func, Lib, Obj, Unknown, contained, data_of

CODE = "MC208"
TITLE = Text("Share out hand-made batches", "分配手写的批次")

_SHARE = Text(
    "each rank takes every N-th batch, all equally many; without this all ranks would do the same work",
    "每个进程依次取第 N 个批次,数量相同;否则所有进程会做同样的工作",
)


_ROWS = Text(
    "what the model gave for one batch goes into the next: row by row, as on one card with the batches of all ranks"
    " together, where a row goes on from another sample than in a smaller batch",
    "模型对上一批的输出会进入下一批:逐行接续,与单卡使用所有进程合并后的批次相同;与较小的批次相比,每一行接续的是另一个样本",
)
_PLAYED = Text(
    "what the model chooses decides how long training goes on here, so all ranks must see the same: rank 0 plays, and"
    " tells the others",
    "模型的选择决定了训练进行多久,因此所有进程必须看到相同的结果:由 rank0 与环境交互,再告知其他进程",
)


def find(facts: Facts) -> Iterator[Finding]:
    """One finding for each training loop without a loader, and what an environment says in one."""
    yield from _loops(facts)
    if any(in_step(facts, training) for training in facts.trainings):
        for module in facts.modules:
            for call in nodes(module.tree, ast.Call):
                if _is_played(facts, call):
                    edits = wrap(module, call, "«broadcast_value»(", " if «rank 0» else None)")
                    yield Finding(CODE, facts.site(module, call), _PLAYED, edits)


def _is_played(facts: Facts, call: ast.Call) -> bool:
    """Whether a call asks an environment of gym's for what only it knows."""
    match call.func:
        case ast.Attribute(value=ast.Attribute(value=owner, attr="action_space"), attr="sample"):
            pass
        case ast.Attribute(value=owner, attr="reset" | "step"):
            pass
        case _:
            return False
    return any(
        isinstance(value, Obj) and value.name.startswith(("gym.", "gymnasium."))
        for value in facts.values(owner)
    )


def _loops(facts: Facts) -> Iterator[Finding]:
    done: set[ast.AST] = set()
    for training in facts.trainings:
        node = training.loop.node
        if node in done:
            continue
        done.add(node)
        if not training.loaders:
            shared = _share(facts, training)
            yield shared
            if shared.kind is Kind.NOTE:
                yield from _walked(facts, training.loop)
        elif not all(loader.args.get("shuffle") == frozenset({Const(True)}) for loader in training.loaders):
            state = carried_state(facts, training)
            if state is not None:
                yield Finding(CODE, facts.site(state.module, state.node), _ROWS, kind=Kind.NOTE)


def shared_loop(facts: Facts, training: Training) -> ast.expr | None:
    """The expression whose items are batches that may be shared out, if there is one."""
    loop = training.loop
    if training.loaders or not isinstance(loop.node, ast.For) or _state(facts, training):
        return None
    node = _core(facts, loop.node.iter)
    if _over_range(facts, node):
        target = loop.node.target
        if isinstance(target, ast.Tuple) and node is not loop.node.iter:
            target = target.elts[-1]
        return (
            node
            if isinstance(target, ast.Name) and _picks(facts, loop.module, loop.node, target.id)
            else None
        )
    if _over_batches(facts, node):
        return node
    return None


def _state(facts: Facts, training: Training) -> Event | None:
    """A forward pass whose state goes on to the next batch; of an environment it is said what all must see."""
    return None if in_step(facts, training) else carried_state(facts, training)


def _share(facts: Facts, training: Training) -> Finding:
    loop = training.loop
    place = facts.site(loop.module, loop.node)
    state = _state(facts, training)
    if state is not None:
        return Finding(
            CODE,
            facts.site(state.module, state.node),
            Text(
                "what the model gave for one batch goes into the next, so batches cannot be dealt out: every rank"
                " trains on all of them (right, and not faster)",
                "模型对上一批的输出会进入下一批,批次无法分给不同进程:每个进程训练全部批次(结果正确,但不会更快)",
            ),
            advice=Text(
                "to gain speed cut the data into parallel streams, and give each rank its own streams",
                "要提速,请把数据切成多个并行的序列,每个进程处理自己的序列",
            ),
            kind=Kind.LEFT,
        )
    node = shared_loop(facts, training)
    if node is not None:
        return Finding(CODE, place, _SHARE, call_with(loop.module, node, "«share_of»"))
    if drawn(facts, training):
        return Finding(
            CODE,
            place,
            Text(
                "batches are drawn at random: each rank draws its own, so a step sees N times as many samples",
                "批次是随机抽取的:每个进程各抽各的,每一步相当于 N 倍的样本",
            ),
            kind=Kind.NOTE,
        )
    if isinstance(loop.node, ast.For) and _is_unknown(facts, loop.node.iter):
        source = loop.module.text(loop.node.iter)
        return Finding(
            CODE,
            place,
            Text(
                f"where the batches of `{source}` come from is not seen, so they are not dealt out: every rank trains"
                " on all of them (right, and not faster)",
                f"看不到 `{source}` 的批次从何而来,因此没有分配:每个进程训练全部批次(结果正确,但不会更快)",
            ),
            advice=Text(
                "where it is made, give a DataLoader `sampler=DistributedSampler(data)` and call"
                " `sampler.set_epoch(epoch)` before each epoch",
                "请在创建它的地方给 DataLoader 加上 `sampler=DistributedSampler(data)`,并在每个 epoch 前调用"
                " `sampler.set_epoch(epoch)`",
            ),
            kind=Kind.LEFT,
        )
    return Finding(
        CODE,
        place,
        Text(
            "there are no batches to share out: every rank does the whole work (right, and not faster)",
            "没有可以分配的批次:每个进程都做全部的工作(结果正确,但不会更快)",
        ),
        advice=Text(
            "several cards do not help here, unless the data are cut into batches",
            "除非把数据切成批次,否则多卡没有帮助",
        ),
        kind=Kind.LEFT,
    )


def _is_unknown(facts: Facts, over: ast.expr) -> bool:
    """Whether nothing is known of what a loop goes over: not a range, nor a list that the program makes."""
    core = _core(facts, over)
    if _over_numbers(facts, core) or isinstance(core, ast.List | ast.Tuple | ast.ListComp | ast.Constant):
        return False
    return all(
        isinstance(value, Unknown | Lib) or (isinstance(value, Data) and not value.models and not value.tags)
        for value in facts.values(core)
    )


def drawn(facts: Facts, training: Training) -> bool:
    """Whether the batch of a training loop is drawn at random inside it, by each rank for itself."""
    if in_step(facts, training):
        return False
    here = {
        event.name
        for event in facts.events("call", dead=False)
        if any(loop.node is training.loop.node for loop in event.loops) and not event.inside
    }
    return any(
        name.startswith(("random.", "numpy.random.")) or name in {"torch.randint", "torch.randperm"}
        for name in here
    ) or (bool(here & {"torch.randn", "torch.rand", "torch.normal"}) and _all_drawn(facts, training))


def _all_drawn(facts: Facts, training: Training) -> bool:
    """Whether all that the models are given is drawn: samples of a formula, made anew for each batch."""
    given = [
        {"random"} <= data_of(values).tags
        for event in facts.events("forward", dead=False)
        if event.name == "model" and not event.inside and facts.trains(event)
        if any(loop.node is training.loop.node for loop in event.loops)
        for values in event.args.values()
    ]
    return bool(given) and all(given)


def _walked(facts: Facts, loop: Loop) -> Iterator[Finding]:
    """A position that goes on from turn to turn and cuts the batch: it is the same on every rank."""
    moved = {
        node.target.id
        for node in nodes(loop.node, ast.AugAssign)
        if isinstance(node.target, ast.Name) and isinstance(node.op, ast.Add)
    }
    for cut in nodes(loop.node, ast.Slice):
        names = {part.id for part in nodes(cut.lower, ast.Name)} if cut.lower is not None else set()
        for name in sorted(names & moved):
            yield Finding(
                CODE,
                facts.site(loop.module, cut),
                Text(
                    f"`{name}` is the same on every rank, so all take the same batch here (right, and not faster)",
                    f"`{name}` 在各进程上相同,因此这里所有进程取到同一批数据(结果正确,但不会更快)",
                ),
                advice=Text(
                    "let each rank begin at its own place, and go on by what all ranks take together",
                    "让每个进程从各自的位置开始,并按所有进程一共取走的数量前进",
                ),
                kind=Kind.LEFT,
            )
            return


def drawing_loops(facts: Facts) -> frozenset[FrameKey]:
    """The training loops in which each rank draws batches for itself."""
    return frozenset(
        key(training.loop)
        for training in facts.trainings
        if not training.loaders and shared_loop(facts, training) is None and drawn(facts, training)
    )


def in_step(facts: Facts, training: Training) -> bool:
    """Whether what a model or chance chooses decides how long training goes on, as an environment's episodes do.

    Then a rank that played by itself would come to another number of steps than the others.
    """
    if training.loaders:
        return False
    return any(
        _is_chosen(facts, test)
        for loop in training.backward.loops
        if isinstance(loop.node, ast.For | ast.While)
        for test in _ends(facts, loop.module, loop.node)
    )


def _ends(facts: Facts, module: Module, loop: ast.For | ast.While) -> Iterator[ast.expr]:
    """The conditions under which a loop goes on or is left."""
    if isinstance(loop, ast.While):
        yield loop.test
    for leaf in nodes(loop, ast.Break):
        tests: list[ast.expr] = []
        for parent in facts.ancestors(module, leaf):
            if isinstance(parent, ast.For | ast.While):
                if parent is loop:
                    yield from tests
                break
            if isinstance(parent, ast.If):
                tests.append(parent.test)


def _is_chosen(facts: Facts, test: ast.expr) -> bool:
    """Whether a condition depends on what a model gave or on chance, other than on a loss or a score."""
    return any(
        isinstance(value, Data)
        and (value.models or "random" in value.tags)
        and value.local
        and not value.tags & {"averaged", "summed"}
        for part in walk(test)
        if isinstance(part, ast.Name | ast.Attribute | ast.Call | ast.Subscript)
        for value in facts.values(part)
    )


def _core(facts: Facts, node: ast.expr) -> ast.expr:
    """What is iterated, `enumerate` and `tqdm` taken off."""
    while isinstance(node, ast.Call) and node.args:
        names = {value.name for value in facts.values(node.func) if isinstance(value, Lib)}
        if names & {"builtins.enumerate", "tqdm.tqdm", "tqdm"}:
            node = node.args[0]
        else:
            break
    return node


def _over_range(facts: Facts, node: ast.expr) -> bool:
    return isinstance(node, ast.Call) and any(
        isinstance(value, Lib) and value.name == "builtins.range" for value in facts.values(node.func)
    )


def _over_numbers(facts: Facts, node: ast.expr) -> bool:
    """Whether a loop counts, be it without an end."""
    return _over_range(facts, node) or (
        isinstance(node, ast.Call) and Lib("itertools.count") in facts.values(node.func)
    )


def _over_batches(facts: Facts, node: ast.expr) -> bool:
    """Whether an expression is a list of batches, or a function of the script's that yields them."""
    values = facts.values(node)
    if isinstance(node, ast.Call) and any(isinstance(value, Func) for value in facts.values(node.func)):
        return any(isinstance(value, Obj) and value.kind in {"iter", "list"} for value in values)
    match node:
        case ast.Call(func=ast.Name(id="zip"), args=[_, *_] as parts, keywords=[]):
            return all(
                isinstance(part, ast.Name | ast.Attribute) and _over_batches(facts, part) for part in parts
            )
        case ast.Name() | ast.Attribute():
            if any(contained(values, kind) for kind in ("model", "wrapped", "optimizer", "loader")):
                return False
            return any(
                isinstance(value, Obj) and (value.kind == "list" or _gives_batches(value)) for value in values
            )
        case _:
            return False


def _gives_batches(value: Obj) -> bool:
    """Whether an object of a class of the script's is iterated batch by batch."""
    return (
        value.kind == "instance"
        and value.cls is not None
        and any(
            isinstance(part, ast.FunctionDef) and part.name in {"__iter__", "__next__"}
            for part in value.cls.node.body
        )
    )


def _picks(facts: Facts, module: Module, loop: ast.For, name: str) -> bool:
    """Whether the counter of a loop chooses the data of a turn: it ends in an index, or in a local function."""
    derived = {name}
    for node in walk(loop):
        if isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(node.targets[0], ast.Name):
            if any(isinstance(part, ast.Name) and part.id in derived for part in walk(node.value)):
                derived.add(node.targets[0].id)
    for node in walk(loop):
        if isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Load):
            if any(isinstance(part, ast.Name) and part.id in derived for part in walk(node.slice)):
                return True
        elif isinstance(node, ast.Call):
            for index, argument in enumerate(node.args):
                if isinstance(argument, ast.Name) and argument.id in derived and _indexes(facts, node, index):
                    return True
    del module
    return False


def _indexes(facts: Facts, call: ast.Call, index: int) -> bool:
    """Whether a function of the script's cuts data with the argument at a position."""
    for value in facts.values(call.func):
        if not isinstance(value, Func) or isinstance(value.node, ast.Lambda):
            continue
        names = [arg.arg for arg in value.node.args.args][1 if value.bound is not None else 0 :]
        if index >= len(names):
            continue
        for node in walk(value.node):
            if isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Load):
                if any(isinstance(part, ast.Name) and part.id == names[index] for part in walk(node.slice)):
                    return True
    return False
