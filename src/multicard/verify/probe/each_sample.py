"""Draws that a script makes sample by sample, in a loop of its own over a batch.

Such a draw is for the sample at that place of the batch, and a rank's first is not the original's first. Which lines
draw so is told by a first run: as often in each batch as it has samples, or a multiple of it. A second run then draws
for the sample, whichever process has it.
"""

import random
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch

from multicard.verify.plan import Plan
from multicard.verify.probe import randomness
from multicard.verify.probe import record as recording
from multicard.verify.probe.patching import Function, replace

MARK = 7907  # keeps these draws apart from those of the batch
OF_NUMPY = (
    "beta",
    "binomial",
    "choice",
    "normal",
    "permutation",
    "rand",
    "randint",
    "randn",
    "random",
    "random_sample",
    "shuffle",
    "standard_normal",
    "uniform",
)
OF_PYTHON = (
    "betavariate",
    "choice",
    "choices",
    "gauss",
    "normalvariate",
    "randint",
    "random",
    "randrange",
    "sample",
    "shuffle",
    "uniform",
)
OF_TORCH = ("bernoulli", "normal", "rand", "rand_like", "randint", "randn", "randn_like", "randperm")

COUNTS: Counter[str] = Counter()  # draws of each line for the batch at hand
TIMES: dict[
    str, int
] = {}  # draws of each line for each sample, as far as all batches agree; 0 if they do not
KNOWN: dict[str, int] = {}  # the same, told by a first run
ORDER: list[str] = []  # the known lines that have drawn for the batch at hand
INSIDE: list[bool] = []


def turned() -> None:
    """Another batch is at hand: how often a line has drawn for the last one tells whether it draws for each sample."""
    samples = len(randomness.PHASE.samples)
    if samples > 1:
        for site, count in COUNTS.items():
            times = count // samples if count % samples == 0 else 0
            TIMES[site] = times if TIMES.get(site, times) == times else 0
    COUNTS.clear()
    ORDER.clear()


def told() -> None:
    """Tell the lines that draw for each sample, in the order in which they were first met."""
    found = {site: times for site, times in TIMES.items() if times}
    if found:
        recording.record().write("drawn-for-each", sites=list(found.items()))


@contextmanager
def for_sample(site: str, at: int) -> Iterator[None]:
    """Draw for the sample of which this is a draw of the line."""
    phase = randomness.PHASE
    if site not in ORDER:
        ORDER.append(site)
    sample, again = divmod(at, KNOWN[site])
    kept = phase.key, phase.draws, phase.sizes, phase.rank, phase.samples
    assert phase.key is not None
    key = (*phase.key, MARK, ORDER.index(site), phase.samples[sample], again)
    with randomness.generators_kept():
        phase.key, phase.draws, phase.sizes, phase.rank, phase.samples = key, 0, (), None, ()
        randomness.seed_all(randomness.mix(phase.seed, *key))
        try:
            yield
        finally:
            phase.key, phase.draws, phase.sizes, phase.rank, phase.samples = kept


def _draw(original: Function) -> Function:
    def draw(*args: Any, **keywords: Any) -> Any:
        phase = randomness.PHASE
        if phase.key is None or phase.apart or INSIDE or not phase.samples or not recording.record().mine:
            return original(*args, **keywords)
        site = recording.site()
        if site is None:
            return original(*args, **keywords)
        at = COUNTS[site]
        COUNTS[site] += 1
        INSIDE.append(True)
        try:
            if at < KNOWN.get(site, 0) * len(phase.samples):
                with for_sample(site, at):
                    return original(*args, **keywords)
            return original(*args, **keywords)
        finally:
            INSIDE.clear()

    return draw


def install(plan: Plan) -> None:
    KNOWN.update(plan.each)
    randomness.TURNED.append(turned)
    for owner, names in ((np.random, OF_NUMPY), (random, OF_PYTHON), (torch, OF_TORCH)):
        for name in names:
            replace(owner, name, _draw)
