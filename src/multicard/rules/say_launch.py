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
from collections.abc import Iterable, Iterator

from multicard.edits import Edit, Side, insert, insert_before
from multicard.facts import Facts
from multicard.messages import Text
from multicard.plan import Finding
from multicard.source import Module
from multicard.tree import walk

CODE = "MC105"
TITLE = Text("Say how to launch it", "写明启动命令")

_WHY = Text(
    "one process for each card; plain `python` still runs it on one",
    "每张卡一个进程；直接用 `python` 运行仍然是单卡",
)
_PACKAGE = Text(
    "its own package lies over its folder: an installed copy of it, which was not migrated, must not come first",
    "它自己的包在上一级文件夹里；必须先于已安装的（未迁移的）副本找到它",
)
_COOKIE = r"^[ \t\f]*#.*?coding[:=]"


def find(facts: Facts) -> Iterator[Finding]:
    """One line in the entry script."""
    module = facts.program.entry
    yield Finding(CODE, facts.site(module, module.tree.body[0]), _WHY, (_line(module),))
    if facts.program.above is not None:
        first = next((part for part in module.tree.body if _imports_local(facts, part)), module.tree.body[-1])
        yield Finding(CODE, facts.site(module, first), _PACKAGE, (_found(facts, first),))


def _imports_local(facts: Facts, statement: ast.stmt) -> bool:
    """Whether a statement imports a module of the program's."""
    modules = facts.program.modules
    for node in walk(statement):
        match node:
            case ast.Import(names=names) if any(
                alias.name.partition(".")[0] in _tops(modules) for alias in names
            ):
                return True
            case ast.ImportFrom(module=str(name)) if name.partition(".")[0] in _tops(modules):
                return True
            case _:
                continue
    return False


def _tops(modules: Iterable[str]) -> frozenset[str]:
    return frozenset(name.partition(".")[0] for name in modules)


def _found(facts: Facts, first: ast.stmt) -> Edit:
    """Puts the folder of the script's package behind that of the script, where Python looks for modules."""
    program = facts.program
    assert program.above is not None
    up = "/".join(".." for _ in program.entry.path.resolve().parent.relative_to(program.above).parts)
    before = [node for node in program.entry.tree.body if node.lineno < first.lineno]
    known = {
        alias.name
        for node in before
        if isinstance(node, ast.Import)
        for alias in node.names
        if not alias.asname
    }
    lines = [f"import {name}" for name in ("os", "sys") if name not in known]
    path = f'os.path.abspath(os.path.join(os.path.dirname(__file__), "{up}"))'
    return insert_before(program.entry, first, *lines, f"sys.path.insert(1, {path})")


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
    if first <= len(module.starts) and re.match(_COOKIE, module.line(first)):
        first += 1
    return insert(module, module.starts[first - 1], f"# {launch}{module.newline}", Side.AFTER)


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
