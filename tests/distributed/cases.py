"""What must hold on every rank: each case is run by all ranks at once, and may talk to the others.

`test_runtime_on_ranks.py` has them run once for each number of processes, since a start costs seconds and a
case milliseconds. Each begins with the same seeds on every rank.
"""

# ruff: noqa: ANN401 - values of any type are what this is about
# ruff: noqa: NPY002 - numpy's old generator is the one that scripts use

import contextlib
import copy
import io
import itertools
import math
import random
import tempfile
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import (
    BatchSampler,
    DataLoader,
    Dataset,
    IterableDataset,
    RandomSampler,
    Sampler,
    SequentialSampler,
    SubsetRandomSampler,
    TensorDataset,
    WeightedRandomSampler,
    get_worker_info,
)

from multicard import runtime as rt

LOCAL_RANK, RANK, WORLD = rt.setup_ddp()
FIRST_DRAWS = (torch.rand(3).tolist(), np.random.rand(3).tolist(), random.random(), torch.initial_seed())


def of_all(value: Any) -> list[Any]:
    """The value of every rank, by torch's own means, to judge ours by."""
    values: list[Any] = [None] * WORLD
    dist.all_gather_object(values, value)
    return values


def same_everywhere(value: Any) -> bool:
    return len({repr(each) for each in of_all(value)}) == 1


# --------------------------------------------------------------------------------------------- start


def case_ranks_are_told_apart() -> None:
    assert of_all((LOCAL_RANK, RANK, WORLD)) == [(rank, rank, WORLD) for rank in range(WORLD)]
    assert rt.setup_ddp() == (LOCAL_RANK, RANK, WORLD)
    assert rt.is_main_process() == (RANK == 0)


def case_a_script_that_never_seeds_draws_alike_everywhere() -> None:
    assert same_everywhere(FIRST_DRAWS)


def case_print_log_prints_once() -> None:
    out = io.StringIO()
    rt.print_log("epoch", 3, sep="=", file=out)
    assert of_all(out.getvalue()) == ["epoch=3\n"] + [""] * (WORLD - 1)


def case_main_process_goes_first() -> None:
    folder = Path(rt.broadcast_value(tempfile.mkdtemp()))
    with rt.main_process_first():
        if RANK == 0:
            (folder / "data").write_text("ready")
        assert (folder / "data").read_text() == "ready"
    if WORLD > 1:
        reached = False
        with contextlib.suppress(FileNotFoundError), rt.main_process_first():
            (folder / ("missing" if RANK == 0 else "data")).read_text()
            reached = True
        assert of_all(reached) == [False] + [True] * (WORLD - 1), (
            "where rank 0 fails, the others wait for ever"
        )


def case_one_goes_first_also_within_another_that_goes_first() -> None:
    order: list[int] = []
    with rt.main_process_first():
        if LOCAL_RANK == 0:  # the others find what it has made, and do not come here
            with rt.main_process_first():
                order.append(RANK)
    assert of_all(len(order)) == [int(rank == 0) for rank in range(WORLD)]


def case_own_device_is_the_cpu_without_cards() -> None:
    assert rt.own_device() == torch.device("cpu")


def case_batches_are_shared_evenly_or_refused() -> None:
    assert rt.per_card(12 * WORLD) == 12
    if WORLD > 1:
        with pytest.raises(ValueError, match=f"{12 * WORLD + 1}"):
            rt.per_card(12 * WORLD + 1)


# -------------------------------------------------------------------------------------------- values


def case_sums_keep_type_and_are_exact() -> None:
    big = 2**60 + 1
    total = rt.all_reduce_sum(big, 0.1, True, np.float32(0.5), np.int64(3))
    assert [type(each) for each in total] == [int, float, bool, np.float32, np.int64]
    assert total == (big * WORLD, sum([0.1] * WORLD), True, np.float32(0.5 * WORLD), 3 * WORLD)
    assert rt.all_reduce_sum(RANK) == sum(range(WORLD))
    rounded = [1e8, 3.0, -1e8] if WORLD == 3 else [2.5] * WORLD  # 1e8 + 3 is no float32
    for value in (
        np.float32(rounded[RANK]),
        torch.tensor(rounded[RANK]),
        np.array(rounded[RANK], dtype=np.float32),
    ):
        assert float(rt.all_reduce_sum(value)) == sum(rounded)
    assert rt.all_reduce_sum() == ()


def case_sums_of_tensors_keep_dtype_and_device() -> None:
    for dtype in (
        torch.float16,
        torch.bfloat16,
        torch.float32,
        torch.float64,
        torch.int8,
        torch.int64,
        torch.complex64,
    ):
        total = rt.all_reduce_sum(torch.ones(2, 3, dtype=dtype))
        assert total.dtype == dtype
        assert torch.equal(total, torch.full((2, 3), WORLD, dtype=dtype))
    assert rt.all_reduce_sum(torch.tensor(2.0)).shape == ()
    assert rt.all_reduce_sum(torch.tensor([False, RANK == WORLD - 1])).tolist() == [False, True]


def case_large_tensors_are_reduced_like_small_ones() -> None:
    own = torch.arange(300_000, dtype=torch.float64) + RANK
    before = own.clone()
    total = rt.all_reduce_sum(own)
    assert torch.equal(total, torch.arange(300_000, dtype=torch.float64) * WORLD + sum(range(WORLD)))
    assert torch.equal(own, before), "the argument was changed"
    assert torch.equal(rt.all_reduce_max(own), before - RANK + WORLD - 1)
    assert torch.equal(rt.all_reduce_min(own), before - RANK)
    # A rank that saw nothing holds the 0 it began with.
    beginner = own if RANK == 0 else 0
    assert torch.equal(rt.all_reduce_sum(beginner), torch.arange(300_000, dtype=torch.float64))
    nothing = torch.arange(300_000) if RANK == 0 else None
    assert torch.equal(rt.all_reduce_max(nothing), torch.arange(300_000))
    assert torch.equal(rt.all_reduce_min(nothing), torch.arange(300_000))


def case_gradients_do_not_flow_through_sums() -> None:
    if WORLD > 1:
        assert not rt.all_reduce_sum(torch.ones(2, requires_grad=True)).requires_grad


def case_arrays_are_reduced_by_element() -> None:
    confusion = np.full((3, 3), RANK, dtype=np.int32)
    total = rt.all_reduce_sum(confusion)
    assert total.dtype == np.int32
    assert (total == sum(range(WORLD))).all()
    assert (confusion == RANK).all()
    assert rt.all_reduce_max(np.array([RANK, -RANK])).tolist() == [WORLD - 1, 0]


def case_containers_are_reduced_by_element() -> None:
    assert rt.all_reduce_sum([1, 2.5]) == [WORLD, 2.5 * WORLD]
    assert rt.all_reduce_sum((1, [RANK])) == (WORLD, [sum(range(WORLD))])
    assert rt.all_reduce_sum({"loss": 1.5, "n": 2}) == {"loss": 1.5 * WORLD, "n": 2 * WORLD}
    own = {f"class {RANK}": 1, "all": torch.tensor(1)}
    total = rt.all_reduce_sum(own)
    assert total == {**{f"class {rank}": 1 for rank in range(WORLD)}, "all": torch.tensor(WORLD)}


def case_dicts_keep_their_type() -> None:
    counts: defaultdict[str, int] = defaultdict(lambda: 0)
    counts["a"] += RANK
    total = rt.all_reduce_sum(counts)
    assert type(total) is defaultdict
    assert total["a"] == sum(range(WORLD))
    assert total["new"] == 0
    counter = rt.all_reduce_sum(Counter({"x": 1, f"rank {RANK}": 0}))
    assert type(counter) is Counter
    assert counter == {"x": WORLD, **{f"rank {rank}": 0 for rank in range(WORLD)}}


def case_a_rank_without_data_holds_what_it_began_with() -> None:
    if WORLD == 1:
        return
    has_data = RANK == WORLD - 1
    total_loss = torch.tensor(3.5) if has_data else 0
    correct = 4 if has_data else 0
    confusion = np.eye(2) if has_data else 0
    per_class = [1, 2] if has_data else []
    by_name = {"a": 1.5} if has_data else {}
    best = torch.tensor([1.0, 2.0]) if has_data else None
    total = rt.all_reduce_sum(total_loss, correct, confusion, per_class, by_name, best)
    assert torch.equal(total[0], torch.tensor(3.5))
    assert total[1] == 4
    assert (total[2] == np.eye(2)).all()
    assert total[3:5] == ([1, 2], {"a": 1.5})
    assert torch.equal(total[5], torch.tensor([1.0, 2.0]))
    assert rt.all_reduce_sum(0.5 if has_data else 0) == 0.5
    mixed = rt.all_reduce_sum(torch.tensor(3) if has_data else 0.5)
    assert torch.equal(mixed, torch.tensor(3 + 0.5 * (WORLD - 1)))
    assert rt.all_reduce_sum(np.int64(3) if has_data else 0.5) == 3 + 0.5 * (WORLD - 1)
    assert type(rt.all_reduce_sum(0.5 if has_data else 0)) is float
    assert rt.all_reduce_sum(None) is None


def case_means() -> None:
    middle = (WORLD - 1) / 2
    assert rt.all_reduce_mean(RANK, float(RANK)) == (middle, middle)
    assert torch.allclose(rt.all_reduce_mean(torch.tensor([RANK, 5.0])), torch.tensor([middle, 5.0]))
    assert rt.all_reduce_mean(torch.tensor(RANK)).item() == middle
    assert rt.all_reduce_mean(np.array([RANK, 1.5])).tolist() == [middle, 1.5]
    assert rt.all_reduce_mean({"loss": np.int64(RANK)}) == {"loss": middle}


class _Kept:
    def __init__(self) -> None:
        self.total, self.count, self.name = float(RANK), 3, "loss"
        self.recent: deque[float] = deque([float(RANK), 1.0], maxlen=2)
        self.model = nn.Linear(1, 1)


def case_curves_and_meters() -> None:
    middle = (WORLD - 1) / 2
    losses, rows = [float(RANK), 2.0], [(1, "a", float(RANK)), (2, "b", 4.0)]
    history: dict[str, list[float]] = {"loss": losses, "other": []}
    kept = _Kept()
    weight = kept.model.weight.detach().clone()
    meters = defaultdict(_Kept, {"loss": kept})
    rt.average_over_ranks(history, rows, meters)
    assert history == {"loss": [middle, 2.0], "other": []}
    assert history["loss"] is losses
    assert rows == [(1, "a", middle), (2, "b", 4.0)]
    assert (kept.total, kept.count, kept.name) == (middle, 3, "loss")
    assert type(kept.count) is int
    assert kept.recent == deque([middle, 1.0])
    assert kept.recent.maxlen == 2
    assert torch.equal(kept.model.weight, weight)
    rt.average_over_ranks(history)
    assert losses == [middle, 2.0]


def case_extremes() -> None:
    assert rt.all_reduce_max(RANK, -float(RANK)) == (WORLD - 1, 0.0)
    assert rt.all_reduce_min(RANK, -float(RANK)) == (0, 1.0 - WORLD)
    for rank in range(WORLD):
        own = math.nan if rank == RANK else 1.0
        assert all(map(math.isnan, (rt.all_reduce_max(own), rt.all_reduce_min(own))))
        assert rt.all_reduce_max(torch.tensor(own)).isnan()
    assert rt.all_reduce_max(torch.tensor([RANK, 5])).tolist() == [WORLD - 1, 5]


def case_what_has_no_sum_is_refused_on_every_rank() -> None:
    if WORLD == 1:
        return
    for value, error in [("text", TypeError), ([0] * (RANK + 1), ValueError), (lambda: 0, TypeError)]:
        with pytest.raises(error):
            rt.all_reduce_sum(value)
    assert rt.all_reduce_sum(1) == WORLD


def case_gathered_in_rank_order() -> None:
    own = list(range(RANK))
    expected = [item for rank in range(WORLD) for item in range(rank)]
    assert rt.gather_in_order(own) == expected
    assert rt.gather_in_order(tuple(own)) == tuple(expected)
    assert rt.gather_in_order(deque(own)) == deque(expected)
    assert rt.gather_in_order(str(RANK)) == "".join(str(rank) for rank in range(WORLD))
    assert rt.gather_in_order({RANK, -1}) == {*range(WORLD), -1}
    preds, labels = rt.gather_in_order([RANK], np.array([RANK]))
    assert preds == list(range(WORLD))
    assert labels.tolist() == list(range(WORLD))


def case_gathered_tensors_keep_dtype() -> None:
    for dtype in (
        torch.bool,
        torch.uint8,
        torch.int64,
        torch.float16,
        torch.bfloat16,
        torch.float64,
        torch.complex64,
    ):
        own = torch.full((RANK, 2), RANK, dtype=dtype)
        joined = rt.gather_in_order(own)
        assert joined.dtype == dtype
        assert torch.equal(
            joined, torch.cat([torch.full((rank, 2), rank, dtype=dtype) for rank in range(WORLD)])
        )


def case_gathered_views_and_transposes() -> None:
    own = (torch.arange(12.0) + 100 * RANK).view(3, 4).t()
    assert torch.equal(
        rt.gather_in_order(own[:, ::2]),
        torch.cat([(torch.arange(12.0) + 100 * rank).view(3, 4).t()[:, ::2] for rank in range(WORLD)]),
    )


def case_gathered_large_tensors() -> None:
    own = torch.full((40_000 * RANK, 10), RANK, dtype=torch.float32)
    joined = rt.gather_in_order(own)
    assert joined.shape == (40_000 * sum(range(WORLD)), 10)
    assert torch.equal(
        joined, torch.cat([torch.full((40_000 * rank, 10), float(rank)) for rank in range(WORLD)])
    )
    labels = torch.arange(200_000) if RANK == WORLD - 1 else torch.tensor([])
    assert torch.equal(rt.gather_in_order(labels), torch.arange(200_000))
    nothing = torch.arange(200_000) if RANK == 0 else None
    assert torch.equal(rt.gather_in_order(nothing), torch.arange(200_000))


def case_gathered_empty_shares() -> None:
    last = RANK == WORLD - 1
    assert rt.gather_in_order([1, 2] if last else []) == [1, 2]
    joined = rt.gather_in_order(torch.ones(2, 5, dtype=torch.int64) if last else torch.tensor([]))
    assert torch.equal(joined, torch.ones(2, 5, dtype=torch.int64))
    assert torch.equal(rt.gather_in_order(torch.ones(1) if last else None), torch.ones(1))
    assert rt.gather_in_order(torch.zeros(0, 3) if last else torch.tensor([])).shape == (0, 3)
    assert rt.gather_in_order(np.ones((2, 5)) if last else np.array([])).shape == (2, 5)
    assert rt.gather_in_order(np.ones((2, 5)) if last else []).shape == (2, 5)
    assert rt.gather_in_order([]) == []
    assert rt.gather_in_order(None) is None
    assert rt.gather_in_order({}) == {}


def case_gathered_dicts() -> None:
    results: defaultdict[str, list[int]] = defaultdict(list)
    results["all"].append(RANK)
    results[f"only {RANK}"].append(1)
    joined = rt.gather_in_order(results)
    assert type(joined) is defaultdict
    assert joined["missing"] == []
    assert joined == {
        "all": list(range(WORLD)),
        **{f"only {rank}": [1] for rank in range(WORLD)},
        "missing": [],
    }
    assert list(rt.gather_in_order(OrderedDict([(f"id {RANK}", 0.5)]))) == [
        f"id {rank}" for rank in range(WORLD)
    ]
    assert rt.gather_in_order({"seen": RANK}) == {"seen": WORLD - 1}
    nested = rt.gather_in_order({"pred": torch.tensor([RANK]), "more": {"n": np.array([RANK])}})
    assert nested["pred"].tolist() == list(range(WORLD))
    assert nested["more"]["n"].tolist() == list(range(WORLD))
    assert rt.gather_in_order(Counter(a=1)) == Counter(a=WORLD)


def case_gathered_lists_of_tensors_and_arrays() -> None:
    batches = [torch.full((2, 2), RANK + 0.5).requires_grad_() * 1 for _ in range(RANK + 1)]
    joined = rt.gather_in_order(batches)
    assert [each[0, 0].item() for each in joined] == [
        rank + 0.5 for rank in range(WORLD) for _ in range(rank + 1)
    ]
    arrays = rt.gather_in_order([np.full(2, RANK)])
    assert [each.tolist() for each in arrays] == [[rank, rank] for rank in range(WORLD)]


def case_what_cannot_be_joined_is_refused_on_every_rank() -> None:
    if WORLD == 1:
        return
    for value in (3.5, torch.tensor(1.0), np.array(1.0), [lambda: 0] if RANK == 0 else [1]):
        with pytest.raises(TypeError):
            rt.gather_in_order(value)
    assert rt.gather_in_order([0]) == [0] * WORLD


def case_broadcast_values() -> None:
    for value in (
        True,
        7,
        2**80,
        0.1,
        None,
        "run-2024",
        {"best": [1, 2]},
        "x" * 5000,
        np.float32(1.5),
        Path("a"),
    ):
        own = value if RANK == 0 else object()
        got = rt.broadcast_value(own)
        assert got == value
        assert type(got) is type(value)
    tensor: Any = rt.broadcast_value(torch.arange(1000) if RANK == 0 else None)
    assert torch.equal(tensor, torch.arange(1000))


def case_a_value_that_cannot_travel_is_refused_on_every_rank() -> None:
    if WORLD == 1:
        return
    with pytest.raises(TypeError, match="cannot be sent"):
        rt.broadcast_value((lambda: 0) if RANK == 0 else 0)
    assert rt.broadcast_value(RANK) == 0


def case_messages_of_every_length_around_the_envelope_arrive() -> None:
    for length in range(440, 540):
        own = bytes([RANK]) * (length + RANK)
        assert rt.broadcast_value(own) == bytes(length)
        assert rt.gather_in_order([own]) == [bytes([rank]) * (length + rank) for rank in range(WORLD)]


def case_any_rank() -> None:
    assert rt.any_rank(RANK == WORLD - 1) is True
    assert rt.any_rank(False) is False
    assert rt.any_rank(torch.tensor([False, RANK == 0])) is True
    assert rt.any_rank(np.zeros(3)) is False


# ---------------------------------------------------------------------------------------------- data


class Items(Dataset[int]):
    def __init__(self, items: Iterable[int]) -> None:
        self.items = list(items)

    def __len__(self) -> int:
        return len(self.items)

    def __getitem__(self, index: int) -> int:
        return self.items[index]


def shares_of(sampler: Any) -> list[list[Any]]:
    """What each rank gets of a sampler in one pass."""
    return of_all(list(sampler))


def in_turn(shares: list[list[Any]]) -> list[Any]:
    """Round by round, as a single card would see them."""
    assert len({len(share) for share in shares}) == 1, f"unequal shares: {[len(share) for share in shares]}"
    return list(itertools.chain.from_iterable(zip(*shares, strict=True)))


def case_training_shares_cover_the_set() -> None:
    for count in (0, 1, 2, 10, 13):
        sampler = rt.DistributedSampler(range(count), shuffle=False)
        together = in_turn(shares_of(sampler))
        assert len(sampler) == len(together) // WORLD
        assert together[:count] == list(range(count))
        assert len(together) - count < max(WORLD, 1)
        if count:
            dropped = in_turn(shares_of(rt.DistributedSampler(range(count), shuffle=False, drop_last=True)))
            assert dropped == list(range(count - count % WORLD))


def case_training_order_depends_on_the_epoch_and_on_the_seed_of_the_script() -> None:
    orders = []
    for seed in (1, 20):
        torch.manual_seed(seed)
        for epoch in (0, 1, 0):
            sampler = rt.DistributedSampler(range(50))
            sampler.set_epoch(epoch)
            order = in_turn(shares_of(sampler))
            assert set(order) == set(range(50))
            orders.append(order)
    if WORLD > 1:
        first, second, again, other, *_ = orders
        assert first == again
        assert first != second
        assert other not in (first, second)


def case_a_sampler_made_anew_goes_on_with_the_passes_of_the_last() -> None:
    data = TensorDataset(torch.arange(50))
    orders = [in_turn(shares_of(rt.DistributedSampler(data))) for _ in range(3)]
    assert [set(order) for order in orders] == [set(range(50))] * 3
    assert orders[0] != orders[1] != orders[2]


def case_training_order_may_be_given_by_seed_or_generator() -> None:
    generator = torch.Generator().manual_seed(7)
    by_generator = in_turn(shares_of(rt.DistributedSampler(range(50), generator=generator)))
    torch.manual_seed(99 + RANK)
    by_seed = in_turn(shares_of(rt.DistributedSampler(range(50), seed=7)))
    if WORLD > 1:
        assert by_generator == by_seed


def case_a_training_set_may_grow() -> None:
    data = list(range(10))
    sampler = rt.DistributedSampler(data, shuffle=False)
    sampler.set_epoch(3)
    data += range(10, 30)
    assert set(in_turn(shares_of(sampler))) == set(range(30))
    assert len(sampler) == math.ceil(30 / WORLD)
    assert sampler.epoch == 3


def case_random_numbers_differ_once_varied_and_samplers_still_agree() -> None:
    torch.manual_seed(5)
    random.seed(5)
    np.random.seed(5)
    before = rt.DistributedSampler(range(40))
    rt.vary_seed()
    draws = of_all((torch.rand(1).item(), random.random(), np.random.rand()))
    assert [len(set(column)) for column in zip(*draws, strict=True)] == [WORLD] * 3
    torch.manual_seed(5)
    random.seed(5)
    np.random.seed(5)
    assert draws[0] == (torch.rand(1).item(), random.random(), np.random.rand()), "rank 0 was reseeded"
    rt.vary_seed()
    after = rt.DistributedSampler(range(40))
    weighted = rt.ShardedSampler(WeightedRandomSampler([0.1 + i for i in range(40)], 40))
    assert len(set(of_all((after.seed, weighted._seed)))) == 1
    if WORLD > 1:
        assert shares_of(before) == shares_of(after)
        state = torch.get_rng_state()
        rt.vary_seed()
        assert torch.equal(state, torch.get_rng_state()), "varied twice"
    torch.manual_seed(6)  # a script that seeds anew every epoch
    assert len(set(of_all(rt.DistributedSampler(range(40)).seed))) == 1
    if WORLD > 1:
        assert rt.DistributedSampler(range(40)).seed == 6


def case_seeds_that_count_up_do_not_meet_those_of_other_ranks() -> None:
    torch.manual_seed(42)
    rt.vary_seed()
    for seed in range(43, 60):
        torch.manual_seed(seed)
        assert same_everywhere(rt.DistributedSampler(range(9)).seed)


def case_a_loaders_own_generator_can_be_varied() -> None:
    generator = torch.Generator().manual_seed(11)
    rt.vary_seed(generator)
    assert len(set(of_all(torch.rand(1, generator=generator).item()))) == WORLD
    assert len(set(of_all(rt.DistributedSampler(range(9), generator=generator).seed))) == 1


def case_evaluation_deals_whole_batches_and_pads_nothing() -> None:
    for count, batch in [(0, 4), (1, 4), (2, 1), (7, 4), (8, 4), (9, 4), (31, 3), (100, 7)]:
        sampler = rt.EvalSampler(range(count), batch)
        shares = shares_of(sampler)
        assert list(itertools.chain.from_iterable(shares)) == list(range(count))
        assert len(sampler) == len(shares[RANK])
        assert all(len(share) % batch == 0 for share in shares[:-1])
        loader = DataLoader(Items(range(count)), batch, sampler=rt.EvalSampler(range(count), batch))
        batches = [each.tolist() for each in loader]
        alone = [each.tolist() for each in DataLoader(Items(range(count)), batch)]
        assert rt.gather_in_order(batches) == alone
        counts = [len(each) for each in of_all(batches)]
        assert max(counts) - min(counts) <= 1
        assert rt.global_batches(loader) == len(alone) == sampler.num_batches_total


def case_evaluation_with_drop_last_and_shuffle() -> None:
    data = Items(range(31))
    loader = DataLoader(data, 4, sampler=rt.EvalSampler(data, 4), drop_last=True)
    assert rt.gather_in_order([each.tolist() for each in loader]) == [
        each.tolist() for each in DataLoader(data, 4, drop_last=True)
    ]
    assert rt.global_batches(loader) == 7
    torch.manual_seed(1)
    shuffled = rt.EvalSampler(data, 4, shuffle=True)
    first, again = (list(itertools.chain.from_iterable(shares_of(shuffled))) for _ in range(2))
    assert sorted(first) == data.items
    assert first != data.items
    if WORLD > 1:
        assert first == again
        shuffled.set_epoch(1)
        assert list(itertools.chain.from_iterable(shares_of(shuffled))) != first


class Curriculum(Sampler[int]):
    """A script's own sampler, drawing from all there is."""

    def __init__(self, count: int) -> None:
        self.count = count
        self.own = random.Random()  # seeded by the operating system: differs between ranks
        self.arrays = np.random.default_rng()
        self.old = np.random.RandomState()
        self.weights = [1.0] * count
        self.epoch = 0

    def __iter__(self) -> Iterator[int]:
        items = list(range(self.count))
        random.shuffle(items)
        self.own.shuffle(items)
        yield from items[: self.count // 2]
        yield from np.random.permutation(self.count)[: self.count // 4].tolist()
        yield from self.arrays.permutation(self.count)[: self.count // 8].tolist()
        yield from self.old.permutation(self.count)[: self.count // 8].tolist()

    def __len__(self) -> int:
        return self.count // 2 + self.count // 4 + self.count // 8 * 2

    def states(self) -> str:
        return repr((self.own.getstate(), self.arrays.bit_generator.state, self.old.get_state()))

    def set_epoch(self, epoch: int) -> None:
        self.epoch = epoch


def samplers() -> dict[str, Any]:
    return {
        "weighted": WeightedRandomSampler([0.1 + i for i in range(40)], 41),
        "weighted by generator": WeightedRandomSampler(
            [0.1 + i for i in range(40)], 41, generator=torch.Generator()
        ),
        "subset": SubsetRandomSampler([3, 1, 4, 15, 9, 2, 6]),
        "with replacement": RandomSampler(range(10), replacement=True, num_samples=5000),
        "own": Curriculum(160),
    }


def generators(sampler: Any) -> str:
    own = sampler.states() if isinstance(sampler, Curriculum) else getattr(sampler, "generator", None)
    own = own.get_state().tolist() if isinstance(own, torch.Generator) else own
    return repr((torch.get_rng_state().tolist(), random.getstate(), np.random.get_state(), own))


def case_any_sampler_is_dealt_from_one_common_draw() -> None:
    torch.manual_seed(3)
    rt.vary_seed()
    for name, sampler in samplers().items():
        drawn = []
        for epoch in (0, 1, 0):
            sharded = rt.ShardedSampler(sampler)
            sharded.set_epoch(epoch)
            outside = generators(sampler)
            shares = shares_of(sharded)
            assert WORLD == 1 or generators(sampler) == outside, f"{name} left the generators changed"
            assert len(sharded) == len(shares[RANK])
            drawn.append(in_turn(shares))
        once, again = drawn[0][: len(sampler)], drawn[0][len(sampler) :]
        assert again == once[: -len(sampler) % WORLD], f"{name}: not filled up from the first"
        if name == "subset":
            assert set(drawn[0]) == {3, 1, 4, 15, 9, 2, 6}
        assert drawn[0] != drawn[1], f"{name}: two epochs alike"
        if WORLD > 1:
            assert drawn[0] == drawn[2], f"{name}: the epoch does not decide"
        dropping = rt.ShardedSampler(sampler, drop_last=True)
        assert len(in_turn(shares_of(dropping))) == len(sampler) // WORLD * WORLD == len(dropping) * WORLD


def case_fewer_draws_than_ranks_are_repeated() -> None:
    shares = shares_of(rt.ShardedSampler(SequentialSampler(range(1))))
    assert shares == [[0]] * WORLD
    assert shares_of(rt.ShardedSampler(SequentialSampler(range(0)))) == [[]] * WORLD


def case_a_sampler_without_end_is_dealt_as_it_comes() -> None:
    class Endless(Sampler[int]):
        def __iter__(self) -> Iterator[int]:
            while True:
                yield from torch.randperm(100).tolist()

    torch.manual_seed(4)
    taken = in_turn(of_all(list(itertools.islice(rt.ShardedSampler(Endless()), 6000))))
    assert all(set(taken[i : i + 100]) == set(range(100)) for i in range(0, len(taken) - 99, 100))


def case_a_sharded_sampler_passes_on_what_it_is_asked_and_told() -> None:
    inside = Curriculum(16)
    sharded = rt.ShardedSampler(inside)
    assert sharded.weights == [1.0] * 16
    sharded.weights = [2.0] * 16
    assert inside.weights == [2.0] * 16
    sharded.set_epoch(4)
    assert inside.epoch == 0, "the script tells its sampler itself"
    assert copy.deepcopy(sharded).weights == [2.0] * 16
    with pytest.raises(AttributeError, match="nothing"):
        sharded.nothing  # noqa: B018 - the point is that it is not there


def case_batches_of_a_batch_sampler_are_dealt() -> None:
    for count in (4 * 6, 4 * 6 + 3, 4 * 7, 3, 0):
        inside = BatchSampler(SequentialSampler(range(count)), 4, drop_last=False)
        sharded = rt.ShardedBatchSampler(inside)
        batches = in_turn(shares_of(sharded))
        once = list(inside)
        assert batches == once + list(
            itertools.islice(itertools.cycle(once), -len(once) % WORLD if once else 0)
        )
        assert len(batches) == len(sharded) * WORLD
        assert (
            in_turn(shares_of(rt.ShardedBatchSampler(inside, drop_last=True)))
            == list(inside)[: len(inside) // WORLD * WORLD]
        )
    torch.manual_seed(8)
    random_batches = BatchSampler(RandomSampler(range(40)), 4, drop_last=True)
    sharded = rt.ShardedBatchSampler(random_batches)
    assert sharded.batch_size == 4
    assert sharded.sampler is random_batches.sampler
    loader = DataLoader(Items(range(40)), batch_sampler=sharded)
    rt.set_epoch(loader, 0)
    first = of_all([batch.tolist() for batch in loader])
    assert {item for share in first for batch in share for item in batch} == set(range(40))
    rt.set_epoch(loader, 1)
    assert of_all([batch.tolist() for batch in loader]) != first
    assert rt.global_batches(loader) == math.ceil(10 / WORLD) * WORLD
    nested = rt.ShardedBatchSampler(BatchSampler(Curriculum(16), 2, drop_last=False))
    assert same_everywhere(list(rt._drawn_in_common(nested._source, 1, ahead=5))), (
        "a generator inside was left out"
    )


class Stream(IterableDataset[int]):
    """Draws an order; `shared` deals it out among the workers."""

    def __init__(self, count: int, *, shared: bool = False) -> None:
        self.count = count
        self.shared = shared
        self.name = "stream"

    def __iter__(self) -> Iterator[int]:
        items = list(range(self.count))
        worker = get_worker_info()
        if self.shared and worker is not None:
            items = items[worker.id :: worker.num_workers]
        random.shuffle(items)
        for item in items:
            yield item + 1000 * int(torch.randint(2**20, ()))

    def __len__(self) -> int:
        return self.count


def case_a_stream_is_dealt_in_whole_rounds() -> None:
    for count in (0, 1, 20, 23):
        torch.manual_seed(2)
        stream = rt.ShardedIterable(Stream(count))
        assert stream.name == "stream"
        assert len(stream) == count // WORLD
        items = in_turn(shares_of(stream))
        assert len(items) == count // WORLD * WORLD
        assert len({item % 1000 for item in items}) == len(items)


def case_a_stream_draws_alike_on_all_ranks_and_anew_each_epoch() -> None:
    torch.manual_seed(2)
    rt.vary_seed()
    stream = rt.ShardedIterable(Stream(24))
    passes = []
    for epoch in (0, 1, 0):
        stream.set_epoch(epoch)
        passes.append(in_turn(shares_of(stream)))
    if WORLD > 1:
        assert passes[0] == passes[2] != passes[1]
        torch.manual_seed(2)
        random.seed(2)
        assert passes[0] == list(Stream(24)), "not what a single card with this seed would draw"


def case_a_stream_in_workers_is_read_once() -> None:
    torch.manual_seed(2)
    rt.vary_seed()
    stream = rt.ShardedIterable(Stream(40, shared=True))
    for persistent in (False, True):
        loader = DataLoader(stream, 5, num_workers=2, persistent_workers=persistent)
        passes = []
        for epoch in range(3):
            rt.set_epoch(loader, epoch)
            shares = of_all([item for batch in loader for item in batch.tolist()])
            seen = [item % 1000 for share in shares for item in share]
            assert len(seen) == len(set(seen)) == 40 // (2 * WORLD) * (2 * WORLD)
            assert len({item // 1000 for share in shares for item in share}) == len(seen), (
                "workers draw alike"
            )
            passes.append(tuple(map(tuple, shares)))
        assert len(set(passes)) == 3, "epochs alike"
    assert len(set(of_all(len(list(loader))))) == 1


def case_set_epoch_finds_the_sampler_wherever_it_sits() -> None:
    data = Items(range(12))
    training, inner, evaluation = (
        rt.DistributedSampler(data),
        rt.DistributedSampler(data),
        rt.EvalSampler(data),
    )
    rt.set_epoch(DataLoader(data, sampler=training), 5)
    rt.set_epoch(DataLoader(data, sampler=evaluation), 5)
    rt.set_epoch(DataLoader(data, batch_sampler=BatchSampler(inner, 2, drop_last=False)), 5)
    assert training.epoch == evaluation.epoch == inner.epoch == 5
    rt.set_epoch(DataLoader(data), 5)
    rt.set_epoch([1, 2], 5)
    own = Curriculum(12)
    rt.set_epoch(DataLoader(data, sampler=own), 5)
    assert own.epoch == 0


def case_batches_of_all_ranks_are_counted() -> None:
    data = Items(range(30))
    assert rt.global_batches(DataLoader(data, 4)) == 8
    assert rt.global_batches([1, 2, 3]) == 3
    sampler = rt.DistributedSampler(data)
    dealt = DataLoader(data, 4, sampler=sampler)
    assert rt.global_batches(dealt) == len(dealt) * WORLD
    assert rt.global_batches(DataLoader(data, 7, sampler=rt.EvalSampler(data, 4))) == sum(
        of_all(len(DataLoader(data, 7, sampler=rt.EvalSampler(data, 4))))
    )
    stream = DataLoader(rt.ShardedIterable(Stream(24)), 2)
    assert rt.global_batches(stream) == len(stream) * WORLD
    assert rt.global_samples(DataLoader(data, 4)) == 30
    assert rt.global_samples(dealt) == len(sampler) * WORLD
    assert rt.global_samples(DataLoader(data, 7, sampler=rt.EvalSampler(data, 4))) == 30
    draw = rt.ShardedSampler(SubsetRandomSampler(range(12)))
    assert rt.global_samples(DataLoader(data, 4, sampler=draw)) == len(draw) * WORLD


class Marked(DataLoader[int]):
    """A library's own loader, with another signature."""

    def __init__(self, data: Any, mark: str, **options: Any) -> None:
        super().__init__(data, **options)
        self.mark = mark


def double(batch: list[int]) -> list[int]:
    return [2 * item for item in batch]


def case_the_whole_loader_is_the_same_but_for_the_sampler() -> None:
    data = Items(range(11))
    options = {
        "batch_size": 3,
        "collate_fn": double,
        "drop_last": True,
        "num_workers": 1,
        "prefetch_factor": 3,
    }
    options |= {
        "persistent_workers": True,
        "worker_init_fn": torch.manual_seed,
        "generator": torch.Generator(),
        "timeout": 9,
    }
    dealt = Marked(data, "kept", sampler=rt.EvalSampler(data, 3), **options)
    first = list(dealt)  # its workers live on
    whole = rt.whole_loader(dealt)
    assert (whole is dealt) == (WORLD == 1)
    assert list(whole) == [double(data.items[i : i + 3]) for i in (0, 3, 6)]
    assert type(whole) is Marked
    assert whole.mark == "kept"
    changed = {"sampler", "batch_sampler", "_iterator"}
    assert set(vars(whole)) == set(vars(dealt))
    assert all(vars(whole)[name] is value for name, value in vars(dealt).items() if name not in changed)
    assert list(dealt) == first, "the loader itself was changed"
    assert rt.gather_in_order(first) == list(whole)
    assert len(rt.whole_loader(DataLoader(data, sampler=rt.EvalSampler(data)))) == 11
    unbatched = DataLoader(data, batch_size=None, sampler=rt.EvalSampler(data, None))
    assert list(rt.whole_loader(unbatched)) == data.items
    other = DataLoader(data, shuffle=True)
    assert rt.whole_loader(other) is other


class Seeded(Dataset[int]):
    """Each item is what its worker draws."""

    def __len__(self) -> int:
        return 12

    def __getitem__(self, index: int) -> int:
        return int(torch.randint(2**40, ()))


def case_workers_of_different_ranks_draw_differently_once_varied() -> None:
    torch.manual_seed(12)
    rt.vary_seed()
    loader = DataLoader(
        Seeded(), 2, sampler=rt.DistributedSampler(Seeded()), num_workers=1, persistent_workers=True
    )
    draws = [draw for _ in range(2) for batch in loader for draw in batch.tolist()]
    together = list(itertools.chain.from_iterable(of_all(draws)))
    assert len(set(together)) == len(together)


# --------------------------------------------------------------------------------------------- model


def small_model() -> nn.Module:
    return nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 3))


def case_every_wrapper_comes_off() -> None:
    model = small_model()
    compiled = torch.compile(model)
    for wrapped in (
        model,
        DDP(model),
        compiled,
        DDP(compiled),
        torch.compile(DDP(model)),
        nn.DataParallel(model),
    ):
        assert rt.unwrap(wrapped) is model

    class Holder(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.module = model

    holder = Holder()
    assert rt.unwrap(DDP(holder)) is holder, "a script's own attribute `module` is no wrapper"
    assert rt.unwrap(None) is None
    assert rt.device_ids(model) is None


def case_buffers_agree_after_sync() -> None:
    class Tracker(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.norm = nn.BatchNorm1d(4)
            self.instance = nn.InstanceNorm1d(4, track_running_stats=True)
            self.register_buffer("queue", torch.full((3,), float(RANK)))
            self.register_buffer("flags", torch.tensor([RANK == 0, True]))
            self.register_buffer("pointer", torch.tensor(RANK))
            self.register_buffer("phase", torch.tensor([RANK + 1j]))
            self.register_buffer("nothing", torch.zeros(0, dtype=torch.int16))
            self.register_buffer("turned", torch.full((2, 2), float(RANK), dtype=torch.bfloat16).t())
            self.weight = nn.Parameter(torch.ones(1))

    model: Any = Tracker()
    model.norm.running_mean.fill_(RANK)
    model.norm.running_var.fill_(2 * RANK + 1)
    model.norm.num_batches_tracked.fill_(7 + RANK)
    model.instance.running_mean.fill_(-RANK)
    rt.sync_buffers(model)
    mean = sum(range(WORLD)) / WORLD
    assert model.norm.running_mean.tolist() == [mean] * 4
    assert torch.allclose(model.norm.running_var, torch.full((4,), 2 * mean + 1))
    assert model.instance.running_mean.tolist() == [-mean] * 4
    assert int(model.norm.num_batches_tracked) == 7
    assert model.queue.tolist() == [0.0] * 3
    assert model.flags.tolist() == [True, True]
    assert int(model.pointer) == 0
    assert model.phase.tolist() == [1j]
    assert model.turned.tolist() == [[0.0, 0.0]] * 2
    rt.sync_buffers(nn.Linear(2, 2))


def case_evaluation_agrees_after_sync() -> None:
    torch.manual_seed(0)
    model = DDP(small_model())
    torch.manual_seed(RANK)
    for _ in range(3):
        model(torch.randn(8, 6) * (RANK + 1)).sum().backward()
    model.eval()
    x = torch.ones(2, 6)
    outputs = of_all(model.module(x).tolist())
    if WORLD > 1:
        assert outputs[0] != outputs[1], "nothing to repair"
    rt.sync_buffers(model)
    assert len({repr(each) for each in of_all(model.module(x).tolist())}) == 1


def gradients_of(model: nn.Module) -> list[torch.Tensor]:
    return [parameter.grad.clone() for parameter in model.parameters() if parameter.grad is not None]


def case_accumulated_gradients_are_those_of_averaging_each_time() -> None:
    torch.manual_seed(1)
    inputs = torch.randn(WORLD, 4, 5, 6)
    results = []
    for way in ("each", "last", "compiled", "single", "static"):
        torch.manual_seed(2)
        inner = nn.Sequential(nn.Linear(6, 4), nn.Tanh(), nn.Linear(4, 2))
        model: Any = DDP(inner, static_graph=way == "static")
        if way == "single":
            model = inner
        if way == "compiled":
            model = torch.compile(model, backend="eager")
        calls: list[int] = []
        if way != "single":
            wrapper = model._orig_mod if way == "compiled" else model

            def counted(
                _: Any,
                bucket: dist.GradBucket,  # type: ignore[name-defined]
                calls: list[int] = calls,
            ) -> torch.futures.Future[torch.Tensor]:
                calls.append(1)
                future = dist.all_reduce(bucket.buffer().div_(WORLD), async_op=True).get_future()
                return future.then(lambda done: done.value()[0])  # type: ignore[no-any-return]

            wrapper.register_comm_hook(None, counted)
        for step in range(4):
            with rt.accumulate(model, way == "each" or step == 3):
                batch = inputs[:, step].reshape(-1, 6) if way == "single" else inputs[RANK, step]
                model(batch).square().mean().backward()
        assert way in ("each", "single", "static") or len(calls) == 1, f"{way}: {len(calls)} all-reduces"
        results.append(gradients_of(inner))
    for result in results[1:]:
        for own, reference in zip(result, results[0], strict=True):
            assert torch.allclose(own, reference, atol=1e-6)


def case_a_mean_by_count_has_the_value_and_the_gradient_of_one_card() -> None:
    torch.manual_seed(1)
    x = torch.randn(WORLD, 5, 6)
    mask = torch.zeros(WORLD, 5)
    for rank in range(WORLD):
        mask[rank, : rank + 1] = 1.0
    mask[-1, 0] = 0.0
    shares = (slice(RANK, RANK + 1), slice(None))
    for in_parts in (False, True):
        gradients, losses = [], []
        for share in shares:
            torch.manual_seed(3)
            inner = nn.Linear(6, 1)
            model = DDP(inner) if share != slice(None) else inner
            own = mask[share]
            loss = (model(x[share]).squeeze(-1).square() * own).sum(None if not in_parts else 0)
            loss = loss / own.sum().clamp(min=1)
            if share != slice(None):
                loss = rt.mean_by_count(loss, own.sum().clamp(min=1), own.sum())
                assert loss.dtype == torch.float32
            loss = loss.sum()
            loss.backward()
            losses.append(loss.item())
            gradients.append(gradients_of(inner))
        for own_gradient, reference in zip(*gradients, strict=True):
            assert torch.allclose(own_gradient, reference, atol=1e-6)
        value = sum(of_all(losses[0])) / WORLD if in_parts else losses[0]
        assert math.isclose(value, losses[1], rel_tol=1e-5)


def case_a_rank_that_counts_nothing_does_not_count() -> None:
    output = torch.ones(4, requires_grad=True)
    empty = RANK == 0 and WORLD > 1
    kept = output[torch.zeros(4, dtype=torch.bool)] if empty else output * RANK
    loss = rt.mean_by_count(kept.mean(), kept.numel())
    loss.backward()
    assert loss.item() == (sum(range(WORLD)) / (WORLD - 1) if WORLD > 1 else 0.0)
    assert output.grad is not None
    assert output.grad.isfinite().all()
    assert math.isnan(rt.mean_by_count(torch.tensor(math.nan), 0).item())
    assert rt.mean_by_count(torch.tensor(0.0), 1, 0).item() == 0.0


def case_a_mean_that_is_a_number_on_one_rank_meets_the_others() -> None:
    count = RANK * 2
    loss = torch.tensor(3.0 * count) / count if count else 0.0
    loss = rt.mean_by_count(loss, max(count, 1), count)
    assert float(loss) == (3.0 if WORLD > 1 else 0.0)


def case_of_a_sum_and_a_penalty_only_the_sum_grows() -> None:
    x = torch.arange(WORLD * 6.0).reshape(WORLD, 6) / 10
    gradients = []
    for on_ranks in (True, False):
        torch.manual_seed(3)
        inner = nn.Linear(6, 1)
        model = DDP(inner) if on_ranks else inner
        fit = model(x[RANK : RANK + 1] if on_ranks else x).square().sum()
        penalty = inner.weight.square().sum()
        (fit * rt.scale_by_ranks() + penalty if on_ranks else fit + penalty).backward()
        gradients.append(gradients_of(inner))
    for own_gradient, reference in zip(*gradients, strict=True):
        assert torch.allclose(own_gradient, reference, rtol=1e-5)
    with torch.no_grad():
        assert rt.scale_by_ranks() == 1


def case_a_ratio_of_sums_gives_the_gradient_of_one_card() -> None:
    x = torch.arange(WORLD * 12.0).reshape(WORLD * 2, 6) / 10
    t = (torch.arange(WORLD * 2) % 3 == 0).long()
    gradients = []
    for share in (slice(2 * RANK, 2 * RANK + 2), slice(None)):
        torch.manual_seed(3)
        inner = nn.Linear(6, 1)
        model = DDP(inner) if share != slice(None) else inner
        p, own = torch.sigmoid(model(x[share]).squeeze(-1)), t[share]
        sums = [(p * own).sum(), p.sum(), own.sum()]
        if share != slice(None):
            sums = [rt.sum_over_ranks(item) for item in sums]
            assert rt.sum_over_ranks(p, whole=True) is p
        loss: Any = 1 - (2 * sums[0] + 1) / (sums[1] + sums[2] + 1)
        loss.backward()
        gradients.append(gradients_of(inner))
    for own_gradient, reference in zip(*gradients, strict=True):
        assert torch.allclose(own_gradient, reference, atol=1e-6)
    with torch.no_grad():
        assert rt.sum_over_ranks(p) is p


def case_what_was_made_without_gradients_stays_that_of_one_rank() -> None:
    output = torch.ones(2)
    mean = torch.tensor(float(RANK))
    assert rt.mean_by_count(mean, 1, given=output) is mean
    whole = rt.mean_by_count(mean, 1, given=output.requires_grad_())
    assert math.isclose(whole.item(), (WORLD - 1) / 2, abs_tol=1e-6)


def case_a_queue_takes_the_batches_of_all_ranks() -> None:
    keys = torch.arange((RANK + 1) * 3.0, requires_grad=True).reshape(-1, 3) + RANK
    with torch.no_grad():
        batches = rt.batches_of_ranks(keys)
        pairs = rt.batches_of_ranks(keys, torch.full((RANK + 1,), RANK))
    assert [len(batch) for batch in batches] == [rank + 1 for rank in range(WORLD)]
    assert torch.equal(batches[RANK], keys)
    assert [labels.tolist() for _, labels in pairs] == [[rank] * (rank + 1) for rank in range(WORLD)]
    assert all(batch.requires_grad == (WORLD == 1) for batch in batches)


def case_the_root_of_a_mean_gives_the_gradient_of_one_card() -> None:
    torch.manual_seed(1)
    x = torch.randn(WORLD, 4, 6)
    gradients = []
    for on_ranks in (True, False):
        torch.manual_seed(3)
        inner = nn.Linear(6, 1)
        model = DDP(inner)
        mean = model(x[RANK]).pow(2).mean() if on_ranks else inner(x.reshape(-1, 6)).pow(2).mean()
        loss: Any = torch.sqrt(rt.mean_over_ranks(mean) if on_ranks else mean)
        loss.backward()
        gradients.append(gradients_of(inner))
    for own, reference in zip(*gradients, strict=True):
        assert torch.allclose(own, reference, atol=1e-6)
    with torch.no_grad():
        assert rt.mean_over_ranks(mean) is mean


def case_a_loss_over_pairs_gives_the_gradient_of_one_card() -> None:
    torch.manual_seed(1)
    lengths = [1, *[3] * (WORLD - 2), 5] if WORLD > 1 else [3]
    shares = torch.split(torch.randn(WORLD * 3, 6), lengths)
    gradients = []
    for on_ranks in (True, False):
        torch.manual_seed(3)
        inner = nn.Linear(6, 3)
        model = DDP(inner)
        features = rt.all_gather_with_grad(model(shares[RANK])) if on_ranks else inner(torch.cat(shares))
        assert features.shape == (WORLD * 3, 3)
        similarity = features @ features.t()
        loss: Any = nn.functional.cross_entropy(similarity, torch.arange(len(similarity)))
        loss.backward()
        gradients.append(gradients_of(inner))
    for own, reference in zip(*gradients, strict=True):
        assert torch.allclose(own, reference, atol=1e-5)


def case_views_are_gathered_one_after_the_other() -> None:
    def halves(z: torch.Tensor) -> torch.Tensor:
        others = (torch.arange(len(z)) + len(z) // 2) % len(z)
        return nn.functional.cross_entropy((z @ z.t()).masked_fill(torch.eye(len(z)).bool(), -1e9), others)

    torch.manual_seed(1)
    sizes = [2 + rank for rank in range(WORLD)]
    first, second = (torch.split(torch.randn(sum(sizes), 6), sizes) for _ in range(2))
    gradients = []
    for on_ranks in (True, False):
        torch.manual_seed(3)
        inner = nn.Linear(6, 3)
        model = DDP(inner)
        if on_ranks:
            z = rt.all_gather_with_grad(model(torch.cat([first[RANK], second[RANK]])), views=2)
        else:
            z = inner(torch.cat([*first, *second]))
        loss: Any = halves(z)
        loss.backward()
        gradients.append(gradients_of(inner))
    for own, reference in zip(*gradients, strict=True):
        assert torch.allclose(own, reference, atol=1e-5)
    raised = False
    try:
        rt.all_gather_with_grad(torch.ones(3, 1), views=2)
    except ValueError:
        raised = True
    assert raised == (WORLD > 1)


def case_labels_and_masks_of_all_ranks() -> None:
    labels = rt.all_gather_with_grad(torch.arange(RANK))
    assert labels.tolist() == [number for rank in range(WORLD) for number in range(rank)]
    masks = rt.all_gather_with_grad(torch.tensor([[RANK == 0, True]]))
    assert masks.tolist() == [[rank == 0, True] for rank in range(WORLD)]
    halves = rt.all_gather_with_grad(torch.full((1, 2), RANK, dtype=torch.bfloat16))
    assert halves[:, 0].tolist() == list(range(WORLD))
    assert rt.all_gather_with_grad(torch.ones(0, 3)).shape == (0, 3)
    tensor = torch.ones(2, 2)
    assert (rt.all_gather_with_grad(tensor) is tensor) == (WORLD == 1)
    scale = torch.tensor(2.0)
    assert rt.all_gather_with_grad(scale) is scale
    with torch.no_grad():
        assert rt.all_gather_with_grad(tensor) is tensor


# --------------------------------------------------------------------------------------------- files


def case_a_checkpoint_is_written_by_one_rank() -> None:
    folder = Path(rt.broadcast_value(tempfile.mkdtemp()))
    path = folder / f"rank{RANK}.pth"
    rt.save_checkpoint({"rank": RANK}, path)
    rt.save_checkpoint({"rank": RANK}, str(folder / "shared.pth"))
    with (folder / f"file{RANK}").open("wb") as file:
        rt.save_checkpoint({"rank": RANK}, file)
    buffer = io.BytesIO()
    rt.save_checkpoint({"rank": RANK}, buffer)
    dist.barrier()
    assert torch.load(folder / "shared.pth") == {"rank": 0}
    assert [path.name for path in folder.glob("rank*")] == ["rank0.pth"]
    assert (folder / f"file{RANK}").stat().st_size > 0 or RANK > 0
    assert sorted(path.name for path in folder.iterdir() if path.name.startswith(".")) == []
    assert torch.load(io.BytesIO(buffer.getvalue())) == {"rank": RANK}, "a copy in memory is each rank's own"


def case_every_training_sample_is_dealt_once_through_loaders() -> None:
    data = TensorDataset(torch.arange(24))
    sampler = rt.DistributedSampler(data)
    loader = DataLoader(data, 4, sampler=sampler, num_workers=1)
    for epoch in range(2):
        sampler.set_epoch(epoch)
        seen = [item for (batch,) in loader for item in batch.tolist()]
        assert sorted(itertools.chain.from_iterable(of_all(seen))) == list(range(24))


# ------------------------------------------------------- models that a wrapper serves in part, or not at all


def case_what_is_thawed_after_wrapping_is_averaged() -> None:
    torch.manual_seed(1)
    inner = nn.Sequential(nn.Linear(6, 4), nn.Linear(4, 2))
    for parameter in inner[0].parameters():
        parameter.requires_grad_(False)
    with rt.all_trainable(inner):
        model = DDP(inner, find_unused_parameters=True)
    assert [parameter.requires_grad for parameter in inner.parameters()] == [False, False, True, True]
    x = torch.randn(WORLD, 5, 6)
    model(x[RANK]).square().mean().backward()
    assert inner[0].weight.grad is None
    for parameter in inner.parameters():
        parameter.requires_grad_(True)
    model.zero_grad()
    model(x[RANK]).square().mean().backward()
    averaged = gradients_of(inner)
    inner.zero_grad()
    inner(x.reshape(-1, 6)).square().mean().backward()
    for own, reference in zip(averaged, gradients_of(inner), strict=True):
        assert torch.allclose(own, reference, atol=1e-6)


def case_two_forwards_before_one_backward_with_own_buffers() -> None:
    torch.manual_seed(1)
    arguments: Any = rt.own_buffers()
    model = DDP(small_model(), **arguments)
    first, second = model(torch.randn(4, 6) + RANK), model(torch.randn(4, 6) - RANK)
    (first.sum() + second.sum()).backward()
    means = of_all(model.module[1].running_mean.tolist())
    assert len({repr(each) for each in means}) == WORLD, "the buffers are still rank 0's"
    rt.sync_buffers(model)
    assert same_everywhere(model.module[1].running_mean.tolist())


def case_one_call_trains_through_the_wrapper_and_evaluates_inside() -> None:
    inner = small_model()
    wrapped = DDP(inner)
    compiled = torch.compile(wrapped, backend="eager")
    for model in (wrapped, compiled, inner):
        assert rt.forward_of(model) is model
        with torch.no_grad():
            assert rt.forward_of(model) is inner


def case_a_model_without_wrapper_starts_alike() -> None:
    torch.manual_seed(RANK)
    model = small_model()
    model(torch.randn(4, 6))
    rt.broadcast_model(model)
    assert same_everywhere([tensor.tolist() for tensor in model.state_dict().values()])


def case_gradients_averaged_by_hand_are_those_of_the_wrapper() -> None:
    x = torch.randn(WORLD, 5, 6)
    results = []
    for by_hand in (True, False):
        torch.manual_seed(1)
        inner = nn.ModuleDict(
            {"used": nn.Linear(6, 2), "on rank 0": nn.Linear(6, 2), "nowhere": nn.Linear(6, 2)}
        )
        inner["frozen"] = nn.Linear(6, 2).requires_grad_(False)
        inner["narrow"] = nn.Linear(6, 2).bfloat16()

        class Network(nn.Module):
            def __init__(self, parts: nn.ModuleDict) -> None:
                super().__init__()
                self.parts = parts

            def forward(self, inputs: torch.Tensor, *, rank: int) -> torch.Tensor:
                result: torch.Tensor = self.parts["used"](inputs) + self.parts["narrow"](inputs.bfloat16())
                return result + self.parts["on rank 0"](inputs) if rank == 0 else result

        network: Any = Network(inner)
        model = network if by_hand else DDP(network, find_unused_parameters=True)
        model(x[RANK], rank=RANK).square().mean().backward()
        if by_hand:
            optimizer = torch.optim.SGD(network.parameters(), lr=0.1)
            rt.average_gradients(network)
            rt.average_gradients(optimizer)
        results.append({name: parameter.grad for name, parameter in network.named_parameters()})
    assert results[0]["parts.used.weight"] is not None
    for name, reference in results[1].items():
        own = results[0][name]
        assert (own is None) == (reference is None), name
        close = 1e-2 if own is not None and own.dtype == torch.bfloat16 else 1e-6
        assert own is None or torch.allclose(own, reference, atol=close, rtol=close), name


def case_a_sampler_that_is_never_told_counts_the_epochs() -> None:
    batches = BatchSampler(RandomSampler(range(40)), 4, drop_last=False)
    for sampler in (
        rt.DistributedSampler(range(40)),
        rt.ShardedSampler(SubsetRandomSampler(range(40))),
        rt.ShardedBatchSampler(batches),
    ):
        first, second = shares_of(sampler), shares_of(sampler)
        assert first != second, type(sampler).__name__
        if WORLD > 1:
            sampler.set_epoch(0)
            assert shares_of(sampler) == first


def case_each_pass_within_an_epoch_has_an_order_of_its_own() -> None:
    for sampler in (rt.DistributedSampler(range(36)), rt.ShardedSampler(SubsetRandomSampler(range(36)))):
        orders = []
        for epoch in (0, 1):
            sampler.set_epoch(epoch)
            orders += [in_turn(shares_of(sampler)) for _ in range(3)]
        assert all(sorted(order) == list(range(36)) for order in orders)
        assert len(set(map(tuple, orders))) == len(orders)


def case_the_whole_loader_of_dealt_training_data_is_whole() -> None:
    data = Items(range(12))
    whole = rt.whole_loader(DataLoader(data, 5, sampler=rt.DistributedSampler(data)))
    if WORLD > 1:
        assert [batch.tolist() for batch in whole] == [[0, 1, 2, 3, 4], [5, 6, 7, 8, 9], [10, 11]]
    weighted = WeightedRandomSampler([1.0] * 12, 12)
    loader = DataLoader(data, 5, sampler=rt.ShardedSampler(weighted))
    assert len([item for batch in rt.whole_loader(loader) for item in batch]) == 12
    batches = BatchSampler(SequentialSampler(data), 5, drop_last=False)
    loader = DataLoader(data, batch_sampler=rt.ShardedBatchSampler(batches))
    assert len([item for batch in rt.whole_loader(loader) for item in batch]) == 12


# ------------------------------------------------------------------------------------------- by hand and by card


def case_batches_made_by_hand_are_dealt() -> None:
    for count in (0, 1, 7, 12):
        starts = range(0, 4 * count, 4)
        together = in_turn(of_all(list(rt.share_of(starts))))
        assert together[:count] == list(starts)
        assert len(together) - count < max(WORLD, 1)
        left_out = in_turn(of_all(list(rt.share_of(start for start in starts))))
        assert left_out == list(starts)[: count // WORLD * WORLD]
    endless = rt.share_of(itertools.count())
    assert in_turn(of_all(list(itertools.islice(endless, 5)))) == list(range(5 * WORLD))


def case_tensors_on_a_card_travel_in_one_piece_and_arrive_on_the_card() -> None:
    if WORLD == 1:
        return
    arrived = []

    def own_device() -> torch.device:
        arrived.append("card")
        return torch.device("cpu")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(rt, "_on_card", lambda _: True)
        patch.setattr(rt, "own_device", own_device)
        odd = torch.full((RANK + 1, 3), RANK, dtype=torch.bool)  # so that what follows it lies unaligned
        joined = rt.gather_in_order(
            odd, [torch.tensor(RANK + 0.5), torch.ones(2)], {"a": torch.zeros(RANK, 2)}
        )
        assert joined[0].shape == (sum(range(WORLD + 1)), 3)
        assert joined[1][::2] == [torch.tensor(rank + 0.5) for rank in range(WORLD)]
        assert joined[2]["a"].shape == (sum(range(WORLD)), 2)
        total = rt.all_reduce_sum(torch.tensor(RANK + 0.5) if RANK else 0, {"n": torch.tensor([RANK])})
        assert torch.equal(total[0], torch.tensor(sum(rank + 0.5 for rank in range(1, WORLD))))
        assert total[1]["n"].tolist() == [sum(range(WORLD))]
        value: Any = rt.broadcast_value({"weights": torch.arange(5) + RANK, "none": torch.empty(0)})
        assert value["weights"].tolist() == [0, 1, 2, 3, 4]
        assert rt.gather_in_order(torch.empty(0, 2)).shape == (0, 2)
    assert arrived, "nothing was sent to a card"
