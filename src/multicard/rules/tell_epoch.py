"""Tell the samplers which epoch it is.

A sampler seeds its shuffle with the epoch: not told, it gives the same order in every epoch.

Before:

    for epoch in range(10):
        for x, y in loader:
            loss = criterion(model(x), y)
            loss.backward()

After:

    for epoch in range(10):
        loader.sampler.set_epoch(epoch)
        for x, y in loader:
            loss = criterion(model(x), y)
            loss.backward()
"""

import ast
from collections.abc import Iterator

from multicard.bound import bound_before
from multicard.dealing import iterable
from multicard.edits import insert_before
from multicard.facts import Facts, Training
from multicard.interpret import Loop
from multicard.messages import Text
from multicard.plan import Finding
from multicard.source import Module
from multicard.tree import nodes, walk
from multicard.values import Const, Obj

CODE = "MC203"
TITLE = Text("Tell the sampler the epoch", "每个 epoch 调用 set_epoch")

_SEEDED = Text(
    "the shuffle is seeded with the epoch; not told, every epoch has the same order",
    "保证每个 epoch 的打乱方式不同;不设置则每轮顺序完全一样",
)


def find(facts: Facts) -> Iterator[Finding]:
    """One finding for each loop that counts epochs round training."""
    done: set[tuple[ast.AST, str]] = set()
    for training in facts.trainings:
        if training.epochs is None:
            continue
        counter = _counter(training.epochs)
        if counter is None:
            continue
        loop = training.epochs
        assert isinstance(loop.node, ast.For)
        for loader in training.loaders:
            if not facts.dealt(loader):
                continue
            name = _expression(facts, loop, loader) or _out_of_sight(facts, loop, loader)
            if name is None or not bound_before(facts, loop.module, name, loop.node.body[0]):
                yield from _at_the_batches(facts, training, loader, counter, done)
                continue
            if (loop.node, name) in done or _told(loop, name):
                continue
            done.add((loop.node, name))
            sure = not _may_be_none(facts, loop, name)
            told = _line(loader, name, counter) if sure else f"«set_epoch»({name}, {counter})"
            line = insert_before(loop.module, loop.node.body[0], told)
            yield Finding(CODE, facts.site(loop.module, loop.node), _SEEDED, (line,))


def _at_the_batches(
    facts: Facts, training: Training, loader: Obj, counter: str, done: set[tuple[ast.AST, str]]
) -> Iterator[Finding]:
    """Before the loop over batches, for a loader that is only known by what that loop walks through.

    Where that is out of sight too, samplers count the passes.
    """
    batches, epochs = training.loop, training.epochs
    assert epochs is not None
    if not isinstance(batches.node, ast.For) or (batches.node, "") in done:
        return
    done.add((batches.node, ""))
    module = batches.module
    same = facts.scope(module, batches.node) is facts.scope(epochs.module, epochs.node)
    for node in walk(batches.node.iter) if same else ():
        if isinstance(node, ast.Name | ast.Attribute | ast.Subscript) and loader in facts.values(node):
            name = module.text(node)
            sure = facts.only(facts.values(node), facts.train_loaders) and not isinstance(node, ast.Subscript)
            line = _line(loader, name, counter) if sure else f"«set_epoch»({name}, {counter})"
            edit = insert_before(module, batches.node, line)
            yield Finding(CODE, facts.site(module, batches.node), _SEEDED, (edit,))
            return


def _line(loader: Obj, name: str, counter: str) -> str:
    if "batch_sampler" in loader.args or loader.starred or len(loader.makers) > 1 or iterable(loader):
        return f"«set_epoch»({name}, {counter})"
    return f"{name}.sampler.set_epoch({counter})"


def _counter(loop: Loop) -> str | None:
    """The name that counts the epochs."""
    node = loop.node
    if not isinstance(node, ast.For):
        return None
    target: ast.expr = node.target
    if isinstance(target, ast.Tuple) and _is_enumerate(node.iter):
        target = target.elts[0]
    if isinstance(target, ast.Name) and target.id != "_" and not _over_values(node.iter):
        return target.id
    return None


def _is_enumerate(node: ast.expr) -> bool:
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "enumerate"


def _over_values(node: ast.expr) -> bool:
    """Whether a loop runs over things, not numbers."""
    return isinstance(node, ast.List | ast.Tuple | ast.Dict)


def _expression(facts: Facts, loop: Loop, loader: Obj) -> str | None:
    """How the loader is written where the epochs are counted; bound before the loop and not in it."""
    bound = {
        part.id for part in walk(loop.node) if isinstance(part, ast.Name) and isinstance(part.ctx, ast.Store)
    }
    for region in (loop.node, facts.scope(loop.module, loop.node)):
        for node in walk(region):
            if not isinstance(node, ast.Name | ast.Attribute | ast.Subscript) or not isinstance(
                node.ctx, ast.Load
            ):
                continue
            if isinstance(node, ast.Subscript) and not isinstance(node.slice, ast.Constant):
                continue
            if facts.scope(loop.module, node) is not facts.scope(loop.module, loop.node):
                continue
            values = facts.values(node)
            if loader in values and facts.only(values, facts.train_loaders) and _root(node) not in bound:
                if region is not loop.node and not _before(loop.module, node, loop.node):
                    continue
                return loop.module.text(node)
    return None


def _out_of_sight(facts: Facts, loop: Loop, loader: Obj) -> str | None:
    """How the loader is written where the epochs are counted, though nothing there uses it: `self.loader`, a global."""
    scope = facts.scope(loop.module, loop.node)
    if isinstance(scope, ast.FunctionDef) and scope.args.args:
        first = scope.args.args[0].arg
        for node in walk(scope):
            if isinstance(node, ast.Name) and node.id == first:
                for value in facts.values(node):
                    attrs = value.attrs.items() if isinstance(value, Obj) and value.kind == "instance" else ()
                    for attr, values in attrs:
                        if (
                            attr.isidentifier()
                            and loader in values
                            and facts.only(values, facts.train_loaders)
                        ):
                            return f"{first}.{attr}"
    if isinstance(scope, ast.Module):
        return None
    local = {
        part.id for part in walk(scope) if isinstance(part, ast.Name) and isinstance(part.ctx, ast.Store)
    } | {part.arg for part in walk(scope) if isinstance(part, ast.arg)}
    for name, values in facts.run.frames[loop.module].names.items():
        if loader in values and facts.only(values, facts.train_loaders) and name not in local:
            return name
    return None


def _may_be_none(facts: Facts, loop: Loop, name: str) -> bool:
    """Whether the script has a loader of this name only sometimes, and None else."""
    kind = ast.Attribute if "." in name else ast.Name
    return any(
        Const(None) in facts.values(node)
        for node in nodes(facts.scope(loop.module, loop.node), kind)
        if loop.module.text(node) == name
    )


def _told(loop: Loop, name: str) -> bool:
    """Whether the script tells the sampler itself."""
    return any(
        isinstance(node, ast.Call) and loop.module.text(node.func) == f"{name}.sampler.set_epoch"
        for node in walk(loop.node)
    )


def _root(node: ast.expr) -> str:
    while isinstance(node, ast.Attribute | ast.Subscript):
        node = node.value
    return node.id if isinstance(node, ast.Name) else ""


def _before(module: Module, node: ast.expr, loop: ast.AST) -> bool:
    del module
    return node.lineno <= getattr(loop, "lineno", 0)
