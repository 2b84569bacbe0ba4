"""Starts the processes of a run, watches them, and leaves none behind.

torchrun would do the starting; but when a rank dies it shows its own traceback first, when ranks wait for
each other it waits with them, and neither helps to find the line. So the ranks are started here, each with
the environment that torchrun gives, in a session of its own.
"""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from multicard.verify.plan import PLAN_VARIABLE, RUN_VARIABLE, Plan

BOOT = "from multicard.verify.probe.boot import main; main()"
QUIET = 6.0  # seconds without an event and without work, in which waiting for each other is certain
SILENT = 45.0  # the same where no rank is known to be in a collective
IDLE = 0.03  # share of a CPU that a waiting process may use
GRACE = 4.0  # how long the other ranks have to end by themselves when one has failed
POLL = 0.1
LOOK = 0.5


@dataclass(frozen=True)
class Standing:
    """Where one rank was when the run ended."""

    rank: int
    state: str  # waiting, running, finished, failed, killed
    doing: str = ""
    frames: tuple[tuple[str, int, str], ...] = ()

    @property
    def site(self) -> str | None:
        return f"{self.frames[0][0]}:{self.frames[0][1]}" if self.frames else None


@dataclass(frozen=True)
class Outcome:
    """How a run ended."""

    ended: str  # finished, failed, hung, timeout
    standings: tuple[Standing, ...]
    seconds: float
    codes: tuple[int | None, ...]


@dataclass
class Rank:
    """One process of a run, and what is known of it."""

    plan: Plan
    process: subprocess.Popen[bytes]
    moved: float
    events: int = -1
    looked: float = 0.0
    cpu: float = 0.0
    status: dict[str, Any] = field(default_factory=dict)
    ended_at: float | None = None

    @property
    def alive(self) -> bool:
        return self.process.poll() is None


Progress = Callable[[int, float], None]


def environment(plan: Plan, run: str, plan_path: Path, working: Path) -> dict[str, str]:
    env = dict(os.environ)
    source = str(Path(__file__).resolve().parents[2])
    env["PYTHONPATH"] = os.pathsep.join([*filter(None, [env.get("PYTHONPATH")]), source])
    env[PLAN_VARIABLE] = str(plan_path)
    env[RUN_VARIABLE] = run
    env["PYTHONUNBUFFERED"] = "1"
    env["PYTHONHASHSEED"] = str(plan.seed + plan.rank + 1)
    env["PYTHONDONTWRITEBYTECODE"] = "1"
    env["CUDA_VISIBLE_DEVICES"] = ""
    env["PWD"] = str(working)
    env.setdefault("OMP_NUM_THREADS", "1")
    env.setdefault("MKL_NUM_THREADS", env["OMP_NUM_THREADS"])
    env.setdefault("MPLBACKEND", "Agg")
    env["WANDB_MODE"] = "offline"
    env.pop("PYTHONSAFEPATH", None)
    names = (
        "RANK",
        "LOCAL_RANK",
        "WORLD_SIZE",
        "LOCAL_WORLD_SIZE",
        "MASTER_ADDR",
        "MASTER_PORT",
        "GROUP_RANK",
    )
    for name in names:
        env.pop(name, None)
    if plan.role == "migrated":
        rank, world = str(plan.rank), str(plan.world_size)
        env |= {
            "RANK": rank,
            "LOCAL_RANK": rank,
            "WORLD_SIZE": world,
            "LOCAL_WORLD_SIZE": world,
            "GROUP_RANK": "0",
            "GROUP_WORLD_SIZE": "1",
            "ROLE_RANK": rank,
            "ROLE_WORLD_SIZE": world,
            "ROLE_NAME": "default",
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": "29500",
            "TORCHELASTIC_RESTART_COUNT": "0",
            "TORCHELASTIC_MAX_RESTARTS": "0",
            "TORCHELASTIC_RUN_ID": run,
            "TORCH_DISTRIBUTED_DEBUG": env.get("TORCH_DISTRIBUTED_DEBUG", "OFF"),
        }
        if sys.platform == "linux":
            env.setdefault("GLOO_SOCKET_IFNAME", "lo")
    return env


def start(plan: Plan, run: str, working: Path) -> Rank:
    folder = Path(plan.folder)
    folder.mkdir(parents=True, exist_ok=True)
    plan_path = folder / "plan.json"
    plan.write(plan_path)
    with (folder / "out.txt").open("wb") as out, (folder / "err.txt").open("wb") as err:
        process = subprocess.Popen(
            [sys.executable, "-c", BOOT],
            cwd=working,
            env=environment(plan, run, plan_path, working),
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=err,
            start_new_session=True,
        )
    return Rank(plan, process, time.monotonic())


def run(plans: list[Plan], working: Path, timeout: float, progress: Progress) -> Outcome:
    """Run the processes to their end, or to the moment when it is certain that they will not reach it."""
    name = uuid.uuid4().hex
    begun = time.monotonic()
    ranks: list[Rank] = []
    with ended_by_signals():
        try:
            for plan in plans:
                ranks.append(start(plan, name, working))  # noqa: PERF401 - each one started must be known to `finally`
            ended = watch(ranks, begun, timeout, progress)
            standings = tuple(standing(rank) for rank in ranks)
        finally:
            end(ranks, name)
    return Outcome(
        ended, standings, time.monotonic() - begun, tuple(rank.process.returncode for rank in ranks)
    )


def watch(ranks: list[Rank], begun: float, timeout: float, progress: Progress) -> str:
    failed_at: float | None = None
    while True:
        now = time.monotonic()
        for rank in ranks:
            look(rank, now)
        progress(max((rank.status.get("steps", 0) for rank in ranks), default=0), now - begun)
        if all(not rank.alive for rank in ranks):
            return "failed" if any(rank.process.returncode for rank in ranks) else "finished"
        if any(not rank.alive and rank.process.returncode for rank in ranks):
            failed_at = failed_at or now
            if now - failed_at > GRACE:
                return "failed"
        if now - begun > timeout:
            return "timeout"
        if failed_at is None and stuck(ranks, now):
            return "hung"
        time.sleep(POLL)


def look(rank: Rank, now: float) -> None:
    """Take in what the rank says of itself, and whether its processes work."""
    if not rank.alive:
        rank.ended_at = rank.ended_at or now
        return
    with contextlib.suppress(OSError, ValueError):
        rank.status = json.loads((Path(rank.plan.folder) / "status.json").read_text())
    if rank.status.get("events", -1) != rank.events:
        rank.events, rank.moved = rank.status.get("events", -1), now
    elif now - rank.looked > LOOK:
        cpu, busy = work_of(rank.process.pid)
        # it works, or would if it were given a CPU, without telling of anything
        if busy or cpu - rank.cpu > IDLE * (now - rank.looked):
            rank.moved = now
        rank.cpu, rank.looked = cpu, now


def stuck(ranks: list[Rank], now: float) -> bool:
    """No rank that lives has moved or worked for a while, and what they do is wait for each other."""
    alive = [rank for rank in ranks if rank.alive]
    if not alive or any(rank.events < 0 for rank in alive):
        return False
    left = max((rank.ended_at for rank in ranks if rank.ended_at is not None), default=0.0)
    quiet = now - max(left, *(rank.moved for rank in alive))
    waits = [rank for rank in alive if waiting(rank)]
    if len(waits) == len(alive):
        return quiet > QUIET
    return quiet > SILENT and bool(waits)


def waiting(rank: Rank) -> bool:
    doing = str(rank.status.get("doing", ""))
    return doing not in {"", "sleep", "backward"} or (doing == "backward" and rank.plan.world_size > 1)


def standing(rank: Rank) -> Standing:
    frames = tuple((str(f), int(line), str(name)) for f, line, name in rank.status.get("frames", []))
    doing = str(rank.status.get("doing", ""))
    if rank.alive:
        return Standing(rank.plan.rank, "waiting" if waiting(rank) else "running", doing, frames)
    return Standing(rank.plan.rank, "failed" if rank.process.returncode else "finished", "", frames)


def work_of(session: int) -> tuple[float, bool]:
    """CPU seconds that the processes of a session have used, and whether one waits for a CPU or a disk.

    On a crowded machine the second says more than the first. Nothing, where the system does not tell.
    """
    total, busy = 0.0, False
    if not Path("/proc").is_dir():
        return total, busy
    for pid in members(session):
        with contextlib.suppress(OSError, IndexError, ValueError):
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
            total += (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
            busy = busy or fields[0] in {"R", "D"}
    return total, busy


def members(session: int) -> Iterator[int]:
    for entry in os.scandir("/proc"):
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                if os.getsid(int(entry.name)) == session:
                    yield int(entry.name)


def end(ranks: list[Rank], name: str) -> None:
    """End every process of the run, whatever state it is in, and wait until it is gone."""
    for rank in ranks:
        kill_session(rank.process.pid)
    deadline = time.monotonic() + 5
    while (left := marked(name)) and time.monotonic() < deadline:
        for pid in left:
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.02)
    for rank in ranks:
        rank.process.wait()


def kill_session(session: int) -> None:
    if Path("/proc").is_dir():
        for pid in list(members(session)):
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGKILL)
    with contextlib.suppress(OSError):
        os.killpg(session, signal.SIGKILL)


def marked(name: str) -> list[int]:
    """Processes that carry this run's name in their environment, also those that left its sessions."""
    if not Path("/proc").is_dir():
        return []
    mark = f"{RUN_VARIABLE}={name}".encode()
    found = []
    for entry in os.scandir("/proc"):
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            with contextlib.suppress(OSError):
                if mark in (Path(entry.path) / "environ").read_bytes().split(b"\0"):
                    found.append(int(entry.name))
    return found


@contextlib.contextmanager
def ended_by_signals() -> Iterator[None]:
    """SIGTERM and SIGHUP end the run as Ctrl-C does: through every `finally`."""

    def stop(number: int, _: object) -> None:
        raise SystemExit(128 + number)

    try:
        before = {number: signal.signal(number, stop) for number in (signal.SIGTERM, signal.SIGHUP)}
    except ValueError:  # not the main thread: its owner deals with signals
        before = {}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def ranks_of(plan: Plan, world_size: int, folder: Path) -> list[Plan]:
    return [
        replace(plan, rank=rank, world_size=world_size, folder=str(folder / f"rank{rank}"))
        for rank in range(world_size)
    ]
