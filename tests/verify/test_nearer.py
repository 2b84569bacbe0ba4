"""What two runs tell that lets two more be nearer: padding, and draws that are made sample by sample."""

import random
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import NamedTuple, cast

import numpy as np
import pytest
import torch

from multicard.messages import Text
from multicard.verify import nearer
from multicard.verify.evidence import Event
from multicard.verify.probe import each_sample, padding, randomness
from multicard.verify.probe import record as recording
from multicard.verify.trial import Hints, Run
from multicard.verify.verdict import Check, Verdict


class Sequences(NamedTuple):
    words: torch.Tensor
    lengths: list[int]


WHOLE = torch.arange(12).view(4, 3)
PARTS: dict[str, tuple[object, object]] = {
    "rows": (WHOLE, WHOLE[1:3]),
    "columns": (WHOLE.t(), WHOLE.t()[:, 1:3]),
    "arrays": (WHOLE.numpy(), WHOLE.numpy()[1:3]),
    "lists of numbers": ([WHOLE, [5, 6, 7, 8]], [WHOLE[1:3], [6, 7]]),
    "dicts": ({"x": WHOLE, "longest": 3}, {"x": WHOLE[1:3], "longest": 3}),
    "named tuples": (Sequences(WHOLE, [5, 6, 7, 8]), Sequences(WHOLE[1:3], [6, 7])),
    "samples of other sizes": ([torch.ones(n + 7) for n in range(4)], [torch.ones(n + 7) for n in (1, 2)]),
}
NO_PARTS: dict[str, object] = {
    "run together": (WHOLE, torch.ones(9)),
    "of a class of its own": (WHOLE, SimpleNamespace()),
}


def same(a: object, b: object) -> bool:
    if isinstance(a, torch.Tensor | np.ndarray):
        return bool((torch.as_tensor(a) == torch.as_tensor(b)).all())
    if isinstance(a, dict):
        return isinstance(b, dict) and a.keys() == b.keys() and all(same(a[key], b[key]) for key in a)
    if isinstance(a, list | tuple):
        return isinstance(b, type(a)) and len(a) == len(b) and all(map(same, a, b))
    return bool(a == b)


@pytest.mark.parametrize(("batch", "part"), PARTS.values(), ids=PARTS)
def test_a_share_of_a_batch(batch: object, part: object) -> None:
    assert same(padding.part_of(batch, 4, 1, 2), part)


@pytest.mark.parametrize("batch", NO_PARTS.values(), ids=NO_PARTS)
def test_what_cannot_be_shared_out(batch: object) -> None:
    assert padding.part_of(batch, 4, 1, 2) is None


@pytest.fixture
def phase(monkeypatch: pytest.MonkeyPatch) -> Iterator[randomness.Phase]:
    told = SimpleNamespace(mine=True)
    monkeypatch.setattr(recording, "record", lambda: told)
    monkeypatch.setattr(recording, "site", lambda: "a.py:1")
    monkeypatch.setattr(randomness, "TURNED", [each_sample.turned])
    with randomness.generators_kept():
        yield randomness.PHASE
        randomness.PHASE.key, randomness.PHASE.samples = None, ()
    for kept in (each_sample.COUNTS, each_sample.TIMES, each_sample.KNOWN):
        kept.clear()
    each_sample.ORDER.clear()


draw = each_sample._draw(random.random)


def test_lines_that_draw_for_each_sample_are_found(phase: randomness.Phase) -> None:
    for at in range(2):
        phase.turn((1, at), samples=[4, 5, 6])
        for _ in range(6):
            draw()
    phase.turn((1, 2))
    assert each_sample.TIMES == {"a.py:1": 2}


@pytest.mark.parametrize("counts", [(3, 1), (2, 2)], ids=["not in each batch", "not as often"])
def test_lines_that_do_not_are_not(counts: tuple[int, int], phase: randomness.Phase) -> None:
    for at, count in enumerate(counts):
        phase.turn((1, at), samples=[4, 5, 6])
        for _ in range(count):
            draw()
    phase.turn((1, 2))
    assert each_sample.TIMES == {"a.py:1": 0}


def test_a_sample_is_drawn_for_wherever_it_is(phase: randomness.Phase) -> None:
    each_sample.KNOWN["a.py:1"] = 1
    phase.turn((1, 0), samples=[4, 5, 6])
    whole = [draw() for _ in range(3)]
    after = random.random()
    phase.turn((1, 0), samples=[6, 4])
    assert [draw() for _ in range(2)] == [whole[2], whole[0]]
    assert random.random() == after


def run(shapes: list[list[int]], *more: Event) -> list[Event]:
    key = ["a.py:1", 0]
    return [
        {"kind": "trains", "key": key},
        {"kind": "batch", "key": key, "number": 0, "at": 0, "shapes": shapes},
        *more,
    ]


def runs(*traces: list[Event]) -> Run:
    return cast("Run", SimpleNamespace(traces=traces))


def for_each(*sites: str) -> Event:
    return {"kind": "drawn-for-each", "sites": [[site, 1] for site in sites]}


def test_padding_is_told_from_the_shapes_of_what_ranks_have_at_once(tmp_path: Path) -> None:
    for rank in range(2):
        (tmp_path / "migrated" / f"rank{rank}").mkdir(parents=True)
        (tmp_path / "migrated" / f"rank{rank}" / "trace.jsonl").touch()
    alike, other = runs(run([[5]]), run([[5]])), runs(run([[5]]), run([[7]]))
    assert nearer.hints(runs([]), alike, tmp_path) is None
    found = nearer.hints(runs([]), other, tmp_path)
    assert found is not None
    assert len(found.mates) == 2


def test_lines_must_draw_for_each_sample_in_all_processes(tmp_path: Path) -> None:
    original = runs([for_each("a.py:3")])
    migrated = runs(run([], for_each("b.py:5", "b.py:6")), run([], for_each("b.py:5")))
    found = nearer.hints(original, migrated, tmp_path)
    assert found == Hints((), {"original": (("a.py:3", 1),), "migrated": (("b.py:5", 1),)})
    assert nearer.hints(runs([]), migrated, tmp_path) is None


@pytest.mark.parametrize(("name", "answer"), [("gradients", True), ("printed", False)])
def test_only_what_was_computed_is_worth_another_look(name: str, *, answer: bool) -> None:
    check = Check(name, Text("", ""), "failed", Text("", ""))
    assert nearer.apart(Verdict("", "", 2, "compared", (check,), 1, (0, 0))) is answer


def test_the_reader_is_told(tmp_path: Path) -> None:
    check = Check("gradients", Text("", ""), "held", Text("3 steps", "3 步"))
    found = Hints((str(tmp_path),), {"original": (("a.py:3", 1),), "migrated": (("b.py:5", 1),)})
    told = nearer.told(Verdict("", "", 2, "compared", (check,), 3, (0, 0)), found).checks[0]
    assert told.state == "told"
    assert "padded" in told.detail.en
    assert "for each sample" in told.detail.en
