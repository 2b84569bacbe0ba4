"""`verify` on whole scripts: correct ones are never failed, and of every mutant the right cause is named.

Slow. Torch is imported once for all runs. A sample is proved by default, so that the suite stays short; `make proofs`
proves every correct script on every number of ranks and every mutant, and `MULTICARD_SEEDS=50` each correct script with
fifty seeds.
"""

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from forkserver import Server, serving
from mutants import PROGRAMS, Correct, Mutant, correct, mutants, write_pair

from multicard.migrate import migrate
from multicard.verify.prove import prove
from multicard.verify.trial import Options
from multicard.verify.verdict import Verdict
from multicard.write import files_in, write

pytestmark = pytest.mark.slow
SEEDS = range(int(os.environ.get("MULTICARD_SEEDS", "1")))
HANG = 20.0  # seconds within which a hang must be reported, once it is one
TRAINING = 40.0  # and what the start of the processes and training until then may take on a crowded machine


@pytest.fixture(scope="module", autouse=True)
def server() -> Iterator[Server]:
    with serving() as started:
        yield started


def verdict_of(folder: Path, script: Correct | Mutant, nproc: int = 2, seed: int = 0) -> Verdict:
    original, migrated = write_pair(folder, script)
    options = Options(original, migrated, nproc=nproc, seed=seed, working=folder, timeout=300)
    return prove(options, lambda *_: None)


def told(verdict: Verdict) -> str:
    """What a reader of a failed test wants to see."""
    lines = [f"{c.state} {c.name}: {c.detail.en} {c.cause}" for c in verdict.checks if c.state != "held"]
    return "\n".join([verdict.ended, *lines, *map(str, verdict.where), verdict.traceback])


ALL = os.environ.get("MULTICARD_PROOFS") == "all"
SAMPLE = {
    "all_ranks_print",
    "early_stop_on_one_rank",
    "exception_on_one_rank",
    "no_set_epoch",
    "not_wrapped",
    "padded_evaluation",
    "prefix_in_checkpoint",
    "sampler_missing",
    "stream_not_dealt_out",
    "summed_loss",
    "trained_through_module",
}
CORRECT = [
    (script, nproc)
    for script in correct().values()
    for nproc in script.processes
    if (ALL and nproc > 1) or (nproc == 2 and script.name.endswith("/ddp.py"))
]
MUTANTS = [mutant for mutant in mutants().values() if ALL or mutant.name in SAMPLE]


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize(
    ("script", "nproc"), CORRECT, ids=[f"{script.name}-{nproc}" for script, nproc in CORRECT]
)
def test_a_correct_script_is_the_same(script: Correct, nproc: int, seed: int, tmp_path: Path) -> None:
    verdict = verdict_of(tmp_path, script, nproc, seed)
    assert verdict.exit_code == 0, told(verdict)
    assert verdict.steps >= 10


@pytest.mark.parametrize("program", ["by_hand", "stream"])
def test_what_migrate_makes_is_the_same(program: str, tmp_path: Path) -> None:
    original = tmp_path / "single.py"
    shutil.copy(PROGRAMS / program / original.name, original)
    entry, files = files_in(tmp_path / "multi", migrate(original), "vendor")
    write(files)
    verdict = prove(Options(original, entry, working=tmp_path, timeout=300), lambda *_: None)
    assert verdict.exit_code == 0, told(verdict)


def test_a_script_that_writes_by_an_absolute_path_is_led_to_its_copy(tmp_path: Path) -> None:
    original = tmp_path / "single.py"
    text = (PROGRAMS / "by_hand" / original.name).read_text("utf-8")
    original.write_text(text.replace('"model.pt"', f'"{tmp_path}/model.pt"'), "utf-8")
    entry, files = files_in(tmp_path / "multi", migrate(original), "vendor")
    write(files)
    verdict = prove(Options(original, entry, working=tmp_path, timeout=300), lambda *_: None)
    assert verdict.exit_code == 0, told(verdict)
    assert not (tmp_path / "model.pt").exists()


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_a_mutant_is_caught_for_what_it_is(mutant: Mutant, tmp_path: Path) -> None:
    verdict = verdict_of(tmp_path, mutant)
    assert verdict.exit_code == 1, told(verdict)
    named = [check.cause.code for check in verdict.failed if check.cause is not None]
    if mutant.codes:
        assert named, told(verdict)
        assert named[0] in mutant.codes, told(verdict)
    assert all(words in verdict.traceback for words in mutant.says), told(verdict)
    if mutant.outcome == "differs":
        assert verdict.ended == "compared", told(verdict)
    else:
        # collectives that meet by chance and do not fit abort the process where others would wait
        assert verdict.ended in {"hung", "failed"}, told(verdict)
    if verdict.ended == "hung":
        assert all(place.site or place.state == "finished" for place in verdict.where), told(verdict)
        assert verdict.seconds[1] < HANG + TRAINING
