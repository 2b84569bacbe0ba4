"""A verdict as a table for the terminal, and as data."""

from dataclasses import asdict
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from multicard.messages import Language, Text
from multicard.verify.verdict import Cause, Check, Verdict, Where

MARK = {"held": "[green]✓[/]", "told": "[yellow]✓[/]", "failed": "[red]✗[/]", "skipped": "[dim]–[/]"}
STATE = {
    "held": Text("held", "一致"),
    "told": Text("held, with a note", "一致，有说明"),
    "failed": Text("failed", "不一致"),
    "skipped": Text("not applicable", "不适用"),
}
RANK_STATE = {
    "waiting": Text("waits in", "正在等待"),
    "running": Text("is elsewhere, running", "在别处运行"),
    "finished": Text("has finished", "已经结束"),
    "failed": Text("has failed", "已经失败"),
}
DOING = {
    "_sync_buffers": Text("the forward of DDP, which broadcasts buffers", "DDP 前向（广播缓冲区）"),
    "DDP forward": Text("the forward of DDP", "DDP 前向"),
    "DDP": Text("the construction of DDP", "DDP 构造"),
    "backward": Text("backward, where DDP averages gradients", "backward（DDP 平均梯度）"),
    "BatchNorm": Text("BatchNorm over all ranks", "跨进程 BatchNorm"),
}


def doing(name: str, language: Language) -> str:
    known = DOING.get(name)
    return known.to(language) if known else name


def headline(verdict: Verdict) -> Text:
    n = verdict.nproc
    match verdict.ended, verdict.exit_code:
        case "hung", _:
            return Text("HANGS: the ranks wait for each other", "挂起：各进程互相等待")
        case "failed", _:
            return Text(
                "FAILS: the migrated script does not run to its end", "失败：迁移后的脚本没有运行到结束"
            )
        case "timeout", _:
            return Text(
                "TOO SLOW: the migrated script did not end in time", "超时：迁移后的脚本没有在规定时间内结束"
            )
        case "incomparable", _:
            return Text("NOT COMPARED: ", "无法比较：")
        case _, 0:
            return Text(
                f"THE SAME: {n} ranks train like one card, in {verdict.steps} steps compared one by one",
                f"一致：{n} 个进程与单卡训练相同，逐步比较了 {verdict.steps} 步",
            )
        case _:
            return Text(
                f"DIFFERS: {len(verdict.failed)} checks failed", f"不一致：{len(verdict.failed)} 项检查未通过"
            )


def notes(verdict: Verdict, language: Language) -> list[str]:
    """What the reader should know of how the runs were made."""
    found = [
        Text(
            "dropout was off, BatchNorm over all ranks, random numbers drawn per sample",
            "dropout 关闭，BatchNorm 跨进程计算，随机数按样本抽取",
        )
    ]
    if verdict.replaced:
        shown = ", ".join(verdict.replaced[:8])
        found.append(Text(f"replaced on the CPU: {shown}", f"在 CPU 上替换了：{shown}"))
    if verdict.shortened:
        found.append(
            Text("epochs were shortened; --full runs to the end", "训练轮次被缩短；--full 可完整运行")
        )
    return [text.to(language) for text in found]


def rank_line(place: Where, language: Language) -> str:
    zh = language == "zh"
    head = f"进程 {place.rank} " if zh else f"rank {place.rank} "
    state = RANK_STATE.get(place.state, Text(place.state, place.state)).to(language)
    what = f" {doing(place.doing, language)}" if place.doing and place.state == "waiting" else ""
    at = f"  {place.site}  {place.source}" if place.site else ""
    return f"{head}{state}{what}{at}"


def show(verdict: Verdict, language: Language, console: Console) -> None:
    colour = {0: "green", 1: "red", 2: "yellow"}[verdict.exit_code]
    console.print()
    console.print(f"[bold {colour}]{escape(headline(verdict).to(language))}[/]")
    if verdict.ended == "incomparable":
        console.print(escape(verdict.checks[0].detail.to(language)))
    if verdict.where and verdict.ended in {"hung", "failed", "timeout"}:
        for place in verdict.where:
            console.print("  " + escape(rank_line(place, language)), soft_wrap=True)
    if verdict.traceback:
        console.print()
        console.print(escape(verdict.traceback.rstrip()), style="dim", soft_wrap=True)
    console.print()
    if verdict.ended != "incomparable":
        console.print(table(verdict, language))
    for note in notes(verdict, language):
        console.print(f"[dim]{escape(note)}[/]", soft_wrap=True)


def table(verdict: Verdict, language: Language) -> Table:
    grid = Table(box=None, pad_edge=False, show_header=False, padding=(0, 2, 0, 0))
    grid.add_column(width=1)
    grid.add_column(no_wrap=True)
    grid.add_column(overflow="fold")
    told: set[Cause] = set()
    for check in verdict.checks:
        detail = _detail(check, language)
        if check.cause is not None:
            detail += "\n" + _cause(check.cause, language, known=check.cause in told)
            told.add(check.cause)
        grid.add_row(MARK[check.state], escape(check.title.to(language)), detail)
    return grid


def _detail(check: Check, language: Language) -> str:
    text = escape(check.detail.to(language))
    if check.state == "skipped":
        return f"[dim]{STATE['skipped'].to(language)}{'：' if language == 'zh' else ': '}{text}[/]"
    return text


def _cause(cause: Cause, language: Language, *, known: bool) -> str:
    """The code, the reason and the line; of a cause that has been told, the code."""
    if known:
        return f"[dim]{cause.code} {'同上' if language == 'zh' else 'as above'}[/]"
    at = f"  [cyan]{escape(cause.site)}[/]" if cause.site else ""
    return f"[bold]{cause.code}[/] {escape(cause.why.to(language))}{at}"


def as_data(verdict: Verdict, language: Language) -> dict[str, Any]:
    """The verdict as plain data, texts in one language."""
    data = asdict(verdict)
    data["exit_code"] = verdict.exit_code
    data["headline"] = headline(verdict).to(language)
    data["checks"] = [
        {
            "name": check.name,
            "title": check.title.to(language),
            "state": check.state,
            "detail": check.detail.to(language),
            "cause": None
            if check.cause is None
            else {"code": check.cause.code, "why": check.cause.why.to(language), "site": check.cause.site},
        }
        for check in verdict.checks
    ]
    return data
