"""A plan becomes files: all of them, or none.

A migration that stops half-way leaves a script that imports what is not there.  So every file is first
written beside its place under another name; only when all are there do they take their places, and if one
cannot, those that could are put back.
"""

import errno
import os
import stat
from collections.abc import Iterable
from pathlib import Path
from typing import Literal, NamedTuple

from multicard.errors import MulticardError
from multicard.messages import Text
from multicard.plan import Plan
from multicard.source import Module, compile_quietly, reason

RUNTIME = Path(__file__).with_name("runtime.py")
VENDORED = "ddp_runtime.py"
_OURS = (b"def setup_ddp(", b"class EvalSampler(", b"class NullWriter")
"""What tells a copy of the runtime, of any version, from a user's file of that name."""
_FARTHEST = 2
"""So many folders above the script's may be copied along with it; what lies farther off stays there."""


class WriteError(MulticardError):
    """The files cannot be written; nothing was."""


class File(NamedTuple):
    """One file to be written: where, what, and with which permissions (None: what a new file gets)."""

    path: Path
    data: bytes
    mode: int | None = None


def files_in_place(plan: Plan, runtime: Literal["vendor", "package"]) -> tuple[Path, tuple[File, ...]]:
    """The script's path, and the changed modules where they are with the runtime beside the script."""
    files = [_file(plan, module, module.path) for module in plan.changed]
    return plan.entry.path, (*files, *_runtime(plan, plan.entry.path.parent, runtime))


def files_in(
    target: Path, plan: Plan, runtime: Literal["vendor", "package"]
) -> tuple[Path, tuple[File, ...]]:
    """The script's path under `target`, and all modules there, placed to each other as they were."""
    home = plan.entry.path.parent.resolve()
    if target.exists() and not target.is_dir():
        raise WriteError(Text(f"{target}: is not a folder", f"{target}：不是文件夹"))
    if target.resolve() == home:
        raise WriteError(
            Text(
                f"{target}: is the script's own folder; use --in-place to rewrite it there",
                f"{target}：就是脚本所在的文件夹；要就地改写请用 --in-place",
            )
        )
    near = _near(plan, home)
    above = [plan.above] if plan.above is not None else []
    base = Path(os.path.commonpath([home, *above, *(path.parent for path in near.values())]))
    script = target / home.relative_to(base) / plan.entry.path.name
    copied = _runtime(plan, script.parent, runtime)
    files = [_file(plan, module, target / path.relative_to(base)) for module, path in near.items()]
    _keep_originals(plan, files)
    taken = {file.path for file in copied}
    return script, (*(file for file in files if file.path not in taken), *copied)


def _near(plan: Plan, home: Path) -> dict[Module, Path]:
    """The modules that are copied along, and where they are now."""
    reachable = {home, *list(home.parents)[:_FARTHEST]}
    paths = {module: module.path.parent.resolve() / module.path.name for module in plan.modules}
    near = {module: path for module, path in paths.items() if reachable.intersection(path.parents)}
    for module in plan.changed:
        if module not in near:
            raise WriteError(
                Text(
                    f"{module.path}: has to change but lies too far from the script; use --in-place",
                    f"{module.path}：需要修改，但离脚本太远；请用 --in-place",
                )
            )
    return near


def _file(plan: Plan, module: Module, path: Path) -> File:
    data = plan.texts[module]
    if data != module.data:
        try:
            compile_quietly(data.decode(), str(path))
        except SyntaxError as error:
            why = f"{module.path}:{error.lineno}: {error.msg}"
            raise WriteError(
                Text(f"the new text would not compile: {why}", f"改写后的内容无法编译：{why}")
            ) from None
    return File(path, module.encode(data), stat.S_IMODE(module.path.stat().st_mode))


def _runtime(plan: Plan, folder: Path, runtime: Literal["vendor", "package"]) -> tuple[File, ...]:
    """The copy of the runtime beside the script, where the script needs one."""
    if runtime == "package" or not plan.helpers:
        return ()
    path = folder / VENDORED
    for place in (path, plan.entry.path.parent / VENDORED):
        if place.is_file() and not all(name in place.read_bytes() for name in _OURS):
            raise WriteError(
                Text(
                    f"{place}: is yours, where the runtime has to be; rename it, or use --runtime package",
                    f"{place}：这是你自己的文件，与运行时文件同名；请改名，或使用 --runtime package",
                )
            )
    return (File(path, RUNTIME.read_bytes()),)


def _keep_originals(plan: Plan, files: Iterable[File]) -> None:
    originals = {module.path.resolve() for module in plan.modules}
    for file in files:
        if file.path.resolve() in originals:
            raise WriteError(
                Text(
                    f"{file.path}: is one of the files to be read; choose another folder, or use --in-place",
                    f"{file.path}：是要读取的源文件之一；请换一个文件夹，或使用 --in-place",
                )
            )


# --- whole or not at all --------------------------------------------------------------------------


def write(files: Iterable[File]) -> None:
    """Write all files, or leave everything as it was and raise `WriteError`."""
    undo: list[tuple[Path, Path | None]] = []
    made: list[Path] = []
    scraps: list[Path] = []
    at = Path()
    try:
        staged = []
        for file in files:
            at = file.path
            staged.append((at, *_staged(file, made, scraps)))
        for at, temporary, path in staged:  # noqa: B007 - names the file that failed
            undo.append((path, _backup(path, scraps)))
            temporary.replace(path)
    except BaseException as error:
        for path, backup in reversed(undo):
            if backup is not None:
                backup.replace(path)
            else:
                path.unlink(missing_ok=True)
        _discard(scraps)
        for folder in reversed(made):
            folder.rmdir()
        if isinstance(error, OSError):
            why = reason(error)
            text = Text(f"{at}: {why.en}; nothing was written", f"{at}：{why.zh}；没有写入任何文件")
            raise WriteError(text) from None
        raise
    _discard(scraps)


def _staged(file: File, made: list[Path], scraps: list[Path]) -> tuple[Path, Path]:
    """The new file under a passing name, and its place; a link's place is where it leads."""
    path = file.path.resolve()
    for folder in reversed([folder for folder in path.parents if not folder.exists()]):
        folder.mkdir()
        made.append(folder)
    if not path.parent.is_dir():
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR))
    for place in (path, path.parent):
        if place.exists() and not place.stat().st_mode & 0o222:
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
    temporary = path.with_name(f".{path.name}.{os.getpid()}.new")
    scraps.append(temporary)
    temporary.write_bytes(file.data)
    if file.mode is not None or path.exists():
        temporary.chmod(stat.S_IMODE(path.stat().st_mode) if file.mode is None else file.mode)
    return temporary, path


def _backup(path: Path, scraps: list[Path]) -> Path | None:
    if not path.exists():
        return None
    import shutil  # with all archive formats, for a run that writes over files

    backup = path.with_name(f".{path.name}.{os.getpid()}.old")
    scraps.append(backup)
    shutil.copy2(path, backup)
    return backup


def _discard(scraps: Iterable[Path]) -> None:
    for path in scraps:
        path.unlink(missing_ok=True)
