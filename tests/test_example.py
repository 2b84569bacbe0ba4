import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
EXAMPLE = ROOT / "examples" / "finetune"


def run(*command: str | Path, timeout: int) -> str:
    outcome = subprocess.run(
        [sys.executable, *command],
        check=False,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        encoding="utf-8",
        env=os.environ | {"PYTHONIOENCODING": "utf-8", "OMP_NUM_THREADS": "1"},
        timeout=timeout,
    )
    assert outcome.returncode == 0, outcome.stdout
    return outcome.stdout


def test_the_data_is_written_once_and_its_validation_samples_are_odd(tmp_path: Path) -> None:
    data = tmp_path / "digits"
    run(EXAMPLE / "make_data.py", data, timeout=100)
    written = {path: path.stat().st_mtime_ns for path in data.rglob("*.png")}
    assert len(written) == 1797
    assert sum("val" in path.parts for path in written) % 2 == 1
    run(EXAMPLE / "make_data.py", data, timeout=100)
    assert {path: path.stat().st_mtime_ns for path in data.rglob("*.png")} == written


@pytest.mark.slow
def test_the_demonstration_holds_all_that_it_claims() -> None:
    shown = run(ROOT / "scripts" / "demo.py", timeout=1000)
    assert "holds" in shown
    assert "FAILS" not in shown
