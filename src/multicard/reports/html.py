"""The guide's own form of comparison for the user's script, as one page that needs nothing else.

It is what a reader sends to a colleague or reads on a phone, so it holds its own styles and colours and asks
no network for anything.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup
from pygments import highlight
from pygments.formatters.html import HtmlFormatter
from pygments.lexers.python import PythonLexer

from multicard.messages import Language, Text
from multicard.plan import Change, Hunk, Plan
from multicard.reports import wording
from multicard.reports.wording import Line


@dataclass(frozen=True)
class _Row:
    """One line of a column: its mark, its number in the script (before only), its coloured text."""

    mark: str
    number: str
    code: Markup


@dataclass(frozen=True)
class _Comparison:
    """Both columns of one place; the first is empty where code is only added to it."""

    place: str
    before: Sequence[_Row]
    after: Sequence[_Row]


@dataclass(frozen=True)
class _Item:
    """One finding as the page shows it."""

    number: int
    change: Change
    title: str
    place: str
    added: bool
    comparisons: Sequence[_Comparison]


def render(plan: Plan, language: Language) -> str:
    """A whole page."""
    environment = Environment(
        loader=PackageLoader("multicard.reports"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    number = iter(range(1, len(plan.findings) + 1))
    left = [_item(plan, change, next(number), language) for change in wording.left(plan)]
    files = {
        wording.name(plan, module): [_item(plan, change, next(number), language) for change in changes]
        for module, changes in wording.by_file(plan).items()
    }

    def say(text: Text) -> str:
        return text.to(language)

    return environment.get_template("report.html").render(
        colours=_colours(),
        files=files,
        language="zh-CN" if language == "zh" else "en",
        left=left,
        say=say,
        starts=wording.starts(plan.entry.path.name),
        summary=wording.counts(plan),
        title=wording.TITLE.to(language).format(script=plan.entry.path.name),
        words=wording,
    )


def _item(plan: Plan, change: Change, number: int, language: Language) -> _Item:
    site = change.finding.site
    return _Item(
        number,
        change,
        wording.title(change.finding.code, language),
        wording.place(plan, site.module, site.line),
        wording.only_adds(change),
        [_comparison(plan, hunk) for hunk in change.hunks],
    )


def _comparison(plan: Plan, hunk: Hunk) -> _Comparison:
    before, after = wording.sides(hunk)
    return _Comparison(
        wording.place(plan, hunk.module, hunk.line),
        _rows(before, first=hunk.line),
        _rows(after, first=None),
    )


def _rows(lines: Sequence[Line], *, first: int | None) -> list[_Row]:
    """Lines in colour; coloured together, for a string may go over several."""
    code = "".join(f"{line.text}\n" for line in lines)
    coloured = highlight(code, PythonLexer(stripnl=False, ensurenl=False), HtmlFormatter(nowrap=True)).split(
        "\n"
    )
    return [
        _Row(line.mark, "" if first is None else str(first + index), Markup(coloured[index]))  # noqa: S704 - escaped
        for index, line in enumerate(lines)
    ]


def _colours() -> Markup:
    light = HtmlFormatter(style="default").get_style_defs(".code")
    dark = HtmlFormatter(style="monokai").get_style_defs(".code")
    styles = f"{light}\n@media (prefers-color-scheme: dark) {{\n{dark}\n}}"
    return Markup(styles)  # noqa: S704 - no text of the user's
