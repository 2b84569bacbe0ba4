"""The command line: its options stay as they are, its exit codes say what happened, and it starts at once."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import click
import pytest
from click.testing import CliRunner, Result
from plans import NET, TRAIN, plan_of

from multicard import __version__, cli
from multicard import migrate as engine
from multicard.errors import NothingToDoError
from multicard.messages import Text
from multicard.migrate import Options
from multicard.plan import Plan
from multicard.rules import RULES

EXAMPLE = Path(__file__).parent.parent / "examples" / "finetune" / "train.py"


def run(*arguments: str | Path) -> Result:
    return CliRunner().invoke(cli.main, [str(argument) for argument in arguments], catch_exceptions=False)


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a script, and an engine that makes a plan of it with something left."""
    (tmp_path / "home" / "models").mkdir(parents=True)
    (tmp_path / "home" / "train.py").write_text(TRAIN)
    (tmp_path / "home" / "models" / "net.py").write_text(NET)
    monkeypatch.setattr(engine, "migrate", lambda path, _: plan_of(path.parent))
    return tmp_path / "home"


# --- the surface ----------------------------------------------------------------------------------

SURFACE = {
    "migrate": {
        "script": ("argument", None),
        "output": ("-o --output", None),
        "in_place": ("--in-place", False),
        "batch": ("--batch per-card|global", "per-card"),
        "runtime": ("--runtime vendor|package", "vendor"),
        "select": ("--select", ""),
        "ignore": ("--ignore", ""),
        "language": ("--lang zh|en", "locale"),
        "form": ("--format text|json|sarif", "text"),
        "report": ("--report", None),
    },
    "rules": {"code": ("argument", None), "language": ("--lang zh|en", "locale")},
}


def surface(command: click.Command) -> dict[str, tuple[str, object]]:
    found: dict[str, tuple[str, object]] = {}
    for parameter in command.params:
        assert parameter.name
        written = " ".join(parameter.opts) if isinstance(parameter, click.Option) else "argument"
        if isinstance(parameter.type, click.Choice):
            written += f" {'|'.join(parameter.type.choices)}"
        shown = parameter.to_info_dict()["default"] if isinstance(parameter, click.Option) else None
        found[parameter.name] = (written, "locale" if parameter.name == "language" else shown)
    return found


def test_the_options_stay_as_they_are() -> None:
    """Scripts and notes of users hold these words: a change here is a change for them."""
    assert {name: surface(cli.main.commands[name]) for name in cli.main.commands} == SURFACE
    assert {option for parameter in cli.main.params for option in parameter.opts} == {"-V", "--version"}


def test_the_version_is_told() -> None:
    assert run("--version").output == f"{__version__}\n"


@pytest.mark.parametrize(("locale", "word"), [("zh_CN.UTF-8", "多卡"), ("C.UTF-8", "many cards")])
def test_help_is_in_the_language_of_the_locale(locale: str, word: str) -> None:
    environment = {**os.environ, "LC_ALL": locale}
    arguments = [sys.executable, "-m", "multicard", "-h"]
    assert (
        word in subprocess.run(arguments, env=environment, capture_output=True, text=True, check=True).stdout
    )


# --- migrate --------------------------------------------------------------------------------------


def test_without_a_place_nothing_is_written(home: Path) -> None:
    before = sorted(home.rglob("*"))
    result = run("migrate", home / "train.py", "--lang", "en")
    assert result.exit_code == cli.SOMETHING_LEFT
    assert (
        result.output.index("Left to you") < result.output.index("MC403") < result.output.index("setup_ddp()")
    )
    assert result.output.endswith("nothing was written: add -o DIR, or --in-place\n")
    assert "\x1b" not in result.output
    assert sorted(home.rglob("*")) == before


def test_colours_may_be_asked_for(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    assert "\x1b" in run("migrate", home / "train.py", "--lang", "en").output


def test_a_folder_is_written(home: Path, tmp_path: Path) -> None:
    result = run("migrate", home / "train.py", "-o", tmp_path / "多 卡", "--lang", "zh")
    assert result.exit_code == cli.SOMETHING_LEFT
    assert f"已写入 {tmp_path / '多 卡' / 'models' / 'net.py'}\n" in result.output
    assert result.output.endswith(f'torchrun --nproc-per-node=2 "{tmp_path / "多 卡" / "train.py"}"\n')
    assert sorted(path.name for path in (tmp_path / "多 卡").iterdir()) == [
        "ddp_runtime.py",
        "models",
        "train.py",
    ]


def test_in_place_rewrites_the_files(home: Path) -> None:
    result = run("migrate", home / "train.py", "--in-place", "--lang", "en")
    assert result.exit_code == cli.SOMETHING_LEFT
    assert (
        (home / "train.py")
        .read_text()
        .startswith("import torch\nfrom models import net\n\nmodel = net()\nsetup_ddp()\n")
    )
    assert (home / "ddp_runtime.py").is_file()


def test_all_done_is_zero(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = plan_of(home)
    done = Plan(whole.entry, whole.modules, whole.findings[:-1], whole.texts)
    monkeypatch.setattr(engine, "migrate", lambda *_: done)
    assert run("migrate", home / "train.py").exit_code == cli.ALL_DONE


def test_a_refusal_is_one_line_in_the_language_asked_for(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuses(*_: object) -> None:
        raise NothingToDoError(Text("it does not train", "没有训练"))

    monkeypatch.setattr(engine, "migrate", refuses)
    for language, line in (("en", "it does not train\n"), ("zh", "没有训练\n")):
        result = run("migrate", home / "train.py", "--in-place", "--lang", language)
        assert (result.exit_code, result.stdout, result.stderr) == (cli.NOTHING_WRITTEN, "", line)


def test_what_cannot_be_written_is_one_line(home: Path) -> None:
    before = (home / "train.py").read_text()
    (home / "train.py").chmod(0o444)
    result = run("migrate", home / "train.py", "--in-place", "--lang", "zh")
    assert result.exit_code == cli.NOTHING_WRITTEN
    assert result.stderr == f"{home / 'train.py'}：没有权限；没有写入任何文件\n"
    assert result.stdout == ""
    assert (home / "train.py").read_text() == before


@pytest.mark.parametrize("form", ["json", "sarif"])
def test_data_are_all_that_is_printed(home: Path, tmp_path: Path, form: str) -> None:
    result = run("migrate", home / "train.py", "--format", form, "-o", tmp_path / "out")
    assert json.loads(result.stdout)
    assert result.stderr == ""


@pytest.mark.parametrize(
    ("name", "begin"),
    [
        ("r.html", "<!doctype html>"),
        ("R.HTM", "<!doctype html>"),
        ("r.md", "# train.py"),
        ("r.json", "{"),
        ("r.sarif", '{\n  "$schema"'),
    ],
)
def test_a_report_is_written_by_its_ending(home: Path, tmp_path: Path, name: str, begin: str) -> None:
    path = tmp_path / "报告" / name
    result = run("migrate", home / "train.py", "--report", path, "--lang", "en")
    assert f"written {path}\n" in result.output
    assert path.read_text(encoding="utf-8").startswith(begin)


def test_a_report_that_cannot_be_written_stops_the_rest(home: Path, tmp_path: Path) -> None:
    (tmp_path / "r.md").mkdir()
    result = run("migrate", home / "train.py", "-o", tmp_path / "out", "--report", tmp_path / "r.md")
    assert result.exit_code == cli.NOTHING_WRITTEN
    assert not (tmp_path / "out").exists()


MISUSED: dict[str, tuple[str | Path, ...]] = {
    "both places": ("-o", "out", "--in-place"),
    "a report of unknown form": ("--report", "r.pdf"),
    "a code of no rule": ("--select", "MC201,XY"),
    "an unknown option": ("--gpus", "2"),
}


@pytest.mark.parametrize("arguments", MISUSED.values(), ids=MISUSED)
def test_misuse_writes_nothing(home: Path, arguments: tuple[str, ...]) -> None:
    before = sorted(home.rglob("*"))
    result = run("migrate", home / "train.py", *arguments)
    assert result.exit_code == cli.NOTHING_WRITTEN
    assert result.stdout == ""
    assert "Error" in result.stderr or "错误" in result.stderr
    assert sorted(home.rglob("*")) == before


def test_options_reach_the_engine(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Options] = []

    def engine_(path: Path, options: Options) -> Plan:
        seen.append(options)
        return plan_of(path.parent)

    monkeypatch.setattr(engine, "migrate", engine_)
    first, second = RULES[0].CODE, RULES[-1].CODE
    run("migrate", home / "train.py")
    run(
        *("migrate", home / "train.py", "--batch", "global", "--runtime", "package"),
        *("--select", f"{first.lower()}, {second[:3]}", "--ignore", second),
    )
    assert seen == [
        Options(),
        Options("global", "package", frozenset({first, second[:3]}), frozenset({second})),
    ]


# --- the real engine ------------------------------------------------------------------------------

BROKEN: dict[str, Callable[[Path], object]] = {
    "no such file": lambda path: path,
    "a folder": lambda path: path.mkdir(),
    "a syntax error": lambda path: path.write_text("import torch\nif x\n"),
    "an empty file": lambda path: path.write_text(""),
    "no training": lambda path: path.write_text("import torch\nprint(torch.ones(3).sum())\n"),
    "already distributed": lambda path: path.write_text(
        "import torch.distributed as dist\ndist.init_process_group('nccl')\n" + TRAIN
    ),
    "an unknown encoding": lambda path: path.write_text("# coding: klingon\n"),
}


@pytest.mark.parametrize("make", BROKEN.values(), ids=BROKEN)
@pytest.mark.parametrize("language", ["en", "zh"])
def test_what_cannot_be_migrated_is_said_in_one_line(
    tmp_path: Path, make: Callable[[Path], object], language: str
) -> None:
    path = tmp_path / "train.py"
    make(path)
    before = sorted(tmp_path.rglob("*"))
    result = run("migrate", path, "--in-place", "--lang", language)
    assert result.exit_code == cli.NOTHING_WRITTEN
    assert result.stdout == ""
    assert result.stderr.count("\n") == 1
    assert "train.py" in result.stderr
    assert sorted(tmp_path.rglob("*")) == before


def test_the_example_is_migrated_without_torch(tmp_path: Path) -> None:
    """In a process of its own, where importing torch is an error."""
    program = (
        "import sys; sys.modules['torch'] = None\n"
        "from multicard.cli import main\n"
        f"main(['migrate', {str(EXAMPLE)!r}, '-o', {str(tmp_path / 'out')!r}])\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (cli.ALL_DONE, "")
    again = run("migrate", tmp_path / "out" / "train.py", "--in-place", "--lang", "en")
    assert again.exit_code == cli.NOTHING_WRITTEN
    assert "already distributed" in again.stderr


HEAVY = ("torch", "numpy", "rich", "jinja2", "pygments", "multicard.facts")


@pytest.mark.parametrize("arguments", [["--help"], ["rules", "--help"], ["migrate", "--help"]])
def test_what_is_not_needed_is_not_imported(arguments: list[str]) -> None:
    program = (
        "import sys\nfrom multicard.cli import main\n"
        f"main({arguments!r}, standalone_mode=False)\n"
        f"print(sorted(set({HEAVY!r}) & set(sys.modules)), file=sys.stderr)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stderr == "[]\n"


@pytest.mark.parametrize("form", ["text", "json", "sarif"])
def test_migrating_imports_nothing_of_other_commands(form: str) -> None:
    others = ("torch", "numpy", "rich", "jinja2", "pygments", "asyncio", "logging")
    ours = tuple(f"multicard.{name}" for name in ("verify", "explain", "roles", "runtime", "reports.html"))
    program = (
        "import sys\nfrom multicard.cli import main\n"
        f"main(['migrate', {str(EXAMPLE)!r}, '--format', {form!r}], standalone_mode=False)\n"
    )
    watched = (
        "import atexit, sys\n"
        f"watched = {{*{others + ours!r}}}\n"
        "atexit.register(lambda: print(sorted(watched & {*sys.modules}), file=sys.stderr))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", watched + program], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (cli.ALL_DONE, "[]\n")


# --- rules ----------------------------------------------------------------------------------------


def test_the_rules_are_listed_by_code() -> None:
    lines = run("rules", "--lang", "zh").output.splitlines()
    titles = {"MC100": "导入"} | {rule.CODE: rule.TITLE.zh for rule in RULES}
    assert [(line.split()[0], line.split()[-1]) for line in lines] == [
        (code, title.split()[-1]) for code, title in sorted(titles.items())
    ]


def test_a_rule_is_explained_by_code_and_by_name() -> None:
    rule = RULES[0]
    by_code = run("rules", rule.CODE.lower(), "--lang", "en")
    name = vars(rule)["__name__"].rpartition(".")[2].replace("_", "-")
    assert by_code.output.startswith(f"{rule.CODE} {name}: {rule.TITLE.en}\n")
    assert (rule.__doc__ or "").strip() in by_code.output
    assert run("rules", name, "--lang", "en").output == by_code.output


def test_an_unknown_rule_is_one_line() -> None:
    result = run("rules", "MC999", "--lang", "en")
    assert result.exit_code == cli.NOTHING_WRITTEN
    assert result.stderr == "no rule is called MC999; `multicard rules` lists them\n"


# --- commands that live elsewhere -----------------------------------------------------------------


def elsewhere(name: str, module: str) -> tuple[object, ...]:
    return (cli._Elsewhere(name, module, "lives elsewhere"),)


def test_a_command_elsewhere_is_there_only_if_its_file_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cli, "_ELSEWHERE", elsewhere("verify", "multicard.verify.not_written"))
    assert "elsewhere" not in run("--help").output
    assert run("verify").exit_code == cli.NOTHING_WRITTEN


def test_a_command_elsewhere_is_imported_when_it_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    imported: list[str] = []

    def import_(module: str) -> object:
        imported.append(module)
        return cli

    monkeypatch.setattr(cli, "_ELSEWHERE", elsewhere("rules", "multicard.cli"))
    monkeypatch.setattr(cli, "import_module", import_)
    assert "rules    lives elsewhere" in run("--help").output
    assert imported == []
    assert run("rules", "MC999", "--lang", "en").stderr.startswith("no rule is called MC999")
    assert imported == ["multicard.cli"]


def test_a_library_that_is_missing_is_named_in_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    def import_(_: str) -> object:
        raise ModuleNotFoundError(name="torch")

    monkeypatch.setattr(cli, "_ELSEWHERE", elsewhere("verify", "multicard.cli"))
    monkeypatch.setattr(cli, "import_module", import_)
    result = run("verify", "a.py", "b.py")
    assert (result.exit_code, result.stdout, result.stderr.count("\n")) == (cli.NOTHING_WRITTEN, "", 1)
    assert "torch" in result.stderr
