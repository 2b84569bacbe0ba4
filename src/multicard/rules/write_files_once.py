"""Write files on rank 0 alone.

Ranks that write one file overwrite each other's lines, ranks that make one folder stop with `FileExistsError`, and
what one rank deletes another may be reading.  A file that is opened for writing goes to `os.devnull` on the other
ranks, so that the code round it runs everywhere.

Before:

    os.makedirs("out")
    with open("out/log.csv", "w") as log:
        log.write("epoch,loss")
    frame = pd.DataFrame(rows)
    frame.to_csv("out/rows.csv")

After:

    os.makedirs("out", exist_ok=True)
    with open("out/log.csv" if rank == 0 else os.devnull, "w") as log:
        log.write("epoch,loss")
    frame = pd.DataFrame(rows)
    if rank == 0:
        frame.to_csv("out/rows.csv")
"""

import ast
import re
from collections.abc import Iterator

from multicard.edits import Edit, Side, add_argument, call_with, insert_after, insert_before, replace, wrap
from multicard.effects import (
    ARCHIVES,
    Effect,
    all_effects,
    calls_in,
    mode_of,
    named,
    names_of,
    running,
    running_nodes,
    writes_to,
)
from multicard.facts import Facts
from multicard.interpret import Event
from multicard.meeting import (
    amid_preparation,
    follows,
    kept_by_rank_0,
    meets,
    no_meeting,
    prepared,
    waits,
    where_to_wait,
)
from multicard.messages import Text
from multicard.once import UNDER_A_GUARD, hides, keep_to_rank_0, neighbours, path_or_devnull
from multicard.paths import likely_same_file, spelled, surely_same_file
from multicard.plan import Finding, Kind
from multicard.reach import below, guarded, is_wrapped, per_sample, tests_existence, training_begins
from multicard.rules.prepare_once import COMMANDS
from multicard.source import Module, Span
from multicard.tree import children, held, walk
from multicard.values import Const, Lib, Obj
from multicard.wraps import exclude

CODE = "MC505"
TITLE = Text("Write files on rank 0", "只在主进程写文件")

_GUARDED = frozenset({"write", "delete", "show", "send", "command"})
_BEGINS = frozenset({"figure", "clf", "subplots"})
_ENDS = frozenset({"close", "clf", "cla"})
_READ_FROM_WRITER = frozenset(
    {"log_dir", "logdir", "get_logdir", "id", "dir", "url", "config", "summary", "path"}
)
_COPIES = frozenset({
    "shutil.copy", "shutil.copy2", "shutil.copyfile", "shutil.copytree", "shutil.move", "os.rename", "os.replace",
})  # fmt: skip
_ONE_WRITER = Text(
    "one file has one writer: the other ranks would overwrite its lines",
    "一个文件只能由主进程写入,否则各卡会互相覆盖",
)
_WHY: dict[str, Text] = {
    "write": Text("every rank would write this file", "否则每张卡都会写这个文件"),
    "delete": Text(
        "one rank deletes; the others would find it gone", "只由一个进程删除,否则其他进程会因找不到文件而出错"
    ),
    "show": Text("every rank would show this", "否则每张卡都会弹出显示"),
    "send": Text("every rank would send this", "否则每张卡都会上报一次"),
    "command": Text("every rank would run this command", "否则每张卡都会执行这条命令"),
}


_SPOILED = Text(
    "another rank may still be reading the file that rank 0 overwrites or deletes here",
    "其他进程可能还在读取这个文件,而 rank0 在这里要覆盖或删除它",
)


def find(facts: Facts) -> Iterator[Finding]:
    """Files, folders, writers and pictures, module by module; then where the others must wait."""
    for module in facts.modules:
        statements: dict[ast.stmt, Effect] = {}
        for effect in all_effects(facts):
            if effect.module is module and not _is_settled(facts, effect):
                yield from _judge(facts, effect, statements)
        yield from _guards(facts, module, statements)
        yield from _handed_to_writers(facts, module)
        yield from _tests(facts, module)
    yield from _reads(facts)
    yield from _spoils(facts)


def _is_settled(facts: Facts, effect: Effect) -> bool:
    """Whether only one process comes here already."""
    place = (facts, effect.module, effect.call)
    return guarded(*place) or kept_by_rank_0(*place) or prepared(*place)


def _judge(facts: Facts, effect: Effect, statements: dict[ast.stmt, Effect]) -> Iterator[Finding]:
    match effect.what:
        case "open":
            yield from _opened(facts, effect)
        case "folder":
            yield from _folder(facts, effect)
        case "writer":
            yield from _writer(facts, effect, statements)
        case "write" | "delete" | "show" | "send" | "command":
            yield from _statement(facts, effect, statements)
        case _:
            pass


def _left(facts: Facts, effect: Effect, en: str, zh: str) -> Finding:
    return Finding(CODE, facts.site(effect.module, effect.call), Text(en, zh), (), UNDER_A_GUARD, Kind.LEFT)


# --- files --------------------------------------------------------------------------------------------------------


def _opened(facts: Facts, effect: Effect) -> Iterator[Finding]:
    given, mode = mode_of(facts, effect)
    module, call, path = effect.module, effect.call, effect.path
    if mode is not None and not writes_to(mode):
        return
    if mode is None:
        known = (
            {value.value for value in facts.values(given) if isinstance(value, Const)}
            if given is not None
            else set()
        )
        if not any(isinstance(text, str) and writes_to(text) for text in known):
            return
        yield _left(
            facts,
            effect,
            "the mode is known only when it runs, so every rank may write this file",
            "打开方式在运行时才确定,每张卡都可能写这个文件",
        )
        return
    if per_sample(facts, module, call):
        yield _left(
            facts,
            effect,
            "worker processes of every rank write here, each for its own samples",
            "每张卡的数据加载进程都会在这里写各自样本的文件",
        )
        return
    if "+" in mode and not ("w" in mode and _only_written(facts, call)):
        yield _left(
            facts,
            effect,
            "the file is read and written, and the other ranks would read from nothing",
            "该文件既读又写,其他进程没有内容可读",
        )
        return
    if path is None or (isinstance(path, ast.Constant) and not isinstance(path.value, str)):
        yield _left(facts, effect, "every rank would write this file", "每张卡都会写这个文件")
        return
    if isinstance(call.func, ast.Attribute) and path is call.func.value:
        edits: tuple[Edit, ...] = _method_to_function(module, call, path)
    else:
        edits = path_or_devnull(module, path)
    if "x" in mode and isinstance(given, ast.Constant):
        edits = (*edits, replace(module, given, f'{module.text(given)} if «rank 0» else "w"'))
    yield Finding(CODE, facts.site(module, call), _ONE_WRITER, edits)


_READS_BACK = frozenset({"read", "readline", "readlines", "readinto", "seek", "tell", "truncate", "fileno"})


def _only_written(facts: Facts, call: ast.Call) -> bool:
    """Whether a file that is opened to be written anew, and might be read then, is only written."""
    made = {value for value in facts.values(call) if isinstance(value, Obj)}
    if not made:
        return False
    for module in facts.modules:
        for node in running_nodes(facts, module):
            match node:
                case ast.Attribute(value=owner, attr=attr) if (
                    attr in _READS_BACK and facts.values(owner) & made
                ):
                    return False
                case ast.Call(func=ast.Attribute(attr=attr), args=args) if "load" in attr and any(
                    facts.values(argument) & made for argument in args
                ):
                    return False
                case ast.For(iter=walked) if facts.values(walked) & made:
                    return False
                case _:
                    pass
    return True


def _method_to_function(module: Module, call: ast.Call, owner: ast.expr) -> tuple[Edit, ...]:
    """`path.open("w")` becomes `open(path if rank == 0 else os.devnull, "w")`."""
    start, end = module.span(call).start, module.span(owner).end
    first = min(
        (module.span(node).start for node in (*call.args, *call.keywords)), default=module.span(call).end - 1
    )
    between = module.data[end:first].decode("latin-1")
    dot = between.rindex(".", 0, between.rindex("open"))
    return (
        Edit(module, Span(start, start), "open(", Side.OPEN, module.span(call)),
        Edit(module, Span(end + dot, first), " if «rank 0» else «os».devnull, "),
    )


def _statement(facts: Facts, effect: Effect, statements: dict[ast.stmt, Effect]) -> Iterator[Finding]:
    module, call = effect.module, effect.call
    if effect.what == "command":
        text = module.text(call)
        if re.search(COMMANDS, text) or "mkdir" in text:
            return
    if per_sample(facts, module, call):
        yield _left(
            facts,
            effect,
            "worker processes of every rank come here, each for its own samples",
            "每张卡的数据加载进程都会执行到这里,各自处理自己的样本",
        )
        return
    statement = _whole_statement(facts, module, call)
    if statement is None:
        if effect.what in {"write", "delete"}:
            yield _left(
                facts,
                effect,
                "every rank would do this, and its value is used, so it cannot be left to rank 0",
                "每张卡都会执行这一步,而它的返回值还要使用,不能只留给主进程",
            )
        return
    why = hides(facts, statement)
    if why:
        hoisted = _hoisted(facts, effect, statement)
        if hoisted is not None:
            yield hoisted
            return
        yield _left(
            facts,
            effect,
            f"every rank would do this, and it cannot be left to rank 0: {why}",
            f"每张卡都会执行这一步,但无法只留给主进程:{why}",
        )
        return
    statements.setdefault(statement, effect)


def _hoisted(facts: Facts, effect: Effect, statement: ast.Expr) -> Finding | None:
    """`os.remove(kept.pop(0))`: the list is kept by every rank, so the path is taken before the guard."""
    module, path = effect.module, effect.path
    if (
        statement.value is not effect.call
        or path is None
        or effect.what != "delete"
        or len(effect.call.args) != 1
    ):
        return None
    match path:
        case ast.Call(func=ast.Attribute(value=owner, attr="pop" | "popleft"), args=args):
            simple = not any(isinstance(node, ast.Call) for part in (owner, *args) for node in walk(part))
        case _:
            simple = False
    name = next((word for word in ("path", "old_path", "oldest") if word not in facts.names_of(module)), None)
    if not simple or name is None:
        return None
    kept = keep_to_rank_0(facts, CODE, module, [statement], _WHY["delete"])
    if not kept.edits:
        return None
    take = insert_before(module, statement, f"{name} = {module.text(path)}")
    return Finding(CODE, kept.site, kept.why, (take, *kept.edits, replace(module, path, name)))


def _whole_statement(facts: Facts, module: Module, call: ast.Call) -> ast.Expr | None:
    """The statement of a call whose value goes nowhere, but perhaps into a list that goes nowhere."""
    for outer in facts.ancestors(module, call):
        match outer:
            case ast.Expr():
                return outer
            case ast.ListComp() | ast.comprehension() | ast.Tuple() | ast.Attribute():
                continue
            case ast.Call() if not any(name.startswith(("local:", "?")) for name in names_of(facts, outer)):
                continue
            case _:
                return None
    return None


# --- guards -------------------------------------------------------------------------------------------------------


def _guards(facts: Facts, module: Module, statements: dict[ast.stmt, Effect]) -> Iterator[Finding]:
    drawn: dict[ast.stmt, Effect] = {
        statement: effect
        for effect in all_effects(facts)
        if effect.what == "draw"
        and effect.module is module
        and (statement := facts.parents(module).get(effect.call)) is not None
        and isinstance(statement, ast.Expr)
        and not _is_settled(facts, effect)
        and not hides(facts, statement)
    }
    for run in neighbours(module, {**drawn, **statements}):
        kept = _figure(run, statements, drawn)
        for part in neighbours(module, kept):
            own = [statements[statement] for statement in part if statement in statements]
            finding = keep_to_rank_0(facts, CODE, module, part, _WHY[own[0].what])
            inside = [edit for statement in part for edit in _bare(facts, module, statement)]
            after = _waits_after(facts, own) if finding.edits else ()
            yield Finding(
                CODE,
                finding.site,
                finding.why,
                (*finding.edits, *inside, *after),
                finding.advice,
                finding.kind,
            )


def _figure(
    run: list[ast.stmt], statements: dict[ast.stmt, Effect], drawn: dict[ast.stmt, Effect]
) -> list[ast.stmt]:
    """The statements of a run to keep to rank 0: writes, and the drawing of a figure that begins in the run.

    A figure that begins outside is drawn on every rank, and must be closed on every rank.
    """
    where = [index for index, statement in enumerate(run) if statement in statements]
    if not where or not drawn:
        return [run[index] for index in where]
    pictures = [
        index
        for index in where
        if "matplotlib" in statements[run[index]].name or statements[run[index]].name.endswith(".savefig")
    ]
    kept = set(where)
    if pictures:
        begins = [
            index
            for index in range(pictures[0])
            if run[index] in drawn and drawn[run[index]].name.rpartition(".")[2] in _BEGINS
        ]
        first = begins[0] if begins else pictures[0]
        last = pictures[-1]
        if begins:
            while last + 1 < len(run) and run[last + 1] in drawn:
                last += 1
                if drawn[run[last]].name.rpartition(".")[2] in _ENDS:
                    break
            else:
                last = pictures[-1]
        kept |= set(range(first, last + 1))
    return [run[index] for index in sorted(kept)]


def _bare(facts: Facts, module: Module, statement: ast.stmt) -> Iterator[Edit]:
    """Wrapped models that are called in a statement which rank 0 runs alone."""
    inside = held(statement)
    done: set[ast.AST] = set()
    for event in below(facts, statement):
        node = event.node
        if event.kind == "forward" and is_wrapped(event.subject) and node in inside and node not in done:
            done.add(node)
            if isinstance(node, ast.Call):
                yield from call_with(module, node.func, "«unwrap»")


def _waits_after(facts: Facts, effects: list[Effect]) -> tuple[Edit, ...]:
    """A barrier after something is deleted whose place is used again, or copied that is read."""
    for effect in effects:
        if effect.path is None or (effect.what != "delete" and effect.name not in _COPIES):
            continue
        events = [event for event in facts.by_node.get(effect.call, ()) if not event.dead]
        for event in events:
            again = any(
                other.path is not None
                and other is not effect
                and other.what in {"folder", "open", "write", "save", "read"}
                and surely_same_file(facts, effect, other)
                and any(later.order > event.order for later in facts.by_node.get(other.call, ()))
                for other in all_effects(facts)
            )
            if effect.name in _COPIES:
                again = event.order < training_begins(facts) and _named_later(effect)
            place = where_to_wait(facts, event)
            if again and not isinstance(place, Text):
                module, statement = place
                return (insert_after(module, statement, "«dist».barrier()"),)
    return ()


def _named_later(effect: Effect) -> bool:
    """Whether a copy is named again in its module, further down."""
    assert effect.path is not None
    text, last = effect.module.text(effect.path), effect.call.end_lineno or 0
    return any(
        isinstance(node, ast.Name | ast.Attribute | ast.Constant)
        and node.lineno > last
        and effect.module.text(node) == text
        for node in walk(effect.module.tree)
    )


# --- folders ------------------------------------------------------------------------------------------------------


def _folder(facts: Facts, effect: Effect) -> Iterator[Finding]:
    module, call = effect.module, effect.call
    given = next((keyword.value for keyword in call.keywords if keyword.arg == "exist_ok"), None)
    if isinstance(given, ast.Constant) and given.value:
        return
    if _tolerated(facts, module, call) or any(keyword.arg is None for keyword in call.keywords):
        return
    tested = any(
        isinstance(outer, ast.If) and tests_existence(facts, outer.test)
        for outer in facts.ancestors(module, call)
    )
    if given is not None and not (tested and isinstance(given, ast.Constant)):
        yield from _new_folder(facts, effect)
        return
    why = Text(
        "ranks make it at the same time, and the second finds it there"
        + ("" if tested else "; an existing folder is no error any more"),
        "多张卡会同时创建,后到的会因已存在而报错" + ("" if tested else ";文件夹已存在时也不再报错"),
    )
    edits = [add_argument(module, call, "exist_ok=True") if given is None else replace(module, given, "True")]
    if effect.name == "os.mkdir":
        if any(keyword.arg == "path" for keyword in call.keywords):
            yield _left(
                facts,
                effect,
                "the second rank finds the folder there and stops",
                "后到的进程会因文件夹已存在而报错",
            )
            return
        if isinstance(call.func, ast.Attribute):
            end = module.span(call.func).end
            edits.append(Edit(module, Span(end - len("mkdir"), end), "makedirs"))
        else:
            edits.append(replace(module, call.func, "«os».makedirs"))
    yield Finding(CODE, facts.site(module, call), why, tuple(edits))


def _new_folder(facts: Facts, effect: Effect) -> Iterator[Finding]:
    """A folder that must not be there yet: rank 0 makes it, the others wait."""
    module, call = effect.module, effect.call
    statement = facts.parents(module).get(call)
    alike = isinstance(statement, ast.Expr) and no_meeting(facts, module, statement) is None
    if isinstance(statement, ast.Expr) and alike and not hides(facts, statement):
        kept = keep_to_rank_0(facts, CODE, module, [statement], _WHY["write"])
        why = Text(
            "the folder must be new, and the second rank would find it there; the others wait until rank 0 has made it",
            "该文件夹必须是新建的,后到的进程会因已存在而报错;其他进程等主进程建好再继续",
        )
        if kept.edits:
            wait = insert_after(module, statement, "«dist».barrier()")
            yield Finding(CODE, kept.site, why, (*kept.edits, wait))
            return
    yield _left(
        facts, effect, "the second rank finds the folder there and stops", "后到的进程会因文件夹已存在而报错"
    )


def _tolerated(facts: Facts, module: Module, call: ast.Call) -> bool:
    """Whether an error of it is caught."""
    inner: ast.AST = call
    for outer in facts.ancestors(module, call):
        if isinstance(outer, ast.Try) and inner in outer.body and outer.handlers:
            return not any(_gives_up(module, handler) for handler in outer.handlers)
        if isinstance(outer, ast.FunctionDef | ast.AsyncFunctionDef):
            return False
        inner = outer
    return False


def _gives_up(module: Module, handler: ast.ExceptHandler) -> bool:
    """Whether a handler stops the program, also where the folder is just there already."""
    if "EEXIST" in module.text(handler):
        return False
    return any(
        isinstance(node, ast.Raise)
        or (
            isinstance(node, ast.Call)
            and getattr(node.func, "id", getattr(node.func, "attr", "")) in {"exit", "quit"}
        )
        for node in walk(handler)
    )


# --- writers ------------------------------------------------------------------------------------------------------


def _writer(facts: Facts, effect: Effect, statements: dict[ast.stmt, Effect]) -> Iterator[Finding]:
    module, call = effect.module, effect.call
    if effect.name in ARCHIVES:
        mode = mode_of(facts, effect)[1]
        if mode is None or not writes_to(mode[:1]):
            return
    parent = facts.parents(module).get(call)
    if isinstance(parent, ast.Expr):
        if not hides(facts, parent):
            statements[parent] = Effect("send", effect.name, module, call, None)
        return
    read = _read_from(facts, effect)
    known = _log_dir_for_all(facts, effect) if read == "log_dir" else ()
    if read is not None and not known:
        yield _left(
            facts,
            effect,
            f"every rank would make one, and `{read}` is read from it, which the other ranks then lack",
            f"每张卡都会创建一个;而脚本还要读取它的 `{read}`,其他进程将无法得到",
        )
        return
    if any(is_wrapped(event.subject) for node in _own_code(facts, call) for event in _calls_at(facts, node)):
        yield _left(
            facts,
            effect,
            "every rank would make one; it calls the model, and on rank 0 alone that would wait for the others",
            "每张卡都会创建一个;而它会调用模型,只在 rank0 上调用会一直等待其他进程",
        )
        return
    loose = isinstance(
        parent, ast.Attribute | ast.Subscript | ast.Call | ast.BoolOp | ast.IfExp | ast.Compare
    )
    if isinstance(parent, ast.Call) and parent.func is not call:
        loose = False
    opened, closed = ("(", ")") if loose else ("", "")
    yield Finding(
        CODE,
        facts.site(module, call),
        Text(
            "one run has one writer; on the other ranks a stand-in takes every call and does nothing",
            "一次运行只需要一个记录器;其他进程用一个什么也不做的替身",
        ),
        (*wrap(module, call, opened, f" if «rank 0» else «NullWriter»(){closed}"), *known),
    )


def _own_code(facts: Facts, call: ast.Call) -> frozenset[ast.AST]:
    """The code of the script's own class of writers that a call makes one of."""
    made = (value.cls for value in facts.values(call) if isinstance(value, Obj) and value.cls is not None)
    return frozenset(node for cls in made for node in walk(cls.node))


def _calls_at(facts: Facts, node: ast.AST) -> Iterator[Event]:
    """The calls of models at a node."""
    return (event for event in facts.by_node.get(node, ()) if event.kind in {"forward", "through_method"})


def _log_dir_for_all(facts: Facts, effect: Effect) -> tuple[Edit, ...]:
    """A line that tells the stand-ins of the other ranks where the writer of rank 0 writes."""
    module, call = effect.module, effect.call
    statement = facts.statement(module, call)
    match statement:
        case ast.Assign(targets=[ast.Name() | ast.Attribute() as target], value=value) if value is call:
            pass
        case _:
            return ()
    if not effect.name.endswith("SummaryWriter") or no_meeting(facts, module, statement) is not None:
        return ()
    place = f"{module.text(target)}.log_dir"
    return (insert_after(module, statement, f"{place} = «broadcast_value»({place})"),)


def _only_told(facts: Facts, module: Module, node: ast.AST) -> bool:
    """Whether something of a writer is only told something: `run.config.update(...)`, `run.summary["best"] = x`."""
    inner: ast.AST = node
    for outer in facts.ancestors(module, node):
        match outer:
            case ast.Attribute(value=owner) | ast.Subscript(value=owner) | ast.Call(func=owner) if (
                owner is inner
            ):
                if not isinstance(outer, ast.Call) and isinstance(outer.ctx, ast.Store):
                    return True
                inner = outer
            case ast.Expr():
                return True
            case _:
                return False
    return False


def _read_from(facts: Facts, effect: Effect) -> str | None:
    """Something that the script reads from a writer and that only a real one has."""
    made = {value for value in facts.values(effect.call) if isinstance(value, Obj)}
    inside = _own_code(facts, effect.call)
    library = effect.name.partition(".")[0]
    for module in facts.modules:
        for node in running_nodes(facts, module):
            if not isinstance(node, ast.Attribute) or not isinstance(node.ctx, ast.Load):
                continue
            if effect.name.endswith(".init") and facts.values(node) & {
                Lib(f"{library}.config"),
                Lib(f"{library}.run"),
            }:
                return f"{library}.{node.attr}"
            if (
                (node.attr in _READ_FROM_WRITER or inside)
                and node not in inside
                and facts.values(node.value) & made
                and effect.name not in ARCHIVES
                and not _only_told(facts, module, node)
            ):
                return node.attr
    return None


def _handed_to_writers(facts: Facts, module: Module) -> Iterator[Finding]:
    """`writer.add_graph(model, x)` calls the model, on rank 0 alone."""
    for call in calls_in(facts, module) if named(facts, module, "add_graph") else ():
        if not isinstance(call.func, ast.Attribute) or call.func.attr != "add_graph":
            continue
        for argument in call.args[:1]:
            if any(is_wrapped(value) for value in facts.values(argument)):
                yield Finding(
                    CODE,
                    facts.site(module, call),
                    Text(
                        "the writer of rank 0 calls the model, and its wrapper would wait for the other ranks",
                        "主进程的记录器会调用模型,而包装后的模型会等待其他进程",
                    ),
                    call_with(module, argument, "«unwrap»"),
                )


# --- what others see ----------------------------------------------------------------------------------------------


def _tests(facts: Facts, module: Module) -> Iterator[Finding]:
    """Tests for a file that decide more than how it is written, while rank 0 may just be making it."""
    for node in running(facts, module, ast.If):
        if guarded(facts, module, node) or prepared(facts, module, node):
            continue
        asked = [call for call in tests_existence(facts, node.test) if call.args]
        if not asked or not _steers(node):
            continue
        if no_meeting(facts, module, node) is not None:
            continue
        about = {spelled(call.args[0]) for call in asked}
        for effect in all_effects(facts):
            if effect.path is None or effect.module is not module:
                continue
            path = spelled(effect.path)
            above = effect.what == "folder" and any(path.startswith(f"{folder}/") for folder in about)
            if path not in about and not above:
                continue
            if effect.what not in {"write", "folder", "delete"} or effect.call in held(node.test):
                continue
            if any(_soon_after(facts, node, event) for event in facts.by_node.get(effect.call, ())):
                yield Finding(
                    CODE,
                    facts.site(module, node),
                    Text(
                        "a rank that looks later would see what another has just made, and go another way",
                        "较晚检查的进程会看到别的进程刚刚创建的文件,从而走上不同的分支",
                    ),
                    call_with(module, node.test, "«broadcast_value»"),
                )
                break


def _steers(statement: ast.If) -> bool:
    """Whether more depends on a test than what is written."""
    return any(
        isinstance(node, ast.Raise | ast.Return | ast.Assign | ast.AugAssign | ast.Break | ast.Continue)
        or (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Name | ast.Attribute)
            and getattr(node.func, "id", getattr(node.func, "attr", "")) in {"exit", "input", "quit"}
        )
        for part in (*statement.body, *statement.orelse)
        for node in _outside_handlers(part)
    )


def _outside_handlers(node: ast.AST) -> Iterator[ast.AST]:
    yield node
    for child in children(node):
        if not isinstance(child, ast.ExceptHandler):
            yield from _outside_handlers(child)


def _soon_after(facts: Facts, test: ast.If, event: Event) -> bool:
    """Whether something happens in or after a test and before training brings the ranks together."""
    return (
        not event.dead
        and event.order < training_begins(facts)
        and getattr(event.node, "lineno", 0) >= test.lineno
        and facts.scope(event.module, event.node) is facts.scope(event.module, test)
    )


def _reads(facts: Facts) -> Iterator[Finding]:
    """Barriers before what rank 0 alone has written is read by all."""
    written: list[tuple[Event, Effect]] = []
    read: list[tuple[Event, Effect]] = []
    for effect in all_effects(facts):
        is_open = effect.what == "open"
        mode = mode_of(facts, effect)[1] if is_open else None
        writes = effect.what == "write" or (is_open and mode is not None and writes_to(mode))
        reads = (effect.what == "read" and effect.name != "torch.load") or (
            is_open and mode is not None and not writes_to(mode)
        )
        if not (writes or reads) or effect.path is None or _is_settled(facts, effect):
            continue
        events = [
            event
            for event in facts.by_node.get(effect.call, ())
            if not event.dead and not amid_preparation(facts, event)
        ]
        (written if writes else read).extend((event, effect) for event in events)
    read.sort(key=lambda item: item[0].order)
    pairs = [
        (
            event,
            [
                other
                for other, source in written
                if follows(other, event)
                and (
                    surely_same_file(facts, source, effect)
                    or (other.order < training_begins(facts) and likely_same_file(facts, source, effect))
                )
            ],
        )
        for event, effect in read
    ]
    yield from waits(facts, CODE, [(event, sources) for event, sources in pairs if sources])


def _spoils(facts: Facts) -> Iterator[Finding]:
    """Barriers before rank 0 overwrites or deletes what the others may still be reading."""
    read: list[Effect] = []
    spoiled: list[Effect] = []
    for effect in all_effects(facts):
        if effect.path is None or _is_settled(facts, effect):
            continue
        mode = mode_of(facts, effect)[1] if effect.what == "open" else None
        if effect.what == "read" or (mode is not None and not writes_to(mode)):
            read.append(effect)
        elif effect.what in {"write", "delete"} or (mode is not None and "w" in mode):
            spoiled.append(effect)
    done: set[ast.stmt] = set()
    for effect in spoiled:
        for source in read:
            place = _before_it_is_spoiled(facts, source, effect)
            if place is not None and place[1] not in done:
                done.add(place[1])
                edits = (insert_before(*place, "«dist».barrier()"),)
                yield Finding(CODE, facts.site(effect.module, effect.call), _SPOILED, edits)


def _before_it_is_spoiled(facts: Facts, source: Effect, effect: Effect) -> tuple[Module, ast.stmt] | None:
    """Where to wait for the ranks that read a file in the same function before it is overwritten or deleted."""
    module, call = effect.module, effect.call
    if (
        source.module is not module
        or facts.scope(module, source.call) is not facts.scope(module, call)
        or not surely_same_file(facts, source, effect)
    ):
        return None
    for event in facts.by_node.get(call, ()):
        for read in facts.by_node.get(source.call, ()):
            if (
                event.dead
                or read.dead
                or event.calls[:-1] != read.calls[:-1]
                or not read.order < event.order
                or exclude(facts, read, event)
                or _met_between(facts, read, event)
            ):
                continue
            place = where_to_wait(facts, event, (read,))
            if not isinstance(place, Text):
                return place
    return None


def _met_between(facts: Facts, read: Event, event: Event) -> bool:
    """Whether ranks train, or wait for each other, between two events of a function."""
    if any(read.order < backward.order < event.order for backward in facts.backwards):
        return True
    module = event.module
    statement = facts.statement(module, event.node)
    block = facts.block(module, statement)
    inside = [part for part in block if read.node in held(part)]
    between = block[block.index(inside[-1]) + 1 if inside else 0 : block.index(statement)]
    return bool(between) and meets(facts, *between)
