"""Which samples each loader deals, recorded in the migrated run and dealt again in the original.

Two runs can only be compared on the same batches. The ranks deal theirs as the migrated script says; the
original is then fed what all ranks together had, batch by batch, so that its own order, its batch size and
the number of ranks do not matter. Whether the dealing was right is judged from the record, not hidden by
it.
"""

import contextlib
import dis
import json
import math
import sys
import weakref
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any

import torch
from torch.utils import data
from torch.utils.data._utils import fetch

from multicard.verify.evidence import EVALUATION
from multicard.verify.plan import Plan
from multicard.verify.probe import modules, padding, randomness, rehearsal, scalars, streams
from multicard.verify.probe import record as recording
from multicard.verify.probe.patching import Function, replace
from multicard.verify.probe.replay import DealtLoader, Replay

WHOLE_ORDER = 500_000  # samples; of longer epochs only what was used is recorded


class EnoughError(SystemExit):
    """Both runs have done what was asked of them; not an error for `except Exception`."""


class Batch(list[Any]):
    """Indices on their way to a worker, which is told what to seed each sample with."""

    tag: tuple[int, ...] = ()
    whole: Sequence[Any] = ()  # those of all ranks, which are put into one batch, of which these are a part
    first: int = 0


@dataclass
class Dealer:
    """What is known of one loader of the script."""

    site: str
    nth: int  # of the loaders made at this line
    name: int  # for seeds: equal for the same loader on every rank, and in the original
    base: Any
    base_length: int | None
    counterpart: DealtLoader | None = None
    trains: bool = False
    passes: int = 0
    evaluations: int = 0
    total: int = 0
    current: "Pass | None" = None
    begun: "list[Pass]" = field(default_factory=list)  # and not known to have ended
    inverse: dict[int, int] | None = None

    @property
    def key(self) -> tuple[str, int]:
        return (_short(self.site), self.nth)

    @property
    def replayed(self) -> bool:
        return self.counterpart is not None and self.counterpart.trains


@dataclass(eq=False)
class Pass:
    """One time through a loader."""

    dealer: Dealer
    number: int
    given: int = 0
    ended: bool = False
    used: bool = False  # an optimizer has stepped on it
    taken: bool = False  # by `next`, and not in a loop
    begun_at: int = 0
    given_at: int = 0
    batches: list[list[int]] = field(default_factory=list)
    drawn: Iterator[Any] | None = None
    iterator: Any = None
    seed: int | None = None  # of a stream

    @property
    def evaluates(self) -> bool:
        """Whether it was begun with gradients off: one pass over training data among others may be an evaluation."""
        return self.number >= EVALUATION

    @property
    def replayed(self) -> bool:
        return self.dealer.replayed and not self.evaluates


DEALERS: "weakref.WeakKeyDictionary[Any, Dealer]" = weakref.WeakKeyDictionary()
PENDING: list[Pass] = []
AFTER_TRAINING: list[Callable[[], None]] = []  # called when a pass over training data has ended


class Course:
    """How far the run has come, and where it is cut short."""

    def __init__(self) -> None:
        self.plan: Plan | None = None
        self.replay: Replay | None = None
        self.mates: dict[tuple[str, int], DealtLoader] = {}  # what an earlier run dealt
        self.made: dict[str, int] = {}
        self.moment = 0  # counts passes and batches
        self.optimizes = False  # there is an optimizer
        self.per_step = 0  # batches to an optimizer step
        self.steps = 0
        self.finish_at: int | None = None

    @property
    def training_batches(self) -> int:
        return sum(dealer.total for dealer in DEALERS.values() if dealer.trains or dealer.replayed)

    def learn(self) -> None:
        """What rank 0 has found out; a rank that steps otherwise must still be cut short where the others are."""
        assert self.plan is not None
        paper = Path(self.plan.meeting) / "training.json"
        if self.plan.role != "migrated" or self.plan.rank == 0 or not paper.exists():
            return
        told = json.loads(paper.read_text())
        self.per_step = told["per_step"]
        for dealer in DEALERS.values():
            dealer.trains = dealer.trains or list(dealer.key) in told["trains"]

    def teach(self) -> None:
        assert self.plan is not None
        if self.plan.role == "migrated" and self.plan.rank == 0:
            paper = Path(self.plan.meeting) / "training.json"
            trains = [dealer.key for dealer in DEALERS.values() if dealer.trains]
            paper.with_suffix(".part").write_text(json.dumps({"per_step": self.per_step, "trains": trains}))
            paper.with_suffix(".part").rename(paper)

    @property
    def cut(self) -> int | None:
        """After how many batches an epoch ends; None for as many as there are."""
        assert self.plan is not None
        if self.plan.full or not self.per_step:
            return None
        if self.training_batches >= self.plan.steps * self.per_step:
            return self.per_step
        return math.ceil(self.plan.steps / 3) * self.per_step

    @property
    def over(self) -> bool:
        assert self.plan is not None
        if self.plan.full or not self.per_step:
            return False
        return self.training_batches >= 4 * self.plan.steps * self.per_step


COURSE = Course()


def base_of(dataset: Any) -> Any:
    while isinstance(dataset, data.Subset):
        dataset = dataset.dataset
    return streams.layers(dataset)[-1]


def base_index(dataset: Any, index: Any) -> int:
    while isinstance(dataset, data.Subset):
        index = dataset.indices[index]
        dataset = dataset.dataset
    return int(index)


def base_indices(dataset: Any, indices: Sequence[Any]) -> list[int]:
    try:
        return [base_index(dataset, index) for index in indices]
    except (TypeError, ValueError):
        return []  # a sampler of something else than numbers


def length(thing: Any) -> int | None:
    try:
        return len(thing)
    except (TypeError, NotImplementedError):
        return None


def made(loader: Any) -> None:
    """A DataLoader has been built."""
    if not recording.record().mine:
        return
    site = recording.site() or "?"
    nth = COURSE.made.get(site, 0)
    COURSE.made[site] = nth + 1
    base = base_of(loader.dataset)
    iterable = isinstance(loader.dataset, data.IterableDataset)
    counterpart = None
    if COURSE.replay is not None:
        counterpart = COURSE.replay.counterpart(type(base).__name__, length(base), iterable=iterable)
    key = counterpart.key if counterpart else (_short(site), nth)
    DEALERS[loader] = dealer = Dealer(
        site=site,
        nth=nth,
        name=_number(key),
        base=base,
        base_length=length(base),
        counterpart=counterpart,
    )
    recording.record().write(
        "loader",
        key=[_short(site), nth],
        name=dealer.name,
        counterpart=list(counterpart.key) if counterpart else None,
        site=site,
        dataset=type(base).__name__,
        base=dealer.base_length,
        own=None if iterable else length(loader.dataset),
        own_first=_own(loader.dataset, dealer.base_length),
        iterable=iterable,
        batch_size=loader.batch_size,
        drop_last=bool(loader.drop_last),
        sampler=type(loader.sampler).__name__ if not iterable else None,
        batch_sampler=type(loader.batch_sampler).__name__ if loader.batch_sampler is not None else None,
        chosen=_chosen(loader),
        sampler_length=None if iterable else length(loader.sampler),
        shuffles=_shuffles(loader),
        replacement=_replaces(loader),
        length=None
        if iterable
        else length(loader.batch_sampler if loader.batch_sampler is not None else loader.sampler),
        workers=loader.num_workers,
    )
    assert COURSE.plan is not None
    for size, becomes in COURSE.plan.larger:
        if loader.batch_size == becomes and not (counterpart is not None and counterpart.trains):
            # an evaluation that uses the same constant keeps its batches
            loader.__dict__["batch_size"] = loader.batch_sampler.batch_size = size
    if counterpart is not None and counterpart.trains and counterpart.rows and loader.batch_size is not None:
        # scripts multiply by it: from here on it is the batch of all ranks together
        loader.__dict__["batch_size"] = counterpart.rows


def _own(dataset: Any, base_length: int | None) -> list[int] | None:
    """Which samples of the base a subset holds, in order; None for all of it."""
    if not isinstance(dataset, data.Subset) or base_length is None or length(dataset) is None:
        return None
    if len(dataset) > WHOLE_ORDER:
        return None
    return base_indices(dataset, range(len(dataset)))


def _chosen(loader: Any) -> list[int] | None:
    """Which samples a sampler of a subset deals; None for one that deals all."""
    indices = getattr(loader.sampler, "indices", None)
    if indices is None or not isinstance(loader.sampler, data.SubsetRandomSampler) or length(indices) is None:
        return None
    return base_indices(loader.dataset, indices) if len(indices) <= WHOLE_ORDER else None


def _short(site: str) -> str:
    return site.rsplit("/", 1)[-1]


def _number(key: Sequence[Any]) -> int:
    text = ":".join(str(part) for part in key)
    return int.from_bytes(text.encode()[-6:].rjust(6, b"0"), "big") % 1_000_003 * 31 + len(text)


def _shuffles(loader: Any) -> bool | None:
    sampler = loader.sampler
    if loader.batch_sampler is not None:
        if type(loader.batch_sampler) is not data.BatchSampler:
            return None  # the sampler beside it is not used
        sampler = loader.batch_sampler.sampler
    if isinstance(sampler, data.SequentialSampler):
        return False
    if isinstance(sampler, (data.RandomSampler, data.SubsetRandomSampler, data.WeightedRandomSampler)):
        return True
    shuffle = getattr(sampler, "shuffle", None)
    return bool(shuffle) if isinstance(shuffle, bool) else None


def _replaces(loader: Any) -> bool:
    """Whether a sample may come twice in an epoch because the script's own sampler draws so."""
    sampler = loader.sampler
    for _ in range(4):
        if isinstance(sampler, data.WeightedRandomSampler):
            return bool(sampler.replacement)
        if isinstance(sampler, data.RandomSampler):
            return bool(sampler.replacement)
        sampler = getattr(sampler, "sampler", None)
        if sampler is None:
            return False
    return False


class Watched:
    """Stands for a loader's sampler of batches: records what it draws, or deals what was recorded."""

    def __init__(self, loader: Any, real: Any) -> None:
        self.loader = weakref.ref(loader)
        self.dataset = loader.dataset
        self.real = real
        self.batched = loader.batch_sampler is not None

    def __len__(self) -> int:
        return len(self.real)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.real, name)

    def __iter__(self) -> Iterator[Any]:
        loader = self.loader()
        dealer = DEALERS.get(loader) if loader is not None else None
        if dealer is None or dealer.current is None or not recording.record().mine:
            return iter(self.real)
        return self._deal(dealer.current)

    def _deal(self, through: Pass) -> Iterator[Any]:
        dealer = through.dealer
        source = iter(self._source(through))
        through.drawn = source
        for indices in source:
            while randomness.DRAWN:
                recording.record().write(
                    "drawn",
                    key=dealer.key,
                    number=through.number,
                    **randomness.DRAWN.pop(0),
                    site=dealer.site,
                )
            if not self.batched:
                through.batches.append(base_indices(self.dataset, [indices]))
                yield indices
                continue
            batch = Batch(indices)
            batch.tag = (dealer.name, through.number)
            self._beside(through, batch)
            through.batches.append(base_indices(self.dataset, batch))
            yield batch

    def _source(self, through: Pass) -> Iterable[Any]:
        """The script's own sampler, or what the migrated run dealt."""
        loader = self.loader()
        real: Iterable[Any] = self.real
        dealer, number = through.dealer, through.number
        if dealer.counterpart is None or not self.batched or loader is None:
            return real
        if through.replayed:
            return self._again(dealer, dealer.counterpart.batches_of(number))
        if _shuffles(loader):
            # an evaluation in another order counts the same, but its first batch may be shown
            dealt = dealer.counterpart.in_turn(number)
            in_order = data.BatchSampler(
                range(len(self.dataset)), loader.batch_sampler.batch_size, loader.drop_last
            )
            return self._again(dealer, [[batch] for batch in dealt]) if dealt else in_order
        return real

    def _beside(self, through: Pass, batch: Batch) -> None:
        """Tell what the other ranks have at the same time, if an earlier run has told."""
        known, plan = COURSE.mates.get(through.dealer.key), COURSE.plan
        at, dealer = len(through.batches), through.dealer
        if known is None or plan is None or not known.trains or through.evaluates:
            return
        dealt = known.batches_of(through.number)
        if at >= len(dealt) or dealt[at][plan.rank] != base_indices(self.dataset, batch):
            return
        inverse = self._inverse(dealer)
        together = [index for share in dealt[at] for index in share]
        if not isinstance(self.dataset, data.Subset):
            batch.whole = together
        elif all(index in inverse for index in together):
            batch.whole = [inverse[index] for index in together]
        batch.first = sum(map(len, dealt[at][: plan.rank]))

    def _inverse(self, dealer: Dealer) -> dict[int, int]:
        """Which sample of a subset each of the base is."""
        if dealer.inverse is None:
            dealer.inverse = {}
            if isinstance(self.dataset, data.Subset):
                for own in range(len(self.dataset)):
                    dealer.inverse.setdefault(base_index(self.dataset, own), own)
        return dealer.inverse

    def _again(self, dealer: Dealer, dealt: list[list[list[int]]]) -> Iterator[list[int]]:
        inverse = self._inverse(dealer)
        for shares in dealt:
            together = [index for share in shares for index in share]
            if isinstance(self.dataset, data.Subset):
                missing = [index for index in together if index not in inverse]
                if missing:
                    recording.record().write_once(
                        "missing", dealer.site, site=dealer.site, count=len(missing)
                    )
                together = [inverse[index] for index in together if index in inverse]
            yield together


class Ordered(Watched):
    """The same of a stream: asks for so many samples, or names those that the ranks had."""

    def __iter__(self) -> Iterator[Any]:
        loader = self.loader()
        dealer = DEALERS.get(loader) if loader is not None else None
        if loader is None or dealer is None or dealer.current is None or not recording.record().mine:
            return iter(self.real)
        return self._orders(dealer.current, (loader.batch_size or 1) if self.batched else 1)

    def _orders(self, through: Pass, size: int) -> Iterator[Any]:
        if through.replayed:
            yield from self._again(through)
            return
        while True:
            yield self._order(through, size)

    def _order(self, through: Pass, size: int) -> streams.Order:
        return streams.Order.of(size, through.dealer.name, through.number, through.seed)

    def _again(self, through: Pass) -> Iterator[streams.Order]:  # type: ignore[override]
        counterpart = through.dealer.counterpart
        assert counterpart is not None
        given = 0
        for shares, paths in zip(
            counterpart.batches_of(through.number), counterpart.samples_of(through.number), strict=True
        ):
            size = sum(map(len, shares)) or (counterpart.batch_size or 1) * counterpart.ranks
            order = self._order(through, size if self.batched else len(paths or ()) or 1)
            order.instead = tuple(paths or ())
            given += len(order)
            yield order
        if counterpart.ending_of(through.number) == "end":
            # what the ranks did not have is looked at too, and given to nobody
            size = max(counterpart.rows if self.batched else 1, 1)
            for _ in range(given // size + 2):
                order = self._order(through, size)
                order.beyond = True
                yield order


def _index_sampler(self: Any) -> Any:
    """In place of DataLoader's property of that name."""
    real = self.batch_sampler if self.batch_sampler is not None else self.sampler
    if self not in DEALERS:
        return real
    if isinstance(self.dataset, data.IterableDataset):
        return Ordered(self, real)
    return Watched(self, real)


def _init(original: Function) -> Function:
    def __init__(self: Any, *args: Any, **keywords: Any) -> None:  # noqa: N807
        original(self, *args, **keywords)
        made(self)

    return __init__


def _length(original: Function) -> Function:
    def __len__(self: Any) -> int:  # noqa: N807
        dealer = DEALERS.get(self)
        if dealer is not None and dealer.counterpart is not None and dealer.counterpart.trains:
            recorded = dealer.counterpart.length
            if recorded is not None:
                return recorded
        return int(original(self))

    return __len__


def _iter(original: Function) -> Function:
    def __iter__(self: Any) -> Any:  # noqa: N807
        dealer = DEALERS.get(self)
        if dealer is None or not recording.record().mine:
            return original(self)
        _close_the_left(dealer)
        if torch.is_grad_enabled():
            dealer.current = through = Pass(dealer, dealer.passes)
            dealer.passes += 1
        else:
            dealer.current = through = Pass(dealer, EVALUATION + dealer.evaluations)
            dealer.evaluations += 1
        through.seed = streams.common_seed(self.dataset)
        recording.record().write(
            "pass", key=dealer.key, number=through.number, site=recording.site(), seed=through.seed
        )
        if through.replayed and dealer.counterpart is not None:
            through.seed = dealer.counterpart.seeds.get(through.number)
        if through.number == 0 and through.seed is None and isinstance(self.dataset, data.IterableDataset):
            assert COURSE.plan is not None
            rehearsal.begin(COURSE.plan, self, dealer.key, own_generators(self.dataset))
        through.begun_at = COURSE.moment = COURSE.moment + 1
        iterator = original(self)
        through.iterator = weakref.ref(iterator)
        iterator._through = through  # noqa: SLF001
        dealer.begun.append(through)
        return iterator

    return __iter__


def _close_the_left(dealer: Dealer) -> None:
    """Note which passes were left before their end; one that is still walked through is not, whatever begins in it."""
    for through in dealer.begun:
        iterator = None if through.iterator is None else through.iterator()
        if getattr(iterator, "_through", None) is not through:
            _close(through, "left")
    dealer.begun = [through for through in dealer.begun if not through.ended]


def _next(original: Function) -> Function:
    def __next__(self: Any) -> Any:  # noqa: N807
        through: Pass | None = getattr(self, "_through", None)
        if through is None or not recording.record().mine:
            result = original(self)
            return result.batch if isinstance(result, streams.Carried) else result
        return _give(through, lambda: original(self), in_a_loop=_loops(sys._getframe(1)))  # noqa: SLF001

    return __next__


def _loops(frame: FrameType) -> bool:
    """Whether the next batch is asked for by a `for`, which may end at any time, and not by `next`."""
    return dis.opname[frame.f_code.co_code[frame.f_lasti]] in {
        "FOR_ITER",
        "LIST_EXTEND",
        "YIELD_FROM",
        "SEND",
    }


def _give(through: Pass, fetch_next: Callable[[], Any], *, in_a_loop: bool) -> Any:
    from multicard.verify.probe import by_hand

    by_hand.ended()
    dealer = through.dealer
    if not dealer.trains and through.given:
        COURSE.learn()
    if dealer.trains and not dealer.replayed and not through.evaluates:
        _perhaps_enough(through)
        cut = COURSE.cut
        if cut is not None and through.given >= cut and in_a_loop:
            _close(through, "cut")
            _turn(through, -1)
            raise StopIteration
    randomness.note_natural_state()
    try:
        batch = _fetched(through, fetch_next)
    except StopIteration:
        ending = _recorded_ending(through) if through.replayed else "end"
        _close(through, ending)
        if ending == "enough":
            recording.record().write("enough")
            raise EnoughError(0) from None
        _turn(through, -1)
        raise
    given = through.given
    through.given += 1
    through.given_at = COURSE.moment = COURSE.moment + 1
    through.taken = not in_a_loop
    dealer.total += not through.evaluates
    PENDING.append(through)
    if isinstance(batch, streams.Carried):
        indices, batch = _streamed(through, given, batch)
    else:
        indices = through.batches[given] if given < len(through.batches) else []
        recording.record().write(
            "batch",
            key=dealer.key,
            number=through.number,
            at=given,
            indices=indices,
            firsts=_firsts(batch, _share_starts(through, given), len(indices)),
            rows=_rows(batch, len(indices)),
            shapes=padding.shapes_of(batch),
        )
    scalars.ROWS[0] = len(indices)
    learns = torch.is_grad_enabled() and (COURSE.optimizes or by_hand.expected())
    known = dealer.trains or dealer.replayed
    if learns and (known or (through.number == 0 and not modules.evaluating())):
        _turn(through, given, indices)
    elif randomness.PHASE.key is not None:
        # an evaluation: what is drawn for a sample must not depend on the batch in which it comes
        randomness.PHASE.turn((dealer.name, through.number, 0), samples=indices)
    return batch


def _fetched(through: Pass, fetch_next: Callable[[], Any]) -> Any:
    """The next batch; what a stream holds beyond that of the ranks is told and not given."""
    while True:
        batch = fetch_next()
        if not isinstance(batch, streams.Carried) or not batch.beyond:
            return batch
        recording.record().write("beyond-share", key=through.dealer.key, number=through.number, own=batch.own)


def _streamed(through: Pass, at: int, carried: streams.Carried) -> tuple[list[int], Any]:
    dealer = through.dealer
    fields: dict[str, Any] = {}
    if through.replayed and dealer.counterpart is not None:
        fields["own"] = carried.own
        shares = dealer.counterpart.batches_of(through.number)
        wanted = [sample for share in shares[at] for sample in share] if at < len(shares) else []
        if not wanted or carried.samples != wanted:
            recording.record().write_once("unreplayed", dealer.key, site=dealer.site, what="stream")
    recording.record().write(
        "batch",
        key=dealer.key,
        number=through.number,
        at=at,
        indices=carried.samples,
        firsts=[],
        kept=carried.kept,
        **fields,
    )
    return carried.samples, carried.batch


def _share_starts(through: Pass, at: int) -> list[int]:
    """Where in this batch the share of each rank begins."""
    if not through.replayed or through.dealer.counterpart is None:
        return [0]
    shares = through.dealer.counterpart.batches_of(through.number)
    starts, first = [], 0
    for share in shares[at] if at < len(shares) else []:
        if share or through.dealer.counterpart.split == 1:
            starts.append(first)
        first += len(share)
    return starts


def _firsts(batch: Any, starts: list[int], rows: int) -> list[list[float]]:
    """What the batch holds at these rows, in short: the same sample must be the same everywhere."""
    tensor = _some_tensor(batch, rows)
    if tensor is None:
        return []
    return [short(tensor[start]) for start in starts if start < rows]


ROWS = 1 << 20  # elements of a batch that are looked at row by row


def _rows(batch: Any, rows: int) -> list[list[float]]:
    """Norm and sum of each row, in order of size: the same whatever order a collate function puts them in."""
    tensor = _some_tensor(batch, rows)
    if tensor is None or tensor.numel() > ROWS or tensor.is_complex():
        return []
    flat = tensor.detach().to(torch.float64).reshape(rows, -1).nan_to_num(0.0, 0.0, 0.0)
    pairs: list[list[float]] = torch.stack([flat.norm(dim=1), flat.sum(1)], 1).tolist()
    return sorted(pairs)


def _tells_the_place(tensor: torch.Tensor) -> bool:
    """Whether it counts up from zero, as the place of each sample in its batch does."""
    whole = tensor.dim() == 1 and not tensor.is_floating_point() and tensor.dtype != torch.bool
    return bool(whole and tensor[0] == 0 and (tensor[1:] >= tensor[:-1]).all())


def short(tensor: torch.Tensor) -> list[float]:
    """A checksum of a tensor, its norm and its sum."""
    wide = tensor.detach().to(torch.float64 if not tensor.is_complex() else torch.complex128)
    return [
        checksum(tensor),
        *(0.0 if not math.isfinite(x) else x for x in (float(wide.norm().real), float(wide.sum().real))),
    ]


def _some_tensor(batch: Any, rows: int) -> torch.Tensor | None:
    if isinstance(batch, torch.Tensor):
        fits = batch.dim() > 0 and batch.shape[0] == rows and batch.layout == torch.strided and rows > 0
        return batch if fits and not _tells_the_place(batch) else None
    parts = batch.values() if isinstance(batch, dict) else batch if isinstance(batch, (list, tuple)) else ()
    return next((found for part in parts if (found := _some_tensor(part, rows)) is not None), None)


def checksum(tensor: torch.Tensor) -> int:
    flat = tensor.detach().contiguous().reshape(-1)
    if flat.numel() == 0:
        return 0
    return zlib.crc32(flat.view(torch.uint8).numpy().data)


def _perhaps_enough(through: Pass) -> None:
    if COURSE.over or (COURSE.finish_at is not None and COURSE.steps >= COURSE.finish_at):
        _close(through, "enough")
        recording.record().write("enough")
        raise EnoughError(0)


def _turn(through: Pass, at: int, samples: Sequence[int] = ()) -> None:
    """Seed what the script draws for this batch, or between this pass and what comes next."""
    plan, dealer = COURSE.plan, through.dealer
    assert plan is not None
    key = (dealer.name, through.number, at + 1)
    if at < 0:
        if randomness.PHASE.key is not None:
            randomness.PHASE.turn(key)
    elif plan.role == "migrated":
        randomness.PHASE.turn(key, [len(samples)] * plan.world_size, plan.rank, samples)
    elif through.replayed:
        assert dealer.counterpart is not None
        shares = dealer.counterpart.batches_of(through.number)
        sizes = [len(share) for share in shares[at]] if at < len(shares) else []
        randomness.PHASE.turn(key, sizes, samples=samples)
    else:
        randomness.PHASE.turn(key, samples=samples)


def _recorded_ending(through: Pass) -> str:
    """How the migrated run's pass ended, when the original has had all of its batches."""
    dealer = through.dealer
    assert dealer.counterpart is not None
    ending = dealer.counterpart.ending_of(through.number)
    if ending in {"none", "left"}:
        recording.record().write_once("beyond", dealer.site, site=dealer.site, number=through.number)
        return "enough" if ending == "none" else "end"
    return ending


def _close(through: Pass, how: str) -> None:
    if through.ended:
        return
    through.ended = True
    PENDING[:] = [entry for entry in PENDING if entry is not through]
    dealer = through.dealer
    order = None
    if through.replayed and through.number == 0:
        _note_own_draw(dealer)
    if how == "cut" and dealer.base_length is not None and dealer.base_length <= WHOLE_ORDER:
        order = _the_rest(through)
    if through.used and not through.evaluates:
        for note in AFTER_TRAINING:
            note()
    recording.record().write(
        "passed", key=dealer.key, number=through.number, how=how, given=through.given, order=order
    )


def _note_own_draw(dealer: Dealer) -> None:
    """What the original's own sampler would have dealt: whether it repeats samples, and whether in order."""
    loader = next((loader for loader, known in DEALERS.items() if known is dealer), None)
    if (
        loader is None
        or loader.batch_sampler is None
        or isinstance(loader.dataset, data.IterableDataset)
        or (dealer.base_length or WHOLE_ORDER + 1) > WHOLE_ORDER
    ):
        return
    drawn: list[int] = []
    with randomness.generators_kept(), randomness.as_before_training():
        for indices in loader.batch_sampler:
            drawn += base_indices(loader.dataset, indices)
            if len(drawn) > WHOLE_ORDER:
                break
    recording.record().write(
        "own", key=dealer.key, total=len(drawn), distinct=len(set(drawn)), ascending=drawn == sorted(drawn)
    )


def _the_rest(through: Pass) -> list[list[int]] | None:
    """Draw the epoch to its end without fetching: who would have had which sample."""
    dealer = through.dealer
    loader = next((loader for loader, known in DEALERS.items() if known is dealer), None)
    if loader is None or through.drawn is None:
        return None
    order = list(through.batches)
    limit = 2 * WHOLE_ORDER
    with randomness.generators_kept():
        for indices in through.drawn:
            order.append(
                base_indices(loader.dataset, indices if isinstance(indices, (list, tuple)) else [indices])
            )
            limit -= len(order[-1]) or 1
            if limit < 0:
                return None
    return order


def stepped() -> None:
    """An optimizer used gradients: the batches at hand were training batches."""
    COURSE.steps += 1
    recording.record().steps = COURSE.steps
    if not PENDING:
        return
    alive = [entry for entry in PENDING if entry.iterator is not None and entry.iterator() is not None]
    latest = max((entry.begun_at for entry in alive if not entry.taken), default=0)
    alive = [entry for entry in alive if not (entry.taken and entry.given_at < latest)]
    count: dict[tuple[str, int], int] = {}
    news = False
    for through in alive or list(PENDING):
        if not through.used:
            through.used = True
            recording.record().write("used", key=through.dealer.key, number=through.number)
        dealer = through.dealer
        count[dealer.key] = count.get(dealer.key, 0) + 1
        if not dealer.trains:
            dealer.trains = news = True
            recording.record().write("trains", key=dealer.key)
    if not COURSE.per_step:
        COURSE.per_step = max(count.values())
    if news:
        COURSE.teach()
    PENDING.clear()


def _fetch(original: Function) -> Function:
    def fetch_seeded(self: Any, indices: Any) -> Any:
        if not getattr(indices, "tag", ()) or not self.auto_collation:
            return original(self, indices)
        if indices.whole:
            whole = _collated(self, indices.whole, indices.tag)
            part = padding.part_of(whole, len(indices.whole), indices.first, len(indices))
            if part is not None:
                return part
        return _collated(self, indices, indices.tag)

    return fetch_seeded


def _collated(fetcher: Any, indices: Sequence[Any], tag: tuple[int, ...]) -> Any:
    """The batch of these samples, each with random numbers of its own."""
    found = []
    with randomness.generators_kept(), randomness.as_before_training():
        for at, index in enumerate(indices):
            seed = randomness.mix(randomness.PHASE.seed, *tag, *_numbers(fetcher.dataset, index))
            randomness.seed_all(seed)
            for reseed in own_generators(fetcher.dataset):
                reseed(seed)
            before = randomness.states() if at == 0 and tag[-1] == 0 else {}
            found.append(_one(fetcher.dataset, index))
            _note_augmentation(before, tag)
    samples = Samples(found)
    samples.seeds = [
        randomness.mix(randomness.PHASE.seed, *tag, *_numbers(fetcher.dataset, i), 1) for i in indices
    ]
    try:
        return fetcher.collate_fn(samples)
    finally:
        samples.leave()


class Samples(list[Any]):
    """Samples on their way into a batch: what is drawn while each is looked at is drawn for that one."""

    seeds: Sequence[int] = ()
    outside: "contextlib.ExitStack | None" = None

    def __iter__(self) -> Iterator[Any]:
        self.leave()
        self.outside = contextlib.ExitStack()
        self.outside.enter_context(randomness.generators_kept())
        self.outside.enter_context(randomness.as_before_training())
        for sample, seed in zip(super().__iter__(), self.seeds, strict=True):
            randomness.seed_all(seed)
            yield sample
        self.leave()

    def leave(self) -> None:
        """They have been looked at: draws are those of the batch again."""
        if self.outside is not None:
            self.outside.close()
            self.outside = None


OWN: "weakref.WeakKeyDictionary[Any, list[Callable[[int], object]]]" = weakref.WeakKeyDictionary()


def own_generators(dataset: Any) -> list[Callable[[int], object]]:
    """Ways to seed the generators that a data set, its transforms or its module keep for themselves."""
    base = base_of(dataset)
    try:
        if base not in OWN:
            places = [base, getattr(base, "transform", None), getattr(base, "transforms", None)]
            places += list(getattr(places[1], "transforms", ()) or ())
            places += streams.layers(dataset)
            found = [value for place in places if place is not None for value in vars_of(place).values()]
            module = sys.modules.get(type(base).__module__)
            if module is not None and recording.is_the_users(getattr(module, "__file__", None) or ""):
                found += vars(module).values()
            OWN[base] = [way for value in found if (way := randomness.way_to_seed(value)) is not None]
        return OWN[base]
    except TypeError:  # a data set that cannot be hashed or referred to
        return []


def vars_of(thing: Any) -> dict[str, Any]:
    return dict(getattr(thing, "__dict__", {}))


def _note_augmentation(before: dict[str, int], tag: tuple[int, ...]) -> None:
    """Tell which generators a sample was drawn with; a worker cannot write events, so by leaving a file."""
    assert COURSE.plan is not None
    if not before:
        return
    worker = data.get_worker_info() is not None
    for name, state in randomness.states().items():
        if state != before[name]:
            # a worker's generators are all seeded by one number, which the main process draws from torch's
            (Path(COURSE.plan.folder) / f"augments-{'torch' if worker else name}-{tag[0]}").touch()


def _numbers(dataset: Any, index: Any) -> list[int]:
    found = base_indices(dataset, [index])
    return found or [0]


def _one(dataset: Any, index: Any) -> Any:
    own_way = getattr(dataset, "__getitems__", None)
    if own_way is not None and not isinstance(dataset, data.Subset):
        return own_way([index])[0]
    return dataset[index]


def _set_epoch(original: Function) -> Function:
    def set_epoch(self: Any, epoch: int) -> None:
        original(self, epoch)
        recording.record().write_once("set_epoch", recording.site(), site=recording.site())

    return set_epoch


def _split(original: Function) -> Function:
    def random_split(*args: Any, **keywords: Any) -> Any:
        parts = original(*args, **keywords)
        chosen = [list(part.indices)[:10_000] for part in parts]
        result = zlib.crc32(str(chosen).encode())
        recording.record().write("shuffled", what="random_split", site=recording.site(), result=result)
        return parts

    return random_split


def install(plan: Plan) -> None:
    COURSE.plan = plan
    replace(data.DistributedSampler, "set_epoch", _set_epoch)
    replace(data, "random_split", _split)
    data.dataset.random_split = data.random_split
    if plan.recorded:
        COURSE.replay = Replay.read(plan.recorded, plan.split)
    if plan.mates:
        COURSE.mates = {loader.key: loader for loader in Replay.read(plan.mates).loaders}
    replace(data.DataLoader, "__init__", _init)
    replace(data.DataLoader, "__len__", _length)
    replace(data.DataLoader, "__iter__", _iter)
    data.DataLoader._index_sampler = property(_index_sampler)  # type: ignore[assignment, method-assign]  # noqa: SLF001
    replace(data.dataloader._BaseDataLoaderIter, "__next__", _next)  # noqa: SLF001
    replace(fetch._MapDatasetFetcher, "fetch", _fetch)  # noqa: SLF001
    streams.install(plan, own_generators)
