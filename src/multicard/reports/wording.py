"""What all reports say, in both languages, and how they name files, places and differences.

Without one source of words the terminal, the page and the data would slowly come to say different things.
"""

import textwrap
from collections.abc import Iterator, Sequence
from difflib import SequenceMatcher
from os.path import relpath
from pathlib import Path
from typing import Literal, NamedTuple

from multicard.messages import Language, Text
from multicard.plan import Change, Hunk, Kind, Plan
from multicard.rules import RULES
from multicard.settle import IMPORTS
from multicard.source import Module

LEFT = Text("Left to you", "留给你处理")
CHANGES = Text("Changes, in the order of the script", "逐项对比（按脚本顺序）")
PLACE = Text("Place", "位置")
BEFORE = Text("Single card", "原写法")
AFTER = Text("Multi-card", "改后写法")
ADDED = Text("Added", "新增代码")
PURPOSE = Text("Purpose", "作用")
REASON = Text("Reason", "原因")
ADVICE = Text("What to do", "怎么做")
NOTE = Text("Note", "注意")
NOTHING_LEFT = Text("Nothing is left to you.", "没有需要你手动处理的地方。")
LAUNCH = Text("How to start it", "启动命令")
TITLE = Text("{script}: from one card to many", "{script}：从单卡到多卡")
WRITTEN = Text("written", "已写入")
NOT_WRITTEN = Text(
    "nothing was written: add -o DIR, or --in-place", "没有写入任何文件：加 -o 目录 或 --in-place 才会写入"
)

Mark = Literal["-", "+", " "]


class Line(NamedTuple):
    """One line of a difference."""

    mark: Mark
    text: str


class Start(NamedTuple):
    """One way of starting the script."""

    what: Text
    command: str


def title(code: str, language: Language) -> str:
    """What a finding is about, in a few words; a code of no rule speaks for itself."""
    if code == IMPORTS:
        return Text("Import what is needed", "导入").to(language)
    return next((rule.TITLE.to(language) for rule in RULES if code == rule.CODE), code)


def name(plan: Plan, module: Module) -> str:
    """A module as seen from the folder of the script."""
    return Path(relpath(module.path, plan.entry.path.parent)).as_posix()


def place(plan: Plan, module: Module, line: int) -> str:
    """A place as editors understand it: `models/net.py:12`."""
    return f"{name(plan, module)}:{line}"


def by_file(plan: Plan) -> dict[Module, list[Change]]:
    """What is not left to the reader, file by file, the script first."""
    files: dict[Module, list[Change]] = {plan.entry: []}
    for change in plan.changes:
        if change.finding.kind is not Kind.LEFT:
            files.setdefault(change.finding.site.module, []).append(change)
    return {module: changes for module, changes in files.items() if changes}


def left(plan: Plan) -> list[Change]:
    """What is left to the reader."""
    return [change for change in plan.changes if change.finding.kind is Kind.LEFT]


def counts(plan: Plan) -> Text:
    """How much was done, noted and left."""
    number = {kind: sum(finding.kind is kind for finding in plan.findings) for kind in Kind}
    done, noted, rest = number[Kind.CHANGED], number[Kind.NOTE], number[Kind.LEFT]
    files = len(plan.changed)
    return Text(
        f"{_many(done, 'change')} in {_many(files, 'file')}, {_many(noted, 'note')}, {rest} left to you",
        f"{files} 个文件共改动 {done} 处，提示 {noted} 条，留给你处理 {rest} 处",
    )


def _many(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def starts(script: str) -> tuple[Start, ...]:
    """How the migrated script is started."""
    quoted = f'"{script}"' if " " in script else script
    return (
        Start(Text("one card, as before", "单卡，与原来相同"), f"python {quoted}"),
        Start(Text("2 cards", "2 张卡"), f"torchrun --nproc-per-node=2 {quoted}"),
        Start(Text("4 cards", "4 张卡"), f"torchrun --nproc-per-node=4 {quoted}"),
        Start(
            Text("2 machines of 8 cards, the same on both", "2 台机器各 8 张卡，两台上执行同一条命令"),
            f"torchrun --nnodes=2 --nproc-per-node=8 --rdzv-backend=c10d --rdzv-endpoint=HOST:29500 {quoted}",
        ),
    )


def difference(hunk: Hunk) -> list[Line]:
    """The lines of both sides, marked, without the indentation that all of them have."""
    before, after = _sides(hunk)
    lines: list[Line] = []
    for tag, a, b, c, d in SequenceMatcher(None, before, after, autojunk=False).get_opcodes():
        if tag == "equal":
            lines += [Line(" ", text) for text in before[a:b]]
        else:
            lines += [Line("-", text) for text in before[a:b]]
            lines += [Line("+", text) for text in after[c:d]]
    return lines


def only_adds(change: Change) -> bool:
    """Whether every line before is there after: the guide calls such code added."""
    return all(line.mark != "-" for hunk in change.hunks for line in difference(hunk))


def neighbour(hunk: Hunk) -> Text:
    """Beside which line of the script code is added."""
    lines = difference(hunk)
    first = next((index for index, line in enumerate(lines) if line.mark == "+"), 0)
    if first and lines[first - 1].text.strip():
        line = lines[first - 1].text.strip()
        return Text(f"after `{line}`", f"在 `{line}` 之后")
    line = next((line.text.strip() for line in lines[first:] if line.mark == " " and line.text.strip()), "")
    return Text(f"before `{line}`", f"在 `{line}` 之前") if line else Text("at the end", "在末尾")


def _sides(hunk: Hunk) -> tuple[Sequence[str], Sequence[str]]:
    before, after = hunk.before.split("\n"), hunk.after.split("\n")
    if not hunk.after.strip():
        after = []
    together = textwrap.dedent("\n".join((*before, *after))).split("\n")
    return together[: len(before)], together[len(before) :]


def sides(hunk: Hunk) -> Iterator[list[Line]]:
    """The two columns of a comparison."""
    lines = difference(hunk)
    for other in ("+", "-"):
        yield [line for line in lines if line.mark != other]
