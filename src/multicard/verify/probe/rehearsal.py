"""What the ranks' shares of a stream would be, if each rank drew its own random numbers.

Under `verify` all ranks read a stream with the same random numbers, so that the original can be given the same. That
hides a stream which is shuffled before each rank takes its share: shuffled alike the shares are apart, and shuffled by
each rank for itself they overlap. So in children, which leave nothing behind, it is read both ways, and what came is
told; whether the ranks do draw their own is known from their generators.
"""

import contextlib
import json
import os
import signal
import time
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from multicard.verify.plan import Plan
from multicard.verify.probe import randomness, streams
from multicard.verify.probe import record as recording

MOST = 4096  # samples
SECONDS = 8
WAIT = 3.0  # for what is still being read when the script has ended
OWN, ALIKE = "own", "alike"
CHILDREN: list[int] = []

Reseeds = Sequence[Callable[[int], object]]


def begin(plan: Plan, loader: Any, key: tuple[str, int], reseeds: Reseeds) -> None:
    """Read the stream of a loader beside its first pass."""
    # what workers draw with is seeded by the script, or by a generator of it
    steered = loader.num_workers > 0 and (loader.worker_init_fn is not None or loader.generator is not None)
    if plan.role != "migrated" or plan.world_size == 1 or steered or not hasattr(os, "fork"):
        return
    for how in (OWN, ALIKE):
        paper = Path(plan.folder) / f"rehearsed-{len(CHILDREN)}"
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of threads, which the child does not use
            child = os.fork()
        if child:
            CHILDREN.append(child)
            continue
        try:
            _quietly()
            number = randomness.mix(plan.seed, *map(ord, key[0]), key[1])
            if how == OWN:
                found = _read(loader, randomness.mix(number, plan.rank + 1), ())
            else:
                found = _read(loader, number, reseeds)
            told = {"key": key, "how": how, "workers": loader.num_workers, **found}
            paper.with_suffix(".part").write_text(json.dumps(told))
            paper.with_suffix(".part").rename(paper)
        finally:
            os._exit(0)


def _quietly() -> None:
    from multicard.verify.probe import boot

    boot.die_with_the_launcher()
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for stream in (1, 2):
        os.dup2(nowhere, stream)
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.alarm(SECONDS)


def _read(loader: Any, seed: int, reseeds: Reseeds) -> dict[str, Any]:
    """The samples of a stream, and which generators were drawn from."""
    with randomness.as_before_training():
        streams.seed(seed, reseeds)
        before = randomness.states()
        batched = loader.batch_sampler is not None
        samples: list[int] = []
        end = time.monotonic() + SECONDS / 2
        for item in loader.dataset:
            samples += streams.samples_of([item], batched=batched)
            if len(samples) >= MOST or time.monotonic() > end:
                break
        drawn = [name for name, state in randomness.states().items() if state != before[name]]
    return {"samples": samples[:MOST], "drawn": drawn}


def told() -> None:
    """Tell what has been read."""
    end = time.monotonic() + WAIT
    for at, child in enumerate(CHILDREN):
        while not _ended(child) and time.monotonic() < end:
            time.sleep(0.02)
        with contextlib.suppress(ProcessLookupError):
            os.kill(child, signal.SIGKILL)
        paper = Path(recording.record().plan.folder) / f"rehearsed-{at}"
        if paper.exists():
            recording.record().write("rehearsed", **json.loads(paper.read_text()))
    CHILDREN.clear()


def _ended(child: int) -> bool:
    try:
        return os.waitpid(child, os.WNOHANG)[0] == child
    except ChildProcessError:
        return True
