"""Processes are started as torchrun would, watched, and none is left behind."""

import contextlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from multicard.verify import launch
from multicard.verify.plan import Plan

TELL = """
import json, os, pathlib, subprocess, sys, time
plan = json.loads(pathlib.Path(os.environ["MULTICARD_VERIFY_PLAN"]).read_text())
rank, folder = plan["rank"], pathlib.Path(plan["folder"])
def stand(events, doing):
    told = {"events": events, "steps": events, "doing": doing, "frames": [["ddp.py", 7 + rank, "train"]]}
    (folder / "status.part").write_text(json.dumps(told))
    (folder / "status.part").rename(folder / "status.json")
done = folder.parent / "done"
def wait_for_the_other():
    while not done.exists():
        time.sleep(0.2)
"""


class Launcher:
    """Runs ranks that are a few lines of Python, without torch, and with a shorter patience."""

    def __init__(self, folder: Path, patch: pytest.MonkeyPatch) -> None:
        self.folder = folder
        self.patch = patch
        patch.setattr(launch, "QUIET", 1.0)
        patch.setattr(launch, "GRACE", 1.0)

    def plans(self, count: int) -> list[Plan]:
        plan = Plan(
            role="migrated",
            rank=0,
            world_size=count,
            folder="",
            meeting=str(self.folder),
            scratch=str(self.folder),
            links=(),
            script="",
            arguments=(),
            seed=0,
            steps=5,
            full=False,
            seconds=60,
        )
        return launch.ranks_of(plan, count, self.folder)

    def __call__(self, body: str, *, count: int = 2, timeout: float = 30.0) -> launch.Outcome:
        self.patch.setattr(launch, "BOOT", TELL + body)
        return launch.run(self.plans(count), self.folder, timeout, lambda *_: None)


@pytest.fixture
def launched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Launcher:
    return Launcher(tmp_path, monkeypatch)


def running(marker: str) -> list[int]:
    """Processes with this text in their command line."""
    found = []
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            if entry.name.isdigit() and marker in (entry / "cmdline").read_text():
                state = (entry / "stat").read_text().rpartition(")")[2].split()[0]
                if state != "Z":
                    found.append(int(entry.name))
    return [pid for pid in found if pid != os.getpid()]


def test_ranks_get_what_torchrun_gives(launched: Launcher) -> None:
    names = "RANK LOCAL_RANK WORLD_SIZE LOCAL_WORLD_SIZE MASTER_ADDR MASTER_PORT TORCHELASTIC_RUN_ID"
    outcome = launched(f"print(*[os.environ[name] for name in {names.split()!r}])")
    assert outcome.ended == "finished"
    lines = [(launched.folder / f"rank{rank}" / "out.txt").read_text().split() for rank in range(2)]
    assert [line[:4] for line in lines] == [["0", "0", "2", "2"], ["1", "1", "2", "2"]]


def test_a_rank_that_dies_ends_the_run_soon(launched: Launcher) -> None:
    outcome = launched("sys.exit(3) if rank else time.sleep(60)")
    assert outcome.ended == "failed"
    assert outcome.codes[1] == 3
    assert outcome.seconds < 10


def test_ranks_that_wait_for_each_other_hang(launched: Launcher) -> None:
    outcome = launched("stand(1, 'all_reduce' if rank else 'barrier'); time.sleep(60)")
    assert outcome.ended == "hung"
    assert outcome.seconds < 10
    assert [(s.state, s.doing, s.site) for s in outcome.standings] == [
        ("waiting", "barrier", "ddp.py:7"),
        ("waiting", "all_reduce", "ddp.py:8"),
    ]


def test_a_rank_that_waits_for_one_that_works_does_not_hang(launched: Launcher) -> None:
    outcome = launched(
        "stand(1, 'barrier' if rank else '')\n"
        "end = time.monotonic() + 4\n"
        "while not rank and time.monotonic() < end: sum(range(1000))\n"
        "wait_for_the_other() if rank else done.touch()"
    )
    assert outcome.ended == "finished"


def test_a_rank_that_waits_for_a_child_that_works_does_not_hang(launched: Launcher) -> None:
    launched.patch.setattr(launch, "QUIET", 5.0)  # on a busy machine the child may wait for its turn
    work = "import time; end = time.monotonic() + 8\nwhile time.monotonic() < end: sum(range(1000))"
    outcome = launched(
        "stand(1, 'barrier' if rank else 'recv')\n"
        f"subprocess.run([sys.executable, '-c', '''{work}''']) if not rank else wait_for_the_other()\n"
        "done.touch()"
    )
    assert outcome.ended == "finished"


def test_a_run_that_takes_too_long_is_ended(launched: Launcher) -> None:
    outcome = launched("while True: stand(int(time.monotonic() * 100), '')", timeout=2.0)
    assert outcome.ended == "timeout"
    assert outcome.seconds < 8


def test_nothing_is_left_that_a_rank_started(launched: Launcher) -> None:
    marker = f"left-behind-{os.getpid()}"
    sleeper = f"[sys.executable, '-c', 'import time; time.sleep(300)', '{marker}']"
    outcome = launched(
        f"subprocess.Popen({sleeper}); subprocess.Popen({sleeper}, start_new_session=True); sys.exit(1)"
    )
    assert outcome.ended == "failed"
    assert running(marker) == []


HOLD = """
import signal, sys
for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):  # also where the tests run under nohup
    signal.signal(number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL)
from pathlib import Path
from multicard.verify import launch
from multicard.verify.plan import Plan
folder = Path(sys.argv[1])
launch.BOOT = "import sys, time; sys.argv.append('held'); print('up', flush=True); time.sleep(300)#" + sys.argv[2]
plan = Plan("migrated", 0, 2, "", str(folder), str(folder), (), "", (), 0, 5, False, 60.0)
launch.run(launch.ranks_of(plan, 2, folder), folder, 300, lambda *_: None)
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_nothing_is_left_after_a_signal(tmp_path: Path, number: signal.Signals) -> None:
    marker = f"held-{os.getpid()}-{number}"
    with subprocess.Popen(
        [sys.executable, "-c", HOLD, str(tmp_path), marker], stderr=subprocess.DEVNULL
    ) as launcher:
        deadline = time.monotonic() + 30
        while time.monotonic() < deadline and not all(
            (tmp_path / f"rank{rank}" / "out.txt").exists()
            and (tmp_path / f"rank{rank}" / "out.txt").read_text() == "up\n"
            for rank in range(2)
        ):
            time.sleep(0.05)
        assert len(running(marker)) == 3
        launcher.send_signal(number)
        assert launcher.wait(timeout=20) != 0
    assert running(marker) == []
