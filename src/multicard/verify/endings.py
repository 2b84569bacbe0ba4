"""Why a run did not come to its end: what an exception means, and who waits for whom in a hang."""

import re

from multicard.messages import Text
from multicard.verify import causes
from multicard.verify.doing import COLLECTIVES
from multicard.verify.evidence import Pair, key_of
from multicard.verify.verdict import Cause, Where

ERRORS: tuple[tuple[str, str, str, str], ...] = (
    (
        r"Expected to have finished reduction",
        "MC304",
        "a parameter that DDP waits for got no gradient: frozen after wrapping, or unused",
        "DDP 等待的参数没有梯度：包装之后被冻结，或没有用到",
    ),
    (
        r"'DistributedDataParallel' object has no attribute",
        "MC302",
        "attributes of the model are reached through .module",
        "模型的属性要通过 .module 访问",
    ),
    (
        r"mark a variable ready only once",
        "MC307",
        "a parameter is used twice before one reduction",
        "同一参数在一次同步中被使用两次",
    ),
    (
        r"modified by an inplace operation",
        "MC303",
        "buffers are broadcast between two forwards of one backward",
        "一次反向中的两次前向之间广播了缓冲区",
    ),
    (
        r"DistributedDataParallel is not needed",
        "MC301",
        "a model without trainable parameters is wrapped",
        "包装了没有可训练参数的模型",
    ),
    (
        r"[Mm]issing key|[Uu]nexpected key|KeyError: '(module|_orig_mod)\.",
        "MC501",
        "a checkpoint with a wrapper's prefix",
        "检查点带有包装前缀",
    ),
    (
        r"PytorchStreamReader|failed finding central directory|unexpected EOF|UnpicklingError|corrupt",
        "MC501",
        "a checkpoint is read while another rank writes it",
        "检查点正被另一个进程写入时读取",
    ),
    (
        r"FileExistsError",
        "MC505",
        "several ranks make the same file or folder",
        "多个进程创建同一文件或文件夹",
    ),
    (
        r"FileNotFoundError",
        "MC502",
        "a rank reads a file before it is written, or that it never writes",
        "进程在文件写出之前读取，或读取了从未写出的文件",
    ),
    (
        r"[Dd]efault process group has not been initialized",
        "MC101",
        "a collective before the process group is made",
        "在初始化进程组之前使用了集合通信",
    ),
    (
        r"sampler option is mutually exclusive with shuffle",
        "MC201",
        "shuffle is left beside the sampler",
        "使用采样器时仍保留了 shuffle",
    ),
    (
        r"optimizer got an empty parameter list",
        "MC302",
        "parameters are chosen by name, and the wrapper's names carry a prefix",
        "按名字挑选参数，而包装后的名字带有前缀",
    ),
    (
        r"invalid device ordinal|Duplicate GPU",
        "MC102",
        "ranks do not use a card each",
        "各进程没有使用各自的显卡",
    ),
    (
        r"gather.*(size|shape)|sizes? mismatch",
        "MC402",
        "ranks gather tensors of different sizes",
        "各进程收集的张量大小不同",
    ),
)


def of_error(text: str, site: str | None) -> Cause | None:
    """What an exception on a rank means."""
    last = text.strip().splitlines()[-1] if text.strip() else ""
    for pattern, code, en, zh in ERRORS:
        if re.search(pattern, last) or re.search(pattern, text[-1500:]):
            return Cause(code, Text(en, zh), site)
    return None


PEER = re.compile(
    r"connection (closed|reset)|broken pipe|socket closed|read error|writing? error|peer.*(closed|reset)",
    re.IGNORECASE,
)


# how a collective that some ranks never reach is called in the rules
GUARDED = {
    "all_reduce": "MC401",
    "reduce": "MC401",
    "all_gather": "MC402",
    "all_gather_object": "MC402",
    "all_gather_into_tensor": "MC402",
    "gather": "MC402",
    "gather_object": "MC402",
}
IN_FORWARD = {"_sync_buffers", "DDP forward"}
IN_TRAINING = IN_FORWARD | {"backward", "BatchNorm"}


def of_mismatch(pair: Pair, where: tuple[Where, ...]) -> Cause:
    """Collectives that met and did not fit: of one kind and line, with other sizes, or of different ones."""
    for place in where:
        if GUARDED.get(place.doing) == "MC402" and _only_here(pair, place) is None:
            text = Text("ranks gather tensors of different sizes", "各进程收集的张量大小不同")
            return Cause("MC402", text, place.site)
    return of_hang(pair, where)


def of_hang(pair: Pair, where: tuple[Where, ...]) -> Cause:
    """Ranks that wait for ranks which will not come."""
    skipped = causes.uneven(pair)
    if skipped is not None:
        return skipped
    waiting = [w for w in where if w.state == "waiting"]
    unequal = _ran_out(pair, waiting)
    if unequal is not None:
        text = Text("the ranks have different numbers of batches", "各进程的批次数不同")
        return Cause("MC201", text, unequal)
    forward = next((w for w in waiting if w.doing in IN_FORWARD and not _trains_at(pair, w)), None)
    if forward is not None and len({w.site for w in where}) > 1:
        text = Text(
            "the wrapped model is called on some ranks only, and its buffers are broadcast in forward",
            "包装后的模型只在部分进程上调用，而前向会广播缓冲区",
        )
        return Cause("MC303", text, forward.site)
    stopped = _left_training(pair, where)
    if stopped is not None:
        text = Text(
            "some ranks leave the training loop and others do not: agree before anybody stops",
            "部分进程离开训练循环而其他进程没有：停止之前要先达成一致",
        )
        return Cause("MC403", text, stopped)
    guarded = _parted(pair) or next((g for w in waiting if (g := _only_here(pair, w)) is not None), None)
    if guarded is not None:
        name, site = guarded
        text = Text(
            f"{name} is called on some ranks only: it stands under a condition that not all ranks meet",
            f"{name} 只在部分进程上调用：它处在并非所有进程都满足的条件之下",
        )
        return Cause(GUARDED.get(name, "MC506"), text, site)
    text = Text("the ranks wait for each other at different lines", "各进程停在不同的行互相等待")
    return Cause("MC506", text, waiting[0].site if waiting else None)


def _trains_at(pair: Pair, place: Where) -> bool:
    """Whether the forward at this line was called in training mode."""
    calls = [
        e for e in pair.ranks[place.rank].of("forward") if e["site"] and pair.shown(e["site"]) == place.site
    ]
    return any(call["training"] for call in calls)


def _called_elsewhere(pair: Pair, rank: int) -> set[str]:
    """All lines from which the other ranks have called a collective."""
    return {
        pair.shown(site)
        for other, trace in enumerate(pair.ranks)
        if other != rank
        for event in trace.of("collective")
        for site in event["chain"]
    }


def _only_here(pair: Pair, place: Where) -> tuple[str, str] | None:
    """The innermost line on this rank's way to its collective from which no other rank has called one."""
    if place.doing not in COLLECTIVES:
        return None
    others = _called_elsewhere(pair, place.rank)
    site = next((site for site in place.chain if site not in others), None)
    return None if site is None else (place.doing, site)


def _parted(pair: Pair) -> tuple[str, str] | None:
    """The first collective at which the ranks' calls are not the same any more, and that one rank alone makes."""
    for calls in zip(*(trace.of("collective") for trace in pair.ranks), strict=False):
        if len({(call["name"], tuple(call["chain"])) for call in calls}) > 1:
            for rank, call in enumerate(calls):
                others = _called_elsewhere(pair, rank)
                alone = next((s for s in map(pair.shown, call["chain"]) if s not in others), None)
                if alone is not None:
                    return call["name"], alone
            return None
    return None


def _ran_out(pair: Pair, waiting: list[Where]) -> str | None:
    """The loader that has no more batches on one rank, while another still trains on it."""
    training = {w.rank for w in waiting if w.doing in IN_TRAINING}
    ended = {(key_of(e), e["number"], r): e for r, t in enumerate(pair.ranks) for e in t.of("passed")}
    for (key, number), passage in pair.passages.items():
        if key not in pair.training:
            continue
        counts = {rank: len(batches) for rank, batches in passage.batches.items()}
        for rank, count in counts.items():
            end = ended.get((key, number, rank))
            if (
                end is not None
                and end["how"] == "end"
                and any(counts[r] > count for r in training if r in counts)
            ):
                return pair.shown(causes.loader_site(pair, key) or "") or None
    return None


def _passes(pair: Pair, rank: int) -> int:
    return sum(1 for e in pair.ranks[rank].of("pass") if key_of(e) in pair.training)


def _left_training(pair: Pair, where: tuple[Where, ...]) -> str | None:
    """The line at which a rank stands that began fewer epochs than another."""
    passes = [_passes(pair, rank) for rank in range(pair.world)]
    if len(set(passes)) < 2:
        return None
    order = (passes.index(min(passes)), passes.index(max(passes)))
    return next((w.site for rank in order for w in where if w.rank == rank and w.site), None)
