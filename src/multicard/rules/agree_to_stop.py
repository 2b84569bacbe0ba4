"""Leave a loop together.

Early stopping that one rank decides alone leaves the others waiting for it for ever.  Rank 0 decides, all follow;
where the metric is the same on all ranks already this costs one small broadcast an epoch.  So too in a branch in which
ranks wait for each other or the weights change.  A loop over one batch that goes on until no sample is left ends when
none is left on any rank.

Before:

    best, waited = float("inf"), 0
    for epoch in range(100):
        for x, y in loader:
            loss = criterion(model(x), y)
            loss.backward()
        if loss.item() < best:
            best, waited = loss.item(), 0
        else:
            waited += 1
        if waited >= 5:
            break

After:

    best, waited = float("inf"), 0
    for epoch in range(100):
        for x, y in loader:
            loss = criterion(model(x), y)
            loss.backward()
        if loss.item() < best:
            best, waited = loss.item(), 0
        else:
            waited += 1
        if broadcast_value(waited >= 5):
            break
"""

import ast
from collections.abc import Iterator

from multicard.attacks import attacks
from multicard.edits import Edit, call_with, wrap
from multicard.facts import Facts
from multicard.interpret import Event
from multicard.meeting import counts_together, no_meeting
from multicard.messages import Text
from multicard.plan import Finding, Kind
from multicard.reach import (
    asks_for_kind,
    below,
    differs,
    functions_of,
    given_to,
    guarded,
    is_wrapped,
    left_out,
    reached,
    telling,
)
from multicard.source import Module
from multicard.tree import held, nodes, walk, word_of
from multicard.values import Class, Const, Data, Lib, Method, Mod, Obj, Unknown, Values
from multicard.wraps import bare_of, has_statistics

CODE = "MC403"
TITLE = Text("Stop together", "早停信号同步")

_STOP = Text(
    "rank 0 decides and all ranks leave together; one that left alone would leave the others waiting for ever",
    "由 rank0 判断,所有进程一起退出;只有一个进程退出会让其他进程一直等待",
)
_SKIP = Text(
    "a batch is skipped by all ranks or by none; otherwise gradients of different batches are averaged",
    "要么所有进程都跳过这个批次,要么都不跳过;否则会把不同批次的梯度平均在一起",
)
_DONE = Text(
    "a loop over one batch ends when no rank has a sample left; in it all ranks go backward together",
    "针对一个批次的循环要等所有进程都没有剩余样本才结束;循环内各进程要一起反向传播",
)
_NAN = Text(
    "a loss that is not finite on one rank spoils the weights of all, so all ranks leave as soon as one must",
    "任何一个进程的损失非有限都会污染所有进程的权重,因此只要有一个进程需要退出,所有进程就一起退出",
)
_BRANCH = Text(
    "rank 0 decides and all ranks take the same branch; in it they wait for each other, or change the weights",
    "由 rank0 判断,所有进程走同一个分支;分支里各进程要互相等待,或会改变权重",
)
_PLATEAU = Text(
    "every rank must take the same step of the learning rate, so all are given rank 0's metric",
    "各进程的学习率必须一致,因此统一使用 rank0 的指标",
)

_LOSS = Text(
    "training ends, or goes on, by this loss: it is the mean over all ranks, which is that of the whole batch; one"
    " small all-reduce a step",
    "训练是否继续取决于这个损失:改为所有进程的平均,即整个批次的损失;每步多一次很小的 all-reduce",
)

_RATE = Text(
    "each rank found this out from its own batches; the learning rate must be one, so all are given rank 0's",
    "每个进程由自己的批次得出该值;学习率必须一致,因此统一使用 rank0 的值",
)


def find(facts: Facts) -> Iterator[Finding]:
    """Exits under conditions that may differ between ranks, and schedulers that look at a metric."""
    done: set[ast.AST] = set()
    yield from _exits(facts, done)
    yield from _conditions(facts)
    yield from _branches(facts, done)
    yield from _rounds(facts)
    yield from _plateaus(facts)
    yield from _rates(facts)


def _exits(facts: Facts, done: set[ast.AST]) -> Iterator[Finding]:
    batch = facts.training_nodes
    loops = facts.training_nodes | facts.epoch_nodes
    for module in facts.modules:
        if loops.isdisjoint((*nodes(module.tree, ast.For), *nodes(module.tree, ast.While))):
            continue
        for node in (leaf for kind in _LEAVES for leaf in nodes(module.tree, kind)):
            loop = _left_loop(facts, module, node)
            if loop is None or _in_a_handler(facts, module, node):
                continue
            in_batches = loop in batch
            if not in_batches and loop not in facts.epoch_nodes:
                continue
            for test in _tests(facts, module, node, loop):
                if test in done or _steers_alike(facts, module, test):
                    continue
                done.add(test)
                together = isinstance(node, ast.Continue) or (in_batches and _asks_for_nan(facts, test))
                function = "«any_rank»" if together else "«broadcast_value»"
                why = _SKIP if isinstance(node, ast.Continue) else _NAN if together else _STOP
                yield Finding(CODE, facts.site(module, test), why, call_with(module, test, function))
                for loss in _steering(facts, module, test, loop) if in_batches and not together else ():
                    if loss not in done:
                        done.add(loss)
                        edits = call_with(module, loss, "«all_reduce_mean»")
                        yield Finding(CODE, facts.site(module, loss), _LOSS, edits)


def _steering(facts: Facts, module: Module, test: ast.expr, loop: ast.AST) -> Iterator[ast.expr]:
    """The calls in each turn of a batch loop that give the loss, as a number, on which a condition rests."""
    names = {item.id for item in nodes(test, ast.Name)}
    body = getattr(loop, "body", [])
    end = module.span(test).start
    given = [item for item in nodes(loop, ast.Assign) if module.span(item).start < end]
    for statement in reversed(given):
        targets = {item.id for target in statement.targets for item in nodes(target, ast.Name)}
        if not targets & names:
            continue
        value = statement.value
        if statement in body and isinstance(value, ast.Call) and _is_mean_number(facts, value):
            yield value
        else:
            names |= {item.id for item in nodes(value, ast.Name)}


def _is_mean_number(facts: Facts, value: ast.expr, deep: int = 3) -> bool:
    """Whether a call gives the mean loss of a batch as a number, itself or by a function of the program."""
    data = [item for item in facts.values(value) if isinstance(item, Data)]
    if not data or not all(item.models and item.loaders and "averaged" in item.tags for item in data):
        return False
    match value:
        case ast.Call(func=ast.Attribute(attr="item")) | ast.Call(func=ast.Name(id="float")):
            return True
        case ast.Call() if deep:
            given = [
                item.value for function in functions_of(facts, value) for item in nodes(function, ast.Return)
            ]
            return bool(given) and all(
                item is not None and _is_mean_number(facts, item, deep - 1) for item in given
            )
        case _:
            return False


def _in_a_handler(facts: Facts, module: Module, node: ast.AST) -> bool:
    """Whether only a rank comes here on which something failed: it would wait for the others for ever."""
    return any(isinstance(parent, ast.ExceptHandler) for parent in facts.ancestors(module, node))


def _conditions(facts: Facts) -> Iterator[Finding]:
    """The conditions of `while` loops in which training goes on."""
    for module in facts.modules:
        for loop in nodes(module.tree, ast.While):
            parts = (
                differs(facts, loop.test)
                if loop in facts.training_nodes
                else loop in facts.epoch_nodes and not _steers_alike(facts, module, loop.test)
            )
            if parts:
                edits = call_with(module, loop.test, "«broadcast_value»")
                yield Finding(CODE, facts.site(module, loop.test), _STOP, edits)


def _branches(facts: Facts, done: set[ast.AST]) -> Iterator[Finding]:
    """Branches in which ranks meet or weights change, under conditions that are seen to differ between ranks."""
    for module, node in _parting(facts):
        if node.test in done or any(facts.understood(loop) for loop in facts.ancestors(module, node)):
            continue
        beyond = list(left_out(facts, module, node))
        trained, other = _trains(facts, node.body), _trains(facts, node.orelse)
        if trained and not other and _skips_batches(facts, node):
            edits, why = _unless_any(module, node.test), _SKIP
        elif not trained and not other and _trains(facts, beyond) and _is_done(facts, module, node):
            done.add(node.test)
            yield _when_all_are_done(facts, module, node)
            continue
        elif not trained and not other and _trains(facts, beyond):
            edits, why = call_with(module, node.test, "«any_rank»"), _SKIP
        elif (
            trained
            or other
            or counts_together(facts, *node.body, *node.orelse, *beyond)
            or _calls_another(facts, node)
            or _sends_buffers(facts, node)
            or _decides_rate(facts, module, node)
        ):
            edits, why = call_with(module, node.test, "«broadcast_value»"), _BRANCH
        else:
            continue
        done.add(node.test)
        yield Finding(CODE, facts.site(module, node.test), why, edits)


_NONE_LEFT = frozenset(
    {"any", "count_nonzero", "len", "nelement", "nonzero", "numel", "shape", "size", "sum"}
)


def _is_done(facts: Facts, module: Module, branch: ast.If) -> bool:
    """Whether a branch leaves a loop over one batch because none of its samples is left."""
    leaves = [node for node in branch.body if isinstance(node, ast.Break)]
    if not leaves or _left_loop(facts, module, leaves[0]) in facts.training_nodes | facts.epoch_nodes:
        return False
    match branch.test:
        case ast.Compare(left=counted, ops=[ast.Eq()], comparators=[ast.Constant(value=0)]):
            pass
        case ast.UnaryOp(op=ast.Not(), operand=counted):
            pass
        case ast.Call(func=function):
            return "all" in {getattr(function, "attr", ""), getattr(function, "id", "")}
        case _:
            return False
    names = {getattr(part, "attr", getattr(part, "id", "")) for part in walk(counted)}
    return bool(names & _NONE_LEFT)


def _when_all_are_done(facts: Facts, module: Module, branch: ast.If) -> Finding:
    place = facts.site(module, branch.test)
    apart = no_meeting(facts, module, branch)
    if apart is None:
        return Finding(CODE, place, _DONE, _unless_any(module, branch.test))
    return Finding(
        CODE,
        place,
        Text(f"{_DONE.en}; but {apart.en}", f"{_DONE.zh};但{apart.zh}"),
        advice=Text(
            "in training, and there alone, leave it if `not any_rank(...)` of ddp_runtime says that no rank goes on",
            "仅在训练时,用 ddp_runtime 的 `not any_rank(...)` 判断所有进程都不再继续,再退出循环",
        ),
        kind=Kind.LEFT,
    )


def _parting(facts: Facts) -> tuple[tuple[Module, ast.If], ...]:
    """Branches on what is seen to differ between ranks, and that every rank comes to."""
    found = facts.memo.get("parting")
    if found is None:
        found = facts.memo["parting"] = tuple(
            (module, node)
            for module in facts.modules
            for node in nodes(module.tree, ast.If)
            if differs(facts, node.test)
            and not guarded(facts, module, node)
            and not _in_a_handler(facts, module, node)
        )
    assert isinstance(found, tuple)
    return found


def _calls_another(facts: Facts, branch: ast.If) -> bool:
    """Whether a branch decides which wrapped model is called in training."""
    body, orelse = (
        {bare_of(event) for event in _called(facts, part)} for part in (branch.body, branch.orelse)
    )
    inside = held(branch)
    elsewhere = {
        bare_of(event)
        for event in facts.events("forward", dead=False)
        if facts.trains(event)
        and event.node not in inside
        and not any(call in inside for call in event.calls)
    }
    return bool((body ^ orelse) - elsewhere)


def _sends_buffers(facts: Facts, branch: ast.If) -> bool:
    """Whether a wrapped model is evaluated in a branch: its forward pass sends buffers, and all ranks must call it."""
    return any(
        event.kind == "forward" and is_wrapped(event.subject) and has_statistics(bare)
        for event in below(facts, *branch.body, *branch.orelse)
        if not event.dead and not facts.trains(event) and (bare := bare_of(event)) is not None
    )


def _called(facts: Facts, body: list[ast.stmt]) -> Iterator[Event]:
    return (
        event
        for event in below(facts, *body)
        if event.kind == "forward" and is_wrapped(event.subject) and facts.trains(event)
    )


def _rounds(facts: Facts) -> Iterator[Finding]:
    """Loops that train as often as a number says that is seen to differ between ranks."""
    for module in facts.modules:
        for loop in nodes(module.tree, ast.For):
            match loop.iter:
                case ast.Call(func=ast.Name(id="range"), args=[*_, count]) if differs(facts, count):
                    sized = any(isinstance(v, Data) and "size" in v.tags for v in facts.values(count))
                    if not sized and _trains(facts, loop.body):
                        yield Finding(
                            CODE,
                            facts.site(module, count),
                            _BRANCH,
                            call_with(module, count, "«broadcast_value»"),
                        )
                case _:
                    pass


def _trains(facts: Facts, body: list[ast.stmt]) -> bool:
    """Whether a branch has a backward pass, a step, another learning rate or other weights."""
    backwards = frozenset(facts.backwards) - attacks(facts).silent
    for event in below(facts, *body):
        if event.dead:
            continue
        if event in backwards or event.kind in {"step", "schedule"}:
            return True
        if event.kind == "method" and event.name == "load_state_dict" and is_wrapped(event.subject):
            return True
    return any(_sets_rate(part) for part in (*body, *reached(facts, *body)))


def _sets_rate(part: ast.AST) -> bool:
    """Whether code gives a group of parameters another learning rate."""
    return any(isinstance(node.ctx, ast.Store) and _is_rate(node) for node in nodes(part, ast.Subscript))


def _decides_rate(facts: Facts, module: Module, branch: ast.If) -> bool:
    """Whether a branch changes a number that becomes the learning rate."""
    targets = [
        *(target for node in nodes(branch, ast.Assign) for target in node.targets),
        *(node.target for node in nodes(branch, ast.AugAssign)),
    ]
    bound = {module.text(target) for target in targets if isinstance(target, ast.Name | ast.Attribute)}
    return bool(bound) and any(
        isinstance(part, ast.Name | ast.Attribute) and module.text(part) in bound
        for rate in _rates_of(facts, facts.scope(module, branch))
        for part in walk(rate)
    )


def _rates_of(facts: Facts, scope: ast.AST) -> tuple[ast.expr, ...]:
    """The learning rates of a scope, looked for once."""
    known = facts.memo.setdefault("rates", {})
    assert isinstance(known, dict)
    if scope not in known:
        known[scope] = tuple(_rates_in(facts, scope))
    found = known[scope]
    assert isinstance(found, tuple)
    return found


def _rates_in(facts: Facts, scope: ast.AST, deep: int = 3) -> Iterator[ast.expr]:
    """The learning rates that code sets, gives to an optimizer, or hands to a function that sets them."""
    for statement in nodes(scope, ast.Assign):
        if any(_is_rate(target) for target in statement.targets):
            yield statement.value
    for call in nodes(scope, ast.Call):
        if any(isinstance(value, Obj) and value.kind == "optimizer" for value in facts.values(call)):
            yield from (item.value for item in call.keywords if item.arg == "lr")
        for function in functions_of(facts, call) if deep else ():
            given = dict(given_to(function, call))
            for rate in _rates_in(facts, function, deep - 1):
                yield from (given[part.id] for part in nodes(rate, ast.Name) if part.id in given)


def _is_rate(node: ast.AST) -> bool:
    return isinstance(node, ast.Subscript) and getattr(node.slice, "value", None) == "lr"


def _skips_batches(facts: Facts, node: ast.If) -> bool:
    """Whether a branch holds the backward pass of a batch."""
    inside = held(node)
    return any(
        (event.node in inside or any(call in inside for call in event.calls))
        and not any(loop in inside for loop in event.loop_nodes())
        for event in facts.backwards
    )


def _unless_any(module: Module, test: ast.expr) -> tuple[Edit, ...]:
    """The condition holds on no rank's refusal."""
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        return call_with(module, test.operand, "«any_rank»")
    if isinstance(test, ast.Call | ast.Name | ast.Attribute):
        return wrap(module, test, "not «any_rank»(not ", ")")
    return wrap(module, test, "not «any_rank»(not (", "))")


_LEAVES: tuple[type[ast.stmt], ...] = (ast.Break, ast.Continue, ast.Return, ast.Raise, ast.Expr)


def _left_loop(facts: Facts, module: Module, node: ast.AST) -> ast.AST | None:
    """The training loop that a statement leaves, or a batch of it that it skips."""
    if isinstance(node, ast.Break | ast.Continue):
        for parent in facts.ancestors(module, node):
            if isinstance(parent, ast.For | ast.While):
                if isinstance(node, ast.Continue) and parent not in facts.training_nodes:
                    return None
                return parent
            if isinstance(parent, ast.FunctionDef | ast.Lambda):
                return None
    exits = isinstance(node, ast.Return | ast.Raise) or (
        isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Call)
        and any(
            isinstance(value, Lib)
            and value.name in {"sys.exit", "os._exit", "builtins.exit", "builtins.quit"}
            for value in facts.values(node.value.func)
        )
    )
    if exits:
        for parent in facts.ancestors(module, node):
            if isinstance(parent, ast.For | ast.While) and (
                parent in facts.epoch_nodes or parent in facts.training_nodes
            ):
                return parent
            if isinstance(parent, ast.FunctionDef | ast.Lambda):
                return None
    return None


def _tests(facts: Facts, module: Module, node: ast.AST, loop: ast.AST) -> Iterator[ast.expr]:
    """The conditions between a loop and a statement in it, outermost first."""
    found = []
    for parent in facts.ancestors(module, node):
        if parent is loop:
            break
        if isinstance(parent, ast.If):
            found.append(parent.test)
    yield from reversed(found)


def _asks_for_nan(facts: Facts, test: ast.expr) -> bool:
    """Whether a condition looks for numbers that are not finite."""
    return any(
        isinstance(value, Lib | Method) and value.name.rpartition(".")[2] in {"isnan", "isinf", "isfinite"}
        for part in walk(test)
        if isinstance(part, ast.Call)
        for value in facts.values(part.func)
    )


def may_differ(values: Values) -> bool:
    """Whether a value is seen to depend on this rank's data, noise or clock; what cannot be followed may."""
    return any((isinstance(value, Data) and value.local) or isinstance(value, Unknown) for value in values)


def _steers_alike(facts: Facts, module: Module, test: ast.expr) -> bool:
    """Whether a condition is the same on all ranks: counters, limits and options are; in doubt it is not."""
    if any(may_differ(facts.values(part)) for part in telling(test)):
        return False
    return _invariant(facts, module, test, ())


def _invariant(facts: Facts, module: Module, node: ast.expr, asked: tuple[str, ...]) -> bool:
    """Whether an expression is made of constants, options, loop counters and what is computed from them."""
    match node:
        case ast.Constant():
            return True
        case ast.Compare(left=left, comparators=rights):
            return all(_invariant(facts, module, part, asked) for part in (left, *rights))
        case ast.BoolOp(values=parts):
            return all(_invariant(facts, module, part, asked) for part in parts)
        case ast.BinOp(left=left, right=right):
            return _invariant(facts, module, left, asked) and _invariant(facts, module, right, asked)
        case ast.UnaryOp(operand=inner):
            return _invariant(facts, module, inner, asked)
        case ast.Attribute(value=ast.Name(id="self"), attr=attr) if len(asked) < 4 and _invariant_attribute(
            facts, module, node, attr, asked
        ):
            return True
        case ast.Attribute(value=owner):
            return any(
                isinstance(value, Obj) and value.kind == "namespace" for value in facts.values(owner)
            ) or (isinstance(owner, ast.Attribute | ast.Name) and _is_options(facts, owner))
        case ast.Call() if asks_for_kind(node):
            return True
        case ast.Call(func=ast.Name(id="len" | "int" | "float" | "bool"), args=args):
            return all(
                isinstance(argument, ast.Name | ast.Attribute | ast.Constant)
                or _invariant(facts, module, argument, asked)
                for argument in args
            )
        case ast.Subscript(value=owner):
            loaded = facts.values(owner)
            return bool(loaded) and all(isinstance(value, Obj) and value.kind == "loaded" for value in loaded)
        case ast.Name(id=name):
            return len(asked) < 4 and _invariant_name(facts, module, node, name, asked)
        case _:
            return False


def _is_options(facts: Facts, owner: ast.expr) -> bool:
    """Whether an object only holds settings: a class of constants, a config that was read."""
    values = facts.values(owner)
    return bool(values) and all(isinstance(value, Class | Mod) for value in values)


def _invariant_name(facts: Facts, module: Module, node: ast.expr, name: str, asked: tuple[str, ...]) -> bool:
    scope = facts.scope(module, node)
    known = f"{name} in {id(scope)}"
    if known in asked:
        return True  # `step = step + 1`: as alike as the rest of it
    if _set_at_any_time(facts, module, name):
        return False
    bindings = [
        part
        for part in walk(scope)
        if isinstance(part, ast.Name) and part.id == name and not isinstance(part.ctx, ast.Load)
    ]
    if not bindings:
        if isinstance(scope, ast.Module):
            return True
        if any(arg.arg == name for arg in scope.args.args):  # type: ignore[attr-defined]  # a scope is a function here
            return all(isinstance(value, Const) for value in facts.values(node)) and bool(facts.values(node))
        return all(isinstance(value, Const) for value in facts.values(node)) and bool(facts.values(node))
    for binding in bindings:
        statement = facts.statement(module, binding)
        match statement:
            case ast.For(target=target, iter=iterable) if binding in held(target):
                made = _made_as(scope, iterable) if isinstance(iterable, ast.Name) else [iterable]
                spelled_out = all(isinstance(value, Const) for value in facts.values(binding))
                if not made or not all(
                    _counts(part, target, binding) or (spelled_out and _in_order(part)) for part in made
                ):
                    return False
            case ast.Assign() | ast.AugAssign():
                value = _given(statement, binding)
                if value is None or not _invariant(facts, module, value, (*asked, known)):
                    return False
                if _under_choice(facts, module, statement, scope, (*asked, known)):
                    return False
            case _:
                return False
    return True


def _in_order(node: ast.expr) -> bool:
    """Whether a list is written out, so that all ranks go through it alike: `for phase in ["train", "val"]`."""
    return isinstance(node, ast.List | ast.Tuple) and not any(
        isinstance(part, ast.Starred) for part in node.elts
    )


def _made_as(scope: ast.AST, name: ast.Name) -> list[ast.expr]:
    """What a name is bound to in a scope: `with tqdm(range(9)) as bar`, `steps = range(9)`."""
    made = [
        item.context_expr
        for statement in nodes(scope, ast.With)
        for item in statement.items
        if isinstance(item.optional_vars, ast.Name) and item.optional_vars.id == name.id
    ]
    return made + [
        statement.value
        for statement in nodes(scope, ast.Assign)
        if any(isinstance(target, ast.Name) and target.id == name.id for target in statement.targets)
    ]


def _set_at_any_time(facts: Facts, module: Module, name: str) -> bool:
    """Whether a function that is handed to a library, such as a signal's handler, sets this name of the module."""
    declared: list[ast.Global | ast.Nonlocal] = [
        *nodes(module.tree, ast.Global),
        *nodes(module.tree, ast.Nonlocal),
    ]
    scopes = [facts.scope(module, statement) for statement in declared if name in statement.names]
    return any(isinstance(scope, ast.FunctionDef) and _is_handler(module, scope) for scope in scopes)


def _is_handler(module: Module, function: ast.FunctionDef) -> bool:
    """Whether a function is given away by name."""
    given = [
        argument
        for call in nodes(module.tree, ast.Call)
        for argument in (*call.args, *(keyword.value for keyword in call.keywords))
    ]
    return any(
        (isinstance(argument, ast.Name) and argument.id == function.name)
        or (isinstance(argument, ast.Attribute) and argument.attr == function.name)
        for argument in given
    )


def _given(statement: ast.Assign | ast.AugAssign, binding: ast.expr) -> ast.expr | None:
    """What an assignment gives to one of its names, tuples taken apart."""
    if isinstance(statement, ast.AugAssign):
        return statement.value
    for target in statement.targets:
        if target is binding:
            return statement.value
        if isinstance(target, ast.Tuple) and isinstance(statement.value, ast.Tuple):
            for part, value in zip(target.elts, statement.value.elts, strict=False):
                if part is binding:
                    return value
    return None


def _invariant_attribute(
    facts: Facts, module: Module, node: ast.expr, attr: str, asked: tuple[str, ...]
) -> bool:
    """Whether every line of the class that sets `self.attr` gives it something that is the same on all ranks."""
    owner = next((part for part in facts.ancestors(module, node) if isinstance(part, ast.ClassDef)), None)
    if owner is None:
        return False
    if f"self.{attr}" in asked:
        return True
    found = False
    for part in walk(owner):
        if not (isinstance(part, ast.Attribute) and part.attr == attr and isinstance(part.ctx, ast.Store)):
            continue
        found = True
        statement = facts.statement(module, part)
        scope = facts.scope(module, part)
        if isinstance(scope, ast.FunctionDef) and _is_handler(module, scope):
            return False
        match statement:
            case ast.Assign(targets=[ast.Attribute()], value=value) | ast.AugAssign(value=value):
                if not _invariant(facts, module, value, (*asked, f"self.{attr}")) or _under_choice(
                    facts, module, statement, scope, (*asked, f"self.{attr}")
                ):
                    return False
            case _:
                return False
    return found


def _counts(iterable: ast.expr, target: ast.expr, binding: ast.AST) -> bool:
    """Whether a loop variable is a number that every rank counts alike."""
    if not isinstance(iterable, ast.Call):
        return False
    function = iterable.func
    name = word_of(function)
    if name == "enumerate":
        return isinstance(target, ast.Tuple) and binding is target.elts[0]
    if name == "tqdm" and iterable.args:
        return _counts(iterable.args[0], target, binding)
    return name in {"range", "trange", "count"}


def _under_choice(
    facts: Facts, module: Module, statement: ast.stmt, scope: ast.AST, asked: tuple[str, ...]
) -> bool:
    """Whether a name is bound only under a condition that may differ."""
    for parent in facts.ancestors(module, statement):
        if parent is scope:
            return False
        if isinstance(parent, ast.If) and not _invariant(facts, module, parent.test, asked):
            return True
    return False


def _rates(facts: Facts) -> Iterator[Finding]:
    """Learning rates that a rank has found out from its own batches, given to an optimizer or a schedule."""
    done: set[ast.AST] = set()
    for event in facts.events("construct", dead=False):
        subject, node = event.subject, event.node
        if not isinstance(subject, Obj) or subject.kind not in {"optimizer", "scheduler"} or node in done:
            continue
        if not isinstance(node, ast.Call):
            continue
        done.add(node)
        given = [keyword.value for keyword in node.keywords if keyword.arg in RATES]
        for rate in [*given, *node.args[1:2]]:
            if any(isinstance(value, Data) and value.local for value in facts.values(rate)):
                yield Finding(
                    CODE,
                    facts.site(event.module, rate),
                    _RATE,
                    call_with(event.module, rate, "«broadcast_value»"),
                )
    yield from _set_rates(facts)


def _set_rates(facts: Facts) -> Iterator[Finding]:
    """Learning rates that a rank has found out for itself, set in the groups of an optimizer."""
    for module in facts.modules:
        statements: list[ast.Assign | ast.AugAssign] = [
            *nodes(module.tree, ast.Assign),
            *nodes(module.tree, ast.AugAssign),
        ]
        for node in statements:
            for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
                if (
                    isinstance(target, ast.Subscript)
                    and _is_rate(target)
                    and not any(isinstance(value, Obj) for value in facts.values(target.value))
                    and not guarded(facts, module, node)
                    and any(
                        isinstance(value, Data) and value.local and value.models
                        for value in facts.values(node.value)
                    )
                ):
                    edits = call_with(module, node.value, "«broadcast_value»")
                    yield Finding(CODE, facts.site(module, node), _RATE, edits)


RATES = frozenset({"lr", "max_lr", "base_lr", "eta_min"})


def _plateaus(facts: Facts) -> Iterator[Finding]:
    done: set[ast.AST] = set()
    for event in facts.events("schedule", dead=False):
        subject = event.subject
        if not isinstance(subject, Obj) or not subject.name.endswith("ReduceLROnPlateau"):
            continue
        node = event.node
        if not isinstance(node, ast.Call) or node in done:
            continue
        done.add(node)
        metric = (
            node.args[0] if node.args else next((k.value for k in node.keywords if k.arg == "metrics"), None)
        )
        if metric is not None and may_differ(facts.values(metric)):
            yield Finding(
                CODE,
                facts.site(event.module, metric),
                _PLATEAU,
                call_with(event.module, metric, "«broadcast_value»"),
            )
