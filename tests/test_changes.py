"""What a reader is shown of a finding is what happens to whole lines, and all of it."""

from pathlib import Path

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from plans import plan_of
from shapes import programs

from multicard.edits import Edit, apply, collide, guard, insert_after, insert_before
from multicard.messages import Text
from multicard.plan import Finding, Plan
from multicard.source import Site, parse_text


def lines(text: str) -> list[str]:
    return text.replace("\r\n", "\n").replace("\r", "\n").split("\n")


@settings(suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large], deadline=None)
@given(programs(), st.data())
def test_the_lines_shown_make_the_new_text_of_the_old(text: str, data: st.DataObject) -> None:
    module = parse_text(Path("train.py"), "__main__", text)
    edits: list[Edit] = []
    for statement in module.suites:
        makers = (
            lambda s=statement: (insert_before(module, s, "B"),),
            lambda s=statement: (insert_after(module, s, "A"),),
            lambda s=statement: guard(module, [s], "if g:") or (),
            tuple,
        )
        new = data.draw(st.sampled_from(makers))()
        if not any(collide(a, b) for a in new for b in edits):
            edits += new
    if not edits:
        return
    site = Site(module, next(iter(module.suites)))
    finding = Finding("MC101", site, Text("", ""), tuple(edits))
    [change] = Plan(module, (module,), (finding,), {module: apply(module, edits)}).changes
    old = [line.rstrip() for line in lines(text)]
    for hunk in reversed(change.hunks):
        before, after = ([line.rstrip() for line in part.split("\n")] for part in (hunk.before, hunk.after))
        assert [line or "" for line in old[hunk.line - 1 :][: len(before)]] == before
        old[hunk.line - 1 : hunk.line - 1 + len(before)] = after
    new_lines = [line.rstrip() for line in lines(apply(module, edits).decode())]
    assert [line for line in old if line] == [line for line in new_lines if line]


def test_places_apart_are_shown_apart() -> None:
    change = plan_of(Path("x")).changes[1]
    assert [(hunk.line, hunk.before) for hunk in change.hunks] == [
        (5, "loader = DataLoader(data, shuffle=True)"),
        (12, "sys.exit()"),
    ]
    assert change.after == "loader = DataLoader(data, shuffle=sampler)\n...\nlast()\nsys.exit()"


def test_a_guard_is_shown_with_all_that_it_holds() -> None:
    change = plan_of(Path("x")).changes[3]
    assert change.before == "    if epoch:\n        save(\n            model,\n        )"
    assert change.after == (
        "    if rank == 0:\n        if epoch:\n            save(\n                model,\n            )"
    )


def test_nothing_comes_after_where_nothing_changes() -> None:
    change = plan_of(Path("x")).changes[-1]
    assert (change.before, change.after) == ("sys.exit()", "")
