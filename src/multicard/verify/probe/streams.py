"""Streams: data sets that are iterated, and whose samples have no number.

A sampler deals numbers, which are easily recorded and dealt again; a stream gives samples and says nothing of them.
So a sample is known by what it holds. What the ranks were given is left on disk for the original, which takes it in
place of what its own stream gives at that moment; its own samples are told beside it, so that both can be compared.
"""

import contextlib
import copyreg
import hashlib
import io
import pickle
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.utils import data
from torch.utils.data._utils import fetch

from multicard.verify.plan import Plan
from multicard.verify.probe import randomness
from multicard.verify.probe.patching import Function, replace

MOST = 1 << 30  # bytes of samples that a process may leave behind
HELPER = "ShardedIterable"
FAR = 0x9E3779B97F4A7C15  # what the helper adds to its seed for each worker

PLANS: list[Plan] = []
SPENT = [0]
COUNT = [0]


class Order(list[Any]):
    """What a worker is asked for: so many samples, of which pass, and which of the ranks' stand for them."""

    name = 0
    number = 0
    seed: int | None = None
    instead: tuple[str, ...] = ()
    beyond = False  # the ranks had no more: only what is left of the stream is to be told

    @staticmethod
    def of(size: int, name: int, number: int, seed: int | None) -> "Order":
        order = Order([None] * size)
        order.name, order.number, order.seed = name, number, seed
        return order


@dataclass
class Carried:
    """A batch on its way from where it was read, with what is known of its samples."""

    batch: Any
    samples: list[int]
    own: list[int] = field(default_factory=list)  # what the stream gave, where others stand for it
    kept: str | None = None
    beyond: bool = False


class Reading:
    """One time through a stream, with random numbers that are its own: all ranks read alike."""

    def __init__(self, dataset: Any, seed: int, own: Sequence[Callable[[int], object]]) -> None:
        self.dataset = dataset
        self.seed = seed
        self.own = own
        self.iterator: Iterator[Any] | None = None
        self.states: tuple[Any, ...] = ()

    def take(self, count: int) -> list[Any]:
        """The next samples; fewer at the end."""
        with randomness.generators_kept(), randomness.as_before_training():
            if self.iterator is None:
                seed(self.seed, self.own)
                self.iterator = iter(self.dataset)
            else:
                randomness.give_states(self.states)
            found: list[Any] = []
            with contextlib.suppress(StopIteration):
                while len(found) < count:
                    found.append(next(self.iterator))
            self.states = randomness.take_states()
        return found


def seed(number: int, own: Sequence[Callable[[int], object]] = ()) -> None:
    randomness.seed_all(number)
    for reseed in own:
        reseed(number)


def seed_of(order: Order) -> int:
    worker = data.get_worker_info()
    at = 0 if worker is None else worker.id
    if order.seed is not None:
        return (order.seed + at * FAR) % 2**63
    return randomness.mix(randomness.PHASE.seed, order.name, order.number, at)


def layers(dataset: Any) -> list[Any]:
    """A stream and those that it wraps, as one that shuffles or deals out another does."""
    found: list[Any] = [dataset]
    while isinstance(found[-1], data.IterableDataset):
        held = getattr(found[-1], "__dict__", {}).values()
        inner = [value for value in held if isinstance(value, data.IterableDataset)]
        if len(inner) != 1 or any(inner[0] is layer for layer in found):
            break
        found += inner
    return found


def common_seed(dataset: Any) -> int | None:
    """The seed from which the helper draws a pass, alike on all ranks."""
    if type(dataset).__name__ != HELPER:
        return None
    known = getattr(dataset, "__dict__", {})
    if not {"_place", "_seed", "_epoch"} <= known.keys() or known["_place"].world_size == 1:
        return None
    return int(known["_seed"]) + int(known["_epoch"])


def known_by(thing: Any) -> int:
    """A number for what a sample holds."""
    digest = hashlib.blake2b(digest_size=6)
    _feed(digest.update, thing, 0)
    return int.from_bytes(digest.digest(), "big")


def _feed(update: Callable[[bytes], None], thing: Any, depth: int) -> None:
    match thing:
        case torch.Tensor() if thing.layout == torch.strided:
            update(f"{thing.dtype}{tuple(thing.shape)}".encode())
            update(thing.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes())
        case np.ndarray() | np.generic():
            update(f"{thing.dtype}{thing.shape}".encode())
            update(thing.tobytes())
        case bytes():
            update(thing)
        case str() | int() | float() | complex() | bool() | None:
            update(repr(thing).encode())
        case dict():
            for key, value in thing.items():
                update(repr(key).encode())
                _feed(update, value, depth + 1)
        case list() | tuple():
            update(f"[{len(thing)}".encode())
            for part in thing:
                _feed(update, part, depth + 1)
        case _ if hasattr(thing, "tobytes"):  # a picture
            update(thing.tobytes())
        case _:
            update(type(thing).__name__.encode())
            if depth < MOST_DEPTH:
                _feed(update, dict(getattr(thing, "__dict__", {})), depth + 1)


MOST_DEPTH = 6


class Pickler(pickle.Pickler):
    """Writes of a tensor what it shows, and not all of the tensor of which it may be a part."""

    def reducer_override(self, thing: Any) -> Any:
        if type(thing) is torch.Tensor and thing.layout == torch.strided and not thing.is_complex():
            flat = thing.detach().cpu().contiguous().reshape(-1)
            return tensor_of, (flat.view(torch.uint8).numpy().tobytes(), thing.dtype, tuple(thing.shape))
        return NotImplemented


def tensor_of(content: bytes, dtype: torch.dtype, shape: tuple[int, ...]) -> torch.Tensor:
    flat = torch.frombuffer(bytearray(content), dtype=dtype) if content else torch.empty(0, dtype=dtype)
    return flat.reshape(shape)


def keep(items: list[Any], *, batched: bool) -> str | None:
    """Leave samples for the original; None where they cannot be written, or are too many."""
    plan = PLANS[0]
    if plan.role != "migrated" or SPENT[0] > MOST:
        return None
    paper = io.BytesIO()
    pickler = Pickler(paper, pickle.HIGHEST_PROTOCOL)
    pickler.dispatch_table = copyreg.dispatch_table.copy()
    try:
        pickler.dump((batched, items))
    except (pickle.PicklingError, TypeError, AttributeError, RuntimeError):
        return None
    SPENT[0] += paper.tell()
    COUNT[0] += 1
    worker = data.get_worker_info()
    name = (
        f"samples-{plan.rank}-{'' if worker is None else worker.id}-{worker.seed if worker else 0}-{COUNT[0]}"
    )
    path = Path(plan.meeting) / name
    path.write_bytes(paper.getbuffer())
    return str(path)


def kept(paths: Sequence[str]) -> tuple[bool, list[Any]]:
    """What the ranks had, and whether those are samples and not batches that the stream made."""
    found = [pickle.loads(Path(path).read_bytes()) for path in paths]  # noqa: S301
    return found[0][0], [item for _, items in found for item in items]


def rows(thing: Any) -> int | None:
    """How many samples a stream gave at once, when it makes batches of its own."""
    found = {len(leaf) for leaf in _leaves(thing) if np.ndim(leaf) > 0}
    single = any(np.ndim(leaf) == 0 for leaf in _leaves(thing))
    return found.pop() if len(found) == 1 and not single else None


def _leaves(thing: Any) -> Iterator[Any]:
    if isinstance(thing, torch.Tensor | np.ndarray):
        yield thing
    elif isinstance(thing, dict | list | tuple):
        for part in thing.values() if isinstance(thing, dict) else thing:
            yield from _leaves(part)


def row(thing: Any, at: int) -> Any:
    return [leaf[at] for leaf in _leaves(thing)]


def together(things: list[Any]) -> Any:
    """Batches that the ranks' streams made, as one."""
    first = things[0]
    if isinstance(first, torch.Tensor):
        return torch.cat(things)
    if isinstance(first, np.ndarray):
        return np.concatenate(things)
    if isinstance(first, dict):
        return type(first)((name, together([thing[name] for thing in things])) for name in first)
    if isinstance(first, tuple) and hasattr(first, "_fields"):
        return type(first)(*(together(list(parts)) for parts in zip(*things, strict=True)))
    if isinstance(first, list | tuple):
        if not any(True for _ in _leaves(first)):
            return type(first)(part for thing in things for part in thing)
        return type(first)(together(list(parts)) for parts in zip(*things, strict=True))
    return first


def can_be_joined(things: list[Any]) -> bool:
    shapes = {tuple((str(leaf.dtype), *leaf.shape[1:]) for leaf in _leaves(thing)) for thing in things}
    return len(shapes) == 1 and all(rows(thing) for thing in things)


def samples_of(items: list[Any], *, batched: bool) -> list[int]:
    if batched:
        return [known_by(item) for item in items]
    found: list[int] = []
    for item in items:
        count = rows(item)
        found += [known_by(item)] if count is None else [known_by(row(item, at)) for at in range(count)]
    return found


def _begin(original: Function) -> Function:
    def __init__(self: Any, dataset: Any, auto_collation: Any, collate_fn: Any, drop_last: Any) -> None:  # noqa: N807
        # the stream is begun with the first order, which says with which random numbers
        fetch._BaseDatasetFetcher.__init__(self, dataset, auto_collation, collate_fn, drop_last)  # noqa: SLF001
        self.dataset_iter, self.ended, self.reading = None, False, None

    return __init__


def _fetch(
    own_generators: Callable[[Any], Sequence[Callable[[int], object]]],
) -> Callable[[Function], Function]:
    def make(original: Function) -> Function:
        def fetch_told(self: Any, wanted: Any) -> Any:
            if not isinstance(wanted, Order):
                self.dataset_iter = iter(self.dataset) if self.dataset_iter is None else self.dataset_iter
                return original(self, wanted)
            if self.reading is None:
                self.reading = Reading(self.dataset, seed_of(wanted), own_generators(self.dataset))
            return _read(self, wanted)

        return fetch_told

    return make


def _read(fetcher: Any, wanted: Order) -> Carried:
    batched = fetcher.auto_collation
    items = fetcher.reading.take(len(wanted))
    own = samples_of(items, batched=batched)
    if wanted.instead:
        single, found = kept(wanted.instead)
        collate = fetcher.collate_fn if batched else data.default_collate
        batch = collate(found) if single else together(found)
        return Carried(batch, samples_of(found, batched=single), own)
    if wanted.beyond and items:
        return Carried(None, [], own, beyond=True)
    if not items or (batched and fetcher.drop_last and len(items) < len(wanted)):
        raise StopIteration
    path = keep(items, batched=batched) if batched or can_be_joined(items) else None
    if not batched and len(items) > 1:
        return Carried(fetcher.collate_fn(together(items)), own, own)
    return Carried(fetcher.collate_fn(items if batched else items[0]), own, own, path)


def install(plan: Plan, own_generators: Callable[[Any], Sequence[Callable[[int], object]]]) -> None:
    PLANS[:] = [plan]
    replace(fetch._IterableDatasetFetcher, "__init__", _begin)  # noqa: SLF001
    replace(fetch._IterableDatasetFetcher, "fetch", _fetch(own_generators))  # noqa: SLF001
