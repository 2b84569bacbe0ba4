"""Every script of tests/scripts, migrated and run on two ranks: it ends, and each line is printed by one rank."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import tomllib

from multicard.errors import MulticardError
from multicard.migrate import migrate
from multicard.plan import Plan

ROOT = Path(__file__).resolve().parent
SCRIPTS = {path.parent.name: path.parent for path in sorted((ROOT / "scripts").glob("*/script.toml"))}
ABOUT = {
    name: tomllib.loads((path / "script.toml").read_text(encoding="utf-8")) for name, path in SCRIPTS.items()
}
RUNTIME = ROOT.parent / "src" / "multicard" / "runtime.py"
SECONDS = 300
ALONE = {
    "audio_commands": "starts processes of its own, which a forked rank cannot",
    "detection_engine": "its dormant helpers ask for CUDA as soon as there is a process group",
}

pytestmark = pytest.mark.slow


def written(folder: Path, plan: Plan) -> None:
    for module in plan.changed:
        module.path.write_bytes(module.encode(plan.texts[module]))
    shutil.copy(RUNTIME, plan.entry.path.parent / "ddp_runtime.py")
    assert folder in plan.entry.path.parents


@pytest.fixture(scope="session")
def ended(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What became of each script: a refusal, or the plan and the outcome of each rank."""
    home = tmp_path_factory.mktemp("scripts")
    found: dict[str, Any] = {}
    jobs = []
    for name, source in SCRIPTS.items():
        folder = home / name
        shutil.copytree(source, folder)
        try:
            plan = migrate(folder / ABOUT[name]["entry"])
        except MulticardError as error:
            found[name] = error.text.en
            continue
        written(folder, plan)
        found[name] = plan
        if name not in ALONE:
            job = {"name": name, "folder": str(folder), "world": 2, "seconds": SECONDS}
            jobs.append(job | {"entry": ABOUT[name]["entry"], "args": ABOUT[name].get("args", [])})
    (home / "jobs.json").write_text(json.dumps(jobs), encoding="utf-8")
    subprocess.run(
        [sys.executable, ROOT / "zygote.py", home / "jobs.json", home / "results.json"],
        check=True,
        cwd=home,
        env={key: value for key, value in os.environ.items() if key != "PYTHONPATH"},
        timeout=SECONDS * len(jobs),
    )
    results = json.loads((home / "results.json").read_text(encoding="utf-8"))
    return {name: (value, results.get(name)) for name, value in found.items()}


@pytest.mark.parametrize(
    "name", [name for name in SCRIPTS if "expects" not in ABOUT[name] and name not in ALONE]
)
def test_runs_on_two_ranks_and_prints_once(name: str, ended: dict[str, Any]) -> None:
    plan, ranks = ended[name]
    assert isinstance(plan, Plan), plan
    assert [rank["code"] for rank in ranks] == [0, 0], "\n".join(rank["err"][-2000:] for rank in ranks)
    assert ranks[1]["out"] == ""


@pytest.mark.parametrize("name", [name for name in SCRIPTS if "expects" in ABOUT[name]])
def test_says_what_several_cards_cannot_do_for_it(name: str, ended: dict[str, Any]) -> None:
    outcome, _ = ended[name]
    if isinstance(outcome, str):
        assert "already distributed" in outcome
    else:
        assert outcome.left
