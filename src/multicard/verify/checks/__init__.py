"""The checks: each asks one question of the two runs' records, and answers it by itself.

Pure functions of what was recorded, without torch.
"""

from collections.abc import Callable

from multicard.verify.checks import outputs, ranks, samples, steps, streams
from multicard.verify.evidence import Pair
from multicard.verify.verdict import Check

CHECKS: tuple[Callable[[Pair], Check], ...] = (
    steps.check_steps,
    steps.check_start,
    steps.check_loss,
    steps.check_gradients,
    steps.check_rate,
    steps.check_trained,
    steps.check_updates,
    steps.check_buffers,
    steps.check_models,
    ranks.check_ranks,
    ranks.check_rank_buffers,
    samples.check_dealt,
    samples.check_order,
    samples.check_content,
    ranks.check_noise,
    samples.check_evaluated,
    outputs.check_printed,
    outputs.check_once,
    outputs.check_files,
    outputs.check_writers,
)


def compare(pair: Pair) -> list[Check]:
    return streams.excused(pair, [question(pair) for question in CHECKS])
