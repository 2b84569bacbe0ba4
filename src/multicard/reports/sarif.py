"""The findings as SARIF 2.1.0, for code hosts and editors."""

import json
from urllib.parse import quote

from multicard import __version__
from multicard.messages import Language
from multicard.plan import Change, Hunk, Kind, Plan
from multicard.reports import wording
from multicard.rules import RULES
from multicard.source import Module

SCHEMA = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"
_LEVEL = {Kind.CHANGED: "note", Kind.NOTE: "note", Kind.LEFT: "warning"}


def render(plan: Plan, language: Language) -> str:
    """One run: what is left is a warning, everything else a note."""
    codes = list(dict.fromkeys(finding.code for finding in plan.findings))
    run = {
        "tool": {
            "driver": {
                "name": "multicard",
                "version": __version__,
                "language": "zh-CN" if language == "zh" else "en-US",
                "rules": [_rule(code, language) for code in codes],
            }
        },
        "columnKind": "unicodeCodePoints",
        "originalUriBaseIds": {"SCRIPT": {"uri": plan.entry.path.parent.resolve().as_uri() + "/"}},
        "results": [_result(plan, change, codes, language) for change in plan.changes],
    }
    return (
        json.dumps({"$schema": SCHEMA, "version": "2.1.0", "runs": [run]}, ensure_ascii=False, indent=2)
        + "\n"
    )


def _rule(code: str, language: Language) -> dict[str, object]:
    rule = next((rule for rule in RULES if code == rule.CODE), None)
    described: dict[str, object] = {"id": code, "shortDescription": {"text": wording.title(code, language)}}
    if rule is not None and rule.__doc__:
        described["fullDescription"] = {"text": rule.__doc__.strip()}
    return described


def _result(plan: Plan, change: Change, codes: list[str], language: Language) -> dict[str, object]:
    finding = change.finding
    text = finding.why.to(language)
    if finding.advice:
        text += f"\n{wording.ADVICE.to(language)}: {finding.advice.to(language)}"
    module, node = finding.site.module, finding.site.node
    start, end = module.span(node).start, module.span(node).end
    result: dict[str, object] = {
        "ruleId": finding.code,
        "ruleIndex": codes.index(finding.code),
        "level": _LEVEL[finding.kind],
        "message": {"text": text},
        "locations": [
            {
                "physicalLocation": {
                    "artifactLocation": _artifact(plan, module),
                    "region": _region(module, start, end),
                }
            }
        ],
    }
    if finding.edits:
        result["fixes"] = [
            {
                "description": {"text": wording.title(finding.code, language)},
                "artifactChanges": [_replacement(plan, hunk) for hunk in change.hunks],
            }
        ]
    return result


def _artifact(plan: Plan, module: Module) -> dict[str, str]:
    return {"uri": quote(wording.name(plan, module)), "uriBaseId": "SCRIPT"}


def _region(module: Module, start: int, end: int) -> dict[str, int]:
    first, last = module.line_of(start), module.line_of(end)
    return {
        "startLine": first,
        "startColumn": 1 + len(module.data[module.starts[first - 1] : start].decode()),
        "endLine": last,
        "endColumn": 1 + len(module.data[module.starts[last - 1] : end].decode()),
    }


def _replacement(plan: Plan, hunk: Hunk) -> dict[str, object]:
    last = hunk.before.rpartition("\n")[2]
    deleted = {
        "startLine": hunk.line,
        "startColumn": 1,
        "endLine": hunk.line + hunk.before.count("\n"),
        "endColumn": 1 + len(last),
    }
    inserted = hunk.after.replace("\n", hunk.module.newline)
    return {
        "artifactLocation": _artifact(plan, hunk.module),
        "replacements": [{"deletedRegion": deleted, "insertedContent": {"text": inserted}}],
    }
