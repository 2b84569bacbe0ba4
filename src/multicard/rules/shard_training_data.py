'''Deal the training data out, so that each rank trains on its own share.

Without this every process reads the whole data set: N processes do N times the work to average N copies of one
gradient.  The sampler seeds its shuffle with the epoch, so it is told the epoch, or every epoch comes in one order.

Before:

    loader = DataLoader(data, batch_size=32, shuffle=True)

After:

    loader = DataLoader(data, batch_size=32, sampler=DistributedSampler(data, shuffle=True))
'''

import ast
from collections.abc import Iterator

from multicard.dealing import Site
from multicard.edits import Edit, add_argument, call_with, remove_argument
from multicard.facts import Facts
from multicard.messages import Text
from multicard.plan import Finding, Kind
from multicard.source import Module
from multicard.values import Const, Obj

CODE = "MC201"
TITLE = Text("Deal out the training data", "训练数据换成 DistributedSampler")

_POSITIONS = ("dataset", "batch_size", "shuffle", "sampler", "batch_sampler")
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
    given = given_arguments(call)
    if any(keyword.arg is None for keyword in call.keywords) and _hides(site):
        yield Finding(
            CODE,
            place,
            Text("`**` holds arguments that cannot be seen here", "`**` 里的参数在这里看不到"),
            advice=Text(
                "pass sampler=DistributedSampler(dataset) and leave shuffle out, by hand",
                "请手动传入 sampler=DistributedSampler(dataset) 并去掉 shuffle",
            ),
            kind=Kind.LEFT,
        )
        return
    if "dataset" not in given:
        yield Finding(
            CODE,
            place,
            Text("the data set of this loader cannot be seen", "看不到这个 loader 的数据集"),
            advice=Text("pass a DistributedSampler by hand", "请手动传入 DistributedSampler"),
            kind=Kind.LEFT,
        )
        return
    if iterable(site.train[0]):
        data = given["dataset"]
        yield Finding(CODE, place, _WHY, call_with(module, data, "«ShardedIterable»"))
        return
    if own := given.get("batch_sampler"):
        if not _none(own):
            yield Finding(CODE, place, _WHY, call_with(module, own, "«ShardedBatchSampler»"))
            return
    if own := given.get("sampler"):
        if not _none(own):
            if site.evaluate and site.condition:
                return
            yield Finding(CODE, place, _WHY, call_with(module, own, "«ShardedSampler»"))
            return
    yield Finding(CODE, place, _WHY, tuple(dealt_out(facts, site, given)))


def dealt_out(facts: Facts, site: Site, given: dict[str, ast.expr]) -> Iterator[Edit]:
    """The edits that give a loader its sampler in place of `shuffle`."""
    module, call = site.module, site.call
    sampler = training_sampler(module, given) if site.train else ""
    if site.evaluate:
        batch = module.text(given["batch_size"]) if "batch_size" in given else "1"
        exact = f"«EvalSampler»({module.text(given['dataset'])}, {batch})"
        sampler = f"{sampler} if {site.condition} else {exact}" if sampler else exact
    del facts
    shuffle = given.get("shuffle")
    if shuffle is None:
        yield add_argument(module, call, f"sampler={sampler}")
        return
    keyword = next((item for item in call.keywords if item.value is shuffle), None)
    if keyword is not None:
        from multicard.edits import replace  # noqa: PLC0415  # the name is a builtin method's elsewhere

        yield replace(module, keyword, f"sampler={sampler}")
    else:
        for extra in call.args[3:]:
            yield remove_argument(module, call, extra)
        from multicard.edits import replace  # noqa: PLC0415

        yield replace(module, shuffle, f"sampler={sampler}")


def training_sampler(module: Module, given: dict[str, ast.expr]) -> str:
    """The sampler that shuffles as the loader did."""
    shuffle = module.text(given["shuffle"]) if "shuffle" in given else "False"
    options = f", shuffle={shuffle}"
    if "generator" in given:
        options += f", generator={module.text(given['generator'])}"
    return f"«DistributedSampler»({module.text(given['dataset'])}{options})"


def given_arguments(call: ast.Call) -> dict[str, ast.expr]:
    """The arguments of a `DataLoader(...)` by name, however passed."""
    given = dict(zip(_POSITIONS, call.args, strict=False))
    given.update({keyword.arg: keyword.value for keyword in call.keywords if keyword.arg})
    return {name: value for name, value in given.items() if not isinstance(value, ast.Starred)}


def _hides(site: Site) -> bool:
    """Whether `**kwargs` holds what decides on the sampler."""
    for loader in (*site.train, *site.evaluate):
        if loader.starred:
            return True
        written = given_arguments(site.call)
        for name in ("shuffle", "sampler", "batch_sampler"):
            values = loader.args.get(name)
            if values and name not in written and values != frozenset({Const(None)}):
                return True
    return False


def _none(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value is None


def iterable(loader: Obj) -> bool:
    """Whether the loader reads an IterableDataset."""
    for value in loader.args.get("dataset", ()):
        if isinstance(value, Obj):
            bases = value.cls.mro() if value.cls is not None else []
            if any(getattr(base, "name", "").endswith("IterableDataset") for base in bases):
                return True
            if value.name.endswith("IterableDataset"):
                return True
    return False
