"""Say what the effective batch becomes, or keep it.

The batch size in the script is the batch of one card: N cards make a step of N times as many samples, and an epoch
has N times fewer steps.  With `--batch global` each card takes its part of the script's batch instead.

Before:

    loader = DataLoader(data, batch_size=64, shuffle=True)

After (`--batch global`):

    loader = DataLoader(data, batch_size=per_card(64), shuffle=True)
"""

from collections.abc import Iterator

from multicard.dealing import Site, written
from multicard.edits import call_with, wrap
from multicard.facts import Facts
from multicard.messages import Text
from multicard.plan import Finding, Kind
from multicard.values import Obj, data_of
from multicard.wraps import has_statistics

CODE = "MC206"
TITLE = Text("The effective batch", "等效批大小")

_GROWS = Text(
    "the batch size stays the batch of one card: N cards make a step of N times as many samples and N times fewer steps"
    " an epoch; learning rate (often scaled by N, with warm-up) and schedules counted in steps are yours to adjust, or"
    " migrate with --batch global",
    "批大小仍是每张卡的批大小:N 张卡每一步相当于 N 倍的样本,每个 epoch 的步数变为 1/N;学习率(常按 N 倍缩放并配合"
    " warm-up)和按步计的调度需要自行调整,或使用 --batch global 保持不变",
)
_KEPT = Text(
    "each card takes its part of the script's batch, so a step sees as many samples as on one card",
    "每张卡只取脚本批大小的一部分,每一步的样本数与单卡相同",
)
_COUNTED = Text(
    "the batch grows with the cards that one process sees, and each process sees all of the machine's; each takes its"
    " part, so a step sees as many samples as with DataParallel",
    "批大小随一个进程看到的卡数增长,而每个进程都能看到本机所有的卡;每个进程只取自己的一份,"
    "每一步的样本数与使用 DataParallel 时相同",
)
_STATISTICS = Text(
    "BatchNorm takes its statistics from the batch of each card, now N times smaller; where samples are too few, put"
    " the model through torch.nn.SyncBatchNorm.convert_sync_batchnorm before it is wrapped",
    "BatchNorm 的统计量来自每张卡的批次,现在只有原来的 1/N;如果样本太少,请在包装模型之前使用"
    " torch.nn.SyncBatchNorm.convert_sync_batchnorm",
)


def find(facts: Facts) -> Iterator[Finding]:
    """One note for the script, or one edit for each training loader."""
    sites = [site for site in facts.dealing.sites if site.train]
    if facts.batch == "per-card":
        counted = [site for site in sites if _counts_cards(facts, site)]
        yield from _divided(facts, counted, _COUNTED)
        sites = [site for site in sites if site not in counted]
        if sites:
            place = facts.site(sites[0].module, sites[0].call)
            stepped = _by_step(facts)
            yield Finding(CODE, place, _GROWS, kind=Kind.NOTE)
            if stepped is not None:
                yield stepped
        return
    if sites and any(has_statistics(model) for model in facts.trained):
        yield Finding(CODE, facts.site(sites[0].module, sites[0].call), _STATISTICS, kind=Kind.NOTE)
    yield from _divided(facts, sites, _KEPT)


def _counts_cards(facts: Facts, site: Site) -> bool:
    """Whether the batch size of a training loader grows with the cards that one process sees."""
    size = written(facts, site.call).given.get("batch_size")
    return size is not None and "cards" in data_of(facts.values(size)).tags


def _divided(facts: Facts, sites: list[Site], why: Text) -> Iterator[Finding]:
    """The edits that give each card its part of the batch."""
    for site in sites:
        size = written(facts, site.call).given.get("batch_size")
        if size is None:
            continue
        if site.condition:
            otherwise = f") if {site.condition} else {site.module.text(size)}"
            edits = wrap(site.module, size, "«per_card»(", otherwise)
            yield Finding(CODE, facts.site(site.module, size), why, edits)
            continue
        if site.evaluate or site.spilled:
            yield Finding(
                CODE,
                facts.site(site.module, size),
                Text("one size serves training and evaluation here", "这里训练和验证共用同一个批大小"),
                advice=Text("divide the training batch by hand", "请手动划分训练批大小"),
                kind=Kind.LEFT,
            )
            continue
        yield Finding(CODE, facts.site(site.module, size), why, call_with(site.module, size, "«per_card»"))


def _by_step(facts: Facts) -> Finding | None:
    """A note on the first scheduler that is stepped for each batch."""
    for event in facts.events("schedule", dead=False):
        if isinstance(event.subject, Obj) and facts.trains(event):
            return Finding(
                CODE,
                facts.site(event.module, event.node),
                Text(
                    "this schedule is stepped for each batch, and there are N times fewer; a length computed from"
                    " len(loader) follows by itself, a constant does not",
                    "该调度器按批次步进,而批次数变为 1/N;由 len(loader) 计算的长度会自动适应,写死的常数不会",
                ),
                kind=Kind.NOTE,
            )
    return None
