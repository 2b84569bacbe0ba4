"""Streams: how their samples are known and kept, and what is said of who had which."""

import json
import random
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from records import loader, pair, step, stepped, trace, trains
from torch.utils.data import IterableDataset

from multicard.verify.checks import compare, samples, streams
from multicard.verify.evidence import Event, Pair, Trace
from multicard.verify.plan import Plan
from multicard.verify.probe import record as recording
from multicard.verify.probe import streams as probe
from multicard.verify.probe.replay import Replay

Batches = list[list[int]]


class Numbers(IterableDataset):  # type: ignore[type-arg]
    def __iter__(self) -> Iterator[float]:
        yield from (random.random() for _ in range(5))


class Wrapped(IterableDataset):  # type: ignore[type-arg]
    def __init__(self, stream: object) -> None:
        self.stream = stream

    def __iter__(self) -> Iterator[float]:
        yield from self.stream  # type: ignore[misc]


@pytest.fixture
def _kept(tmp_path: Path) -> Iterator[None]:
    folder = str(tmp_path)
    plan = Plan("migrated", 0, 2, folder, folder, folder, (), "", (), 0, 5, full=False, seconds=60.0)
    probe.PLANS[:] = [plan]
    begun = recording.begin(plan)
    yield
    begun.close()


@pytest.mark.parametrize(
    ("one", "other", "alike"),
    [
        (torch.arange(6)[2:4], torch.tensor([2, 3]), True),
        (torch.tensor([2, 3]), torch.tensor([2.0, 3.0]), False),
        ({"a": [1, "b"]}, {"a": [1, "b"]}, True),
        ({"a": [1, "b"]}, {"a": [1, "c"]}, False),
        (np.zeros(3), np.zeros(3), True),
        (np.zeros(3), np.zeros((3, 1)), False),
        (("x", None, 1.5), ["x", None, 1.5], True),
        (Wrapped(Numbers()), Wrapped(Numbers()), True),
    ],
)
def test_a_sample_is_known_by_what_it_holds(one: object, other: object, alike: bool) -> None:  # noqa: FBT001
    assert (probe.known_by(one) == probe.known_by(other)) == alike


@pytest.mark.usefixtures("_kept")
def test_what_is_kept_comes_back() -> None:
    large = torch.arange(1_000_000, dtype=torch.bfloat16)
    paths = [probe.keep([(large[i : i + 2], f"sample {i}")], batched=True) for i in range(2)]
    assert all(path is not None and Path(path).stat().st_size < 1000 for path in paths)
    single, found = probe.kept([path for path in paths if path])
    assert single
    assert [name for _, name in found] == ["sample 0", "sample 1"]
    assert torch.equal(found[1][0], large[1:3])


@pytest.mark.usefixtures("_kept")
def test_what_cannot_be_kept_is_not() -> None:
    assert probe.keep([lambda: 0], batched=True) is None


def test_batches_that_streams_make_are_put_together() -> None:
    first, second = ({"x": torch.zeros(2, 3), "y": ["a", "b"]}, {"x": torch.ones(1, 3), "y": ["c"]})
    joined = probe.together([first, second])
    assert joined["x"].shape == (3, 3)
    assert joined["y"] == ["a", "b", "c"]
    assert probe.can_be_joined([first, second])
    assert not probe.can_be_joined([(torch.zeros(3), torch.tensor(1))])


def test_every_reading_draws_alike_and_leaves_other_draws_alone() -> None:
    state = random.getstate()
    one, other = (probe.Reading(Numbers(), 7, ()) for _ in range(2))
    assert one.take(2) + one.take(4) == other.take(6)
    assert one.take(1) == []
    assert random.getstate() == state


def test_the_stream_inside_others_is_found() -> None:
    inner = Numbers()
    assert probe.layers(Wrapped(Wrapped(inner)))[-1] is inner


def stream(number: int, batches: Batches, *, own: Batches | None = None, end: bool = True) -> list[Event]:
    key = ["ddp.py:5", 0]
    events: list[Event] = [{"kind": "pass", "key": key, "number": number, "site": "ddp.py:25"}]
    for at, indices in enumerate(batches):
        told = {} if own is None else {"own": own[at]}
        events.append(
            {
                "kind": "batch",
                "key": key,
                "number": number,
                "at": at,
                "indices": indices,
                "firsts": [],
                **told,
            }
        )
    how = "end" if end else "cut"
    return [*events, {"kind": "passed", "key": key, "number": number, "how": how, "given": len(batches)}]


def ranks_of(*shares: Batches, own: Batches, end: bool = True) -> Pair:
    made = loader(iterable=True, base=None, own=None, shuffles=None, sampler=None)
    theirs = [trace(made, trains(), stream(0, share, end=end)) for share in shares]
    counterpart = loader(iterable=True, base=None, own=None, counterpart=["ddp.py:5", 0])
    all_of_them = [[i for part in parts for i in part] for parts in zip(*shares, strict=True)]
    return pair(trace(counterpart, stream(0, all_of_them, own=own, end=end)), *theirs)


SHARES: dict[str, tuple[Pair, str]] = {
    "every second sample": (
        ranks_of([[1, 3], [5, 7]], [[2, 4], [6, 8]], own=[[1, 2, 3, 4], [5, 6, 7, 8]]),
        "held",
    ),
    "one half each": (ranks_of([[1, 2], [3, 4]], [[5, 6], [7, 8]], own=[[1, 2, 3, 4], [5, 6, 7, 8]]), "held"),
    "alike in the stream itself": (ranks_of([[1, 1]], [[1, 2]], own=[[1, 1, 1, 2]]), "held"),
    "all of it on every rank": (
        ranks_of([[1, 2], [3, 4]], [[1, 2], [3, 4]], own=[[1, 2, 3, 4], [5, 6, 7, 8]]),
        "failed",
    ),
    "all of it, otherwise ordered": (
        ranks_of([[1, 2], [3, 4]], [[4, 3], [2, 1]], own=[[1, 2, 3, 4], []]),
        "failed",
    ),
    "all of it, as far as was read": (
        ranks_of([[1, 2], [3, 4]], [[2, 1], [4, 3]], own=[[1, 2, 3, 4], [5, 6, 7, 8]], end=False),
        "failed",
    ),
    "half of it never": (
        ranks_of([[1, 3]], [[2, 4]], own=[list(range(1, 40))]),
        "failed",
    ),
    "packed otherwise": (ranks_of([[11, 13]], [[12, 14]], own=[[1, 2, 3, 4]]), "skipped"),
}


@pytest.mark.parametrize(("record", "state"), SHARES.values(), ids=SHARES)
def test_who_had_which(record: Pair, state: str) -> None:
    assert samples.check_dealt(record).state == state


def rehearsed(
    how: str, samples: list[int], *, workers: int = 0, drawn: tuple[str, ...] = ("python",)
) -> Event:
    key = ["ddp.py:5", 0]
    return {
        "kind": "rehearsed",
        "key": key,
        "how": how,
        "samples": samples,
        "workers": workers,
        "drawn": list(drawn),
    }


def drawing(rank: int, *, torch: int = 0) -> Event:
    return {"kind": "generators", "python": rank, "torch": torch, "numpy": 0}


FIRST, SECOND = list(range(0, 40, 2)), list(range(1, 40, 2))
MIXED = list(range(0, 40, 3))
REHEARSALS: dict[str, tuple[list[list[Event]], int]] = {
    "shuffled by each rank, then shared out": (
        [
            [drawing(0), rehearsed("alike", FIRST), rehearsed("own", FIRST)],
            [drawing(1), rehearsed("alike", SECOND), rehearsed("own", MIXED)],
        ],
        7,
    ),
    "but the ranks draw alike": (
        [
            [drawing(0), rehearsed("alike", FIRST), rehearsed("own", FIRST)],
            [drawing(0), rehearsed("alike", SECOND), rehearsed("own", MIXED)],
        ],
        0,
    ),
    "but their workers draw alike": (
        [
            [drawing(0), rehearsed("alike", FIRST, workers=2), rehearsed("own", FIRST, workers=2)],
            [drawing(1), rehearsed("alike", SECOND, workers=2), rehearsed("own", MIXED, workers=2)],
        ],
        0,
    ),
    "by generators of their own": (
        [
            [rehearsed("alike", FIRST, drawn=()), rehearsed("own", FIRST, drawn=())],
            [rehearsed("alike", SECOND, drawn=()), rehearsed("own", MIXED, drawn=())],
        ],
        7,
    ),
    "shared out, then shuffled": (
        [
            [drawing(0), rehearsed("alike", FIRST), rehearsed("own", FIRST)],
            [drawing(1), rehearsed("alike", SECOND), rehearsed("own", SECOND)],
        ],
        0,
    ),
    "drawn from all of it": (
        [
            [drawing(0), rehearsed("alike", FIRST), rehearsed("own", FIRST)],
            [drawing(1), rehearsed("alike", FIRST), rehearsed("own", MIXED)],
        ],
        0,
    ),
    "not read on all ranks": ([[drawing(0), rehearsed("own", FIRST)], [drawing(1)]], 0),
}


@pytest.mark.parametrize(("ranks", "count"), REHEARSALS.values(), ids=REHEARSALS)
def test_shares_that_each_rank_draws_overlap(ranks: list[list[Event]], count: int) -> None:
    record = pair(Trace(()), *(trace(events) for events in ranks))
    assert streams.drawn_apart(record, ("ddp.py:5", 0)) == count


@pytest.mark.parametrize(("own", "kind"), [([[1, 2], [1, 2]], "right"), ([[1, 2], [2, 1]], "repeated")])
def test_an_order_may_repeat_if_the_originals_does(own: Batches, kind: str) -> None:
    many = [[[n * 10 + i for i in range(4)] for n in part] for part in own]
    made = loader(iterable=True, base=None, own=None, shuffles=None, sampler=None)
    theirs = trace(made, trains(), *(stream(number, many[0]) for number in range(2)))
    counterpart = loader(iterable=True, counterpart=["ddp.py:5", 0])
    record = pair(
        trace(counterpart, *(stream(n, part, own=part) for n, part in enumerate(many))), theirs, theirs
    )
    assert samples.judged_order(record).kind == kind


def test_what_is_computed_from_other_samples_says_nothing() -> None:
    own = trace({"kind": "unreplayed"}, step(against=[[0.5, 1.0, 1.0, 1.0]]), stepped())
    found = {check.name: check for check in compare(pair(own, trace(step(), stepped())))}
    assert found["gradients"].state == "skipped"
    assert found["gradients"].detail == streams.UNFED


def test_the_samples_of_the_ranks_are_found_again(tmp_path: Path) -> None:
    papers = []
    for rank in range(2):
        events = stream(0, [[rank], [2 + rank]])
        for at, event in enumerate(e for e in events if e["kind"] == "batch"):
            event["kept"] = f"{rank}-{at}" if (rank, at) != (1, 1) else None
        paper = tmp_path / f"{rank}.jsonl"
        made = loader(iterable=True, dataset="Shard", base=None, length=None)
        paper.write_text("\n".join(map(json.dumps, [made, *events])))
        papers.append(str(paper))
    found = Replay.read(papers).counterpart("Numbers", 8, iterable=True)
    assert found is not None
    assert found.samples_of(0) == [["0-0", "1-0"], None]
    split = Replay.read(papers, split=2).counterpart("Shard", None, iterable=True)
    assert split is not None
    assert split.samples_of(0) == [["0-0"], ["1-0"], ["0-1"], None]


def test_a_trace_without_a_stream_asks_nothing_of_it() -> None:
    assert not streams.is_stream(pair(Trace(()), Trace(())), ("ddp.py:5", 0))
