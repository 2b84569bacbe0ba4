"""What a training script needs in order to run on one card or on many: start it with `python` or with
`torchrun`.

Without these, every script that goes from one card to many rewrites the same dozen things, most of which are
easy to get nearly right: evaluation that counts padded samples twice, a gather that fails when ranks hold
different counts, a checkpoint that four processes write at once, a stop that one rank alone decides.

    torchrun --nproc-per-node=4 train.py     # four cards: four processes of this one script python train.py
    # one: every function below does nothing, the script is what it was

The file stands alone: it needs torch (2.1 or newer) and may be copied beside any script. Read it from the
top:

    start         setup_ddp, is_main_process, print_log, main_process_first, own_device, vary_seed, per_card
    data          DistributedSampler, EvalSampler, ShardedSampler, ShardedBatchSampler, ShardedIterable,
                  set_epoch, global_batches, whole_loader
    model         device_ids, unwrap, sync_buffers, accumulate, scale_by_count, all_gather_with_grad
    values        all_reduce_sum, all_reduce_max, all_reduce_min, gather_in_order, broadcast_value, any_rank
    files         save_checkpoint, NullWriter

Two rules hold for all of it. A function that talks to the other ranks says so ("collective"): every rank has
to call it, so it never stands under `if rank == 0:`. And whatever the ranks hold, also if one of them holds
nothing (a validation set smaller than the number of cards), every rank gets the same answer.
"""

from __future__ import annotations

import atexit
import contextlib
import copy
import ctypes
import faulthandler
import inspect
import io
import itertools
import math
import multiprocessing
import numbers
import os
import pickle
import random
import shutil
import socket
import sys
import tempfile
from collections import Counter, deque
from datetime import timedelta
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import (
    BatchSampler,
    DataLoader,
    IterableDataset,
    RandomSampler,
    Sampler,
    SequentialSampler,
    get_worker_info,
)
from torch.utils.data.distributed import DistributedSampler as TorchDistributedSampler

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

__all__ = [
    "DistributedSampler",
    "EvalSampler",
    "NullWriter",
    "ShardedBatchSampler",
    "ShardedIterable",
    "ShardedSampler",
    "accumulate",
    "all_gather_with_grad",
    "all_reduce_max",
    "all_reduce_min",
    "all_reduce_sum",
    "any_rank",
    "broadcast_value",
    "device_ids",
    "gather_in_order",
    "global_batches",
    "is_main_process",
    "main_process_first",
    "own_device",
    "per_card",
    "print_log",
    "save_checkpoint",
    "scale_by_count",
    "set_epoch",
    "setup_ddp",
    "sync_buffers",
    "unwrap",
    "vary_seed",
    "whole_loader",
]

T = TypeVar("T")


# ---------------------------------------------------------------------------------------------- start


class _Place(NamedTuple):
    """Where this process stands among the others."""

    local_rank: int
    rank: int
    world_size: int


_place: _Place | None = None  # as it was at setup_ddp: a script may change the environment afterwards


def _where() -> _Place:
    if _place is not None:
        return _place
    environment = os.environ
    if int(environment.get("WORLD_SIZE", "1")) == 1:
        return _Place(0, 0, 1)
    return _Place(
        int(environment.get("LOCAL_RANK", "0")), int(environment["RANK"]), int(environment["WORLD_SIZE"])
    )


def _in_child() -> bool:
    """Whether this is a worker (of a DataLoader, of multiprocessing) and not the rank itself.

    The first half is true while a spawned child imports the script anew, which is before it gets a parent.
    """
    process = multiprocessing.current_process()
    return getattr(process, "_inheriting", False) or multiprocessing.parent_process() is not None


def _alone() -> bool:
    """Whether there is nobody to talk to: a world of one, or a worker, which holds no process group."""
    return _where().world_size == 1 or _in_child()


def _accelerator() -> tuple[str, str] | None:
    """Kind of card and the backend that joins them; None on a machine without any."""
    for kind, backend in (("cuda", "nccl"), ("npu", "hccl"), ("xpu", "xccl")):
        module = getattr(torch, kind, None)
        if module is not None and module.is_available():
            return kind, backend
    return None


def setup_ddp(timeout: timedelta = timedelta(hours=2)) -> tuple[int, int, int]:
    """Join the other processes; returns (local_rank, rank, world_size). The first call of a script.

    With N processes (under torchrun): this process takes card number `local_rank` of its machine, and joins
    the process group, over nccl on CUDA, hccl on NPU, xccl on XPU, gloo on the CPU; tensors on the CPU always
    travel over gloo. Then every rank gets the random state of rank 0 (python, numpy, torch), so that a script
    that never seeds still splits, shuffles and initialises alike everywhere. `timeout` is how long one rank
    waits for another before it gives up: two hours, since rank 0 may have work of its own in between.

    With one process (plain `python`): (0, 0, 1), and a process group of one, so that DistributedDataParallel
    and `dist.*` work as they do on many; it needs neither network nor host name. No random number is drawn.

    In a worker process, which imports the script again where workers are spawned, it starts nothing and
    returns what its parent was told. A second call returns the same as the first. The group is closed when
    the script ends, also by an error.
    """
    global _place  # noqa: PLW0603
    if _place is not None or _in_child():
        return _where()
    place = _where()
    cards = _accelerator()
    if place.world_size > 1 and cards is not None:
        _take_card(cards[0], place.local_rank)
    if not dist.is_initialized():
        _join(place, cards, timeout)
        atexit.register(_leave, os.getpid())
    _place = place
    if place.world_size > 1:
        _restore(broadcast_value(_random_state(cards)), cards)
    return place


def _take_card(kind: str, local_rank: int) -> None:
    module = getattr(torch, kind)
    there = module.device_count()
    wanted = int(os.environ.get("LOCAL_WORLD_SIZE", local_rank + 1))
    if wanted > there:
        raise SystemExit(
            f"setup_ddp: {wanted} processes on this machine, but it shows {there} {kind} device(s): "
            f"start it with --nproc-per-node={there}, or look at CUDA_VISIBLE_DEVICES"
        )
    module.set_device(local_rank)


def _join(place: _Place, cards: tuple[str, str] | None, timeout: timedelta) -> None:
    options: dict[str, Any] = {"backend": "gloo", "timeout": timeout}
    if cards is not None and (cards[1] != "nccl" or dist.is_nccl_available()):
        options["backend"] = "cpu:gloo,{}:{}".format(*cards)
        # Newer torch can bind the group to the card: quicker start, and barrier() need not guess.
        if place.world_size > 1 and "device_id" in inspect.signature(dist.init_process_group).parameters:
            options["device_id"] = torch.device(cards[0], place.local_rank)
    if place.world_size > 1:
        dist.init_process_group(**options)
        return
    with _loopback():
        dist.init_process_group(**options, store=dist.HashStore(), rank=0, world_size=1)


@contextlib.contextmanager
def _loopback() -> Iterator[None]:
    """Let gloo bind to the loopback: by itself it looks up the host name, slow or in vain without a
    network."""
    name = next((name for _, name in socket.if_nameindex() if name in ("lo", "lo0")), None)
    if name is None or "GLOO_SOCKET_IFNAME" in os.environ:
        yield
        return
    os.environ["GLOO_SOCKET_IFNAME"] = name
    try:
        yield
    finally:
        del os.environ["GLOO_SOCKET_IFNAME"]


def _leave(owner: int) -> None:
    """Close the group at exit. A peer that died must not keep us: after half a minute the process just
    ends."""
    if os.getpid() != owner or not dist.is_initialized():
        return
    if sys.__stderr__ is not None:
        # A thread in C: python starts none of its own any more at this point.
        faulthandler.dump_traceback_later(30, exit=True, file=sys.__stderr__)
    dist.destroy_process_group()
    faulthandler.cancel_dump_traceback_later()


def is_main_process() -> bool:
    """Whether this is rank 0, the one that prints and writes. With one process always; costs nothing.

    Right before setup_ddp too, and in worker processes.
    """
    return _where().rank == 0


def print_log(*args: Any, **kwargs: Any) -> None:
    """`print` on rank 0, nothing on the others, so that a line appears once. With one process: `print`."""
    if is_main_process():
        print(*args, **kwargs)


@contextlib.contextmanager
def main_process_first() -> Iterator[None]:
    """Let one process of each machine go first: for a download, an extraction, a cache that the others then
    read.

        with main_process_first():
            train_set = MNIST("data", download=True)

    With N processes: local rank 0 of every machine runs the body, then all others do (collective: one wait).
    With one: just the body.
    """
    if _alone():
        yield
        return
    if _where().local_rank != 0:
        _wait_for_all()
    try:
        yield
    finally:
        if _where().local_rank == 0:
            _wait_for_all()


def _wait_for_all() -> None:
    dist.all_reduce(torch.zeros(1))  # on the CPU, so that no card spins while it waits


def own_device() -> torch.device:
    """The device of this process: `cuda:<local_rank>` (or npu, xpu), `cpu` on a machine without cards.

    With one process: the first card, as a script that says "cuda" means it (or `mps` on a Mac). Costs
    nothing.
    """
    cards = _accelerator()
    if cards is not None:
        return torch.device(cards[0], _where().local_rank)
    if _where().world_size == 1 and torch.backends.mps.is_available():
        return torch.device("mps")
    return torch.device("cpu")


def per_card(batch_size: int) -> int:
    """The batch size of one process when `batch_size` is that of all together. ValueError if it does not
    divide.

    With one process: `batch_size`.
    """
    world = _where().world_size
    if batch_size % world:
        raise ValueError(f"per_card: a batch of {batch_size} cannot be shared evenly by {world} processes")
    return batch_size // world


# --------------------------------------------------------------------------------------- random numbers

_common_seed_of: dict[int, int] = {}  # seed that vary_seed gave this rank -> the seed that all ranks have


def vary_seed() -> None:
    """Let dropout and augmentation differ between ranks. To be called once the model is wrapped.

    Up to here all ranks drew the same random numbers, as they must while data are split and weights
    initialised. From here on equal numbers would only give every card the same augmentations. With N
    processes: rank 0 keeps its generators (python, numpy, torch), every other rank seeds its own from them.
    The samplers of this file keep to the common seed, also those built later. With one process: nothing, not
    one random number is drawn.

    What has to be equal on all ranks must not be drawn after this call (or be passed through
    broadcast_value).
    """
    place = _where()
    seed = torch.initial_seed()
    if place.world_size == 1 or seed in _common_seed_of:
        return
    if place.rank == 0:
        _common_seed_of[seed] = seed
        return
    # Far apart: a script that seeds with 42, 43, 44 … epoch by epoch must not meet the seed of another rank.
    torch.manual_seed((seed + place.rank * 0x9E3779B97F4A7C15) % 2**64)
    _common_seed_of[torch.initial_seed()] = seed
    random.seed(random.getrandbits(64) + place.rank)
    numpy = sys.modules.get("numpy")
    if numpy is not None:
        numpy.random.seed((int(numpy.random.randint(2**31)) + place.rank) % 2**32)


def _common_seed() -> int:
    """The seed of the script, the same on all ranks: that of torch, seen through vary_seed."""
    seed = torch.initial_seed()
    return _common_seed_of.get(seed, seed) % 2**63


def _random_state(cards: tuple[str, str] | None = None) -> tuple[Any, ...]:
    numpy = sys.modules.get("numpy")
    return (
        random.getstate(),
        None if numpy is None else numpy.random.get_state(),
        torch.get_rng_state(),
        None if cards is None else getattr(torch, cards[0]).get_rng_state(),
    )


def _restore(state: tuple[Any, ...], cards: tuple[str, str] | None = None) -> None:
    of_python, of_numpy, of_torch, of_card = state
    random.setstate(of_python)
    if of_numpy is not None and "numpy" in sys.modules:
        sys.modules["numpy"].random.set_state(of_numpy)
    torch.set_rng_state(of_torch)
    if cards is not None:
        getattr(torch, cards[0]).set_rng_state(of_card)


def _seed_everything(seed: int, owner: object) -> None:
    """Seed the generators of python, numpy and torch's CPU, and those that a sampler holds itself."""
    torch.default_generator.manual_seed(seed)
    random.seed(seed)
    numpy = sys.modules.get("numpy")
    if numpy is not None:
        numpy.random.seed(seed % 2**32)
    for held in _held_by(owner):
        if isinstance(held, torch.Generator):
            held.manual_seed(seed)
        elif isinstance(held, random.Random):
            held.seed(seed)
        elif numpy is not None and isinstance(held, numpy.random.RandomState):
            held.seed(seed % 2**32)
        elif numpy is not None and isinstance(held, numpy.random.Generator):
            held.bit_generator.state = type(held.bit_generator)(seed).state


def _held_by(owner: object) -> Iterator[object]:
    """The attributes of a sampler, and of the samplers in it."""
    for value in list(getattr(owner, "__dict__", {}).values()):
        yield value
        if isinstance(value, (Sampler, IterableDataset)):
            yield from _held_by(value)


def _drawn_in_common(source: Iterable[T], seed: int, ahead: int) -> Iterator[T]:
    """The items of `source`, drawn with generators of their own: alike on all ranks, and nobody else's
    change.

    `ahead` items are drawn at a time: what is drawn may never end.
    """
    iterator: Iterator[T] | None = None
    own: tuple[Any, ...] = ()
    while True:
        outside = _random_state()
        if iterator is None:
            _seed_everything(seed, source)
            iterator = iter(source)
        else:
            _restore(own)
        items = list(itertools.islice(iterator, ahead))
        own = _random_state()
        _restore(outside)
        yield from items
        if len(items) < ahead:
            return


def _seed_of(sampler: object) -> int:
    """The seed that a sampler draws from: its generator's if it has one, else the script's."""
    for held in _held_by(sampler):
        if isinstance(held, torch.Generator):
            return held.initial_seed() % 2**63
    return _common_seed()


def _dealt(items: Iterable[T], place: _Place, *, drop_last: bool) -> Iterator[T]:
    """Every world_size-th item, beginning with the rank-th; the last round is filled up from the first, or
    dropped."""
    iterator = iter(items)
    first: list[T] = []
    while True:
        hand = list(itertools.islice(iterator, place.world_size))
        first = first or hand
        if len(hand) < place.world_size:
            if not hand or drop_last:
                return
            hand += itertools.islice(itertools.cycle(first), place.world_size - len(hand))
        yield hand[place.rank]


# ------------------------------------------------------------------------------------------------ data


class DistributedSampler(TorchDistributedSampler):  # type: ignore[type-arg]
    """Deals the training set out: each rank trains on its own share, in an order that every epoch draws anew.

        loader = DataLoader(train_set, 32, sampler=DistributedSampler(train_set, shuffle=True),
        drop_last=True) for epoch in range(epochs):
            loader.sampler.set_epoch(epoch)     # without it every epoch comes in the same order

    With N processes: torch's own DistributedSampler (rank r takes items r, r+N, … of one permutation, shares
    made equal by repeating up to N-1 samples, or by `drop_last`), seeded by the script's own seed, so that
    another seed is another order; torch's own uses 0 whatever the script says. `seed` or `generator` is used
    instead if given. With one process: exactly what `DataLoader(shuffle=..., generator=...)` makes, to the
    last random number.
    """

    def __init__(
        self,
        dataset: Any,
        *,
        shuffle: bool = True,
        drop_last: bool = False,
        seed: int | None = None,
        generator: torch.Generator | None = None,
    ) -> None:
        place = _where()
        if seed is None:
            seed = _common_seed() if generator is None else generator.initial_seed() % 2**63
        self._single = _single(dataset, generator, shuffle=shuffle) if place.world_size == 1 else None
        self._options = {
            "num_replicas": place.world_size,
            "rank": place.rank,
            "shuffle": shuffle,
            "seed": seed,
            "drop_last": drop_last,
        }
        super().__init__(dataset, **self._options)
        self._measured = len(dataset)

    def _measure(self) -> None:
        """A data set may have grown since: torch's sampler counts once only."""
        if len(self.dataset) != self._measured:  # type: ignore[arg-type]
            epoch = self.epoch
            super().__init__(self.dataset, **self._options)
            self.epoch, self._measured = epoch, len(self.dataset)  # type: ignore[arg-type]

    def __iter__(self) -> Iterator[int]:
        """The share of this rank in this epoch."""
        if self._single is not None:
            return iter(self._single)
        self._measure()
        return super().__iter__()

    def __len__(self) -> int:
        """Number of samples of one rank."""
        if self._single is not None:
            return len(self._single)
        self._measure()
        return super().__len__()


def _single(dataset: Any, generator: torch.Generator | None, *, shuffle: bool) -> Any:
    """What DataLoader makes for itself out of `shuffle`."""
    return RandomSampler(dataset, generator=generator) if shuffle else SequentialSampler(dataset)


class EvalSampler(Sampler):  # type: ignore[type-arg]
    """Deals the batches of an evaluation out: each sample once, none repeated, whatever the number of ranks.

        loader = DataLoader(val_set, 64, sampler=EvalSampler(val_set, 64))

    `batch_size` is the loader's. With N processes: the nb batches that one card would see are shared out in
    runs, rank r gets batches r*nb//N up to (r+1)*nb//N. So every batch is one that a single card would have
    seen, sums over the ranks (all_reduce_sum) are those of a single card, and what the ranks collect, joined
    in rank order (gather_in_order), is in data set order. A rank may have one batch more than another, or
    none at all: no collective belongs inside the loop. torch's DistributedSampler would repeat samples until
    the shares are equal, and count them twice.

    With one process: the data set in order, or (`shuffle=True`) just as `DataLoader(shuffle=True)` draws it.
    """

    def __init__(
        self,
        dataset: Any,
        batch_size: int | None = 1,
        *,
        shuffle: bool = False,
        generator: torch.Generator | None = None,
    ) -> None:
        self.dataset = dataset
        self.batch_size = batch_size or 1
        self.shuffle = shuffle
        self.place = _where()
        self.seed = _common_seed() if generator is None else generator.initial_seed() % 2**63
        self.epoch = 0
        self._single = _single(dataset, generator, shuffle=shuffle)

    @property
    def num_batches_total(self) -> int:
        """Number of batches over all ranks: what one card would see."""
        return -(-len(self.dataset) // self.batch_size)

    def share(self, rank: int) -> range:
        """The positions (in the data set, or in the epoch's permutation of it) that `rank` evaluates."""
        batches, world = self.num_batches_total, self.place.world_size
        first, end = rank * batches // world, (rank + 1) * batches // world
        return range(first * self.batch_size, min(end * self.batch_size, len(self.dataset)))

    def __iter__(self) -> Iterator[int]:
        """The indices of this rank."""
        if self.place.world_size == 1:
            return iter(self._single)
        share = self.share(self.place.rank)
        if not self.shuffle:
            return iter(share)
        generator = torch.Generator()
        generator.manual_seed(self.seed + self.epoch)
        order: list[int] = torch.randperm(len(self.dataset), generator=generator).tolist()
        return iter(order[share.start : share.stop])

    def __len__(self) -> int:
        """Number of samples of this rank; may be 0."""
        return len(self.share(self.place.rank))

    def set_epoch(self, epoch: int) -> None:
        """Tell the epoch: matters for `shuffle=True` only."""
        self.epoch = epoch


class _Sharded(Sampler):  # type: ignore[type-arg]
    """A sampler of which each rank takes every world_size-th draw."""

    def __init__(self, sampler: Any, *, drop_last: bool = False) -> None:
        self.sampler = sampler
        self.pad = not drop_last
        self.place = _where()
        self.seed = _seed_of(sampler)
        self.epoch = 0

    def __iter__(self) -> Iterator[Any]:
        """This rank's share of the epoch's common draw."""
        if self.place.world_size == 1:
            return iter(self.sampler)
        draw = _drawn_in_common(self.sampler, self.seed + self.epoch, ahead=1024 * self.place.world_size)
        return _dealt(draw, self.place, drop_last=not self.pad)

    def __len__(self) -> int:
        """How many draws one rank gets."""
        count, world = len(self.sampler), self.place.world_size
        return -(-count // world) if self.pad else count // world

    def __getattr__(self, name: str) -> Any:
        """Whatever else the script asks its sampler for."""
        if name.startswith("__") or "sampler" not in self.__dict__:
            raise AttributeError(name)
        return getattr(self.sampler, name)

    def set_epoch(self, epoch: int) -> None:
        """Tell the epoch, without which every epoch is the same draw. The wrapped sampler is not told."""
        self.epoch = epoch


class ShardedSampler(_Sharded):
    """Deals out what any other sampler draws: WeightedRandomSampler, SubsetRandomSampler, one of the script's
    own.

        sampler = ShardedSampler(WeightedRandomSampler(weights, len(weights)))

    With N processes: in every epoch all ranks make the same draw (python's, numpy's and torch's generators,
    and generators that the sampler holds, are seeded from the common seed and the epoch for just that
    moment), and rank r takes items r, r+N, … of it, so that weights and subsets mean what they mean on one
    card. Shares are equal: up to N-1 items are repeated, or left out with `drop_last`. It costs N times the
    drawing, no communication. Needs `set_epoch`, like DistributedSampler. With one process: the sampler
    itself.
    """


class ShardedBatchSampler(_Sharded):
    """Deals out the batches that a batch sampler makes: rank r takes batches r, r+N, …, all ranks equally
    many.

        loader = DataLoader(train_set, batch_sampler=ShardedBatchSampler(BucketBatchSampler(lengths, 32)))

    With N processes: one common draw per epoch, as in ShardedSampler; up to N-1 batches are repeated (or left
    out with `drop_last`) so that no rank takes a step more than another. Needs `set_epoch`. With one process:
    the batch sampler itself.
    """

    def __init__(self, batch_sampler: Any, *, drop_last: bool = False) -> None:
        super().__init__(batch_sampler, drop_last=drop_last)


class ShardedIterable(IterableDataset):  # type: ignore[type-arg]
    """Deals out an IterableDataset, for which there is no sampler: rank r takes items r, r+N, … of the
    stream.

        loader = DataLoader(ShardedIterable(stream), 32, num_workers=4)

    With N processes: every rank reads the whole stream, with random numbers alike on all ranks (drawn from
    the common seed, the epoch and the number of the worker), and keeps each N-th item. An item is kept only
    once all N of its round were read, so all ranks get equally many and at most N-1 items at the end are left
    out; nothing is communicated. Reading costs as much as on one card: a stream that can skip cheaply is
    better dealt out at its source. Workers see what they see on one card: a data set that shares itself out
    among them (`get_worker_info`) is still read once; one that does not is read once per worker, as before.
    With one process: the data set itself.
    """

    def __init__(self, dataset: Any) -> None:
        self.dataset = dataset
        self.place = _where()
        self.seed = _seed_of(dataset)
        # Shared memory: workers that live on from epoch to epoch (persistent_workers) hear of the epoch too.
        self._epoch = torch.zeros((), dtype=torch.int64)
        if self.place.world_size > 1:
            self._epoch.share_memory_()

    def __iter__(self) -> Iterator[Any]:
        """This rank's share of the stream."""
        if self.place.world_size == 1:
            return iter(self.dataset)
        worker = get_worker_info()
        seed = self.seed + int(self._epoch) + (0 if worker is None else worker.id * 2**32)
        stream = _drawn_in_common(self.dataset, seed % 2**63, ahead=self.place.world_size)
        return _dealt(stream, self.place, drop_last=True)

    def __len__(self) -> int:
        """How many items one rank gets; TypeError where the data set has no length."""
        return len(self.dataset) // self.place.world_size

    def __getattr__(self, name: str) -> Any:
        """Whatever else the script asks its data set for."""
        if name.startswith("__") or "dataset" not in self.__dict__:
            raise AttributeError(name)
        return getattr(self.dataset, name)

    def set_epoch(self, epoch: int) -> None:
        """Tell the epoch, from which the random numbers of the stream are drawn. The wrapped data set is not
        told."""
        self._epoch.fill_(epoch)


_DEALERS = (TorchDistributedSampler, EvalSampler, _Sharded, ShardedIterable)


def _dealer(loader: Any) -> Any:
    """The part of a loader that deals its data out among the ranks; None where every rank sees all of it."""
    batch_sampler = getattr(loader, "batch_sampler", None)
    inside = getattr(batch_sampler, "sampler", None)
    parts = (
        loader,
        batch_sampler,
        getattr(loader, "sampler", None),
        inside,
        getattr(loader, "dataset", None),
    )
    return next((part for part in parts if isinstance(part, _DEALERS)), None)


def set_epoch(loader: Any, epoch: int) -> None:
    """Tell a loader which epoch begins, wherever in it the sampler sits. At the top of the epoch loop.

    The samplers of this file (and torch's DistributedSampler) draw the order of an epoch from its number;
    without this every epoch comes in the same order. A loader whose data are not dealt out is left alone:
    what the script itself does with its own samplers stays the script's. With one process it changes nothing.
    """
    dealer = _dealer(loader)
    if dealer is not None:
        dealer.set_epoch(epoch)


def global_batches(loader: Any) -> int:
    """Number of batches of a loader over all ranks: what `len(loader)` was on one card.

    For an average over batches, a schedule, a progress bar. Not collective, so it may stand under a rank
    guard. Where nothing is dealt out (every rank sees all batches), and with one process, it is
    `len(loader)`. For a training loader it is `len(loader)` times the number of ranks, thus up to N-1 more
    than on one card.
    """
    dealer = _dealer(loader)
    if isinstance(dealer, EvalSampler):
        size, world = getattr(loader, "batch_size", None) or 1, dealer.place.world_size
        whole = getattr(loader, "drop_last", False)
        shares = [len(dealer.share(rank)) for rank in range(world)]
        return sum(share // size if whole else -(-share // size) for share in shares)
    if dealer is None:
        return len(loader)
    return len(loader) * (
        dealer.num_replicas if isinstance(dealer, TorchDistributedSampler) else dealer.place.world_size
    )


def whole_loader(loader: T) -> T:
    """The same loader over the whole evaluation set, in order: for work that rank 0 does alone, under its
    guard.

    With N processes: a loader with an EvalSampler comes back with a SequentialSampler, everything else
    (collate_fn, workers, drop_last …) as it was; any other loader comes back as it is. No communication. With
    one process: the loader itself. The model must be the unwrapped one (`unwrap(model)`): the forward of a
    wrapped one is collective.
    """
    sampler = getattr(loader, "sampler", None)
    if not isinstance(sampler, EvalSampler) or sampler.place.world_size == 1:
        return loader
    whole = copy.copy(loader)
    in_order = SequentialSampler(sampler.dataset)
    # DataLoader forbids changing these on an instance; on a copy that nobody has iterated it is safe, and keeps the
    # arguments of every torch version and of subclasses.
    whole.__dict__.update(sampler=in_order, _iterator=None)
    batches = getattr(loader, "batch_sampler", None)
    if batches is not None:
        whole.__dict__["batch_sampler"] = BatchSampler(in_order, batches.batch_size, batches.drop_last)
    return whole


# ----------------------------------------------------------------------------------------------- model


def device_ids(model: nn.Module) -> list[int] | None:
    """What to give `DistributedDataParallel(model, device_ids=...)`.

    The one card that all parameters sit on, as a list; None on the CPU and for a model that is spread over
    devices. Costs nothing.
    """
    devices = {parameter.device for parameter in model.parameters()}
    if len(devices) != 1:
        return None
    device = devices.pop()
    return None if device.type == "cpu" or device.index is None else [device.index]


def _layers(model: Any) -> Iterator[Any]:
    """The model and what it wraps, from the outside in."""
    while True:
        yield model
        modules = getattr(model, "_modules", {})
        if isinstance(model, (DistributedDataParallel, nn.DataParallel)):
            model = model.module
        elif "_orig_mod" in modules:  # torch.compile
            model = modules["_orig_mod"]
        else:
            return


def unwrap(model: Any) -> Any:
    """The script's own model, out of DistributedDataParallel, DataParallel and torch.compile, however nested.

    For saving (keys without `module.` or `_orig_mod.`), for its attributes and methods, and for work that
    rank 0 does alone. Not for training: only the forward of the wrapped model gets gradients averaged. A
    model that is not wrapped comes back as it is.
    """
    *_, inner = _layers(model)
    return inner


def sync_buffers(model: nn.Module) -> None:
    """Make the buffers of the model equal on all ranks: to be called before evaluation, wrapped or not.

    Each rank's BatchNorm layers have followed the batches of that rank only, and torch levels them at the
    next forward in training, not before evaluation. With N processes (collective): running means and
    variances become the average over the ranks, every other buffer that of rank 0; one all-reduce and one
    broadcast per type. With one process: nothing.
    """
    if _alone():
        return
    averaged: dict[Any, list[torch.Tensor]] = {}
    copied: dict[Any, list[torch.Tensor]] = {}
    for name, buffer in unwrap(model).named_buffers():
        running = name.rpartition(".")[2] in ("running_mean", "running_var") and buffer.is_floating_point()
        (averaged if running else copied).setdefault((buffer.device, buffer.dtype), []).append(buffer)
    with torch.no_grad():
        for (device, _), buffers in averaged.items():
            flat = torch.cat([buffer.reshape(-1) for buffer in buffers]).to(_wide(buffers[0].dtype, device))
            dist.all_reduce(flat)
            _spread(flat / _where().world_size, buffers)
        for buffers in copied.values():
            flat = torch.cat([buffer.reshape(-1) for buffer in buffers])
            dist.broadcast(_bytes_of(flat), src=0)
            _spread(flat, buffers)


def _spread(flat: torch.Tensor, buffers: Sequence[torch.Tensor]) -> None:
    for buffer, values in zip(buffers, flat.split([buffer.numel() for buffer in buffers])):
        buffer.copy_(values.view_as(buffer))


@contextlib.contextmanager
def accumulate(model: Any, last: bool) -> Iterator[None]:  # noqa: FBT001
    """Round forward and backward of one micro-batch: gradients are averaged over the ranks at the last one
    only.

        for i, (x, y) in enumerate(loader):
            last = (i + 1) % 4 == 0
            with accumulate(model, last):
                criterion(model(x), y).backward()
            if last: optimizer.step(); optimizer.zero_grad()

    The gradients are those of averaging each time; it saves the all-reduces in between. The forward has to be
    inside, DistributedDataParallel decides there. A model that is not wrapped, and one with
    `static_graph=True`, which cannot skip, is left alone. Not collective itself.
    """
    wrapper = next((layer for layer in _layers(model) if isinstance(layer, DistributedDataParallel)), None)
    if last or wrapper is None or getattr(wrapper, "static_graph", False):
        yield
        return
    with wrapper.no_sync():
        yield


def scale_by_count(count: Any) -> Any:
    """The factor for a loss that is a mean over a number of items that differs from rank to rank.

        loss = (per_token * mask).sum() / mask.sum() * scale_by_count(mask.sum())

    DistributedDataParallel averages over ranks as if each had counted equally many (tokens, valid pixels);
    with this factor, own count * N / count of all ranks, the result is the mean over all items, as on one
    card. With N processes: one all-reduce (collective) a call, of one number on the device of `count`,
    without waiting for the card; a tensor gives a tensor, a number a float. With one process: 1.0. If no rank
    counted anything it is 0. A rank whose own count is 0 must keep its own loss finite (clamp the divisor),
    since 0 * nan is nan.
    """
    if _alone():
        return 1.0
    place = _where()
    if isinstance(count, torch.Tensor):
        own = count.detach().sum().to(_wide(torch.float32, count.device))
    else:
        own = torch.tensor(float(count), dtype=torch.float64)
    total = own.clone()
    dist.all_reduce(total)
    factor = own * place.world_size / total.clamp(min=torch.finfo(total.dtype).tiny)
    return factor.to(torch.get_default_dtype()) if isinstance(count, torch.Tensor) else factor.item()


class _Gather(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, tensor: torch.Tensor) -> torch.Tensor:  # type: ignore[override]
        ctx.rows = tensor.shape[0]
        parts = [torch.empty_like(tensor) for _ in range(_where().world_size)]
        dist.all_gather(parts, tensor)
        return torch.cat(parts)

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:  # type: ignore[override]
        gradient = gradient.clone()
        dist.all_reduce(gradient)
        return gradient.narrow(0, _where().rank * ctx.rows, ctx.rows)


def all_gather_with_grad(tensor: torch.Tensor) -> torch.Tensor:
    """The tensors of all ranks joined along dimension 0, through which gradients flow back to every rank.

        features = all_gather_with_grad(model(images))     # then contrastive_loss(features, ...)

    For losses that compare the samples of a batch with each other (contrastive, triplet): each rank computes
    the loss of the whole batch, and DistributedDataParallel's average is then the gradient that one card with
    the whole batch would have. Shapes must be equal on all ranks (train with `drop_last`). With N processes
    (collective): one all-gather, and one all-reduce in backward. With one process: the tensor itself.
    """
    if _alone():
        return tensor
    return _Gather.apply(tensor.contiguous())  # type: ignore[no-any-return,no-untyped-call]


# ------------------------------------------------------------------------- how values travel between ranks


class _Left(NamedTuple):
    """Stands in a message for a tensor that is too large for it, or on a card: it travels by itself."""

    number: int
    dtype: torch.dtype
    shape: tuple[int, ...]
    on_cpu: bool


class _Failure(NamedTuple):
    """Stands in a message for a value that cannot travel, so that all ranks raise and none waits."""

    reason: str


_MESSAGE = 1 << 20  # bytes of a tensor on the CPU, up to which it travels within the message
_ENVELOPE = 512  # bytes that are always sent: what fits needs one collective, not two


def _wide(dtype: torch.dtype, device: torch.device) -> torch.dtype:
    """What to add in: exactly for integers, in double precision where the device has it."""
    if dtype.is_complex:
        return torch.complex128
    if not dtype.is_floating_point:
        return torch.int64
    return torch.float64 if device.type in ("cpu", "cuda") else torch.float32


def _bytes_of(tensor: torch.Tensor) -> torch.Tensor:
    """A view of a contiguous tensor as bytes: any dtype travels, bit for bit."""
    return tensor.view(-1).view(torch.uint8)


def _dump_tensor(tensor: torch.Tensor) -> tuple[Any, ...]:
    raw = _bytes_of(tensor.detach().cpu().resolve_conj().resolve_neg().contiguous())
    content = ctypes.string_at(raw.data_ptr(), raw.numel()) if raw.numel() else b""
    return content, tensor.dtype, tuple(tensor.shape), tensor.device.type == "cpu"


def _load_tensor(content: bytes, dtype: torch.dtype, shape: tuple[int, ...], on_cpu: bool) -> torch.Tensor:  # noqa: FBT001
    device = torch.device("cpu") if on_cpu else own_device()
    if not content:
        return torch.empty(shape, dtype=dtype, device=device)
    return torch.frombuffer(bytearray(content), dtype=torch.uint8).view(dtype).view(shape).to(device)


class _Pickler(pickle.Pickler):
    """A tensor goes with its own elements only (not what it is a view of), and arrives on the receiver's
    card."""

    def reducer_override(self, value: Any) -> Any:
        if type(value) is torch.Tensor and value.layout == torch.strided and not value.is_quantized:
            return _load_tensor, _dump_tensor(value)
        return NotImplemented


def _dump(value: Any) -> bytes:
    buffer = io.BytesIO()
    try:
        _Pickler(buffer, protocol=4).dump(value)
    except (pickle.PicklingError, AttributeError, TypeError) as error:
        return pickle.dumps(_Failure(str(error)), protocol=4)
    return buffer.getvalue()


def _load(message: bytes) -> Any:
    value = pickle.loads(message)  # noqa: S301
    if isinstance(value, _Failure):
        raise TypeError(f"a value cannot be sent to the other ranks: {value.reason}")
    return value


def _sealed(message: bytes) -> tuple[torch.Tensor, int]:
    """The first part of a message, in the size that all ranks send, with its length in front."""
    head = len(message).to_bytes(8, "little") + message[: _ENVELOPE - 8]
    return torch.frombuffer(bytearray(head.ljust(_ENVELOPE, b"\0")), dtype=torch.uint8), len(message)


def _opened(envelope: torch.Tensor) -> tuple[bytes, int]:
    content = ctypes.string_at(envelope.data_ptr(), _ENVELOPE)
    length = int.from_bytes(content[:8], "little")
    return content[8 : 8 + length], length


def _exchange(value: Any) -> list[Any]:
    """The values of all ranks, in rank order, on every rank."""
    message = _dump(value)
    envelope, _ = _sealed(message)
    envelopes = [torch.empty_like(envelope) for _ in range(_where().world_size)]
    dist.all_gather(envelopes, envelope)
    heads = [_opened(each) for each in envelopes]
    tails = _gather_bytes(
        torch.frombuffer(bytearray(message[_ENVELOPE - 8 :] or b"\0"), dtype=torch.uint8),
        [max(length - (_ENVELOPE - 8), 0) for _, length in heads],
    )
    return [
        _load(head + (ctypes.string_at(tail.data_ptr(), tail.numel()) if tail.numel() else b""))
        for (head, _), tail in zip(heads, tails)
    ]


def _gather_bytes(own: torch.Tensor, sizes: Sequence[int]) -> list[torch.Tensor]:
    """`sizes[r]` bytes of each rank r; no collective if there are none."""
    if max(sizes) == 0:
        return [own[:0] for _ in sizes]
    padded = own.new_zeros(max(sizes))
    size = sizes[_where().rank]
    padded[:size] = own[:size]
    parts = [torch.empty_like(padded) for _ in sizes]
    dist.all_gather(parts, padded)
    return [part[:size] for part, size in zip(parts, sizes)]


def _packed(value: Any, left: list[torch.Tensor], into: tuple[type, ...]) -> Any:
    """The value as it stands in a message; tensors that travel by themselves are put into `left`.

    It looks `into` these types. A dict goes as a plain one: the factory of a defaultdict need not pickle.
    """
    if isinstance(value, torch.Tensor):
        value = value.detach()
        on_cpu = value.device.type == "cpu"
        if on_cpu and value.numel() * value.element_size() <= _MESSAGE:
            return value
        left.append(value.contiguous())
        return _Left(len(left) - 1, value.dtype, tuple(value.shape), on_cpu)
    if isinstance(value, dict):
        items = {key: _packed(item, left, into) for key, item in value.items()}
        return Counter(items) if isinstance(value, Counter) else items
    if type(value) in into:
        return type(value)(_packed(item, left, into) for item in value)
    return value


def broadcast_value(value: T) -> T:
    """Rank 0's value, on every rank: for what must not differ (stop or go on, a path with the time in it, a
    seed).

        if broadcast_value(counter >= patience): break

    With N processes (collective): one broadcast, two if the value takes more than half a kilobyte. Anything
    that pickles; tensors arrive on the receiver's own card. With one process: the value itself.
    """
    if _alone():
        return value
    place = _where()
    message = _dump(value) if place.rank == 0 else b""
    envelope, _ = _sealed(message)
    dist.broadcast(envelope, src=0)
    head, length = _opened(envelope)
    rest = length - len(head)
    if rest:
        tail = torch.frombuffer(bytearray(message[len(head) :] or bytes(rest)), dtype=torch.uint8)
        dist.broadcast(tail, src=0)
        head += ctypes.string_at(tail.data_ptr(), rest)
    received: T = _load(head)
    return value if place.rank == 0 else received


def any_rank(flag: Any) -> bool:
    """Whether the flag is true on any rank: for a `continue`, `break` or exit that all must take together.

        if any_rank(not torch.isfinite(loss)): continue

    With N processes (collective): one all-reduce; a tensor on a card is waited for, as `if` would. A tensor
    or array of several elements is true if any of them is. With one process: the flag as a bool.
    """
    raised = bool(flag.any()) if hasattr(flag, "any") else bool(flag)
    if _alone():
        return raised
    votes = torch.tensor([int(raised)])
    dist.all_reduce(votes, op=dist.ReduceOp.MAX)
    return bool(votes.item())


# ------------------------------------------------------------------------------------------- totals of values


def all_reduce_sum(*values: Any) -> Any:
    """The sum over all ranks of each value: counts and sums of losses become those of the whole data set.

        total_loss, correct, total = all_reduce_sum(total_loss, correct, total)

    Numbers, numpy scalars and arrays, tensors on any device, and lists, tuples and dicts of these, element by
    element; a key that some ranks lack counts as absent there. Integers are added exactly, everything else in
    double precision; type, dtype and device stay (so a bool stays one: true if it is on any rank). Gradients
    do not flow. A rank that saw no data may hold the 0, None or empty list that it began with, also where the
    others hold tensors or arrays. Divide sums by sums, never average averages.

    With N processes (collective): one all-gather for all values together, and one all-reduce for each tensor
    that is on a card or larger than a megabyte. With one process: the values themselves.
    """
    return _reduce(values, "sum")


def all_reduce_max(*values: Any) -> Any:
    """The largest over all ranks of each value; see all_reduce_sum. nan if any is."""
    return _reduce(values, "max")


def all_reduce_min(*values: Any) -> Any:
    """The smallest over all ranks of each value; see all_reduce_sum. nan if any is."""
    return _reduce(values, "min")


def _reduce(values: tuple[Any, ...], operation: str) -> Any:
    if not _alone():
        left: list[torch.Tensor] = []
        everyones = _exchange([_packed(value, left, (list, tuple)) for value in values])
        fold = _Fold(operation, left, _where().rank)
        values = tuple(fold(own, list(shares)) for own, shares in zip(values, zip(*everyones)))
    return values[0] if len(values) == 1 else values


def _is_empty(share: Any) -> bool:
    return share is None or (
        isinstance(share, (dict, list, tuple)) and not share and not isinstance(share, _Left)
    )


class _Fold:
    """Reduces one value of all ranks to one. It sees the same shares on every rank, so it decides alike on
    all."""

    def __init__(self, operation: str, left: list[torch.Tensor], rank: int) -> None:
        self.operation = operation
        self.left = left
        self.rank = rank

    def __call__(self, own: Any, shares: list[Any]) -> Any:
        """`shares`: one for each rank, None where it has none."""
        shares = [None if _is_empty(share) else share for share in shares]
        present = [share for share in shares if share is not None]
        if not present:
            return own
        first = present[0]
        if isinstance(first, dict):
            keys = {key: None for share in present for key in share}
            total = {key: self(None, [share and share.get(key) for share in shares]) for key in keys}
            return _like(own, first, total)
        if isinstance(first, (list, tuple)) and not isinstance(first, _Left):
            if len({len(share) for share in present}) > 1:
                raise ValueError(
                    f"ranks hold {[len(share) for share in present]} elements: cannot add up lists by element"
                )
            columns = range(len(first))
            total = [self(None, [share and share[column] for share in shares]) for column in columns]
            return type(first)(*total) if hasattr(first, "_fields") else type(first)(total)
        return self._leaf(own, shares, present)

    def _leaf(self, own: Any, shares: list[Any], present: list[Any]) -> Any:
        if any(isinstance(share, (torch.Tensor, _Left)) for share in present):
            return self._tensors(own, shares, present)
        numpy = sys.modules.get("numpy")
        if numpy is not None:
            arrays = [share for share in present if isinstance(share, (numpy.ndarray, numpy.generic))]
            if arrays:
                return self._arrays(numpy, arrays, present)
        if not all(isinstance(share, numbers.Number) for share in present):
            names = sorted({type(share).__name__ for share in present})
            raise TypeError(f"cannot take the {self.operation} over ranks of {', '.join(names)}")
        if self.operation == "sum":
            total = sum(present)
        else:
            undefined = [share for share in present if share != share]  # noqa: PLR0124
            total = undefined[0] if undefined else (max if self.operation == "max" else min)(present)
        return bool(total) if all(isinstance(share, bool) for share in present) else total

    def _arrays(self, numpy: Any, arrays: list[Any], present: list[Any]) -> Any:
        model = next((each for each in arrays if isinstance(each, numpy.ndarray)), arrays[0])
        dtype = numpy.result_type(*arrays)
        if any(isinstance(share, float) for share in present):
            dtype = numpy.result_type(dtype, numpy.float16)
        wide = {"f": numpy.float64, "c": numpy.complex128}.get(dtype.kind, numpy.int64)
        ufunc = {"sum": numpy.add, "max": numpy.maximum, "min": numpy.minimum}[self.operation]
        total = numpy.asarray(present[0], dtype=wide)
        for share in present[1:]:
            total = ufunc(total, numpy.asarray(share, dtype=wide))
        total = numpy.asarray(total).astype(dtype)
        return total if isinstance(model, numpy.ndarray) else total[()]

    def _tensors(self, own: Any, shares: list[Any], present: list[Any]) -> torch.Tensor:
        dtype = _common_dtype(present)
        tensors = [share for share in present if isinstance(share, (torch.Tensor, _Left))]
        shape = torch.broadcast_shapes(*(tuple(share.shape) for share in tensors))
        mine = shares[self.rank]
        local = self.left[mine.number] if isinstance(mine, _Left) else mine
        on_cpu = all(
            share.device.type == "cpu" if isinstance(share, torch.Tensor) else share.on_cpu
            for share in tensors
        )
        device = (
            local.device
            if isinstance(local, torch.Tensor)
            else torch.device("cpu")
            if on_cpu
            else own_device()
        )
        if any(isinstance(share, _Left) for share in tensors):
            return self._by_itself(local, shape, dtype, device)
        wide = _wide(dtype, torch.device("cpu"))
        combine = {"sum": torch.add, "max": torch.maximum, "min": torch.minimum}[self.operation]
        total = torch.as_tensor(present[0]).to(wide)
        for share in present[1:]:
            total = combine(total, torch.as_tensor(share).to(wide))
        return total.expand(shape).to(dtype).to(device)

    def _by_itself(self, local: Any, shape: Any, dtype: torch.dtype, device: torch.device) -> torch.Tensor:
        wide = _wide(dtype, device)
        if local is None:
            bounds = torch.finfo(wide) if wide.is_floating_point else torch.iinfo(torch.int64)
            lowest, highest = (-math.inf, math.inf) if wide.is_floating_point else (bounds.min, bounds.max)
            local = {"sum": 0, "max": lowest, "min": highest}[self.operation]
        total = torch.as_tensor(local, device=device).to(wide).expand(shape).contiguous()
        if isinstance(local, torch.Tensor) and total.data_ptr() == local.data_ptr():
            total = total.clone()
        operations = {"sum": dist.ReduceOp.SUM, "max": dist.ReduceOp.MAX, "min": dist.ReduceOp.MIN}
        dist.all_reduce(total, op=operations[self.operation])
        return total.to(dtype)


def _common_dtype(present: list[Any]) -> torch.dtype:
    """What torch would make of them on one card."""
    dtypes = [share.dtype for share in present if isinstance(share, (torch.Tensor, _Left))]
    dtype: torch.dtype = dtypes[0]
    for other in dtypes[1:]:
        dtype = torch.promote_types(dtype, other)
    if any(isinstance(share, float) for share in present) and not (
        dtype.is_floating_point or dtype.is_complex
    ):
        return torch.get_default_dtype()
    return dtype


def _like(own: Any, first: Any, items: dict[Any, Any]) -> Any:
    """A dict of the type that this rank holds (a defaultdict keeps its factory, which need not pickle)."""
    result = copy.copy(own if isinstance(own, dict) else first)
    result.clear()
    for key, item in items.items():  # not update(): a Counter's adds up
        result[key] = item
    return result


# ------------------------------------------------------------------------------- what the ranks have collected


def gather_in_order(*values: Any) -> Any:
    """What each rank has collected, joined in rank order: with EvalSampler that is data set order.

        all_preds, all_labels = gather_in_order(all_preds, all_labels)

    Lists, tuples, deques and strings are joined, tensors and arrays along dimension 0; sets are united; dicts
    are merged: lists, tensors, dicts and sets under one key are joined likewise, counts of a Counter added,
    of anything else the later rank's stays, as if one process had gone through the data. Shares may be
    unequal or empty: [], None, an array of no rows or without the other dimensions. Type, dtype and device
    stay, gradients do not flow. Every rank gets everything: memory of the whole.

    With N processes (collective): one or two all-gathers for all values together, one more for each tensor
    that is on a card or larger than a megabyte. With one process: the values themselves.
    """
    if not _alone():
        left: list[torch.Tensor] = []
        everyones = _exchange([_packed(value, left, ()) for value in values])
        join = _Join(left)
        values = tuple(join(own, list(shares)) for own, shares in zip(values, zip(*everyones)))
    return values[0] if len(values) == 1 else values


class _Join:
    """Joins one value of all ranks, in their order. Like _Fold it sees the same on every rank."""

    def __init__(self, left: list[torch.Tensor]) -> None:
        self.left = left

    def __call__(self, own: Any, shares: list[Any]) -> Any:
        """`shares`: one for each rank, None where it has none."""
        present = [share for share in shares if share is not None]
        if not present:
            return own
        first = present[0]
        if any(isinstance(share, (torch.Tensor, _Left)) for share in present):
            return self._tensors(own, shares)
        if isinstance(first, dict):
            return self._dicts(own, shares)
        numpy = sys.modules.get("numpy")
        if numpy is not None and any(isinstance(share, numpy.ndarray) for share in present):
            return self._arrays(numpy, present)
        return _concatenated(present)

    def _dicts(self, own: Any, shares: list[Any]) -> Any:
        present = [share for share in shares if share is not None]
        merged: dict[Any, Any] = {}
        for key in {key: None for share in present for key in share}:
            column = [None if share is None or key not in share else share[key] for share in shares]
            values = [value for value in column if value is not None]
            if isinstance(present[0], Counter):
                merged[key] = sum(values)
            elif values and all(_is_collection(value) for value in values):
                merged[key] = self(own.get(key) if isinstance(own, dict) else None, column)
            else:
                merged[key] = values[-1] if values else None
        return _like(own, present[0], merged)

    def _tensors(self, own: Any, shares: list[Any]) -> torch.Tensor:
        parts = [share for share in shares if isinstance(share, (torch.Tensor, _Left))]
        if any(not share.shape for share in parts):
            raise TypeError(
                "a tensor without dimensions cannot be joined with those of other ranks: collect it in a list"
            )
        device = own.device if isinstance(own, torch.Tensor) else None
        if any(isinstance(share, _Left) for share in parts):
            shares = self._received(own, shares, parts)
        tensors = [share for share in shares if isinstance(share, torch.Tensor)]
        filled = [share for share in tensors if share.numel()] or [
            max(tensors, key=lambda share: share.dim())
        ]
        joined = torch.cat(filled)
        return joined if device is None else joined.to(device)

    def _received(self, own: Any, shares: list[Any], parts: list[Any]) -> list[Any]:
        """The shares with the tensors that had to travel by themselves; small ones of other ranks go
        along."""
        on_cpu = all(
            part.device.type == "cpu" if isinstance(part, torch.Tensor) else part.on_cpu for part in parts
        )
        device = torch.device("cpu") if on_cpu else own_device()
        sizes = [
            math.prod(share.shape) * torch.empty((), dtype=share.dtype).element_size()
            if isinstance(share, (torch.Tensor, _Left))
            else 0
            for share in shares
        ]
        mine = shares[_where().rank]
        local = self.left[mine.number] if isinstance(mine, _Left) else mine
        raw = (
            _bytes_of(local.to(device).contiguous())
            if isinstance(local, torch.Tensor)
            else torch.empty(0, dtype=torch.uint8, device=device)
        )
        received = _gather_bytes(raw, sizes)
        return [
            part.clone().view(share.dtype).view(share.shape)
            if isinstance(share, (torch.Tensor, _Left))
            else share
            for part, share in zip(received, shares)
        ]

    def _arrays(self, numpy: Any, present: list[Any]) -> Any:
        arrays = [numpy.asarray(share) for share in present]
        if any(not array.shape for array in arrays):
            raise TypeError(
                "an array without dimensions cannot be joined with those of other ranks: collect it in a list"
            )
        return numpy.concatenate(
            [array for array in arrays if array.size] or [max(arrays, key=lambda array: array.ndim)]
        )


def _is_collection(value: Any) -> bool:
    """Whether values under one key of several ranks are parts of one thing, not one in place of the other."""
    if isinstance(value, (list, dict, set, deque)):
        return True
    return bool(getattr(value, "shape", ())) and not isinstance(value, (int, float))


def _concatenated(present: list[Any]) -> Any:
    first = present[0]
    if isinstance(first, (set, frozenset)):
        return first.union(*present[1:])
    if isinstance(first, (str, bytes)):
        return first[:0].join(present)
    if isinstance(first, (list, tuple, deque)):
        joined = itertools.chain.from_iterable(present)
        return deque(joined, first.maxlen) if isinstance(first, deque) else type(first)(joined)  # type: ignore[call-arg]
    raise TypeError(f"cannot join values of type {type(first).__name__} in rank order")


# ----------------------------------------------------------------------------------------------- files


def save_checkpoint(obj: Any, f: Any, *args: Any, **kwargs: Any) -> None:
    """`torch.save` by rank 0 alone, and whole or not at all: a run that is killed meanwhile leaves the old
    file.

        save_checkpoint(unwrap(model).state_dict(), "best.pth")

    `f` and the rest are torch.save's. With N processes: rank 0 writes, the others go on at once (no
    communication: may stand under a rank guard; put `dist.barrier()` before another rank reads it). A file
    object is written as it comes, by rank 0; an io.BytesIO, which is memory, by every rank. With one process:
    the same file with the same bytes as torch.save. For the moment of writing it takes the room of a second
    file.
    """
    if isinstance(f, io.BytesIO):
        torch.save(obj, f, *args, **kwargs)
    elif is_main_process():
        if isinstance(f, (str, os.PathLike)):
            _save_whole(obj, os.path.realpath(os.fspath(f)), args, kwargs)
        else:
            torch.save(obj, f, *args, **kwargs)


def _save_whole(obj: Any, path: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    folder, name = os.path.split(path)
    if not os.path.isdir(folder) or (os.path.exists(path) and not os.path.isfile(path)):
        torch.save(obj, path, *args, **kwargs)  # /dev/null, or an error in torch's own words
        return
    # A folder of its own, not another name: torch writes the file's name into the file.
    scratch = tempfile.mkdtemp(prefix=f".{name}.", dir=folder)
    try:
        written = os.path.join(scratch, name)
        torch.save(obj, written, *args, **kwargs)
        if os.path.exists(path):
            shutil.copymode(path, written)
        os.replace(written, path)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


class NullWriter:
    """Stands for a SummaryWriter, a wandb run, a csv writer or an open file on the ranks that do not write.

        writer = SummaryWriter(folder) if is_main_process() else NullWriter()

    Any attribute, call, item or `with` gives it back and does nothing; it iterates over nothing. It is no
    number and no path: what is computed from a writer must be computed on rank 0 (and broadcast).
    """

    def __getattr__(self, name: str) -> NullWriter:
        """Any method, any attribute."""
        if name.startswith("__"):
            raise AttributeError(name)  # what python asks for by itself must not be pretended
        return self

    def __call__(self, *args: Any, **kwargs: Any) -> NullWriter:
        """Any call does nothing."""
        return self

    def __getitem__(self, key: Any) -> NullWriter:
        """Any item."""
        return self

    def __setitem__(self, key: Any, value: Any) -> None:
        """Forgets it."""

    def __delitem__(self, key: Any) -> None:
        """Nothing to delete."""

    def __iter__(self) -> Iterator[Any]:
        """Over nothing."""
        return iter(())

    def __enter__(self) -> NullWriter:
        """As a context it is itself."""
        return self

    def __exit__(self, *error: object) -> None:
        """Lets errors through."""
