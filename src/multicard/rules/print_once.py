"""Print and log on rank 0 alone.

Every rank runs the same lines, so every line comes out once for each card, in no order.  What is printed is still
computed on every rank: an argument may need them all.  Other ranks keep their warnings and errors.

Before:

    for epoch in range(3):
        print(f"epoch {epoch}")

After:

    for epoch in range(3):
        print_log(f"epoch {epoch}")
"""

import ast
from collections.abc import Iterator

from multicard.edits import insert_before, replace, wrap
from multicard.effects import calls_named, named, names_of, placed
from multicard.facts import Facts
from multicard.meeting import no_meeting, rank_0_only
from multicard.messages import Text
from multicard.once import hides, keep_to_rank_0, neighbours, path_or_devnull, statement_of
from multicard.plan import Finding, Kind
from multicard.reach import guarded, under
from multicard.source import Module
from multicard.start import start
from multicard.tree import walk
from multicard.values import Lib

CODE = "MC503"
TITLE = Text("Print on rank 0", "只在主进程打印")

_SCREEN = frozenset({"sys.stdout", "sys.stderr"})
_PRINTERS = frozenset({
    "sys.stdout.write", "sys.stdout.writelines", "sys.__stdout__.write", "pprint.pprint", "pprint.pp", "rich.print",
    "rich.console.Console.print", "rich.console.Console.log", "rich.print_json", "click.echo", "click.secho",
    "termcolor.cprint", "IPython.display.display", "typer.echo", "typer.secho",
    *(f"loguru.logger.{level}" for level in ("trace", "debug", "info", "success")),
    *(f"absl.logging.{level}" for level in ("debug", "info", "log", "vlog")),
})  # fmt: skip
_FLUSH = frozenset({"sys.stdout.flush", "sys.__stdout__.flush"})
_SPOKEN = frozenset({"info", "debug", "log"})
_FILES = {
    "logging.FileHandler": 0,
    "logging.handlers.RotatingFileHandler": 0,
    "logging.handlers.TimedRotatingFileHandler": 0,
    "logging.handlers.WatchedFileHandler": 0,
    "loguru.logger.add": 0,
}
_EXPECTED = frozenset({
    "ImportError", "ModuleNotFoundError", "KeyboardInterrupt", "FileNotFoundError", "FileExistsError", "StopIteration",
})  # fmt: skip


def find(facts: Facts) -> Iterator[Finding]:
    """Prints, writes to the screen, loggers and questions, module by module."""
    for module in facts.modules:
        yield from _prints(facts, module)
        yield from _statements(facts, module)
        yield from _questions(facts, module)
    yield from _loggers(facts)


def _prints(facts: Facts, module: Module) -> Iterator[Finding]:
    for node in sorted(_print_names(facts, module), key=lambda item: (item.lineno, item.col_offset)):
        yield Finding(
            CODE,
            facts.site(module, facts.statement(module, node)),
            Text("every rank would print this line", "否则每张卡都会打印这一行"),
            (replace(module, node, "«print_log»"),),
        )


def _print_names(facts: Facts, module: Module) -> Iterator[ast.expr]:
    for node in named(facts, module, "print"):
        match node:
            case ast.Name(id="print", ctx=ast.Load()):
                values = facts.values(node)
                own = values != {Lib("builtins.print")} if values else "print" in facts.bound_names(module)
            case ast.Attribute(value=ast.Name(id="builtins"), attr="print", ctx=ast.Load()):
                own = False
            case _:
                continue
        if (
            not own
            and placed(facts, module, node)
            and not guarded(facts, module, node)
            and not _for_all_ranks(facts, module, node)
        ):
            yield node


def _for_all_ranks(facts: Facts, module: Module, node: ast.expr) -> bool:
    """Whether a print goes to a file, or tells of an error that one rank alone may have."""
    call = facts.parents(module).get(node)
    if isinstance(call, ast.Call) and call.func is node:
        for keyword in call.keywords:
            if keyword.arg == "file":
                screens = {value.name for value in facts.values(keyword.value) if isinstance(value, Lib)}
                return not screens & _SCREEN
    for outer in facts.ancestors(module, node):
        if isinstance(outer, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            return False
        if isinstance(outer, ast.ExceptHandler):
            caught = (
                {part.id for part in walk(outer.type) if isinstance(part, ast.Name)} if outer.type else set()
            )
            return not caught or not caught <= _EXPECTED
    return False


def _statements(facts: Facts, module: Module) -> Iterator[Finding]:
    """Statements that write to the screen by other means."""
    wanted: dict[ast.stmt, bool] = {}
    for call in calls_named(facts, module, (_PRINTERS | _FLUSH).__contains__):
        names = names_of(facts, call)
        if guarded(facts, module, call):
            continue
        statement = statement_of(facts, module, call)
        if statement is None:
            continue
        why = hides(facts, statement)
        if why:
            yield Finding(
                CODE,
                facts.site(module, statement),
                Text(
                    f"every rank prints this, and it cannot be left to rank 0: {why}",
                    f"每张卡都会输出这一行,但无法只留给主进程:{why}",
                ),
                (),
                Text(
                    "compute the value before, then print it on rank 0", "请先算出要输出的值,再只在主进程输出"
                ),
                Kind.LEFT,
            )
        else:
            wanted[statement] = bool(names & _PRINTERS)
    for run in neighbours(module, wanted):
        if any(wanted[statement] for statement in run):
            yield keep_to_rank_0(
                facts,
                CODE,
                module,
                run,
                Text("every rank would write this to the screen", "否则每张卡都会输出这些内容"),
            )


def _questions(facts: Facts, module: Module) -> Iterator[Finding]:
    for call in calls_named(facts, module, "builtins.input".__eq__):
        if guarded(facts, module, call):
            continue
        if not placed(facts, module, call):
            continue
        site = facts.site(module, call)
        events = [event for event in under(facts).get(call, ()) if not event.dead]
        if events and all(rank_0_only(facts, event) for event in events):
            continue
        if no_meeting(facts, module, call) is not None or any(
            event.tainted or event.loops for event in events
        ):
            yield Finding(
                CODE,
                site,
                Text(
                    "every rank waits for an answer, and ranks may come here a different number of times",
                    "每张卡都会等待输入,而且各卡到这里的次数可能不同",
                ),
                (),
                Text("ask on rank 0 and broadcast the answer", "请只在主进程询问,再把回答广播给其他卡"),
                Kind.LEFT,
            )
            continue
        yield Finding(
            CODE,
            site,
            Text(
                "one answer for all: rank 0 asks, the others are told", "只在主进程询问一次,回答广播给所有卡"
            ),
            wrap(module, call, "«broadcast_value»(", " if «rank 0» else None)"),
        )


def _loggers(facts: Facts) -> Iterator[Finding]:
    first: tuple[Module, ast.Call] | None = None
    for module in facts.modules:
        for call in calls_named(facts, module, _logs):
            names = names_of(facts, call)
            yield from _log_file(facts, module, call, names)
            if first is None and any(
                name.startswith("logging.") and name.rpartition(".")[2] in _SPOKEN for name in names
            ):
                first = module, call
    if first is None:
        return
    place = start(facts)
    line = "«logging».disable(«logging».NOTSET if «rank 0» else «logging».WARNING)"
    yield Finding(
        CODE,
        facts.site(place.module, place.before),
        Text(
            "the other ranks log warnings and worse only; without it every rank logs every line",
            "其他卡只记录警告及以上的日志;否则每张卡都会记录每一行",
        ),
        (insert_before(place.module, place.before, line),),
    )


def _logs(name: str) -> bool:
    return name.startswith("logging.") or name in _FILES


def _log_file(facts: Facts, module: Module, call: ast.Call, names: frozenset[str]) -> Iterator[Finding]:
    path: ast.expr | None = None
    if "logging.basicConfig" in names:
        path = next((keyword.value for keyword in call.keywords if keyword.arg == "filename"), None)
        if isinstance(path, ast.Constant) and path.value is None:
            path = None
    elif names & set(_FILES) and (call.args or call.keywords):
        named = next((k.value for k in call.keywords if k.arg in {"filename", "sink"}), None)
        path = call.args[0] if call.args else named
        screens = {value.name for value in facts.values(path) if isinstance(value, Lib)} if path else set()
        if screens & _SCREEN or isinstance(path, ast.Starred | ast.Lambda):
            path = None
    if path is not None and not guarded(facts, module, call):
        yield Finding(
            CODE,
            facts.site(module, call),
            Text("one log file has one writer: rank 0", "一个日志文件只能由主进程写入"),
            path_or_devnull(module, path),
        )
