"""What was recorded of both runs, in the shape in which questions are asked of it.

Free of torch: a test can write such a record by hand.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

Event = dict[str, Any]
Key = tuple[str, int]
Pairing = tuple[float, float]
EVALUATION = 1_000_000  # passes with gradients off are numbered from here


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

    @property
    def evaluates(self) -> bool:
        """Begun with gradients off."""
        return self.number >= EVALUATION


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

    @cached_property
    def losses(self) -> tuple[tuple[float, float], ...]:
        """What each backward pass started from, in the original and on rank 0, and other numbers of a batch."""
        return tuple(known_pairs(self.original.events, [trace.events for trace in self.ranks]))

    def name_of(self, optimizer: int, parameter: int) -> str:
        for trace in (self.original, self.ranks[0]):
            for event in trace.of("names"):
                if event["number"] == optimizer and 0 <= parameter < len(event["names"]):
                    return str(event["names"][parameter])
        return f"parameter {parameter}"


def known_pairs(own: Sequence[Event], ranks: Sequence[Sequence[Event]]) -> Iterator[Pairing]:
    """Numbers of one batch: that of the original, and that of rank 0's share of it."""
    kinds = ("step", "scalars")
    mine, *others = ([e for e in events if e["kind"] in kinds] for events in (own, *ranks))
    steps = [[e for e in events if e["kind"] == "step"] for events in (mine, *others)]
    losses = list(loss_pairs(*steps[:2]))
    yield from losses
    yield from means(losses)
    yield from sums(losses, [list(loss_pairs(steps[0], events)) for events in steps[1:]])
    for rates in (False, True):
        series: dict[int, list[Pairing]] = {}
        for at, pair in scalar_pairs(mine, others, rates=rates):
            series.setdefault(at, []).append(pair)
            yield pair
        for found in series.values():
            yield from means(found)


MANY = 64  # steps of which the means are known


def means(pairs: Sequence[Pairing]) -> Iterator[Pairing]:
    """Of numbers one after the other, the mean over each stretch: what is shown of an epoch."""
    for first in range(min(len(pairs), MANY)):
        own = other = 0.0
        for count, (a, b) in enumerate(pairs[first : first + MANY], 1):
            own, other = own + a, other + b
            if count > 1:
                yield own / count, other / count


def sums(losses: Sequence[Pairing], ranks: Sequence[Sequence[Pairing]]) -> Iterator[Pairing]:
    """Losses added up over a stretch, and over the ranks as well: as many batches more."""
    if any(len(pairs) != len(losses) for pairs in ranks):
        return
    for first in range(min(len(losses), MANY)):
        own = other = 0.0
        for at in range(first, min(len(losses), first + MANY)):
            own, other = own + losses[at][0], other + sum(pairs[at][1] for pairs in ranks)
            yield own, other


def scalar_pairs(
    own: Sequence[Event], ranks: Sequence[Sequence[Event]], *, rates: bool
) -> Iterator[tuple[int, Pairing]]:
    """Numbers taken out of tensors of which the original has the mean or the sum, and the how manieth of a step.

    `rates`: the sums, divided by how many samples there are.
    """
    theirs = [{(e["number"], e["step"]): e.get("scalars", []) for e in events} for events in ranks]
    rows = {(e["number"], e["step"]): e.get("rows", 0) for e in ranks[0]}
    for event in own:
        key = (event["number"], event["step"])
        mine, whole, part = event.get("scalars", []), event.get("rows", 0), rows.get(key, 0)
        shares = [one.get(key, []) for one in theirs]
        if any(len(share) != len(mine) for share in shares):
            continue
        for at, (value, parts) in enumerate(zip(mine, zip(*shares, strict=True), strict=True)):
            total = sum(parts)
            sums, averages = (
                abs(value - one) <= 1e-3 * abs(value) + 1e-6 for one in (total, total / len(parts))
            )
            if rates and sums and whole and part:
                yield at, (value / whole, parts[0] / part)
            elif not rates and (sums or averages):
                yield at, (value, parts[0])


def loss_pairs(own: Sequence[Event], other: Sequence[Event]) -> Iterator[Pairing]:
    """What each backward pass started from; the sum where a step had several."""
    theirs = {(event["number"], event["step"]): event["losses"] for event in other}
    for event in own:
        mine, others = event["losses"], theirs.get((event["number"], event["step"]), [])
        if len(mine) != len(others) or None in mine or None in others:
            continue
        yield from zip(mine, others, strict=True)
        if len(mine) > 1:
            yield sum(mine), sum(others)


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


def batches_per_step(trace: Trace) -> list[int]:
    """How many training batches each optimizer step used up; steps without any, of a second optimizer, left out."""
    training = {key_of(event) for event in trace.of("trains")}
    found, count = [], 0
    for event in trace.events:
        if event["kind"] == "batch" and key_of(event) in training:
            count += 1
        elif event["kind"] == "step" and count:
            found.append(count)
            count = 0
    return found
