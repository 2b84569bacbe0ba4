"""From findings to a plan: collisions, names, imports, and a last look whether the result is Python.

Findings are settled in the order of the rules.  One that wants bytes another has taken is left to the reader,
whole.  Names marked in the edits (`«DDP»`) are imported once per module, under another name where the script uses
that name for something of its own.
"""

import ast
import re
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from functools import cached_property

from multicard.edits import Edit, Side, apply, collide, insert_after, insert_before
from multicard.facts import Facts
from multicard.messages import Text
from multicard.plan import Finding, Kind, Plan
from multicard.source import Module, Site, compile_quietly
from multicard.start import start

MARK = re.compile("«([^»]+)»")
IMPORTS = "MC100"
RUNTIME = frozenset(
    {
        "DistributedSampler",
        "EvalSampler",
        "NullWriter",
        "ShardedBatchSampler",
        "ShardedIterable",
        "ShardedSampler",
        "accumulate",
        "all_gather_with_grad",
        "all_reduce_max",
        "all_reduce_mean",
        "all_reduce_min",
        "all_reduce_sum",
        "any_rank",
        "average_gradients",
        "average_over_ranks",
        "batches_of_ranks",
        "broadcast_model",
        "broadcast_value",
        "device_ids",
        "forward_of",
        "gather_in_order",
        "global_batches",
        "global_samples",
        "is_main_process",
        "main_process_first",
        "mean_by_count",
        "mean_over_ranks",
        "own_device",
        "per_card",
        "print_log",
        "save_checkpoint",
        "scale_by_ranks",
        "sum_over_ranks",
        "set_epoch",
        "setup_ddp",
        "shard_batch",
        "share_of",
        "sync_buffers",
        "unwrap",
        "vary_seed",
        "whole_loader",
        "all_trainable",
        "own_buffers",
    }
)
PLAIN = {
    "dist": "import torch.distributed as dist",
    "DDP": "from torch.nn.parallel import DistributedDataParallel as DDP",
    "os": "import os",
    "logging": "import logging",
    "torch": "import torch",
}


@dataclass(eq=False, repr=False)
class _Names:
    """Names that one module takes in, and what they are called there."""

    module: Module
    taken: frozenset[str]
    runtime: str
    needs: dict[str, str] = field(default_factory=dict)
    rank_is_global: bool = False
    there: dict[str, str] = field(default_factory=dict)
    """Marks that were looked for among the module's own imports."""

    @cached_property
    def imports(self) -> list[ast.Import | ast.ImportFrom]:
        """What the module takes in itself, for all of its lines."""
        return [node for node in self.module.tree.body if isinstance(node, ast.Import | ast.ImportFrom)]

    def resolve(self, text: str) -> str:
        """The text with every mark replaced by the name to use."""
        return MARK.sub(lambda found: self.name(found[1]), text)

    def name(self, mark: str) -> str:
        if mark == "rank 0":
            return "rank == 0" if self.rank_is_global else f"{self.name('is_main_process')}()"
        if mark == "not rank 0":
            return "rank != 0" if self.rank_is_global else f"not {self.name('is_main_process')}()"
        known = self.there.get(mark)
        if known is None:
            known = self.there[mark] = self._imported(mark)
        if known:
            return known
        name = mark if mark not in self.taken else f"{mark}_" if mark[0].isupper() else f"ddp_{mark}"
        self.needs[mark] = name
        return name

    def _imported(self, mark: str) -> str:
        """The name under which the module has it already."""
        wanted = {"dist": "torch.distributed", "os": "os", "logging": "logging", "torch": "torch"}.get(mark)
        for node in self.imports:
            if isinstance(node, ast.Import) and wanted:
                for alias in node.names:
                    if alias.name == wanted and (alias.asname or "." not in alias.name):
                        return alias.asname or alias.name
            elif (
                isinstance(node, ast.ImportFrom)
                and mark in RUNTIME
                and node.module in {"ddp_runtime", "multicard.runtime"}
            ):
                for alias in node.names:
                    if alias.name == mark:
                        return alias.asname or alias.name
        return ""

    def lines(self) -> list[str]:
        """The import statements."""
        plain = []
        for mark, line in PLAIN.items():
            if mark in self.needs:
                name = self.needs[mark]
                plain.append(
                    line if name == mark else re.sub(r"(import \S+)( as \S+)?$", rf"\1 as {name}", line)
                )
        helpers = sorted(
            (
                mark if name == mark else f"{mark} as {name}"
                for mark, name in self.needs.items()
                if mark in RUNTIME
            ),
            key=str.lower,
        )
        if helpers:
            one_line = f"from {self.runtime} import {', '.join(helpers)}"
            if len(one_line) <= 100:
                plain.append(one_line)
            else:
                unit = self.module.unit
                rows = "".join(f"{self.module.newline}{unit}{helper}," for helper in helpers)
                plain.append(f"from {self.runtime} import ({rows}{self.module.newline})")
        return plain


def settle(
    facts: Facts,
    findings: Iterable[Finding],
    *,
    runtime: str = "ddp_runtime",
    rank_is_global: bool = False,
) -> Plan:
    """Decide between findings, resolve their names, and make every new text."""
    kept = _without_collisions(findings)
    kept, texts, helpers = _written(facts, kept, runtime, rank_is_global=rank_is_global)
    order = {module: index for index, module in enumerate(facts.modules)}
    kept.sort(key=lambda finding: (order.get(finding.site.module, 0), finding.site.line, finding.code))
    return Plan(facts.program.entry, facts.modules, tuple(kept), texts, helpers, facts.program.above)


def left(finding: Finding, why: Text, advice: Text) -> Finding:
    """The same finding, left to the reader."""
    return Finding(finding.code, finding.site, why, (), advice, Kind.LEFT)


def _same(one: Edit, other: Edit) -> bool:
    return (one.span, one.text, one.side) == (other.span, other.text, other.side)


def _without_collisions(findings: Iterable[Finding]) -> list[Finding]:
    taken: dict[Module, list[Edit]] = {}
    kept: list[Finding] = []
    said: set[tuple[str, Module, ast.AST, str]] = set()
    for finding in findings:
        words = (finding.code, finding.site.module, finding.site.node, finding.why.en)
        if not finding.edits and words in said:
            continue
        said.add(words)
        if finding.edits and all(
            "«broadcast_value»(" in finding.edits[0].text
            and any(_same(mine, other) for other in taken.get(mine.module, ()))
            for mine in finding.edits
        ):
            continue  # another rule broadcasts the very same value
        clash = any(collide(mine, other) for mine in finding.edits for other in taken.get(mine.module, ()))
        if clash:
            kept.append(
                left(
                    finding,
                    Text(
                        f"another change is made to the same code, so this one was not: {finding.why.en}",
                        f"同一处代码已有另一项修改,因此这一项没有改:{finding.why.zh}",
                    ),
                    Text("make this change by hand after the other", "请在另一项修改之后手动完成这一项"),
                )
            )
            continue
        kept.append(finding)
        for edit in finding.edits:
            taken.setdefault(edit.module, []).append(edit)
    return kept


def _written(
    facts: Facts, findings: list[Finding], runtime: str, *, rank_is_global: bool
) -> tuple[list[Finding], dict[Module, bytes], frozenset[str]]:
    """New texts; a module that would not parse loses the findings that break it, one by one."""
    broken: set[int] = set()
    while True:
        current = [
            finding if index not in broken else _broken(finding) for index, finding in enumerate(findings)
        ]
        resolved, helpers = _resolve(facts, current, runtime, rank_is_global=rank_is_global)
        edits: dict[Module, list[Edit]] = {module: [] for module in facts.modules}
        for finding in resolved:
            for edit in finding.edits:
                edits[edit.module].append(edit)
        bad = next((module for module, own in edits.items() if own and not _parses(module, own)), None)
        if bad is None:
            return resolved, {module: apply(module, own) for module, own in edits.items()}, helpers
        culprit = _culprit(findings, broken, bad)
        broken.add(culprit)


def _culprit(findings: list[Finding], broken: set[int], module: Module) -> int:
    """The first finding whose edits, with those before it, break the module."""
    edits: list[Edit] = []
    last = -1
    for index, finding in enumerate(findings):
        own = [edit for edit in finding.edits if edit.module is module]
        if index in broken or not own:
            continue
        edits += [replace(edit, text=MARK.sub("x", edit.text)) for edit in own]
        last = index
        if not _parses(module, edits):
            return index
    return last


def _broken(finding: Finding) -> Finding:
    return left(
        finding,
        Text(
            f"the change could not be written into this line: {finding.why.en}",
            f"无法把修改写进这一行:{finding.why.zh}",
        ),
        Text("make this change by hand", "请手动完成这一项"),
    )


def _parses(module: Module, edits: list[Edit]) -> bool:
    """Whether the module is Python with these edits; definitions that none of them touches are, and are left out."""
    untouched = [
        Edit(module, span, "pass")
        for statement in module.tree.body
        if isinstance(statement, ast.FunctionDef | ast.ClassDef) and not statement.decorator_list
        if (span := module.span(statement))
        and not any(edit.span.start <= span.end and span.start <= edit.span.end for edit in edits)
    ]
    try:
        compile_quietly(apply(module, [*edits, *untouched]).decode(), "migrated")
    except (SyntaxError, ValueError, RecursionError):
        return False
    return True


def _resolve(
    facts: Facts, findings: list[Finding], runtime: str, *, rank_is_global: bool
) -> tuple[list[Finding], frozenset[str]]:
    touched = {edit.module for finding in findings for edit in finding.edits}
    names = {
        module: _Names(
            module,
            facts.bound_names(module),
            runtime,
            rank_is_global=rank_is_global and module is facts.program.entry,
        )
        for module in facts.modules
        if module in touched
    }
    resolved = [
        replace(
            finding,
            edits=tuple(replace(edit, text=names[edit.module].resolve(edit.text)) for edit in finding.edits),
            why=_plain(finding.why),
            advice=_plain(finding.advice) if finding.advice else None,
        )
        for finding in findings
    ]
    place = start(facts)
    imports = [
        finding
        for module, own in names.items()
        if (finding := _import(own, place.before if module is place.module else None)) is not None
    ]
    helpers = frozenset(mark for item in names.values() for mark in item.needs if mark in RUNTIME)
    return [*imports, *resolved], helpers


def _plain(text: Text) -> Text:
    return Text(MARK.sub(r"\1", text.en), MARK.sub(r"\1", text.zh))


def _import(names: _Names, before: ast.stmt | None) -> Finding | None:
    lines = names.lines()
    if not lines:
        return None
    module = names.module
    place, edit = import_place(module, lines, before)
    why = Text("names that the changes below need", "下面的修改要用到的导入")
    return Finding(IMPORTS, Site(module, place), why, (edit,))


def import_place(module: Module, lines: list[str], before: ast.stmt | None) -> tuple[ast.stmt, Edit]:
    """Where new imports go: after the first run of imports, and before the processes start."""
    body = module.tree.body
    last: ast.stmt | None = None
    for statement in body:
        if statement is before:
            break
        if isinstance(statement, ast.Import | ast.ImportFrom):
            last = statement
        elif _may_stand_between(statement):
            continue
        else:
            break
    if last is not None:
        return last, insert_after(module, last, *lines)
    if not body:
        msg = "an empty module needs no imports"
        raise AssertionError(msg)
    first = body[0]
    if (
        isinstance(first, ast.Expr)
        and isinstance(first.value, ast.Constant)
        and isinstance(first.value.value, str)
    ):
        if len(body) > 1:
            return body[1], insert_before(module, body[1], *lines)
        return first, insert_after(module, first, *lines)
    return first, insert_before(module, first, *lines)


def _may_stand_between(statement: ast.stmt) -> bool:
    """Whether a statement among imports changes nothing: docstrings, `warnings`, `sys.path`, `os.environ`."""
    match statement:
        case ast.Expr(value=ast.Constant()):
            return True
        case ast.Expr(
            value=ast.Call(func=ast.Attribute(value=ast.Name(id="warnings" | "matplotlib" | "mpl")))
        ):
            return True
        case ast.Expr(
            value=ast.Call(func=ast.Attribute(value=ast.Attribute(value=ast.Name(id="sys"), attr="path")))
        ):
            return True
        case ast.Assign(
            targets=[ast.Subscript(value=ast.Attribute(value=ast.Name(id="os"), attr="environ"))]
        ):
            return True
        case _:
            return False


__all__ = ["IMPORTS", "RUNTIME", "Side", "left", "settle"]
