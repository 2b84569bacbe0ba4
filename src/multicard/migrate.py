"""From a path to a plan: the whole pipeline up to, but not including, writing.

Everything here is a pure function of source text and options; the command line writes what `Plan.texts` holds.
"""

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal, NamedTuple

from multicard.errors import NothingToDoError
from multicard.facts import Facts
from multicard.messages import Text
from multicard.plan import Finding, Plan
from multicard.program import Program, read_program
from multicard.rules import RULES
from multicard.settle import settle
from multicard.start import start
from multicard.wraps import wrap_models


class Options(NamedTuple):
    """What the user may choose."""

    batch: Literal["per-card", "global"] = "per-card"
    runtime: Literal["vendor", "package"] = "vendor"
    select: frozenset[str] = frozenset()
    """Codes, or beginnings of codes (`MC2`), to keep; empty: all."""
    ignore: frozenset[str] = frozenset()
    """Codes, or beginnings of codes, to leave out."""


DEFAULTS = Options()
_WORDS = (
    b"backward",
    b"istributed",
    b"init_process_group",
    b"Trainer",
    b"accelerate",
    b"deepspeed",
    b"horovod",
)
"""A program without any of these trains nothing and is not distributed: there is no need to follow it."""


def migrate(path: Path, options: Options = DEFAULTS) -> Plan:
    """Read the script and its local modules, and decide every change; raises `MulticardError`."""
    with _uncollected():
        program = read_program(path)
        facts = infer(program, options)
        findings = [
            finding for rule in RULES for finding in facts.findings(rule) if _wanted(finding, options)
        ]
        return settle(
            facts,
            findings,
            runtime="multicard.runtime" if options.runtime == "package" else "ddp_runtime",
            rank_is_global=start(facts).names,
        )


@contextmanager
def _uncollected() -> Iterator[None]:
    """Without garbage collection: nothing becomes garbage on the way, and looking for it takes a fifth of the time."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def infer(program: Program, options: Options = DEFAULTS) -> Facts:
    """What the program does; raises `NothingToDoError` where nothing can be done."""
    name = program.entry.path.name
    if not program.entry.tree.body:
        raise NothingToDoError(Text(f"{name}: the file is empty", f"{name}:文件是空的"))
    unread = "".join(dict.fromkeys(f"; {error.text.en}" for error in program.skipped))
    unread_zh = "".join(dict.fromkeys(f";{error.text.zh}" for error in program.skipped))
    nothing = NothingToDoError(
        Text(
            f"{name}: no training was found: in no loop does a loss go backward into a model that is then changed"
            f"{unread}",
            f"{name}:没有找到训练过程:没有循环对模型做反向传播并更新它{unread_zh}",
        )
    )
    if not any(word in module.data for module in program.modules.values() for word in _WORDS):
        raise nothing
    facts = wrap_models(program)
    distributed = next(iter(facts.events("distributed", dead=False)), None)
    if distributed is not None:
        place = facts.site(distributed.module, distributed.node)
        raise NothingToDoError(
            Text(
                f"{place}: already distributed (`{distributed.name}`);"
                " `multicard verify` compares it with its original",
                f"{place}：脚本已经是分布式的（`{distributed.name}`）；可以用 `multicard verify` 与单卡脚本对比",
            )
        )
    if not facts.trained:
        raise nothing
    facts.batch = options.batch
    return facts


def _wanted(finding: Finding, options: Options) -> bool:
    chosen = not options.select or any(finding.code.startswith(code) for code in options.select)
    return chosen and not any(finding.code.startswith(code) for code in options.ignore)
