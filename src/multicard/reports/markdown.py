"""The guide's own form of comparison for the user's script, as Markdown."""

import re
from collections.abc import Iterator

from multicard.messages import Language
from multicard.plan import Change, Kind, Plan
from multicard.reports import wording
from multicard.reports.wording import Line


def render(plan: Plan, language: Language) -> str:
    """Place, code before, code after, purpose: change by change, what is left to the reader first."""
    return "\n".join(_lines(plan, language))


def _lines(plan: Plan, language: Language) -> Iterator[str]:
    script = plan.entry.path.name
    yield f"# {wording.TITLE.to(language).format(script=_text(script))}\n"
    yield f"{wording.counts(plan).to(language)}\n"
    left = wording.left(plan)
    if left:
        yield f"## {wording.LEFT.to(language)}\n"
        for change in left:
            yield from _left(plan, change, language)
    else:
        yield f"{wording.NOTHING_LEFT.to(language)}\n"
    yield f"## {wording.CHANGES.to(language)}\n"
    number = 0
    for module, changes in wording.by_file(plan).items():
        yield f"### {_code(wording.name(plan, module))}\n"
        for change in changes:
            number += 1
            yield from _change(plan, change, number, language)
    yield f"## {wording.LAUNCH.to(language)}\n"
    yield "```bash"
    for start in wording.starts(script):
        yield f"# {start.what.to(language)}"
        yield start.command
    yield "```\n"


def _left(plan: Plan, change: Change, language: Language) -> Iterator[str]:
    finding = change.finding
    yield f"### {_heading(change, language)}\n"
    yield _field(wording.PLACE.to(language), _code(_place(plan, change)), language)
    yield from _fence([Line(" ", text) for hunk in change.hunks for text in hunk.before.split("\n")])
    yield _field(wording.REASON.to(language), finding.why.to(language), language)
    if finding.advice:
        yield _field(wording.ADVICE.to(language), finding.advice.to(language), language)


def _change(plan: Plan, change: Change, number: int, language: Language) -> Iterator[str]:
    finding = change.finding
    yield f"#### {number}. {_heading(change, language)}\n"
    yield _field(wording.PLACE.to(language), _code(_place(plan, change)), language)
    if finding.edits and wording.only_adds(change):
        for hunk in change.hunks:
            yield _field(wording.ADDED.to(language), wording.neighbour(hunk).to(language), language)
            yield from _fence([line for line in wording.difference(hunk) if line.mark == "+"])
    elif finding.edits:
        for label, lines in zip((wording.BEFORE, wording.AFTER), _columns(change), strict=True):
            yield f"{label.to(language)}{_colon(language)}\n"
            yield from _fence(lines)
    purpose = wording.NOTE if finding.kind is Kind.NOTE else wording.PURPOSE
    yield _field(purpose.to(language), finding.why.to(language), language)
    if finding.advice:
        yield _field(wording.ADVICE.to(language), finding.advice.to(language), language)


def _columns(change: Change) -> tuple[list[Line], list[Line]]:
    before: list[Line] = []
    after: list[Line] = []
    for hunk in change.hunks:
        if before:
            before.append(Line(" ", "..."))
            after.append(Line(" ", "..."))
        left, right = wording.sides(hunk)
        before += left
        after += right
    return before, after


def _heading(change: Change, language: Language) -> str:
    return f"{_text(wording.title(change.finding.code, language))} ({change.finding.code})"


def _place(plan: Plan, change: Change) -> str:
    site = change.finding.site
    return wording.place(plan, site.module, site.line)


def _colon(language: Language) -> str:
    return "：" if language == "zh" else ":"


def _field(label: str, text: str, language: Language) -> str:
    space = "" if language == "zh" else " "
    return f"{label}{_colon(language)}{space}{text}\n"


def _fence(lines: list[Line]) -> Iterator[str]:
    """A block of code; its fence is longer than any that the code holds."""
    code = "\n".join(line.text for line in lines)
    fence = "`" * max(3, 1 + max((len(run) for run in re.findall("`+", code)), default=0))
    yield f"{fence}python"
    yield code
    yield f"{fence}\n"


def _code(text: str) -> str:
    return f"`{text}`" if "`" not in text else f"`` {text} ``"


def _text(text: str) -> str:
    """Words that Markdown takes as they are: `my_train_v2.py` is no emphasis."""
    return re.sub(r"([\\`*_\[\]<>#|])", r"\\\1", text)
