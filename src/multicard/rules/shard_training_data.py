"""Deal the training data out, so that each rank trains on its own share.

Without this every process reads the whole data set: N processes do N times the work to average N copies of one
gradient.  The sampler seeds its shuffle with the epoch, so it is told the epoch, or every epoch comes in one order.

Before:

    loader = DataLoader(data, batch_size=32, shuffle=True)

After:

    loader = DataLoader(data, batch_size=32, sampler=DistributedSampler(data, shuffle=True))
"""

import ast
from collections.abc import Iterator

from multicard.dealing import POSITIONS, Site, Written, iterable, may_hold, written
from multicard.edits import Edit, Side, add_argument, call_with, insert, replace, wrap
from multicard.facts import Facts
from multicard.messages import Text
from multicard.plan import Finding, Kind
from multicard.source import Module
from multicard.tree import is_none
from multicard.values import Const, Obj

CODE = "MC201"
TITLE = Text("Deal out the training data", "训练数据换成 DistributedSampler")

_WHY = Text(
    "each rank must train on its own share of the data; the shuffle and all other arguments stay",
    "每个进程只训练自己的一份数据;打乱方式和其他参数保持不变",
)


def find(facts: Facts) -> Iterator[Finding]:
    """One finding for each place that makes training loaders."""
    for site in facts.dealing.sites:
        if site.train:
            yield from _site(facts, site)


def _site(facts: Facts, site: Site) -> Iterator[Finding]:
    module, call = site.module, site.call
    place = facts.site(module, call)
    arguments = written(facts, call)
    if not arguments.dataset:
        yield Finding(
            CODE,
            place,
            Text("the arguments of this loader cannot be seen here", "在这里看不到这个 loader 的参数"),
            advice=Text(
                "pass sampler=DistributedSampler(dataset) and leave shuffle out, by hand",
                "请手动传入 sampler=DistributedSampler(dataset) 并去掉 shuffle",
            ),
            kind=Kind.LEFT,
        )
        return
    given = arguments.given
    if iterable(site.train[0]) and "dataset" in given:
        yield Finding(CODE, place, _WHY, call_with(module, given["dataset"], "«ShardedIterable»"))
    elif "batch_sampler" in given and not is_none(given["batch_sampler"]):
        yield Finding(CODE, place, _WHY, call_with(module, given["batch_sampler"], "«ShardedBatchSampler»"))
    elif (name := _held(facts, arguments)) is not None and arguments.spread is not None:
        spread, sharded = module.text(arguments.spread.value), _SHARDED[name]
        options = f'{{**{spread}, "{name}": {sharded}({spread}["{name}"])}}'
        yield Finding(CODE, place, _WHY, (replace(module, arguments.spread.value, options),))
    else:
        yield Finding(CODE, place, _WHY, tuple(dealt_out(facts, site, arguments)))


_SHARDED = {"batch_sampler": "«ShardedBatchSampler»", "sampler": "«ShardedSampler»"}


def _held(facts: Facts, arguments: Written) -> str | None:
    """The sampler of the script's own that its dict of arguments holds, whatever else it holds."""
    if arguments.spread is None:
        return None
    dicts = [value for value in facts.values(arguments.spread.value) if isinstance(value, Obj)]
    for name in _SHARDED:
        if dicts and all(value.kind == "dict" and name in value.attrs for value in dicts):
            if not any(Const(None) in value.attrs[name] for value in dicts):
                return name
    return None


def dealt_out(facts: Facts, site: Site, arguments: Written) -> Iterator[Edit]:
    """The edits that give a loader its sampler in place of `shuffle`."""
    module, call, given = site.module, site.call, arguments.given
    spread = module.text(arguments.spread.value) if arguments.spread is not None else ""
    hidden = arguments.spread is not None and may_hold(facts, arguments.spread, "shuffle")
    if "dataset" in given:
        data, named = _named(facts, module, call, given["dataset"], "train_set" if site.train else "val_set")
        yield from named
    else:
        data = f'{spread}["dataset"]'
    shuffle, own = given.get("shuffle"), given.get("sampler")
    text = (
        module.text(shuffle)
        if shuffle is not None
        else f'{spread}.get("shuffle", False)'
        if hidden
        else "False"
    )
    sampler = training_sampler(module, given, data, text) if site.train else ""
    if own is not None and not is_none(own) and sampler:
        sampler = _sharded(facts, module, own, sampler)
    if site.evaluate:
        batch = (
            module.text(given["batch_size"])
            if "batch_size" in given
            else f'{spread}.get("batch_size", 1)'
            if spread
            else "1"
        )
        exact = f"«EvalSampler»({data}, {batch})"
        sampler = f"{sampler} if {site.condition} else {exact}" if sampler else exact
    if arguments.spread is not None and hidden and shuffle is None:
        yield replace(module, arguments.spread.value, f'{{**{spread}, "shuffle": None}}')
    if own is not None:
        yield replace(module, own, sampler)
        if shuffle is not None and not _plainly_false(shuffle):
            yield replace(module, shuffle, "None")
        return
    if shuffle is None:
        yield add_argument(module, call, f"sampler={sampler}")
        return
    keyword = next((item for item in call.keywords if item.value is shuffle), None)
    yield replace(module, keyword if keyword is not None else shuffle, f"sampler={sampler}")
    if keyword is None:
        for name, value in zip(POSITIONS[3:], call.args[3:], strict=False):
            yield insert(module, module.span(value).start, f"{name}=", Side.OPEN)


def _sharded(facts: Facts, module: Module, own: ast.expr, otherwise: str) -> str:
    """The script's own sampler dealt out, and where it may be None the usual one."""
    text = module.text(own)
    if Const(None) in facts.values(own) and _is_path(own):
        return f"«ShardedSampler»({text}) if {text} is not None else {otherwise}"
    return f"«ShardedSampler»({text})"


def _plainly_false(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and not node.value


def _named(
    facts: Facts, module: Module, call: ast.Call, data: ast.expr, name: str
) -> tuple[str, tuple[Edit, ...]]:
    """The data set's text, and edits that name it where it is made inside the call: making it twice would cost."""
    if _is_path(data):
        return module.text(data), ()
    taken = facts.bound_names(module)
    free = next(
        word for word in (name, f"{name}_", *(f"{name}{i}" for i in range(2, 99))) if word not in taken
    )
    keyword = any(item.value is data for item in call.keywords)
    return free, wrap(module, data, f"({free} := " if keyword else f"{free} := ", ")" if keyword else "")


def _is_path(node: ast.expr) -> bool:
    while isinstance(node, ast.Attribute | ast.Subscript):
        if isinstance(node, ast.Subscript) and not isinstance(node.slice, ast.Constant | ast.Name):
            return False
        node = node.value
    return isinstance(node, ast.Name)


def training_sampler(module: Module, given: dict[str, ast.expr], data: str, shuffle: str) -> str:
    """The sampler that shuffles as the loader did."""
    options = f", shuffle={shuffle}"
    if "generator" in given:
        options += f", generator={module.text(given['generator'])}"
    return f"«DistributedSampler»({data}{options})"
