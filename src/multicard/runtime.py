"""What a training script needs to run on one card or on many, started with `python` or with `torchrun`.

Without it, every script that goes from one card to many rewrites the same dozen things, most of which are
easy to get nearly right: evaluation that counts padded samples twice, a gather that fails when ranks hold
different counts, a checkpoint that four processes write at once, a stop that one rank alone decides.

    python train.py                          # one process: what is below does nothing, the script is what it
    was torchrun --nproc-per-node=4 train.py     # four processes of this one script, one on each card

The file stands alone: it needs torch (2.1 or newer) and may be copied beside any script. In order:

    start     setup_ddp, is_main_process, print_log, main_process_first, own_device, per_card, vary_seed
    data      DistributedSampler, EvalSampler, ShardedSampler, ShardedBatchSampler, ShardedIterable,
              set_epoch, share_of, global_batches, global_samples, whole_loader
    model     device_ids, all_trainable, own_buffers, forward_of, unwrap, sync_buffers, broadcast_model,
              accumulate, average_gradients, mean_by_count, scale_by_ranks, sum_over_ranks, mean_over_ranks,
              all_gather_with_grad, batches_of_ranks
    values    broadcast_value, any_rank, all_reduce_sum, all_reduce_mean, all_reduce_max, all_reduce_min,
              average_over_ranks, gather_in_order
    files     save_checkpoint, NullWriter

Two things hold for all of it. A function that talks to the other ranks says so ("collective"): every rank has
to call it, so it never stands under `if rank == 0:`. And whatever the ranks hold, also if one of them holds
nothing (a validation set smaller than the number of cards), every rank gets the same answer.
"""

from __future__ import annotations

import atexit
import contextlib
import copy
import ctypes
import faulthandler
import functools
import inspect
import io
import itertools
import multiprocessing
import numbers
import os
import pickle
import random
import shutil
import socket
import struct
import sys
import tempfile
import time
import weakref
from collections import Counter, defaultdict, deque
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import (
    BatchSampler,
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
    "all_reduce_mean",
    "all_reduce_min",
    "all_reduce_sum",
    "all_trainable",
    "any_rank",
    "average_gradients",
    "average_over_ranks",
    "batches_of_ranks",
    "broadcast_model",
    "broadcast_value",
    "device_ids",
    "forward_of",
    "gather_in_order",
    "global_batches",
    "global_samples",
    "is_main_process",
    "main_process_first",
    "mean_by_count",
    "mean_over_ranks",
    "own_buffers",
    "own_device",
    "per_card",
    "print_log",
    "save_checkpoint",
    "scale_by_ranks",
    "set_epoch",
    "setup_ddp",
    "share_of",
    "sum_over_ranks",
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
    world_size = int(environment.get("WORLD_SIZE", "1"))
    if world_size == 1 or "RANK" not in environment:
        return _Place(0, 0, 1)
    return _Place(int(environment.get("LOCAL_RANK", "0")), int(environment["RANK"]), world_size)


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
        return _where()[:]
    place = _where()
    cards = _accelerator()
    if place.world_size > 1 and cards is not None:
        _take_card(cards[0], place.local_rank)
    if not dist.is_initialized():
        _join(place, cards, timeout)
        atexit.register(_leave, os.getpid())
    _place = place
    if place.world_size > 1:
        generators = _generators()
        if cards is not None and (cards[0] != "cuda" or torch.backends.cuda.is_built()):  # type: ignore[no-untyped-call]
            generators.append(getattr(torch, cards[0]))
        states = broadcast_value([_state_of(generator) for generator in generators])
        for generator, state in zip(generators, states):
            _set_state(generator, state)
    return place[:]


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
        # Never freed: gloo's destructor joins its threads while it holds python's lock, and a thread that frees
        # a tensor at that moment wants the lock too (seen with torch 2.13). The end of the process ends both.
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(dist.group.WORLD))
        return
    with _loopback():
        store = dist.HashStore()  # type: ignore[attr-defined]
        dist.init_process_group(**options, store=store, rank=0, world_size=1)


@contextlib.contextmanager
def _loopback() -> Iterator[None]:
    """Let gloo bind to the loopback: by itself it looks up the host name, in vain without a network."""
    name = next((name for _, name in socket.if_nameindex() if name in ("lo", "lo0")), None)
    if name is None or "GLOO_SOCKET_IFNAME" in os.environ:
        yield
        return
    os.environ["GLOO_SOCKET_IFNAME"] = name
    try:
        yield
    finally:
        del os.environ["GLOO_SOCKET_IFNAME"]


_PATIENCE = 30  # seconds


def _leave(owner: int) -> None:
    """Close the group at exit. A peer that died must not keep us: the process ends when patience does."""
    if os.getpid() != owner:
        return
    if _where().world_size > 1:
        # gloo's threads put down what they hold: they must not want python once it has ended.
        time.sleep(0.05)
    if not dist.is_initialized():
        return
    # A timer of C: at this point python starts no threads any more. It wants a real stderr.
    with contextlib.suppress(AttributeError, OSError, ValueError):
        faulthandler.dump_traceback_later(_PATIENCE, exit=True, file=sys.__stderr__)  # type: ignore[arg-type]
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
    """Let one process of each machine go first: for a download, or a cache that the others then read.

        with main_process_first():
            train_set = MNIST("data", download=True)

    With N processes: local rank 0 of every machine runs the body, then all others do (collective: one wait).
    One within another's body adds nothing: who is there alone must wait for nobody.  With one: just the body.
    """
    if _alone() or _IN_TURN:
        yield
        return
    if _where().local_rank != 0:
        _wait_for_all()
    _IN_TURN.append(True)
    try:
        yield
    finally:
        _IN_TURN.clear()
        if _where().local_rank == 0:
            _wait_for_all()


_IN_TURN: list[bool] = []
"""Not empty while this process is in the body of `main_process_first`."""


def _wait_for_all() -> None:
    dist.all_reduce(torch.zeros(1, device="cpu"))  # on the CPU, so that no card spins while it waits


def own_device() -> torch.device:
    """The device of this process: `cuda:<local_rank>` (or npu, xpu), `cpu` on a machine without cards.

    With one process: the first card, as a script that says "cuda" means it (or `mps` on a Mac).
    """
    cards = _accelerator()
    if cards is not None:
        return torch.device(cards[0], _where().local_rank)
    if _where().world_size == 1 and torch.backends.mps.is_available():
        return torch.device("mps")
    return torch.device("cpu")


def per_card(batch_size: int) -> int:
    """The batch size of one process when `batch_size` is that of all together; ValueError if uneven.

    With one process: `batch_size`.
    """
    world = _where().world_size
    if batch_size % world:
        raise ValueError(f"per_card: a batch of {batch_size} cannot be shared evenly by {world} processes")
    return batch_size // world


# --------------------------------------------------------------------------------------- random numbers

# What keeps seeds apart: a script that seeds with 42, 43, 44, ... by epoch must not meet the seed of another rank.
# Also in the lower 32 bits, which are all that torch's generator on the CPU makes of a seed.
_FAR = 0x9E3779B97F4A7C15

_common_seed_of: dict[int, int] = {}  # seed that vary_seed gave this rank -> the seed that all ranks have


def vary_seed(*generators: torch.Generator) -> None:
    """Let dropout and augmentation differ between ranks. To be called once the model is wrapped.

    Up to here all ranks drew the same random numbers, as they must while data are split and weights
    initialised. From here on equal numbers would only give every card the same augmentations. With N
    processes: rank 0 keeps its generators (python, numpy, torch), every other rank seeds its own from them;
    so too the `generators` given, such as one that a DataLoader seeds its workers from. The samplers of this
    file keep to the common seed, also those built later. With one process: nothing, not one random number is
    drawn.

    What has to be equal on all ranks must not be drawn after this call (or has to pass through
    broadcast_value).
    """
    if _where().world_size == 1:
        return
    for generator in generators:
        _vary(generator)
    if not _vary(torch.default_generator) or _where().rank == 0:
        return
    torch.manual_seed(torch.initial_seed())  # the cards' generators too
    random.seed(random.getrandbits(64) + _where().rank)
    numpy = sys.modules.get("numpy")
    if numpy is not None:
        numpy.random.seed((int(numpy.random.randint(2**31)) + _where().rank) % 2**32)


def _vary(generator: torch.Generator) -> bool:
    """Give a generator this rank's own seed; False if it has one already."""
    seed = generator.initial_seed()
    if seed in _common_seed_of:
        return False
    if _where().rank > 0:
        generator.manual_seed((seed + _where().rank * _FAR) % 2**64)
    _common_seed_of[generator.initial_seed()] = seed
    return True


def _common_seed(generator: torch.Generator | None = None) -> int:
    """The seed, the same on all ranks, of a generator or of the script: seen through vary_seed."""
    seed = torch.initial_seed() if generator is None else generator.initial_seed()
    return _common_seed_of.get(seed, seed) % 2**63


def _generators(owner: object = None) -> list[Any]:
    """The generators of python, torch's CPU and numpy, and those that a sampler or one inside it holds."""
    found: list[Any] = [random, torch.default_generator]
    numpy = sys.modules.get("numpy")
    kinds: tuple[type, ...] = (torch.Generator, random.Random)
    if numpy is not None:
        found.append(numpy.random)
        kinds += (numpy.random.RandomState, numpy.random.Generator)
    owners = [owner]
    for each in owners:
        inside = list(getattr(each, "__dict__", {}).values())
        found += [value for value in inside if isinstance(value, kinds)]
        owners += [value for value in inside if isinstance(value, (Sampler, IterableDataset))]
    return found


def _state_of(generator: Any) -> Any:
    for name in ("get_state", "getstate", "get_rng_state"):
        if hasattr(generator, name):
            return getattr(generator, name)()
    return generator.bit_generator.state


def _set_state(generator: Any, state: Any) -> None:
    for name in ("set_state", "setstate", "set_rng_state"):
        if hasattr(generator, name):
            getattr(generator, name)(state)
            return
    generator.bit_generator.state = state


def _seed(generator: Any, seed: int) -> None:
    if isinstance(generator, torch.Generator):
        generator.manual_seed(seed)
    elif hasattr(generator, "getstate"):  # python's
        generator.seed(seed)
    elif hasattr(generator, "seed"):  # numpy's old one, which takes 32 bits
        generator.seed(seed % 2**32)
    else:
        generator.bit_generator.state = type(generator.bit_generator)(seed).state


def _drawn_in_common(source: Iterable[T], seed: int, ahead: int) -> Iterator[T]:
    """The items of `source`, drawn alike on all ranks; the generators are seeded for it, and given back.

    `ahead` items are drawn at a time, since some never end.
    """
    generators = _generators(source)
    iterator: Iterator[T] | None = None
    own: list[Any] = []
    while True:
        outside = [_state_of(generator) for generator in generators]
        try:
            if iterator is None:
                for generator in generators:
                    _seed(generator, seed)
                iterator = iter(source)
            else:
                for generator, state in zip(generators, own):
                    _set_state(generator, state)
            items = list(itertools.islice(iterator, ahead))
            own = [_state_of(generator) for generator in generators]
        finally:
            for generator, state in zip(generators, outside):
                _set_state(generator, state)
        yield from items
        if len(items) < ahead:
            return


def _seed_of(sampler: object) -> int:
    """The seed that a sampler draws from: its generator's if it has one, else the script's."""
    held = (each for each in _generators(sampler)[1:] if isinstance(each, torch.Generator))
    next(held)  # torch's own
    return _common_seed(next(held, None))


def _dealt(items: Iterable[T], place: _Place, *, drop_last: bool) -> Iterator[T]:
    """One item out of each round of world_size; the last round is filled up from the first, or dropped."""
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


_PASSES: "weakref.WeakKeyDictionary[Any, int]" = weakref.WeakKeyDictionary()
"""How many passes over a data set were begun: samplers that a script makes anew for each pass go on from there."""


class _Epochs:
    """Which draw of an order is next: the epoch that was told, or else a count of its own."""

    def __init__(self, source: Any = None) -> None:
        self._source = source
        self.number = 0
        with contextlib.suppress(TypeError):  # a list, for instance, cannot be referred to weakly
            self.number = _PASSES.get(source, 0)
        self._round = 0
        self._pass = 0
        self._told = self._drawn = False

    def tell(self, epoch: int) -> int:
        """The script says which epoch begins; one that it has had already begins a new round."""
        if self._drawn and self._told and self._round * 2**20 + epoch <= self.number:
            self._round += 1
        self.number = self._round * 2**20 + epoch
        self._told, self._drawn = True, False
        self._pass = 0
        return self.number

    def begin(self) -> int:
        """A pass begins: its number. Of an epoch that was told, each pass after the first has one far away."""
        if self._drawn and self._told:
            self._pass += 1
        elif self._drawn:
            self.number += 1
        self._drawn = True
        with contextlib.suppress(TypeError):
            _PASSES[self._source] = self.number + 1
        return self.number + self._pass * _FAR % 2**62


class DistributedSampler(TorchDistributedSampler):  # type: ignore[type-arg]
    """Deals the training set out: each rank trains on its own share, in an order that every epoch draws anew.

        loader = DataLoader(train_set, 32, sampler=DistributedSampler(train_set, shuffle=True))
        for epoch in range(epochs):
            loader.sampler.set_epoch(epoch)

    With N processes: torch's own DistributedSampler (rank r takes items r, r+N, ... of one permutation,
    shares made equal by repeating up to N-1 samples, or by `drop_last`), seeded by the script's own seed, so
    that another seed is another order; torch's own uses 0 whatever the script says. `seed` or `generator` is
    used instead if given. A sampler that is never told the epoch counts the passes over it, so all ranks must
    make equally many: a look at one batch under a rank guard goes through `whole_loader`. With one process:
    exactly what `DataLoader(shuffle=..., generator=...)` makes, to the last random number.
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
            seed = _common_seed(generator)
        self._single = _single(dataset, generator, shuffle=shuffle) if place.world_size == 1 else None
        self._options: dict[str, Any] = {
            "num_replicas": place.world_size,
            "rank": place.rank,
            "shuffle": shuffle,
            "seed": seed,
            "drop_last": drop_last,
        }
        super().__init__(dataset, **self._options)
        self._measured = len(dataset)
        self._epochs = _Epochs(dataset)

    def _measure(self) -> None:
        """A data set may have grown since: torch's sampler counts once only."""
        if len(self.dataset) != self._measured:  # type: ignore[arg-type]
            epoch = self.epoch
            super().__init__(self.dataset, **self._options)
            self.epoch, self._measured = epoch, len(self.dataset)  # type: ignore[arg-type]

    def __iter__(self) -> Iterator[int]:
        if self._single is not None:
            return iter(self._single)
        self._measure()
        self.epoch = self._epochs.begin()
        with torch.device(
            "cpu"
        ):  # a script may have made its cards the default, where this order cannot be drawn
            order = super().__iter__()
        self.epoch = self._epochs.number
        return order

    def set_epoch(self, epoch: int) -> None:
        """Tell the epoch, from which the order is drawn; the same epoch again is another order.

        So is each pass within an epoch: a short loader may be walked through many times in one.
        """
        self.epoch = self._epochs.tell(epoch)

    def __len__(self) -> int:
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
        self.seed = _common_seed(generator)
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
        if self.place.world_size == 1:
            return iter(self._single)
        share = self.share(self.place.rank)
        if not self.shuffle:
            return iter(share)
        generator = torch.Generator()
        generator.manual_seed(self.seed + self.epoch)
        order: list[int] = torch.randperm(len(self.dataset), generator=generator, device="cpu").tolist()
        return iter(order[share.start : share.stop])

    def __len__(self) -> int:
        return len(self.share(self.place.rank))

    def set_epoch(self, epoch: int) -> None:
        """Tell the epoch: matters for `shuffle=True` only."""
        self.epoch = epoch


class _Sharded(Sampler):  # type: ignore[type-arg]
    """A sampler of which each rank takes every world_size-th draw; what else it is asked, it passes on."""

    def __init__(self, sampler: Any, *, drop_last: bool = False) -> None:
        self._source = sampler
        self._pad = not drop_last
        self._place = _where()
        self._seed = _seed_of(sampler)
        self._epochs = _Epochs()

    def __iter__(self) -> Iterator[Any]:
        if self._place.world_size == 1:
            return iter(self._source)
        seed = self._seed + self._epochs.begin()
        draw = _drawn_in_common(self._source, seed, ahead=1024 * self._place.world_size)
        return _dealt(draw, self._place, drop_last=not self._pad)

    def __len__(self) -> int:
        count, world = len(self._source), self._place.world_size
        return -(-count // world) if self._pad else count // world

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):  # also while it is being copied or unpickled, when there is no source yet
            raise AttributeError(name)
        return getattr(self._source, name)

    def __setattr__(self, name: str, value: Any) -> None:
        object.__setattr__(self if name.startswith("_") else self._source, name, value)

    def set_epoch(self, epoch: int) -> None:
        """Tell the epoch, from which the draw is made. The sampler inside is not told."""
        self._epochs.tell(epoch)


class ShardedSampler(_Sharded):
    """Deals out what any other sampler draws: a WeightedRandomSampler, one of the script's own.

        sampler = ShardedSampler(WeightedRandomSampler(weights, len(weights)))

    With N processes: in every epoch all ranks make the same draw (python's, numpy's and torch's generators,
    and generators that the sampler holds, are seeded from the common seed and the epoch for just that
    moment), and rank r takes items r, r+N, ... of it, so that weights and subsets mean what they mean on one
    card. Shares are equal: up to N-1 items are repeated, or left out with `drop_last`. It costs N times the
    drawing, no communication. `set_epoch` as for DistributedSampler. With one process: the sampler
    itself.
    """


class ShardedBatchSampler(_Sharded):
    """Deals out the batches that a batch sampler makes: rank r takes batches r, r+N, ..., all equally many.

        loader = DataLoader(train_set, batch_sampler=ShardedBatchSampler(BucketBatchSampler(lengths, 32)))

    With N processes: one common draw per epoch, as in ShardedSampler; up to N-1 batches are repeated (or left
    out with `drop_last`) so that no rank takes a step more than another. `set_epoch` as for
    DistributedSampler. With one process: the batch sampler itself.
    """

    def __init__(self, batch_sampler: Any, *, drop_last: bool = False) -> None:
        super().__init__(batch_sampler, drop_last=drop_last)


class ShardedIterable(IterableDataset):  # type: ignore[type-arg]
    """Deals out an IterableDataset, for which no sampler can: rank r takes items r, r+N, ... of the stream.

        loader = DataLoader(ShardedIterable(stream), 32, num_workers=4)

    With N processes: every rank reads the whole stream, with random numbers alike on all ranks (drawn from
    the common seed, the epoch and the number of the worker), and keeps each N-th item. An item is kept only
    once all N of its round were read, so all ranks get equally many and at most N-1 items at the end are left
    out; nothing is communicated. Every rank reads as much as one card would, eight rounds ahead: a stream
    that can skip cheaply is better dealt out at its source. Without `set_epoch` every pass draws alike.
    Workers see what they see on one card: a data set that shares itself out among them (`get_worker_info`) is
    still read once; one that does not is read once per worker, as before. With one process: the data set
    itself.
    """

    def __init__(self, dataset: Any) -> None:
        self.dataset = dataset
        self._place = _where()
        self._seed = _seed_of(dataset)
        # Shared memory: workers that live on from epoch to epoch (persistent_workers) hear of the epoch too.
        self._epoch = torch.zeros((), dtype=torch.int64, device="cpu")
        if self._place.world_size > 1:
            self._epoch.share_memory_()  # type: ignore[no-untyped-call]

    def __iter__(self) -> Iterator[Any]:
        if self._place.world_size == 1:
            return iter(self.dataset)
        worker = get_worker_info()
        seed = self._seed + int(self._epoch) + (0 if worker is None else worker.id * _FAR)
        stream = _drawn_in_common(self.dataset, seed % 2**63, ahead=8 * self._place.world_size)
        return _dealt(stream, self._place, drop_last=True)

    def __len__(self) -> int:
        return len(self.dataset) // self._place.world_size

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_") or name == "dataset":  # also while it is being unpickled, without one yet
            raise AttributeError(name)
        return getattr(self.dataset, name)

    def set_epoch(self, epoch: int) -> None:
        """Tell the epoch, on which the stream's random numbers depend. The data set inside is not told."""
        self._epoch.fill_(epoch)


def share_of(batches: Iterable[T]) -> Any:
    """A rank's share of batches that the script makes by hand: every N-th, equally many on all ranks.

        for start in share_of(range(0, len(data), 32)):
            x, y = data[order[start:start + 32]], labels[order[start:start + 32]]

    All ranks must walk through the same batches (`order` drawn from the common random state). With N
    processes: rank r takes batches r, r+N, ...; of a sequence the last round is filled up by its first
    batches, of a generator what does not fill a round is left out, so that no rank makes a step alone. No
    communication. With one process: the batches themselves.
    """
    place = _where()
    if place.world_size == 1:
        return batches
    if hasattr(batches, "__len__") and hasattr(batches, "__getitem__"):
        count = len(batches)  # type: ignore[arg-type]
        rounds = -(-count // place.world_size)
        wanted = [(place.rank + turn * place.world_size) % count for turn in range(rounds)] if count else []
        return [batches[index] for index in wanted]
    return _dealt(batches, place, drop_last=True)


def _dealer(loader: Any) -> Any:
    """The part of a loader that deals its data out among the ranks; None where every rank sees all of it."""
    batch_sampler = getattr(loader, "batch_sampler", None)
    parts = [loader, batch_sampler, getattr(loader, "sampler", None), getattr(loader, "dataset", None)]
    if not isinstance(batch_sampler, _Sharded):
        parts.append(getattr(batch_sampler, "sampler", None))
    kinds = (TorchDistributedSampler, EvalSampler, _Sharded, ShardedIterable)
    return next((part for part in parts if isinstance(part, kinds)), None)


def set_epoch(loader: Any, epoch: int) -> None:
    """Tell a loader which epoch begins, wherever in it the sampler sits. At the top of the epoch loop.

    The samplers of this file (and torch's DistributedSampler) draw the order of an epoch from its number, so
    that all ranks draw alike, also in a run that is resumed. A loader whose data are not dealt out is left
    alone: what the script itself does with its own samplers stays the script's. With one process it changes
    nothing. No communication.
    """
    dealer = _dealer(loader)
    if dealer is not None:
        dealer.set_epoch(epoch)


def global_batches(loader: Any) -> int:
    """Number of batches of a loader over all ranks: what `len(loader)` was on one card.

    For an average over batches, a schedule, a progress bar. Not collective, so it may stand under a rank
    guard. Of a bar of tqdm's that goes through a loader it is the loader's. Where nothing is dealt out
    (every rank sees all batches), and with one process, it is `len(loader)`. For a training loader it is
    `len(loader)` times the number of ranks, thus up to N-1 more than on one card.
    """
    while not hasattr(loader, "batch_sampler") and hasattr(loader, "iterable"):
        loader = loader.iterable
    dealer = _dealer(loader)
    if dealer is None:
        return len(loader)
    if isinstance(dealer, TorchDistributedSampler):
        return len(loader) * dealer.num_replicas
    world = _where().world_size
    if not isinstance(dealer, EvalSampler):
        return len(loader) * world
    size = getattr(loader, "batch_size", None) or 1
    shares = [len(dealer.share(rank)) for rank in range(world)]
    return sum(share // size if loader.drop_last else -(-share // size) for share in shares)


def global_samples(loader: Any) -> int:
    """Number of samples that a loader's sampler draws over all ranks: what `len(loader.sampler)` was on one card.

    To divide a total over the ranks. Not collective. For a training loader it counts the up to N-1 samples
    that are repeated, as the total does; where nothing is dealt out, and with one process, it is
    `len(loader.sampler)`.
    """
    sampler = loader.sampler
    if isinstance(sampler, EvalSampler):
        return len(sampler.dataset)
    if isinstance(sampler, TorchDistributedSampler):
        return len(sampler) * sampler.num_replicas
    return len(sampler) * (_where().world_size if isinstance(sampler, _Sharded) else 1)


def whole_loader(loader: T) -> T:
    """The same loader over the whole data set: for work that rank 0 does alone, or every rank in full.

    With N processes: a loader whose data are dealt out comes back with a SequentialSampler (a sampler of the
    script's own comes back as it was), everything else (collate_fn, workers, drop_last ...) as it was; any
    other loader comes back as it is. No communication. With one process: the loader itself. Under a rank
    guard the model must be the unwrapped one (`unwrap(model)`): the forward of a wrapped one is collective.
    """
    batches: Any = getattr(loader, "batch_sampler", None)
    sampler: Any = getattr(loader, "sampler", None)
    kinds = (EvalSampler, TorchDistributedSampler, _Sharded)
    dealer: Any = next((part for part in (batches, sampler) if isinstance(part, kinds)), None)
    if dealer is None or _where().world_size == 1:
        return loader
    whole = copy.copy(loader)
    source = vars(dealer)["_source"] if isinstance(dealer, _Sharded) else SequentialSampler(dealer.dataset)
    # DataLoader forbids this on an instance; on a copy that nobody has iterated yet it is safe, and keeps the
    # arguments of every torch version and of subclasses.
    whole.__dict__["_iterator"] = None
    if dealer is batches:
        whole.__dict__["batch_sampler"] = source
        return whole
    whole.__dict__["sampler"] = source
    if batches is not None:
        whole.__dict__["batch_sampler"] = BatchSampler(source, batches.batch_size, batches.drop_last)
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


def _wrapper_in(model: Any) -> DistributedDataParallel | None:
    return next((layer for layer in _layers(model) if isinstance(layer, DistributedDataParallel)), None)


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
    for buffer, values in zip(buffers, torch.split(flat, [buffer.numel() for buffer in buffers])):
        buffer.copy_(values.view_as(buffer))


@contextlib.contextmanager
def accumulate(model: Any, last: bool) -> Iterator[None]:  # noqa: FBT001
    """Round forward and backward of one micro-batch: only at the last are gradients averaged over the ranks.

        for i, (x, y) in enumerate(loader):
            last = (i + 1) % 4 == 0
            with accumulate(model, last):
                criterion(model(x), y).backward()
            if last: optimizer.step(); optimizer.zero_grad()

    The gradients are those of averaging each time; it saves the all-reduces in between. The forward has to be
    inside, DistributedDataParallel decides there. A model that is not wrapped, and one with
    `static_graph=True`, which cannot skip, is left alone. Not collective itself.
    """
    wrapper = _wrapper_in(model)
    if last or wrapper is None or getattr(wrapper, "static_graph", False):
        yield
        return
    with wrapper.no_sync():
        yield


@contextlib.contextmanager
def all_trainable(model: nn.Module) -> Iterator[None]:
    """While the model is wrapped, every parameter counts as trainable; afterwards each is as it was.

        with all_trainable(model):
            model = DDP(model, find_unused_parameters=True)

    DistributedDataParallel looks at the parameters once, when it is made: what is frozen then and thawed
    later would never be averaged, and the ranks would drift apart without a word. With one process it changes
    nothing that lasts.
    """
    frozen = [parameter for parameter in model.parameters() if not parameter.requires_grad]
    for parameter in frozen:
        parameter.requires_grad_(parameter.is_floating_point() or parameter.is_complex())
    try:
        yield
    finally:
        for parameter in frozen:
            parameter.requires_grad_(False)


def own_buffers() -> dict[str, bool]:
    """Arguments for DistributedDataParallel that leave each rank its own buffers while it trains.

        model = DDP(model, **own_buffers())

    The forward of a wrapped model overwrites its buffers with rank 0's. Where it is called twice before one
    backward pass, that would change in place what the first call's backward pass needs. `sync_buffers` makes
    them equal for evaluation and checkpoints. (torch 2.13 renamed the argument.)
    """
    known = inspect.signature(DistributedDataParallel.__init__).parameters
    return {"forward_sync_buffers" if "forward_sync_buffers" in known else "broadcast_buffers": False}


def forward_of(model: Any, *, trains: bool | None = None) -> Any:
    """What to call where the same line trains and evaluates: the wrapped model, or the one inside.

        outputs = forward_of(model)(inputs)

    While gradients are recorded it is the wrapped model, whose forward is collective; under `no_grad` it is
    the model inside, since ranks may hold different numbers of batches there. Where gradients are recorded in
    evaluation too, `trains` says which it is. With one process likewise.
    """
    wrapper = _wrapper_in(model)
    collective = torch.is_grad_enabled() if trains is None else trains
    return model if collective or wrapper is None else wrapper.module


def broadcast_model(model: nn.Module) -> None:
    """Give every rank rank 0's parameters and buffers: for a model that is not wrapped, before it is trained.

    DistributedDataParallel does this when it is made. With N processes (collective): one broadcast for each
    parameter and buffer. With one process: nothing.
    """
    if _alone():
        return
    with torch.no_grad():
        for tensor in (*model.parameters(), *model.buffers()):
            dist.broadcast(tensor.data, src=0)


def average_gradients(holder: Any) -> None:
    """Average the gradients over the ranks: after `backward`, for a model that no wrapper can serve.

        loss.backward()
        average_gradients(model)        # or the optimizer that holds its parameters

    DistributedDataParallel sees only what goes through its `forward`. Where the loss is made by another
    method, by parts of the model or by `autograd.grad`, this does the same in one all-reduce for each type of
    tensor, after the backward pass instead of during it. Calling it again before the step changes nothing
    that is averaged already. A parameter without a gradient counts as zero if another rank has one for it.
    With N processes: collective. With one process: nothing.
    """
    if _alone():
        return
    groups = getattr(holder, "param_groups", None)
    parameters = holder.parameters() if groups is None else (p for group in groups for p in group["params"])
    trained = [parameter for parameter in parameters if parameter.requires_grad or parameter.grad is not None]
    if not trained:
        return
    # On the CPU: no card is waited for.
    held = torch.tensor([int(parameter.grad is not None) for parameter in trained])
    dist.all_reduce(held, op=dist.ReduceOp.MAX)
    kinds: dict[Any, list[Any]] = {}
    for parameter, wanted in zip(trained, held.tolist()):
        if wanted:
            if parameter.grad is None:
                parameter.grad = torch.zeros_like(parameter)
            kinds.setdefault((parameter.grad.dtype, parameter.grad.device), []).append(parameter.grad)
    for gradients in kinds.values():
        flat = torch.cat([gradient.detach().reshape(-1) for gradient in gradients])
        dist.all_reduce(flat)
        flat /= _where().world_size
        for gradient, part in zip(gradients, torch.split(flat, [gradient.numel() for gradient in gradients])):
            gradient.detach().copy_(part.view_as(gradient))


class _ByCount(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, value: torch.Tensor, mean: torch.Tensor, factor: torch.Tensor) -> torch.Tensor:
        ctx.factor = factor
        return mean.to(value)

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor, None, None]:
        return gradient * ctx.factor, None, None


def mean_by_count(value: Any, divisor: Any, count: Any = None, *, given: torch.Tensor | None = None) -> Any:
    """The mean over the items of all ranks, of a mean over a number of items that differs from rank to rank.

        loss = mean_by_count((per_token * mask).sum() / mask.sum(), mask.sum())
        loss = mean_by_count(masked.sum() / mask.sum().clamp(min=1), mask.sum().clamp(min=1), mask.sum())

    DistributedDataParallel averages over ranks as if each had counted equally many (tokens, valid pixels). Here
    each rank counts for as much as it divided by: the gradient, once averaged, is that of one card with the whole
    batch, and so is the value, on every rank. `count` is what was counted where the divisor is kept from being
    zero. A tensor with dimensions is multiplied by own divisor * N / count of all ranks, so that what is added up
    of it is right once averaged. With N processes: one all-reduce (collective) a call, of two numbers, without
    waiting for the card. With one process: the value itself. So too while no gradients are recorded (evaluation,
    where ranks may hold different numbers of batches), and if `given`, what it is computed of, was made so.
    """
    if _alone() or not torch.is_grad_enabled() or (given is not None and not given.requires_grad):
        return value
    own, counted = (_one_number(number) for number in (divisor, divisor if count is None else count))
    nothing = torch.zeros_like(own)
    several = isinstance(value, torch.Tensor) and value.dim() > 0
    part = nothing if several else torch.where(counted > 0, _one_number(value) * own, nothing)
    totals = torch.stack([part, counted])
    dist.all_reduce(totals)
    total, of_all = totals.unbind()
    factor = torch.where(of_all > 0, own * _where().world_size / of_all, nothing)
    if several:
        return value * factor.to(value)
    mean = torch.where(of_all > 0, total / of_all, _one_number(value))
    if not isinstance(value, torch.Tensor):
        return mean.item()
    return _ByCount.apply(value, mean, factor.to(value))  # type: ignore[no-untyped-call]


def scale_by_ranks() -> int:
    """The factor for a part of a loss that is a sum over the batch, where other parts do not grow with it.

        loss = (outputs - targets).pow(2).sum() * scale_by_ranks() + 1e-4 * penalty(model)

    DistributedDataParallel averages over the N ranks, which makes a sum over all ranks' samples N times too small
    and leaves means and penalties right. N while gradients are recorded, else 1. With one process: 1.
    """
    return _where().world_size if torch.is_grad_enabled() else 1


def _one_number(value: Any) -> torch.Tensor:
    """A number where the cards meet, wide enough to add up exactly; it is not waited for."""
    device = own_device()
    dtype = _wide(torch.float32, device)
    if isinstance(value, torch.Tensor):
        return value.detach().sum().to(device, dtype)
    return torch.full((), float(value), dtype=dtype, device=device)


class _Sum(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, tensor: torch.Tensor) -> torch.Tensor:
        del ctx
        total = tensor.clone()
        dist.all_reduce(total)
        return total

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:
        del ctx
        gradient = gradient.clone()
        dist.all_reduce(gradient)
        return gradient


def sum_over_ranks(tensor: torch.Tensor, *, whole: bool = False) -> torch.Tensor:
    """The sum of a tensor over all ranks, through which gradients flow back to every rank.

        dice = 2 * sum_over_ranks((p * t).sum()) / (sum_over_ranks(p.sum()) + sum_over_ranks(t.sum()))

    For losses that are a ratio of sums over the batch: each rank computes the loss of the whole batch, and
    DistributedDataParallel's average is then the gradient that one card with the whole batch would have.
    `whole`: only of one number; several may be sums of one sample each, and stay. With N processes (collective):
    one all-reduce, and one in backward. With one process, and while no gradients are recorded: the tensor itself.
    """
    if _alone() or not torch.is_grad_enabled() or (whole and tensor.dim()):
        return tensor
    if not tensor.requires_grad:
        tensor = tensor.clone()
        dist.all_reduce(tensor)
        return tensor
    return _Sum.apply(tensor)  # type: ignore[no-any-return,no-untyped-call]


def mean_over_ranks(tensor: torch.Tensor) -> torch.Tensor:
    """The mean of a tensor over all ranks, through which gradients flow back to every rank.

        loss = torch.sqrt(mean_over_ranks(criterion(outputs, targets)))

    For a mean over the batch that is put through more than sums: a root, a power, another loss. The root of the
    mean over all ranks is not the mean of their roots. Right where all ranks have equally many samples. With N
    processes (collective): one all-reduce, and one in backward. With one process, and while no gradients are
    recorded: the tensor itself.
    """
    if _alone() or not torch.is_grad_enabled():
        return tensor
    return sum_over_ranks(tensor) / _where().world_size


class _Gather(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, tensor: torch.Tensor, rows: list[int]) -> torch.Tensor:
        ctx.rows = rows
        width = tensor[:1].numel() if len(tensor) else torch.empty(tensor.shape[1:], device="meta").numel()
        size = width * tensor.element_size()
        parts = _gather_bytes(_bytes_of(tensor), [count * size for count in rows])
        shapes = [(count, *tensor.shape[1:]) for count in rows]
        return torch.cat([part.view(tensor.dtype).view(shape) for part, shape in zip(parts, shapes)])

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor, None]:
        gradient = gradient.clone()
        dist.all_reduce(gradient)
        rank = _where().rank
        return gradient.narrow(0, sum(ctx.rows[:rank]), ctx.rows[rank]), None


def all_gather_with_grad(tensor: torch.Tensor, *, views: int = 1) -> torch.Tensor:
    """The tensors of all ranks joined along dimension 0, through which gradients flow back to every rank.

        features, labels = all_gather_with_grad(model(images)), all_gather_with_grad(labels)

    For losses that compare the samples of a batch with each other (contrastive, triplet): each rank computes
    the loss of the whole batch, and DistributedDataParallel's average is then the gradient that one card with
    the whole batch would have. Whatever is combined with the result (labels) has to be gathered likewise.
    `views`: the tensor is that many views of the batch one after the other (`torch.cat([first, second])`); so
    is the result: the first view of all ranks, then the second. Ranks may hold different numbers of samples.
    A tensor of one number, such as a temperature that the model learns, holds no samples and stays.
    With N processes (collective): one all-gather of the lengths, over the CPU, one of the tensor, and one
    all-reduce in backward. With one process, and while no gradients are recorded (evaluation, where ranks may
    hold different numbers of batches): the tensor itself.
    """
    if _alone() or not torch.is_grad_enabled() or tensor.dim() == 0:
        return tensor
    if len(tensor) % views:
        raise ValueError(f"all_gather_with_grad: {len(tensor)} rows are not {views} views of as many samples")
    rows = _rows_of_ranks(tensor)
    whole: torch.Tensor = _Gather.apply(tensor, rows)  # type: ignore[no-untyped-call]
    if views == 1:
        return whole
    shares = [share.chunk(views) for share in torch.split(whole, rows) if len(share)]
    return torch.cat([share[view] for view in range(views) for share in shares])


def _rows_of_ranks(tensor: torch.Tensor) -> list[int]:
    lengths = [torch.zeros(1, dtype=torch.int64) for _ in range(_where().world_size)]
    dist.all_gather(lengths, torch.tensor([len(tensor)]))
    return [int(length) for length in lengths]


def batches_of_ranks(*tensors: torch.Tensor) -> list[Any]:
    """The batches of all ranks, one after the other, for a queue that takes a batch at a time.

        for keys in batches_of_ranks(k): self.enqueue(keys)

    So every rank's queue holds what all have put there: as many batches each step as there are ranks, in their
    order, each of the size that it has on one card. Gradients do not flow. Several tensors come as tuples. With N
    processes (collective): one all-gather of the lengths, over the CPU, and one of each tensor. With one process:
    the tensors themselves.
    """
    if _alone():
        return [tensors[0] if len(tensors) == 1 else tensors]
    rows = _rows_of_ranks(tensors[0])
    shares = [torch.split(_Gather.apply(tensor.detach(), rows), rows) for tensor in tensors]  # type: ignore[no-untyped-call]
    return list(shares[0]) if len(tensors) == 1 else list(zip(*shares))


# ------------------------------------------------------------------------- how values travel between ranks
#
# A value is pickled. The first half kilobyte of that travels in an envelope that all ranks send, the rest, if
# any, after it, and last the tensors that are large or on a card, in one piece and not pickled. All
# goes as bytes, so that every dtype arrives bit for bit.

_ENVELOPE = 512
_HEAVY = 1 << 20  # bytes of a tensor from which on it is not pickled


class _Failure(NamedTuple):
    """What is sent in place of a value that does not pickle, so that all ranks raise and none waits."""

    reason: str


class _Sizes(NamedTuple):
    """What the front of an envelope says."""

    message: int
    heavy: int
    on_card: int


def _on_card(tensor: torch.Tensor) -> bool:
    return tensor.device.type != "cpu"


def _bytes_of(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.detach().resolve_conj().resolve_neg().contiguous().view(-1).view(torch.uint8)


def _tensor_of(raw: torch.Tensor, dtype: torch.dtype, shape: tuple[int, ...], on_card: int) -> torch.Tensor:
    aligned = raw if raw.storage_offset() % 16 == 0 else raw.clone()  # no dtype is wider
    return aligned.view(dtype).view(shape).to(own_device() if on_card else "cpu")


def _to_tensor(content: bytes) -> torch.Tensor:
    return (
        torch.frombuffer(bytearray(content), dtype=torch.uint8)
        if content
        else torch.empty(0, dtype=torch.uint8)
    )


def _to_bytes(tensor: torch.Tensor) -> bytes:
    return ctypes.string_at(tensor.data_ptr(), tensor.numel()) if tensor.numel() else b""


def _light_tensor(content: bytes, dtype: torch.dtype, shape: tuple[int, ...]) -> torch.Tensor:
    return _to_tensor(content).view(dtype).view(shape)


def _heavy_tensor(*_where_it_lies: Any) -> torch.Tensor:
    raise AssertionError("only _Unpickler knows where it lies")


class _Pickler(pickle.Pickler):
    """Takes of a tensor its own elements (not all that it is a view of), and lays the heavy ones aside."""

    def __init__(self, buffer: io.BytesIO) -> None:
        super().__init__(buffer, protocol=4)
        self.heavy: list[torch.Tensor] = []
        self.length = 0
        self.on_card = 0

    def reducer_override(self, value: Any) -> Any:
        if isinstance(value, defaultdict):
            return dict, (), None, None, iter(value.items())  # its factory need not pickle
        if type(value) is not torch.Tensor or value.layout != torch.strided or value.is_quantized:
            return NotImplemented
        raw, shape, on_card = _bytes_of(value), tuple(value.shape), int(_on_card(value))
        if not on_card and raw.numel() < _HEAVY:
            return _light_tensor, (_to_bytes(raw), value.dtype, shape)
        self.heavy.append(raw)
        self.on_card |= on_card
        self.length += raw.numel()
        return _heavy_tensor, (self.length - raw.numel(), self.length, value.dtype, shape, on_card)


class _Unpickler(pickle.Unpickler):
    def __init__(self, message: bytes, heavy: torch.Tensor) -> None:
        super().__init__(io.BytesIO(message))
        self.heavy = heavy

    def find_class(self, module: str, name: str) -> Any:
        return self.heavy_tensor if name == "_heavy_tensor" else super().find_class(module, name)

    def heavy_tensor(self, start: int, end: int, *form: Any) -> torch.Tensor:
        return _tensor_of(self.heavy[start:end], *form)


class _Letter:
    """A value on its way."""

    def __init__(self, value: Any) -> None:
        buffer = io.BytesIO()
        pickler = _Pickler(buffer)
        try:
            pickler.dump(value)
        except (pickle.PicklingError, AttributeError, TypeError) as error:
            buffer, pickler = io.BytesIO(), _Pickler(io.BytesIO())
            pickle.dump(_Failure(str(error)), buffer, protocol=4)
        message = buffer.getvalue()
        sizes = _Sizes(len(message), pickler.length, pickler.on_card)
        front = struct.pack("<3q", *sizes)
        cut = _ENVELOPE - len(front)
        self.envelope = _to_tensor((front + message[:cut]).ljust(_ENVELOPE, b"\0"))
        self.tail = _to_tensor(message[cut:])
        self.heavy = pickler.heavy


def _opened(envelope: torch.Tensor) -> tuple[_Sizes, bytes]:
    content = _to_bytes(envelope)
    front = struct.calcsize("<3q")
    sizes = _Sizes(*struct.unpack("<3q", content[:front]))
    return sizes, content[front : front + sizes.message]


def _read(message: bytes, heavy: torch.Tensor) -> Any:
    value = _Unpickler(message, heavy).load()
    if isinstance(value, _Failure):
        raise TypeError(f"a value cannot be sent to the other ranks: {value.reason}")
    return value


def _laid_out(heavy: Sequence[torch.Tensor], device: torch.device) -> torch.Tensor:
    if len(heavy) == 1:
        return heavy[0].to(device)
    return torch.cat(
        [each.to(device) for each in heavy] or [torch.empty(0, dtype=torch.uint8, device=device)]
    )


def _exchange(value: Any) -> list[Any]:
    """The values of all ranks, in rank order, on every rank."""
    letter = _Letter(value)
    envelopes = [_opened(each) for each in _gather_bytes(letter.envelope, [_ENVELOPE] * _where().world_size)]
    sizes = [size for size, _ in envelopes]
    tails = _gather_bytes(letter.tail, [size.message - len(head) for size, head in envelopes])
    device = own_device() if any(size.on_card for size in sizes) else torch.device("cpu")
    heavies = _gather_bytes(_laid_out(letter.heavy, device), [size.heavy for size in sizes])
    return [_read(head + _to_bytes(tail), heavy) for (_, head), tail, heavy in zip(envelopes, tails, heavies)]


def _gather_bytes(own: torch.Tensor, counts: Sequence[int]) -> list[torch.Tensor]:
    """`counts[r]` bytes of each rank r; if there are none at all, nobody sends anything."""
    if max(counts) == 0:
        return [own for _ in counts]
    padded = own
    if own.numel() < max(counts):
        padded = own.new_zeros(max(counts))
        padded[: own.numel()] = own
    parts = [torch.empty_like(padded) for _ in counts]
    dist.all_gather(parts, padded)
    return [part[:count] for part, count in zip(parts, counts)]


def broadcast_value(value: T) -> T:
    """Rank 0's value, on every rank: for what must not differ (whether to stop, a path with the time in it).

        if broadcast_value(counter >= patience): break

    With N processes (collective): one broadcast, another if the value takes more than half a kilobyte,
    another if it holds large tensors. Anything that pickles; tensors arrive on the receiver's own card. With
    one process: the value itself. In a module that is imported before `setup_ddp()` it calls that first.
    """
    if _alone():
        return value
    if not dist.is_initialized():
        setup_ddp()
    letter = _Letter(value if _where().rank == 0 else None)
    dist.broadcast(letter.envelope, src=0)
    sizes, head = _opened(letter.envelope)
    tail = _broadcast_bytes(letter.tail, sizes.message - len(head))
    device = own_device() if sizes.on_card else torch.device("cpu")
    received: T = _read(
        head + _to_bytes(tail), _broadcast_bytes(_laid_out(letter.heavy, device), sizes.heavy)
    )
    return value if _where().rank == 0 else received


def _broadcast_bytes(own: torch.Tensor, count: int) -> torch.Tensor:
    if count == 0:
        return own[:0]
    received = own if _where().rank == 0 else own.new_empty(count)
    dist.broadcast(received, src=0)
    return received


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


# ------------------------------------------------------------------------------------------ totals of values


def all_reduce_sum(*values: Any) -> Any:
    """The sum over all ranks of each value: counts and sums of losses become those of the whole data set.

        total_loss, correct, total = all_reduce_sum(total_loss, correct, total)

    Numbers, numpy scalars and arrays, tensors on any device, and lists, tuples and dicts of these, element by
    element; a key that some ranks lack counts as absent there. Integers are added exactly, everything else in
    double precision, in rank order; type, dtype and device stay (so a bool stays one: true if it is on any
    rank). Gradients do not flow. A rank that saw no data may hold the 0, None or empty list that it began
    with, also where the others hold tensors or arrays. Divide sums by sums; an average of averages is not the
    average.

    With N processes (collective): one all-gather for all values together, another if they take more than half
    a kilobyte, another if there are tensors on a card or of a megabyte. With one process: the values
    themselves.
    """
    return _reduce(values, "sum")


def all_reduce_mean(*values: Any) -> Any:
    """The mean over all ranks of each value; otherwise like all_reduce_sum.

        running = all_reduce_mean(running)
        print(running / (step + 1))

    For running means and for sums that are divided by what this rank counted. It is the mean over all data
    where each rank saw as many batches of one size, as in training; never for evaluation.
    """
    return _reduce(values, "mean")


def all_reduce_max(*values: Any) -> Any:
    """The largest over all ranks of each value, nan if any is; otherwise like all_reduce_sum."""
    return _reduce(values, "max")


def all_reduce_min(*values: Any) -> Any:
    """The smallest over all ranks of each value, nan if any is; otherwise like all_reduce_sum."""
    return _reduce(values, "min")


def _reduce(values: tuple[Any, ...], operation: str) -> Any:
    if not _alone():
        columns = zip(*_exchange(values))
        values = tuple(_folded(operation, own, list(shares)) for own, shares in zip(values, columns))
    return values[0] if len(values) == 1 else values


def _folded(operation: str, own: Any, shares: list[Any]) -> Any:
    """One value out of those of all ranks; `own` is this rank's, for its type and device."""
    shares = [share for share in shares if not _is_nothing(share)]
    if not shares:
        return own
    first = shares[0]
    if isinstance(first, dict):
        mine = own if isinstance(own, dict) else {}
        keys = dict.fromkeys(key for share in shares for key in share)
        columns = {key: [share[key] for share in shares if key in share] for key in keys}
        return _like(own, first, {key: _folded(operation, mine.get(key), columns[key]) for key in keys})
    if isinstance(first, (list, tuple)):
        if len({len(share) for share in shares}) > 1:
            raise ValueError(
                f"ranks hold {[len(share) for share in shares]} elements: which belong together?"
            )
        inside = own if isinstance(own, (list, tuple)) and own else first
        if all(type(each) in (int, float) for share in shares for each in share):  # a long curve, in no time
            total = [_NUMBERS[operation](column) for column in zip(*shares)]
        else:
            total = [_folded(operation, each, list(column)) for each, column in zip(inside, zip(*shares))]
        return type(first)(*total) if hasattr(first, "_fields") else type(first)(total)
    if any(isinstance(share, torch.Tensor) for share in shares):
        return _folded_tensors(operation, own, shares)
    numpy = sys.modules.get("numpy")
    if numpy is not None and any(isinstance(share, (numpy.ndarray, numpy.generic)) for share in shares):
        return _folded_arrays(operation, numpy, shares)
    if not all(isinstance(share, numbers.Number) for share in shares):
        names = ", ".join(sorted({type(share).__name__ for share in shares}))
        raise TypeError(f"no {operation} over ranks of {names}")
    total = _NUMBERS[operation](shares)
    return bool(total) if all(isinstance(share, bool) for share in shares) else total


def _is_nothing(share: Any) -> bool:
    return share is None or (isinstance(share, (dict, list, tuple)) and not share)


def _extreme(shares: Sequence[Any], of: Callable[[Sequence[Any]], Any]) -> Any:
    undefined = [share for share in shares if share != share]  # noqa: PLR0124 - nan is what differs from itself
    return undefined[0] if undefined else of(shares)


_NUMBERS: dict[str, Callable[[Sequence[Any]], Any]] = {
    "sum": sum,
    "mean": lambda shares: shares[0] if len({*shares}) == 1 else sum(shares) / len(shares),
    "max": lambda shares: _extreme(shares, max),
    "min": lambda shares: _extreme(shares, min),
}


def _folded_tensors(operation: str, own: Any, shares: list[Any]) -> torch.Tensor:
    tensors = [share for share in shares if isinstance(share, torch.Tensor)]
    device = own.device if isinstance(own, torch.Tensor) else tensors[0].device
    dtype = functools.reduce(torch.promote_types, (tensor.dtype for tensor in tensors))
    fractions = operation == "mean" or any(isinstance(share, float) for share in shares)
    if fractions and not (dtype.is_floating_point or dtype.is_complex):
        dtype = torch.get_default_dtype()
    wide = [torch.as_tensor(share, device=device).detach().to(_wide(dtype, device)) for share in shares]
    combine: Any = {"max": torch.maximum, "min": torch.minimum}.get(operation, torch.add)
    total: torch.Tensor = functools.reduce(combine, wide)
    return (total / len(wide) if operation == "mean" else total).to(dtype)


def _wide(dtype: torch.dtype, device: torch.device) -> torch.dtype:
    """What to add in: exactly for integers, in double precision where the device has it."""
    if dtype.is_complex:
        return torch.complex128
    if not dtype.is_floating_point:
        return torch.int64
    return torch.float64 if device.type in ("cpu", "cuda") else torch.float32


def _folded_arrays(operation: str, numpy: Any, shares: list[Any]) -> Any:
    arrays = [share for share in shares if isinstance(share, (numpy.ndarray, numpy.generic))]
    dtype = numpy.result_type(*(share.dtype for share in arrays))
    if operation == "mean" or any(type(share) is float for share in shares):
        dtype = numpy.result_type(dtype, numpy.float16)
    wide = {"f": numpy.float64, "c": numpy.complex128}.get(dtype.kind, numpy.int64)
    combine = {"max": numpy.maximum, "min": numpy.minimum}.get(operation, numpy.add)
    total = functools.reduce(combine, (numpy.asarray(share).astype(wide) for share in shares))
    total = numpy.asarray(total / len(shares) if operation == "mean" else total).astype(dtype)
    return total if any(isinstance(share, numpy.ndarray) for share in arrays) else total[()]


def _like(own: Any, first: Any, items: dict[Any, Any]) -> Any:
    """A dict of the type that this rank holds: a defaultdict keeps its factory."""
    result = copy.copy(own if isinstance(own, dict) else first)
    result.clear()
    result.update(items)
    return result


def average_over_ranks(*holders: Any) -> None:
    """The numbers in lists, deques, dicts and objects become their means over all ranks, where they stand.

        average_over_ranks(losses, history["loss"], meters)

    For what training writes down of each step, in a curve or a meter, where each rank saw as many batches of
    one size; never for evaluation. What is the same on all ranks stays as it is, so it may be called after
    each epoch on a curve that goes on. Numbers, tensors and arrays inside holders inside them too; models,
    optimizers, files, text and the like are left alone.

    With N processes (collective): one all-gather for all holders together, another if they take more than
    half a kilobyte, another if there are tensors on a card or of a megabyte. With one process: nothing.
    """
    if not _alone():
        shares = _exchange([_numbers_in(holder) for holder in holders])
        for holder, column in zip(holders, zip(*shares)):
            _put_back(holder, _folded("mean", column[_where().rank], list(column)))


def _numbers_in(value: Any, depth: int = 0) -> Any:
    """The numbers that a value holds, in lists and dicts; None where there are none, or where they are not ours."""
    numpy = sys.modules.get("numpy")
    if isinstance(value, bool) or depth > _DEEP:
        return None
    if isinstance(value, (numbers.Number, torch.Tensor)):
        return value
    if numpy is not None and isinstance(value, (numpy.ndarray, numpy.generic)):
        return value if value.dtype.kind in "iufc" else None
    if isinstance(value, (list, tuple, deque)):
        return [_numbers_in(each, depth + 1) for each in value]
    inside = value if isinstance(value, dict) else _attributes(value)
    return {key: _numbers_in(each, depth + 1) for key, each in inside.items()}


_DEEP = 5
_FOREIGN = frozenset(("torch", "numpy", "ddp_runtime", "multicard", *getattr(sys, "stdlib_module_names", ())))


def _attributes(value: Any) -> dict[str, Any]:
    """The attributes of an object that a script's own class made; no others are looked into."""
    home = type(value).__module__.partition(".")[0]
    if isinstance(value, (type, nn.Module)) or (home in _FOREIGN and home != "__main__"):
        return {}
    return getattr(value, "__dict__", {})


def _put_back(value: Any, means: Any) -> Any:
    """A value with other numbers: the same object where it can be changed."""
    if means is None:
        return value
    if isinstance(value, (list, tuple, deque)):
        new = [_put_back(each, mean) for each, mean in zip(value, means)]
        if isinstance(value, tuple):
            return type(value)(*new) if hasattr(value, "_fields") else type(value)(new)
        value.clear()
        value.extend(new)
        return value
    if isinstance(means, dict):
        inside = value if isinstance(value, dict) else _attributes(value)
        for key in [key for key in inside if key in means]:
            inside[key] = _put_back(inside[key], means[key])
        return value
    return means


# -------------------------------------------------------------------------------- what the ranks collected


def gather_in_order(*values: Any) -> Any:
    """What each rank has collected, joined in rank order: with EvalSampler that is data set order.

        all_preds, all_labels = gather_in_order(all_preds, all_labels)

    Lists, tuples, deques and strings are joined, tensors and arrays along dimension 0; sets are united; dicts
    are merged: lists, tensors, dicts and sets under one key are joined likewise, a Counter's counts added, of
    anything else the later rank's stays, as if one process had gone through the data. Shares may be unequal
    or empty: [], None, a tensor or array of no rows or without its other dimensions. Type, dtype and device
    stay, gradients do not flow. Every rank gets everything, and holds it in memory.

    With N processes (collective): one all-gather for all values together, another if they take more than half
    a kilobyte, another if there are tensors on a card or of a megabyte. With one process: the values
    themselves.
    """
    if not _alone():
        columns = zip(*_exchange(values))
        values = tuple(_joined(own, list(shares)) for own, shares in zip(values, columns))
    return values[0] if len(values) == 1 else values


def _joined(own: Any, shares: list[Any]) -> Any:
    """One value out of those of all ranks, in their order; `own` is this rank's, for its type and device."""
    shares = [share for share in shares if share is not None]
    if not shares:
        return own
    numpy = sys.modules.get("numpy")
    tensors = [share for share in shares if isinstance(share, torch.Tensor)]
    if tensors:
        joined = torch.cat(_with_rows(tensors))
        return joined.to(own.device) if isinstance(own, torch.Tensor) else joined
    if numpy is not None and any(isinstance(share, numpy.ndarray) for share in shares):
        return numpy.concatenate(_with_rows([numpy.asarray(share) for share in shares]))
    first = shares[0]
    if isinstance(first, dict):
        return _merged(own, shares)
    if isinstance(first, (set, frozenset)):
        return first.union(*shares[1:])
    if isinstance(first, (str, bytes)):
        return first[:0].join(shares)
    if isinstance(first, deque):
        return deque(itertools.chain.from_iterable(shares), first.maxlen)
    if isinstance(first, (list, tuple)):
        return type(first)(itertools.chain.from_iterable(shares))
    raise TypeError(f"values of type {type(first).__name__} cannot be joined in rank order")


def _with_rows(arrays: list[Any]) -> list[Any]:
    """Those that hold anything: an empty share may lack the other dimensions, or have another dtype."""
    if any(len(array.shape) == 0 for array in arrays):
        raise TypeError("what has no dimensions cannot be joined in rank order: collect it in a list")
    return [array for array in arrays if 0 not in array.shape] or [
        max(arrays, key=lambda array: len(array.shape))
    ]


def _merged(own: Any, shares: list[Any]) -> Any:
    inside = own if isinstance(own, dict) else {}
    merged: dict[Any, Any] = {}
    for key in dict.fromkeys(key for share in shares for key in share):
        found = [share[key] for share in shares if key in share]
        if isinstance(shares[0], Counter):
            merged[key] = sum(found)
        elif all(_is_part(each) for each in found):
            merged[key] = _joined(inside.get(key), found)
        else:
            merged[key] = found[-1]
    return _like(own, shares[0], merged)


def _is_part(value: Any) -> bool:
    """Whether values under one key are parts of one thing, rather than one in place of the other."""
    return isinstance(value, (list, dict, set, deque)) or bool(getattr(value, "shape", ()))


# ----------------------------------------------------------------------------------------------- files


def save_checkpoint(obj: Any, f: Any, *args: Any, **kwargs: Any) -> None:
    """`torch.save` by rank 0 alone, whole or not at all: a run that is killed meanwhile leaves the old file.

        save_checkpoint(unwrap(model).state_dict(), "best.pth")

    `f` and the rest are torch.save's. With N processes: rank 0 writes, the others go on at once (no
    communication: it may stand under a rank guard; put `dist.barrier()` before another rank reads). A file
    object is written as it comes, by rank 0; an io.BytesIO, which is memory, by every rank. With one process:
    the same file with the same bytes as by torch.save. While it writes, the old file and the new one both
    take room.
    """
    if isinstance(f, io.BytesIO):
        torch.save(obj, f, *args, **kwargs)
    elif is_main_process():
        if isinstance(f, (str, os.PathLike)):
            _save_whole(obj, Path(f).resolve(), args, kwargs)
        else:
            torch.save(obj, f, *args, **kwargs)


def _save_whole(obj: Any, path: Path, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    if not path.parent.is_dir() or (path.exists() and not path.is_file()):
        torch.save(obj, path, *args, **kwargs)  # /dev/null, or an error in torch's own words
        return
    # A folder of its own, not another name: torch writes the name of the file into the file.
    scratch = Path(tempfile.mkdtemp(prefix=f".{path.name}.", dir=path.parent))
    try:
        torch.save(obj, scratch / path.name, *args, **kwargs)
        if path.exists():
            shutil.copymode(path, scratch / path.name)
        (scratch / path.name).replace(path)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


class NullWriter:
    """Stands for a SummaryWriter, a wandb run, a csv writer or an open file on the ranks that do not write.

        writer = SummaryWriter(folder) if is_main_process() else NullWriter()

    Any attribute, call, item or `with` gives it back and does nothing; it iterates over nothing. It is no
    number and no path: what is computed from a writer must be computed on rank 0 (and broadcast).
    """

    def __getattr__(self, name: str) -> NullWriter:
        if name.startswith("__"):
            raise AttributeError(name)  # what python looks for by itself must not be pretended
        return self

    def __call__(self, *_args: Any, **_kwargs: Any) -> NullWriter:
        return self

    def __getitem__(self, key: Any) -> NullWriter:
        return self

    def __setitem__(self, key: Any, value: Any) -> None:
        pass

    def __delitem__(self, key: Any) -> None:
        pass

    def __iter__(self) -> Iterator[Any]:
        return iter(())

    def __enter__(self) -> NullWriter:  # noqa: PYI034 - Self is newer than the pythons this runs on
        return self

    def __exit__(self, *error: object) -> None:
        pass
