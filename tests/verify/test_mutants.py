"""The scripts that judge `verify` are what their manifests say, as far as that can be seen unrun.

A mutant whose edit no longer applies would be a correct script, and one that does not compile would be caught
for the wrong reason: both would make `verify` look better or worse than it is.
"""

import ast
import re
from pathlib import Path

import pytest
from mutants import Correct, EditError, Mutant, correct, edited, manifest, mutants, write_pair

CODES = re.compile(r"MC[1-5]0[1-8]")
MODES = 91


SCRIPTS: list[Correct | Mutant] = [*correct().values(), *mutants().values()]


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.name)
def test_compiles(script: Correct | Mutant) -> None:
    compile(script.text, script.name, "exec")


def test_every_mutant_is_another_program() -> None:
    trees = [ast.dump(ast.parse(script.text)) for script in SCRIPTS]
    assert len(set(trees)) == len(trees)


def test_there_are_enough_mutants_of_every_program() -> None:
    bases = [mutant.base.program for mutant in mutants().values()]
    assert len(bases) >= 36
    assert set(bases) == {script.program for script in correct().values()}


@pytest.mark.parametrize("kind", ["variants", "mutants"])
def test_names_are_given_once(kind: str) -> None:
    [entries] = manifest(kind).values()
    names = [entry["name"] for entry in entries]
    assert len(set(names)) == len(names)


@pytest.mark.parametrize("mutant", mutants().values(), ids=lambda mutant: mutant.name)
def test_says_what_is_expected(mutant: Mutant) -> None:
    assert mutant.outcome in {"differs", "hangs", "dies"}
    assert mutant.modes
    assert all(1 <= mode <= MODES for mode in mutant.modes)
    assert all(CODES.fullmatch(code) for code in mutant.codes)
    assert mutant.codes or mutant.says


@pytest.mark.parametrize("script", correct().values(), ids=lambda script: script.name)
def test_needs_nothing_of_ours(script: Correct) -> None:
    names = {
        name.partition(".")[0]
        for node in ast.walk(ast.parse(script.text))
        if isinstance(node, ast.Import | ast.ImportFrom)
        for name in (
            [node.module] if isinstance(node, ast.ImportFrom) else [alias.name for alias in node.names]
        )
        if name
    }
    assert not names & {"multicard", "ddp_runtime"}
    assert "torch" in names


@pytest.mark.parametrize(("text", "times"), [("a b", 0), ("aba", 0), ("x y x", 2)])
def test_an_edit_is_found_exactly_once(text: str, times: int) -> None:
    with pytest.raises(EditError, match=f"found {times} times"):
        edited(text, (("x", "z"),))


def test_edits_are_made_in_turn() -> None:
    assert edited("a\nb\nc\n", (("b\n", ""), ("a\nc", "d"))) == "d\n"


def test_writes_both_scripts(tmp_path: Path) -> None:
    mutant = next(iter(mutants().values()))
    original, migrated = write_pair(tmp_path, mutant)
    assert original.read_text("utf-8") == mutant.base.single
    assert migrated.read_text("utf-8") == mutant.text
