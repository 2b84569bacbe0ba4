"""Why a run did not come to its end: what an exception means, and who waits for whom in a hang."""

import re

from multicard.messages import Text
from multicard.verify import causes
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
        r"default process group has not been initialized",
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
        r"invalid device ordinal|Duplicate GPU",
        "MC102",
        "ranks do not use a card each",
        "各进程没有使用各自的显卡",
    ),
    (
        r"all_gather|gather.*(size|shape)|op\.preamble\.length|EnforceNotMet|sizes? mismatch",
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


def of_hang(pair: Pair, where: tuple[Where, ...]) -> Cause:
    """Ranks that wait for ranks which will not come."""
    waiting = [w for w in where if w.state == "waiting"]
    gone = [w for w in where if w.state in {"finished", "failed"}]
    skipped = causes.uneven(pair)
    forward = next((w for w in waiting if w.doing in {"_sync_buffers", "DDP forward"}), None)
    evaluated = forward is not None and not _training_line(pair, forward.site)
    if forward is not None and evaluated and len({w.site for w in where}) > 1:
        return Cause(
            "MC303",
            Text(
                "the wrapped model is called on some ranks only, and its buffers are broadcast in forward",
                "包装后的模型只在部分进程上调用，而前向会广播缓冲区",
            ),
            forward.site,
        )
    if skipped is not None:
        return skipped
    stopped = _left_training(pair, where)
    if stopped is not None:
        return Cause(
            "MC403",
            Text(
                "some ranks leave the training loop and others do not: agree before anybody stops",
                "部分进程离开训练循环而其他进程没有：停止之前要先达成一致",
            ),
            stopped,
        )
    unequal = _unequal_batches(pair)
    if unequal is not None:
        return Cause(
            "MC201", Text("the ranks have different numbers of batches", "各进程的批次数不同"), unequal
        )
    if gone and waiting:
        return Cause(
            "MC506",
            Text(
                "a rank waits in a collective that the others do not reach",
                "有进程停在其他进程不会执行的集合通信上",
            ),
            waiting[0].site,
        )
    site = waiting[0].site if waiting else None
    return Cause(
        "MC506",
        Text(
            "the ranks wait in different collectives: one stands under a condition that not all ranks meet",
            "各进程停在不同的集合通信上：其中一个处在并非所有进程都满足的条件之下",
        ),
        site,
    )


def _training_line(pair: Pair, site: str | None) -> bool:
    return (
        any(site in (pair.shown(s) for s in e.get("backward", [])) for e in pair.ranks[0].of("step"))
        if site
        else False
    )


def _passes(pair: Pair, rank: int) -> int:
    return sum(1 for e in pair.ranks[rank].of("pass") if key_of(e) in pair.training)


def _left_training(pair: Pair, where: tuple[Where, ...]) -> str | None:
    """The line after the loop at which a rank stands that began fewer epochs than another."""
    passes = [_passes(pair, rank) for rank in range(pair.world)]
    if len(set(passes)) < 2:
        return None
    fewest = passes.index(min(passes))
    most = passes.index(max(passes))
    return next((w.site for w in where if w.rank == fewest and w.site), None) or next(
        (w.site for w in where if w.rank == most), None
    )


def _unequal_batches(pair: Pair) -> str | None:
    for (key, _), passage in pair.passages.items():
        if key in pair.training and len({len(b) for b in passage.batches.values()}) > 1:
            return pair.shown(causes.loader_site(pair, key) or "") or None
    return None
