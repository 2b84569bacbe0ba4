"""The plan as data, for editors and scripts.

The schema is versioned: names and meanings stay as they are within a version; new keys may come.
"""

import json

from multicard import __version__
from multicard.messages import Language
from multicard.plan import Change, Kind, Plan
from multicard.reports import wording

SCHEMA = 1


def render(plan: Plan, language: Language) -> str:
    """One JSON object, keys in a fixed order."""
    number = {kind.value: sum(finding.kind is kind for finding in plan.findings) for kind in Kind}
    data = {
        "schema": SCHEMA,
        "version": __version__,
        "language": language,
        "script": plan.entry.path.as_posix(),
        "summary": number,
        "files": [
            {"path": wording.name(plan, module), "changed": module in plan.changed} for module in plan.modules
        ],
        "helpers": sorted(plan.helpers),
        "findings": [_finding(plan, change, language) for change in plan.changes],
        "launch": [
            {"what": start.what.to(language), "command": start.command}
            for start in wording.starts(plan.entry.path.name)
        ],
    }
    return json.dumps(data, ensure_ascii=False, indent=2) + "\n"


def _finding(plan: Plan, change: Change, language: Language) -> dict[str, object]:
    finding = change.finding
    site = finding.site
    return {
        "code": finding.code,
        "title": wording.title(finding.code, language),
        "kind": finding.kind.value,
        "path": wording.name(plan, site.module),
        "line": site.line,
        "end_line": site.node.end_lineno,
        "why": finding.why.to(language),
        "advice": finding.advice.to(language) if finding.advice else None,
        "changes": [
            {
                "path": wording.name(plan, hunk.module),
                "line": hunk.line,
                "before": hunk.before.split("\n"),
                "after": hunk.after.split("\n") if hunk.after else [],
            }
            for hunk in (change.hunks if finding.edits else ())
        ],
    }
