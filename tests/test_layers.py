"""The order of the files is the pipeline: a module imports from those before it, and the pipeline never needs torch."""

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import multicard

PACKAGE = Path(multicard.__file__).parent
ORDER = (
    "messages",
    "errors",
    "tree",
    "source",
    "program",
    "values",
    "couplings",
    "libraries",
    "interpret",
    "facts",
    "quotients",
    "unused",
    "bound",
    "wraps",
    "carried",
    "last_batch",
    "curves",
    "dealing",
    "edits",
    "plan",
    "start",
    "settle",
    "effects",
    "reach",
    "attacks",
    "states",
    "lasting",
    "paths",
    "meeting",
    "once",
    "gathering",
    "counters",
    "progress",
    "queues",
    "rules",
    "migrate",
    "write",
    "reports",
    "roles",
    "explain",
    "cli",
    "__main__",
)
"""Each module or folder imports only from those that stand before it."""

LATER = {
    ("facts", "dealing"): "facts answer what is dealt out, which is decided from facts",
    ("meeting", "rules"): "where one rule lets ranks meet, or leaves work to rank 0, another must know",
}
"""Imports inside functions that point up, and why."""

APART = frozenset({"runtime", "verify"})
"""The runtime is copied out and imports nothing of ours; verify runs the user's scripts beside the pipeline."""


def modules() -> Iterator[tuple[str, ast.Module]]:
    for path in sorted(PACKAGE.rglob("*.py")):
        place = path.relative_to(PACKAGE).with_suffix("").parts[0]
        if place not in APART | {"__init__"}:
            yield place, ast.parse(path.read_text(encoding="utf-8"))


def imported(node: ast.AST) -> Iterator[str]:
    """The modules and folders of the package that an import statement names."""
    match node:
        case ast.ImportFrom(module="multicard", names=names):
            yield from (alias.name for alias in names)
        case ast.ImportFrom(module=str(module)) if module.startswith("multicard."):
            yield module.split(".")[1]
        case ast.Import(names=names):
            yield from (alias.name.split(".")[1] for alias in names if alias.name.startswith("multicard."))
        case _:
            return


def test_every_module_has_its_place() -> None:
    assert {place for place, _ in modules()} == set(ORDER)


def test_imports_point_down() -> None:
    upward = []
    for place, tree in modules():
        for statement in tree.body:
            upward += [
                (place, name)
                for name in imported(statement)
                if name in ORDER and name != place and ORDER.index(name) >= ORDER.index(place)
            ]
    assert upward == []


def test_imports_inside_functions_point_down_too_but_for_those_that_say_why() -> None:
    upward = set()
    for place, tree in modules():
        for function in ast.walk(tree):
            if isinstance(function, ast.FunctionDef):
                upward |= {
                    (place, name)
                    for node in ast.walk(function)
                    for name in imported(node)
                    if name in ORDER and name != place and ORDER.index(name) >= ORDER.index(place)
                }
    assert upward == set(LATER)


def test_the_runtime_imports_nothing_but_torch_and_the_standard_library() -> None:
    tree = ast.parse((PACKAGE / "runtime.py").read_text(encoding="utf-8"))
    names = {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    names |= {node.module or "." for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    foreign = {name for name in names if name.split(".")[0] not in sys.stdlib_module_names}
    assert {name for name in foreign if name.split(".")[0] not in {"torch", "numpy"}} == set()


TRAIN = """
import torch
from torch import nn
from torch.utils.data import DataLoader

loader = DataLoader(data, 8, shuffle=True)
model = nn.Linear(4, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for epoch in range(3):
    for x, y in loader:
        loss = nn.functional.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
torch.save(model.state_dict(), "last.pth")
"""


@pytest.mark.parametrize(
    "command",
    [
        ("migrate", "train.py", "-o", "out", "--report", "a.html"),
        ("migrate", "train.py", "--format", "sarif"),
        ("explain", "train.py"),
        ("rules",),
    ],
    ids=" ".join,
)
def test_no_command_of_the_pipeline_imports_torch_or_numpy(command: tuple[str, ...], tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(TRAIN)
    (tmp_path / "traps").mkdir()
    for name in ("torch", "numpy"):
        (tmp_path / "traps" / f"{name}.py").write_text("raise SystemExit('imported')")
    outcome = subprocess.run(
        [sys.executable, "-m", "multicard", *command],
        check=False,
        cwd=tmp_path,
        env={"PYTHONPATH": f"{tmp_path / 'traps'}:{PACKAGE.parent}", "LANG": "C"},
        capture_output=True,
        text=True,
        encoding="utf-8",
    )
    assert outcome.returncode in {0, 1}, outcome.stderr
    assert "imported" not in outcome.stdout + outcome.stderr
    assert "Traceback" not in outcome.stderr
