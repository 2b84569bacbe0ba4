"""The command line, the table, the data and the page, of verdicts written by hand."""

import json
import subprocess
import sys
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from multicard.messages import Language, Text
from multicard.verify import prove
from multicard.verify.command import verify
from multicard.verify.page import page
from multicard.verify.trial import Options
from multicard.verify.verdict import Cause, Check, Curve, Verdict, Where

CAUSE = Cause("MC301", Text("the model is <not> wrapped", "模型没有包装"), "ddp.py:15")
HELD = Check("loss", Text("loss", "损失"), "held", Text("50 steps", "50 步"))
FAILED = Check("gradients", Text("gradients", "梯度"), "failed", Text("step 0 differs", "第 0 步不同"), CAUSE)
SKIPPED = Check("files", Text("files", "文件"), "skipped", Text("none", "没有"))
CURVES = (Curve("loss", (1.0, 0.5, None), (1.0, 0.5, 0.4)), Curve("gradient", (None, None), (None, None)))
PLACES = (
    Where(0, "waiting", "barrier", "ddp.py:40", "dist.barrier()", ("ddp.py:40",)),
    Where(1, "finished", "", None, ""),
)


def verdict(
    *checks: Check, ended: str = "compared", steps: int = 50, where: tuple[Where, ...] = ()
) -> Verdict:
    return Verdict("a.py", "b.py", 2, ended, checks, steps, (1.0, 2.0), where=where, curves=CURVES)


@pytest.fixture
def scripts(tmp_path: Path) -> tuple[str, str]:
    for name in ("a.py", "b.py"):
        (tmp_path / name).write_text("")
    return str(tmp_path / "a.py"), str(tmp_path / "b.py")


Run = Callable[..., Result]


@pytest.fixture
def run(scripts: tuple[str, str], monkeypatch: pytest.MonkeyPatch) -> Run:
    """Runs the command on a verdict that is known beforehand."""

    def with_verdict(result: Verdict, *arguments: str) -> Result:
        asked: list[Options] = []

        def proven(options: Options, progress: Callable[[str, int, float], None]) -> Verdict:
            progress("migrated", 3, 0.1)
            asked.append(options)
            return result

        monkeypatch.setattr(prove, "prove", proven)
        outcome = CliRunner().invoke(verify, [*scripts, *arguments], catch_exceptions=False)
        outcome.asked = asked[0] if asked else None  # type: ignore[attr-defined]
        return outcome

    return with_verdict


@pytest.mark.parametrize(
    ("result", "code"),
    [
        (verdict(HELD, SKIPPED), 0),
        (verdict(HELD, FAILED), 1),
        (verdict(HELD, steps=0), 1),
        (verdict(FAILED, ended="hung"), 1),
        (verdict(FAILED, ended="failed"), 1),
        (verdict(FAILED, ended="timeout"), 1),
        (verdict(FAILED, ended="incomparable"), 2),
    ],
    ids=["the same", "differs", "nothing compared", "hangs", "fails", "too slow", "not comparable"],
)
def test_exit_codes(run: Run, result: Verdict, code: int) -> None:
    assert run(result, "--lang", "en").exit_code == code


def test_options_and_arguments_of_the_script_are_passed_on(run: Run) -> None:
    options = run(
        verdict(HELD), "--nproc", "3", "--steps", "7", "--seed", "5", "--full", "--", "--lr", "0.1"
    ).asked  # type: ignore[attr-defined]
    assert (options.nproc, options.steps, options.seed, options.full) == (3, 7, 5, True)
    assert options.arguments == ("--lr", "0.1")


@pytest.mark.parametrize(
    ("language", "words"), [("en", ("DIFFERS", "gradients")), ("zh", ("不一致", "梯度"))]
)
def test_the_table_names_check_cause_and_line(run: Run, language: Language, words: tuple[str, ...]) -> None:
    output = run(verdict(HELD, FAILED), "--lang", language).output
    assert all(word in output for word in (*words, "MC301", "ddp.py:15"))


def test_a_cause_is_explained_once(run: Run) -> None:
    output = run(verdict(FAILED, FAILED), "--lang", "en").output
    assert output.count("wrapped") == 1
    assert "MC301 as above" in output


def test_a_hang_shows_where_each_rank_is(run: Run) -> None:
    output = run(verdict(FAILED, ended="hung", where=PLACES), "--lang", "en").output
    assert "rank 0 waits in barrier  ddp.py:40  dist.barrier()" in output
    assert "rank 1 has finished" in output


def test_json_is_the_verdict_as_data(run: Run) -> None:
    data = json.loads(run(verdict(HELD, FAILED), "--format", "json", "--lang", "en").output)
    assert data["exit_code"] == 1
    assert data["checks"][1]["cause"] == {
        "code": "MC301",
        "why": "the model is <not> wrapped",
        "site": "ddp.py:15",
    }
    assert data["curves"][0]["migrated"] == [1.0, 0.5, 0.4]


class Page(HTMLParser):
    """Collects what a page shows and what it refers to."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.text = ""
        self.tags: list[str] = []
        self.links: list[str] = []
        self.open: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        if tag not in {"meta", "br", "path", "line"}:
            self.open.append(tag)
        self.links += [value for name, value in attrs if name in {"src", "href"} and value]

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.links += [value for name, value in attrs if name in {"src", "href"} and value]

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data


@pytest.mark.parametrize("language", ["en", "zh"])
def test_the_page_needs_no_network_and_escapes(language: Language) -> None:
    shown = Page(page(verdict(HELD, FAILED, SKIPPED), language))
    assert shown.open == []
    assert shown.links == []
    assert "script" not in shown.tags
    assert CAUSE.why.to(language) in shown.text


def test_curves_that_were_seen_are_drawn() -> None:
    text = page(verdict(HELD), "en")
    assert text.count("<svg") == 1  # the gradient was never seen
    assert 'class="curve original" d="M56.0' in text
    assert 'class="curve migrated" d="M56.0' in text


def test_a_report_is_written(run: Run, tmp_path: Path) -> None:
    target = tmp_path / "out.html"
    run(verdict(HELD, ended="hung", where=PLACES), "--report", str(target), "--lang", "en")
    assert "rank 0 waits in barrier" in target.read_text("utf-8")


def test_a_script_that_is_not_there_is_the_users_mistake() -> None:
    result = CliRunner().invoke(verify, ["nowhere.py", "nothing.py"])
    assert result.exit_code == 2


def test_the_command_and_the_comparison_do_not_import_torch() -> None:
    modules = "command, prove, page, show, checks, causes, endings, launch, trial"
    code = f"import sys; from multicard.verify import {modules}; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
