"""Every script of tests/scripts, migrated and proved by `verify` on two ranks.

One server has imported torch for all runs, and two proofs run at a time. A script whose migration differs from it for
a reason that cannot be helped says so in its script.toml, and with which checks: a proof that becomes better fails too.
"""

import os
import shutil
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from threading import Lock
from typing import Any

import pytest
import tomllib
from forkserver import serving

from multicard.migrate import migrate
from multicard.verify.prove import prove
from multicard.verify.trial import Options
from multicard.verify.verdict import Verdict

ROOT = Path(__file__).resolve().parents[1]
RUNTIME = ROOT.parent / "src" / "multicard" / "runtime.py"
SCRIPTS = {
    path.parent: tomllib.loads(path.read_text(encoding="utf-8"))
    for path in sorted((ROOT / "scripts").glob("*/script.toml"))
}
ABOUT = {path.name: about for path, about in SCRIPTS.items() if path.name != "already_ddp"}
STEPS = 6
SECONDS = 300.0
MIGRATING = Lock()
"""Trees that are walked are remembered for one program at a time."""
AT_A_TIME = max(1, min(4, (os.cpu_count() or 2) // 2 + 1))

pytestmark = pytest.mark.slow


def proof(name: str, folder: Path) -> Verdict:
    one, multi = folder / name / "one", folder / name / "multi"
    for copy in (one, multi):
        shutil.copytree(ROOT / "scripts" / name, copy)
    about = ABOUT[name]
    with MIGRATING:
        plan = migrate(multi / about["entry"])
    for module in plan.changed:
        module.path.write_bytes(module.encode(plan.texts[module]))
    shutil.copy(RUNTIME, plan.entry.path.parent / "ddp_runtime.py")
    options = Options(
        one / about["entry"],
        multi / about["entry"],
        arguments=tuple(map(str, about.get("args", []))),
        steps=STEPS,
        timeout=SECONDS,
        working=one,
    )
    verdict = prove(options, lambda *_: None)
    shutil.rmtree(folder / name)
    return verdict


@pytest.fixture(scope="module")
def proofs(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[str, "Future[Verdict]"]]:
    """The proofs of the scripts that are asked for, the long ones first."""
    folder = tmp_path_factory.mktemp("proved")
    here = [item for item in request.session.items if item.path == Path(__file__)]
    asked = [item.callspec.params["name"] for item in here if hasattr(item, "callspec")]
    asked.sort(key=lambda name: -float(ABOUT[name].get("seconds", 0)))
    with serving(), ThreadPoolExecutor(AT_A_TIME) as pool:
        yield {name: pool.submit(proof, name, folder) for name in asked}
        pool.shutdown(cancel_futures=True)


def told(verdict: Verdict) -> str:
    """What a reader of a failed test wants to see."""
    lines = [f"{c.state} {c.name}: {c.detail.en} {c.cause}" for c in verdict.checks if c.state != "held"]
    return "\n".join([verdict.ended, *lines, *map(str, verdict.where), verdict.traceback])


@pytest.mark.parametrize("name", ABOUT)
def test_trains_like_the_original(name: str, proofs: dict[str, Any]) -> None:
    verdict = proofs[name].result()
    expected = ABOUT[name].get("verify", {})
    assert verdict.ended == expected.get("ended", "compared"), told(verdict)
    failed = {check.name for check in verdict.failed}
    assert failed == set(expected.get("differs", [])), told(verdict)
    assert not failed & {"once", "writers"}, told(verdict)
    assert verdict.steps or expected, told(verdict)


def test_most_are_the_same() -> None:
    odd = [name for name, about in ABOUT.items() if "verify" in about]
    assert all(ABOUT[name]["verify"]["why"] for name in odd)
    assert len(odd) <= len(ABOUT) // 10, odd
