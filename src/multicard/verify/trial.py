"""The two runs: where they happen, in which order, and what is left of them to compare."""

import json
import os
import re
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from multicard.verify import launch, scratch
from multicard.verify.plan import Plan

Events = list[dict[str, Any]]


@dataclass(frozen=True)
class Options:
    """What the user asked for."""

    original: Path
    migrated: Path
    arguments: tuple[str, ...] = ()
    nproc: int = 2
    steps: int = 50
    timeout: float = 600.0
    seed: int = 0
    full: bool = False
    absolute: bool = False  # absolute paths in the scripts lead to the copies
    working: Path = field(default_factory=Path.cwd)


@dataclass(frozen=True)
class Hints:
    """What two runs have told that lets two more be nearer to each other."""

    mates: tuple[str, ...]  # traces of the ranks, where batches are padded otherwise than as one
    each: dict[
        str, tuple[tuple[str, int], ...]
    ]  # of each role, the lines that draw for each sample, and how often


@dataclass(frozen=True)
class Run:
    """One run: how it ended, what its processes recorded, printed and wrote."""

    role: Literal["original", "migrated"]
    outcome: launch.Outcome
    traces: tuple[Events, ...]
    printed: tuple[tuple[str, ...], ...]  # lines of standard output, by rank
    complained: tuple[str, ...]  # standard error, by rank
    place: "Place"

    def events(self, kind: str, rank: int = 0) -> Events:
        return [event for event in self.traces[rank] if event["kind"] == kind]

    def first(self, kind: str, rank: int = 0) -> dict[str, Any] | None:
        return next(iter(self.events(kind, rank)), None)


@dataclass(frozen=True)
class Place:
    """The user's folders and their copies for one run."""

    root: Path
    working: Path
    script: Path
    links: tuple[tuple[str, str], ...]
    over: tuple[str, str] | None = None  # a folder whose files lie over another's copy

    def shown(self, path: str) -> str:
        """A path in the copy as the user knows it, relative to where the user is."""
        name, _, line = path.rpartition(":") if path.rpartition(":")[2].isdigit() else (path, "", "")
        for source, copy in self.links:
            if name == copy or name.startswith(copy + os.sep):
                name = self._above(name) or os.path.join(source, os.path.relpath(name, copy))
                break
        with_line = f"{name}:{line}" if line else name
        here = os.getcwd() + os.sep
        return with_line.removeprefix(here)

    def _above(self, name: str) -> str | None:
        """The file of the folder that lies over the copy, if it has one of this name."""
        if self.over is None or not name.startswith(self.over[1] + os.sep):
            return None
        path = os.path.join(self.over[0], os.path.relpath(name, self.over[1]))
        return path if os.path.exists(path) else None

    def named(self, text: str) -> str:
        """Text in which folders are called by their own names, and not by those of this run's copies."""
        for source, copy in self.links:
            text = text.replace(copy, source)
        return text

    def shown_text(self, text: str) -> str:
        """Text with the paths in it as the user knows them."""
        for _, copy in self.links:
            text = re.sub(
                re.escape(copy + os.sep) + r"[^\s\"',:;)\]]*",
                lambda match: self.shown(match[0]) or match[0],
                text,
            )
        return text.replace(os.getcwd() + os.sep, "")


def settle(script: Path, working: Path, root: Path) -> Place:
    """Copies of the working directory and of the script's folder, as near to each other as they are."""
    folder = script.parent
    here = root / "tree"
    if folder == working or working in folder.parents:
        inner = here / folder.relative_to(working)
        if folder == working:
            scratch.copy_code(working, here)
        else:
            scratch.lay_out(working, here, down_to=folder)
        return Place(root, here, inner / script.name, ((str(working), str(here)),))
    if folder in working.parents:
        scratch.copy_code(folder, here)
        inner_working = here / working.relative_to(folder)
        scratch.make_own(str(inner_working / "x"), str(root), keep=True)
        return Place(root, inner_working, here / script.name, ((str(folder), str(here)),))
    beside = root / "script"
    scratch.lay_out(working, here)
    scratch.copy_code(folder, beside)
    return Place(root, here, beside / script.name, ((str(folder), str(beside)), (str(working), str(here))))


def settle_over(original: Path, migrated: Path, working: Path, root: Path) -> Place:
    """The migrated script in the place of the original, as if it had been migrated there.

    It finds the data that the original finds, and its modules take the place of the original's, wherever it looks
    for them; so do those of its project beside its folder, where the folders of both have one name.
    """
    place = settle(original, working, root)
    inner = place.script.parent
    own, above, copy = original.parent, migrated.parent, inner
    while own.name == above.name and working in own.parents and above.parent not in own.parents:
        own, above, copy = own.parent, above.parent, copy.parent
    scratch.lay_over(above, copy)
    return replace(place, script=inner / migrated.name, over=(str(above), str(copy)))


@contextmanager
def workshop() -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp(prefix="multicard-verify-")).resolve()
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def run(
    role: Literal["original", "migrated"],
    options: Options,
    folder: Path,
    progress: launch.Progress,
    split: int = 1,
    larger: tuple[tuple[int, int], ...] = (),
    *,
    replay: bool = False,
    turns: int = 0,
    hints: Hints | None = None,
    cuda: bool = False,
) -> Run:
    home = folder / role
    shutil.rmtree(home, ignore_errors=True)
    scratch_root = home / "scratch"
    if role == "original":
        place = settle(options.original, options.working, scratch_root)
    elif options.migrated.parent == options.original.parent:
        place = settle(options.migrated, options.working, scratch_root)
    else:
        place = settle_over(options.original, options.migrated, options.working, scratch_root)
    world = options.nproc if role == "migrated" else 1
    meeting = folder / "meeting"
    if role == "migrated":
        shutil.rmtree(meeting, ignore_errors=True)
    meeting.mkdir(exist_ok=True)
    plan = Plan(
        role=role,
        rank=0,
        world_size=world,
        folder="",
        meeting=str(meeting),
        scratch=str(place.root),
        links=place.links,
        script=str(place.script),
        arguments=options.arguments,
        seed=options.seed,
        steps=options.steps,
        full=options.full,
        absolute=options.absolute,
        seconds=options.timeout * 0.4,
        recorded=tuple(str(folder / "migrated" / f"rank{r}" / "trace.jsonl") for r in range(options.nproc))
        if replay
        else (),
        split=split,
        larger=larger,
        turns=turns,
        mates=hints.mates if hints and role == "migrated" else (),
        each=hints.each[role] if hints else (),
        cuda=cuda,
    )
    plans = launch.ranks_of(plan, world, home)
    outcome = launch.run(plans, place.working, options.timeout, progress)
    return Run(
        role,
        outcome,
        tuple(read_trace(Path(p.folder) / "trace.jsonl", place) for p in plans),
        tuple(tuple(place.named(text_of(Path(p.folder) / "out.txt")).splitlines()) for p in plans),
        tuple(text_of(Path(p.folder) / "err.txt") for p in plans),
        place,
    )


SAID = {"print", "said"}


def read_trace(path: Path, place: Place) -> Events:
    """What was recorded; the last line may be cut off where the process was ended."""
    if not path.exists():
        return []
    lines = path.read_text(encoding="utf-8").splitlines()
    events: Events = [json.loads(line) for line in lines if line.endswith("}")]
    return [{**e, "text": place.named(e["text"])} if e["kind"] in SAID else e for e in events]


def text_of(path: Path) -> str:
    return path.read_bytes().decode("utf-8", "replace") if path.exists() else ""
