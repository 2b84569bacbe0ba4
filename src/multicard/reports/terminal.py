"""The plan for a terminal: what is left to the reader first, then file by file what changes and why."""

from collections.abc import Iterator

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.rule import Rule
from rich.text import Text as Line

from multicard.messages import Language
from multicard.plan import Change, Kind, Plan
from multicard.reports import wording

_STYLE = {"-": "red", "+": "green", " ": "dim"}
_CODE = {Kind.CHANGED: "bold green", Kind.NOTE: "bold cyan", Kind.LEFT: "bold yellow"}


def render(plan: Plan, language: Language) -> RenderableType:
    """What rich prints; without colours where there are none."""
    return Group(*_parts(plan, language))


def _parts(plan: Plan, language: Language) -> Iterator[RenderableType]:
    left = wording.left(plan)
    if left:
        yield Rule(Line(f"{wording.LEFT.to(language)} ({len(left)})", "bold yellow"), style="yellow")
        for change in left:
            yield from _finding(plan, change, language)
    for module, changes in wording.by_file(plan).items():
        yield Rule(Line(wording.name(plan, module), "bold"), style="dim")
        for change in changes:
            yield from _finding(plan, change, language)
    yield Rule(style="dim")
    yield Line(wording.counts(plan).to(language), "bold yellow" if left else "bold green")


def _finding(plan: Plan, change: Change, language: Language) -> Iterator[RenderableType]:
    finding = change.finding
    head = Line(wording.place(plan, finding.site.module, finding.site.line), "bold")
    head.append(f"  {finding.code}", _CODE[finding.kind])
    head.append(f"  {wording.title(finding.code, language)}")
    yield head
    yield Padding(Line(finding.why.to(language)), (0, 0, 0, 2), expand=False)
    if finding.advice:
        yield Padding(Line(f"→ {finding.advice.to(language)}", "yellow"), (0, 0, 0, 2), expand=False)
    for hunk in change.hunks:
        if hunk is not change.hunks[0]:
            yield Line(f"    {wording.place(plan, hunk.module, hunk.line)}", "dim")
        for line in wording.difference(hunk):
            yield Line(
                f"    {line.mark} {line.text}".rstrip(), _STYLE[line.mark], no_wrap=True, overflow="ignore"
            )
    yield Line()
