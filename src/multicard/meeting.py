"""Where ranks may meet, and where they must: barriers for what rank 0 writes, and places that not all ranks reach.

A collective that one rank does not come to is a hang, and nothing says where.  Every rule of output that puts one into
a script asks here.
"""

import ast
import re
from collections.abc import Iterator, Sequence

from multicard.edits import Side, insert_before
from multicard.effects import running_kinds
from multicard.facts import Facts
from multicard.interpret import Event, Loop
from multicard.messages import Text
from multicard.plan import Finding, Kind, Rule
from multicard.reach import (
    below,
    guarded,
    happens_within,
    homes,
    in_batches,
    only_in,
    per_sample,
    reached,
    tests_existence,
)
from multicard.source import Module, Span
from multicard.start import start
from multicard.tree import held
from multicard.values import data_of

_COLLECTIVE = re.compile(
    r"«(broadcast_value|all_reduce_\w+|gather_in_order|sync_buffers|any_rank|average_gradients|average_over_ranks|broadcast_model"
    r"|all_gather_with_grad|batches_of_ranks|mean_by_count|(sum|mean)_over_ranks)»|«dist»\.barrier"
)

_OWNED = (ast.stmt, ast.Lambda)
Places = tuple[tuple[Module, int], ...]

_UNSEEN = Text("it was not seen to run on every rank", "看不到它在每张卡上都会执行")


def meets(facts: Facts, *roots: ast.AST) -> bool:
    """Whether another rule makes ranks meet inside some nodes, or in what they call."""
    return _holds(facts, _meetings(facts), *roots)


def counts_together(facts: Facts, *roots: ast.AST) -> bool:
    """Whether ranks put their losses, metrics or buffers together inside some nodes, or in what they call."""
    return _holds(facts, _countings(facts), *roots)


def _holds(facts: Facts, places: Places, *roots: ast.AST) -> bool:
    if not places:
        return False
    owners = _owners(facts)
    regions = [*roots, *reached(facts, *roots)]
    return any(
        module is owners.get(region, module) and module.span(region).start <= offset < module.span(region).end
        for region in regions
        for module, offset in places
        if region in owners
    )


def _meetings(facts: Facts) -> Places:
    """Where other rules put collectives."""
    from multicard.rules import agree_to_stop

    _preparations(facts)
    found = facts.settle("meetings", (), lambda: (*_countings(facts), *_places(facts, agree_to_stop)))
    assert isinstance(found, tuple)
    return found


def _countings(facts: Facts) -> Places:
    from multicard.rules import evaluate_inside, share_batches, total_metrics, whole_loss

    _preparations(facts)
    rules = (evaluate_inside, share_batches, total_metrics, whole_loss)
    found = facts.settle("countings", (), lambda: tuple(p for rule in rules for p in _places(facts, rule)))
    assert isinstance(found, tuple)
    return found


def _preparations(facts: Facts) -> frozenset[ast.stmt]:
    """What one process prepares for the others, which comes before every question where ranks meet."""
    from multicard.rules.prepare_once import first_statements

    return first_statements(facts)


def _places(facts: Facts, rule: Rule) -> Places:
    return tuple(
        (finding.site.module, finding.site.module.span(finding.site.node).start)
        for finding in facts.findings(rule)
        if any(_COLLECTIVE.search(edit.text) for edit in finding.edits)
    )


def _owners(facts: Facts) -> dict[ast.AST, Module]:
    """The module of each statement and function."""
    found = facts.memo.get("owners")
    if found is None:
        found = {
            node: module
            for module in facts.modules
            for kind, some in running_kinds(facts, module).items()
            if issubclass(kind, _OWNED)
            for node in some
        }
        facts.memo["owners"] = found
    assert isinstance(found, dict)
    return found


def rank_0_only(facts: Facts, event: Event) -> bool:
    """Whether an event happens only on rank 0 after migration: under a call that `main_process_work` guards."""
    from multicard.rules.main_process_work import kept_calls

    kept = kept_calls(facts)
    return any(call in kept for call in (event.node, *event.calls))


def kept_by_rank_0(facts: Facts, module: Module, node: ast.AST) -> bool:
    """Whether a node runs only under calls that `main_process_work` guards."""
    from multicard.rules.main_process_work import kept_calls

    return only_in(facts, module, node, kept_calls(facts))


def prepared(facts: Facts, module: Module, node: ast.AST) -> bool:
    """Whether a node runs only where `prepare_once` lets one process of each machine go first."""
    return only_in(facts, module, node, _preparations(facts))


def amid_preparation(facts: Facts, event: Event) -> bool:
    """Whether one process of each machine comes here before the others: no place for them to meet."""
    first = _preparations(facts)
    return bool(first) and happens_within(facts, event, first)


def where_to_wait(
    facts: Facts, event: Event, written: Sequence[Event] = ()
) -> tuple[Module, ast.stmt] | Text:
    """The statement before which all ranks must wait for a file of rank 0's, or why they cannot.

    It stands outside of every test whether the file exists, which a rank may make too early, and of every branch that
    ranks may take differently; but after what was `written`.
    """
    if event.dead or per_sample(facts, event.module, event.node):
        return _UNSEEN
    if in_batches(facts, event):
        return Text(in_batches(facts, event), "它在按批次的循环里,各卡的批次数可能不同")
    home = homes(facts)
    chain = [(event.module, event.node)]
    chain += [(home[call], call) for call in reversed(event.calls) if call in home and call is not event.node]
    place = (event.module, facts.statement(event.module, event.node))
    for module, node in chain:
        inner: ast.AST = node
        for outer in facts.ancestors(module, node):
            if isinstance(outer, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
                break
            before = (other for other in written if other.order < event.order)
            holds = any(held(outer) & {other.node, *other.calls} for other in before)
            match outer:
                case ast.If(test=test) if inner is not test and _may_part(facts, module, test):
                    if holds:
                        return Text(
                            "it is written and read in one branch, which ranks may take differently",
                            "写入和读取在同一分支里,而各进程可能走不同的分支",
                        )
                    place = (module, outer)
                case ast.Try(body=body) if inner in body and outer.handlers and not holds:
                    place = (module, outer)
                case ast.With(items=items) if (
                    inner not in items and not holds and any(_opens(item) for item in items)
                ):
                    place = (module, outer)
                case _:
                    pass
            inner = outer
    module, statement = place
    while isinstance(parent := facts.parents(module)[statement], ast.If) and parent.orelse == [statement]:
        if not isinstance(statement, ast.If):
            break
        statement = parent
    return no_meeting(facts, module, statement) or (module, statement)


def _may_part(facts: Facts, module: Module, test: ast.expr) -> bool:
    """Whether ranks may answer a test differently: by what is on the disk, or by values of their own."""
    start_of_test = module.span(test).start
    if any(where is module and offset == start_of_test for where, offset in _meetings(facts)):
        return False
    return bool(tests_existence(facts, test)) or data_of(facts.values(test)).local


def no_meeting(facts: Facts, module: Module, node: ast.AST) -> Text | None:
    """Why ranks cannot wait for each other at a place: not all of them come there equally often; None if they do."""
    if before_start(facts, module, node):
        return Text("it runs on import, before the ranks have started", "它在导入时执行,早于进程启动")
    if per_sample(facts, module, node):
        return Text("worker processes come here", "数据加载进程会执行到这里")
    ways = list(_ways(facts, module, node))
    if not ways:
        return _UNSEEN
    for event, loops in ways:
        if rank_0_only(facts, event):
            return Text("rank 0 also comes here alone", "主进程也会单独执行到这里")
        if amid_preparation(facts, event):
            return Text("one process comes here before the others", "这里由一个进程先执行")
        if any(loop.loaders and (loop.node, loop.calls) not in facts.training_frames for loop in loops):
            return Text("ranks may come here a different number of times", "各卡到这里的次数可能不同")
    return None


def _ways(facts: Facts, module: Module, node: ast.AST) -> Iterator[tuple[Event, list[Loop]]]:
    """Events that tell how code is reached, each with the loops round it: its own, or others of its function."""
    statement = facts.statement(module, node)
    inside = held(statement)
    own = [event for event in below(facts, statement) if not event.dead]
    if own:
        for event in own:
            yield (
                event,
                [loop for loop in event.loops if loop.node not in inside and not inside & set(loop.calls)],
            )
        return
    scope = facts.scope(module, node)
    for event in facts.run.events:
        if (
            not event.dead
            and event.module is module
            and event.frames
            and (event.frames[-1].node or module.tree) is scope
        ):
            yield (
                event,
                [
                    loop
                    for loop in event.loops
                    if loop.node not in held(scope) or statement in held(loop.node)
                ],
            )


def _opens(item: ast.withitem) -> bool:
    match item.context_expr:
        case ast.Call(func=ast.Name(id="open") | ast.Attribute(attr="open")):
            return True
        case _:
            return False


def before_start(facts: Facts, module: Module, node: ast.AST) -> bool:
    """Whether code runs while a local module is imported, before the processes have started."""
    if module is facts.program.entry or facts.function(module, node) is not None:
        return False
    return not isinstance(start(facts).before, ast.Import | ast.ImportFrom)


def follows(written: Event, read: Event) -> bool:
    """Whether a write comes before a read in this run, also in an earlier turn of a loop round both."""
    together = {(loop.node, loop.calls) for loop in written.loops} & {
        (loop.node, loop.calls) for loop in read.loops
    }
    return not written.dead and (written.order < read.order or bool(together))


def waits(facts: Facts, code: str, reads: list[tuple[Event, list[Event]]]) -> Iterator[Finding]:
    """A barrier before each read of what rank 0 has written; one for several in a row."""
    waited: Event | None = None
    for read, written in reads:
        if (
            rank_0_only(facts, read)
            or guarded(facts, read.module, read.node)
            or amid_preparation(facts, read)
        ):
            continue
        if waited is not None and _still_fresh(written, waited, read):
            continue
        place = where_to_wait(facts, read, written)
        if isinstance(place, Text):
            yield Finding(
                code,
                facts.site(read.module, read.node),
                Text(
                    f"this rank may read the file before rank 0 has written it: {place.en}",
                    f"可能在主进程写完之前就读取文件:{place.zh}",
                ),
                (),
                Text(
                    "call `dist.barrier()` where all ranks come, after it is written and before this",
                    "请在写入之后、读取之前,在所有进程都会执行到的地方调用 `dist.barrier()`",
                ),
                Kind.LEFT,
            )
            continue
        module, statement = place
        waited = read
        done = facts.answers.get("barriers", frozenset())
        assert isinstance(done, frozenset)
        if statement in done:
            continue
        facts.answers["barriers"] = done | {statement}
        yield Finding(
            code,
            facts.site(module, statement),
            Text(
                "rank 0 writes the file; the others must wait until it is there",
                "文件由主进程写入,其他进程要等它写完再读",
            ),
            (insert_before(module, statement, "«dist».barrier()"),),
        )


def _still_fresh(written: list[Event], waited: Event, read: Event) -> bool:
    """Whether all that was written was waited for by an earlier read of the same turn."""
    same_loops = [loop.node for loop in waited.loops] == [loop.node for loop in read.loops]
    return same_loops and not any(waited.order < event.order < read.order for event in written)


def evaluated_by_rank_0(facts: Facts, module: Module, node: ast.AST) -> bool:
    """Whether other rules put a node under a guard, or into `... if rank == 0 else ...`: no rank but 0 sees it."""
    span = module.span(node)
    return any(where is module and reach.holds(span) for where, reach in _left_to_rank_0(facts))


def _left_to_rank_0(facts: Facts) -> tuple[tuple[Module, Span], ...]:
    from multicard.rules import print_once, save_once, show_progress_once, write_files_once

    rules = (print_once, save_once, show_progress_once, write_files_once)
    _preparations(facts)
    found = facts.settle(
        "left to rank 0", (), lambda: tuple(p for rule in rules for p in _guards(facts, rule))
    )
    assert isinstance(found, tuple)
    return found


def _guards(facts: Facts, rule: Rule) -> Iterator[tuple[Module, Span]]:
    for finding in facts.findings(rule):
        for edit in finding.edits:
            if edit.reach is not None and (
                edit.side is Side.GUARD or (edit.side is Side.CLOSE and "if «rank 0»" in edit.text)
            ):
                yield edit.module, edit.reach
