"""What each check says of records written by hand: held, failed, or not applicable."""

import pytest
from records import against, epoch, loader, pair, step, stepped, trace, trains, weights

from multicard.verify.checks import CHECKS, compare, outputs, ranks, samples, steps
from multicard.verify.evidence import Event, Pair, Trace

EVEN, ODD = [[0, 2], [4, 6]], [[1, 3], [5, 7]]
OTHER_EVEN, OTHER_ODD = [[6, 0], [2, 5]], [[7, 4], [3, 1]]


def run(*more: Event, **with_: object) -> Trace:
    fields: Event = dict(with_)
    return trace(step(**fields), stepped(), *more)


def compared(difference: float, **with_: object) -> Trace:
    fields: Event = dict(with_)
    return trace(step(against=against(difference), **fields), stepped())


def test_nothing_recorded_is_a_failure() -> None:
    found = {check.name: check for check in compare(pair(trace(), trace(), trace()))}
    assert found["steps"].state == "failed"
    assert {check.state for name, check in found.items() if name != "steps"} == {"skipped"}


def test_every_check_has_a_name_of_its_own() -> None:
    names = [check.name for check in compare(pair(trace(), trace()))]
    assert len(set(names)) == len(CHECKS)


@pytest.mark.parametrize(
    ("difference", "state"), [(0.0, "held"), (1e-6, "held"), (0.01, "failed"), (0.9, "failed")]
)
def test_gradients(difference: float, state: str) -> None:
    assert steps.check_gradients(pair(compared(difference), run(), run())).state == state


def test_runs_are_nearer_with_as_many_steps_and_then_with_nearer_gradients() -> None:
    migrated = [trace(*([step(at=i), stepped(at=i)] for i in range(2)))] * 2
    fewer = steps.apart(pair(compared(0.0), *migrated))
    far, near = (
        steps.apart(
            pair(trace(*([step(at=i, against=against(d)), stepped(at=i)] for i in range(2))), *migrated)
        )
        for d in (0.2, 0.01)
    )
    assert near < far < fewer


def test_a_gradient_may_jump_at_a_kink_where_the_loss_does_not() -> None:
    many = [[step(at=i, against=against(0.02 if i == 7 else 0.0)), stepped(at=i)] for i in range(20)]
    same = [[step(at=i), stepped(at=i)] for i in range(20)]
    found = steps.check_gradients(pair(trace(*many), trace(*same), trace(*same)))
    assert found.state == "told"
    assert "1 more at a kink" in found.detail.en


@pytest.mark.parametrize(
    ("rows", "state"),
    [
        (against(0.1, apart=0.01) * 60, "told"),
        (against(0.1, apart=0.01) * 6, "failed"),
        (against(0.1, apart=0.1) * 60, "failed"),
        (against(0.01, apart=0.01, factor=1.01) * 60, "failed"),
    ],
    ids=["a little of everything", "in a network that is not deep", "much of it", "all of it longer"],
)
def test_a_deep_network_has_a_kink_in_every_step(rows: list[list[float]], state: str) -> None:
    many = [[step(at=i, against=rows), stepped(at=i)] for i in range(20)]
    same = [[step(at=i), stepped(at=i)] for i in range(20)]
    assert steps.check_gradients(pair(trace(*many), trace(*same), trace(*same))).state == state


def test_a_gradient_that_always_differs_is_no_kink() -> None:
    many = [[step(at=i, against=against(0.02)), stepped(at=i)] for i in range(20)]
    same = [[step(at=i), stepped(at=i)] for i in range(20)]
    assert steps.check_gradients(pair(trace(*many), trace(*same), trace(*same))).state == "failed"


def test_the_loss_of_the_ranks_is_their_mean() -> None:
    assert steps.check_loss(pair(compared(0.0, loss=2.0), run(loss=1.0), run(loss=3.0))).state == "held"
    assert steps.check_loss(pair(compared(0.0, loss=2.0), run(loss=1.0), run(loss=1.0))).state == "failed"


def test_an_original_that_takes_the_batches_of_the_ranks_in_turn_has_more_losses() -> None:
    own = trace(step(losses=[0.25, 0.5, 0.75, 1.0], against=against()), stepped())
    ranks_ = [trace(step(losses=[0.5, 1.0]), stepped()), trace(step(losses=[1.5, 2.0]), stepped())]
    assert steps.losses(pair(own, *ranks_), (0, 0)) == (2.5, 2.5)


@pytest.mark.parametrize(("lr", "state"), [(0.1, "held"), (0.2, "failed")])
def test_learning_rate(lr: float, state: str) -> None:
    assert steps.check_rate(pair(compared(0.0), run(lr=lr), run(lr=lr))).state == state


def test_a_scheduler_that_follows_the_ranks_own_metrics_fails_before_the_rates_part() -> None:
    def plateau(value: float) -> Event:
        return {"kind": "plateau", "site": "ddp.py:40", "value": value}

    found = steps.check_rate(pair(compared(0.0), run(plateau(0.5)), run(plateau(0.6))))
    assert found.state == "failed"
    assert steps.check_rate(pair(compared(0.0), run(plateau(0.5)), run(plateau(0.5)))).state == "held"


def test_steps_must_be_as_many() -> None:
    two = trace(step(), stepped(), step(at=1), stepped(at=1))
    assert steps.check_steps(pair(compared(0.0), run(), run())).state == "held"
    assert "different numbers" in steps.check_steps(pair(compared(0.0), run(), two)).detail.en
    assert (
        "1 optimizer steps in the original, 2" in steps.check_steps(pair(compared(0.0), two, two)).detail.en
    )


def test_weights_must_move() -> None:
    still = trace(step(against=against(), before=1), stepped(together=1))
    assert "never moved" in steps.check_steps(pair(still, run(), run())).detail.en


def test_a_copy_that_is_left_behind_differs() -> None:
    def model(value: float) -> Event:
        return {
            "kind": "model",
            "occasion": "pass 0",
            "site": None,
            "type": "Net",
            "trained": False,
            "names": ["fc.weight"],
            "weights": weights(value),
        }

    assert steps.check_models(pair(run(model(1.0)), run(model(1.0)), run())).state == "held"
    assert steps.check_models(pair(run(model(1.0)), run(model(1.1)), run())).state == "failed"


def test_ranks_with_other_gradients_drift() -> None:
    other = trace(step(gradients=weights(0.7)), stepped(value=3.0))
    drift = ranks.first_drift(pair(trace(), run(), other))
    assert drift is not None
    assert (drift.what, drift.rank, drift.parameters) == ("gradient", 1, (0,))


def test_ranks_that_begin_elsewhere_drift_from_the_start() -> None:
    drift = ranks.first_drift(pair(trace(), run(), run(before=99)))
    assert drift is not None
    assert drift.what == "start"


def test_ranks_that_agree_to_rounding_do_not_drift() -> None:
    close = trace(step(gradients=[[1, 0.5 + 1e-9, 0.5]]), stepped())
    assert ranks.first_drift(pair(trace(), run(), close)) is None


@pytest.mark.parametrize(("other", "state"), [([[7, 1.0, 1.0]], "held"), ([[8, 1.0, 1.0]], "failed")])
def test_buffers_at_an_evaluation_are_equal_to_the_bit(other: list[list[float]], state: str) -> None:
    def evaluated(buffers: list[list[float]]) -> Event:
        return {
            "kind": "evaluated",
            "site": "ddp.py:50",
            "model": "Net",
            "names": ["bn.running_mean"],
            "buffers": buffers,
        }

    one, two = trace(evaluated([[7, 1.0, 1.0]])), trace(evaluated(other))
    assert ranks.check_rank_buffers(pair(trace(), one, two)).state == state


def deals(*epochs: tuple[list[list[int]], list[list[int]]], own: Event | None = None) -> Pair:
    """Two ranks that deal these batches in these epochs; the original holds all eight samples."""
    original = loader(**{"counterpart": ["ddp.py:5", 0], "sampler": "RandomSampler", **(own or {})})
    parts: list[list[Event | list[Event]]] = [
        [
            loader(),
            trains(),
            *(epoch(5, number, both[rank], step_from=10 * number) for number, both in enumerate(epochs)),
        ]
        for rank in range(2)
    ]
    return pair(trace(original), trace(*parts[0]), trace(*parts[1]))


def test_samples_dealt_once_and_reordered() -> None:
    found = deals((EVEN, ODD), (OTHER_EVEN, OTHER_ODD))
    assert samples.check_dealt(found).state == "held"
    assert samples.check_order(found).state == "held"


def test_an_order_that_repeats_itself() -> None:
    shuffled = ([[3, 0], [6, 1]], [[7, 2], [4, 5]])
    assert samples.judged_order(deals(shuffled, shuffled)).kind == "repeated"


def test_an_original_without_shuffle_may_repeat_its_order() -> None:
    found = deals((EVEN, ODD), (EVEN, ODD), own={"shuffles": False, "sampler": "SequentialSampler"})
    assert samples.judged_order(found).kind == "right"


def test_all_ranks_with_the_same_samples() -> None:
    bad = samples.first_bad_dealing(deals((EVEN, EVEN)))
    assert bad is not None
    assert bad.kind == "same"


def test_every_rank_through_the_whole_data_set() -> None:
    bad = samples.first_bad_dealing(deals((EVEN + ODD, ODD + EVEN)))
    assert bad is not None
    assert bad.kind == "doubled"


def test_padding_is_told() -> None:
    found = samples.check_dealt(deals(([[0, 2], [4, 6]], [[1, 3], [5, 0]])))
    assert found.state == "told"
    assert "1 of 7" in found.detail.en


def test_samples_that_the_original_does_not_train_on() -> None:
    bad = samples.first_bad_dealing(deals((EVEN, ODD), own={"own_first": [0, 1, 2, 3, 4, 5]}))
    assert bad is not None
    assert (bad.kind, bad.count) == ("foreign", 2)


def test_a_sampler_with_replacement_may_repeat() -> None:
    replaced = {"replacement": True, "sampler": "WeightedRandomSampler"}
    assert samples.first_bad_dealing(deals(([[0, 0], [0, 2]], [[1, 0], [0, 3]]), own=replaced)) is None


def test_a_weighted_sampler_that_is_dropped() -> None:
    replaced = {"replacement": True, "sampler": "WeightedRandomSampler"}
    assert samples.judged_order(deals((EVEN, ODD), own=replaced)).kind == "sampler"


def evaluations(*shares: list[list[int]]) -> Pair:
    key: Event = {"counterpart": ["ddp.py:7", 0]}
    original = trace(loader(7, **key), epoch(7, 0, [[0, 1, 2], [3, 4]]))
    return pair(original, *(trace(loader(7), epoch(7, 0, share)) for share in shares))


@pytest.mark.parametrize(
    ("shares", "kind"),
    [
        (([[0, 2, 4]], [[1, 3]]), "right"),
        (([[0, 2, 4]], [[1, 3, 0]]), "padded"),
        (([[0, 1, 2, 3]], [[1, 2, 3, 4]]), "doubled"),
        (([[0, 2]], [[1, 3]]), "missing"),
        (([[0, 1, 2], [3, 4]], [[0, 1, 2], [3, 4]]), "everywhere"),
        (([[0, 1, 2], [3, 4]], []), "right"),
    ],
)
def test_how_often_validation_samples_are_counted(shares: tuple[list[list[int]], ...], kind: str) -> None:
    [found] = samples.judged_evaluation(evaluations(*shares))
    assert found.kind == kind


def test_padding_that_is_taken_out_again_is_told() -> None:
    found = evaluations([[0, 2, 4]], [[1, 3, 0]])
    lines = ("accuracy 0.8",)
    agreeing = Pair(
        Trace(found.original.events, lines), (Trace(found.ranks[0].events, lines), found.ranks[1])
    )
    assert samples.check_evaluated(found).state == "failed"
    assert samples.check_evaluated(agreeing).state == "told"


def test_a_line_on_two_ranks() -> None:
    lines = ("loss 0.5",)
    own = trace(lines=lines)
    assert outputs.check_once(pair(own, trace(lines=lines), trace())).state == "held"
    assert outputs.check_once(pair(own, trace(lines=lines), trace(lines=lines))).state == "failed"


def test_a_line_that_the_original_does_not_print_may_come_from_each_rank() -> None:
    greeting = ("rank 0 ready",)
    own = trace(lines=("loss 0.5",))
    assert (
        outputs.check_once(
            pair(own, trace(lines=("loss 0.5", *greeting)), trace(lines=("rank 1 ready",)))
        ).state
        == "held"
    )


def test_progress_bars_on_two_ranks() -> None:
    bar = "  50%|#####     | 5/10 [00:01<00:01, 4.9it/s]\r"
    assert outputs.check_once(pair(trace(), trace(complaints=bar), trace(complaints=bar))).state == "failed"
    assert outputs.check_once(pair(trace(), trace(complaints=bar), trace())).state == "skipped"


def write(path: str) -> Event:
    return {"kind": "write", "path": path, "how": "open", "site": "ddp.py:60"}


def test_a_file_with_two_writers() -> None:
    assert outputs.check_writers(pair(trace(), trace(write("/s/a.csv")), trace())).state == "held"
    assert (
        outputs.check_writers(pair(trace(), trace(write("/s/a.csv")), trace(write("/s/a.csv")))).state
        == "failed"
    )


def test_names_stamped_by_each_rank() -> None:
    one, two = trace(write("/s/run-101502/a")), trace(write("/s/run-101503/a"))
    assert outputs.check_writers(pair(trace(), one, two)).state == "failed"
    one, two = trace(write("/s/log_0.txt")), trace(write("/s/log_1.txt"))
    assert outputs.check_writers(pair(trace(), one, two)).state == "held"


@pytest.mark.parametrize(
    ("how", "differences", "state"),
    [
        ("tensors", [], "held"),
        ("tensors", ["a: differs"], "failed"),
        ("missing", [], "failed"),
        ("extra", [], "told"),
    ],
)
def test_files(how: str, differences: list[str], state: str) -> None:
    event: Event = {
        "kind": "file",
        "name": "a.pt",
        "how": how,
        "differences": differences,
        "count": len(differences),
        "path": None,
    }
    assert outputs.check_files(pair(trace(event), trace(), trace())).state == state


def test_the_same_noise_on_all_ranks() -> None:
    def rank(torch: int, python: int, *events: Event) -> Trace:
        return trace({"kind": "generators", "torch": torch, "python": python, "numpy": 0}, *events)

    noise: Event = {"kind": "draw", "site": "ddp.py:28"}
    dropout: Event = {"kind": "dropout"}
    assert ranks.check_noise(pair(trace(), rank(1, 1, noise), rank(1, 1))).state == "failed"
    assert ranks.check_noise(pair(trace(), rank(1, 1, noise), rank(2, 1))).state == "held"
    assert ranks.check_noise(pair(trace(), rank(1, 1, dropout), rank(1, 1))).state == "told"
    assert ranks.check_noise(pair(trace(), rank(1, 1), rank(1, 1))).state == "skipped"


def trained(count: int, *, unheld: tuple[int, ...] = (), through: int = 1, loss: float = 1.0) -> list[Event]:
    counts = {"backward": 1, "through": through, "unsynchronised": 0, "past": 1 - through}
    return [step(at=at, unheld=list(unheld), counts=counts, loss=loss + at) for at in range(count)]


ALIKE: dict[str, tuple[Trace, Trace, str]] = {
    "wrapped": (trace(trained(5)), trace(trained(5)), "held"),
    "not wrapped": (trace(trained(5, unheld=(0,))), trace(trained(5, unheld=(0,))), "failed"),
    "past the wrapper": (trace(trained(5, through=0)), trace(trained(5, through=0)), "failed"),
    "not wrapped, with samples of their own": (
        trace(trained(5, unheld=(0,))),
        trace(trained(5, unheld=(0,), loss=2.0)),
        "held",
    ),
    "averaged by hand": (
        trace(trained(5, unheld=(0,)), [{"kind": "collective"}] * 5),
        trace(trained(5, unheld=(0,))),
        "held",
    ),
    "too few steps to tell": (trace(trained(2, unheld=(0,))), trace(trained(2, unheld=(0,))), "held"),
}


@pytest.mark.parametrize(("one", "other", "state"), ALIKE.values(), ids=ALIKE)
def test_ranks_on_the_same_batches_are_alike_without_being_tied(one: Trace, other: Trace, state: str) -> None:
    assert ranks.check_ranks(pair(trace(), one, other)).state == state


@pytest.mark.parametrize(
    ("generators", "drawn", "state"),
    [((1, 1), True, "failed"), ((1, 2), True, "skipped"), ((1, 1), False, "skipped")],
)
def test_batches_drawn_by_hand_must_not_be_the_same(
    generators: tuple[int, int], *, drawn: bool, state: str
) -> None:
    hand: list[Event] = [{"kind": "drawn-by-hand", "site": "ddp.py:8"}] if drawn else []
    traces = [trace(trained(5), hand, {"kind": "generators", "torch": value}) for value in generators]
    assert samples.check_dealt(pair(trace(), *traces)).state == state
