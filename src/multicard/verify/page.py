"""A verdict as a page that needs no network: what was compared, and both runs' curves over each other."""

import math
from dataclasses import dataclass

from jinja2 import Environment, PackageLoader, StrictUndefined

from multicard.messages import Language, Text
from multicard.verify.show import STATE, doing, headline, notes, rank_line
from multicard.verify.verdict import Curve, Verdict

WIDTH, HEIGHT = 640.0, 220.0
LEFT, RIGHT, TOP, BOTTOM = 56.0, 12.0, 12.0, 28.0
NAMES = {
    "loss": Text("Loss (of all ranks: the mean)", "损失（多进程取平均）"),
    "gradient": Text("Norm of the gradient, as the optimizer uses it", "优化器所用梯度的范数"),
}
WORDS = {
    "original": Text("original", "原脚本"),
    "migrated": Text("migrated", "迁移后"),
    "step": Text("step", "步"),
    "check": Text("Check", "检查项"),
    "result": Text("Result", "结果"),
    "cause": Text("Likely cause", "可能的原因"),
    "ranks": Text("Where the ranks stood", "各进程停在哪里"),
    "ran": Text(
        "The original ran for {:.1f} s on one process, the migrated script for {:.1f} s on {}.",
        "原脚本单进程运行 {:.1f} 秒，迁移后的脚本用 {:.1f} 秒、{} 个进程。",
    ),
}


@dataclass(frozen=True)
class Tick:
    """A number beside an axis."""

    at: float
    text: str


@dataclass(frozen=True)
class Plot:
    """Two polylines in one frame, and the scale beside them."""

    title: str
    original: str
    migrated: str
    rows: tuple[Tick, ...]
    columns: tuple[Tick, ...]


def plot(curve: Curve, language: Language) -> Plot | None:
    """The curve laid out for SVG; None where there is nothing to draw."""
    values = [v for v in (*curve.original, *curve.migrated) if v is not None and math.isfinite(v)]
    count = max(len(curve.original), len(curve.migrated))
    if len(values) < 2:
        return None
    low, high = min(values), max(values)
    if high == low:
        low, high = low - 0.5, high + 0.5

    def x(i: int) -> float:
        return LEFT + (WIDTH - LEFT - RIGHT) * (i / max(count - 1, 1))

    def y(value: float) -> float:
        return TOP + (HEIGHT - TOP - BOTTOM) * (1 - (value - low) / (high - low))

    def line(points: tuple[float | None, ...]) -> str:
        parts, pen = [], "M"
        for i, value in enumerate(points):
            if value is None or not math.isfinite(value):
                pen = "M"
                continue
            parts.append(f"{pen}{x(i):.1f},{y(value):.1f}")
            pen = "L"
        return " ".join(parts)

    rows = tuple(Tick(y(v), f"{v:.3g}") for v in (low, (low + high) / 2, high))
    columns = tuple(Tick(x(i), str(i)) for i in sorted({0, (count - 1) // 2, count - 1}))
    return Plot(NAMES[curve.name].to(language), line(curve.original), line(curve.migrated), rows, columns)


def page(verdict: Verdict, language: Language) -> str:
    environment = Environment(
        loader=PackageLoader("multicard.verify"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    words = {name: text.to(language) for name, text in WORDS.items()}
    return environment.get_template("verify.html").render(
        language="zh-CN" if language == "zh" else "en",
        verdict=verdict,
        headline=headline(verdict).to(language),
        words=words,
        ran=words["ran"].format(*verdict.seconds, verdict.nproc),
        state={name: text.to(language) for name, text in STATE.items()},
        to=lambda text: text.to(language),
        notes=notes(verdict, language),
        places=[rank_line(place, language) for place in verdict.where] if verdict.ended != "compared" else [],
        plots=[drawn for curve in verdict.curves if (drawn := plot(curve, language)) is not None],
        frame={
            "width": WIDTH,
            "height": HEIGHT,
            "left": LEFT,
            "right": WIDTH - RIGHT,
            "bottom": HEIGHT - BOTTOM,
        },
        doing=doing,
    )
