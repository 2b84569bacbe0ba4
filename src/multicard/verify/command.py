"""The `verify` command: what the user types, and what they see while it runs and after."""

import gc
import json
from pathlib import Path

import click

from multicard.messages import Language, Text, language_of_the_locale
from multicard.verify.trial import Options
from multicard.verify.verdict import Verdict

PHASE = {
    "migrated": Text("migrated script", "迁移后的脚本"),
    "original": Text("original", "原脚本"),
}


@click.command(
    context_settings={"ignore_unknown_options": False},
    epilog="Exit code 0: the same. 1: differs, fails or hangs. 2: could not be compared.",
)
@click.argument("original", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.argument("migrated", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.argument("script_args", nargs=-1, type=click.UNPROCESSED, metavar="[-- SCRIPT ARGS]")
@click.option(
    "--nproc", default=2, show_default=True, type=click.IntRange(1, 64), help="Ranks of the migrated run."
)
@click.option(
    "--steps", default=50, show_default=True, type=click.IntRange(1), help="Steps to compare one by one."
)
@click.option("--full", is_flag=True, help="Run both to the end, without shortening epochs.")
@click.option("--timeout", default=600.0, show_default=True, help="Seconds that each run may take.")
@click.option("--seed", default=0, show_default=True, help="Shifts every seed that the scripts set.")
@click.option("--report", type=click.Path(dir_okay=False, path_type=Path), help="Write an HTML report here.")
@click.option("--format", "form", default="text", show_default=True, type=click.Choice(["text", "json"]))
@click.option(
    "--lang", type=click.Choice(["zh", "en"]), help="Language of the messages; default from the locale."
)
@click.pass_context
def verify(
    context: click.Context,
    original: Path,
    migrated: Path,
    script_args: tuple[str, ...],
    nproc: int,
    steps: int,
    full: bool,  # noqa: FBT001
    timeout: float,
    seed: int,
    report: Path | None,
    form: str,
    lang: Language | None,
) -> None:
    """Prove by running that MIGRATED on many ranks trains like ORIGINAL on one.

    Both run on CPUs, in copies of their folders, on the same weights, samples and random numbers; losses,
    gradients, weights, printed numbers and files are compared. Nothing of yours is changed.
    """
    gc.enable()  # it runs for minutes, where other commands are done before garbage matters
    language = lang or language_of_the_locale()
    options = Options(
        original=original.resolve(),
        migrated=migrated.resolve(),
        arguments=script_args,
        nproc=nproc,
        steps=steps,
        full=full,
        timeout=timeout,
        seed=seed,
    )
    verdict = _with_progress(options, language, quiet=form == "json")
    if report is not None:
        from multicard.verify.page import page

        report.write_text(page(verdict, language), encoding="utf-8")
    if form == "json":
        from multicard.verify.show import as_data

        click.echo(json.dumps(as_data(verdict, language), ensure_ascii=False, indent=2))
    else:
        from rich.console import Console

        from multicard.verify.show import show

        show(verdict, language, Console(highlight=False))
        if report is not None:
            click.echo(f"{'报告' if language == 'zh' else 'report'}: {report}")
    context.exit(verdict.exit_code)


def _with_progress(options: Options, language: Language, *, quiet: bool) -> Verdict:
    from rich.console import Console
    from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    from multicard.verify.prove import prove

    console = Console(stderr=True, quiet=quiet)
    columns = (
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(bar_width=24),
        TextColumn("{task.completed}"),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=console, transient=True) as bars:
        tasks: dict[str, object] = {}

        def told(phase: str, steps: int, _: float) -> None:
            if phase not in tasks:
                tasks[phase] = bars.add_task(PHASE[phase].to(language), total=None)
            bars.update(tasks[phase], completed=steps)  # type: ignore[arg-type]

        return prove(options, told)
