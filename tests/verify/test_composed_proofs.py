"""Programs composed by chance train the same on two ranks, by the proof that users are given.

Slow. Two are proved by default; `MULTICARD_COMPOSED=60` proves that many.
"""

import os
from collections.abc import Iterator
from pathlib import Path
from shutil import copy

import pytest
from composed import compose
from forkserver import serving

from multicard.migrate import migrate
from multicard.verify.prove import prove
from multicard.verify.trial import Options

pytestmark = pytest.mark.slow
RUNTIME = Path(__file__).parents[2] / "src" / "multicard" / "runtime.py"
PROVED = range(1, 1 + int(os.environ.get("MULTICARD_COMPOSED", "2")))


@pytest.fixture(scope="module", autouse=True)
def server() -> Iterator[None]:
    with serving():
        yield


@pytest.mark.parametrize("seed", PROVED)
def test_a_composed_program_trains_the_same_on_two_ranks(seed: int, tmp_path: Path) -> None:
    for name in ("single", "multi", "runs"):
        (tmp_path / name).mkdir()
    original, migrated = tmp_path / "single" / "train.py", tmp_path / "multi" / "train.py"
    original.write_text(compose(seed), encoding="utf-8")
    plan = migrate(original)
    migrated.write_bytes(plan.entry.encode(plan.texts[plan.entry]))
    copy(RUNTIME, tmp_path / "multi" / "ddp_runtime.py")
    verdict = prove(Options(original, migrated, working=tmp_path / "runs", timeout=300), lambda *_: None)
    told = [f"{check.name}: {check.detail.en}" for check in verdict.checks if check.state == "failed"]
    assert verdict.exit_code == 0, "\n".join([verdict.ended, *told, verdict.traceback])
    assert verdict.steps >= 6
