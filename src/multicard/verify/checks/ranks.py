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


def same_noise(pair: Pair) -> Event | None:
    """Noise for a batch, drawn on all ranks by generators in one state."""
    states = {trace.first("generators")["torch"] for trace in pair.ranks if trace.first("generators")}  # type: ignore[index]
    draws = pair.ranks[0].of("draw")
    if pair.world < 2 or len(states) != 1 or not draws:
        return None
    return draws[0]


def check_noise(pair: Pair) -> Check:
    if not pair.ranks[0].of("draw"):
        return check(
            "noise",
            TITLE_NOISE,
            "skipped",
            "no noise is drawn for a batch while training",
            "训练中没有按批抽取随机数",
        )
    found = same_noise(pair)
    if found is not None:
        return check(
            "noise",
            TITLE_NOISE,
            "failed",
            "all ranks draw the same random numbers",
            "所有进程抽取相同的随机数",
        )
    return check(
        "noise", TITLE_NOISE, "held", "the generators of the ranks differ", "各进程随机数生成器状态不同"
    )
