"""Give data the same order on every rank.

A folder is listed in the order of its disk, a set of words in the order of a hash that each process salts anew.  If
classes, files or a vocabulary take their order from there, one rank's class 3 is another's class 5, and shares of
the data overlap.

Before:

    files = os.listdir("images")
    words = list(set(text.split()))

After:

    files = broadcast_value(os.listdir("images"))
    words = broadcast_value(list(set(text.split())))
"""

import ast
from collections.abc import Iterator

from multicard.edits import Edit, call_with, replace, wrap
from multicard.effects import all_effects, calls_named, names_of, placed, running_nodes
from multicard.facts import Facts, key
from multicard.meeting import evaluated_by_rank_0, kept_by_rank_0, no_meeting
from multicard.messages import Text
from multicard.plan import Finding, Kind
from multicard.reach import guarded, per_sample, reached, training_begins
from multicard.rules.prepare_once import made_once
from multicard.rules.same_names import gives_a_name
from multicard.rules.share_batches import drawing_loops
from multicard.source import Module
from multicard.tree import held, walk
from multicard.values import Const, Data, Obj

CODE = "MC207"
TITLE = Text("Agree on the order of data", "各卡数据顺序一致")

_LISTED = frozenset({"os.listdir", "glob.glob"})
_LAZY = frozenset({"glob.iglob", "os.walk"})
_LAZY_METHODS = (".iterdir", ".glob", ".rglob")
_ORDERLESS = frozenset({
    "len", "set", "frozenset", "sorted", "max", "min", "sum", "any", "all", "bool", "Counter", "natsorted", "print",
    "isin", "OrderedSet", "issubset", "union", "difference", "intersection", "update",
})  # fmt: skip
_SPLITS = frozenset({
    "torch.utils.data.random_split", "sklearn.model_selection.train_test_split", "numpy.random.permutation",
    "numpy.random.shuffle", "random.shuffle", "torch.randperm", "random.sample", "numpy.random.choice",
    "sklearn.model_selection.KFold", "sklearn.model_selection.StratifiedKFold",
})  # fmt: skip
_LISTING = Text(
    "disks list a folder in any order, and ranks on two machines would number files and classes differently",
    "文件夹的列出顺序由磁盘决定,不同机器上的进程会给文件和类别编不同的号",
)
_SAVED = Text(
    "rank 0 saves these files, and another rank may look before they are there; all are given what rank 0 finds",
    "这些文件由 rank0 保存,其他进程查看时可能还不存在;统一使用 rank0 看到的列表",
)
_SET = Text(
    "a set of words has another order in every process, so ranks would number them differently",
    "字符串集合的顺序在每个进程中都不同,各卡会给它们编不同的号",
)


def find(facts: Facts) -> Iterator[Finding]:
    """Listings and sets that give an order, and one word on splits, which need nothing."""
    sets = frozenset(obj for obj in facts.run.born.values() if obj.kind == "set")
    for module in facts.modules:
        for call in calls_named(facts, module, _lists):
            yield from _listing(facts, module, call)
        for node in sets and running_nodes(facts, module):
            if isinstance(node, ast.expr) and not sets.isdisjoint(facts.values(node)):
                yield from _set(facts, module, node)
    yield from _splits(facts)


def _settled(facts: Facts, module: Module, node: ast.AST) -> bool:
    """Whether one process alone comes here, or for one sample."""
    place = (facts, module, node)
    return guarded(*place) or kept_by_rank_0(*place) or per_sample(*place)


# --- listings -----------------------------------------------------------------------------------------------------


def _lists(name: str) -> bool:
    return name in _LISTED | _LAZY or name == "os.scandir" or name.endswith(_LAZY_METHODS)


def _listing(facts: Facts, module: Module, call: ast.Call) -> Iterator[Finding]:
    names = names_of(facts, call)
    lazy = bool(names & _LAZY) or any(name.endswith(_LAZY_METHODS) for name in names - _LISTED)
    if not placed(facts, module, call):
        return
    if not names & _LISTED and not lazy:
        if "os.scandir" in names and _gives_order(facts, module, call) and not _settled(facts, module, call):
            advice = Text("sort it: `sorted(os.scandir(path), key=lambda entry: entry.name)`", "请按名称排序")
            yield Finding(CODE, facts.site(module, call), _LISTING, (), advice, Kind.LEFT)
        return
    events = [event for event in facts.by_node.get(call, ()) if not event.dead]
    if not events:
        return
    edits: tuple[Edit, ...]
    if min(event.order for event in events) >= training_begins(facts):
        if _may_be_saved_here(facts, module, call) and not any(event.tainted for event in events):
            edits = wrap(module, call, "«broadcast_value»(" + "list(" * lazy, ")" * (1 + lazy))
            yield Finding(CODE, facts.site(module, call), _SAVED, edits)
        return
    if (
        _settled(facts, module, call)
        or not _gives_order(facts, module, call)
        or gives_a_name(facts, module, call)
    ):
        return
    alike = (
        no_meeting(facts, module, call) is None
        and not any(event.tainted for event in events)
        and not evaluated_by_rank_0(facts, module, call)
    )
    if alike:
        edits = wrap(module, call, "«broadcast_value»(" + "list(" * lazy, ")" * (1 + lazy))
    else:
        edits = call_with(module, call, "sorted")
    yield Finding(CODE, facts.site(module, call), _LISTING, edits)


def _may_be_saved_here(facts: Facts, module: Module, call: ast.Call) -> bool:
    """Whether a listing after training finds what this run saves, and each of its files is loaded by every rank."""
    scope = facts.scope(module, call)
    loads = any(
        facts.scope(module, load) is scope and load.lineno > call.lineno
        for load in calls_named(facts, module, "torch.load".__eq__)
    )
    return (
        loads
        and any(effect.what == "save" for effect in all_effects(facts))
        and not _settled(facts, module, call)
        and no_meeting(facts, module, call) is None
        and not evaluated_by_rank_0(facts, module, call)
    )


def _gives_order(facts: Facts, module: Module, node: ast.expr, names: frozenset[str] = frozenset()) -> bool:
    """Whether the order of an expression goes on: it is not sorted, counted or searched.

    `names` are being asked about already: `tokens = tokens + more` says nothing new of them.
    """
    inner: ast.AST = node
    for outer in facts.ancestors(module, node):
        match outer:
            case ast.Call(func=func) if inner is not func:
                name = getattr(func, "id", getattr(func, "attr", ""))
                if name in _ORDERLESS or name == "broadcast_value":
                    return False
            case ast.Compare(ops=[ast.In() | ast.NotIn()]) | ast.SetComp() | ast.Set():
                return False
            case ast.If(test=test) | ast.While(test=test) if inner is test:
                return False
            case ast.Assign(targets=[target]) | ast.AnnAssign(target=target):
                return not _sorted_later(facts, module, outer, target, names)
            case ast.For():
                return not _only_deletes(facts, outer)
            case ast.stmt():
                return True
            case _:
                pass
        inner = outer
    return True


def _sorted_later(
    facts: Facts, module: Module, statement: ast.stmt, target: ast.expr, names: frozenset[str]
) -> bool:
    """Whether a name is sorted, or only counted and searched."""
    if not isinstance(target, ast.Name | ast.Attribute):
        return False
    text = module.text(target)
    if text in names:
        return True
    scope = facts.scope(module, statement)
    uses = [
        node
        for node in walk(scope)
        if isinstance(node, ast.Name | ast.Attribute)
        and isinstance(node.ctx, ast.Load)
        and module.text(node) == text
    ]
    for node in uses:
        parent = facts.parents(module).get(node)
        if isinstance(parent, ast.Attribute) and parent.attr == "sort":
            return True
    if isinstance(target, ast.Attribute) or not uses:
        return False
    return all(not _gives_order(facts, module, node, names | {text}) for node in uses)


def _only_deletes(facts: Facts, loop: ast.For) -> bool:
    return any(
        isinstance(node, ast.Call)
        and names_of(facts, node) & {"os.remove", "os.unlink", "shutil.rmtree", ".unlink"}
        for node in walk(loop)
    )


# --- sets ---------------------------------------------------------------------------------------------------------


def _set(facts: Facts, module: Module, node: ast.expr) -> Iterator[Finding]:
    parent = facts.parents(module).get(node)
    ordered: ast.expr = node
    match parent:
        case ast.Call(func=ast.Name(id="list" | "tuple"), args=[only]) if only is node:
            ordered = parent
        case ast.Call(func=ast.Name(id="enumerate" | "zip" | "map" | "filter"), args=args) if node in args:
            ordered = parent
        case ast.Call(func=ast.Attribute(attr="fromkeys"), args=[first, *_]) if first is node:
            ordered = parent
        case ast.Call(func=ast.Attribute(attr="join"), args=[only]) if only is node:
            if not isinstance(facts.parents(module).get(parent), ast.Assign | ast.Return):
                return
            ordered = parent
        case ast.Starred():
            owner = facts.parents(module).get(parent)
            if not isinstance(owner, ast.List | ast.Tuple):
                return
            ordered = owner
        case ast.comprehension(iter=over) if over is node:
            owner = facts.parents(module).get(parent)
            if not isinstance(owner, ast.ListComp | ast.DictComp):
                return
            ordered = owner
        case ast.For(iter=over, body=body) if over is node and _fills(facts, body):
            pass
        case _:
            return
    if not _is_set_of_words(facts, node) or _settled(facts, module, node) or made_once(facts, module, node):
        return
    if ordered is not node and not _gives_order(facts, module, ordered):
        return
    made = parent if isinstance(parent, ast.Call) and isinstance(parent.func, ast.Name) else None
    kind = made.func.id if made is not None and isinstance(made.func, ast.Name) else ""
    edits: tuple[Edit, ...]
    if _met_once(facts, module, node):
        if made is not None and kind in {"list", "tuple"}:
            edits = call_with(module, made, "«broadcast_value»")
        else:
            edits = wrap(module, node, "«broadcast_value»(list(", "))")
    elif made is not None and kind == "list":
        edits = (replace(module, made.func, "sorted"),)
    else:
        edits = call_with(module, node, "sorted")
    yield Finding(CODE, facts.site(module, node), _SET, edits)


def _met_once(facts: Facts, module: Module, node: ast.expr) -> bool:
    """Whether all ranks come to a place together, and once: many small messages would take long."""
    if no_meeting(facts, module, node) is not None or evaluated_by_rank_0(facts, module, node):
        return False
    scope = facts.scope(module, node)
    statement = facts.statement(module, node)
    around = (
        *facts.ancestors(module, statement),
        *([statement] if not isinstance(statement, ast.For) else []),
    )
    if any(isinstance(outer, ast.For | ast.While) for outer in around):
        return False
    inside = held(scope)
    return not any(
        event.tainted or any(loop.node not in inside for loop in event.loops)
        for event in facts.run.events
        if not event.dead
        and event.module is module
        and event.frames
        and (event.frames[-1].node or module.tree) is scope
        and (not isinstance(scope, ast.Module) or event.node in held(statement))
    )


def _fills(facts: Facts, body: list[ast.stmt]) -> bool:
    """Whether a loop, or a function that it calls, puts something in order: appends, or numbers."""
    return any(
        (isinstance(node, ast.Attribute) and node.attr == "append")
        or (isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Store))
        for part in (*body, *reached(facts, *body))
        for node in walk(part)
    )


def _is_set_of_words(facts: Facts, node: ast.expr) -> bool:
    """Whether an expression is a set, of what can be sorted and may be text."""
    values = facts.values(node)
    sets = [value for value in values if isinstance(value, Obj) and value.kind == "set"]
    if not sets or len(sets) != len(values):
        return False
    elements = [element for value in sets for item in (*(value.items or ()), value.rest) for element in item]
    for element in elements:
        if isinstance(element, Const) and not isinstance(element.value, str):
            return False
        if not isinstance(element, Const | Data) or (
            isinstance(element, Data) and (element.models or element.loaders)
        ):
            return False
    return True


# --- splits -------------------------------------------------------------------------------------------------------


def _splits(facts: Facts) -> Iterator[Finding]:
    own = drawing_loops(facts)
    for event in facts.events("call", dead=False):
        if any(loop.loaders or key(loop) in own | facts.training_frames for loop in event.loops):
            continue
        if event.name in _SPLITS and event.order < training_begins(facts) and not event.inside:
            yield Finding(
                CODE,
                facts.site(event.module, event.node),
                Text(
                    "the same on every rank as it is: all ranks start from one random state",
                    "无需修改:所有进程从同一个随机状态开始,各卡的划分结果相同",
                ),
                kind=Kind.NOTE,
            )
            return
