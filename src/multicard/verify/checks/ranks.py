"""The ranks of the migrated run among themselves: the same weights, the same buffers, other noise."""

from dataclasses import dataclass

from multicard.messages import Text
from multicard.verify.evidence import Event, Pair
from multicard.verify.verdict import Check, check


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

    what: str  # start, gradient, weights, between, model
    optimizer: int
    step: int
    rank: int
    parameters: tuple[int, ...]
    event: Event


def first_drift(pair: Pair) -> Drift | None:
    zero = pair.steps(0)
    done = {(e["number"], e["step"]): e for e in pair.ranks[0].of("stepped")}
    others = [
        (r, pair.steps(r), {(e["number"], e["step"]): e for e in pair.ranks[r].of("stepped")})
        for r in range(1, pair.world)
    ]
    for event in pair.ranks[0].of("step"):
        key = (event["number"], event["step"])
        for rank, steps, stepped in others:
            other = steps.get(key)
            if other is None:
                continue
            if event["before"] != other["before"]:
                before = (key[0], key[1] - 1)
                agreed = (
                    before in done
                    and before in stepped
                    and done[before]["together"] == stepped[before]["together"]
                )
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
    return _other_model(pair)


def _other_model(pair: Pair) -> Drift | None:
    """Weights that no optimizer has, and that are not alike on all ranks: frozen ones, loaded on one rank."""
    own = [e for e in pair.ranks[0].of("model") if e["trained"]]
    for rank in range(1, pair.world):
        others = [e for e in pair.ranks[rank].of("model") if e["trained"]]
        for event, other in zip(own, others, strict=False):
            if event["names"] == other["names"] and event["occasion"] == other["occasion"]:
                odd = [
                    i
                    for i, (a, b) in enumerate(zip(event["weights"], other["weights"], strict=True))
                    if not alike(a, b)
                ]
                if odd:
                    return Drift("model", 0, 0, rank, tuple(odd), event)
    return None


def _odd_weights(a: Event, b: Event) -> list[int]:
    if a.get("weights") is None or b.get("weights") is None:
        return []
    return [i for i, (x, y) in enumerate(zip(a["weights"], b["weights"], strict=False)) if not alike(x, y)]


def same_losses(pair: Pair) -> bool:
    """Whether all ranks had the same loss in each step, as they have where none of them has a share of its own."""
    told = [[event["losses"] for event in trace.of("step")] for trace in pair.ranks]
    some = any(value is not None for losses in told[0] for value in losses)
    return pair.world > 1 and len(told[0]) > MOST_BY_CHANCE and some and all(one == told[0] for one in told)


MOST_BY_CHANCE = 2  # steps in which ranks with other samples may have the same loss


def untied(pair: Pair) -> bool:
    """Whether the ranks train alike only because they have the same batches: nothing averages their gradients."""
    steps = pair.ranks[0].of("step")
    reduced = any(
        set(event["trained"]) - set(event["unheld"]) and event["counts"]["through"] for event in steps
    )
    return same_losses(pair) and not reduced and len(pair.ranks[0].of("collective")) < len(steps)


def drawn_alike(pair: Pair) -> str | None:
    """Where all ranks draw the same batch, because their generators stand alike."""
    drawn, told = pair.ranks[0].of("drawn-by-hand"), [trace.of("generators") for trace in pair.ranks]
    if pair.training or not drawn or not same_losses(pair):
        return None
    stands = {tuple(event["torch"] for event in events) for events in told}
    return None if len(stands) > 1 else str(drawn[0]["site"])


TITLE_RANKS = Text("ranks have the same weights", "各进程权重一致")


def check_ranks(pair: Pair) -> Check:
    if pair.world == 1:
        return check("ranks", TITLE_RANKS, "skipped", "one rank only", "只有一个进程")
    if not pair.steps(0):
        return check("ranks", TITLE_RANKS, "skipped", "no step was made", "没有执行任何一步")
    drift = first_drift(pair)
    if drift is None and untied(pair):
        return check(
            "ranks",
            TITLE_RANKS,
            "failed",
            "only because all had the same batches: nothing averages their gradients",
            "一致只因各进程的批次相同：梯度没有在进程间平均",
        )
    if drift is None:
        return check("ranks", TITLE_RANKS, "held", f"{len(pair.steps(0))} steps", f"{len(pair.steps(0))} 步")
    known = (
        drift.event["names"].__getitem__
        if drift.what == "model"
        else lambda i: pair.name_of(drift.optimizer, i)
    )
    names = ", ".join(known(i) for i in drift.parameters[:3])
    what = {
        "start": ("begin with other weights", "初始权重不同"),
        "between": ("have other weights, changed since the step before", "的权重在上一步之后变得不同"),
        "gradient": (f"have other gradients ({names})", f"的梯度不同（{names}）"),
        "weights": (f"have other weights after it ({names})", f"在这一步之后权重不同（{names}）"),
        "model": (
            f"have other weights that no optimizer holds ({names})",
            f"不在优化器中的权重不同（{names}）",
        ),
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
        return check(
            "rank-buffers",
            TITLE_RANK_BUFFERS,
            "held",
            f"{min(evaluated)} evaluations",
            f"{min(evaluated)} 次评估",
        )
    _, rank, name = stale
    return check(
        "rank-buffers",
        TITLE_RANK_BUFFERS,
        "failed",
        f"ranks 0 and {rank} evaluated with different {name}",
        f"进程 0 与 {rank} 评估时 {name} 不同",
    )


TITLE_NOISE = Text("ranks draw their own noise", "各进程随机数不同")


@dataclass(frozen=True)
class Noise:
    """What is drawn at random in training, from which generator, at which line."""

    what: str  # noise, augmentation, dropout
    generator: str
    site: str | None


def noises(pair: Pair) -> list[Noise]:
    trace = pair.ranks[0]
    found = [Noise("noise", "torch", event["site"]) for event in trace.of("draw")]
    training = {pair.loaders[key]["name"]: pair.loaders[key]["site"] for key in pair.training}
    found += [
        Noise("augmentation", event["generator"], training[event["loader"]])
        for event in trace.of("augments")
        if event["loader"] in training
    ]
    return found + [Noise("dropout", "torch", None) for _ in trace.of("dropout")]


def copied_noise(pair: Pair) -> list[Noise]:
    """What all ranks draw alike, because a generator stands alike on all of them when training begins."""
    told = [trace.of("generators") for trace in pair.ranks]
    if pair.world == 1 or not all(told):
        return []
    return [
        noise
        for noise in noises(pair)
        if len({tuple(event[noise.generator] for event in events) for events in told}) == 1
    ]


WHAT = {
    "noise": Text("noise", "噪声"),
    "augmentation": Text("augmentation", "数据增强"),
    "dropout": Text("dropout", "dropout"),
}


def check_noise(pair: Pair) -> Check:
    drawn = noises(pair)
    if not drawn:
        return check(
            "noise",
            TITLE_NOISE,
            "skipped",
            "nothing is drawn at random while training",
            "训练中没有抽取随机数",
        )
    copies = copied_noise(pair)
    if not copies:
        what = sorted({noise.what for noise in drawn})
        en, zh = ", ".join(WHAT[w].en for w in what), "、".join(WHAT[w].zh for w in what)
        return check(
            "noise",
            TITLE_NOISE,
            "held",
            f"{en}: the generators of the ranks differ",
            f"{zh}：各进程随机数生成器状态不同",
        )
    worst = min(copies, key=lambda noise: list(WHAT).index(noise.what))
    name = WHAT[worst.what]
    if worst.what == "dropout":
        en, zh = "dropout drops the same units on every rank", "各进程 dropout 丢弃相同的单元"
        return check("noise", TITLE_NOISE, "told", en, zh)
    return check(
        "noise", TITLE_NOISE, "failed", f"{name.en} is the same on every rank", f"各进程的{name.zh}完全相同"
    )
