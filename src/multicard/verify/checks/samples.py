"""Who had which sample: dealt once when training, ordered anew each epoch, counted once when evaluating."""

from collections import Counter
from dataclasses import dataclass
from itertools import pairwise

from multicard.messages import Text
from multicard.verify.checks import outputs, ranks, streams
from multicard.verify.evidence import Key, Pair, Passage, key_of
from multicard.verify.verdict import Check, check

TITLE_DEALT = Text("each training sample dealt once per epoch", "每轮每个训练样本恰好一次")


@dataclass(frozen=True)
class Dealing:
    """What is wrong with one pass over training data, and how much of it is padding."""

    passage: Passage
    kind: str  # right, same, doubled, missing, foreign, unclear
    count: int
    padding: int
    samples: int


def expected(pair: Pair, key: Key) -> set[int] | None:
    """The samples that the original trains on with this loader."""
    own = pair.counterparts.get(key)
    if own is None or own.get("base") is None:
        return None
    if own.get("chosen") is not None:
        return set(own["chosen"])
    if own.get("own_first") is not None:
        return set(own["own_first"])
    return set(range(own["base"])) if own["own"] == own["base"] else None


def repeats(pair: Pair, key: Key) -> bool:
    """Whether the original's own sampler gives a sample twice in an epoch."""
    own = pair.counterparts.get(key)
    if own is None:
        return False
    drawn = next((e for e in pair.original.of("own") if key_of(e) == key_of(own)), None)
    return bool(own.get("replacement")) or (drawn is not None and drawn["distinct"] < drawn["total"])


def dealing(pair: Pair, passage: Passage) -> Dealing:
    if streams.is_stream(pair, passage.key):
        kind, count, padding = streams.fault(pair, passage)
        return Dealing(passage, kind, count, padding, len({i for s in passage.shares.values() for i in s}))
    loader = pair.loaders[passage.key]
    counts = Counter(i for share in passage.shares.values() for i in share)
    batch = loader.get("batch_size") or max(
        (len(b) for bs in passage.batches.values() for b in bs), default=1
    )
    total, distinct = sum(counts.values()), len(counts)
    doubled = total - distinct
    shares = [share for _, share in sorted(passage.shares.items())]
    if len(shares) > 1 and shares[0] and all(share == shares[0] for share in shares[1:]):
        return Dealing(passage, "same", doubled, 0, distinct)
    replacement = loader.get("replacement") or repeats(pair, passage.key)
    wanted = expected(pair, passage.key)
    if wanted is not None:
        foreign = [i for i in counts if i not in wanted]
        if foreign:
            return Dealing(passage, "foreign", len(foreign), 0, distinct)
    if replacement:
        return Dealing(passage, "right", 0, 0, distinct)
    if doubled > max(pair.world - 1, 0) and doubled > _padding_of_batches(passage, batch, pair.world):
        return Dealing(passage, "doubled", doubled, 0, distinct)
    if wanted is not None and passage.whole:
        missing = len(wanted) - distinct
        if missing >= batch * pair.world + pair.world:
            return Dealing(passage, "missing", missing, doubled, distinct)
    return Dealing(passage, "right", 0, doubled, distinct)


def _padding_of_batches(passage: Passage, batch: int, world: int) -> int:
    """Whole batches dealt twice at the end of an epoch, so that all ranks have as many."""
    last = [batches[-1] for batches in passage.batches.values() if batches]
    again = sum(1 for one in last if any(one == two for bs in passage.batches.values() for two in bs[:-1]))
    return again * batch if again < world else 0


def training_passages(pair: Pair) -> list[Passage]:
    """Passes over training data on which an optimizer has stepped; not a look at the first batch."""
    used = {(key_of(e), e["number"]) for trace in pair.ranks for e in trace.of("used")}
    found = [
        p
        for (key, number), p in pair.passages.items()
        if key in pair.training
        and not p.evaluates
        and any(p.shares.values())
        and (not used or (key, number) in used)
    ]
    return sorted(found, key=lambda p: (p.key, p.number))


def first_bad_dealing(pair: Pair) -> Dealing | None:
    fine = {"right", "unclear"}
    return next((d for p in training_passages(pair) if (d := dealing(pair, p)).kind not in fine), None)


def check_dealt(pair: Pair) -> Check:
    found = training_passages(pair)
    if not found and ranks.drawn_alike(pair) is not None:
        en, zh = "all ranks draw the same batches", "所有进程抽取的批次相同"
        return check("dealt", TITLE_DEALT, "failed", en, zh)
    if not found and ranks.same_losses(pair):
        return check(
            "dealt",
            TITLE_DEALT,
            "skipped",
            "batches drawn by hand: the ranks drew the same here, to be compared, so their shares were not put to"
            " the test",
            "批次由脚本自行抽取：为便于比较，这里各进程抽取的相同，因此没有检验分片",
        )
    if not found:
        return check(
            "dealt",
            TITLE_DEALT,
            "skipped",
            "no DataLoader dealt training samples by index, so who had which cannot be told",
            "训练数据不经 DataLoader 按下标取出，无法判断样本归属",
        )
    bad = first_bad_dealing(pair)
    if bad is None:
        deals = [dealing(pair, p) for p in found]
        if any(d.kind == "unclear" for d in deals):
            return check(
                "dealt",
                TITLE_DEALT,
                "skipped",
                "the ranks' samples are not those that the original reads from its stream, but packed or drawn"
                " otherwise, so who had which cannot be told",
                "各进程的样本与原脚本从数据流中读到的不同（打包或随机抽取方式不同），无法判断样本归属",
            )
        padding, samples = max(d.padding for d in deals), max(d.samples for d in deals)
        if padding:
            return check(
                "dealt",
                TITLE_DEALT,
                "told",
                f"{len(found)} epochs; {padding} of {samples} samples repeated, so that all have as many",
                f"{len(found)} 轮；{samples} 个样本中有 {padding} 个重复，用于补齐各进程的数量",
            )
        return check("dealt", TITLE_DEALT, "held", f"{len(found)} epochs", f"{len(found)} 轮")
    texts = {
        "same": ("all ranks had the same samples", "所有进程拿到相同的样本"),
        "doubled": (f"{bad.count} samples dealt more than once", f"{bad.count} 个样本被重复分发"),
        "drawn": (
            f"{bad.count} samples come to several ranks, for each draws an order of its own and takes a share of that",
            f"{bad.count} 个样本会分到多个进程：各进程各自打乱顺序再取一份",
        ),
        "missing": (f"{bad.count} samples never dealt", f"{bad.count} 个样本从未分发"),
        "foreign": (
            f"{bad.count} samples that the original does not train on",
            f"{bad.count} 个样本不在原脚本的训练集中",
        ),
    }[bad.kind]
    return check(
        "dealt",
        TITLE_DEALT,
        "failed",
        f"epoch {bad.passage.number}: {texts[0]}",
        f"第 {bad.passage.number} 轮：{texts[1]}",
    )


TITLE_ORDER = Text("order of training samples", "训练样本的顺序")


def order_of(passage: Passage) -> list[int]:
    """The samples of an epoch as one process would have had them."""
    shares = [share for _, share in sorted(passage.shares.items())]
    longest = max((len(share) for share in shares), default=0)
    return [share[at] for at in range(longest) for share in shares if at < len(share)]


@dataclass(frozen=True)
class Order:
    """How the epochs of a loader are ordered."""

    kind: str  # right, repeated, unshuffled, shuffled, sampler, draws
    passage: Passage | None
    key: Key | None
    epochs: int = 0


PLAIN = {"RandomSampler", "SequentialSampler", "SubsetRandomSampler", "BatchSampler", None}


def judged_order(pair: Pair) -> Order:
    most = 0
    for key in sorted(pair.training):
        own = pair.counterparts.get(key)
        passes = [p for p in training_passages(pair) if p.key == key and len(order_of(p)) > 2]
        if not passes:
            continue
        if streams.is_stream(pair, key):
            again = streams.repeated_order(pair, passes)
            if again is not None:
                return Order("repeated", again, key)
            most = max(most, len(passes))
            continue
        orders = [order_of(p) for p in passes]
        shuffles = None if own is None else own.get("shuffles")
        theirs = pair.loaders[key]
        if own is not None and (
            (own["sampler"] not in PLAIN and theirs["sampler"] == "DistributedSampler")
            or (own.get("batch_sampler") not in PLAIN and theirs.get("batch_sampler") == "BatchSampler")
            or (own.get("replacement") and not theirs.get("replacement") and _each_once(passes))
        ):
            return Order("sampler", passes[0], key)
        if _other_draws(pair, passes[0]):
            return Order("draws", passes[0], key)
        ascending = [order == sorted(order) for order in orders]
        if shuffles and len(orders[0]) > 8 and all(ascending):
            return Order("unshuffled", passes[0], key)
        if shuffles is False and not all(ascending) and _descends(orders):
            return Order("shuffled", passes[0], key)
        if shuffles or not all(ascending):
            twice = next((i for i in range(1, len(orders)) if _same(orders[i], orders[i - 1])), None)
            if twice is not None and shuffles is not False:
                return Order("repeated", passes[twice], key)
        most = max(most, len(orders))
    return Order("right", None, None, most)


def _other_draws(pair: Pair, passage: Passage) -> bool:
    """Whether the ranks take their shares of draws that are not one and the same.

    A rank that draws no more than its own share may draw as it likes.
    """
    drawn = [
        [e for e in trace.of("drawn") if key_of(e) == passage.key and e["number"] == passage.number]
        for trace in pair.ranks
    ]
    for events in zip(*drawn, strict=False):
        shares = max((len(share) for share in passage.shares.values()), default=0)
        if len({e["result"] for e in events}) > 1 and min(e["count"] for e in events) > 1.5 * shares:
            return True
    return False


def _each_once(passes: list[Passage]) -> bool:
    whole = [p for p in passes if p.whole]
    return bool(whole) and all(max(Counter(order_of(p)).values()) <= 1 + _tail(p) for p in whole)


def _tail(passage: Passage) -> int:
    counts = Counter(order_of(passage))
    return 1 if sum(counts.values()) - len(counts) < len(passage.shares) else 0


def _descends(orders: list[list[int]]) -> bool:
    """Out of order in a way that neither interleaved nor contiguous shares explain: most neighbours."""
    order = orders[0]
    falls = sum(1 for a, b in pairwise(order) if b < a)
    return falls > len(order) // 4


def _same(a: list[int], b: list[int]) -> bool:
    n = min(len(a), len(b))
    return n > 4 and a[:n] == b[:n]


def check_order(pair: Pair) -> Check:
    if not training_passages(pair):
        return check(
            "order",
            TITLE_ORDER,
            "skipped",
            "no DataLoader dealt training samples by index",
            "训练数据不经 DataLoader 按下标取出",
        )
    order = judged_order(pair)
    match order.kind:
        case "repeated":
            assert order.passage is not None
            n = order.passage.number
            return check(
                "order",
                TITLE_ORDER,
                "failed",
                f"epoch {n} came in the order of epoch {n - 1}",
                f"第 {n} 轮与第 {n - 1} 轮顺序相同",
            )
        case "unshuffled":
            return check(
                "order",
                TITLE_ORDER,
                "failed",
                "the original shuffles, the migrated script does not",
                "原脚本打乱顺序，迁移后没有",
            )
        case "shuffled":
            return check(
                "order",
                TITLE_ORDER,
                "failed",
                "the original keeps the order, the migrated script shuffles",
                "原脚本保持顺序，迁移后打乱了",
            )
        case "draws":
            en, zh = "the ranks deal out different draws of the sampler", "各进程分配的不是同一次采样结果"
            return check("order", TITLE_ORDER, "failed", en, zh)
        case "sampler":
            return check(
                "order",
                TITLE_ORDER,
                "failed",
                "the original's own sampler is not used any more",
                "原脚本自己的采样器没有被使用",
            )
        case _:
            if order.epochs < 2:
                return check(
                    "order",
                    TITLE_ORDER,
                    "skipped",
                    "one epoch only: nothing to compare its order with",
                    "只有一轮，无从比较顺序",
                )
            return check("order", TITLE_ORDER, "held", f"{order.epochs} epochs", f"{order.epochs} 轮")


TITLE_CONTENT = Text("samples hold the same data", "相同下标的样本内容相同")


@dataclass(frozen=True)
class Content:
    """How many samples were looked at, and on which ranks they are not what the original had."""

    compared: int
    differing: int
    ranks: tuple[int, ...]
    key: Key | None


def same_content(a: list[float], b: list[float]) -> bool:
    """The same to the bit, or to the rounding of what was computed from it."""
    if a[0] == b[0]:
        return True
    scale = max(abs(a[1]), abs(b[1]))
    return abs(a[1] - b[1]) <= 1e-5 * scale and abs(a[2] - b[2]) <= 1e-4 * scale


def same_rows(own: list[list[float]], other: list[list[float]]) -> bool:
    """Whether a batch holds the same rows as the shares of it together, in whatever order."""
    return (
        bool(own)
        and len(own) == len(other)
        and all(
            abs(a - b) <= 1e-5 * max(abs(a), abs(b)) + 1e-9
            for one, two in zip(own, sorted(other), strict=True)
            for a, b in zip(one, two, strict=True)
        )
    )


def judged_content(pair: Pair) -> Content:
    theirs: dict[tuple[Key, int, int], dict[int, list[float]]] = {}
    rows: dict[tuple[Key, int, int], list[list[float]]] = {}
    for rank, trace in enumerate(pair.ranks):
        for event in trace.of("batch"):
            if event.get("rows"):
                rows.setdefault((key_of(event), event["number"], event["at"]), []).extend(event["rows"])
            if event.get("firsts"):
                theirs.setdefault((key_of(event), event["number"], event["at"]), {})[rank] = event["firsts"][
                    0
                ]
    counterpart = {
        key_of(e): tuple(e["counterpart"]) for e in pair.original.of("loader") if e.get("counterpart")
    }
    compared, odd, ranks, where = 0, 0, set(), None
    for event in pair.original.of("batch"):
        key = counterpart.get(key_of(event))
        if key is None or key not in pair.training:
            continue
        others = theirs.get((key, event["number"], event["at"]), {})
        if len(event.get("firsts", [])) != pair.world:
            continue
        if same_rows(event.get("rows", []), rows.get((key, event["number"], event["at"]), [])):
            compared += len(others)
            continue
        for rank, value in enumerate(event["firsts"]):
            if rank in others:
                compared += 1
                if not same_content(others[rank], value):
                    odd += 1
                    ranks.add(rank)
                    where = key
    return Content(compared, odd, tuple(sorted(ranks)), where)


def check_content(pair: Pair) -> Check:
    content = judged_content(pair)
    if not content.compared:
        return check(
            "content", TITLE_CONTENT, "skipped", "no training samples to compare", "没有可比较的训练样本"
        )
    if not content.differing:
        return check(
            "content",
            TITLE_CONTENT,
            "held",
            f"{content.compared} samples looked at",
            f"抽查 {content.compared} 个样本",
        )
    everywhere = len(content.ranks) == pair.world
    return check(
        "content",
        TITLE_CONTENT,
        "failed",
        f"{content.differing} of {content.compared} samples differ"
        + (
            ", on every rank: the data set draws random numbers of its own"
            if everywhere
            else f", on ranks {list(content.ranks)}"
        ),
        f"{content.compared} 个样本中有 {content.differing} 个不同"
        + (
            "，每个进程都有：数据集使用了自己的随机数生成器"
            if everywhere
            else f"，在进程 {list(content.ranks)} 上"
        ),
    )


TITLE_EVALUATED = Text("each validation sample counted once", "每个验证样本恰好统计一次")


@dataclass(frozen=True)
class Evaluated:
    """How often one evaluation counted each sample."""

    kind: str  # right, everywhere, one, padded, doubled, missing, never
    count: int
    passage: Passage | None
    key: Key | None


def judged_evaluation(pair: Pair) -> list[Evaluated]:
    found = []
    for key, own in pair.counterparts.items():
        if key in pair.training:
            continue
        own_key = key_of(own)
        wanted = [
            p for (k, _), p in pair.own_passages.items() if k == own_key and p.complete and p.shares.get(0)
        ]
        if not wanted:
            continue
        # an original that shuffles is given the samples in the migrated run's order: its data set says which there are
        whole = expected(pair, key) if own.get("shuffles") and own.get("sampler") == "RandomSampler" else None
        reference = Counter(wanted[0].shares[0]) if whole is None else Counter(dict.fromkeys(whole, 1))
        theirs = [
            p for (k, _), p in pair.passages.items() if k == key and any(p.shares.values()) and p.complete
        ]
        if not theirs:
            continue
        if streams.is_stream(pair, key) and any(
            s not in reference for p in theirs for b in p.shares.values() for s in b
        ):
            continue  # drawn or packed otherwise: a sample of a stream is known by what it holds
        found += [_counted(pair, p, reference) for p in theirs]
    return found


def _counted(pair: Pair, passage: Passage, reference: Counter[int]) -> Evaluated:
    shares = [Counter(share) for share in passage.shares.values()]
    if all(share == reference for share in shares):
        return Evaluated("everywhere" if len(shares) > 1 else "one", 0, passage, passage.key)
    total: Counter[int] = sum(shares, Counter())
    if total == reference:
        return Evaluated("right", 0, passage, passage.key)
    extra, missing = sum((total - reference).values()), sum((reference - total).values())
    if missing:
        return Evaluated("missing", missing, passage, passage.key)
    return Evaluated("padded" if extra < pair.world else "doubled", extra, passage, passage.key)


def bad_evaluation(pair: Pair) -> Evaluated | None:
    """The first evaluation that does not count every sample once.

    A sample that is only repeated to pad the shares may have been taken out again: then all numbers agree.
    """
    lines = outputs.compared_lines(pair)
    agree = lines.numbers > 0 and not lines.differences and not outputs.bad_files(pair)
    faults = {"doubled", "missing"} if agree else {"padded", "doubled", "missing"}
    return next((e for e in judged_evaluation(pair) if e.kind in faults), None)


def check_evaluated(pair: Pair) -> Check:
    found = judged_evaluation(pair)
    if not found:
        return check(
            "evaluated",
            TITLE_EVALUATED,
            "skipped",
            "no evaluation went through a whole DataLoader in both runs",
            "两边没有经过完整 DataLoader 的评估",
        )
    bad = bad_evaluation(pair)
    if bad is None and any(e.kind == "padded" for e in found):
        return check(
            "evaluated",
            TITLE_EVALUATED,
            "told",
            f"{len(found)} evaluations; samples repeat to pad the shares, but what is printed does not count them",
            f"{len(found)} 次评估；样本因补齐而重复，但打印的结果没有重复统计",
        )
    if bad is None:
        everywhere = sum(1 for e in found if e.kind == "everywhere")
        if everywhere:
            return check(
                "evaluated",
                TITLE_EVALUATED,
                "held",
                f"{len(found)} evaluations, {everywhere} of them whole on every rank",
                f"{len(found)} 次评估，其中 {everywhere} 次在每个进程上完整进行",
            )
        return check(
            "evaluated", TITLE_EVALUATED, "held", f"{len(found)} evaluations", f"{len(found)} 次评估"
        )
    texts = {
        "padded": (
            f"{bad.count} samples counted twice, to pad the ranks' shares",
            f"{bad.count} 个样本因补齐被统计两次",
        ),
        "doubled": (f"{bad.count} samples counted more than once", f"{bad.count} 个样本被重复统计"),
        "missing": (f"{bad.count} samples not counted", f"{bad.count} 个样本没有被统计"),
    }[bad.kind]
    return check("evaluated", TITLE_EVALUATED, "failed", *texts)
