"""Findings, and the plan that they settle into.

Every decision is made over the original text, before anything is written: a finding's edits are applied all or
not at all, findings that want the same bytes do not meet, names that the edits need are imported once, and every
new text is parsed before it counts.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum
from functools import cached_property
from typing import TYPE_CHECKING, Protocol

from multicard.edits import Edit, apply
from multicard.messages import Text
from multicard.source import Module, Site

if TYPE_CHECKING:
    from collections.abc import Iterator

    from multicard.facts import Facts


class Kind(Enum):
    """What a finding asks of the reader."""

    CHANGED = "changed"
    """Done: read why."""
    NOTE = "note"
    """Nothing to do, but know it."""
    LEFT = "left"
    """Not done: `advice` says what to do by hand."""


@dataclass(frozen=True, eq=False)
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

    def find(self, facts: "Facts", /) -> "Iterator[Finding]": ...


@dataclass(frozen=True)
class Change:
    """One finding as a reader sees it: whole lines before and after."""

    finding: Finding
    before: str
    after: str


@dataclass(frozen=True, eq=False)
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
        if not finding.edits:
            line = finding.site.module.line(finding.site.line)
            return Change(finding, line.strip(), "")
        pieces = [_hunk(module, finding.edits) for module in dict.fromkeys(e.module for e in finding.edits)]
        return Change(finding, "\n".join(b for b, _ in pieces), "\n".join(a for _, a in pieces))


def _hunk(module: Module, edits: Sequence[Edit]) -> tuple[str, str]:
    """The lines that edits touch, before and after, gaps shown as `...`."""
    own = sorted((edit for edit in edits if edit.module is module), key=lambda edit: edit.order)
    groups: list[list[Edit]] = []
    for edit in own:
        line = module.line_of(edit.span.start)
        if groups and line <= module.line_of(max(e.span.end for e in groups[-1])) + 1:
            groups[-1].append(edit)
        else:
            groups.append([edit])
    before, after = [], []
    for group in groups:
        first = module.line_of(group[0].span.start)
        last = module.line_of(max(edit.span.end for edit in group))
        start = module.starts[first - 1]
        end = module.starts[last] if last < len(module.starts) else len(module.data)
        new = apply(module, group)
        before.append(module.data[start:end].decode().rstrip())
        after.append(new[start : len(new) - (len(module.data) - end)].decode().rstrip())
    return "\n...\n".join(before), "\n...\n".join(after)

