"""Who had which sample of a stream: known by what the samples hold, and judged by what the original reads itself."""

from collections import Counter
from dataclasses import dataclass, replace
from itertools import pairwise

from multicard.messages import Text
from multicard.verify.evidence import Event, Key, Pair, Passage, key_of
from multicard.verify.verdict import Check


@dataclass(frozen=True)
class Own:
    """What the original's own stream gave in the time of one pass."""

    samples: tuple[int, ...]
    whole: bool  # to its end


def is_stream(pair: Pair, key: Key) -> bool:
    return bool(pair.loaders[key].get("iterable")) if key in pair.loaders else False


def own_reading(pair: Pair, key: Key, number: int) -> Own:
    counterpart = pair.counterparts.get(key)
    if counterpart is None:
        return Own((), whole=False)
    own_key = key_of(counterpart)
    events = [
        e for e in pair.original.events if "key" in e and key_of(e) == own_key and e.get("number") == number
    ]
    samples = [s for e in events if e["kind"] in {"batch", "beyond-share"} for s in e.get("own", ())]
    theirs = pair.passages.get((key, number))
    whole = (
        theirs is not None
        and theirs.complete
        and any(e["kind"] == "passed" and e["how"] == "end" for e in events)
    )
    return Own(tuple(samples), whole)


def fault(pair: Pair, passage: Passage) -> tuple[str, int, int]:
    """What is wrong with the shares of a pass, how many samples are concerned, and how many only fill up.

    `unclear` where the ranks had other samples than the original reads: packed from several, or drawn otherwise.
    """
    shares = [Counter(share) for _, share in sorted(passage.shares.items())]
    total: Counter[int] = sum(shares, Counter())
    if len(shares) > 1 and len(total) > 1 and shares[0] and all(share == shares[0] for share in shares[1:]):
        return "same", sum(total.values()), 0
    drawn = drawn_apart(pair, passage.key)
    if drawn:
        return "drawn", drawn, 0
    own = own_reading(pair, passage.key, passage.number)
    if own.whole:
        return _of_the_whole(pair, passage, total, Counter(own.samples))
    smallest = min((sum(share.values()) for share in shares), default=0)
    common = sum(sum((a & b).values()) for i, a in enumerate(shares) for b in shares[:i])
    repeats = len(set(own.samples)) < len(own.samples)
    if common > max(smallest // 2, pair.world) and own.samples and not repeats:
        return "doubled", common, 0
    unknown = sum((total - Counter(own.samples)).values())
    return ("unclear" if 2 * unknown > sum(total.values()) else "right"), 0, 0


def _of_the_whole(
    pair: Pair, passage: Passage, total: Counter[int], own: Counter[int]
) -> tuple[str, int, int]:
    if any(sample not in own for sample in total):
        return "unclear", 0, 0
    extra, missing = sum((total - own).values()), sum((own - total).values())
    loader = pair.loaders[passage.key]
    batch = loader.get("batch_size") or max(
        (len(b) for bs in passage.batches.values() for b in bs), default=1
    )
    if extra >= batch * pair.world or extra >= sum(own.values()) // 2 > 0:
        return "doubled", extra, 0
    if missing >= (batch + 1) * pair.world * max(1, loader.get("workers") or 0):
        return "missing", missing, extra
    return "right", 0, extra


SOME = 0.05  # of a share: as much in common is no chance


def drawn_apart(pair: Pair, key: Key) -> int:
    """How many samples come to several ranks where each draws for itself, of a stream that all but share out alike.

    Only where the ranks do draw for themselves: where all generators that the stream draws from differ.
    """
    told = {
        how: [
            next((e for e in trace.of("rehearsed") if key_of(e) == key and e["how"] == how), None)
            for trace in pair.ranks
        ]
        for how in ("own", "alike")
    }
    own, alike = ([e for e in events if e is not None] for events in told.values())
    if len(own) < pair.world or len(alike) < pair.world:
        return 0
    drawn = {name for event in own for name in (["torch"] if event["workers"] else event["drawn"])}
    states = [trace.of("generators") for trace in pair.ranks]
    if any(len({tuple(e[name] for e in events) for events in states}) == 1 for name in drawn):
        return 0
    least = min(len(event["samples"]) for event in own)
    found = _in_common(own)
    return found if found > max(SOME * least, pair.world) and 4 * _in_common(alike) <= found else 0


def _in_common(events: list[Event]) -> int:
    """How many samples are with more than one rank."""
    counts = Counter(sample for event in events for sample in set(event["samples"]))
    return sum(1 for count in counts.values() if count > 1)


FED = {"loss", "gradients", "updates", "buffers", "models", "printed", "files"}
UNFED = Text(
    "the ranks' samples could not be kept for the original, which then had others",
    "各进程的样本无法保存下来供原脚本使用，两边的样本不同",
)


def excused(pair: Pair, checks: list[Check]) -> list[Check]:
    """Where the original had other samples of a stream than the ranks, what it computed from them says nothing."""
    if not pair.original.of("unreplayed"):
        return checks
    return [
        replace(check, state="skipped", detail=UNFED)
        if check.state == "failed" and check.name in FED
        else check
        for check in checks
    ]


def repeated_order(pair: Pair, passages: list[Passage]) -> Passage | None:
    """A pass in the order of the one before, where the original's own passes are in different orders."""
    for before, after in pairwise(passages):
        own = [own_reading(pair, p.key, p.number).samples for p in (before, after)]
        if not own[0] or not own[1] or _alike(own[0], own[1]):
            continue
        if all(_alike(before.shares[rank], after.shares.get(rank, [])) for rank in before.shares):
            return after
    return None


def _alike(a: list[int] | tuple[int, ...], b: list[int] | tuple[int, ...]) -> bool:
    n = min(len(a), len(b))
    return n > 4 and len(set(a[:n])) > 1 and list(a[:n]) == list(b[:n])
