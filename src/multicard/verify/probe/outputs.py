"""What the script writes and prints, and which line does it.

Files are written through many libraries, but nearly all of them open a file; Python tells of every opening
before it happens. That is also the moment at which a link to the user's data has to become a copy.
"""

import contextlib
import errno
import logging
import os
import pathlib
import re
import sys
import tempfile
import traceback
from collections.abc import Callable, Sequence
from typing import Any

import torch

from multicard.verify import printed
from multicard.verify.plan import Plan
from multicard.verify.probe import record as recording
from multicard.verify.probe import steps_between
from multicard.verify.probe.patching import Function, replace
from multicard.verify.scratch import make_own

NUMBER = re.compile(r"[-+]?(?:\d+\.?\d*(?:[eE][-+]?\d+)?|\bnan\b|\binf\b)")
WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
CHANGES = {
    "os.chdir",
    "os.remove",
    "os.rename",
    "os.mkdir",
    "os.rmdir",
    "os.truncate",
    "os.link",
    "os.symlink",
    "shutil.rmtree",
}
SHAPES = 5000


class KeptError(PermissionError):
    """A script was about to change a file of the user's by a path that does not lead to the copy."""


class Watch:
    """The audit hook, which cannot be taken away again."""

    def __init__(self, plan: Plan) -> None:
        self.scratch = plan.scratch
        self.links = plan.links
        self.free = (os.path.dirname(plan.meeting), tempfile.gettempdir())
        self.inside = False
        self.shapes: set[str] = set()

    def __call__(self, event: str, args: tuple[Any, ...]) -> None:
        if event != "open" and event not in CHANGES:
            return
        if self.inside:
            return
        self.inside = True
        try:
            if event == "open":
                self.opened(*args)
            elif event in CHANGES:
                self.changed(event, args)
        except KeptError:
            raise
        except (OSError, ValueError):
            pass  # a path that cannot be looked at: the script's own call will say so
        finally:
            self.inside = False

    def opened(self, path: Any, mode: Any, flags: Any) -> None:
        writes = any(letter in mode for letter in "wax+") if isinstance(mode, str) else bool(flags & WRITING)
        if not writes or isinstance(path, int):
            return
        keep = not (isinstance(mode, str) and "w" in mode) and not (flags or 0) & os.O_TRUNC
        self.written(os.fsdecode(path), "open", keep=keep)

    def changed(self, event: str, args: tuple[Any, ...]) -> None:
        paths = (
            args[:2]
            if event in {"os.rename", "os.link"}
            else args[1:2]
            if event == "os.symlink"
            else args[:1]
        )
        for path in paths:
            if isinstance(path, (str, bytes, os.PathLike)):
                name = os.path.abspath(os.fsdecode(path))
                if event != "os.chdir":
                    self.refuse(name)
                # the entry itself is moved or removed, so only what leads to it has to be our own
                make_own(name, self.scratch, keep=True) if event == "shutil.rmtree" else make_own(
                    os.path.join(name, "x"), self.scratch, keep=True
                ) if event in {"os.mkdir", "os.chdir"} else make_own_parents(name, self.scratch)
        if event in {"os.rename", "os.mkdir"}:
            target = args[1] if event == "os.rename" else args[0]
            if isinstance(target, (str, bytes, os.PathLike)):
                self.written(os.fsdecode(target), event, keep=True)

    def written(self, path: str, how: str, *, keep: bool) -> None:
        path = os.path.abspath(path)
        if not path.startswith(self.scratch + os.sep):
            self.refuse(path)
            return
        if how == "open":
            make_own(path, self.scratch, keep=keep)
        if "__pycache__" in path:
            return
        recording.record().write_once("write", path, how, path=path, how=how, site=recording.site())

    def refuse(self, path: str) -> None:
        """Raise where a file of the user's would be changed; caches in hidden folders are everybody's."""
        if path.startswith(self.scratch + os.sep):
            return
        for folder, _ in self.links:
            rest = os.path.relpath(path, folder).split(os.sep)
            free = any(
                path.startswith(place + os.sep) and (place + os.sep).startswith(folder + os.sep)
                for place in self.free
            )
            if rest[0] != os.pardir and not free and not any(part.startswith((".", "__")) for part in rest):
                raise KeptError(errno.EPERM, "verify changes nothing outside its copies", path)


def copy_of(path: str, links: Sequence[tuple[str, str]]) -> str:
    """What stands for a file of the user's in the copies, if anything does."""
    if any(path == copy or path.startswith(copy + os.sep) for _, copy in links):
        return path
    for folder, copy in links:
        if path == folder or path.startswith(folder + os.sep):
            found = os.path.normpath(os.path.join(copy, os.path.relpath(path, folder)))
            if os.path.lexists(os.path.dirname(found)):
                return found
    return path


def _real(links: Sequence[tuple[str, str]]) -> Callable[[Function], Function]:
    """A script that asks where a link leads would be led out of its copy."""

    def make(original: Function) -> Function:
        def realpath(path: Any, *args: Any, **keywords: Any) -> Any:
            found = original(path, *args, **keywords)
            return copy_of(found, links) if isinstance(found, str) else found

        return realpath

    return make


def make_own_parents(path: str, scratch: str) -> None:
    make_own(os.path.join(os.path.dirname(path), "."), scratch, keep=True)
    parent = os.path.dirname(path)
    if os.path.islink(parent):
        make_own(parent, scratch, keep=True)


WATCH: list[Watch] = []


def note(line: str, begun: str = "") -> None:
    """Write down, once for each shape of line, where it comes from, and whether that is between training steps.

    `begun`: the part of it that was written there, if the rest came later.
    """
    watch, record = WATCH[0], recording.record()
    shape = NUMBER.sub("#", printed.read(line).shape)
    if not shape or shape in watch.shapes or len(watch.shapes) >= SHAPES or not record.mine:
        return
    watch.shapes.add(shape)
    frames = _frames()
    site = f"{frames[0][0]}:{frames[0][1]}" if frames else None
    record.write("print", text=line, site=site, between=steps_between.at(frames), begun=begun)


def _frames() -> steps_between.Frames:
    """The user's lines that are being run, those of a stream of the script's own left out."""
    return [frame for frame in recording.user_frames(sys._getframe(1)) if frame[2] != "write"]  # noqa: SLF001


def watch_stream(stream: Any) -> None:
    """See what goes through a stream; `print`, loggers and scripts all end there."""
    original, held, between = stream.write, [""], [False]

    def write(text: Any, *args: Any) -> Any:
        result = original(text, *args)
        if isinstance(text, str) and recording.record().mine:
            recording.record().events += 1
            before = held[0]
            *lines, held[0] = re.split(r"[\r\n]", before + text)
            for number, line in enumerate(lines):
                note(line, before if number == 0 and between[0] else "")
            if held[0] and (lines or not before):
                between[0] = steps_between.at(_frames())
        return result

    with contextlib.suppress(AttributeError):
        stream.write = write


def _emit(original: Function) -> Function:
    """What a logger writes to a file is noted too."""

    def emit(handler: Any, entry: Any) -> Any:
        outcome = original(handler, entry)
        if recording.record().mine:
            for line in handler.format(entry).splitlines():
                note(line)
        return outcome

    return emit


def _save(original: Function) -> Function:
    def save(thing: Any, f: Any, *args: Any, **keywords: Any) -> Any:
        if isinstance(f, (str, os.PathLike)):
            # torch opens a path in C++, where nobody tells
            WATCH[0].written(os.fspath(f), "open", keep=False)
        name = os.fspath(f) if isinstance(f, (str, os.PathLike)) else getattr(f, "name", None)
        if isinstance(name, str) and recording.record().mine:
            path = os.path.abspath(name)
            recording.record().write_once("save", path, path=path, site=recording.site())
        return original(thing, f, *args, **keywords)

    return save


def _load(original: Function) -> Function:
    def load(f: Any, *args: Any, **keywords: Any) -> Any:
        if isinstance(f, (str, os.PathLike)) and recording.record().mine:
            recording.record().write("load", path=os.path.abspath(os.fspath(f)), site=recording.site())
        return original(f, *args, **keywords)

    return load


def error_text(error: BaseException) -> str:
    """The traceback, without the frames of the probe."""
    tb = error.__traceback__
    while tb is not None and not recording.is_the_users(tb.tb_frame.f_code.co_filename):
        tb = tb.tb_next
    summary = traceback.TracebackException(
        type(error), error, tb or error.__traceback__, capture_locals=False
    )
    own = os.path.dirname(__file__)
    summary.stack = traceback.StackSummary.from_list(
        [f for f in summary.stack if not f.filename.startswith(own)]
    )
    return "".join(summary.format())


def install(plan: Plan) -> None:
    WATCH[:] = [Watch(plan)]
    for stream in (sys.stdout, sys.stderr):
        watch_stream(stream)
    replace(logging.StreamHandler, "emit", _emit)
    replace(torch, "save", _save)
    replace(torch.serialization, "save", lambda _: torch.save)
    replace(torch, "load", _load)
    replace(os.path, "realpath", _real(plan.links))
    accessor = getattr(pathlib, "_NormalAccessor", None)
    if accessor is not None:  # Python 3.10 keeps its own
        accessor.realpath = staticmethod(os.path.realpath)
    sys.addaudithook(WATCH[0])
