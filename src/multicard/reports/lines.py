"""The plan line by line, each part with its style: what a terminal shows in colours, and a file or a pipe without.

What is left to the reader comes first, then file by file what changes and why.
"""

from collections.abc import Iterator
from typing import Literal, NamedTuple

from multicard.messages import Language
from multicard.plan import Change, Kind, Plan
from multicard.reports import wording

_STYLE = {"-": "red", "+": "green", " ": "dim"}
_CODE = {Kind.CHANGED: "bold green", Kind.NOTE: "bold cyan", Kind.LEFT: "bold yellow"}


class Part(NamedTuple):
    """Words of one style."""

    text: str
    style: str = ""


class Line(NamedTuple):
    """One line, however long.  `said` may be broken where the terminal ends, `code` never is, a `rule` goes across."""

    what: Literal["rule", "head", "said", "code"]
    parts: tuple[Part, ...] = ()
    style: str = ""
    """Of the rule itself."""

    def __str__(self) -> str:
        """The line without colours."""
        text = "".join(part.text for part in self.parts)
        if self.what == "rule":
            return f"-- {text} --" if text else "--"
        return f"  {text}" if self.what == "said" else text


def lines(plan: Plan, language: Language) -> Iterator[Line]:
    """All lines of the report."""
    left = wording.left(plan)
    if left:
        yield Line("rule", (Part(f"{wording.LEFT.to(language)} ({len(left)})", "bold yellow"),), "yellow")
        for change in left:
            yield from _finding(plan, change, language)
    for module, changes in wording.by_file(plan).items():
        yield Line("rule", (Part(wording.name(plan, module), "bold"),), "dim")
        for change in changes:
            yield from _finding(plan, change, language)
    yield Line("rule", (), "dim")
    yield Line("head", (Part(wording.counts(plan).to(language), "bold yellow" if left else "bold green"),))


def _finding(plan: Plan, change: Change, language: Language) -> Iterator[Line]:
    finding = change.finding
    place = Part(wording.place(plan, finding.site.module, finding.site.line), "bold")
    code = Part(f"  {finding.code}", _CODE[finding.kind])
    yield Line("head", (place, code, Part(f"  {wording.title(finding.code, language)}", "bold")))
    yield Line("said", (Part(finding.why.to(language)),))
    if finding.advice:
        yield Line("said", (Part(f"→ {finding.advice.to(language)}", "yellow"),))
    for hunk in change.hunks:
        if hunk is not change.hunks[0]:
            yield Line("head", (Part(f"    {wording.place(plan, hunk.module, hunk.line)}", "dim"),))
        for line in wording.difference(hunk):
            yield Line("code", (Part(f"    {line.mark} {line.text}".rstrip(), _STYLE[line.mark]),))
    yield Line("head")


def render(plan: Plan, language: Language) -> str:
    """The lines as they are, for a file or a pipe: none is broken."""
    return "".join(f"{line}\n" for line in lines(plan, language))
