"""The rules, in the order in which their findings are settled."""

from typing import cast

from multicard.plan import Rule
from multicard.rules import finish_processes, start_processes, wrap_model

RULES: tuple[Rule, ...] = cast(
    "tuple[Rule, ...]",
    (
        start_processes,
        wrap_model,
        finish_processes,
    ),
)
