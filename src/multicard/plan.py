"""Findings, and the plan that they settle into.

Every decision is made over the original text, before anything is written: a finding's edits are applied all
or not at all, findings that want the same bytes do not meet, names that the edits need are imported once, and
every new text is parsed before it counts.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from enum import Enum
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, Protocol

from multicard.edits import Edit, Side, apply
from multicard.messages import Text
from multicard.source import Module, Site

if TYPE_CHECKING:
    from multicard.facts import Facts


class Kind(Enum):
    """What a finding asks of the reader."""

    CHANGED = "changed"
    """Done: read why."""
    NOTE = "note"
    """Nothing to do, but know it."""
    LEFT = "left"
    """Not done: `advice` says what to do by hand."""


@dataclass(frozen=True, eq=False, repr=False)
class Finding:
    """One decision: where, why, and the edits, all or none."""

    code: str
    site: Site
    why: Text
    edits: tuple[Edit, ...] = ()
    advice: Text | None = None
    kind: Kind = Kind.CHANGED


class Rule(Protocol):
    """A rule is a module.  Its docstring is its documentation."""

    CODE: str
    TITLE: Text
    """A few words: what the change is for."""

    def find(self, facts: "Facts", /) -> Iterator[Finding]: ...


class Hunk(NamedTuple):
    """Neighbouring lines of one module, before and after, without their last line end."""

    module: Module
    line: int
    """The first of the lines before, from 1."""
    before: str
    after: str


class Change(NamedTuple):
    """One finding as a reader sees it: whole lines before and after, in one or more places."""

    finding: Finding
    hunks: tuple[Hunk, ...]

    @property
    def before(self) -> str:
        """The lines before; places apart from each other are parted by dots."""
        return "\n...\n".join(hunk.before for hunk in self.hunks)

    @property
    def after(self) -> str:
        """The lines after, or nothing where nothing changes."""
        return "\n...\n".join(hunk.after for hunk in self.hunks) if self.finding.edits else ""


@dataclass(frozen=True, eq=False, repr=False)
class Plan:
    """What will be written, and what is said.  Reports and the command line read this and nothing else."""

    entry: Module
    modules: tuple[Module, ...]
    findings: tuple[Finding, ...]
    """In the order of the script: changed, noted and left, edits resolved."""
    texts: dict[Module, bytes] = field(default_factory=dict)
    """The new UTF-8 data of each module, changed or not."""
    helpers: frozenset[str] = frozenset()
    """Names that the migrated script takes from the runtime."""
    above: Path | None = None
    """The folder over the script's that its own package is found in."""

    @property
    def left(self) -> tuple[Finding, ...]:
        """What is left to the reader."""
        return tuple(finding for finding in self.findings if finding.kind is Kind.LEFT)

    @property
    def changed(self) -> tuple[Module, ...]:
        """The modules whose text changes."""
        return tuple(module for module in self.modules if self.texts[module] != module.data)

    @cached_property
    def changes(self) -> tuple[Change, ...]:
        """Each finding with its own lines before and after, other findings' edits left out."""
        return tuple(self._change(finding) for finding in self.findings)

    def _change(self, finding: Finding) -> Change:
        if finding.edits:
            modules = dict.fromkeys(edit.module for edit in finding.edits)
            return Change(
                finding, tuple(hunk for module in modules for hunk in _hunks(module, finding.edits))
            )
        site = finding.site
        shown = min(site.node.end_lineno or site.line, site.line + _SHOWN - 1)
        start, end = site.module.starts[site.line - 1], _end_of_line(site.module, shown)
        lines = _readable(site.module.data[start:end])
        return Change(finding, (Hunk(site.module, site.line, lines, lines),))


_SHOWN = 5
"""Lines of a statement that are shown where nothing changes."""


def _hunks(module: Module, edits: Sequence[Edit]) -> Iterator[Hunk]:
    """The lines that edits touch, before and after, neighbours together."""
    groups: list[tuple[int, int, list[Edit]]] = []
    for edit in sorted((edit for edit in edits if edit.module is module), key=lambda edit: edit.order):
        reach = edit.reach if edit.side is Side.GUARD and edit.reach else edit.span
        first, last = module.line_of(reach.start), module.line_of(max(reach.start, reach.end))
        if groups and first <= groups[-1][1] + 1:
            begin, end, members = groups.pop()
            groups.append((begin, max(end, last), [*members, edit]))
        else:
            groups.append((first, last, [edit]))
    for first, last, members in groups:
        start, end = module.starts[first - 1], _end_of_line(module, last)
        new = apply(module, members)
        after = new[start : len(new) - (len(module.data) - end)]
        yield Hunk(module, first, _readable(module.data[start:end]), _readable(after))


def _end_of_line(module: Module, number: int) -> int:
    """The byte at which a line ends, its line end included."""
    return module.starts[number] if number < len(module.starts) else len(module.data)


def _readable(data: bytes) -> str:
    """Lines as a reader knows them, whatever their ends."""
    return data.decode().replace("\r\n", "\n").replace("\r", "\n").rstrip()
