"""The two runs, step by step: losses, gradients, learning rates, weights, buffers."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from multicard.messages import Text
from multicard.verify.evidence import Event, Pair, Trace
from multicard.verify.verdict import Check, check

GRADIENT = (
    2e-3  # of a parameter's largest entry: the most that two correct runs have differed by is a tenth of it
)
FLOOR = 1e-2  # of the step's largest: what is smaller may be all rounding, and is compared to this
LOSS = 2e-4
UPDATE = 1e-3
KINK = 0.3
NOISE = 2e-4  # of the whole gradient, for each parameter: deep networks have a kink in every step
MOST_NOISE = 2e-2
BUFFER = 1e-3
RATE = 1e-9


def gradient_rows(event: Event) -> list[tuple[float, int, list[float]]]:
    """(relative difference, parameter, figures) of each parameter in a step of the original."""
    rows = event["against"]
    if isinstance(rows, str):
        return []
    largest = max((max(row[1], row[2]) for row in rows), default=0.0)
    if largest == 0.0:
        return [(0.0, i, row) for i, row in enumerate(rows)]
    return [(row[0] / max(row[1], row[2], FLOOR * largest), i, row) for i, row in enumerate(rows)]


TITLE_STEPS = Text("steps", "训练步")


def compared_steps(pair: Pair) -> int:
    return sum(1 for event in pair.original.of("step") if isinstance(event.get("against"), list))


def check_steps(pair: Pair) -> Check:
    """The same number of steps, at least one of them compared, and the weights moved."""
    own, other = Counter(k[0] for k in pair.own_steps), Counter(k[0] for k in pair.steps(0))
    count = compared_steps(pair)
    if not count:
        return check("steps", TITLE_STEPS, "failed", _nothing_en(pair), _nothing_zh(pair))
    moved = moves(pair.original)
    if not moved:
        return check("steps", TITLE_STEPS, "failed", "the weights never moved", "权重从未改变")
    uneven = [r for r in range(1, pair.world) if Counter(k[0] for k in pair.steps(r)) != other]
    if uneven:
        counts = [len(pair.steps(r)) for r in range(pair.world)]
        return check(
            "steps",
            TITLE_STEPS,
            "failed",
            f"the ranks made different numbers of optimizer steps: {counts}",
            f"各进程的优化步数不同：{counts}",
        )
    if own != other:
        return check(
            "steps",
            TITLE_STEPS,
            "failed",
            f"{sum(own.values())} optimizer steps in the original, {sum(other.values())} in the migrated run",
            f"原脚本走了 {sum(own.values())} 步，迁移后走了 {sum(other.values())} 步",
        )
    if pair.original.of("beyond"):
        return check(
            "steps",
            TITLE_STEPS,
            "failed",
            "the original went on training where the migrated script stopped",
            "迁移后的脚本已停止，原脚本还要继续训练",
        )
    return check(
        "steps",
        TITLE_STEPS,
        "held",
        f"{sum(own.values())} steps, {count} compared",
        f"共 {sum(own.values())} 步，逐步比较 {count} 步",
    )


def _nothing_en(pair: Pair) -> str:
    if not pair.own_steps:
        return "nothing was compared: the original made no optimizer step"
    if not pair.steps(0):
        return "nothing was compared: the migrated script made no optimizer step"
    texts = [e["against"] for e in pair.original.of("step") if isinstance(e.get("against"), str)]
    if texts:
        return f"nothing was compared: the optimizers hold different parameters ({texts[0]})"
    return "nothing was compared"


def _nothing_zh(pair: Pair) -> str:
    if not pair.own_steps:
        return "没有可比较的内容：原脚本没有执行优化步"
    if not pair.steps(0):
        return "没有可比较的内容：迁移后的脚本没有执行优化步"
    texts = [e["against"] for e in pair.original.of("step") if isinstance(e.get("against"), str)]
    if texts:
        return f"没有可比较的内容：两边优化器的参数不同（{texts[0]}）"
    return "没有可比较的内容"


def moves(trace: Trace) -> bool:
    before = [event["before"] for event in trace.of("step")]
    after = [event["together"] for event in trace.of("stepped")]
    return any(a != b for a, b in zip(before, after, strict=False))


TITLE_START = Text("initial weights", "初始权重")


def check_start(pair: Pair) -> Check:
    starts = pair.original.of("start")
    if not starts:
        return check("start", TITLE_START, "skipped", "no model to compare", "没有可比较的模型")
    worst = max(event["difference"] for event in starts)
    unmatched = sum(event["unmatched"] for event in starts)
    if worst == 0 and not unmatched:
        return check("start", TITLE_START, "held", "equal to the last bit", "逐位相同")
    if worst == 0:
        return check(
            "start",
            TITLE_START,
            "told",
            f"equal to the last bit, but for {unmatched} models that are in one run only",
            f"逐位相同，但有 {unmatched} 个模型只在一边",
        )
    return check(
        "start",
        TITLE_START,
        "told",
        f"differ by up to {worst:.2g}: drawn in another order, or loaded on one side only; copied over",
        f"最大相差 {worst:.2g}：随机数抽取顺序不同，或只有一边加载了权重；已复制为相同以便继续比较",
    )


TITLE_LOSS = Text("loss", "损失")


def losses(pair: Pair, key: tuple[int, int]) -> tuple[float, float] | None:
    """The original's loss in this step, and the mean over the ranks of theirs; the sum where there are several.

    What went backward before the step proper, for a picture or a penalty on one side only, is left out; but an
    original that takes the ranks' batches one after the other has more of them, and all count.
    """
    own = pair.own_steps.get(key)
    if own is not None and own.get("uneven"):
        return None
    theirs = [pair.steps(r)[key]["losses"] for r in range(pair.world) if key in pair.steps(r)]
    if own is None or len(theirs) < pair.world:
        return None
    mine, fewest = own["losses"], min(len(one) for one in theirs)
    if not mine or not fewest:
        return None
    times, left = divmod(len(mine), fewest)
    if left or times == 1 or pair.world % times:
        fewest = min(fewest, len(mine))
        mine = mine[-fewest:]
    others = [one[-fewest:] for one in theirs]
    if any(value is None for values in [mine, *others] for value in values):
        return None
    return sum(mine), sum(sum(values) for values in others) / pair.world


def check_loss(pair: Pair) -> Check:
    count, worst = 0, 0.0
    for key in sorted(pair.own_steps, key=lambda k: (k[1], k[0])):
        found = losses(pair, key)
        if found is None:
            continue
        count += 1
        own, other = found
        relative = abs(own - other) / max(abs(own), abs(other), 1e-6)
        worst = max(worst, relative)
        if relative > LOSS and abs(own - other) > 1e-7:
            return check(
                "loss",
                TITLE_LOSS,
                "failed",
                f"step {key[1]}: {own:.6g}, {other:.6g} in the migrated run (mean over ranks)",
                f"第 {key[1]} 步：{own:.6g}，迁移后 {other:.6g}（各进程平均）",
            )
    if not count:
        return check(
            "loss", TITLE_LOSS, "skipped", "no scalar loss was seen in both runs", "两边没有共同的标量损失"
        )
    return check(
        "loss",
        TITLE_LOSS,
        "held",
        f"{count} steps, largest difference {worst:.1e}",
        f"{count} 步，最大相对差 {worst:.1e}",
    )


TITLE_GRADIENT = Text("gradients", "梯度")


@dataclass(frozen=True)
class Gradient:
    """The largest difference of one step."""

    event: Event
    relative: float
    parameter: int
    figures: list[float]


def gradient_differences(pair: Pair) -> list[Gradient]:
    """Of each step, the parameter whose gradient differs most."""
    found = []
    for event in pair.original.of("step"):
        if isinstance(event.get("against"), list):
            relative, at, row = max(gradient_rows(event), default=(0.0, -1, [0.0, 0.0, 0.0, 1.0]))
            found.append(Gradient(event, relative, at, row))
    return found


def is_kink(pair: Pair, step: Gradient) -> bool:
    """A jump of the gradient where the loss has none: rounding decided a tie of a ReLU or a maximum."""
    if not GRADIENT < step.relative < KINK:
        return False
    found = losses(pair, (step.event["number"], step.event["step"]))
    return found is not None and abs(found[0] - found[1]) <= 1e-5 * max(abs(found[0]), abs(found[1]))


def is_noise(pair: Pair, step: Gradient) -> bool:
    """What ties come to in a deep network: a little of everything, and no part of the gradient that is too long."""
    if not is_kink(pair, step):
        return False
    rows = step.event["against"]
    square = sum(row[5] ** 2 for row in rows)
    if square == 0:
        return False
    apart = (sum(row[4] ** 2 for row in rows) / square) ** 0.5
    longer = abs(sum((row[3] - 1) * row[5] ** 2 for row in rows)) / square
    return bool(apart <= min(NOISE * len(rows), MOST_NOISE) and longer <= max(apart / 3, GRADIENT / 4))


def first_gradient_difference(pair: Pair) -> Gradient | None:
    """The first step that no rounding explains. Ties are rare; where they seem to be many, they are none."""
    differences = gradient_differences(pair)
    over = [step for step in differences if step.relative > GRADIENT]
    if all(is_noise(pair, step) for step in over):
        return None
    rare = max(2, len(differences) // 8)
    excused = (
        len(over) <= rare and len(differences) > 2 * len(over) and all(is_kink(pair, step) for step in over)
    )
    return None if excused else next(iter(over), None)


def apart(pair: Pair) -> tuple[bool, float]:
    """How far the runs are from each other: in the number of steps, and then in the first gradient that differs."""
    found = first_gradient_difference(pair)
    return len(pair.own_steps) != len(pair.steps(0)), 0.0 if found is None else found.relative


def check_gradients(pair: Pair) -> Check:
    count = compared_steps(pair)
    if not count:
        return check("gradients", TITLE_GRADIENT, "skipped", "no step was compared", "没有比较任何一步")
    found = first_gradient_difference(pair)
    if found is None:
        all_of_them = gradient_differences(pair)
        smooth = [step.relative for step in all_of_them if step.relative <= GRADIENT]
        worst, ties = max(smooth, default=0.0), len(all_of_them) - len(smooth)
        uneven = sum(1 for event in pair.original.of("step") if event.get("uneven"))
        return check(
            "gradients",
            TITLE_GRADIENT,
            "told" if ties or uneven else "held",
            f"{count} steps, largest difference {worst:.1e}"
            + (f"; {ties} more at a kink of the loss" if ties else "")
            + (f"; {uneven} more with shares of unequal size, which weigh alike" if uneven else ""),
            f"{count} 步，最大相对差 {worst:.1e}"
            + (f"；另有 {ties} 步处于损失的不可导点" if ties else "")
            + (f"；另有 {uneven} 步各进程批次大小不同，按相同权重平均" if uneven else ""),
        )
    name = pair.name_of(found.event["number"], found.parameter)
    own, other = found.figures[1:3]
    step, relative = found.event["step"], found.relative
    return check(
        "gradients",
        TITLE_GRADIENT,
        "failed",
        f"step {step}, {name}: differs by {relative:.2g} of its largest"
        f" ({own:.3g}, {other:.3g} in the migrated run)",
        f"第 {step} 步，{name}：相差其最大值的 {relative:.2g}（{own:.3g}，迁移后 {other:.3g}）",
    )


TITLE_RATE = Text("learning rate", "学习率")


def first_rate_difference(pair: Pair) -> tuple[tuple[int, int], list[float], list[float]] | None:
    theirs = pair.steps(0)
    for key in sorted(pair.own_steps, key=lambda k: (k[1], k[0])):
        if key not in theirs:
            continue
        own, other = pair.own_steps[key]["lr"], theirs[key]["lr"]
        if len(own) != len(other) or any(
            abs(a - b) > RATE + 1e-5 * max(abs(a), abs(b)) for a, b in zip(own, other, strict=False)
        ):
            return key, own, other
    return None


def first_odd_metric(pair: Pair) -> tuple[str | None, list[float]] | None:
    """A call of ReduceLROnPlateau to which the ranks came with different metrics."""
    for calls in zip(*(trace.of("plateau") for trace in pair.ranks), strict=False):
        values = [call["value"] for call in calls]
        if max(values) - min(values) > 1e-6 * max(abs(value) for value in values):
            return calls[0]["site"], values
    return None


def check_rate(pair: Pair) -> Check:
    common = pair.own_steps.keys() & pair.steps(0).keys()
    if not common:
        return check("rate", TITLE_RATE, "skipped", "no step in both runs", "两边没有共同的步")
    found = first_rate_difference(pair)
    odd = first_odd_metric(pair)
    if found is None and odd is not None:
        values = ", ".join(f"{value:.6g}" for value in odd[1])
        return check(
            "rate",
            TITLE_RATE,
            "failed",
            f"the same so far, but the scheduler is given another value on each rank: {values}",
            f"目前相同，但各进程给调度器的指标不同：{values}",
        )
    if found is None:
        return check("rate", TITLE_RATE, "held", f"{len(common)} steps", f"{len(common)} 步")
    key, own, other = found
    return check(
        "rate",
        TITLE_RATE,
        "failed",
        f"step {key[1]}: {_figures(own)}, {_figures(other)} in the migrated run",
        f"第 {key[1]} 步：{_figures(own)}，迁移后 {_figures(other)}",
    )


def _figures(values: Iterable[float]) -> str:
    return ", ".join(f"{value:.4g}" for value in values)


TITLE_TRAINED = Text("which parameters are trained", "参与训练的参数")


def check_trained(pair: Pair) -> Check:
    theirs = pair.steps(0)
    common = [key for key in sorted(pair.own_steps, key=lambda k: (k[1], k[0])) if key in theirs]
    own_shapes = {e["number"]: e["shapes"] for e in pair.original.of("optimizer")}
    their_shapes = {e["number"]: e["shapes"] for e in pair.ranks[0].of("optimizer")}
    for key in common:
        a, b = own_shapes.get(key[0]), their_shapes.get(key[0])
        if a is not None and b is not None and a != b:
            return check(
                "trained",
                TITLE_TRAINED,
                "failed",
                f"optimizer {key[0]} holds {len(a)} parameters, {len(b)} in the migrated run, or others",
                f"优化器 {key[0]} 有 {len(a)} 个参数，迁移后 {len(b)} 个，或不是同样的参数",
            )
        mine, others = _with_gradient(pair.own_steps[key]), _with_gradient(theirs[key])
        if mine is None or others is None or mine == others:
            continue
        odd = sorted(mine ^ others)
        names = ", ".join(pair.name_of(key[0], i) for i in odd[:3])
        return check(
            "trained",
            TITLE_TRAINED,
            "failed",
            f"step {key[1]}: {len(odd)} parameters have a gradient in one run only ({names})",
            f"第 {key[1]} 步：{len(odd)} 个参数只在一边有梯度（{names}）",
        )
    if not common:
        return check("trained", TITLE_TRAINED, "skipped", "no step in both runs", "两边没有共同的步")
    return check("trained", TITLE_TRAINED, "held", f"{len(common)} steps", f"{len(common)} 步")


def _with_gradient(event: Event) -> set[int] | None:
    """Parameters whose gradient is there and not all zero: an unused one may have either."""
    if "gradients" not in event:
        return None
    return {i for i, g in enumerate(event["gradients"]) if g is not None and g[1] > 0}


TITLE_UPDATE = Text("weights after each step", "每步之后的权重")


def check_updates(pair: Pair) -> Check:
    rows = [e for e in pair.original.of("stepped") if "update" in e]
    if not rows:
        return check("updates", TITLE_UPDATE, "skipped", "no step was compared", "没有比较任何一步")
    for event in rows:
        worst, _, at = event["update"]
        if worst > UPDATE:
            name = pair.name_of(event["number"], int(at))
            return check(
                "updates",
                TITLE_UPDATE,
                "failed",
                f"step {event['step']}, {name}: the optimizer moved it otherwise, by {worst:.2g} of the step",
                f"第 {event['step']} 步，{name}：优化器的更新量相差 {worst:.2g}",
            )
    worst = max(e["update"][0] for e in rows)
    return check(
        "updates",
        TITLE_UPDATE,
        "held",
        f"{len(rows)} steps, largest difference {worst:.1e}",
        f"{len(rows)} 步，最大相对差 {worst:.1e}",
    )


TITLE_MODELS = Text("frozen weights and copies of models", "冻结的权重与模型副本")


def model_pairs(pair: Pair) -> list[tuple[Event, Event]]:
    """Models of both runs at the same moment; copies of one type are matched as they agree best."""
    found: list[tuple[Event, Event]] = []
    left = list(pair.ranks[0].of("model"))
    for event in pair.original.of("model"):
        same = [
            e
            for e in left
            if (e["occasion"], e["type"], e["trained"], e["names"])
            == (event["occasion"], event["type"], event["trained"], event["names"])
        ]
        if same:
            best = min(same, key=lambda e: len(odd_weights(event, e)))
            left.remove(best)
            found.append((event, best))
    return found


def odd_weights(own: Event, other: Event) -> list[int]:
    """Which weights differ by more than rounding, as far as norm and sum tell."""
    odd = []
    for i, (a, b) in enumerate(zip(own["weights"], other["weights"], strict=True)):
        scale = max(abs(a[1]), abs(b[1]))
        if a[0] != b[0] and max(abs(a[1] - b[1]), abs(a[2] - b[2]) / 8) > 1e-4 * scale + 1e-7:
            odd.append(i)
    return odd


def first_odd_model(pair: Pair) -> tuple[Event, Event, list[int]] | None:
    for own, other in model_pairs(pair):
        odd = odd_weights(own, other)
        if odd:
            return own, other, odd
    return None


def check_models(pair: Pair) -> Check:
    """All weights, also those that no optimizer has: an encoder that was loaded, a moving average."""
    found = model_pairs(pair)
    if not found:
        return check(
            "models", TITLE_MODELS, "skipped", "no model was seen in both runs", "两边没有共同的模型"
        )
    odd = first_odd_model(pair)
    if odd is None:
        return check(
            "models", TITLE_MODELS, "held", f"looked at {len(found)} times", f"比较了 {len(found)} 次"
        )
    own, _, which = odd
    names = ", ".join(own["names"][i] for i in which[:3])
    return check(
        "models",
        TITLE_MODELS,
        "failed",
        f"{own['type']}: {len(which)} weights differ ({names})",
        f"{own['type']}：{len(which)} 个权重不同（{names}）",
    )


TITLE_BUFFERS = Text("buffers after each epoch", "每轮之后的缓冲区")


def check_buffers(pair: Pair) -> Check:
    rows = [e for e in pair.original.of("buffers") if "against" in e]
    if not rows:
        return check(
            "buffers",
            TITLE_BUFFERS,
            "skipped",
            "the models have none, or there was no epoch",
            "模型没有缓冲区，或没有完整的一轮",
        )
    worst = 0.0
    for event in rows:
        if isinstance(event["against"], str):
            return check("buffers", TITLE_BUFFERS, "failed", event["against"], event["against"])
        for name, row in zip(event["names"], event["against"], strict=True):
            relative = row[0] / max(row[1], row[2], 1e-12)
            worst = max(worst, relative)
            if relative > BUFFER and row[0] > 1e-7:
                return check(
                    "buffers",
                    TITLE_BUFFERS,
                    "failed",
                    f"epoch {event['number']}, {name}: differs by {relative:.2g} of its largest",
                    f"第 {event['number']} 轮，{name}：相差其最大值的 {relative:.2g}",
                )
    return check(
        "buffers",
        TITLE_BUFFERS,
        "held",
        f"{len(rows)} epochs, largest difference {worst:.1e}",
        f"{len(rows)} 轮，最大相对差 {worst:.1e}",
    )
