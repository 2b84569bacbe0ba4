"""Deal evaluation out in whole batches, without repeating a sample.

`DistributedSampler` pads: 359 samples on two ranks are counted as 360.  `EvalSampler` deals the very batches of the
single-card run, so every sample counts once and every mean of batches stays what it was.  Where a loop over the
data is not understood, every rank walks through all of it.

Before:

    val_loader = DataLoader(val_set, batch_size=64, shuffle=False)
    correct = 0
    model.eval()
    with torch.no_grad():
        for x, y in val_loader:
            correct += (model(x).argmax(1) == y).sum().item()
    print(correct / len(val_set))

After:

    val_loader = DataLoader(val_set, batch_size=64, sampler=EvalSampler(val_set, 64))
    correct = 0
    model.eval()
    with torch.no_grad():
        for x, y in val_loader:
            correct += (model(x).argmax(1) == y).sum().item()
    print(correct / len(val_set))
"""

from collections.abc import Iterator

from multicard.dealing import written
from multicard.edits import call_with
from multicard.facts import Facts
from multicard.messages import Text
from multicard.plan import Finding, Kind
from multicard.rules.shard_training_data import dealt_out

CODE = "MC202"
TITLE = Text("Deal out evaluation exactly", "验证数据精确分片")

_WHY = Text(
    "each rank evaluates whole batches of the single-card run; no sample is repeated or left out",
    "每个进程验证单卡运行中的若干完整批次;样本不重复、不遗漏",
)

_APART = Text(
    "evaluate in a loop of its own, after `model.eval()` and under `torch.no_grad()`",
    "请把验证放到单独的循环里,并在 `model.eval()` 之后、`torch.no_grad()` 之下进行",
)

_SHARE = Text(
    "this loop must see all batches, and its loader, which is dealt out, is not in sight here",
    "这个循环必须遍历全部批次,而它的 loader 已被分片,且在这里看不到",
)
_ALL = Text(
    "put whole_loader(...) of ddp_runtime round the loader",
    "请用 ddp_runtime 的 whole_loader(...) 包住该 loader",
)


def find(facts: Facts) -> Iterator[Finding]:
    """Sites that make evaluation loaders, and loops that must see all of one."""
    for site in facts.dealing.sites:
        if site.evaluate and not site.train:
            arguments = written(facts, site.call)
            if arguments.dataset:
                edits = tuple(dealt_out(facts, site, arguments))
                yield Finding(CODE, facts.site(site.module, site.call), _WHY, edits)
    for module, node, en, zh in facts.dealing.whole:
        yield Finding(
            CODE,
            facts.site(module, node),
            Text(
                f"here every rank walks through all batches: {en}",
                f"这里每个进程都遍历全部批次:{zh}",
            ),
            call_with(module, node, "«whole_loader»"),
        )
    for visit in facts.dealing.lost:
        yield Finding(CODE, facts.site(visit.module, visit.node), _SHARE, (), _ALL, Kind.LEFT)
    for visit in facts.dealing.visits:
        if facts.dealing.shared(visit) or visit.dead or not visit.forwards or visit.understood:
            continue
        problem, en, zh = visit.why()
        if visit.also_trains:
            why = Text(
                f"this loop trains and evaluates, and what it counts stays each rank's own: {en}",
                f"这个循环既训练又验证,其中统计的结果仍是各进程自己的:{zh}",
            )
            yield Finding(CODE, facts.site(visit.module, problem), why, (), _APART, Kind.LEFT)
            continue
        yield Finding(
            CODE,
            facts.site(visit.module, problem),
            Text(
                f"evaluation stays whole on every rank (same numbers, not faster): {en}",
                f"验证在每个进程上完整进行(结果相同,但不会更快):{zh}",
            ),
            kind=Kind.NOTE,
        )
