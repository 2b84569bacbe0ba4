"""The cause that is named for each way in which records written by hand can be wrong."""

import pytest
from records import (
    JOINED,
    SITE,
    against,
    epoch,
    loader,
    optimizer,
    pair,
    step,
    stepped,
    trace,
    trains,
    weights,
    wrap,
)

from multicard.verify import causes, endings
from multicard.verify.evidence import Event, Pair, Trace
from multicard.verify.verdict import Where

DRIFT: Event = {"gradients": weights(0.7)}


def drifting(*events: Event, **more: object) -> Pair:
    """Two ranks whose gradients differ in the first step."""
    step_of_all: Event = dict(more)
    zero = trace(JOINED, optimizer(), *events, step(**step_of_all), stepped())
    one = trace(JOINED, optimizer(), *events, step(**{**step_of_all, **DRIFT}), stepped(value=3.0))
    return pair(trace(step(against=against(0.5)), stepped()), zero, one)


def counts(**more: int) -> dict[str, int]:
    return {"backward": 1, "through": 0, "unsynchronised": 0, "past": 0, **more}


@pytest.mark.parametrize(
    ("made", "code"),
    [
        (drifting(), "MC301"),
        (drifting(wrap(), counts=counts(past=1), past=[SITE]), "MC305"),
        (drifting(wrap(), counts=counts(through=1), unheld=[0]), "MC301"),
        (drifting(wrap(frozen=["fc"]), counts=counts(through=1), unreduced=[0]), "MC304"),
        (drifting(wrap(), counts=counts(unsynchronised=2)), "MC307"),
        (drifting(wrap(), counts=counts(through=1, backward=0)), "MC307"),
        (drifting(wrap(), counts=counts(through=1, backward=2), again=[0]), "MC307"),
        (drifting(wrap(), counts=counts()), "MC305"),
    ],
    ids=[
        "no wrapper",
        "past the wrapper",
        "another model not wrapped",
        "frozen when it was wrapped",
        "no_sync round all",
        "no backward",
        "two backward on one forward",
        "neither through nor past",
    ],
)
def test_ranks_drift(made: Pair, code: str) -> None:
    found = causes.of_ranks(made)
    assert found is not None
    assert found.code == code
    # what is wrong with the gradients is that they are not those of all ranks
    same = causes.of_gradients(made)
    assert same is not None
    assert same.code == code


def test_ranks_that_never_meet() -> None:
    zero, one = trace(optimizer(), step(), stepped()), trace(optimizer(), step(**DRIFT), stepped(value=3.0))
    found = causes.of_ranks(pair(trace(), zero, one))
    assert found is not None
    assert (found.code, found.site) == ("MC101", "ddp.py:20")


def together(difference: float, *, factor: float = 1.0, own: float = 1.0, theirs: float = 1.0) -> Pair:
    rank = trace(JOINED, wrap(), optimizer(), step(loss=theirs), stepped())
    return pair(trace(step(against=against(difference, factor=factor), loss=own), stepped()), rank, rank)


@pytest.mark.parametrize(
    ("made", "words"),
    [
        (together(0.5, factor=0.5), "the loss is a sum"),
        (together(1.0, factor=2.0), "2 times"),
        (together(0.3, own=1.0, theirs=1.2), "mean of means"),
        (together(0.3), "couples samples"),
    ],
)
def test_gradients_that_all_ranks_share(made: Pair, words: str) -> None:
    found = causes.of_gradients(made)
    assert found is not None
    assert found.code == "MC306"
    assert words in found.why.en


def test_a_learning_rate_that_is_off_from_the_start_and_one_that_departs() -> None:
    def rates(*lr: float) -> Trace:
        return trace(
            optimizer(), *(event for i, one in enumerate(lr) for event in (step(at=i, lr=one), stepped(at=i)))
        )

    first = causes.of_rate(pair(rates(0.1, 0.1), rates(0.2, 0.2), rates(0.2, 0.2)))
    later = causes.of_rate(pair(rates(0.1, 0.1), rates(0.1, 0.05), rates(0.1, 0.05)))
    assert first is not None
    assert later is not None
    assert (first.code, later.code) == ("MC206", "MC308")
    assert "2 times" in first.why.en


def test_a_batch_skipped_on_one_rank() -> None:
    batch: Event = {
        "kind": "batch",
        "key": ["ddp.py:5", 0],
        "number": 0,
        "at": 0,
        "indices": [0],
        "firsts": [],
    }
    zero = trace(loader(), trains(), batch, step(), batch, step(at=1))
    one = trace(loader(), trains(), batch, batch, step(), step(at=1))
    found = causes.uneven(pair(trace(), zero, one))
    assert found is not None
    assert (found.code, found.site) == ("MC307", "ddp.py:29")


def test_an_order_drawn_differently_before_training() -> None:
    def rank(result: int) -> Trace:
        shuffled: Event = {"kind": "shuffled", "what": "random_split", "site": "ddp.py:3", "result": result}
        return trace(shuffled, loader(), trains(), epoch(5, 0, [[result, 4], [5, 6]], step_from=0))

    original = trace(loader(counterpart=["ddp.py:5", 0], own_first=[0, 4, 5, 6], sampler="RandomSampler"))
    found = causes.of_dealing(pair(original, rank(0), rank(1)))
    assert found is not None
    assert (found.code, found.site) == ("MC207", "ddp.py:3")


@pytest.mark.parametrize(
    ("message", "code"),
    [
        ("RuntimeError: Expected to have finished reduction in the prior iteration", "MC304"),
        ("AttributeError: 'DistributedDataParallel' object has no attribute 'fc'", "MC302"),
        ("KeyError: 'module.fc.weight'", "MC501"),
        ("FileExistsError: [Errno 17] File exists: 'runs'", "MC505"),
        ("FileNotFoundError: [Errno 2] No such file or directory: 'best.pt'", "MC502"),
        ("ValueError: Default process group has not been initialized", "MC101"),
        ("ValueError: boom", None),
    ],
)
def test_exceptions(message: str, code: str | None) -> None:
    found = endings.of_error(f"Traceback (most recent call last):\n{message}\n", SITE)
    assert (found.code if found else None) == code


def waits(rank: int, doing: str, line: int, *chain: int, state: str = "waiting") -> Where:
    sites = tuple(f"ddp.py:{at}" for at in (line, *chain))
    return Where(rank, state, doing, sites[0], "", sites)


def called(name: str, *chain: int) -> Event:
    return {"kind": "collective", "name": name, "number": 1, "chain": [f"ddp.py:{line}" for line in chain]}


def forward(line: int, *, training: bool) -> Event:
    return {"kind": "forward", "site": f"ddp.py:{line}", "training": training}


def test_the_wrapper_evaluated_on_one_rank() -> None:
    zero, one = trace(forward(50, training=False)), trace(called("barrier", 60))
    found = endings.of_hang(
        pair(trace(), zero, one), (waits(0, "_sync_buffers", 50), waits(1, "barrier", 60))
    )
    assert (found.code, found.site) == ("MC303", "ddp.py:50")


def test_a_rank_without_batches_left() -> None:
    zero = trace(loader(), trains(), forward(28, training=True), epoch(5, 0, [[0], [1], [2]])[:-1])
    one = trace(loader(), trains(), epoch(5, 0, [[3], [4]]))
    found = endings.of_hang(
        pair(trace(), zero, one), (waits(0, "_sync_buffers", 28), waits(1, "all_reduce", 40))
    )
    assert (found.code, found.site) == ("MC201", "ddp.py:5")


def test_a_rank_that_stopped_early() -> None:
    first = [loader(), trains(), forward(28, training=True), *epoch(5, 0, [[0]])]
    zero, one = trace(first), trace(first, epoch(5, 1, [[1]])[:-1])
    found = endings.of_hang(
        pair(trace(), zero, one), (waits(0, "barrier", 70), waits(1, "_sync_buffers", 28))
    )
    assert (found.code, found.site) == ("MC403", "ddp.py:70")


@pytest.mark.parametrize(
    ("name", "code"), [("all_reduce", "MC401"), ("all_gather_object", "MC402"), ("barrier", "MC506")]
)
def test_a_collective_under_a_condition(name: str, code: str) -> None:
    zero, one = trace(called(name, 9, 55)), trace(called("all_reduce", 9, 60))
    found = endings.of_hang(pair(trace(), zero, one), (waits(0, name, 9, 55), waits(1, "all_reduce", 9, 60)))
    assert (found.code, found.site) == (code, "ddp.py:55")


def test_a_collective_that_one_rank_called_too_often() -> None:
    zero = trace(called("all_reduce", 9, 51), called("all_reduce", 9, 55), called("all_reduce", 9, 51))
    one = trace(called("all_reduce", 9, 51), called("all_reduce", 9, 51))
    found = endings.of_hang(
        pair(trace(), zero, one), (waits(0, "all_reduce", 9, 51), waits(1, "backward", 52))
    )
    assert (found.code, found.site) == ("MC401", "ddp.py:55")


def test_tensors_of_other_sizes_gathered_at_one_line() -> None:
    both = trace(called("all_gather", 55))
    places = (waits(0, "all_gather", 55), waits(1, "broadcast", 60))
    assert endings.of_mismatch(pair(trace(), both, both), places).code == "MC402"
