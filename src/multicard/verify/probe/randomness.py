"""The same random numbers for the same sample and the same row of a batch, whichever process draws them.

One card draws noise for a batch of 64, two cards draw it for 32 each; one card augments sample 7 in its
main process, two cards in a worker of rank 1. Two correct runs would not agree in one digit. So a draw
becomes a function of what it is for: of the sample, or of the row in the batch of all ranks.
"""

import contextlib
import random
import zlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from multicard.verify.plan import Plan
from multicard.verify.probe import record as recording
from multicard.verify.probe.patching import Function, replace

MANY_ROWS = 4096


def mix(*keys: int) -> int:
    """One seed out of several numbers; hashes of ints are the same in every process."""
    return hash(keys) & 0x7FFFFFFF


class Phase:
    """Which batch is at hand, and so what a random draw is for."""

    def __init__(self) -> None:
        self.key: tuple[int, ...] | None = None
        self.draws = 0
        self.sizes: tuple[int, ...] = ()  # rows of the batch of each rank
        self.rank: int | None = None  # None: this process has the whole batch
        self.samples: Sequence[int] = ()
        self.generator = torch.Generator()
        self.seed = 0
        self.apart = False  # draws are for a sample that is being read

    def turn(
        self,
        key: tuple[int, ...],
        sizes: Sequence[int] = (),
        rank: int | None = None,
        samples: Sequence[int] = (),
    ) -> None:
        """Another batch is at hand: all generators start anew from its key."""
        for note in TURNED:
            note()
        self.key, self.draws, self.sizes, self.rank, self.samples = key, 0, tuple(sizes), rank, samples
        seed_all(mix(self.seed, *key))

    def next_key(self) -> tuple[int, ...]:
        assert self.key is not None
        self.draws += 1
        return (self.seed, *self.key, self.draws)

    def offset(self, rows: int) -> int:
        """Which row of the whole batch our first row is."""
        if self.rank is None or self.rank >= len(self.sizes) or rows != self.sizes[self.rank]:
            return 0
        return sum(self.sizes[: self.rank])


TURNED: list[Callable[[], None]] = []  # called before another batch is at hand
PHASE = Phase()


def seed_all(seed: int) -> None:
    random.seed(seed)
    np.random.seed(seed % 2**32)
    torch.default_generator.manual_seed(seed)


def way_to_seed(thing: Any) -> Callable[[int], object] | None:
    """How to seed a generator that a script made for itself; None for anything else."""
    if isinstance(thing, torch.Generator):
        return thing.manual_seed
    if isinstance(thing, random.Random):
        return thing.seed
    if isinstance(thing, np.random.RandomState):
        return lambda seed: thing.seed(seed % 2**32)
    if isinstance(thing, np.random.Generator):
        bits = thing.bit_generator

        def reseed(seed: int) -> None:
            bits.state = type(bits)(seed).state

        return reseed
    return None


@contextlib.contextmanager
def as_before_training() -> Iterator[None]:
    """Draws are the generators' own, and not for the batch at hand."""
    key, apart = PHASE.key, PHASE.apart
    PHASE.key, PHASE.apart = None, True
    try:
        yield
    finally:
        PHASE.key, PHASE.apart = key, apart


def take_states() -> tuple[Any, ...]:
    return random.getstate(), np.random.get_state(), torch.get_rng_state()


def give_states(kept: tuple[Any, ...]) -> None:
    python, numpy, torch_state = kept
    random.setstate(python)
    np.random.set_state(numpy)
    torch.set_rng_state(torch_state)


@contextlib.contextmanager
def generators_kept() -> Iterator[None]:
    kept = take_states()
    try:
        yield
    finally:
        give_states(kept)


def row_keys(rows: int) -> Sequence[int]:
    """What each row of a draw is for: the sample in that row of the batch, where there is one to a row."""
    samples = PHASE.samples
    if samples and rows % len(samples) and PHASE.rank is None and PHASE.sizes:
        samples = samples[: PHASE.sizes[0]]  # not for the whole batch; rank 0 may take it to be for its own
    if samples and rows % len(samples) == 0:
        return [sample + 1_000_003 * block for block in range(rows // len(samples)) for sample in samples]
    return range(PHASE.offset(rows), PHASE.offset(rows) + rows)


def fill(tensor: Tensor, draw: Callable[[Tensor, torch.Generator], object]) -> Tensor:
    """Fill `tensor` row by row, each row from a generator of its own."""
    key = PHASE.next_key()
    generator = PHASE.generator
    _noticed(tensor.shape)
    with torch.no_grad():
        axis = axis_of_samples(tensor.shape)
        if tensor.dim() == 0 or tensor.shape[axis] > MANY_ROWS:
            generator.manual_seed(mix(*key))
            draw(tensor, generator)
            return tensor
        for i, row in enumerate(row_keys(tensor.shape[axis])):
            generator.manual_seed(mix(*key, row))
            if axis == 0:
                draw(tensor[i], generator)
            else:
                fresh = tensor.select(axis, i).clone(memory_format=torch.contiguous_format)
                draw(fresh, generator)
                tensor.select(axis, i).copy_(fresh)
    return tensor


def axis_of_samples(shape: Sequence[int]) -> int:
    """Which dimension counts the samples: the first, unless several draws for each sample stand before it."""
    count = len(PHASE.samples)
    if (
        not shape
        or not count
        or shape[0] == count
        or (shape[0] % count == 0 and (count > 1 or len(shape) < 3))
    ):
        return 0
    return next((axis for axis, size in enumerate(shape) if size == count), 0)


def _noticed(shape: Sequence[int]) -> None:
    """Tell once for each line how the script's own generator stood: ranks should not draw the same noise."""
    rows = PHASE.sizes[PHASE.rank] if PHASE.rank is not None and PHASE.rank < len(PHASE.sizes) else None
    if rows and len(shape) > 0 and shape[0] == rows:
        where = recording.site()
        if where:
            recording.record().write_once("draw", where, site=where)


NATURAL: dict[str, int] = {}
BEGINNING = (-2,)
SETTLED: list[bool] = []  # the script has said where its ranks begin to draw otherwise
DRAWN: list[dict[str, int]] = []  # what a sampler has drawn since somebody looked


def states() -> dict[str, int]:
    """The state of each generator, in short."""
    _, keys, position, *_ = np.random.get_state(legacy=True)
    return {
        "torch": zlib.crc32(torch.get_rng_state().numpy().tobytes()),
        "python": hash(random.getstate()[1]) & 0x7FFFFFFF,
        "numpy": zlib.crc32(keys.tobytes()) ^ int(position),  # type: ignore[union-attr]
    }


def note_natural_state() -> None:
    """The state the script left its generators in when training began; told anew if it has changed it since."""
    if not SETTLED and (PHASE.key is None or PHASE.key == BEGINNING):
        now = states()
        if now != NATURAL:
            NATURAL.update(now)
            recording.record().write("generators", **now)


def training_begins() -> None:
    """A model is put into training mode: what is drawn from here to the first batch is drawn alike by all."""
    if PHASE.key is None or PHASE.key == BEGINNING:
        note_natural_state()
        PHASE.turn(BEGINNING)
        NATURAL.update(states())


def _shape(args: tuple[Any, ...], keywords: dict[str, Any]) -> tuple[int, ...]:
    size = keywords.pop("size", None)
    if size is None:
        size = args[0] if len(args) == 1 and isinstance(args[0], (tuple, list, torch.Size)) else args
    return (size,) if isinstance(size, int) else tuple(int(n) for n in size)


def _natural(keywords: dict[str, Any]) -> bool:
    """Draws that the script steers itself, and draws before training, stay as they are."""
    return (
        PHASE.key is None
        or not recording.record().mine
        or keywords.get("generator") is not None
        or keywords.get("out") is not None
    )


def _empty(shape: tuple[int, ...], keywords: dict[str, Any], default: torch.dtype | None = None) -> Tensor:
    allowed = ("dtype", "device", "layout", "pin_memory")
    keywords = {name: value for name, value in keywords.items() if name in allowed and value is not None}
    if default is not None:
        keywords.setdefault("dtype", default)
    return torch.empty(shape, **keywords)


def _factory(draw: Callable[[Tensor, torch.Generator], object]) -> Callable[[Function], Function]:
    def make(original: Function) -> Function:
        def drawn(*args: Any, **keywords: Any) -> Any:
            if _natural(keywords):
                return original(*args, **keywords)
            requires_grad = keywords.pop("requires_grad", False)
            result = fill(_empty(_shape(args, keywords), keywords), draw)
            return result.requires_grad_() if requires_grad else result

        return drawn

    return make


def _like(draw: Callable[[Tensor, torch.Generator], object]) -> Callable[[Function], Function]:
    def make(original: Function) -> Function:
        def drawn(like: Tensor, **keywords: Any) -> Any:
            if _natural(keywords):
                return original(like, **keywords)
            requires_grad = keywords.pop("requires_grad", False)
            keywords.pop("memory_format", None)
            keywords.setdefault("dtype", like.dtype)
            keywords.setdefault("device", like.device)
            result = fill(_empty(tuple(like.shape), keywords), draw)
            return result.requires_grad_() if requires_grad else result

        return drawn

    return make


def note_drawn(shape: tuple[int, ...]) -> None:
    """Tell once for each line that between training steps numbers are drawn, as for a batch that is made by hand."""
    record = recording.record()
    if record.mine and record.steps and not PHASE.apart and torch.is_grad_enabled():
        if len(shape) == 1 and shape[0] > 1 and (where := recording.site()):
            record.write_once("drawn-by-hand", where, site=where)


def _randint(original: Function) -> Function:
    def randint(*args: Any, **keywords: Any) -> Any:
        if _natural(keywords):
            result = original(*args, **keywords)
            note_drawn(tuple(result.shape))
            return result
        low, high, rest = _bounds(args, keywords)
        shape = _shape(rest, keywords)
        note_drawn(shape)
        return fill(
            _empty(shape, keywords, torch.int64), lambda row, g: row.random_(int(low), int(high), generator=g)
        )

    return randint


def _bounds(args: tuple[Any, ...], keywords: dict[str, Any]) -> tuple[int, int, tuple[Any, ...]]:
    low, high = keywords.pop("low", None), keywords.pop("high", None)
    if low is not None and high is not None:
        return low, high, args
    if high is not None:
        sized = len(args) > 0 and not isinstance(args[0], (tuple, list, torch.Size))
        return (args[0], high, args[1:]) if sized else (0, high, args)
    if len(args) > 1 and not isinstance(args[1], (tuple, list, torch.Size)):
        return args[0], args[1], args[2:]
    return 0, args[0], args[1:]


def _randint_like(original: Function) -> Function:
    def randint_like(like: Tensor, *args: Any, **keywords: Any) -> Any:
        if _natural(keywords):
            return original(like, *args, **keywords)
        low, high, _ = _bounds(args, keywords)
        keywords.setdefault("dtype", like.dtype)
        return fill(
            _empty(tuple(like.shape), keywords), lambda row, g: row.random_(int(low), int(high), generator=g)
        )

    return randint_like


def _in_place(original: Function) -> Function:
    def drawn(self: Tensor, *args: Any, **keywords: Any) -> Any:
        if _natural(keywords) or (self.requires_grad and torch.is_grad_enabled()):
            return original(self, *args, **keywords)
        keywords.pop("generator", None)
        return fill(self, lambda row, g: original(row, *args, generator=g, **keywords))

    return drawn


def _bernoulli(original: Function) -> Function:
    def bernoulli(self: Tensor, *args: Any, **keywords: Any) -> Any:
        if _natural(keywords):
            return original(self, *args, **keywords)
        chances = args[0] if args else keywords.get("p")
        uniform = fill(torch.empty(self.shape), lambda row, g: torch.Tensor.uniform_(row, generator=g))
        return (uniform < (self if chances is None else chances)).to(self.dtype)

    return bernoulli


def _normal(original: Function) -> Function:
    def normal(mean: Any = 0.0, std: Any = 1.0, size: Any = None, **keywords: Any) -> Any:
        if _natural(keywords):
            return original(mean, std, **keywords) if size is None else original(mean, std, size, **keywords)
        if size is None:
            size = torch.broadcast_shapes(  # type: ignore[no-untyped-call]
                mean.shape if isinstance(mean, Tensor) else (), std.shape if isinstance(std, Tensor) else ()
            )
        unit = fill(_empty(tuple(size), keywords), lambda row, g: torch.Tensor.normal_(row, generator=g))
        return unit * std + mean

    return normal


def _randperm(original: Function) -> Function:
    def randperm(n: int, **keywords: Any) -> Any:
        if _natural(keywords):
            return original(n, **keywords)
        key = PHASE.next_key()
        keywords.pop("generator", None)

        def block(rank: int, rows: int) -> Tensor:
            return original(rows, generator=PHASE.generator.manual_seed(mix(*key, rank)), **keywords)  # type: ignore[no-any-return]

        if PHASE.rank is not None and PHASE.rank < len(PHASE.sizes) and n == PHASE.sizes[PHASE.rank]:
            return block(PHASE.rank, n)
        if PHASE.rank is None and len(PHASE.sizes) > 1 and n == sum(PHASE.sizes):
            # a batch shuffled within each rank's share is what several cards can do
            first, blocks = 0, []
            for rank, rows in enumerate(PHASE.sizes):
                blocks.append(block(rank, rows) + first)
                first += rows
            return torch.cat(blocks)
        return block(0, n)

    return randperm


def _keyed(original: Function) -> Function:
    def keyed(*args: Any, **keywords: Any) -> Any:
        if _natural(keywords):
            result = original(*args, **keywords)
            if keywords.get("generator") is not None and recording.record().mine and len(DRAWN) < 16:
                DRAWN.append({"count": result.numel(), "result": zlib.crc32(result.contiguous().numpy())})
            return result
        generator = PHASE.generator.manual_seed(mix(*PHASE.next_key()))
        return original(*args, **{**keywords, "generator": generator})

    return keyed


def _numpy_rows(original: Function) -> Function:
    """Numpy's draws of a batch: row by row as well."""

    def drawn(*args: Any, **keywords: Any) -> Any:
        if PHASE.key is None or not recording.record().mine:
            return original(*args, **keywords)
        whole_state = np.random.get_state()
        result = original(*args, **keywords)
        rows = np.shape(result)[0] if np.ndim(result) else 0
        sizes, rank = PHASE.sizes, PHASE.rank
        mine = rank is not None and rank < len(sizes) and rows == sizes[rank]
        whole = rank is None and len(sizes) > 1 and rows == sum(sizes)
        mine = mine or (len(PHASE.samples) > 0 and rows > 0 and rows % len(PHASE.samples) == 0)
        if not (mine or whole) or any(np.ndim(arg) for arg in args if not isinstance(arg, (tuple, list))):
            return result
        np.random.set_state(whole_state)
        key = mix(int(np.random.randint(1 << 30)))
        one = _one_row(args, keywords, rows)
        for i, row in enumerate(row_keys(rows)):
            np.random.seed(mix(key, row))
            result[i] = original(*one[0], **one[1])[0]
        # what comes next must not depend on how many rows this process drew
        np.random.seed(mix(key, 7919))
        return result

    return drawn


def _one_row(
    args: tuple[Any, ...], keywords: dict[str, Any], rows: int
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The same arguments, asking for one row."""

    def one(value: Any) -> Any:
        if isinstance(value, (tuple, list)) and len(value) > 0 and value[0] == rows:
            return (1, *value[1:])
        return 1 if isinstance(value, int) and not isinstance(value, bool) and value == rows else value

    if "size" in keywords:
        return args, {**keywords, "size": one(keywords["size"])}
    positions = [i for i, value in enumerate(args) if one(value) is not value]
    at = positions[-1] if positions and isinstance(args[positions[-1]], (tuple, list)) else positions[:1]
    chosen = {at} if isinstance(at, int) else set(at)
    return tuple(one(value) if i in chosen else value for i, value in enumerate(args)), keywords


def _told(what: str) -> Callable[[Function], Function]:
    """Before training begins, an order drawn by one rank must be that of the others."""

    def make(original: Function) -> Function:
        def drawn(*args: Any, **keywords: Any) -> Any:
            result = original(*args, **keywords)
            if PHASE.key is None and not PHASE.apart and recording.record().mine:
                where = recording.site()
                value = args[0] if result is None and args else result
                if where and len(value) > 1:
                    text = str(value.tolist() if hasattr(value, "tolist") else list(value))
                    recording.record().write(
                        "shuffled", what=what, site=where, result=zlib.crc32(text.encode())
                    )
            return result

        return drawn

    return make


def _off(original: Function) -> Function:
    def identity(input: Tensor, p: float = 0.5, training: bool = True, *_: Any, **__: Any) -> Tensor:  # noqa: A002, FBT001, FBT002
        if training and p > 0 and PHASE.key is not None:
            recording.record().write_once("dropout")
        return input

    return identity


def _no_dropout_p(original: Function) -> Function:
    def attention(
        query: Any,
        key: Any,
        value: Any,
        attn_mask: Any = None,
        dropout_p: float = 0.0,
        *rest: Any,
        **keywords: Any,
    ) -> Any:
        return original(query, key, value, attn_mask, 0.0, *rest, **keywords)

    return attention


def _shifted(shift: int) -> Callable[[Function], Function]:
    """A script's own seed, moved by the run's: other seeds without another command line."""

    def make(original: Function) -> Function:
        def seeded(*args: Any, **keywords: Any) -> Any:
            if args and isinstance(args[0], int):
                args = ((args[0] + shift) & 0x7FFFFFFF, *args[1:])
            elif isinstance(keywords.get("seed"), int):
                keywords["seed"] = (keywords["seed"] + shift) & 0x7FFFFFFF
            return original(*args, **keywords)

        return seeded

    return make


def install(plan: Plan) -> None:
    PHASE.seed = plan.seed
    if plan.seed:
        replace(torch, "manual_seed", _shifted(plan.seed * 7919))
        torch.random.manual_seed = torch.manual_seed
    # ranks that seed nothing are given different generators, as processes are
    seed_all(mix(plan.seed, 17, plan.rank))
    normal, uniform = torch.Tensor.normal_, torch.Tensor.uniform_
    for name, draw in (("randn", normal), ("rand", uniform)):
        replace(torch, name, _factory(lambda row, g, draw=draw: draw(row, generator=g)))  # type: ignore[misc]
        replace(torch, f"{name}_like", _like(lambda row, g, draw=draw: draw(row, generator=g)))  # type: ignore[misc]
    replace(torch, "randint", _randint)
    replace(torch, "randint_like", _randint_like)
    replace(torch, "normal", _normal)
    replace(torch, "bernoulli", _bernoulli)
    replace(torch.Tensor, "bernoulli", _bernoulli)
    replace(torch, "randperm", _randperm)
    replace(torch, "randperm", _told("torch.randperm"))
    for owner, name in (
        (random, "shuffle"),
        (random, "sample"),
        (np.random, "shuffle"),
        (np.random, "permutation"),
    ):
        replace(owner, name, _told(f"{owner.__name__}.{name}"))
    replace(torch, "multinomial", _keyed)
    replace(torch.Tensor, "multinomial", _keyed)
    for name in (
        "normal_",
        "uniform_",
        "random_",
        "bernoulli_",
        "exponential_",
        "log_normal_",
        "cauchy_",
        "geometric_",
    ):
        replace(torch.Tensor, name, _in_place)
    for name in (
        "randn",
        "rand",
        "normal",
        "uniform",
        "standard_normal",
        "random",
        "random_sample",
        "randint",
    ):
        replace(np.random, name, _numpy_rows)
    for name in (
        "dropout",
        "dropout1d",
        "dropout2d",
        "dropout3d",
        "alpha_dropout",
        "feature_alpha_dropout",
    ):
        replace(F, name, _off)
    replace(torch, "dropout", _off)
    replace(torch, "dropout_", _off)
    replace(F, "scaled_dot_product_attention", _no_dropout_p)
    replace(torch.nn.RNNBase, "__init__", _without_dropout)


def _without_dropout(original: Function) -> Function:
    def __init__(self: Any, *args: Any, **keywords: Any) -> None:  # noqa: N807
        original(self, *args, **keywords)
        self.dropout = 0.0

    return __init__
