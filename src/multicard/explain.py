"""The command that says what was understood of a script, or of one of its lines, as text or as data.

The schema of the data is versioned: names and meanings stay as they are within a version; new keys may come.
"""

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NoReturn

import click

from multicard import __version__
from multicard.errors import MulticardError
from multicard.messages import Language, Text, language_of_the_locale
from multicard.roles import KINDS, Place, Role, Understood, Walk, understand

SCHEMA = 1
_HELP = language_of_the_locale()
_WALKS = {
    "training": Text("training loops", "训练循环"),
    "evaluation": Text("evaluation loops", "验证循环"),
    "loop": Text("other loops over loaders", "遍历 loader 的其他循环"),
}
_HOW = {
    "all_reduce_sum": Text("added up over the ranks", "在各进程间求和"),
    "all_reduce_max": Text("the largest of all ranks", "取各进程的最大值"),
    "all_reduce_mean": Text("the mean over the ranks", "取各进程的平均值"),
    "average_over_ranks": Text("its numbers become their means over the ranks", "其中的数取各进程的平均值"),
    "all_reduce_min": Text("the smallest of all ranks", "取各进程的最小值"),
    "gather_in_order": Text("joined in data set order", "按数据集顺序拼接"),
    "count": Text("the number of batches", "批次序号"),
    "meter": Text("its sums are added up over the ranks", "其内部的和在各进程间求和"),
    "last": Text("the last batch's", "最后一个批次的值"),
}


class _Where(click.ParamType[tuple[Path, int | None]]):
    """`FILE` or `FILE:LINE`; a file whose own name ends so is taken as it is."""

    name = "file[:line]"

    def convert(
        self, value: str, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[Path, int | None]:
        del param, ctx
        path, _, line = value.rpartition(":")
        if path and line.isdecimal() and not Path(value).exists():
            return Path(path), int(line)
        return Path(value), None


@click.command(
    help=Text(
        "Print what is understood of a script: roles, where they come from, the evidence, how sure they are, and what"
        " its loops carry. With :LINE, what is known of the names on that line.",
        "打印对脚本的理解:各个角色、来源、依据、可信程度,以及循环带出的内容。加上 :LINE 则打印该行各名称的信息。",
    ).to(_HELP)
)
@click.argument("where", metavar="FILE[:LINE]", type=_Where())
@click.option(
    "--lang",
    "language",
    type=click.Choice(["zh", "en"]),
    default=_HELP,
    help=Text("Language of what is said; by default that of the locale.", "输出语言,默认取系统区域设置。").to(
        _HELP
    ),
)
@click.option(
    "--format",
    "form",
    type=click.Choice(["text", "json"]),
    default="text",
    show_default=True,
    help=Text("What is printed.", "输出格式。").to(_HELP),
)
def explain(where: tuple[Path, int | None], language: Language, form: str) -> NoReturn:
    """Exit code 0, or 2 where the script cannot be read."""
    path, line = where
    try:
        understood = understand(path, line)
    except MulticardError as error:
        click.echo(error.text.to(language), err=True)
        sys.exit(2)
    if form == "json":
        click.echo(json.dumps(as_data(understood, language), ensure_ascii=False, indent=2))
    else:
        for text in as_lines(understood, language):
            click.echo(text)
    sys.exit(0)


# --- text ---------------------------------------------------------------------------------------------------------


def as_lines(understood: Understood, language: Language) -> Iterator[str]:
    """What is printed for people."""
    if understood.line is not None:
        yield from _line(understood, language)
        return
    for kind, title in KINDS.items():
        roles = [role for role in understood.roles if role.kind == kind]
        if roles:
            yield _title(title, language)
            for role in roles:
                yield from _role(role, language)
    for kind, title in _WALKS.items():
        walks = [walk for walk in understood.walks if walk.kind == kind]
        if walks:
            yield _title(title, language)
            for walk in walks:
                yield from _walk(walk, language)
    if understood.unknown:
        yield _title(Text("not followed", "无法跟踪"), language)
        for place, reason in understood.unknown:
            yield f"  {place}  {reason}"
            yield click.style(f"      {place.source}", dim=True)
    if not understood.roles:
        yield Text(
            f"{understood.script}: nothing of a training script was found",
            f"{understood.script}:没有找到训练脚本的内容",
        ).to(language)


def _title(title: Text, language: Language) -> str:
    return click.style(title.to(language), bold=True)


def _source(place: Place) -> str:
    return click.style(f"      {place.source}", dim=True)


def _role(role: Role, language: Language) -> Iterator[str]:
    names = ", ".join(role.names) or Text("(no name)", "(没有名字)").to(language)
    yield f"  {click.style(names, fg='green')}  {role.born}"
    yield _source(role.born)
    for text in role.evidence:
        yield f"    - {text.to(language)}"
    yield f"    = {role.sure.to(language)}"


def _walk(walk: Walk, language: Language) -> Iterator[str]:
    yield f"  {click.style(str(walk.place), fg='green')}"
    yield _source(walk.place)
    for text in walk.about:
        yield f"    - {text.to(language)}"
    for name, how in walk.carries:
        carried = Text(f"carries `{name}`: {_HOW[how].en}", f"带出 `{name}`:{_HOW[how].zh}")
        yield f"    > {carried.to(language)}"
    for place, text in walk.not_understood:
        missed = Text(f"not understood, {place}: {text.en}", f"无法识别,{place}:{text.zh}")
        yield click.style(f"    ! {missed.to(language)}", fg="yellow")


def _line(understood: Understood, language: Language) -> Iterator[str]:
    for text in understood.round:
        yield text.to(language)
    for name, said in understood.names:
        yield f"  {click.style(name, fg='green')}"
        for text in said:
            yield f"    - {text.to(language)}"
    if not understood.names:
        yield Text(
            f"{understood.script}:{understood.line}: nothing is known of this line: it holds no value, or is never"
            " reached",
            f"{understood.script}:{understood.line}:没有这一行的信息:该行没有值,或从未执行到",
        ).to(language)


# --- data ---------------------------------------------------------------------------------------------------------


def as_data(understood: Understood, language: Language) -> dict[str, object]:
    """What is printed for programs."""
    head: dict[str, object] = {
        "schema": SCHEMA,
        "version": __version__,
        "language": language,
        "script": understood.script,
    }
    if understood.line is not None:
        return head | {
            "line": understood.line,
            "in": [text.to(language) for text in understood.round],
            "names": [
                {"name": name, "is": [text.to(language) for text in said]} for name, said in understood.names
            ],
        }
    return head | {
        "roles": [
            {
                "role": role.kind,
                "names": list(role.names),
                **_place(role.born),
                "evidence": [text.to(language) for text in role.evidence],
                "sure": role.sure.to(language),
            }
            for role in understood.roles
        ],
        "loops": [
            {
                "kind": walk.kind,
                **_place(walk.place),
                "about": [text.to(language) for text in walk.about],
                "carries": [{"name": name, "how": how} for name, how in walk.carries],
                "not_understood": [
                    {**_place(place), "why": text.to(language)} for place, text in walk.not_understood
                ],
            }
            for walk in understood.walks
        ],
        "not_followed": [{**_place(place), "why": reason} for place, reason in understood.unknown],
    }


def _place(place: Place) -> dict[str, object]:
    return {"path": place.path, "line": place.line, "source": place.source}
