"""Say in the script how it is launched now.

Who opens the file next month must not have to remember: `python train.py` is one card still, `torchrun` is many.  The
line goes under the one that says `python train.py`, or to the top as a comment.

Before:

    import torch

After:

    # torchrun --nproc-per-node=2 train.py
    import torch
"""

import ast
import re
from collections.abc import Iterator

from multicard.edits import Edit, insert
from multicard.facts import Facts
from multicard.messages import Text
from multicard.plan import Finding
from multicard.source import Module

CODE = "MC105"
TITLE = Text("Say how to launch it", "写明启动命令")

_WHY = Text(
    "one process for each card; plain `python` still runs it on one",
    "每张卡一个进程；直接用 `python` 运行仍然是单卡",
)
_COOKIE = re.compile(r"^[ \t\f]*#.*?coding[:=]")


def find(facts: Facts) -> Iterator[Finding]:
    """One line in the entry script."""
    module = facts.program.entry
    yield Finding(CODE, facts.site(module, module.tree.body[0]), _WHY, (_line(module),))


def _line(module: Module) -> Edit:
    name = module.path.name
    launch = f"torchrun --nproc-per-node=2 {name}"
    number = _said_in_docstring(module, name)
    if number:
        line = module.line(number)
        before = re.match(r"[ \t]*(?:[$>]+ )?", line)
        start = before[0] if before else ""
        end = module.starts[number - 1] + len(line.encode())
        return insert(module, end, f"{module.newline}{start}{launch}")
    first = 1
    if module.line(1).startswith("#!"):
        first = 2
    if first <= len(module.starts) and _COOKIE.match(module.line(first)):
        first += 1
    return insert(module, module.starts[first - 1], f"# {launch}{module.newline}")


def _said_in_docstring(module: Module, name: str) -> int:
    """The line of the docstring that says `python train.py`, if it stands alone there."""
    body = module.tree.body
    match body:
        case [ast.Expr(value=ast.Constant(value=str())) as first, *_]:
            pattern = re.compile(rf"^[ \t]*(?:[$>]+ )?python3? (?:\S*/)?{re.escape(name)}\b[^\"']*$")
            last = (first.end_lineno or first.lineno) - 1
            lines = range(first.lineno + 1, last + 1)
            return next((number for number in lines if pattern.match(module.line(number))), 0)
        case _:
            return 0
