"""Numbers in lines: what two runs print is the same when lines of one shape carry the same numbers.

Where the shapes agree the numbers are compared one by one, as exactly as they were printed. A last digit
may fall on either side of a rounding once in a while, never regularly.
"""

import math
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

NUMBER = re.compile(
    r"(?<![\w.])[-+]?(?:\d+(?:,\d{3})+(?:\.\d+)?|\d+\.?\d*(?:[eE][-+]?\d+)?|\.\d+(?:[eE][-+]?\d+)?)|\b(?:nan|inf)\b"
)
BAR = re.compile(r"\d%\|.*\||\d(?:it/s|s/it)\b|\r.+\r")  # a progress bar: what it shows depends on the clock
ESCAPES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
# a number before one of these is a duration or a speed, a number after one of those too
COUNTED = (
    "its?|iters?|iterations?|steps?|batch(?:es)?|samples?|ex|examples?|imgs?|images?|frames?|toks?|tokens?|words?|chars?"
    "|sents?|sentences?|seqs?|sequences?|rows?|items?|episodes?|graphs?|nodes?|points?"
)
UNIT = re.compile(
    rf"\s*(?:(?:{COUNTED})(?:/| per )(?:s|sec|second|min|minute|h|hour)"
    rf"|(?:s|secs?|ms)/(?:{COUNTED}|epochs?)"
    r"|s|sec|secs|seconds?|ms|us|mins?|minutes?|hours?|h|m|fps|秒|分钟?|小时|毫秒|MB|GB|KB|MiB|GiB)(?![a-zA-Z_])"
)
NAME = re.compile(
    r"(?:time|elapsed|eta|took|takes|cost|duration|speed|throughput|ms/batch|s/batch|pid|port|memory|mem|date|时间|用时|耗时|速度|总耗时|剩余)[^\d]{0,12}$",
    re.IGNORECASE,
)
SPEED = re.compile(
    r"per_sec(?:ond)?\S*(?:\s+\d+)?[\s,:=]+$", re.IGNORECASE
)  # behind a tag, perhaps with a step
MOMENT = re.compile(
    r"\d{4}[-/.]\d{1,2}[-/.]\d{1,2}|\d{1,2}:\d{2}(?::\d{2})?(?:[.,]\d+)?|\d{2}: \d{2}: \d{2}"
    r"|\d{8}[-_]\d{4,}(?:[-_]\d+)?|(?<!\d)\d{4}[-_]\d{6}(?!\d)"
)
COMPOUND = re.compile(r"(?<![\w.])(?:\d+(?:\.\d+)?(?:us|ms|[sSmhHdD])){2,}(?![a-zA-Z0-9_])")  # 1s20ms, 2m3s
TOGETHER = re.compile(r"~(?:[\s,:]*~)+")


@dataclass(frozen=True)
class Number:
    """A number as it was printed."""

    text: str
    value: float
    unit: float  # one step in the last place printed; 0 for whole numbers


@dataclass(frozen=True)
class Line:
    """A line without its numbers, and the numbers."""

    shape: str
    numbers: tuple[Number, ...]


def read(text: str) -> Line:
    """A line taken apart; durations, dates and speeds are part of its shape and not compared.

    Nor are their units, of which each run takes others: `980ms`, `1s20ms`, `2 min 3 s`.
    """
    text = ESCAPES.sub("", text).strip()
    text = COMPOUND.sub("~", MOMENT.sub("~", text))
    shape, numbers, last = [], [], 0
    for match in NUMBER.finditer(text):
        shape.append(text[last : match.start()])
        last = match.end()
        between = shape[-1] if shape else ""
        average = len(shape) > 1 and shape[-2] == "~" and between.strip() == "("
        before = text[: match.start()]
        unit = UNIT.match(text, match.end())
        if average or unit or NAME.search(before) or SPEED.search(before):
            shape.append("~")
            last = unit.end() if unit else last
            continue
        shape.append("#")
        numbers.append(number(match.group()))
    shape.append(text[last:])
    return Line(TOGETHER.sub("~", re.sub(r"\s+", " ", "".join(shape))), tuple(numbers))


def number(text: str) -> Number:
    plain = text.replace(",", "")
    mantissa, _, exponent = plain.lower().partition("e")
    _, point, decimals = mantissa.partition(".")
    whole = not point and not exponent
    unit = 0.0 if whole or plain in {"nan", "inf"} else 10.0 ** (int(exponent or 0) - len(decimals))
    return Number(text, float(plain), unit)


def near(a: Number, b: Number) -> bool:
    """Equal, but for rounding of long computations; not for the rounding of print."""
    if math.isnan(a.value) or math.isnan(b.value):
        return math.isnan(a.value) and math.isnan(b.value)
    if a.value == b.value:
        return True
    if not a.unit and not b.unit:
        return False
    return abs(a.value - b.value) <= 3e-5 * max(abs(a.value), abs(b.value)) + 1e-12


def slightly_off(a: Number, b: Number) -> bool:
    """What rounding does now and then: to the last digit printed, or to a sample at a tie."""
    unit = max(a.unit, b.unit)
    difference = abs(a.value - b.value)
    return unit > 0 and (difference <= 1.01 * unit or difference <= 4e-3 * max(abs(a.value), abs(b.value)))


SHARE = 3  # digits that a number must show to be known as a loss


class Losses:
    """The losses of the steps, one by one: that of the original, and that of rank 0's share.

    A script that shows the loss of the last batch shows other numbers on several cards, and is right.
    """

    def __init__(self, pairs: Iterable[tuple[float, float]] = ()) -> None:
        self.pairs = tuple(pairs)

    def shown(self, own: Number, other: Number) -> bool:
        """Whether these are the losses of one step, in the original and on rank 0."""
        return max(_digits(own), _digits(other)) >= SHARE and any(
            _rounds_to(a * scale, own) and _rounds_to(b * scale, other)
            for a, b in self.pairs
            for scale in (1, 100)
        )

    def are(self, own: float, other: float) -> bool:
        """The same of numbers that are kept as they are."""
        return any(_same(a, own) and _same(b, other) for a, b in self.pairs)


NO_LOSSES = Losses()


def _same(a: float, b: float) -> bool:
    return abs(a - b) <= 1e-6 * abs(a)


def _digits(number: Number) -> int:
    mantissa = number.text.lower().partition("e")[0]
    return len(re.sub(r"\D", "", mantissa).lstrip("0"))


def _rounds_to(value: float, number: Number) -> bool:
    return abs(value - number.value) <= 0.51 * number.unit + 1e-6 * abs(value)


@dataclass(frozen=True)
class Difference:
    """One number that is not the same in both lines."""

    shape: str
    own: str
    other: str
    occurrence: int
    column: int = 0  # which number of the line


@dataclass(frozen=True)
class Comparison:
    """What came of two sequences of lines."""

    numbers: int
    lines: int
    differences: tuple[Difference, ...]
    missing: tuple[str, ...]  # shapes that the migrated run printed less often
    extra: tuple[str, ...]
    shares: tuple[Difference, ...] = ()  # losses of one batch, of rank 0's share in the migrated run


COLUMN = re.compile(r"(?:^|_)(?:time|seconds?|secs?|elapsed|duration|took|用时|耗时)(?:$|_)", re.IGNORECASE)


def cells_of(text: str) -> list[str]:
    """The cells of a line of a table; none where it is no such line."""
    cells = [cell.strip() for cell in text.split("|")]
    return cells if len(cells) > 2 else []


class Table:
    """The table in which lines come: what stands under the name of a duration is one."""

    def __init__(self) -> None:
        self.names: list[str] = []

    def without_durations(self, text: str) -> str:
        cells = cells_of(text)
        if not cells:
            return text
        if not any(NUMBER.search(cell) for cell in cells):
            self.names = cells
        elif len(cells) == len(self.names):
            odd = [bool(COLUMN.search(name)) for name in self.names]
            return " | ".join(
                NUMBER.sub("~", cell) if drop else cell for cell, drop in zip(cells, odd, strict=True)
            )
        return text


def by_shape(lines: Sequence[str]) -> dict[str, list[tuple[Line, str]]]:
    grouped: dict[str, list[tuple[Line, str]]] = {}
    table = Table()
    for text in lines:
        if BAR.search(text):
            continue
        line = read(table.without_durations(text))
        if line.shape.strip():
            grouped.setdefault(line.shape, []).append((line, text.strip()))
    return grouped


def compare(
    own: Sequence[str],
    other: Sequence[str],
    *,
    total: int = 0,
    losses: Losses = NO_LOSSES,
    said: Sequence[Sequence[str]] = (),
) -> Comparison:
    """Compare line by line; `total` is how many lines there are if those that are equal have been taken out.

    `said`: what each other rank would have printed. A number of which the first run has the mean is a share's.
    """
    mine, theirs = by_shape(own), by_shape(other)
    unsaid = [by_shape(lines) for lines in said]
    differences: list[Difference] = []
    excused: list[Difference] = []
    shares: list[Difference] = []
    counted = lines = 0
    missing = [shape for shape, group in mine.items() if len(theirs.get(shape, [])) < len(group)]
    extra = [shape for shape, group in theirs.items() if len(mine.get(shape, [])) < len(group)]
    for shape, group in mine.items():
        pairs = list(zip(group, theirs.get(shape, []), strict=False))
        lines += len(pairs)
        for column in range(len(group[0][0].numbers)):
            counted += len(pairs)
            off, wrong, share = _column(shape, column, pairs, losses)
            apart = [d for d in (*off, *wrong) if _is_mean(d, group, theirs[shape], unsaid)]
            off, wrong = ([d for d in some if d not in apart] for some in (off, wrong))
            shares += share + apart
            rare = len(off) <= max(1, max(total, len(pairs)) // 10)
            (excused if rare else differences).extend(off)
            differences += wrong
    if len(excused) > max(4, max(total, counted) // 20):
        differences += excused
    differences.sort(key=lambda difference: difference.occurrence)
    return Comparison(counted, lines, tuple(differences), tuple(missing), tuple(extra), tuple(shares))


def _is_mean(
    difference: Difference,
    own: list[tuple[Line, str]],
    other: list[tuple[Line, str]],
    unsaid: list[dict[str, list[tuple[Line, str]]]],
) -> bool:
    """Whether the number of the first run is the mean of what the ranks have at this place."""
    at, column = difference.occurrence, difference.column
    groups = [other, *(lines.get(difference.shape, []) for lines in unsaid)]
    if len(groups) < 2 or any(len(group) <= at for group in groups):
        return False
    number = own[at][0].numbers[column]
    values = [group[at][0].numbers[column] for group in groups]
    mean = sum(value.value for value in values) / len(values)
    unit = max(number.unit, *(value.unit for value in values))
    return unit > 0 and abs(mean - number.value) <= 1.01 * unit + 1e-4 * abs(mean)


def _column(
    shape: str, column: int, pairs: list[tuple[tuple[Line, str], tuple[Line, str]]], losses: Losses
) -> tuple[list[Difference], list[Difference], list[Difference]]:
    """Where the numbers at one place of a line differ: slightly, more than that, and as the losses of a batch do."""
    off: list[Difference] = []
    wrong: list[Difference] = []
    shares: list[Difference] = []
    for i, ((a, text), (b, other)) in enumerate(pairs):
        x, y = a.numbers[column], b.numbers[column]
        if near(x, y):
            continue
        found = shares if losses.shown(x, y) else off if slightly_off(x, y) else wrong
        found.append(Difference(shape, text, other, i, column))
    return off, wrong, shares


def differing_lines(
    own: Sequence[str], other: Sequence[str], *, in_order: bool, losses: Losses = NO_LOSSES
) -> list[str]:
    """Where two text files differ; rows as sets unless order matters."""
    total = len(own)
    if not in_order:
        a, b = Counter(own), Counter(other)
        own, other = list((a - b).elements()), list((b - a).elements())
        own, other = sorted(own, key=_sortable), sorted(other, key=_sortable)
    found = compare(own, other, total=total, losses=losses)
    told = [f"{d.own!r}, {d.other!r} in the migrated run" for d in found.differences]
    told += [f"missing in the migrated run: {shape!r}" for shape in found.missing]
    told += [f"only in the migrated run: {shape!r}" for shape in found.extra]
    return told


def _sortable(row: str) -> tuple[str, tuple[float, ...]]:
    line = read(row)
    return line.shape, tuple(number.value for number in line.numbers)
