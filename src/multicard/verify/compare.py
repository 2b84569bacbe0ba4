"""The checks: each asks one question of the two runs' records, and answers it by itself.

Pure functions of what was recorded, without torch, so that each can be tested on a record made by hand.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from multicard.messages import Text
from multicard.verify import printed
from multicard.verify.verdict import Check, State

Event = dict[str, Any]
Key = tuple[str, int]

GRADIENT = 2e-3  # of a parameter's largest entry: the most that two correct runs have differed by is a tenth of it
FLOOR = 1e-2  # a gradient smaller than this part of the step's largest is compared to that part: it may be all rounding
LOSS = 2e-4
UPDATE = 0.05
BUFFER = 1e-3
RATE = 1e-9


@dataclass(frozen=True)
class Trace:
    """What one process recorded and printed."""

    events: tuple[Event, ...]
    lines: tuple[str, ...] = ()
    complaints: str = ""

    @cached_property
    def kinds(self) -> dict[str, list[Event]]:
        found: dict[str, list[Event]] = {}
        for event in self.events:
            found.setdefault(event["kind"], []).append(event)
        return found

    def of(self, kind: str) -> list[Event]:
        return self.kinds.get(kind, [])

    def first(self, kind: str) -> Event | None:
        return next(iter(self.of(kind)), None)


@dataclass(frozen=True)
class Passage:
    """One time through one loader, over all ranks."""

    key: Key
    number: int
    site: str | None
    shares: dict[int, list[int]]  # rank -> samples, in the order dealt
    batches: dict[int, list[list[int]]]
    complete: bool
    whole: bool  # the epoch to its end is known, whether or not it was used


@dataclass(frozen=True)
class Pair:
    """Both runs."""

    original: Trace
    ranks: tuple[Trace, ...]
    shown: Callable[[str], str] = field(default=lambda site: site)

    @property
    def world(self) -> int:
        return len(self.ranks)

    @cached_property
    def loaders(self) -> dict[Key, Event]:
        """The migrated script's loaders, as the first rank that has each built it."""
        found: dict[Key, Event] = {}
        for rank in self.ranks:
            for event in rank.of("loader"):
                found.setdefault(key_of(event), event)
        return found

    @cached_property
    def training(self) -> set[Key]:
        return {key_of(event) for rank in self.ranks for event in rank.of("trains")}

    @cached_property
    def counterparts(self) -> dict[Key, Event]:
        """The original's loader for each of the migrated script's."""
        return {tuple(e["counterpart"]): e for e in self.original.of("loader") if e.get("counterpart")}

    @cached_property
    def passages(self) -> dict[tuple[Key, int], Passage]:
        return passages(self.ranks)

    @cached_property
    def own_passages(self) -> dict[tuple[Key, int], Passage]:
        return passages((self.original,))

    def steps(self, rank: int) -> dict[tuple[int, int], Event]:
        return {(e["number"], e["step"]): e for e in self.ranks[rank].of("step")}

    @cached_property
    def own_steps(self) -> dict[tuple[int, int], Event]:
        return {(e["number"], e["step"]): e for e in self.original.of("step")}

    def name_of(self, optimizer: int, parameter: int) -> str:
        for trace in (self.original, self.ranks[0]):
            for event in trace.of("names"):
                if event["number"] == optimizer and 0 <= parameter < len(event["names"]):
                    return str(event["names"][parameter])
        return f"parameter {parameter}"


def key_of(event: Event) -> Key:
    return (event["key"][0], event["key"][1])


def passages(ranks: Sequence[Trace]) -> dict[tuple[Key, int], Passage]:
    found: dict[tuple[Key, int], dict[str, Any]] = {}
    for rank, trace in enumerate(ranks):
        for event in trace.events:
            kind = event["kind"]
            if kind not in {"pass", "batch", "passed"}:
                continue
            entry = found.setdefault(
                (key_of(event), event["number"]), {"site": None, "batches": {}, "orders": {}, "ends": {}}
            )
            if kind == "pass":
                entry["site"] = entry["site"] or event.get("site")
                entry["batches"].setdefault(rank, [])
            elif kind == "batch":
                entry["batches"].setdefault(rank, []).append(event["indices"])
            else:
                entry["ends"][rank] = event["how"]
                if event.get("order") is not None:
                    entry["orders"][rank] = event["order"]
    result = {}
    for (key, number), entry in found.items():
        known = {r: entry["orders"].get(r, batches) for r, batches in entry["batches"].items()}
        ends = entry["ends"]
        complete = bool(known) and all(ends.get(r) == "end" for r in known)
        whole = bool(known) and all(ends.get(r) == "end" or r in entry["orders"] for r in known)
        shares = {r: [i for batch in batches for i in batch] for r, batches in known.items()}
        result[(key, number)] = Passage(key, number, entry["site"], shares, known, complete, whole)
    return result


def check(name: str, title: Text, state: State, en: str, zh: str) -> Check:
    return Check(name, title, state, Text(en, zh))


# ---------------------------------------------------------------- the two runs, step by step


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
            f"the original made {sum(own.values())} optimizer steps, the migrated script {sum(other.values())}",
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
        "steps", TITLE_STEPS, "held", f"{sum(own.values())} steps, {count} compared", f"共 {sum(own.values())} 步，逐步比较 {count} 步"
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
        return check("start", TITLE_START, "skipped", "no optimizer to compare", "没有可比较的优化器")
    if not all(event["fits"] for event in starts):
        return check(
            "start",
            TITLE_START,
            "failed",
            "the optimizers hold parameters of different number or shape",
            "两边优化器中的参数个数或形状不同",
        )
    worst = max(event["difference"] for event in starts)
    if worst == 0:
        return check("start", TITLE_START, "held", "equal to the last bit", "逐位相同")
    return check(
        "start",
        TITLE_START,
        "told",
        f"differ by up to {worst:.2g}: drawn in another order, or loaded on one side only; copied over to compare the rest",
        f"最大相差 {worst:.2g}：随机数抽取顺序不同，或只有一边加载了权重；已复制为相同以便继续比较",
    )


TITLE_LOSS = Text("loss", "损失")


def losses(pair: Pair, key: tuple[int, int]) -> tuple[float, float] | None:
    """The original's last loss before this step, and the mean over the ranks of theirs."""
    own = pair.own_steps.get(key)
    theirs = [pair.steps(r).get(key) for r in range(pair.world)]
    if own is None or any(event is None for event in theirs):
        return None
    counts = {len(event["losses"]) for event in [own, *theirs] if event is not None}
    last = min(counts)
    if not last:
        return None
    mine = own["losses"][-last:]
    others = [event["losses"][-last:] for event in theirs if event is not None]
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
        return check("loss", TITLE_LOSS, "skipped", "no scalar loss was seen in both runs", "两边没有共同的标量损失")
    return check("loss", TITLE_LOSS, "held", f"{count} steps, largest difference {worst:.1e}", f"{count} 步，最大相对差 {worst:.1e}")


TITLE_GRADIENT = Text("gradients", "梯度")


def first_gradient_difference(pair: Pair) -> tuple[Event, float, int, list[float]] | None:
    for event in pair.original.of("step"):
        if not isinstance(event.get("against"), list):
            continue
        relative, at, row = max(gradient_rows(event), default=(0.0, -1, []))
        if relative > GRADIENT:
            return event, relative, at, row
    return None


def check_gradients(pair: Pair) -> Check:
    count = compared_steps(pair)
    if not count:
        return check("gradients", TITLE_GRADIENT, "skipped", "no step was compared", "没有比较任何一步")
    found = first_gradient_difference(pair)
    if found is None:
        worst = max(
            (max(gradient_rows(e), default=(0.0, 0, []))[0] for e in pair.original.of("step") if isinstance(e.get("against"), list)),
            default=0.0,
        )
        return check(
            "gradients", TITLE_GRADIENT, "held", f"{count} steps, largest difference {worst:.1e}", f"{count} 步，最大相对差 {worst:.1e}"
        )
    event, relative, at, row = found
    name = pair.name_of(event["number"], at)
    return check(
        "gradients",
        TITLE_GRADIENT,
        "failed",
        f"step {event['step']}, {name}: differs by {relative:.2g} of its largest ({row[1]:.3g}, {row[2]:.3g} in the migrated run)",
        f"第 {event['step']} 步，{name}：相差其最大值的 {relative:.2g}（{row[1]:.3g}，迁移后 {row[2]:.3g}）",
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


def check_rate(pair: Pair) -> Check:
    common = pair.own_steps.keys() & pair.steps(0).keys()
    if not common:
        return check("rate", TITLE_RATE, "skipped", "no step in both runs", "两边没有共同的步")
    found = first_rate_difference(pair)
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
    return check("updates", TITLE_UPDATE, "held", f"{len(rows)} steps, largest difference {worst:.1e}", f"{len(rows)} 步，最大相对差 {worst:.1e}")


TITLE_BUFFERS = Text("buffers after each epoch", "每轮之后的缓冲区")


def check_buffers(pair: Pair) -> Check:
    rows = [e for e in pair.original.of("buffers") if "against" in e]
    if not rows:
        return check("buffers", TITLE_BUFFERS, "skipped", "the models have none, or there was no epoch", "模型没有缓冲区，或没有完整的一轮")
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
    return check("buffers", TITLE_BUFFERS, "held", f"{len(rows)} epochs, largest difference {worst:.1e}", f"{len(rows)} 轮，最大相对差 {worst:.1e}")


# ---------------------------------------------------------------- between ranks


def alike(a: list[float] | None, b: list[float] | None) -> bool:
    """Two sketches of one tensor: equal to the bit, or to rounding."""
    if a is None or b is None:
        return (a is None or a[1] == 0) and (b is None or b[1] == 0)
    if a[0] == b[0]:
        return True
    scale = max(abs(a[1]), abs(b[1]))
    return abs(a[1] - b[1]) <= 1e-6 * scale and abs(a[2] - b[2]) <= 1e-6 * scale


@dataclass(frozen=True)
class Drift:
    """The first moment at which ranks are not alike."""

    what: str  # start, gradient, weights, between
    optimizer: int
    step: int
    rank: int
    parameters: tuple[int, ...]
    event: Event


def first_drift(pair: Pair) -> Drift | None:
    zero = pair.steps(0)
    done = {(e["number"], e["step"]): e for e in pair.ranks[0].of("stepped")}
    others = [
        (r, pair.steps(r), {(e["number"], e["step"]): e for e in pair.ranks[r].of("stepped")}) for r in range(1, pair.world)
    ]
    for event in pair.ranks[0].of("step"):
        key = (event["number"], event["step"])
        for rank, steps, stepped in others:
            other = steps.get(key)
            if other is None:
                continue
            if event["before"] != other["before"]:
                before = (key[0], key[1] - 1)
                agreed = before in done and before in stepped and done[before]["together"] == stepped[before]["together"]
                if key[1] == 0 or agreed:
                    return Drift("start" if key[1] == 0 else "between", *key, rank, (), event)
            if "gradients" in event and "gradients" in other:
                odd = [
                    i
                    for i, (a, b) in enumerate(zip(event["gradients"], other["gradients"], strict=False))
                    if not alike(a, b)
                ]
                if odd:
                    return Drift("gradient", *key, rank, tuple(odd), zero[key])
            if key in done and key in stepped:
                odd = _odd_weights(done[key], stepped[key])
                if odd:
                    return Drift("weights", *key, rank, tuple(odd), event)
    return None


def _odd_weights(a: Event, b: Event) -> list[int]:
    if a.get("weights") is None or b.get("weights") is None:
        return []
    return [i for i, (x, y) in enumerate(zip(a["weights"], b["weights"], strict=False)) if not alike(x, y)]


TITLE_RANKS = Text("ranks have the same weights", "各进程权重一致")


def check_ranks(pair: Pair) -> Check:
    if pair.world == 1:
        return check("ranks", TITLE_RANKS, "skipped", "one rank only", "只有一个进程")
    if not pair.steps(0):
        return check("ranks", TITLE_RANKS, "skipped", "no step was made", "没有执行任何一步")
    drift = first_drift(pair)
    if drift is None:
        return check("ranks", TITLE_RANKS, "held", f"{len(pair.steps(0))} steps", f"{len(pair.steps(0))} 步")
    names = ", ".join(pair.name_of(drift.optimizer, i) for i in drift.parameters[:3])
    what = {
        "start": ("begin with other weights", "初始权重不同"),
        "between": ("have other weights, changed since the step before", "的权重在上一步之后变得不同"),
        "gradient": (f"have other gradients ({names})", f"的梯度不同（{names}）"),
        "weights": (f"have other weights after it ({names})", f"在这一步之后权重不同（{names}）"),
    }[drift.what]
    return check(
        "ranks",
        TITLE_RANKS,
        "failed",
        f"step {drift.step}: ranks 0 and {drift.rank} {what[0]}",
        f"第 {drift.step} 步：进程 0 与 {drift.rank} {what[1]}",
    )


TITLE_RANK_BUFFERS = Text("ranks evaluate with the same buffers", "评估时各进程缓冲区一致")


def first_stale(pair: Pair) -> tuple[Event, int, str] | None:
    """An evaluation to which the ranks came with different buffers."""
    for number, event in enumerate(pair.ranks[0].of("evaluated")):
        for rank in range(1, pair.world):
            others = pair.ranks[rank].of("evaluated")
            if number >= len(others) or others[number]["names"] != event["names"]:
                continue
            for name, a, b in zip(event["names"], event["buffers"], others[number]["buffers"], strict=True):
                if a[0] != b[0]:
                    return event, rank, name
    return None


def check_rank_buffers(pair: Pair) -> Check:
    evaluated = [len(trace.of("evaluated")) for trace in pair.ranks]
    if pair.world == 1 or min(evaluated) == 0:
        return check(
            "rank-buffers",
            TITLE_RANK_BUFFERS,
            "skipped",
            "no wrapped model with buffers was evaluated on all ranks",
            "没有带缓冲区的模型在所有进程上评估",
        )
    stale = first_stale(pair)
    if stale is None:
        return check("rank-buffers", TITLE_RANK_BUFFERS, "held", f"{min(evaluated)} evaluations", f"{min(evaluated)} 次评估")
    _, rank, name = stale
    return check(
        "rank-buffers",
        TITLE_RANK_BUFFERS,
        "failed",
        f"ranks 0 and {rank} evaluated with different {name}",
        f"进程 0 与 {rank} 评估时 {name} 不同",
    )


# ---------------------------------------------------------------- samples

TITLE_DEALT = Text("each training sample dealt once per epoch", "每轮每个训练样本恰好一次")


@dataclass(frozen=True)
class Dealing:
    """What is wrong with one pass over training data, and how much of it is padding."""

    passage: Passage
    kind: str  # right, same, doubled, missing, foreign, order
    count: int
    padding: int
    samples: int


def expected(pair: Pair, key: Key) -> set[int] | None:
    """The samples that the original trains on with this loader."""
    own = pair.counterparts.get(key)
    if own is None or own.get("base") is None:
        return None
    if own.get("own_first") is not None:
        return set(own["own_first"])
    return set(range(own["base"])) if own["own"] == own["base"] else None


def dealing(pair: Pair, passage: Passage) -> Dealing:
    loader = pair.loaders[passage.key]
    counts = Counter(i for share in passage.shares.values() for i in share)
    batch = loader.get("batch_size") or max((len(b) for bs in passage.batches.values() for b in bs), default=1)
    total, distinct = sum(counts.values()), len(counts)
    doubled = total - distinct
    shares = [share for _, share in sorted(passage.shares.items())]
    if len(shares) > 1 and shares[0] and all(share == shares[0] for share in shares[1:]):
        return Dealing(passage, "same", doubled, 0, distinct)
    replacement = loader.get("replacement") or (pair.counterparts.get(passage.key) or {}).get("replacement")
    wanted = expected(pair, passage.key)
    if wanted is not None:
        foreign = [i for i in counts if i not in wanted]
        if foreign:
            return Dealing(passage, "foreign", len(foreign), 0, distinct)
    if replacement:
        return Dealing(passage, "right", 0, 0, distinct)
    if doubled > max(pair.world - 1, 0) and doubled > _padding_of_batches(passage, batch, pair.world):
        return Dealing(passage, "doubled", doubled, 0, distinct)
    if wanted is not None and passage.whole:
        missing = len(wanted) - distinct
        if missing >= batch * pair.world + pair.world:
            return Dealing(passage, "missing", missing, doubled, distinct)
    return Dealing(passage, "right", 0, doubled, distinct)


def _padding_of_batches(passage: Passage, batch: int, world: int) -> int:
    """Whole batches dealt twice at the end of an epoch, so that all ranks have as many."""
    last = [batches[-1] for batches in passage.batches.values() if batches]
    again = sum(1 for one in last if any(one == two for bs in passage.batches.values() for two in bs[:-1]))
    return again * batch if again < world else 0


def training_passages(pair: Pair) -> list[Passage]:
    found = [p for (key, _), p in pair.passages.items() if key in pair.training and any(p.shares.values())]
    return sorted(found, key=lambda p: (p.key, p.number))


def first_bad_dealing(pair: Pair) -> Dealing | None:
    return next((d for p in training_passages(pair) if (d := dealing(pair, p)).kind != "right"), None)


def check_dealt(pair: Pair) -> Check:
    found = training_passages(pair)
    if not found:
        return check(
            "dealt",
            TITLE_DEALT,
            "skipped",
            "no DataLoader dealt training samples by index, so who had which cannot be told",
            "训练数据不经 DataLoader 按下标取出，无法判断样本归属",
        )
    bad = first_bad_dealing(pair)
    if bad is None:
        deals = [dealing(pair, p) for p in found]
        padding = max(d.padding for d in deals)
        if padding:
            return check(
                "dealt",
                TITLE_DEALT,
                "told",
                f"{len(found)} epochs; {padding} of {max(d.samples for d in deals)} samples repeated, so that all ranks have as many",
                f"{len(found)} 轮；{max(d.samples for d in deals)} 个样本中有 {padding} 个重复，用于补齐各进程的数量",
            )
        return check("dealt", TITLE_DEALT, "held", f"{len(found)} epochs", f"{len(found)} 轮")
    texts = {
        "same": ("all ranks had the same samples", "所有进程拿到相同的样本"),
        "doubled": (f"{bad.count} samples dealt more than once", f"{bad.count} 个样本被重复分发"),
        "missing": (f"{bad.count} samples never dealt", f"{bad.count} 个样本从未分发"),
        "foreign": (f"{bad.count} samples that the original does not train on", f"{bad.count} 个样本不在原脚本的训练集中"),
    }[bad.kind]
    return check("dealt", TITLE_DEALT, "failed", f"epoch {bad.passage.number}: {texts[0]}", f"第 {bad.passage.number} 轮：{texts[1]}")


TITLE_ORDER = Text("order of training samples", "训练样本的顺序")


def order_of(passage: Passage) -> list[int]:
    """The samples of an epoch as one process would have had them."""
    shares = [share for _, share in sorted(passage.shares.items())]
    longest = max((len(share) for share in shares), default=0)
    return [share[at] for at in range(longest) for share in shares if at < len(share)]


@dataclass(frozen=True)
class Order:
    kind: str  # right, repeated, unshuffled, shuffled, sampler
    passage: Passage | None
    key: Key | None
    epochs: int = 0


PLAIN = {"RandomSampler", "SequentialSampler", "SubsetRandomSampler", "BatchSampler", None}


def judged_order(pair: Pair) -> Order:
    most = 0
    for key in sorted(pair.training):
        own = pair.counterparts.get(key)
        passes = [p for p in training_passages(pair) if p.key == key and len(order_of(p)) > 2]  # noqa: PLR2004
        if not passes:
            continue
        orders = [order_of(p) for p in passes]
        shuffles = None if own is None else own.get("shuffles")
        theirs = pair.loaders[key]
        if own is not None and (
            (own["sampler"] not in PLAIN and theirs["sampler"] == "DistributedSampler")
            or (own.get("batch_sampler") not in PLAIN and theirs.get("batch_sampler") == "BatchSampler")
            or (own.get("replacement") and not theirs.get("replacement") and _each_once(passes))
        ):
            return Order("sampler", passes[0], key)
        ascending = [order == sorted(order) for order in orders]
        if shuffles and len(orders[0]) > 8 and all(ascending):  # noqa: PLR2004
            return Order("unshuffled", passes[0], key)
        if shuffles is False and not all(ascending) and _descends(orders):
            return Order("shuffled", passes[0], key)
        if shuffles or not all(ascending):
            again = next((i for i in range(1, len(orders)) if _same(orders[i], orders[i - 1])), None)
            if again is not None and shuffles is not False:
                return Order("repeated", passes[again], key)
        most = max(most, len(orders))
    return Order("right", None, None, most)


def _each_once(passes: list[Passage]) -> bool:
    return all(max(Counter(order_of(p)).values()) <= 1 + (len(p.shares) > 1 and _tail(p)) for p in passes if p.whole)


def _tail(passage: Passage) -> int:
    counts = Counter(order_of(passage))
    return 1 if sum(counts.values()) - len(counts) < len(passage.shares) else 0


def _descends(orders: list[list[int]]) -> bool:
    """Out of order in a way that neither interleaved nor contiguous shares explain: most neighbours."""
    order = orders[0]
    falls = sum(1 for a, b in zip(order, order[1:], strict=False) if b < a)
    return falls > len(order) // 4


def _same(a: list[int], b: list[int]) -> bool:
    n = min(len(a), len(b))
    return n > 4 and a[:n] == b[:n]  # noqa: PLR2004


def check_order(pair: Pair) -> Check:
    if not training_passages(pair):
        return check("order", TITLE_ORDER, "skipped", "no DataLoader dealt training samples by index", "训练数据不经 DataLoader 按下标取出")
    order = judged_order(pair)
    match order.kind:
        case "repeated":
            assert order.passage is not None
            n = order.passage.number
            return check("order", TITLE_ORDER, "failed", f"epoch {n} came in the order of epoch {n - 1}", f"第 {n} 轮与第 {n - 1} 轮顺序相同")
        case "unshuffled":
            return check("order", TITLE_ORDER, "failed", "the original shuffles, the migrated script does not", "原脚本打乱顺序，迁移后没有")
        case "shuffled":
            return check("order", TITLE_ORDER, "failed", "the original keeps the order, the migrated script shuffles", "原脚本保持顺序，迁移后打乱了")
        case "sampler":
            return check("order", TITLE_ORDER, "failed", "the original's own sampler is not used any more", "原脚本自己的采样器没有被使用")
        case _:
            if order.epochs < 2:  # noqa: PLR2004
                return check("order", TITLE_ORDER, "skipped", "one epoch only: nothing to compare its order with", "只有一轮，无从比较顺序")
            return check("order", TITLE_ORDER, "held", f"{order.epochs} epochs", f"{order.epochs} 轮")


TITLE_CONTENT = Text("samples hold the same data", "相同下标的样本内容相同")


@dataclass(frozen=True)
class Content:
    compared: int
    differing: int
    ranks: tuple[int, ...]
    key: Key | None


def judged_content(pair: Pair) -> Content:
    theirs: dict[tuple[Key, int, int], dict[int, int]] = {}
    for rank, trace in enumerate(pair.ranks):
        for event in trace.of("batch"):
            if event.get("firsts"):
                theirs.setdefault((key_of(event), event["number"], event["at"]), {})[rank] = event["firsts"][0]
    counterpart = {key_of(e): tuple(e["counterpart"]) for e in pair.original.of("loader") if e.get("counterpart")}
    compared, odd, ranks, where = 0, 0, set(), None
    for event in pair.original.of("batch"):
        key = counterpart.get(key_of(event))
        if key is None or key not in pair.training:
            continue
        others = theirs.get((key, event["number"], event["at"]), {})
        if len(event.get("firsts", [])) != pair.world:
            continue
        for rank, value in enumerate(event["firsts"]):
            if rank in others:
                compared += 1
                if others[rank] != value:
                    odd += 1
                    ranks.add(rank)
                    where = key
    return Content(compared, odd, tuple(sorted(ranks)), where)


def check_content(pair: Pair) -> Check:
    content = judged_content(pair)
    if not content.compared:
        return check("content", TITLE_CONTENT, "skipped", "no training samples to compare", "没有可比较的训练样本")
    if not content.differing:
        return check("content", TITLE_CONTENT, "held", f"{content.compared} samples looked at", f"抽查 {content.compared} 个样本")
    everywhere = len(content.ranks) == pair.world
    return check(
        "content",
        TITLE_CONTENT,
        "failed",
        f"{content.differing} of {content.compared} samples differ"
        + (", on every rank: the data set draws random numbers of its own" if everywhere else f", on ranks {list(content.ranks)}"),
        f"{content.compared} 个样本中有 {content.differing} 个不同"
        + ("，每个进程都有：数据集使用了自己的随机数生成器" if everywhere else f"，在进程 {list(content.ranks)} 上"),
    )


TITLE_EVALUATED = Text("each validation sample counted once", "每个验证样本恰好统计一次")


@dataclass(frozen=True)
class Evaluated:
    kind: str  # right, everywhere, one, padded, doubled, missing, never
    count: int
    passage: Passage | None
    key: Key | None


def judged_evaluation(pair: Pair) -> list[Evaluated]:
    found = []
    for key, own in pair.counterparts.items():
        if key in pair.training:
            continue
        own_key = key_of(own)
        wanted = [p for (k, _), p in pair.own_passages.items() if k == own_key and p.complete and p.shares.get(0)]
        if not wanted:
            continue
        reference = Counter(wanted[0].shares[0])
        theirs = [
            p
            for (k, _), p in pair.passages.items()
            if k == key and any(p.shares.values()) and p.complete
        ]
        if not theirs:
            continue
        found += [_counted(pair, p, reference) for p in theirs]
    return found


def _counted(pair: Pair, passage: Passage, reference: Counter[int]) -> Evaluated:
    shares = [Counter(share) for share in passage.shares.values()]
    if all(share == reference for share in shares):
        return Evaluated("everywhere" if len(shares) > 1 else "one", 0, passage, passage.key)
    total: Counter[int] = sum(shares, Counter())
    if total == reference:
        return Evaluated("right", 0, passage, passage.key)
    extra, missing = sum((total - reference).values()), sum((reference - total).values())
    if missing:
        return Evaluated("missing", missing, passage, passage.key)
    return Evaluated("padded" if extra < pair.world else "doubled", extra, passage, passage.key)


def check_evaluated(pair: Pair) -> Check:
    found = judged_evaluation(pair)
    if not found:
        return check(
            "evaluated",
            TITLE_EVALUATED,
            "skipped",
            "no evaluation went through a whole DataLoader in both runs",
            "两边没有经过完整 DataLoader 的评估",
        )
    bad = next((e for e in found if e.kind in {"padded", "doubled", "missing"}), None)
    if bad is None:
        everywhere = sum(1 for e in found if e.kind == "everywhere")
        if everywhere:
            return check(
                "evaluated",
                TITLE_EVALUATED,
                "held",
                f"{len(found)} evaluations, {everywhere} of them whole on every rank",
                f"{len(found)} 次评估，其中 {everywhere} 次在每个进程上完整进行",
            )
        return check("evaluated", TITLE_EVALUATED, "held", f"{len(found)} evaluations", f"{len(found)} 次评估")
    texts = {
        "padded": (f"{bad.count} samples counted twice, to pad the ranks' shares", f"{bad.count} 个样本因补齐被统计两次"),
        "doubled": (f"{bad.count} samples counted more than once", f"{bad.count} 个样本被重复统计"),
        "missing": (f"{bad.count} samples not counted", f"{bad.count} 个样本没有被统计"),
    }[bad.kind]
    return check("evaluated", TITLE_EVALUATED, "failed", *texts)


# ---------------------------------------------------------------- what they print and write

TITLE_PRINTED = Text("printed numbers", "打印的数值")


def compared_lines(pair: Pair) -> printed.Comparison:
    return printed.compare(pair.original.lines, pair.ranks[0].lines)


def check_printed(pair: Pair) -> Check:
    found = compared_lines(pair)
    if found.differences:
        d = found.differences[0]
        return check(
            "printed",
            TITLE_PRINTED,
            "failed",
            f"{d.own!r}, {d.other!r} in the migrated run; {len(found.differences)} numbers differ",
            f"{d.own!r}，迁移后 {d.other!r}；共 {len(found.differences)} 个数值不同",
        )
    if not found.numbers:
        return check("printed", TITLE_PRINTED, "skipped", "no line of one shape with numbers in both runs", "两边没有相同格式的数值行")
    if found.missing:
        return check(
            "printed",
            TITLE_PRINTED,
            "told",
            f"{found.numbers} numbers agree; not printed, or less often: {found.missing[0]!r}"
            + (f" and {len(found.missing) - 1} more" if len(found.missing) > 1 else ""),
            f"{found.numbers} 个数值一致；没有打印或次数更少：{found.missing[0]!r}"
            + (f" 等 {len(found.missing)} 种" if len(found.missing) > 1 else ""),
        )
    return check("printed", TITLE_PRINTED, "held", f"{found.numbers} numbers in {found.lines} lines", f"{found.lines} 行共 {found.numbers} 个数值")


TITLE_ONCE = Text("each line printed by one rank", "每行只由一个进程打印")


def repeated_lines(pair: Pair) -> list[str]:
    """Shapes that the original prints, and that more than one rank prints."""
    own = printed.by_shape(pair.original.lines)
    ranks = [set(printed.by_shape(trace.lines)) for trace in pair.ranks]
    return [shape for shape in own if sum(shape in shapes for shapes in ranks) > 1]


def repeated_bars(pair: Pair) -> bool:
    """Progress bars on more than one rank."""
    return sum("\r" in trace.complaints and "it/s" in trace.complaints or "\r" in trace.complaints and "|" in trace.complaints for trace in pair.ranks) > 1


def check_once(pair: Pair) -> Check:
    shapes = repeated_lines(pair)
    if shapes:
        return check(
            "once",
            TITLE_ONCE,
            "failed",
            f"printed by several ranks: {shapes[0]!r}" + (f" and {len(shapes) - 1} more" if len(shapes) > 1 else ""),
            f"由多个进程打印：{shapes[0]!r}" + (f" 等 {len(shapes)} 种" if len(shapes) > 1 else ""),
        )
    if repeated_bars(pair):
        return check("once", TITLE_ONCE, "failed", "several ranks show a progress bar", "多个进程显示进度条")
    if not any(pair.original.lines):
        return check("once", TITLE_ONCE, "skipped", "the original prints nothing", "原脚本没有输出")
    return check("once", TITLE_ONCE, "held", f"{len(pair.original.lines)} lines", f"{len(pair.original.lines)} 行")


TITLE_FILES = Text("files", "文件")


def bad_files(pair: Pair) -> list[Event]:
    return [e for e in pair.original.of("file") if e["how"] == "missing" or e["count"]]


def check_files(pair: Pair) -> Check:
    files = pair.original.of("file")
    if not files:
        return check("files", TITLE_FILES, "skipped", "the original wrote none", "原脚本没有写文件")
    bad = bad_files(pair)
    if bad:
        event = bad[0]
        text = "not written by the migrated script" if event["how"] == "missing" else str(event["differences"][0])
        zh = "迁移后没有写出" if event["how"] == "missing" else str(event["differences"][0])
        return check("files", TITLE_FILES, "failed", f"{event['name']}: {text}", f"{event['name']}：{zh}")
    extra = [e["name"] for e in files if e["how"] == "extra"]
    by_content = sum(1 for e in files if e["how"] in {"tensors", "text"})
    en = f"{len(files) - len(extra)} files, {by_content} compared by content"
    zh = f"{len(files) - len(extra)} 个文件，其中 {by_content} 个比较了内容"
    if extra:
        return check("files", TITLE_FILES, "told", f"{en}; only in the migrated run: {extra[0]}", f"{zh}；只有迁移后才有：{extra[0]}")
    return check("files", TITLE_FILES, "held", en, zh)


TITLE_WRITERS = Text("each file written by one rank", "每个文件只由一个进程写")


def shared_writes(pair: Pair) -> list[tuple[str, list[int], Event]]:
    """Files that several ranks opened for writing."""
    writers: dict[str, dict[int, Event]] = {}
    for rank, trace in enumerate(pair.ranks):
        for event in [*trace.of("write"), *trace.of("save")]:
            if event.get("how") != "os.mkdir":
                writers.setdefault(event["path"], {}).setdefault(rank, event)
    return [(path, sorted(ranks), ranks[max(ranks)]) for path, ranks in writers.items() if len(ranks) > 1]


def other_folders(pair: Pair) -> tuple[str, str] | None:
    """Ranks that made folders or files of their own where the original made one: names stamped with the time."""
    made = [
        {e["path"] for e in trace.of("write")} | {e["path"] for e in trace.of("save")} for trace in pair.ranks
    ]
    shape = printed.NUMBER
    for path in sorted(made[0]):
        for other in made[1:]:
            for twin in sorted(other - made[0]):
                if path not in other and shape.sub("#", path) == shape.sub("#", twin) and path != twin and not _by_rank(path, twin):
                    return path, twin
    return None


def _by_rank(a: str, b: str) -> bool:
    """Names that differ by the rank alone, as logs of each rank do."""
    x, y = printed.NUMBER.findall(a), printed.NUMBER.findall(b)
    odd = [(p, q) for p, q in zip(x, y, strict=False) if p != q]
    return len(odd) == 1 and odd[0][0].lstrip("+-") == "0" and odd[0][1].lstrip("+-").isdigit() and len(odd[0][1].lstrip("+-")) < 3  # noqa: PLR2004


def check_writers(pair: Pair) -> Check:
    shared = shared_writes(pair)
    if shared:
        path, ranks, _ = shared[0]
        return check(
            "writers",
            TITLE_WRITERS,
            "failed",
            f"{pair.shown(path)} is written by ranks {ranks}" + (f", and {len(shared) - 1} more files" if len(shared) > 1 else ""),
            f"{pair.shown(path)} 由进程 {ranks} 同时写" + (f"，另有 {len(shared) - 1} 个文件" if len(shared) > 1 else ""),
        )
    twins = other_folders(pair)
    if twins is not None:
        a, b = (pair.shown(path) for path in twins)
        return check("writers", TITLE_WRITERS, "failed", f"ranks write to different names: {a}, {b}", f"各进程写到不同的名字：{a}，{b}")
    if not any(trace.of("write") or trace.of("save") for trace in pair.ranks):
        return check("writers", TITLE_WRITERS, "skipped", "nothing was written", "没有写任何文件")
    return check("writers", TITLE_WRITERS, "held", "no file has two writers", "没有文件被两个进程写")


TITLE_NOISE = Text("ranks draw their own noise", "各进程随机数不同")


def same_noise(pair: Pair) -> Event | None:
    """Noise for a batch, drawn on all ranks by generators in one state."""
    states = {trace.first("generators")["torch"] for trace in pair.ranks if trace.first("generators")}  # type: ignore[index]
    draws = pair.ranks[0].of("draw")
    if pair.world < 2 or len(states) != 1 or not draws:  # noqa: PLR2004
        return None
    return draws[0]


def check_noise(pair: Pair) -> Check:
    if not pair.ranks[0].of("draw"):
        return check("noise", TITLE_NOISE, "skipped", "no noise is drawn for a batch while training", "训练中没有按批抽取随机数")
    found = same_noise(pair)
    if found is not None:
        return check("noise", TITLE_NOISE, "failed", "all ranks draw the same random numbers", "所有进程抽取相同的随机数")
    return check("noise", TITLE_NOISE, "held", "the generators of the ranks differ", "各进程随机数生成器状态不同")


CHECKS: tuple[Callable[[Pair], Check], ...] = (
    check_steps,
    check_start,
    check_loss,
    check_gradients,
    check_rate,
    check_trained,
    check_updates,
    check_buffers,
    check_ranks,
    check_rank_buffers,
    check_dealt,
    check_order,
    check_content,
    check_noise,
    check_evaluated,
    check_printed,
    check_once,
    check_files,
    check_writers,
)


def compare(pair: Pair) -> list[Check]:
    return [question(pair) for question in CHECKS]
