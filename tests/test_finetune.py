"""The guide's own program, migrated, on one, two and three ranks: what is printed, written, counted and saved."""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from multicard.migrate import migrate

TESTS = Path(__file__).resolve().parent
EXAMPLE = TESTS.parent / "examples" / "finetune"
RUNTIME = TESTS.parent / "src" / "multicard" / "runtime.py"
SHORT = {"STAGE1_EPOCHS": "1", "STAGE2_EPOCHS": "2", "NUM_WORKERS": "0"}
RUNS: dict[str, tuple[str, int, dict[str, str]]] = {
    "original": ("before", 1, SHORT),
    "plain python": ("after", 1, SHORT),
    "two ranks": ("after", 2, SHORT),
    "three ranks": ("after", 3, SHORT),
    "two ranks, compiled": ("after", 2, SHORT | {"STAGE2_EPOCHS": "1", "USE_COMPILE": "1"}),
    "two ranks, stopped early": ("after", 2, SHORT | {"STAGE2_EPOCHS": "30", "EARLY_STOP_PATIENCE": "1"}),
}
MANY = [name for name, (_, world, _) in RUNS.items() if world > 1]
FILES = {
    "stage1_best.pth",
    "stage2_best.pth",
    "curves.png",
    "predictions.csv",
    "high_loss_samples.csv",
    "grad_cam",
}

pytestmark = pytest.mark.slow


@pytest.fixture(scope="session")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Every run's folder and what its ranks said."""
    home = tmp_path_factory.mktemp("finetune")
    subprocess.run([sys.executable, EXAMPLE / "make_data.py", home / "digits"], check=True, timeout=300)
    jobs = []
    for name, (version, world, env) in RUNS.items():
        folder = home / name.replace(", ", "-").replace(" ", "-")
        folder.mkdir()
        shutil.copy(EXAMPLE / "train.py", folder)
        if version == "after":
            plan = migrate(folder / "train.py")
            assert not plan.left
            (folder / "train.py").write_bytes(plan.entry.encode(plan.texts[plan.entry]))
            shutil.copy(RUNTIME, folder / "ddp_runtime.py")
        job: dict[str, Any] = {"name": name, "folder": str(folder), "entry": "train.py", "args": []}
        job["env"] = {"DATA_DIR": str(home / "digits"), **env}
        jobs.append(job | {"world": world, "seconds": 600})
    (home / "jobs.json").write_text(json.dumps(jobs), encoding="utf-8")
    command: list[str | Path] = [
        sys.executable,
        TESTS / "zygote.py",
        home / "jobs.json",
        home / "results.json",
    ]
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    subprocess.run(command, check=True, cwd=home, env=environment, timeout=3000)
    results = json.loads((home / "results.json").read_text(encoding="utf-8"))
    return {job["name"]: (Path(str(job["folder"])), results[job["name"]]) for job in jobs}


@pytest.mark.parametrize("name", RUNS)
def test_ends_well_and_prints_each_line_once(name: str, runs: dict[str, Any]) -> None:
    _, ranks = runs[name]
    assert [rank["code"] for rank in ranks] == [0] * len(ranks), "\n".join(
        rank["err"][-2000:] for rank in ranks
    )
    assert all(rank["out"] == "" for rank in ranks[1:])


@pytest.mark.parametrize("name", RUNS)
def test_counts_every_validation_sample_once(name: str, runs: dict[str, Any]) -> None:
    folder, ranks = runs[name]
    counted = re.findall(r"\((\d+)/(\d+)\)", ranks[0]["out"])
    assert {total for _, total in counted} == {"359"}
    rows = (folder / "output" / "predictions.csv").read_text(encoding="utf-8-sig").splitlines()[1:]
    assert len(rows) == len({row.split(",")[0] for row in rows}) == 359


def test_plain_python_gives_what_the_original_gave(runs: dict[str, Any]) -> None:
    before, after = (runs[name][0] / "output" for name in ("original", "plain python"))
    for name in ("predictions.csv", "high_loss_samples.csv"):
        assert (before / name).read_bytes() == (after / name).read_bytes()
    one, other = (torch.load(folder / "stage2_best.pth") for folder in (before, after))
    assert all(torch.equal(one[key], other[key]) for key in one)


@pytest.mark.parametrize("name", MANY)
def test_files_are_the_originals(name: str, runs: dict[str, Any]) -> None:
    output = runs[name][0] / "output"
    assert {path.name for path in output.iterdir()} == FILES
    assert len(list((output / "grad_cam").iterdir())) == 6
    original = torch.load(runs["original"][0] / "output" / "stage2_best.pth")
    for stage in ("stage1_best.pth", "stage2_best.pth"):
        saved = torch.load(output / stage)
        assert {key: value.shape for key, value in saved.items()} == {k: v.shape for k, v in original.items()}


def test_all_ranks_stop_early_together(runs: dict[str, Any]) -> None:
    _, ranks = runs["two ranks, stopped early"]
    assert "提前结束" in ranks[0]["out"]


def test_many_ranks_learn_too(runs: dict[str, Any]) -> None:
    best = [
        re.findall(r"第二阶段最优准确率：([\d.]+)", runs[name][1][0]["out"]) for name in ("original", *MANY)
    ]
    assert all(float(values[-1]) > 0.5 for values in best)
