"""Make a summed or locally normalised loss that of the whole batch.

DDP averages gradients over the ranks.  For a mean over equally many samples that is the mean over all of them.  A
sum comes out N times too small; a mean over a number that differs from rank to rank (valid tokens, masked pixels)
comes out weighted wrongly.  Where a sum is added to what does not grow with the batch (a mean, a penalty of the
weights), only the sum is multiplied: `loss = fit * scale_by_ranks() + penalty`.  A ratio of sums over the batch
(Dice) is made of the sums over all ranks: `2 * sum_over_ranks((p * t).sum()) / sum_over_ranks((p + t).sum())`.  A mean
over the batch that goes into a root, a power or another loss is that of all ranks: `sqrt(mean_over_ranks(mse(p, t)))`.

A loss that compares the samples of a batch with each other (contrastive, triplets, distances of all pairs) gets those
of all ranks where it is called: `loss = triplet(all_gather_with_grad(z), all_gather_with_grad(y))`.  It is left to you
where not all that it sees of a batch passes through its arguments, or where its result meets what is this rank's own.

Before:

    criterion = nn.MSELoss(reduction="sum")
    loss = criterion(model(x), y)
    loss.backward()

After:

    criterion = nn.MSELoss(reduction="sum")
    loss = criterion(model(x), y)
    (loss * dist.get_world_size()).backward()
"""

import ast
from collections.abc import Callable, Iterator

from multicard.edits import Edit, insert_after, insert_before, wrap
from multicard.facts import Facts, Training, key
from multicard.gathering import Gathering, gathering
from multicard.interpret import Event
from multicard.libraries import CHOSEN, draws
from multicard.messages import Text
from multicard.plan import Finding, Kind
from multicard.reach import homes, passed_by
from multicard.rules.share_batches import drawn, shared_loop
from multicard.source import Module
from multicard.tree import held, nodes, walk
from multicard.values import (
    Data,
    Obj,
    averages_in,
    bent_at,
    coupled_at,
    data_of,
    mean_at,
    mixed_at,
    ratio_at,
    sums_in,
)

CODE = "MC306"
TITLE = Text("The loss of the whole batch", "整个批次的损失")

_SUM = Text(
    "the loss is a sum, and gradients are averaged over the ranks: times the world size it is the sum over all ranks",
    "损失是求和形式,而梯度会在各进程间取平均:乘以进程数才是全部样本的和",
)
_MIXED = Text(
    "a sum over the batch is added to what does not grow with it, and gradients are averaged over the ranks: only the"
    " sum must grow with the number of ranks; the value becomes that of a batch of all ranks, so divide it by their"
    " samples where you show it for each sample",
    "对批次的求和与不随批次增大的部分相加,而梯度会在各进程间取平均:只有求和部分需要随进程数放大;损失的数值因此变为"
    "全部进程合成批次的数值,按样本显示时请除以全部进程的样本数",
)
_COUNT = Text(
    "the loss is divided by a number that differs from rank to rank; where each rank counts for as much as it divided"
    " by, value and gradient are those of the batch of all ranks",
    "损失除以的数量在各进程间不同;各进程按自己所除的数量计入,损失的数值和梯度才等于全部进程合成批次的结果",
)
_PASSED = Text(
    "; a rank whose own data have none does not come here, and the others would wait for it",
    ";而自身数据没有这一项的进程不会执行到这里,其他进程会一直等待它",
)
_COUPLED = Text(
    "the samples of a batch are compared with each other here, and each rank compares those of its own batch only",
    "这里把批次内的样本互相比较,而每个进程只比较自己批次里的样本",
)
_GATHERED = Text(
    "the samples of a batch are compared with each other; gathered from all ranks, through which gradients flow, each"
    " rank computes the loss of the whole batch",
    "这里把批次内的样本互相比较;从所有进程收集后(梯度可以回传),每个进程计算的就是整个批次的损失",
)
_RATIO = Text(
    "a ratio, a root or a logarithm of sums over the batch: its mean over the ranks is not that of the whole batch, so"
    " the sums are those over all ranks, through which gradients flow; one small all-reduce each a step",
    "这是对批次求和之后的比值、方根或对数:各进程结果的平均不等于整个批次的结果,因此改为所有进程的和,梯度可以回传;"
    "每个求和每步多一次很小的 all-reduce",
)
_BENT = Text(
    "a mean over the batch is put through more than sums (a root, a power, another loss), and the mean of what the"
    " ranks get is not that of the whole batch: it is the mean over all ranks, through which gradients flow; one small"
    " all-reduce each a step",
    "批次平均值又经过了求和以外的运算(开方、乘方、另一个损失),各进程结果的平均不等于整个批次的结果,"
    "因此改为所有进程的平均,梯度可以回传;每个平均值每步多一次很小的 all-reduce",
)
_COST = Text("; one small all-reduce a step", ";每步多一次很小的 all-reduce")


def find(facts: Facts) -> Iterator[Finding]:
    """Backward passes of sums, and divisions by local counts."""
    used = {tag for event in facts.backwards for tag in getattr(event.subject, "tags", ())}
    done: set[ast.AST] = set()
    coupled = list(_trained(facts, "coupled", coupled_at, used, set()))
    gathered = {event.node: gathering(facts, event) for event in coupled}
    yield from _gathered(facts, coupled, gathered)
    whole = [found for found in gathered.values() if found is not None]
    done.update(
        event.node
        for event in facts.events(*_PARTS, dead=False)
        if any(found.holds(event) for found in whole)
    )
    gathered_in, means = frozenset(done), set(done)
    mixed = [_mixed(facts, event) for event in _trained(facts, "mixed_sum", mixed_at, used, done)]
    yield from mixed
    grown = {mixed_at(found.site.node) for found in mixed if found.edits}
    for event in facts.backwards:
        data = event.subject
        if event.node in done or not isinstance(data, Data) or not isinstance(event.node, ast.Call):
            continue
        done.add(event.node)
        if "summed" in data.tags and not data.tags & grown and _differs(facts, event):
            yield _summed(facts, event, data)
    local = list(_trained(facts, "local_mean", mean_at, used, done))
    each = {mean_at(event.node) for event in local if _one_of_each(facts, event)}
    for event in local:
        if not _sample_loop(facts, event) and not each & getattr(event.subject, "tags", frozenset()):
            for finding in _local_mean(facts, event):
                yield finding
                if finding.edits:  # from here on it is the mean over all ranks
                    means.add(event.node)
    for event in _trained(facts, "mask_mean", mean_at, used, done):
        if not _sample_loop(facts, event):
            yield _mask_mean(facts, event)
    for event in _trained(facts, "bent", bent_at, used, set(gathered_in)):
        yield from _bent(facts, event, means)
    sums: set[ast.AST] = set()
    for event in _trained(facts, "ratio", ratio_at, used, done):
        yield from _ratio(facts, event, sums)


_PARTS = ("mixed_sum", "local_mean", "mask_mean", "ratio", "backward", "average", "bent")
"""What may happen to a loss, and is of the whole batch already where its samples are."""


def _bent(facts: Facts, event: Event, done: set[ast.AST]) -> Iterator[Finding]:
    """A mean over the batch in what is no mean over samples: it becomes that over all ranks."""
    if not isinstance(event.subject, Data):
        return
    module, node = event.module, event.node
    places = [facts.run.averages[tag] for tag in averages_in(event.subject)]
    places = [(home, call) for home, call in places if call not in done]
    places.sort(key=lambda place: (place[0].name, place[0].span(place[1]).start))
    done.update(call for _, call in places)
    if not places:
        return
    ways = [way for _, call in places for way in facts.by_node.get(call, ())]
    local = any(way.kind in {"local_mean", "coupled"} for way in ways)
    kept = any(way.kind == "average" and way.grad and not facts.trains(way) and not way.dead for way in ways)
    if local or kept or any(passed_by(facts, home, call) for home, call in places):
        advice = Text(
            "put mean_over_ranks(...) of ddp_runtime round each mean in training",
            "请在训练时用 ddp_runtime 的 mean_over_ranks(...) 包住每个平均值",
        )
        yield Finding(CODE, facts.site(module, node), _BENT, (), advice, Kind.LEFT)
        return
    edits = tuple(edit for home, call in places for edit in wrap(home, call, "«mean_over_ranks»(", ")"))
    yield Finding(CODE, facts.site(module, node), _BENT, edits)


def _ratio(facts: Facts, event: Event, grown: set[ast.AST]) -> Iterator[Finding]:
    """A ratio of sums over the batch, such as a Dice loss: its sums become those over all ranks."""
    if any(model.root in facts.trained for model in event.inside) or not isinstance(event.subject, Data):
        return
    module, node = event.module, event.node
    ways = [other for other in facts.by_node.get(node, ()) if other.kind == "ratio"]
    kept = any(way.grad and not facts.trains(way) and not way.dead for way in ways)
    if kept or passed_by(facts, module, node):
        advice = Text(
            "put sum_over_ranks(...) of ddp_runtime round each sum in training",
            "请在训练时用 ddp_runtime 的 sum_over_ranks(...) 包住每个求和",
        )
        yield Finding(CODE, facts.site(module, node), _RATIO, (), advice, Kind.LEFT)
        return
    places = [facts.run.sums[tag] for tag in sums_in(event.subject)]
    edits: list[Edit] = []
    for home, call, unsure in sorted(
        places, key=lambda place: (place[0].name, place[0].span(place[1]).start)
    ):
        if call not in grown:
            grown.add(call)
            edits += wrap(home, call, "«sum_over_ranks»(", ", whole=True)" if unsure else ")")
    if edits:
        yield Finding(CODE, facts.site(module, node), _RATIO, tuple(edits))


def _trained(
    facts: Facts, kind: str, tag: Callable[[ast.AST], str], used: set[str], done: set[ast.AST]
) -> Iterator[Event]:
    """What happens to parts of losses that go backward, each place once."""
    for event in facts.events(kind, dead=False):
        if event.node in done or not facts.trains(event) or tag(event.node) not in used:
            continue
        if _differs(facts, event):
            done.add(event.node)
            yield event


def _differs(facts: Facts, event: Event) -> bool:
    """Whether each rank has data of its own in the training round an event; of the same data a sum is whole."""
    around = {key(loop) for loop in event.loops}
    trainings = [training for training in facts.trainings if key(training.loop) in around]
    return not trainings or any(
        training.loaders
        or shared_loop(facts, training) is not None
        or drawn(facts, training)
        or _noise_goes_in(facts, training)
        for training in trainings
    )


def _sample_loop(facts: Facts, event: Event) -> ast.For | None:
    """The loop over the samples of a batch round an event: what is divided there is one sample's, as on one card."""
    for loop in reversed(event.loops):
        match loop.node:
            case ast.For(iter=ast.Call(func=ast.Name(id="range"), args=[size])):
                if _counts_samples(facts, loop.module, size):
                    assert isinstance(loop.node, ast.For)
                    return loop.node
            case _:
                pass
    return None


def _one_of_each(facts: Facts, event: Event) -> bool:
    """Whether each sample of a batch has such a mean, so that all ranks have as many."""
    loop = _sample_loop(facts, event)
    if loop is None or any(isinstance(node, ast.Continue | ast.Break) for node in walk(loop)):
        return False
    return not any(
        isinstance(parent, ast.If | ast.IfExp) and parent in held(loop)
        for parent in facts.ancestors(event.module, event.node)
    )


def _counts_samples(facts: Facts, module: Module, size: ast.expr) -> bool:
    """Whether a number is that of the samples in a tensor: `x.shape[0]`, `x.size(0)`, or a name for it."""
    match size:
        case (
            ast.Subscript(value=ast.Attribute(attr="shape"), slice=ast.Constant(value=0))
            | ast.Call(func=ast.Attribute(attr="size"), args=[ast.Constant(value=0)])
        ):
            data = data_of(facts.values(size))
            return bool(data.loaders) and "size" in data.tags
        case ast.Name(id=name):
            given = [
                statement.value
                for statement in nodes(facts.scope(module, size), ast.Assign)
                if any(isinstance(target, ast.Name) and target.id == name for target in statement.targets)
            ]
            return bool(given) and not any(
                isinstance(value, ast.Name) or not _counts_samples(facts, module, value) for value in given
            )
        case _:
            return False


def _noise_goes_in(facts: Facts, training: Training) -> bool:
    """Whether a model is called in a training loop with what is drawn at random there."""
    here = [
        event
        for event in facts.events("call", "forward", dead=False)
        if any(key(loop) == key(training.loop) for loop in event.loops) and not event.inside
    ]
    return any(event.kind == "call" and draws(event.name) for event in here) and any(
        "random" in data_of(values).tags
        for event in here
        if event.kind == "forward"
        for values in event.args.values()
    )


def _summed(facts: Facts, event: Event, data: Data) -> Finding:
    place = facts.site(event.module, event.node)
    function = event.node.func if isinstance(event.node, ast.Call) else None
    if "averaged" in data.tags or not isinstance(function, ast.Attribute):
        return Finding(
            CODE,
            place,
            Text(
                "this loss adds sums over the batch to what does not grow with it, and only sums must grow with the"
                " number of ranks",
                "该损失把对批次的求和与不随批次增大的部分加在一起,而只有求和部分需要随进程数放大",
            ),
            advice=Text(
                "multiply the summed part by dist.get_world_size(), or make it a mean",
                "请把求和的部分乘以 dist.get_world_size(),或改为平均",
            ),
            kind=Kind.LEFT,
        )
    edits = wrap(event.module, function.value, "(", " * «dist».get_world_size())")
    return Finding(CODE, place, _SUM, edits)


def _mixed(facts: Facts, event: Event) -> Finding:
    module, node, place = event.module, event.node, facts.site(event.module, event.node)
    others = [other for other in facts.by_node.get(node, ()) if other.kind == "mixed_sum"]
    certain = all(other.name == event.name for other in others)
    kept = any(other.grad and not facts.trains(other) and not other.dead for other in others)
    edits = _grown(facts, module, node, event.name) if certain and not kept else ()
    if edits:
        return Finding(CODE, place, _MIXED, edits)
    advice = Text(
        "multiply the summed part by scale_by_ranks() from ddp_runtime in training",
        "请在训练时把求和的部分乘以 ddp_runtime 的 scale_by_ranks()",
    )
    return Finding(CODE, place, _MIXED, advice=advice, kind=Kind.LEFT)


def _grown(facts: Facts, module: Module, node: ast.AST, side: str) -> tuple[Edit, ...]:
    """The edits by which one side of an addition grows with the number of ranks; none where it cannot be named."""
    statement = facts.statement(module, node)
    match node, statement:
        case ast.AugAssign(target=ast.Name(id=name)), _ if side == "left":
            return _grown_before(facts, module, statement, name)
        case (
            ast.BinOp(left=ast.Name(id=name)),
            ast.Assign(targets=[ast.Name(id=target)], value=total),
        ) if side == "left" and name == target and total is node:
            return _grown_before(facts, module, statement, name)
        case ast.BinOp(), _:
            part = node.left if side == "left" else node.right
        case ast.AugAssign(), _ if side == "right":
            part = node.value
        case _:
            return ()
    atom = isinstance(part, ast.Call | ast.Name | ast.Attribute | ast.Subscript)
    return wrap(module, part, "" if atom else "(", f"{'' if atom else ')'} * «scale_by_ranks»()")


def _grown_before(facts: Facts, module: Module, statement: ast.stmt, name: str) -> tuple[Edit, ...]:
    """A sum that penalties are added to, one after the other, grows before the first of them."""
    first = statement
    for outer in facts.ancestors(module, statement):
        if isinstance(outer, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            break
        if isinstance(outer, ast.For | ast.AsyncFor | ast.While):
            own = held(statement)
            if any(
                item.id == name and isinstance(item.ctx, ast.Store) and item not in own
                for item in nodes(outer, ast.Name)
            ):
                break
            first = outer
    return (insert_before(module, first, f"{name} = {name} * «scale_by_ranks»()"),)


def _gathered(
    facts: Facts, coupled: list[Event], gathered: dict[ast.AST, Gathering | None]
) -> Iterator[Finding]:
    """Comparisons between samples: of all ranks where they can be gathered, each loss once; else said."""
    refused = {call for event in coupled if gathered[event.node] is None for call in event.calls}
    done: set[ast.AST] = set()
    for event in coupled:
        found = gathered[event.node]
        home = homes(facts)
        if (
            found is None
            or found.places & refused
            or any(passed_by(facts, home.get(place, event.module), place) for place in found.places)
        ):
            gathered[event.node] = None
            yield _coupled(facts, event)
            continue
        for place in sorted(found.places - done, key=lambda place: place.lineno):
            inside = [part for part in found.parts if part in held(place) and part not in done]
            done.update((place, *inside))
            edits = tuple(edit for part in inside for edit in found.parts[part])
            yield Finding(CODE, facts.site(home.get(place, event.module), place), _GATHERED, edits)


def _coupled(facts: Facts, event: Event) -> Finding:
    advice = Text(
        "put all_gather_with_grad(...) of ddp_runtime round what is compared, and gather labels likewise; nothing is to"
        " be done if comparing within each card's batch is enough for you",
        "请用 ddp_runtime 的 all_gather_with_grad(...) 包住参与比较的张量,标签也要同样收集;若每张卡各自批次内的比较"
        "已足够,则无需改动",
    )
    return Finding(CODE, facts.site(event.module, event.node), _COUPLED, advice=advice, kind=Kind.LEFT)


def _local_mean(facts: Facts, event: Event) -> Iterator[Finding]:
    module, node = event.module, event.node
    others = [other for other in facts.by_node.get(node, ()) if other.kind == "local_mean"]
    kept = [other for other in others if other.grad and not facts.trains(other) and not other.dead]
    given = _given(facts, module, node, kept)
    if given is None:
        yield _by_hand(facts, event)
        return
    if passed_by(facts, module, node):
        yield _by_hand(facts, event, passed_by=True)
        return
    why = Text(_COUNT.en + _COST.en, _COUNT.zh + _COST.zh)
    divides = isinstance(node, ast.BinOp | ast.AugAssign) and isinstance(node.op, ast.Div)
    if isinstance(node, ast.BinOp) and divides:
        counts = f"{_divisor(module, node.right)}{given}"
        yield Finding(CODE, facts.site(module, node), why, _by_count(module, node, counts))
    elif isinstance(node, ast.AugAssign) and divides and isinstance(node.target, ast.Name):
        name = node.target.id
        whole = f"{name} = «mean_by_count»({name}, {_divisor(module, node.value)})"
        yield Finding(CODE, facts.site(module, node), why, (insert_after(module, node, whole),))
    elif (
        isinstance(node, ast.Call)
        and _one_kind(facts, node, others)
        and (count := _counted(module, node, event))
    ):
        yield Finding(CODE, facts.site(module, node), why, _by_count(module, node, f"{count}{given}"))
    else:
        yield _by_hand(facts, event)


def _by_count(module: Module, mean: ast.expr, counts: str) -> tuple[Edit, ...]:
    return wrap(module, mean, "«mean_by_count»(", f", {counts})")


def _one_kind(facts: Facts, call: ast.Call, ways: list[Event]) -> bool:
    """Whether all that may be called here divides by the same count: a loss that a setting chooses may not."""
    called = {value.name for value in facts.values(call.func) if isinstance(value, Obj)}
    return len(called) <= 1 and len({way.name for way in ways}) <= 1


def _given(facts: Facts, module: Module, node: ast.AST, kept: list[Event]) -> str | None:
    """The argument that tells training from evaluation where a mean serves both; None where nothing does.

    An evaluation that records gradients of the loss, but not of the outputs, is told by the outputs.
    """
    if not kept:
        return ""
    part = node.args[0] if isinstance(node, ast.Call) and node.args else None
    if isinstance(node, ast.BinOp):
        part = node.left
    told = part is not None and _plain(part) and all(_without_gradients(facts, other) for other in kept)
    return f", given={module.text(part)}" if told and part is not None else None


def _without_gradients(facts: Facts, event: Event) -> bool:
    """Whether the outputs that a loss is computed of in an evaluation were made without gradients."""
    loops = [loop for loop in event.loops if loop.loaders]
    made = [
        other
        for other in facts.events("forward", dead=False)
        if loops and any(key(loop) == key(loops[-1]) for loop in other.loops) and not other.inside
    ]
    models = [other for other in made if isinstance(other.subject, Obj) and other.subject.kind != "criterion"]
    return bool(models) and not any(other.grad for other in models)


def _mask_mean(facts: Facts, event: Event) -> Finding:
    """A mask that is divided by its own mean makes the mean over it one over what it lets through."""
    module, node = event.module, event.node
    mean = (
        node.right if isinstance(node, ast.BinOp) else node.value if isinstance(node, ast.AugAssign) else None
    )
    others = [other for other in facts.by_node.get(node, ()) if other.kind == event.kind]
    if mean is None or any(_parts_ranks(facts, other) for other in others):
        return _by_hand(facts, event)
    why = Text(_COUNT.en + _COST.en, _COUNT.zh + _COST.zh)
    edits = wrap(module, mean, "«mean_over_ranks»(", ")")
    return Finding(CODE, facts.site(module, mean), why, edits)


def _parts_ranks(facts: Facts, event: Event) -> bool:
    """Whether gradients are recorded in an evaluation of shares, which ranks may have differently many batches of."""
    return (
        event.grad
        and not event.dead
        and not facts.trains(event)
        and any(facts.understood(loop) for loop in event.loop_nodes())
    )


def _counted(module: Module, node: ast.Call, event: Event) -> str:
    """What a loss or a mean divides by; nothing where it cannot be written a second time."""
    target = node.args[1] if len(node.args) > 1 else None
    if not node.args and isinstance(node.func, ast.Attribute):
        target = node.func.value
    if target is None or (event.name == CHOSEN and not _plain(target)):
        return ""
    return event.name.replace("{target}", module.text(target))


_RESHAPED = frozenset(
    {
        "argmax",
        "clone",
        "contiguous",
        "cuda",
        "detach",
        "flatten",
        "float",
        "int",
        "long",
        "masked_select",
        "permute",
        "reshape",
        "squeeze",
        "t",
        "to",
        "transpose",
        "type",
        "unsqueeze",
        "view",
    }
)


def _plain(node: ast.expr) -> bool:
    """Whether an expression may stand a second time: names, parts of them, and the same in another shape."""
    match node:
        case ast.Name() | ast.Constant():
            return True
        case ast.Attribute(value=owner):
            return _plain(owner)
        case ast.Subscript(value=owner, slice=part):
            return _plain(owner) and not any(isinstance(item, ast.Call) for item in walk(part))
        case ast.Call(func=ast.Attribute(value=owner, attr=attr), keywords=[]) if attr in _RESHAPED:
            return _plain(owner) and not any(
                isinstance(item, ast.Call) for argument in node.args for item in walk(argument)
            )
        case _:
            return False


def _divisor(module: Module, node: ast.expr) -> str:
    """The counts for `mean_by_count`: the divisor, and what was counted where it is kept from being zero."""
    text = module.text(node)
    match node:
        case ast.Call(func=ast.Attribute(value=count, attr="clamp" | "clamp_" | "clamp_min" | "clip")):
            return f"{text}, {module.text(count)}"
        case (
            ast.Call(func=ast.Name(id="max"), args=[ast.Constant(), count])
            | ast.Call(func=ast.Name(id="max"), args=[count, ast.Constant()])
        ):
            return f"{text}, {module.text(count)}"
        case ast.BinOp(left=count, op=ast.Add(), right=ast.Constant()):
            return f"{text}, {module.text(count)}"
        case ast.BinOp(left=ast.Constant(), op=ast.Add(), right=count):
            return f"{text}, {module.text(count)}"
        case _:
            return text


def _by_hand(facts: Facts, event: Event, *, passed_by: bool = False) -> Finding:
    why = Text(_COUNT.en + _PASSED.en, _COUNT.zh + _PASSED.zh) if passed_by else _COUNT
    return Finding(
        CODE,
        facts.site(event.module, event.node),
        why,
        advice=Text(
            "put mean_by_count(loss, count) of ddp_runtime round the loss in training, and not in evaluation",
            "请在训练时用 ddp_runtime 的 mean_by_count(loss, count) 包住损失,验证时不要",
        ),
        kind=Kind.LEFT,
    )
