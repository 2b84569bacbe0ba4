"""The files that both runs wrote, compared by what is in them.

Runs at the very end of the original's process: torch is there, the classes that a pickled model needs are
there, and starting another interpreter would cost seconds.
"""

import contextlib
import csv
import filecmp
import io
import json
import math
import os
import pickle
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from multicard.verify import printed
from multicard.verify.evidence import known_pairs
from multicard.verify.probe import modules
from multicard.verify.probe import record as recording

STAMP = re.compile(r"\d+")
TEXT = {".csv", ".tsv", ".json", ".jsonl", ".txt", ".log", ".md", ".yaml", ".yml", ""}
TENSORS = {".pt", ".pth", ".ckpt", ".tar", ".bin", ".model", ".pkl", ".pickle", ".chkpt", ".pyt"}
ARRAYS = {".npy", ".npz"}
LARGE = 4 << 20
LOSSES = [printed.NO_LOSSES]


class Stub:
    """Stands for a class that cannot be imported."""

    def __init__(self, *args: Any, **_: Any) -> None:
        self.args = args

    def __setstate__(self, state: Any) -> None:
        self.state = state


class _Unpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        try:
            return super().find_class(module, name)
        except (ImportError, AttributeError):
            return type(name, (Stub,), {})


class Lenient:
    """A pickle module for torch.load that invents what it cannot import."""

    Unpickler = _Unpickler

    @staticmethod
    def load(file: Any, **keywords: Any) -> Any:
        return _Unpickler(file, **keywords).load()


def written_by(trace: list[dict[str, Any]]) -> list[str]:
    paths = [event["path"] for event in trace if event["kind"] in {"write", "save"}]
    return [path for path in dict.fromkeys(paths) if os.path.isfile(path) and not os.path.islink(path)]


def relative(path: str, script: str, working: str) -> str:
    """The name that a file has in both runs: from the script's folder, or else from the working directory."""
    folder = os.path.dirname(script)
    if folder != working and path.startswith(folder + os.sep):
        return os.path.relpath(path, folder)
    return os.path.relpath(path, working)


def paired(mine: dict[str, str], theirs: dict[str, str]) -> Iterator[tuple[str, str | None, str | None]]:
    """Files of the same name; failing that, of the same name but for the numbers in it."""
    left = dict(theirs)
    unmatched = []
    for name, path in mine.items():
        if name in left:
            yield name, path, left.pop(name)
        else:
            unmatched.append((name, path))
    for name, path in unmatched:
        shape = STAMP.sub("#", name)
        same = next((other for other in left if STAMP.sub("#", other) == shape), None)
        yield name, path, left.pop(same) if same is not None else None
    for name, path in left.items():
        yield name, None, path


def compare_all() -> None:
    """Write one event for each file."""
    record = recording.record()
    plan = record.plan
    working = os.getcwd()
    mine = {relative(p, plan.script, working): p for p in written_by(_own_trace())}
    theirs: dict[str, str] = {}
    LOSSES[:] = [printed.Losses(known_pairs(_own_trace(), [_trace(path) for path in plan.recorded]))]
    for path in plan.recorded:
        other = json.loads((Path(path).parent / "plan.json").read_text())
        trace = _trace(path)
        their_working = next((e["working"] for e in trace if e["kind"] == "begin"), working)
        for file in written_by(trace):
            theirs.setdefault(relative(file, other["script"], their_working), file)
    for name, own, other_path in paired(mine, theirs):
        differences: list[str] = []
        how = "missing" if other_path is None else "extra" if own is None else "compared"
        if own is not None and other_path is not None:
            how, differences = compare(own, other_path)
        record.write(
            "file", name=name, how=how, differences=differences[:20], count=len(differences), path=other_path
        )


def _own_trace() -> list[dict[str, Any]]:
    return _trace(Path(recording.record().plan.folder) / "trace.jsonl")


def _trace(path: str | Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in Path(path).read_text(encoding="utf-8").splitlines()]


def compare(own: str, other: str) -> tuple[str, list[str]]:
    """How two files were compared, and where they differ."""
    suffix = Path(own).suffix.lower()
    if os.path.getsize(own) == os.path.getsize(other) and filecmp.cmp(own, other, shallow=False):
        return "tensors" if suffix in TENSORS | ARRAYS else "text" if suffix in TEXT else "present", []
    try:
        if suffix in TENSORS:
            return "tensors", list(differing(_tensors(own), _tensors(other), ""))
        if suffix in ARRAYS:
            import numpy as np

            a, b = np.load(own, allow_pickle=True), np.load(other, allow_pickle=True)
            a, b = (dict(x) if hasattr(x, "files") else x for x in (a, b))
            return "tensors", list(differing(a, b, ""))
        if suffix in TEXT and max(os.path.getsize(own), os.path.getsize(other)) < LARGE:
            return "text", text_differences(own, other, suffix)
    except (
        OSError,
        ValueError,
        RuntimeError,
        EOFError,
        AttributeError,
        TypeError,
        KeyError,
        pickle.UnpicklingError,
    ) as error:
        return "unreadable", [f"{type(error).__name__}: {str(error)[:200]}"]
    return "present", [] if os.path.getsize(other) else ["empty"]


def _tensors(path: str) -> Any:
    try:
        return torch.load(path, map_location="cpu", weights_only=False, pickle_module=Lenient)
    except (RuntimeError, pickle.UnpicklingError, AttributeError):
        with Path(path).open("rb") as file:
            return Lenient.load(file)


def text_differences(own: str, other: str, suffix: str) -> list[str]:
    a, b = (Path(path).read_bytes().decode("utf-8", "replace") for path in (own, other))
    if suffix == ".json":
        with contextlib.suppress(json.JSONDecodeError):  # one value a line, or something of the script's own
            return list(differing(json.loads(a), json.loads(b), ""))
    if suffix in {".csv", ".tsv"}:
        return printed.differing_lines(_rows(a), _rows(b), in_order=False, losses=LOSSES[0])
    return printed.differing_lines(a.splitlines(), b.splitlines(), in_order=True, losses=LOSSES[0])


def _rows(text: str) -> list[str]:
    return [",".join(row) for row in csv.reader(io.StringIO(text))]


def differing(a: Any, b: Any, at: str) -> Iterator[str]:
    """Where two nested structures differ; tensors by value, to what rounding allows."""
    if isinstance(a, torch.nn.Module) and isinstance(b, torch.nn.Module):
        a, b = a.state_dict(), b.state_dict()
    if isinstance(a, Stub) and isinstance(b, Stub):
        a, b = vars(a), vars(b)
    if isinstance(a, Tensor) and isinstance(b, Tensor):
        yield from _differing_tensors(a, b, at)
    elif hasattr(a, "dtype") and hasattr(b, "dtype") and "object" not in str(a.dtype):
        yield from _differing_tensors(torch.as_tensor(a), torch.as_tensor(b), at)
    elif isinstance(a, dict) and isinstance(b, dict):
        yield from _differing_keys(a, b, at)
    elif isinstance(a, (list, tuple)) and isinstance(b, (list, tuple)):
        if len(a) != len(b):
            yield f"{at or 'length'}: {len(a)} entries, {len(b)} in the migrated run"
        for i, (x, y) in enumerate(zip(a, b, strict=False)):
            yield from differing(x, y, f"{at}[{i}]")
    elif isinstance(a, bool) or isinstance(b, bool) or isinstance(a, str) or isinstance(b, str):
        if a != b and not _moment(at):
            yield f"{at}: {a!r}, {b!r} in the migrated run"
    elif isinstance(a, (int, float)) and isinstance(b, (int, float)):
        if not _near(float(a), float(b)) and not _moment(at) and not LOSSES[0].are(float(a), float(b)):
            yield f"{at}: {a!r}, {b!r} in the migrated run"
    elif type(a) is not type(b):
        yield f"{at}: {type(a).__name__}, {type(b).__name__} in the migrated run"


def _moment(at: str) -> bool:
    """Entries that no two runs share."""
    return any(
        word in at.lower()
        for word in ("time", "date", "elapsed", "duration", "seconds", "speed", "rng_state")
    )


def _near(a: float, b: float) -> bool:
    return a == b or (math.isnan(a) and math.isnan(b)) or abs(a - b) <= 3e-5 * max(abs(a), abs(b)) + 1e-9


OF_THE_MIGRATION = {"local_rank", "rank", "world_size"}


def _differing_keys(a: dict[Any, Any], b: dict[Any, Any], at: str) -> Iterator[str]:
    def wrapped(mapping: dict[Any, Any]) -> bool:
        return any(isinstance(key, str) and modules.strip(key) != key for key in mapping)

    if wrapped(b) and not wrapped(a):
        first = next(key for key in b if isinstance(key, str) and modules.strip(key) != key)
        yield f"{at}: keys with a wrapper's prefix, such as {first!r}"
        b = {modules.strip(key) if isinstance(key, str) else key: value for key, value in b.items()}
    for key in a:
        if key not in b:
            yield f"{at}.{key}: missing in the migrated run".lstrip(".")
    for key in b:
        if key not in a and key not in OF_THE_MIGRATION:
            yield f"{at}.{key}: only in the migrated run".lstrip(".")
    for key, value in a.items():
        if key in b:
            yield from differing(value, b[key], f"{at}.{key}".lstrip("."))


def _differing_tensors(a: Tensor, b: Tensor, at: str) -> Iterator[str]:
    if a.shape != b.shape:
        yield f"{at}: {list(a.shape)}, {list(b.shape)} in the migrated run"
        return
    if a.numel() == 0 or a.dtype == torch.bool or at.endswith("rng_state"):
        return
    x, y = a.double(), b.double()
    scale = float(x.abs().max())
    difference = float((x - y).abs().max())
    # the optimizer's second moments are squares of gradients: twice their error
    if difference > 2e-3 * scale + 1e-7 and not (x.numel() == 1 and LOSSES[0].are(float(x), float(y))):
        yield f"{at}: differs by {difference:.3g}, the largest is {scale:.3g}"
