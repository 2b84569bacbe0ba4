"""The runtime in a world of one, where a migrated script has to give bit for bit what the original gave."""

# ruff: noqa: ANN401 - data sets and loaders are the user's: any object
# ruff: noqa: NPY002 - numpy's old generator is the one that scripts use

import ast
import csv
import io
import json
import os
import pickle
import random
import stat
import sys
from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import (
    BatchSampler,
    DataLoader,
    Dataset,
    IterableDataset,
    RandomSampler,
    SubsetRandomSampler,
    TensorDataset,
    WeightedRandomSampler,
)
from tqdm import tqdm

from multicard import runtime as rt

SOURCE = Path(rt.__file__).read_text(encoding="utf-8")


@pytest.fixture(autouse=True)
def plain_python(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """As under `python train.py`, whatever the tests themselves were started by."""
    for name in ("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(rt, "_place", None)
    yield
    if dist.is_initialized():
        dist.destroy_process_group()


@pytest.fixture
def as_rank(monkeypatch: pytest.MonkeyPatch) -> Callable[[int, int], None]:
    """As if torchrun had started this, for what needs no other rank."""

    def environment(rank: int, world_size: int) -> None:
        monkeypatch.setenv("RANK", str(rank))
        monkeypatch.setenv("LOCAL_RANK", str(rank))
        monkeypatch.setenv("WORLD_SIZE", str(world_size))

    return environment


def random_state() -> str:
    return repr((torch.get_rng_state().tolist(), random.getstate(), np.random.get_state()))


# ----------------------------------------------------------------------------------------------- setup


def test_plain_python_is_a_world_of_one() -> None:
    before = random_state()
    assert rt.setup_ddp() == (0, 0, 1)
    assert repr(rt.setup_ddp()) == "(0, 0, 1)"
    assert (dist.get_rank(), dist.get_world_size()) == (0, 1)
    assert random_state() == before, "random numbers were drawn"
    dist.barrier()
    dist.destroy_process_group()
    assert rt.setup_ddp() == (0, 0, 1)
    assert rt.is_main_process()


def test_a_world_of_one_says_nothing_of_its_own(capfd: pytest.CaptureFixture[str]) -> None:
    rt.setup_ddp()
    nn.parallel.DistributedDataParallel(nn.Linear(2, 2))
    assert capfd.readouterr() == ("", "")
    assert "GLOO_SOCKET_IFNAME" not in os.environ


def test_the_interface_that_the_user_chose_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "lo")
    rt.setup_ddp()
    assert os.environ["GLOO_SOCKET_IFNAME"] == "lo"


def test_a_world_size_without_a_rank_is_some_schedulers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORLD_SIZE", "8")
    assert rt.setup_ddp() == (0, 0, 1)


def test_rank_zero_is_told_apart_before_setup(as_rank: Callable[[int, int], None]) -> None:
    as_rank(1, 2)
    assert not rt.is_main_process()
    as_rank(0, 2)
    assert rt.is_main_process()


class Card:
    """Stands for `torch.cuda` and its like."""

    def __init__(self, count: int) -> None:
        self.count = count
        self.chosen: int | None = None

    def is_available(self) -> bool:
        return True

    def device_count(self) -> int:
        return self.count

    def set_device(self, index: int) -> None:
        self.chosen = index

    def get_rng_state(self) -> None:
        pass

    def set_rng_state(self, state: None) -> None:
        pass


@pytest.mark.parametrize(
    ("kind", "backend"),
    [("cuda", "cpu:gloo,cuda:nccl"), ("npu", "cpu:gloo,npu:hccl"), ("xpu", "cpu:gloo,xpu:xccl")],
)
def test_cards_are_joined_by_their_own_backend(
    kind: str, backend: str, as_rank: Callable[[int, int], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    as_rank(3, 4)
    card = Card(4)
    monkeypatch.setattr(torch, kind, card, raising=False)
    monkeypatch.setattr(dist, "is_nccl_available", lambda: True)
    given: dict[str, Any] = {}

    def init_process_group(backend: str, timeout: object, device_id: object) -> None:
        given.update(backend=backend, timeout=timeout, device_id=device_id)

    monkeypatch.setattr(dist, "init_process_group", init_process_group)
    monkeypatch.setattr(rt, "broadcast_value", lambda value: value)
    monkeypatch.setattr(torch, "device", lambda kind, index: f"{kind}:{index}")  # this torch may know no npu
    assert rt.setup_ddp() == (3, 3, 4)
    assert card.chosen == 3
    assert given["backend"] == backend
    assert str(given["device_id"]) == f"{kind}:3"
    assert str(rt.own_device()) == f"{kind}:3"


def test_a_world_of_one_on_cards_leaves_the_choice_of_card_to_the_script(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    card = Card(4)
    monkeypatch.setattr(torch, "cuda", card)
    monkeypatch.setattr(dist, "is_nccl_available", lambda: True)
    given: dict[str, Any] = {}
    monkeypatch.setattr(dist, "init_process_group", lambda **options: given.update(options))
    assert rt.setup_ddp() == (0, 0, 1)
    assert card.chosen is None
    assert (given["backend"], given["world_size"]) == ("cpu:gloo,cuda:nccl", 1)
    assert "device_id" not in given


def test_cards_without_nccl_are_joined_by_gloo(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch, "cuda", Card(1))
    monkeypatch.setattr(dist, "is_nccl_available", lambda: False)
    given: dict[str, Any] = {}
    monkeypatch.setattr(dist, "init_process_group", lambda **options: given.update(options))
    rt.setup_ddp()
    assert given["backend"] == "gloo"


def test_too_few_cards_are_told_in_one_line(
    as_rank: Callable[[int, int], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    as_rank(0, 4)
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "4")
    monkeypatch.setattr(torch, "cuda", Card(2))
    with pytest.raises(SystemExit, match=r"4 processes .* 2 cuda device.*--nproc-per-node=2") as error:
        rt.setup_ddp()
    assert "\n" not in str(error.value)


# ------------------------------------------------------------------------------------------ random draws


class Noisy(Dataset[tuple[torch.Tensor, int]]):
    """Augments with random numbers, as image data sets do."""

    def __len__(self) -> int:
        return 37

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        noise = torch.randn(6) * random.random() + float(np.random.rand())
        return torch.full((6,), float(index)) / 37 + noise, index % 3


def original_loader(data: Any, generator: torch.Generator | None, *, shuffle: bool, **options: Any) -> Any:
    return DataLoader(data, 5, shuffle=shuffle, generator=generator, **options)


def migrated_loader(data: Any, generator: torch.Generator | None, *, shuffle: bool, **options: Any) -> Any:
    sampler = rt.DistributedSampler(data, shuffle=shuffle, generator=generator)
    return DataLoader(data, 5, sampler=sampler, generator=generator, **options)


def train(make_loader: Callable[..., Any], *, migrated: bool, seeded: bool, **options: Any) -> list[str]:
    """Everything that a run computes: losses, evaluation, weights, and where the generators end up."""
    torch.manual_seed(3)
    random.seed(3)
    np.random.seed(3)
    generator = torch.Generator().manual_seed(9) if seeded else None
    model: Any = nn.Sequential(
        nn.Linear(6, 16), nn.BatchNorm1d(16), nn.Dropout(0.3), nn.ReLU(), nn.Linear(16, 3)
    )
    loader = make_loader(Noisy(), generator, **options)
    evaluation = (
        DataLoader(Noisy(), 7, sampler=rt.EvalSampler(Noisy(), 7)) if migrated else DataLoader(Noisy(), 7)
    )
    if migrated:
        model = DistributedDataParallel(model, device_ids=rt.device_ids(model), find_unused_parameters=True)
        rt.vary_seed()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    record: list[str] = []
    for epoch in range(3):
        if migrated:
            rt.set_epoch(loader, epoch)
        model.train()
        for inputs, labels in loader:
            optimizer.zero_grad()
            loss: Any = nn.functional.cross_entropy(model(inputs), labels)
            loss.backward()
            optimizer.step()
            record.append(loss.item().hex())
        model.eval()
        if migrated:
            rt.sync_buffers(model)
        network = model.module if migrated else model
        total = 0.0
        for inputs, labels in evaluation:
            with torch.no_grad():
                total += nn.functional.cross_entropy(network(inputs), labels, reduction="sum").item()
        total = rt.all_reduce_sum(total) if migrated else total
        record.append(total.hex())
    record += [parameter.detach().numpy().tobytes().hex() for parameter in rt.unwrap(model).parameters()]
    return [*record, random_state()]


@pytest.mark.parametrize("shuffle", [True, False], ids=["shuffled", "in order"])
@pytest.mark.parametrize("seeded", [True, False], ids=["own generator", "global generator"])
@pytest.mark.parametrize("workers", [0, 2], ids=["no workers", "persistent workers"])
def test_training_is_that_of_the_original_to_the_last_bit(
    *, shuffle: bool, seeded: bool, workers: int
) -> None:
    options: dict[str, Any] = {"shuffle": shuffle, "num_workers": workers, "persistent_workers": workers > 0}
    original = train(original_loader, migrated=False, seeded=seeded, **options)
    rt.setup_ddp()
    migrated = train(migrated_loader, migrated=True, seeded=seeded, **options)
    assert migrated == original
    assert len(set(original[:8])) == 8, "nothing was trained"


def draws(make: Callable[[], Any]) -> tuple[list[Any], str]:
    torch.manual_seed(1)
    random.seed(1)
    np.random.seed(1)
    return [list(make()) for _ in range(2)], random_state()


WEIGHTS = [0.1 + i for i in range(20)]


class Stream(IterableDataset[int]):
    def __iter__(self) -> Iterator[int]:
        yield from torch.randperm(9).tolist()

    def __len__(self) -> int:
        return 9


@pytest.mark.parametrize(
    ("original", "wrapped"),
    [
        (lambda: WeightedRandomSampler(WEIGHTS, 20), rt.ShardedSampler),
        (lambda: SubsetRandomSampler(range(9)), rt.ShardedSampler),
        (lambda: BatchSampler(RandomSampler(range(9)), 2, drop_last=False), rt.ShardedBatchSampler),
        (Stream, rt.ShardedIterable),
    ],
    ids=["weighted", "subset", "batches", "stream"],
)
def test_a_wrapped_sampler_draws_as_it_did(
    original: Callable[[], Any], wrapped: Callable[[Any], Any]
) -> None:
    inside = original()
    assert draws(lambda: wrapped(inside)) == draws(lambda: inside)
    assert len(wrapped(inside)) == len(inside)


def test_evaluation_with_shuffle_draws_as_dataloader_does() -> None:
    data = TensorDataset(torch.arange(20))
    for seed in (None, 4):

        def generator(seed: int | None = seed) -> torch.Generator | None:
            return None if seed is None else torch.Generator().manual_seed(seed)

        torch.manual_seed(1)
        own = generator()
        expected = [batch.tolist() for (batch,) in DataLoader(data, 3, shuffle=True, generator=own)]
        torch.manual_seed(1)
        own = generator()
        sampler = rt.EvalSampler(data, 3, shuffle=True, generator=own)
        assert [
            batch.tolist() for (batch,) in DataLoader(data, 3, sampler=sampler, generator=own)
        ] == expected


def test_an_empty_training_set_fails_as_in_dataloader() -> None:
    with pytest.raises(ValueError, match="num_samples") as original:
        DataLoader(TensorDataset(torch.empty(0)), shuffle=True)
    with pytest.raises(ValueError, match="num_samples") as migrated:
        rt.DistributedSampler(TensorDataset(torch.empty(0)), shuffle=True)
    assert str(original.value) == str(migrated.value)


# ------------------------------------------------------------------------------ identities in a world of one


@pytest.mark.parametrize(
    "function",
    [
        rt.all_reduce_sum,
        rt.all_reduce_mean,
        rt.all_reduce_max,
        rt.all_reduce_min,
        rt.gather_in_order,
        rt.broadcast_value,
    ],
    ids=lambda function: function.__name__,
)
@pytest.mark.parametrize(
    "value",
    [
        3,
        0.5,
        None,
        "text",
        [1],
        {"a": 1},
        torch.ones(2, requires_grad=True),
        np.ones(2),
        deque([1]),
        object(),
    ],
    ids=lambda value: type(value).__name__,
)
def test_values_come_back_themselves(function: Callable[..., Any], value: object) -> None:
    assert function(value) is value


def test_several_values_come_back_as_a_tuple() -> None:
    assert rt.all_reduce_sum(1, 2.5) == (1, 2.5)
    assert rt.gather_in_order([1], [2]) == ([1], [2])


def test_the_rest_does_nothing() -> None:
    model = nn.BatchNorm1d(3)
    state = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    before = random_state()
    rt.sync_buffers(model)
    rt.vary_seed(torch.Generator())
    assert random_state() == before
    assert all(torch.equal(tensor, state[name]) for name, tensor in model.state_dict().items())
    assert rt.per_card(7) == 7
    assert rt.mean_by_count(state["weight"], torch.tensor(3)) is state["weight"]
    assert rt.batches_of_ranks(state["weight"]) == [state["weight"]]
    assert rt.scale_by_ranks() == 1
    assert rt.sum_over_ranks(state["weight"]) is state["weight"]
    assert rt.unwrap(model) is model
    with rt.main_process_first(), rt.accumulate(model, last=False):
        pass
    loader = DataLoader(TensorDataset(torch.arange(5)), 2)
    assert rt.whole_loader(loader) is loader
    assert rt.global_batches(loader) == 3
    assert rt.global_batches(tqdm(loader, disable=True)) == 3
    assert rt.global_samples(loader) == 5


def test_any_rank_takes_what_an_if_would_take() -> None:
    assert rt.any_rank(flag=True) is True
    assert rt.any_rank(torch.tensor(False)) is False
    assert rt.any_rank(np.array([0, 1])) is True
    assert rt.any_rank([]) is False


# ----------------------------------------------------------------------------------------------- models


def test_device_ids_names_the_one_card() -> None:
    assert rt.device_ids(nn.Linear(2, 2)) is None
    assert rt.device_ids(nn.Identity()) is None
    assert rt.device_ids(nn.Linear(2, 2, device="meta")) is None


def test_compiled_and_parallel_models_unwrap_to_their_keys() -> None:
    model = nn.Linear(2, 2)
    inner: Any = torch.compile(model, backend="eager")
    wrapped = torch.compile(nn.DataParallel(inner), backend="eager")
    assert rt.unwrap(wrapped) is model
    assert list(rt.unwrap(wrapped).state_dict()) == ["weight", "bias"]


# ------------------------------------------------------------------------------------------------ files


@pytest.mark.parametrize(
    "options", [{}, {"_use_new_zipfile_serialization": False}], ids=["zip", "old format"]
)
@pytest.mark.parametrize("as_given", [str, Path], ids=["str", "Path"])
def test_a_checkpoint_has_the_bytes_that_torch_save_writes(
    options: dict[str, Any], as_given: Callable[[Path], Any], tmp_path: Path
) -> None:
    state = {"model": nn.Linear(3, 3).state_dict(), "epoch": 4}
    torch.save(state, tmp_path / "best.pth", **options)
    expected = (tmp_path / "best.pth").read_bytes()
    (tmp_path / "best.pth").unlink()
    rt.save_checkpoint(state, as_given(tmp_path / "best.pth"), **options)
    assert (tmp_path / "best.pth").read_bytes() == expected
    assert [path.name for path in tmp_path.iterdir()] == ["best.pth"]


class DoesNotPickle:
    def __reduce__(self) -> str:
        raise pickle.PicklingError("as a full disk would")


def test_a_write_that_fails_leaves_the_old_checkpoint(tmp_path: Path) -> None:
    path = tmp_path / "last.pth"
    rt.save_checkpoint({"epoch": 1}, path)
    with pytest.raises(pickle.PicklingError):
        rt.save_checkpoint({"weights": torch.ones(1000), "epoch": DoesNotPickle()}, path)
    assert torch.load(path) == {"epoch": 1}
    assert [each.name for each in tmp_path.iterdir()] == ["last.pth"]


def test_a_checkpoint_keeps_mode_and_link(tmp_path: Path) -> None:
    (tmp_path / "disk").mkdir()
    real, link = tmp_path / "disk" / "real.pth", tmp_path / "latest.pth"
    rt.save_checkpoint(1, real)
    torch.save(1, tmp_path / "plain.pth")
    assert stat.S_IMODE(real.stat().st_mode) == stat.S_IMODE((tmp_path / "plain.pth").stat().st_mode)
    real.chmod(0o640)
    link.symlink_to(real)
    rt.save_checkpoint(2, link)
    assert link.is_symlink()
    assert torch.load(real) == 2
    assert stat.S_IMODE(real.stat().st_mode) == 0o640


def test_a_checkpoint_goes_where_torch_save_goes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    rt.save_checkpoint(1, "here.pth")
    assert torch.load("here.pth") == 1
    rt.save_checkpoint(1, os.devnull)
    with pytest.raises(RuntimeError, match="Parent directory"):
        rt.save_checkpoint(1, "missing/there.pth")


def test_other_ranks_write_no_checkpoint(as_rank: Callable[[int, int], None], tmp_path: Path) -> None:
    as_rank(1, 2)
    rt.save_checkpoint(1, tmp_path / "a.pth")
    with (tmp_path / "b.pth").open("wb") as file:
        rt.save_checkpoint(1, file)
    assert [path.stat().st_size for path in tmp_path.iterdir()] == [0]
    memory = io.BytesIO()
    rt.save_checkpoint(1, memory)
    assert torch.load(io.BytesIO(memory.getvalue())) == 1


def test_print_log_is_print_on_rank_zero(
    as_rank: Callable[[int, int], None], capsys: pytest.CaptureFixture[str]
) -> None:
    rt.print_log("a", 1, sep="-", end="!")
    as_rank(1, 2)
    rt.print_log("b")
    assert capsys.readouterr().out == "a-1!"


def test_a_null_writer_takes_what_writers_take() -> None:
    writer: Any = rt.NullWriter()
    writer.add_scalar("loss", 0.5, 3)
    writer.config.update({"lr": 1})["x"][3] = 4
    del writer["x"]
    writer.run.name = "mine"
    with writer as file:
        csv.writer(file).writerow([1, 2])
        json.dump({"a": 1}, file)
        print("line", file=file)
    assert list(writer) == []
    assert writer
    for pretended in (
        lambda: writer + 1,
        lambda: os.fspath(writer),
        lambda: len(writer),
        lambda: int(writer),
    ):
        with pytest.raises(TypeError):
            pretended()
    with pytest.raises(RuntimeError, match="passes"), rt.NullWriter():
        raise RuntimeError("passes")


# -------------------------------------------------------------------------------------------- the file itself


def test_it_needs_torch_and_the_standard_library_only() -> None:
    imported = {
        name.split(".")[0]
        for node in ast.walk(ast.parse(SOURCE))
        for name in (
            [alias.name for alias in node.names]
            if isinstance(node, ast.Import)
            else [node.module or "."]
            if isinstance(node, ast.ImportFrom)
            else []
        )
    }
    assert imported - sys.stdlib_module_names == {"torch"}


def test_it_reads_on_the_oldest_python_that_has_the_oldest_torch() -> None:
    ast.parse(SOURCE, feature_version=(3, 8))
    assert "from __future__ import annotations" in SOURCE


def test_every_public_name_is_described() -> None:
    assert sorted(rt.__all__) == rt.__all__
    public = {
        name
        for name, value in vars(rt).items()
        if getattr(value, "__module__", "") == rt.__name__ and name != "T"
    }
    assert {name for name in public if not name.startswith("_")} == set(rt.__all__)
    for name in rt.__all__:
        description = getattr(rt, name).__doc__ or ""
        assert description, name
        assert name in (rt.__doc__ or ""), f"{name} is missing in the list at the top"
        assert "one process" in description or "one:" in description or name in NEVER_ALONE, name


NEVER_ALONE = {
    "NullWriter",  # stands on other ranks only
    "accumulate",  # leaves what is not wrapped alone, in any world
    "all_reduce_max",  # sent on to all_reduce_sum
    "all_reduce_mean",
    "all_reduce_min",
    "device_ids",  # asks the model, not the world
    "own_buffers",  # the same in any world: a model's own business
    "setup_ddp",
    "unwrap",
}


def test_a_copy_beside_a_script_runs_without_the_package(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "ddp_runtime.py").write_text(SOURCE, encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    import ddp_runtime  # type: ignore[import-not-found]  # written just now

    assert ddp_runtime.__all__ == rt.__all__
    assert ddp_runtime.setup_ddp() == (0, 0, 1)
    assert rt.setup_ddp() == (0, 0, 1), "two copies in one process share the process group"


@pytest.mark.parametrize(
    "sampler", [rt.DistributedSampler, lambda data: rt.EvalSampler(data, 2, shuffle=True)]
)
def test_an_order_is_drawn_whatever_device_a_script_makes_the_default(
    sampler: Callable[[Any], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "2")
    data = list(range(8))
    expected = list(sampler(data))
    torch.set_default_device("meta")
    try:
        assert list(sampler(data)) == expected
    finally:
        torch.set_default_device(None)
