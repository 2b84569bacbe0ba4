"""Copies of the user's folders in which both scripts run, so that nothing of the user's is changed.

Code is copied; everything else is a link until somebody writes to it. Data of any size costs nothing then,
and a script that overwrites its old checkpoint, or appends to a log, does so in its copy.
"""

import contextlib
import ctypes
import os
import shutil
import sys
from collections.abc import Iterator
from os.path import realpath  # the probe puts another in its place
from pathlib import Path

CODE = {".py", ".pyi", ".json", ".yaml", ".yml", ".toml", ".cfg", ".ini", ".txt"}
SMALL = 1 << 20
OPENING = ".opening"
"""How the name of what takes the place of a link ends, until it does."""
LEFT_OUT = {
    ".git",
    "__pycache__",
    ".venv",
    "venv",
    "node_modules",
    ".mypy_cache",
    ".ruff_cache",
    ".pytest_cache",
}


def lay_out(source: Path, copy: Path, *, down_to: Path | None = None) -> None:
    """Make `copy` look like `source`: links, except for code beside the script and the way down to it."""
    copy.mkdir(parents=True, exist_ok=True)
    for entry in sorted(os.scandir(source), key=lambda entry: entry.name):
        target = copy / entry.name
        path = Path(entry.path)
        if entry.name in LEFT_OUT:
            continue
        if down_to is not None and path != down_to and path in down_to.parents:
            lay_out(path, target, down_to=down_to)
        elif down_to is not None and path == down_to:
            copy_code(path, target)
        else:
            link(path, target)


def copy_code(source: Path, copy: Path) -> None:
    """The script's own folder: code copied all the way down, other files linked."""
    copy.mkdir(parents=True, exist_ok=True)
    for entry in sorted(os.scandir(source), key=lambda entry: entry.name):
        path, target = Path(entry.path), copy / entry.name
        if entry.name in LEFT_OUT:
            continue
        if entry.is_dir() and not entry.is_symlink() and holds_code(path):
            copy_code(path, target)
        elif entry.is_file() and path.suffix in CODE and entry.stat().st_size <= SMALL:
            shutil.copy2(path, target)
        else:
            link(path, target)


def lay_over(source: Path, copy: Path) -> None:
    """Put the files of `source` in place of those of the same name in `copy`; its data only where there is none."""
    for entry in sorted(os.scandir(source), key=lambda entry: entry.name):
        path, target = Path(entry.path), copy / entry.name
        if entry.name in LEFT_OUT:
            continue
        if entry.is_dir() and not entry.is_symlink() and holds_code(path):
            if target.is_symlink():
                _open_up(str(target))
            target.mkdir(exist_ok=True)
            lay_over(path, target)
        elif entry.is_file() and path.suffix == ".py":
            target.unlink(missing_ok=True)
            shutil.copy2(path, target)
        elif not target.exists() and not target.is_symlink():
            link(path, target)


def holds_code(folder: Path) -> bool:
    """A package or a folder of modules, as against a folder of data."""
    names = os.listdir(folder)
    return any(name.endswith(".py") for name in names) or any(
        (folder / name).is_dir() and not name.startswith(".") and (folder / name / "__init__.py").exists()
        for name in names[:200]
    )


def link(path: Path, target: Path) -> None:
    target.symlink_to(path.resolve() if path.exists() else path)


def make_own(path: str, scratch: str, *, keep: bool) -> None:
    """Before something is written to `path`: no link may stand between it and the scratch folder.

    A linked folder on the way becomes a folder of links; a linked file becomes a copy if what it holds is to
    be kept, and is unlinked otherwise.
    """
    path = os.path.abspath(path)
    if not path.startswith(scratch + os.sep):
        return
    parts = os.path.relpath(path, scratch).split(os.sep)
    at = scratch
    for part in parts[:-1]:
        at = os.path.join(at, part)
        if os.path.islink(at):
            with _alone(scratch):
                _open_up(at)
    if os.path.islink(path):
        with _alone(scratch):
            _detach(path, keep=keep)


def _open_up(folder: str) -> None:
    """Put a folder of links in place of a link to a folder."""
    if not os.path.islink(folder) or not os.path.isdir(folder):
        return
    target = realpath(folder)
    fresh = f"{folder}.{os.getpid()}{OPENING}"
    os.mkdir(fresh)
    for name in os.listdir(target):
        os.symlink(os.path.join(target, name), os.path.join(fresh, name))
    if _exchange(fresh, folder):
        os.unlink(fresh)
        return
    os.unlink(folder)
    os.rename(fresh, folder)


def _exchange(one: str, other: str) -> bool:
    """Give each of two paths what the other has, so that no rank finds nothing in between; whether it was done."""
    if not sys.platform.startswith("linux"):
        return False
    try:
        rename = ctypes.CDLL(None).renameat2
    except AttributeError:
        return False
    return bool(rename(_HERE, os.fsencode(one), _HERE, os.fsencode(other), _EXCHANGE) == 0)


_HERE = -100
"""AT_FDCWD: paths are relative to the working directory."""
_EXCHANGE = 2
"""RENAME_EXCHANGE, of renameat2(2)."""


def _detach(path: str, *, keep: bool) -> None:
    if not os.path.islink(path):
        return
    target = realpath(path)
    if os.path.isdir(target):
        _open_up(path)
        return
    fresh = f"{path}.{os.getpid()}{OPENING}"
    if keep and os.path.exists(target):
        shutil.copy2(target, fresh)
    else:
        with open(fresh, "w"):
            pass
    os.replace(fresh, path)


@contextlib.contextmanager
def _alone(scratch: str) -> Iterator[None]:
    """Ranks share a scratch folder, and two may want to write at once."""
    try:
        import fcntl
    except ImportError:  # no such lock on this system: ranks rarely meet on a link
        yield
        return
    with open(scratch + ".lock", "a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
