"""Whether a line of the script is run between two training steps: in the loop in which the optimizer steps.

What rank 0 shows there is of its own share, as a progress bar is; what is shown after the loop is a result.
"""

import ast
from pathlib import Path

Frames = list[tuple[str, int, str]]  # file, line, function; innermost first

LOOPS: set[tuple[str, int, int]] = set()  # loops in which an optimizer has stepped
EVALUATED = [False]  # whether a model has been run without gradients since
KNOWN: set[tuple[tuple[str, int], ...]] = set()
OF_FILE: dict[str, list[tuple[int, int]]] = {}


def loops_of(path: str) -> list[tuple[int, int]]:
    """First and last line of each loop in a file."""
    if path not in OF_FILE:
        try:
            tree = ast.parse(Path(path).read_bytes())
        except (OSError, SyntaxError, ValueError):
            tree = ast.Module([], [])
        nodes = [node for node in ast.walk(tree) if isinstance(node, ast.For | ast.While)]
        OF_FILE[path] = [(node.body[0].lineno, node.body[-1].end_lineno or node.lineno) for node in nodes]
    return OF_FILE[path]


def innermost(path: str, line: int) -> tuple[str, int, int] | None:
    holding = [(first, last) for first, last in loops_of(path) if first <= line <= last]
    return (path, *min(holding, key=lambda loop: loop[1] - loop[0])) if holding else None


def stepped(frames: Frames) -> None:
    """An optimizer has stepped, called from these lines."""
    EVALUATED[0] = False
    key = tuple((file, line) for file, line, _ in frames)
    if key in KNOWN:
        return
    KNOWN.add(key)
    loop = next((found for file, line, _ in frames if (found := innermost(file, line)) is not None), None)
    if loop is not None:
        LOOPS.add(loop)


def evaluated() -> None:
    EVALUATED[0] = True


def at(frames: Frames) -> bool:
    """Whether these lines are in such a loop, with no evaluation since the last step."""
    return not EVALUATED[0] and any(
        file == path and first <= line <= last for file, line, _ in frames for path, first, last in LOOPS
    )
