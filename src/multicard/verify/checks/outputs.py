"""What the scripts print and write: the same numbers and files, each by one rank."""

import ast
import re
from dataclasses import dataclass, replace

from multicard.messages import Text
from multicard.verify import printed
from multicard.verify.evidence import Event, Pair
from multicard.verify.verdict import Check, check

LITERAL = re.compile(r"""'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*\"""")
TITLE_PRINTED = Text("printed numbers", "打印的数值")


def compared_lines(pair: Pair) -> printed.Comparison:
    """Lines of one shape compared; what rank 0 shows of its own share while it trains is left out."""
    found = _lines(pair)
    own = shown_in_training(pair)
    return replace(
        found,
        differences=tuple(d for d in found.differences if not own.holds(d) and not _tells_the_size(pair, d)),
    )


def _lines(pair: Pair) -> printed.Comparison:
    said = [
        [line for event in trace.of("said") for line in event["text"].splitlines()]
        for trace in pair.ranks[1:]
    ]
    return printed.compare(
        pair.original.lines, pair.ranks[0].lines, losses=printed.Losses(pair.losses), said=said
    )


def _tells_the_size(pair: Pair, difference: printed.Difference) -> bool:
    """A line with the batch size in it, where the original was given a larger one."""
    return any(
        re.sub(rf"\b{event['becomes']}\b", str(event["value"]), difference.own) == difference.other
        for event in pair.original.of("larger")
    )


def share_lines(pair: Pair) -> list[printed.Difference]:
    """Lines with other numbers that rank 0 prints of its own share: in a training loop, or the loss of a batch."""
    own = shown_in_training(pair)
    found = _lines(pair)
    return [difference for difference in found.differences if own.holds(difference)] + [*found.shares]


@dataclass(frozen=True)
class Shown:
    """What rank 0 shows of its own share: lines, and how many numbers at the beginning of others."""

    shapes: frozenset[str]
    begun: dict[str, int]

    def holds(self, difference: printed.Difference) -> bool:
        return difference.shape in self.shapes or difference.column < self.begun.get(difference.shape, 0)


def shown_in_training(pair: Pair) -> Shown:
    """What rank 0 prints of its own share: between two batches that were dealt to it.

    Not what it prints between training batches after an evaluation there.
    """
    shapes: set[str] = set()
    begun: dict[str, int] = {}
    training = {tuple(event["key"]) for event in pair.ranks[0].of("trains")}
    dealt = {
        (passage.key, passage.number)
        for passage in pair.passages.values()
        if passage.key not in training and len({str(share) for share in passage.shares.values()}) > 1
    }
    open_passes: set[tuple[object, ...]] = set()
    evaluating: set[tuple[object, ...]] = set()
    evaluated = False
    for event in pair.ranks[0].events:
        kind = event["kind"]
        key = tuple(event["key"]) if "key" in event else ()
        if kind == "pass" and key in training:
            open_passes.add(key)
        elif kind == "batch" and (key, event["number"]) in dealt:
            evaluating.add(key)
        elif kind == "passed":
            open_passes.discard(key)
            evaluating.discard(key)
            evaluated |= key not in training
        elif kind == "batch" and key in training:
            evaluated = False
        elif kind == "print" and (event.get("between") or evaluating or (open_passes and not evaluated)):
            shapes.add(printed.read(event["text"]).shape)
        elif kind == "print" and event.get("begun"):
            line = printed.read(event["text"])
            begun[line.shape] = len(printed.read(event["begun"]).numbers)
            if begun[line.shape] == len(line.numbers):
                shapes.add(line.shape)
    return Shown(frozenset(shapes), begun)


def check_printed(pair: Pair) -> Check:
    found = compared_lines(pair)
    if found.differences:
        d = found.differences[0]
        return check(
            "printed",
            TITLE_PRINTED,
            "failed",
            f"{d.own!r}, {d.other!r} in the migrated run; {len(found.differences)} numbers differ",
            f"{d.own!r}，迁移后 {d.other!r}；共 {len(found.differences)} 个数值不同",
        )
    shares = share_lines(pair)
    if shares:
        return check(
            "printed",
            TITLE_PRINTED,
            "told",
            f"{found.numbers - len(shares)} numbers agree; of a training batch rank 0 shows its own share:"
            f" {shares[0].other!r}",
            f"{found.numbers - len(shares)} 个数值一致；对训练批次 rank0 显示的是自己那一份：{shares[0].other!r}",
        )
    if not found.numbers:
        return check(
            "printed",
            TITLE_PRINTED,
            "skipped",
            "no line of one shape with numbers in both runs",
            "两边没有相同格式的数值行",
        )
    if found.missing:
        return check(
            "printed",
            TITLE_PRINTED,
            "told",
            f"{found.numbers} numbers agree; not printed, or less often: {found.missing[0]!r}"
            + (f" and {len(found.missing) - 1} more" if len(found.missing) > 1 else ""),
            f"{found.numbers} 个数值一致；没有打印或次数更少：{found.missing[0]!r}"
            + (f" 等 {len(found.missing)} 种" if len(found.missing) > 1 else ""),
        )
    return check(
        "printed",
        TITLE_PRINTED,
        "held",
        f"{found.numbers} numbers in {found.lines} lines",
        f"{found.lines} 行共 {found.numbers} 个数值",
    )


TITLE_ONCE = Text("each line printed by one rank", "每行只由一个进程打印")


def repeated_lines(pair: Pair) -> list[str]:
    """Shapes that the original prints, and that more than one rank prints."""
    own = printed.by_shape(pair.original.lines)
    ranks = [set(printed.by_shape(trace.lines)) for trace in pair.ranks]
    return [shape for shape in own if sum(shape in shapes for shapes in ranks) > 1]


def repeated_bars(pair: Pair) -> bool:
    """Progress bars on more than one rank."""
    return (
        sum(
            ("\r" in trace.complaints and "it/s" in trace.complaints)
            or ("\r" in trace.complaints and "|" in trace.complaints)
            for trace in pair.ranks
        )
        > 1
    )


def check_once(pair: Pair) -> Check:
    shapes = repeated_lines(pair)
    if shapes:
        return check(
            "once",
            TITLE_ONCE,
            "failed",
            f"printed by several ranks: {shapes[0]!r}"
            + (f" and {len(shapes) - 1} more" if len(shapes) > 1 else ""),
            f"由多个进程打印：{shapes[0]!r}" + (f" 等 {len(shapes)} 种" if len(shapes) > 1 else ""),
        )
    if repeated_bars(pair):
        return check("once", TITLE_ONCE, "failed", "several ranks show a progress bar", "多个进程显示进度条")
    if not any(pair.original.lines):
        return check("once", TITLE_ONCE, "skipped", "the original prints nothing", "原脚本没有输出")
    return check(
        "once", TITLE_ONCE, "held", f"{len(pair.original.lines)} lines", f"{len(pair.original.lines)} 行"
    )


TITLE_FILES = Text("files", "文件")


def bad_files(pair: Pair) -> list[Event]:
    own = shown_in_training(pair)
    return [
        event
        for event in pair.original.of("file")
        if event["how"] == "missing" or (event["count"] and not _only_shares(event, own.shapes))
    ]


def _only_shares(event: Event, own: frozenset[str]) -> bool:
    """Whether a log differs only in lines that rank 0 also prints of its own share, perhaps behind a time stamp."""
    told = [str(difference) for difference in event.get("differences", ())]
    if event["how"] != "text" or not own or event["count"] > len(told):
        return False
    lines = [match for difference in told if (match := LITERAL.match(difference))]
    shapes = [printed.read(str(ast.literal_eval(match[0]))).shape for match in lines]
    return len(shapes) == len(told) and all(any(shape.endswith(one) for one in own) for shape in shapes)


def check_files(pair: Pair) -> Check:
    files = pair.original.of("file")
    if not files:
        return check("files", TITLE_FILES, "skipped", "the original wrote none", "原脚本没有写文件")
    bad = bad_files(pair)
    if bad:
        event = bad[0]
        text = (
            "not written by the migrated script"
            if event["how"] == "missing"
            else str(event["differences"][0])
        )
        zh = "迁移后没有写出" if event["how"] == "missing" else str(event["differences"][0])
        return check("files", TITLE_FILES, "failed", f"{event['name']}: {text}", f"{event['name']}：{zh}")
    extra = [e["name"] for e in files if e["how"] == "extra"]
    by_content = sum(1 for e in files if e["how"] in {"tensors", "text"})
    en = f"{len(files) - len(extra)} files, {by_content} compared by content"
    zh = f"{len(files) - len(extra)} 个文件，其中 {by_content} 个比较了内容"
    if extra:
        return check(
            "files",
            TITLE_FILES,
            "told",
            f"{en}; only in the migrated run: {extra[0]}",
            f"{zh}；只有迁移后才有：{extra[0]}",
        )
    return check("files", TITLE_FILES, "held", en, zh)


TITLE_WRITERS = Text("each file written by one rank", "每个文件只由一个进程写")


def shared_writes(pair: Pair) -> list[tuple[str, list[int], Event]]:
    """Files that several ranks opened for writing."""
    writers: dict[str, dict[int, Event]] = {}
    for rank, trace in enumerate(pair.ranks):
        for event in [*trace.of("write"), *trace.of("save")]:
            if event.get("how") != "os.mkdir":
                writers.setdefault(event["path"], {}).setdefault(rank, event)
    return [(path, sorted(ranks), ranks[max(ranks)]) for path, ranks in writers.items() if len(ranks) > 1]


def other_folders(pair: Pair) -> tuple[str, str] | None:
    """Files of two ranks where the original has one: names stamped with the time."""
    made = [
        {e["path"] for e in trace.of("write")} | {e["path"] for e in trace.of("save")} for trace in pair.ranks
    ]
    shape = printed.NUMBER
    for path in sorted(made[0]):
        for other in made[1:]:
            for twin in sorted(other - made[0]):
                if (
                    path not in other
                    and shape.sub("#", path) == shape.sub("#", twin)
                    and path != twin
                    and not _by_rank(path, twin)
                ):
                    return path, twin
    return None


def _by_rank(a: str, b: str) -> bool:
    """Names that differ by the rank alone, as logs of each rank do."""
    x, y = printed.NUMBER.findall(a), printed.NUMBER.findall(b)
    odd = [(p, q) for p, q in zip(x, y, strict=False) if p != q]
    return (
        len(odd) == 1
        and odd[0][0].lstrip("+-") == "0"
        and odd[0][1].lstrip("+-").isdigit()
        and len(odd[0][1].lstrip("+-")) < 3
    )


def check_writers(pair: Pair) -> Check:
    shared = shared_writes(pair)
    if shared:
        path, ranks, _ = shared[0]
        return check(
            "writers",
            TITLE_WRITERS,
            "failed",
            f"{pair.shown(path)} is written by ranks {ranks}"
            + (f", and {len(shared) - 1} more files" if len(shared) > 1 else ""),
            f"{pair.shown(path)} 由进程 {ranks} 同时写"
            + (f"，另有 {len(shared) - 1} 个文件" if len(shared) > 1 else ""),
        )
    twins = other_folders(pair)
    if twins is not None:
        a, b = (pair.shown(path) for path in twins)
        return check(
            "writers",
            TITLE_WRITERS,
            "failed",
            f"ranks write to different names: {a}, {b}",
            f"各进程写到不同的名字：{a}，{b}",
        )
    if not any(trace.of("write") or trace.of("save") for trace in pair.ranks):
        return check("writers", TITLE_WRITERS, "skipped", "nothing was written", "没有写任何文件")
    return check("writers", TITLE_WRITERS, "held", "no file has two writers", "没有文件被两个进程写")
