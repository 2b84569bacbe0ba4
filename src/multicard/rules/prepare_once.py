"""Let one process of each machine prepare files first: downloads, archives, caches.

Ranks that download or build one file at the same time tear it, and one that looks too early finds half of it.  Under
`main_process_first` the others wait, and then find what is there.

Before:

    train_set = MNIST("data", train=True, download=True)
    test_set = MNIST("data", train=False, download=True)

After:

    with main_process_first():
        train_set = MNIST("data", train=True, download=True)
        test_set = MNIST("data", train=False, download=True)
"""

import ast
import re
import sys
from collections.abc import Iterator

from multicard.edits import Edit, call_with, guard, insert_after
from multicard.effects import (
    ARCHIVES,
    Effect,
    all_effects,
    calls_in,
    calls_named,
    is_known,
    mode_of,
    names_of,
    running,
    writes_to,
)
from multicard.facts import Facts
from multicard.interpret import Event
from multicard.meeting import before_start, meets, no_meeting, prepared, rank_0_only
from multicard.messages import Text
from multicard.once import draws_in_common, hides, neighbours, statement_of
from multicard.plan import Finding, Kind
from multicard.reach import (
    below,
    guarded,
    happens_within,
    homes,
    in_batches,
    is_wrapped,
    only_in,
    per_sample,
    tests_existence,
)
from multicard.source import Module
from multicard.tree import nodes, walk
from multicard.values import Class, Lib

CODE = "MC205"
TITLE = Text("Prepare files once", "数据只准备一次")

_CAREFUL = frozenset({
    "nltk.download", "huggingface_hub.snapshot_download", "huggingface_hub.hf_hub_download", "datasets.load_dataset",
    "torchvision.datasets.utils.download_url", "torchvision.datasets.utils.download_and_extract_archive",
    "torch.hub.load", "kagglehub.dataset_download", "modelscope.snapshot_download",
})  # fmt: skip
_BLUNT = frozenset({
    "urllib.request.urlretrieve", "wget.download", "gdown.download", "gdown.download_folder",
    "torch.hub.download_url_to_file", "shutil.unpack_archive", "torchvision.datasets.utils.extract_archive",
    "zipfile.ZipFile.extractall", "tarfile.open.extractall", ".extractall", "zipfile.ZipFile.extract",
})  # fmt: skip
COMMANDS = r"\b(wget|curl|unzip|tar|git clone|gdown|kaggle|gsutil|aws|7z|unrar|bash)\b"
_PICKED = frozenset({"MNIST", "FashionMNIST", "KMNIST", "CIFAR10", "CIFAR100", "QMNIST"})
_MAKE_NO_FILE = frozenset({
    *sys.stdlib_module_names, "PIL", "absl", "accelerate", "albumentations", "colorama", "cv2", "einops", "jieba",
    "joblib", "loguru", "numpy", "pandas", "psutil", "rich", "scipy", "seaborn", "sklearn", "termcolor", "timm",
    "tokenizers", "torch", "torchaudio", "torchinfo", "torchmetrics", "torchsummary", "torchtext", "torchvision",
    "tqdm", "transformers", "yaml",
}) - {"dbm", "shelve", "sqlite3"}  # fmt: skip
"""Libraries whose functions make no file but those that the tables know."""
_FIRST = Text(
    "ranks that prepare the same files at the same time tear them; here the others wait and then find them",
    "多张卡同时准备同一批文件会互相破坏;这里让每台机器先由一个进程准备,其他进程等它完成",
)


def find(facts: Facts) -> Iterator[Finding]:
    """Neighbouring statements under one `with`, and downloads that look for nothing on rank 0 alone."""
    first = first_statements(facts)
    for module in facts.modules:
        own = [statement for statement in first if statement in module.suites]
        for run in neighbours(module, own):
            edits = guard(module, run, "with «main_process_first»():")
            site = facts.site(module, run[0])
            assert edits is not None, "the first `if` of a chain is taken, never an `elif`"
            yield Finding(CODE, site, _FIRST, edits)
            yield from _draws(facts, module, run)
        yield from _downloads(facts, module, first)
        yield from _agreed(facts, module)


def _agreed(facts: Facts, module: Module) -> Iterator[Finding]:
    """Tests for a file that all ranks make together: they must all see it, or none."""
    for node in running(facts, module, ast.If):
        if guarded(facts, module, node):
            continue
        asked = tests_existence(facts, node.test)
        if not asked or (len(asked) > 1 and not isinstance(node.test, ast.UnaryOp)):
            continue
        inside = [
            event for part in (*node.body, *node.orelse) for event in below(facts, part) if not event.dead
        ]
        if (
            not any(_together(facts, event) for event in inside)
            or no_meeting(facts, module, node) is not None
        ):
            continue
        if any(event.name == "torch.save" or event.kind == "data_call" for event in inside):
            yield Finding(
                CODE,
                facts.site(module, node),
                Text(
                    "all ranks must go the same way here, also one that looks when the file has just been written",
                    "所有进程必须走同一分支,即使某个进程检查时文件刚刚写好",
                ),
                call_with(module, node.test, "«broadcast_value»"),
            )


def _draws(facts: Facts, module: Module, run: list[ast.stmt]) -> Iterator[Finding]:
    """Random numbers that only the process which builds a cache draws, before others that all must draw alike."""
    if not any(isinstance(node, ast.If) for part in run for node in walk(part)):
        return
    inside = [event for event in below(facts, *run) if draws_in_common(facts, event)]
    calls = list(facts.events("call", dead=False)) if inside else []
    for stream in dict.fromkeys(_stream(event) for event in inside):
        last = max(event.order for event in inside if _stream(event) == stream)
        later = [
            event.order
            for event in calls
            if event.order > last and _stream(event) == stream and draws_in_common(facts, event)
        ]
        if not later or any(
            last < event.order < min(later) and event.name in _SEEDS[stream] for event in calls
        ):
            continue
        alias = _alias(module, stream)
        line = _AGREED[stream].format(name=alias)
        yield Finding(
            CODE,
            facts.site(module, run[-1]),
            Text(
                "only the process that builds the files draws random numbers here; all go on from its state, or what is"
                " drawn later would differ between ranks",
                "只有生成文件的进程会在这里消耗随机数;之后统一使用它的随机状态,否则各卡抽到的随机数会不同",
            ),
            (insert_after(module, run[-1], line),) if alias else (),
            None if alias else Text("set the seed again after this", "请在此之后重新设置随机种子"),
            Kind.CHANGED if alias else Kind.LEFT,
        )


def _alias(module: Module, library: str) -> str:
    """What a library is called in a module, if it is imported at the top."""
    for statement in module.tree.body:
        if isinstance(statement, ast.Import):
            for alias in statement.names:
                if alias.name == library:
                    return alias.asname or alias.name
    return ""


_AGREED = {
    "numpy": "{name}.random.set_state(«broadcast_value»({name}.random.get_state()))",
    "random": "{name}.setstate(«broadcast_value»({name}.getstate()))",
    "torch": "{name}.set_rng_state(«broadcast_value»({name}.get_rng_state()))",
}
_SEEDS = {
    "numpy": frozenset({"numpy.random.seed"}),
    "random": frozenset({"random.seed"}),
    "torch": frozenset({"torch.manual_seed", "torch.random.manual_seed"}),
}


def _stream(event: Event) -> str:
    return event.name.partition(".")[0]


# --- what goes first ----------------------------------------------------------------------------------------------


def first_statements(facts: Facts) -> frozenset[ast.stmt]:
    """The statements that one process of each machine runs before the others."""
    found = facts.settle("first statements", frozenset(), lambda: frozenset(_first(facts)))
    assert isinstance(found, frozenset)
    return found


def _first(facts: Facts) -> Iterator[ast.stmt]:
    places: dict[ast.stmt, Module] = {}
    for module in facts.modules:
        careful = frozenset(calls_named(facts, module, _CAREFUL.__contains__))
        for call in calls_in(facts, module):
            if call not in careful and not _is_asked_to_download(facts, call):
                continue
            if _on_every_rank(facts, module, call):
                for home, node in _runs(facts, module, call):
                    statement = facts.statement(home, node)
                    if not any(_together(facts, event) for event in below(facts, statement)):
                        places[statement] = home
    for effect in all_effects(facts):
        if _makes_a_file(facts, effect):
            for event in facts.by_node.get(effect.call, ()):
                _take(facts, event, places)
    for event in _unknown_makers(facts):
        _take(facts, event, places)
    for statement, module in places.items():
        if not only_in(facts, module, statement, set(places) - {statement}):
            yield statement


def _take(facts: Facts, event: Event, places: dict[ast.stmt, Module]) -> None:
    """Put the statement that makes a file where it is not there yet among the others."""
    place = None if happens_within(facts, event, places) else _cache(facts, event)
    if place is None:
        return
    module, statement = place
    places[statement] = module
    if isinstance(statement, ast.If):
        places.update(dict.fromkeys(_asked_before(facts, module, statement).values(), module))


def _unknown_makers(facts: Facts) -> Iterator[Event]:
    """Calls of libraries of which nothing is known, beside a test for a file that may not be there yet."""
    for module in facts.modules:
        for node in running(facts, module, ast.If):
            for event in below(facts, *node.body, *node.orelse) if tests_existence(facts, node.test) else ():
                if event.kind == "call" and _may_make(event.name):
                    yield event


def _may_make(name: str) -> bool:
    library, _, rest = name.partition(".")
    return bool(rest) and library not in _MAKE_NO_FILE and not is_known(name)


def _runs(facts: Facts, module: Module, call: ast.Call) -> Iterator[tuple[Module, ast.AST]]:
    """Where a call runs: where it stands, and inside of a lambda where that is called."""
    if not isinstance(facts.function(module, call), ast.Lambda):
        yield module, call
        return
    home = homes(facts)
    for event in facts.by_node.get(call, ()):
        for outer in reversed(event.calls):
            if outer in home and not isinstance(facts.function(home[outer], outer), ast.Lambda):
                yield home[outer], outer
                break


def _is_asked_to_download(facts: Facts, call: ast.Call) -> bool:
    """Whether an argument of a call says to download what is not there yet."""
    given = next((keyword.value for keyword in call.keywords if keyword.arg == "download"), None)
    if given is None and len(call.args) <= 4:
        return False
    if not any(isinstance(value, Class | Lib) for value in facts.values(call.func)):
        return False
    if given is None:
        tails = {name.rpartition(".")[2] for name in names_of(facts, call)}
        given = call.args[4] if tails & _PICKED else None
    return given is not None and not (isinstance(given, ast.Constant) and not given.value)


def _on_every_rank(facts: Facts, module: Module, node: ast.expr) -> bool:
    """Whether all ranks come to a node together, as far as it was followed."""
    if guarded(facts, module, node) or per_sample(facts, module, node):
        return False
    if before_start(facts, module, node):
        return False
    events = [event for event in below(facts, node) if not event.dead]
    own = [event for event in events if event.node is node or node in event.calls]
    return bool(own) and not any(in_batches(facts, event) or rank_0_only(facts, event) for event in own)


def _makes_a_file(facts: Facts, effect: Effect) -> bool:
    if effect.what == "open":
        mode = mode_of(facts, effect)[1]
        return mode is not None and writes_to(mode)
    if effect.what == "command":
        return bool(re.search(COMMANDS, effect.module.text(effect.call)))
    if effect.what == "writer":
        mode = mode_of(facts, effect)[1] if effect.name in ARCHIVES else "w"
        return effect.path is not None and mode is not None and writes_to(mode)
    return effect.what in {"write", "save"}


def _cache(facts: Facts, event: Event) -> tuple[Module, ast.stmt] | None:
    """The outermost statement that builds a file only where it is not there yet."""
    if event.dead or in_batches(facts, event) or per_sample(facts, event.module, event.node):
        return None
    if any(loop.node in facts.training_nodes for loop in event.loops):
        return None
    if guarded(facts, event.module, event.node) or rank_0_only(facts, event):
        return None
    home = homes(facts)
    chain = [(event.module, event.node)]
    chain += [(home[call], call) for call in reversed(event.calls) if call in home and call is not event.node]
    found: tuple[Module, ast.stmt] | None = None
    returns_early = False
    for module, node in chain:
        if returns_early:
            found = module, facts.statement(module, node)
        inner: ast.AST = node
        returns_early = False
        for outer in facts.ancestors(module, node):
            if (
                isinstance(outer, ast.If)
                and inner is not outer.test
                and _if_absent(facts, module, outer, inner)
            ):
                found = module, _whole_chain(facts, module, outer)
            if isinstance(outer, ast.FunctionDef | ast.AsyncFunctionDef):
                returns_early = isinstance(inner, ast.stmt) and _returns_early(facts, outer, inner)
                break
            inner = outer
    if found is not None and (
        before_start(facts, *found)
        or meets(facts, found[1])
        or any(_together(facts, other) or rank_0_only(facts, other) for other in below(facts, found[1]))
    ):
        return None
    return found


def _together(facts: Facts, event: Event) -> bool:
    """Whether an event is one that all ranks take part in."""
    return (
        event.kind in {"step", "wrap"}
        or event in facts.backwards
        or (event.kind == "forward" and is_wrapped(event.subject))
    )


def made_once(facts: Facts, module: Module, node: ast.AST) -> bool:
    """Whether one process makes something, which the others find in a file afterwards."""
    return prepared(facts, module, node) and only_in(facts, module, node, _while_absent(facts))


def _while_absent(facts: Facts) -> frozenset[ast.stmt]:
    """The statements that run only while a file is missing; found once."""
    found = facts.memo.get("while absent")
    if found is None:
        found = facts.memo["while absent"] = frozenset(
            statement
            for module in facts.modules
            for branch in running(facts, module, ast.If)
            if tests_existence(facts, branch.test)
            for statement in (*branch.body, *branch.orelse)
            if _if_absent(facts, module, branch, statement)
        )
    assert isinstance(found, frozenset)
    return found


def _if_absent(facts: Facts, module: Module, statement: ast.If, inner: ast.AST) -> bool:
    """Whether a part of an `if` runs only while a file is missing: the one who comes second leaves it out."""
    before = _asked_before(facts, module, statement)
    asked: dict[ast.AST, bool] = dict.fromkeys(tests_existence(facts, statement.test), False)
    for node in nodes(statement.test, ast.Name):
        if node.id in before:
            asked[node] = _negates(before[node.id].value)
    negated = {part for node in walk(statement.test) if _negates(node) for part in walk(node)}
    absent = [
        part for part, turned in asked.items() if ((part in negated) != turned) == (inner in statement.body)
    ]
    return (
        bool(asked)
        and len(absent) == len(asked)
        and not _is_forced(facts, statement.test, set(asked), inner in statement.body)
    )


def _asked_before(facts: Facts, module: Module, statement: ast.If) -> dict[str, ast.Assign]:
    """The assignments directly before an `if` that ask whether a file is there: `there = os.path.exists(path)`."""
    found: dict[str, ast.Assign] = {}
    block = facts.block(module, statement)
    for before in reversed(block[: block.index(statement)] if statement in block else []):
        match before:
            case ast.Assign(targets=[ast.Name(id=name)], value=value) if tests_existence(facts, value):
                found[name] = before
            case _:
                break
    return found


def _negates(node: ast.AST) -> bool:
    """`not exists(path)`, `exists(path) == False`, `exists(path) is False`, `exists(path) != True`."""
    match node:
        case ast.UnaryOp(op=ast.Not()):
            return True
        case ast.Compare(ops=[ast.Eq() | ast.Is()], comparators=[ast.Constant(value=False)]):
            return True
        case ast.Compare(ops=[ast.NotEq() | ast.IsNot()], comparators=[ast.Constant(value=True)]):
            return True
        case _:
            return False


def _is_forced(facts: Facts, test: ast.expr, asked: set[ast.AST], if_true: bool) -> bool:  # noqa: FBT001  # a branch is a yes or no
    """Whether a test also lets the branch run when the file is there: `if args.again or not exists(path)`."""
    operator = ast.Or if if_true else ast.And
    return (
        isinstance(test, ast.BoolOp)
        and isinstance(test.op, operator)
        and any(not tests_existence(facts, part) and asked.isdisjoint(walk(part)) for part in test.values)
    )


def _whole_chain(facts: Facts, module: Module, statement: ast.If) -> ast.stmt:
    """The first `if` of a chain of `elif`."""
    parent = facts.parents(module)[statement]
    while (
        isinstance(parent, ast.If)
        and parent.orelse == [statement]
        and module.data.startswith(b"elif", module.span(statement).start)
    ):
        statement, parent = parent, facts.parents(module)[parent]
    return statement


def _returns_early(facts: Facts, function: ast.FunctionDef | ast.AsyncFunctionDef, inner: ast.stmt) -> bool:
    """Whether a function leaves before a statement if a file is there."""
    if inner not in function.body:
        return False
    return any(
        isinstance(statement, ast.If)
        and isinstance(statement.body[-1], ast.Return)
        and bool(tests_existence(facts, statement.test))
        for statement in function.body[: function.body.index(inner)]
    )


# --- downloads that look for nothing ------------------------------------------------------------------------------


def _may_fetch(name: str) -> bool:
    return name in _BLUNT or name.startswith(("os.system", "subprocess."))


def _downloads(facts: Facts, module: Module, first: frozenset[ast.stmt]) -> Iterator[Finding]:
    for call in calls_named(facts, module, _may_fetch):
        names = names_of(facts, call)
        command = any(name.startswith(("os.system", "subprocess.")) for name in names)
        if not names & _BLUNT and not (command and re.search(COMMANDS, module.text(call))):
            continue
        if only_in(facts, module, call, first) or guarded(facts, module, call):
            continue
        statement = statement_of(facts, module, call)
        why = "its value is used" if statement is None else hides(facts, statement)
        if statement is None or why or not _on_every_rank(facts, module, call):
            yield Finding(
                CODE,
                facts.site(module, call),
                Text(
                    f"every rank would fetch or unpack the same files: {why or 'ranks may not all come here'}",
                    "每张卡都会同时下载或解压同一批文件",
                ),
                (),
                Text(
                    "do it once before training, or on rank 0 with a barrier after",
                    "请在训练前只做一次,或只在主进程执行并在之后加屏障",
                ),
                Kind.LEFT,
            )
            continue
        edits = guard(module, [statement], "if «rank 0»:")
        if edits is None:
            continue
        ways = [event for event in facts.by_node.get(call, ()) if not event.dead]
        if ways and all(happens_within(facts, event, first) for event in ways):
            wait: tuple[Edit, ...] = ()  # the others come here when rank 0 is done, and wait for nobody
        else:
            wait = (insert_after(module, statement, "«dist».barrier()"),)
        yield Finding(
            CODE,
            facts.site(module, statement),
            Text(
                "fetched and unpacked once, the others wait (machines without a shared disk each need it)",
                "只下载和解压一次,其他进程等待完成(没有共享磁盘的多台机器需要各自执行一次)",
            ),
            (*edits, *wait),
        )
