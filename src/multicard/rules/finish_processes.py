"""Destroy the process group at the end.

Without it torch warns of leaked resources, and NCCL may hold a card until its watchdog gives up.  `setup_ddp` also
registers it for the case that the script leaves by an error.

Before:

    if __name__ == "__main__":
        main()

After:

    if __name__ == "__main__":
        main()
        dist.destroy_process_group()
"""

import ast
from collections.abc import Iterator

from multicard.edits import insert_after
from multicard.facts import Facts
from multicard.libraries import EXITS
from multicard.messages import Text
from multicard.plan import Finding
from multicard.start import start
from multicard.values import Lib

CODE = "MC103"
TITLE = Text("Destroy the process group", "清理分布式环境")


def find(facts: Facts) -> Iterator[Finding]:
    """One finding, unless the script's last statement leaves it anyway."""
    place = start(facts)
    if isinstance(place.last, ast.Return | ast.Raise) or _exits(facts, place.last):
        return
    yield Finding(
        CODE,
        facts.site(place.module, place.last),
        Text(
            "frees the communicators; without it processes can linger and torch warns",
            "正常释放通信资源,避免残留进程和警告",
        ),
        (insert_after(place.module, place.last, "«dist».destroy_process_group()"),),
    )


def _exits(facts: Facts, statement: ast.stmt) -> bool:
    """Whether a statement is `sys.exit(main())`: nothing runs after it, and `setup_ddp` cleans up at the exit."""
    return (
        isinstance(statement, ast.Expr)
        and isinstance(statement.value, ast.Call)
        and any(
            isinstance(value, Lib) and value.name in EXITS for value in facts.values(statement.value.func)
        )
    )
