"""The runtime on one, two and three processes over gloo; the cases themselves are in `cases.py`."""

import contextlib
import json
import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest

HERE = Path(__file__).parent
# Read, not imported: importing the cases sets up a process group.
CASES = re.findall(r"^def (case_\w+)", (HERE / "cases.py").read_text(encoding="utf-8"), re.MULTILINE)
Outcomes = list[dict[str, str]]  # of each rank: what went wrong, by case


def run_ranks(world: int, results: Path) -> Outcomes:
    """Run them all once; once more where a rank never ends.

    CPython may hold a lock of its own while a DataLoader forks a worker, if a thread of torch's comes or goes at that
    moment; the worker then waits for ever in `PyOS_AfterFork_Child`.  What the cases do wrong, they do again.
    """
    try:
        return _run_once(world, results)
    except subprocess.TimeoutExpired:
        return _run_once(world, results)


def _run_once(world: int, results: Path) -> Outcomes:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    shared = os.environ | {"WORLD_SIZE": str(world), "LOCAL_WORLD_SIZE": str(world), "OMP_NUM_THREADS": "1"}
    shared |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    logs = [results / f"rank{rank}.log" for rank in range(world)]
    with contextlib.ExitStack() as stack:
        ranks = [
            subprocess.Popen(
                [sys.executable, HERE / "run_cases.py", results],
                env=shared | {"RANK": str(rank), "LOCAL_RANK": str(rank)},
                stdout=stack.enter_context(log.open("w")),
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
            for rank, log in enumerate(logs)
        ]
        try:
            for process in ranks:
                process.wait(timeout=200)
        finally:
            for process in ranks:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)  # with the workers of its loaders
                process.wait()
    written = [results / f"rank{rank}.json" for rank in range(world)]
    assert all(path.exists() for path in written), "\n".join(log.read_text() for log in logs)
    outcomes: Outcomes = [json.loads(path.read_text()) for path in written]
    if not any(any(outcome.values()) for outcome in outcomes):
        assert [process.returncode for process in ranks] == [0] * world, logs[0].read_text()
    return outcomes


@pytest.fixture(scope="session")
def outcomes(tmp_path_factory: pytest.TempPathFactory) -> Callable[[int], Outcomes]:
    @cache
    def of_world(world: int) -> Outcomes:
        return run_ranks(world, tmp_path_factory.mktemp(f"world{world}"))

    return of_world


@pytest.mark.slow
@pytest.mark.parametrize("world", [1, 2, 3])
@pytest.mark.parametrize("case", CASES, ids=[case.removeprefix("case_") for case in CASES])
def test_on_ranks(case: str, world: int, outcomes: Callable[[int], Outcomes]) -> None:
    for rank, outcome in enumerate(outcomes(world)):
        assert outcome.get(case, "not reached: an earlier case failed") == "", f"on rank {rank}"
