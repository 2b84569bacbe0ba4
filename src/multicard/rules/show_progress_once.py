"""Show progress bars on rank 0 alone.

Bars of several ranks overwrite each other on the screen.  A disabled bar still iterates.

Before:

    from tqdm import tqdm

    for x in tqdm(range(10), desc="steps"):
        step(x)

After:

    from tqdm import tqdm

    for x in tqdm(range(10), desc="steps", disable=rank != 0):
        step(x)
"""

import ast
from collections.abc import Iterator

from multicard.edits import Edit, add_argument, keyword_value, wrap
from multicard.effects import calls_named, names_of, running_nodes
from multicard.facts import Facts
from multicard.messages import Text
from multicard.once import hides, keep_to_rank_0, neighbours, statement_of
from multicard.plan import Finding, Kind
from multicard.reach import guarded
from multicard.source import Module
from multicard.values import Class, Lib, objects

CODE = "MC504"
TITLE = Text("Show progress on rank 0", "只在主进程显示进度条")

_BARS = frozenset({
    "tqdm.tqdm", "tqdm", "tqdm.trange", "tqdm.rich.tqdm", "tqdm.rich.trange", "tqdm.contrib.tenumerate",
    "tqdm.asyncio.tqdm", "tqdm.gui.tqdm", "rich.progress.track", "rich.progress.Progress", "tqdm.contrib.tmap",
    "tqdm.contrib.tzip", "tqdm.tnrange", "tqdm.tqdm_notebook",
})  # fmt: skip
_WITHOUT_SWITCH = frozenset(
    {"progressbar.progressbar", "progressbar.ProgressBar", "alive_progress.alive_bar"}
)
_WRITES = frozenset({"tqdm.tqdm.write", "tqdm.write"})
_WRITTEN = Text("every rank would write this line", "否则每张卡都会输出这一行")


def find(facts: Facts) -> Iterator[Finding]:
    """One finding a bar; text written above bars goes under a guard."""
    for module in facts.modules:
        written: list[ast.stmt] = []
        for call in calls_named(facts, module, _may_show):
            names = names_of(facts, call)
            bar = _makes_a_bar(facts, call, names)
            if not (bar or names & (_WRITES | _WITHOUT_SWITCH)) or guarded(facts, module, call):
                continue
            statement = statement_of(facts, module, call)
            if names & _WRITES and isinstance(facts.parents(module).get(call), ast.Lambda):
                edits = wrap(module, call, "", " if «rank 0» else None")
                yield Finding(CODE, facts.site(module, call), _WRITTEN, edits)
            elif names & _WRITES and statement is not None and not hides(facts, statement):
                written.append(statement)
            elif bar:
                yield _switched_off(facts, module, call)
            elif names & _WITHOUT_SWITCH:
                yield _left(
                    facts, module, call, "this bar has no switch that turns it off", "这个进度条没有关闭开关"
                )
        for run in neighbours(module, written):
            yield keep_to_rank_0(facts, CODE, module, run, _WRITTEN)


def _may_show(name: str) -> bool:
    return name in _WRITES | _BARS | _WITHOUT_SWITCH or name in {"functools.partial", "?"}


def _makes_a_bar(facts: Facts, call: ast.Call, names: frozenset[str]) -> bool:
    if names & _BARS:
        return True
    if "functools.partial" in names and call.args:
        return any(isinstance(value, Lib) and value.name in _BARS for value in facts.values(call.args[0]))
    return any(_is_bar(value) for value in facts.values(call.func))


def _is_bar(value: object) -> bool:
    return isinstance(value, Class) and any(
        isinstance(base, Lib) and base.name in _BARS for base in value.mro()
    )


def _switched_off(facts: Facts, module: Module, call: ast.Call) -> Finding:
    if _is_counted(facts, call):
        return _left(
            facts,
            module,
            call,
            "its count is read, and a bar that is off does not count",
            "脚本读取了它的计数,而关闭的进度条不计数",
        )
    if any(
        _is_bar(value) and "__init__" in value.names
        for value in facts.values(call.func)
        if isinstance(value, Class)
    ):
        return _left(
            facts, module, call, "its class decides what it hands on to tqdm", "由它的类决定传给 tqdm 的参数"
        )
    given = keyword_value(call, "disable")
    edits: tuple[Edit, ...]
    if given is not None:
        loose = isinstance(given.value, ast.IfExp | ast.Lambda)
        edits = wrap(module, given.value, "«not rank 0» or " + "(" * loose, ")" * loose)
    elif any(keyword.arg is None and _may_disable(facts, keyword.value) for keyword in call.keywords):
        return _left(
            facts,
            module,
            call,
            "`**` may hold a `disable=` that cannot be seen",
            "`**` 里可能已有看不到的 `disable=`",
        )
    else:
        edits = (add_argument(module, call, "disable=«not rank 0»"),)
    return Finding(
        CODE,
        facts.site(module, call),
        Text("the bars of all ranks would overwrite each other", "否则各卡的进度条会互相覆盖"),
        edits,
    )


def _is_counted(facts: Facts, call: ast.Call) -> bool:
    """Whether the script reads how far the bar has come."""
    made = facts.values(call)
    return any(
        isinstance(node, ast.Attribute)
        and node.attr in {"n", "format_dict"}
        and isinstance(node.ctx, ast.Load)
        and bool(facts.values(node.value) & made)
        for other in facts.modules
        for node in running_nodes(facts, other)
    )


def _may_disable(facts: Facts, node: ast.expr) -> bool:
    """Whether a dict that is spread into a call may hold `disable`."""
    values = facts.values(node)
    known = objects(values, "dict")
    return (
        len(known) != len(values) or not known or any(item.rest or "disable" in item.attrs for item in known)
    )


def _left(facts: Facts, module: Module, call: ast.Call, en: str, zh: str) -> Finding:
    return Finding(
        CODE,
        facts.site(module, call),
        Text(f"every rank shows a bar: {en}", f"每张卡都会显示进度条:{zh}"),
        (),
        Text("turn it off where rank is not 0", "请在非主进程关闭它"),
        Kind.LEFT,
    )
