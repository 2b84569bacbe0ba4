"""Arguments in, exit code out; decides nothing.

Each command imports what it alone needs, when it runs: `multicard --help` must not wait for a page renderer,
nor `migrate` for torch.
"""

import os
import sys
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NoReturn

import click

from multicard import __version__
from multicard.errors import MulticardError
from multicard.messages import Language, Text, language_of_the_locale

if TYPE_CHECKING:
    from multicard.plan import Plan
    from multicard.write import File

_HERE = Path(__file__).parent
_HELP = language_of_the_locale()
ALL_DONE, SOMETHING_LEFT, NOTHING_WRITTEN = 0, 1, 2


def _help(en: str, zh: str) -> str:
    return Text(en, zh).to(_HELP)


class _Elsewhere(click.Command):
    """A command that lives in a module of its own, which is imported only when the command runs."""

    def __init__(self, name: str, module: str, short_help: str) -> None:
        super().__init__(name, short_help=short_help)
        self.module = module

    @property
    def is_there(self) -> bool:
        return _HERE.parent.joinpath(*self.module.split(".")).with_suffix(".py").is_file()

    def make_context(
        self, info_name: str | None, args: list[str], parent: click.Context | None = None, **extra: object
    ) -> click.Context:
        assert self.name
        try:
            command = getattr(import_module(self.module), self.name)
        except ModuleNotFoundError as error:
            missing = Text(
                f"{self.name} needs {error.name}, which is not installed",
                f"{self.name} 需要安装 {error.name}",
            )
            click.echo(missing.to(_HELP), err=True)
            sys.exit(NOTHING_WRITTEN)
        assert isinstance(command, click.Command)
        return command.make_context(info_name, args, parent, **extra)


_ELSEWHERE = (
    _Elsewhere(
        "explain",
        "multicard.explain",
        _help("Say what is understood of a script, and why.", "说明对脚本的理解及依据。"),
    ),
    _Elsewhere(
        "verify",
        "multicard.verify.command",
        _help("Run both scripts and compare what they compute.", "运行前后两个脚本，比较它们的计算结果。"),
    ),
)


class _Commands(click.Group):
    """The group, with those commands of other modules that are there."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        there = [command.name for command in _ELSEWHERE if command.is_there and command.name]
        return sorted([*super().list_commands(ctx), *there])

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        there = (command for command in _ELSEWHERE if command.name == cmd_name and command.is_there)
        return next(there, None) or super().get_command(ctx, cmd_name)


class _Codes(click.ParamType[frozenset[str]]):
    """Rule codes or their beginnings, parted by commas."""

    name = "codes"

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> frozenset[str]:
        from multicard.rules import RULES

        codes = frozenset(code for part in value.split(",") if (code := part.strip().upper()))
        for code in sorted(codes):
            if not any(rule.CODE.startswith(code) for rule in RULES):
                self.fail(
                    Text(f"no rule begins with {code}", f"没有以 {code} 开头的规则").to(_HELP), param, ctx
                )
        return codes


_REPORTS = {".html": "html", ".htm": "html", ".md": "markdown", ".json": "json", ".sarif": "sarif"}


@click.group(
    cls=_Commands,
    context_settings={"help_option_names": ["-h", "--help"]},
    help=_help(
        "Take a single-card PyTorch training script to many cards, and say why of every change.",
        "把单卡 PyTorch 训练脚本改成多卡，并说明每一处改动的原因。",
    ),
)
@click.version_option(__version__, "-V", "--version", message="%(version)s")
def main() -> None:
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")  # a console without Chinese letters shows the rest


_language = click.option(
    "--lang",
    "language",
    type=click.Choice(["zh", "en"]),
    default=_HELP,
    help=_help("Language of what is said; by default that of the locale.", "输出语言，默认取系统区域设置。"),
)


@main.command(
    help=_help(
        "Rewrite SCRIPT, and the local modules that it imports, for DistributedDataParallel under torchrun."
        " Without -o or --in-place nothing is written.\n\n"
        "Exit code 0: all done. 1: done, and something is left to you. 2: nothing was written.",
        "把 SCRIPT 及其导入的本地模块改写为 torchrun 启动的 DistributedDataParallel 代码。"
        "不加 -o 或 --in-place 时不写入任何文件。\n\n"
        "退出码 0：全部完成。1：已完成，但有需要你处理的地方。2：没有写入任何文件。",
    )
)
@click.argument("script", type=click.Path(path_type=Path))
@click.option(
    "-o",
    "--output",
    metavar="DIR",
    type=click.Path(path_type=Path),
    help=_help(
        "Write the script, its modules and the runtime there.", "把脚本、本地模块和运行时写到该目录。"
    ),
)
@click.option("--in-place", is_flag=True, help=_help("Rewrite the files where they are.", "就地改写原文件。"))
@click.option(
    "--batch",
    type=click.Choice(["per-card", "global"]),
    default="per-card",
    show_default=True,
    help=_help(
        "What the batch size in the script is: of each card, or of all together.",
        "脚本里的 batch size 指每张卡的，还是所有卡合计的。",
    ),
)
@click.option(
    "--runtime",
    type=click.Choice(["vendor", "package"]),
    default="vendor",
    show_default=True,
    help=_help(
        "Put ddp_runtime.py beside the script, or import multicard.runtime.",
        "在脚本旁放一份 ddp_runtime.py，或从 multicard.runtime 导入。",
    ),
)
@click.option(
    "--select",
    metavar="CODES",
    type=_Codes(),
    default="",
    help=_help("Only these rules: MC2,MC501.", "只用这些规则：MC2,MC501。"),
)
@click.option(
    "--ignore", metavar="CODES", type=_Codes(), default="", help=_help("Not these rules.", "不用这些规则。")
)
@_language
@click.option(
    "--format",
    "form",
    type=click.Choice(["text", "json", "sarif"]),
    default="text",
    show_default=True,
    help=_help("What is printed.", "输出格式。"),
)
@click.option(
    "--report",
    metavar="FILE",
    type=click.Path(path_type=Path),
    help=_help(
        "Write a comparison too: .html, .md, .json or .sarif.",
        "另外写一份对比报告：.html、.md、.json 或 .sarif。",
    ),
)
def migrate(
    script: Path,
    output: Path | None,
    in_place: bool,
    batch: Literal["per-card", "global"],
    runtime: Literal["vendor", "package"],
    select: frozenset[str],
    ignore: frozenset[str],
    language: Language,
    form: str,
    report: Path | None,
) -> NoReturn:
    from multicard import migrate as engine
    from multicard import write

    if output and in_place:
        raise click.UsageError(_help("-o and --in-place exclude each other", "-o 与 --in-place 不能同时使用"))
    if report and report.suffix.lower() not in _REPORTS:
        raise click.BadParameter(
            _help(
                f"{report}: ends in none of {', '.join(_REPORTS)}",
                f"{report}：后缀应为 {'、'.join(_REPORTS)}",
            ),
            param_hint="--report",
        )
    try:
        plan = engine.migrate(script, engine.Options(batch, runtime, select, ignore))
        place, files = _files(plan, output, runtime, in_place=in_place)
        reports = [_report(report, plan, language)] if report else []
        write.write([*files, *reports])
    except MulticardError as error:
        click.echo(error.text.to(language), err=True)
        sys.exit(NOTHING_WRITTEN)
    if form == "text":
        _print_text(plan, language, place, [file.path for file in (*files, *reports)])
    else:
        click.echo(_rendered(form, plan, language), nl=False)
    sys.exit(SOMETHING_LEFT if plan.left else ALL_DONE)


def _files(
    plan: "Plan", output: Path | None, runtime: Literal["vendor", "package"], *, in_place: bool
) -> tuple[Path | None, Sequence["File"]]:
    """Where the migrated script will be, and all that is to be written for it."""
    from multicard import write

    if output:
        return write.files_in(output, plan, runtime)
    return write.files_in_place(plan, runtime) if in_place else (None, ())


def _rendered(form: str, plan: "Plan", language: Language) -> str:
    text = import_module(f"multicard.reports.{form}").render(plan, language)
    assert isinstance(text, str)
    return text


def _report(path: Path, plan: "Plan", language: Language) -> "File":
    from multicard.write import File

    return File(path, _rendered(_REPORTS[path.suffix.lower()], plan, language).encode())


def _print_text(plan: "Plan", language: Language, script: Path | None, written: Sequence[Path]) -> None:
    from multicard.reports import lines, wording

    if sys.stdout.isatty() or os.environ.get("FORCE_COLOR"):
        from rich.console import Console

        from multicard.reports import terminal

        Console(highlight=False).print(terminal.render(plan, language), crop=False)
    else:
        click.echo(lines.render(plan, language), nl=False)
    for path in written:
        click.echo(f"{wording.WRITTEN.to(language)} {path}")
    if script is None:
        click.secho(wording.NOT_WRITTEN.to(language), dim=True)
    else:
        click.secho(wording.starts(str(script))[1].command, bold=True)


@main.command(
    help=_help(
        "List the rules; with a CODE or a name, print what is known about it.",
        "列出所有规则；给出 CODE 或名称则打印该规则的说明。",
    )
)
@click.argument("code", required=False)
@_language
def rules(code: str | None, language: Language) -> None:
    from multicard.reports.wording import title
    from multicard.rules import RULES
    from multicard.settle import IMPORTS

    named = {IMPORTS: ("imports", "")}
    for rule in RULES:
        named[rule.CODE] = vars(rule)["__name__"].rpartition(".")[2].replace("_", "-"), rule.__doc__ or ""
    if code is None:
        for known, (name, _) in sorted(named.items()):
            click.echo(f"{known}  {name:<24}  {title(known, language)}")
        return
    found = next((known for known, (name, _) in named.items() if code.lower() in (known.lower(), name)), None)
    if found is None:
        unknown = Text(
            f"no rule is called {code}; `multicard rules` lists them",
            f"没有名为 {code} 的规则；`multicard rules` 列出全部规则",
        )
        click.echo(unknown.to(language), err=True)
        sys.exit(NOTHING_WRITTEN)
    name, documentation = named[found]
    click.echo(f"{found} {name}: {title(found, language)}")
    if documentation:
        click.echo(f"\n{documentation.strip()}")
