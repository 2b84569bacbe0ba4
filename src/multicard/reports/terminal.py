"""The plan for a terminal, in colours, broken where the terminal ends."""

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.rule import Rule
from rich.text import Text

from multicard.messages import Language
from multicard.plan import Plan
from multicard.reports.lines import Line, lines


def render(plan: Plan, language: Language) -> RenderableType:
    """What rich prints; without colours where there are none."""
    return Group(*(_line(line) for line in lines(plan, language)))


def _line(line: Line) -> RenderableType:
    whole = line.what == "code"
    text = Text.assemble(*line.parts, no_wrap=whole or None, overflow="ignore" if whole else None)
    match line.what:
        case "rule":
            return Rule(text, style=line.style)
        case "said":
            return Padding(text, (0, 0, 0, 2), expand=False)
        case _:
            return text
