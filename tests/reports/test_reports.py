"""Every report says all of the plan, what is left first, in the language asked for."""

import json
import re
from html.parser import HTMLParser
from pathlib import Path

import pytest
from plans import TRAIN, plan_of
from rich.console import Console

from multicard.messages import Language, Text
from multicard.plan import Plan
from multicard.reports import html, lines, markdown, sarif, terminal, wording
from multicard.reports import json as data

CHINESE = re.compile("[\u4e00-\u9fff]")
LANGUAGES: tuple[Language, ...] = ("en", "zh")


def printed(plan: Plan, language: Language, *, colour: bool = False) -> str:
    console = Console(
        width=60,
        highlight=False,
        force_terminal=colour,
        color_system="standard" if colour else None,
        _environ={},
    )
    with console.capture() as capture:
        console.print(terminal.render(plan, language), crop=False)
    return capture.get()


TEXTS = {"terminal": printed, "lines": lines.render, "markdown": markdown.render, "html": html.render}
ALL = {**TEXTS, "json": data.render, "sarif": sarif.render}


@pytest.mark.parametrize("language", LANGUAGES)
@pytest.mark.parametrize("report", ALL)
def test_every_finding_is_there_with_place_and_reason(report: str, language: Language) -> None:
    plan = plan_of(Path("x"))
    text = ALL[report](plan, language)
    for finding in plan.findings:
        assert finding.code in text
        assert finding.why.to(language) in text
        if finding.advice:
            assert finding.advice.to(language) in text
    if report in TEXTS:
        for place in ("train.py:5", "train.py:7", "train.py:8", "train.py:12", "models/net.py:1"):
            assert place in text


@pytest.mark.parametrize("report", ALL)
def test_english_has_no_chinese_word_but_the_scripts_own(report: str) -> None:
    plan = plan_of(Path("x"), TRAIN.replace("损失", "loss"))
    assert CHINESE.search(ALL[report](plan, "zh"))
    assert not CHINESE.search(ALL[report](plan, "en").replace("PingFang SC", ""))


@pytest.mark.parametrize("report", TEXTS)
@pytest.mark.parametrize("language", LANGUAGES)
def test_what_is_left_comes_first(report: str, language: Language) -> None:
    plan = plan_of(Path("x"))
    text = TEXTS[report](plan, language)
    *others, left = plan.findings
    places = [text.index(finding.why.to(language)) for finding in (left, *others)]
    assert text.index(wording.LEFT.to(language)) < min(places)
    assert places == sorted(places)


@pytest.mark.parametrize("report", ["markdown", "html"])
@pytest.mark.parametrize("language", LANGUAGES)
def test_nothing_left_is_said(report: str, language: Language) -> None:
    whole = plan_of(Path("x"))
    plan = Plan(whole.entry, whole.modules, whole.findings[:-1], whole.texts)
    assert wording.NOTHING_LEFT.to(language) in TEXTS[report](plan, language)


def test_the_words_of_both_languages_differ() -> None:
    words = [word for word in vars(wording).values() if isinstance(word, Text)]
    assert len(words) > 10
    for word in words:
        assert not CHINESE.search(word.en)
        assert CHINESE.search(word.zh)


# --- terminal -------------------------------------------------------------------------------------


def test_the_terminal_shows_a_difference_with_marks() -> None:
    text = printed(plan_of(Path("x")), "en")
    assert (
        f"train.py:7  MC503  {wording.title('MC503', 'en')}\n"
        "  why MC503\n"
        '    - print("损失 <b>`x`</b>", "[red]")\n'
        '    + once(print("损失 <b>`x`</b>", "[red]"))\n'
    ) in text
    assert text.rstrip().endswith("5 changes in 2 files, 1 note, 1 left to you")


def test_the_terminal_is_in_colour_where_there_are_colours() -> None:
    text = printed(plan_of(Path("x")), "en", colour=True)
    assert "\x1b[32m    + setup_ddp()" in text
    assert "\x1b[31m    - print(" in text
    assert "\x1b" not in printed(plan_of(Path("x")), "en")


def test_a_file_or_a_pipe_gets_whole_lines() -> None:
    plan = plan_of(Path("x"))
    text = lines.render(plan, "zh").splitlines()
    assert text[0] == f"-- {wording.LEFT.zh} (1) --"
    assert text[-2:] == ["--", wording.counts(plan).zh]
    assert all(f"  {finding.why.zh}" in text for finding in plan.findings)


def test_code_is_not_broken_at_the_width_of_the_terminal() -> None:
    long = f"DataLoader(data, {', '.join(f'option_{number}=True' for number in range(9))}, shuffle=True)"
    text = printed(plan_of(Path("x"), TRAIN.replace("DataLoader(data, shuffle=True)", long)), "en")
    assert f"    - loader = {long}\n" in text


# --- markdown -------------------------------------------------------------------------------------


def test_markdown_has_the_form_of_the_guide() -> None:
    text = markdown.render(plan_of(Path("x")), "zh")
    assert (
        "位置：`train.py:7`\n\n"
        "原写法：\n\n"
        '```python\nprint("损失 <b>`x`</b>", "[red]")\n```\n\n'
        "改后写法：\n\n"
        '```python\nonce(print("损失 <b>`x`</b>", "[red]"))\n```\n\n'
        "作用：原因 MC503\n"
    ) in text
    assert (
        "位置：`train.py:5`\n\n"
        "新增代码：在 `loader = DataLoader(data, shuffle=True)` 之前\n\n"
        "```python\nsetup_ddp()\n```\n"
    ) in text
    assert "torchrun --nproc-per-node=2 train.py" in text


def test_a_fence_is_longer_than_any_in_the_code() -> None:
    text = markdown.render(plan_of(Path("x"), TRAIN.replace("`x`", "```")), "en")
    assert '````python\nprint("损失 <b>```</b>", "[red]")\n````\n' in text


# --- html -----------------------------------------------------------------------------------------


class _Page(HTMLParser):
    """Checks that elements nest, and gathers what the page refers to and shows."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.shown = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.attributes += attrs
        if tag not in ("meta", "!doctype"):
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if "style" not in self.open:
            self.shown += data


@pytest.mark.parametrize("language", LANGUAGES)
def test_the_page_is_whole_and_stands_alone(language: Language) -> None:
    page = _Page()
    text = html.render(plan_of(Path("x")), language)
    page.feed(text)
    assert page.open == []
    links = [value or "" for name, value in page.attributes if name in ("href", "src")]
    targets = {f"#{value}" for name, value in page.attributes if name == "id"}
    assert len(links) > 7
    assert set(links) <= targets
    assert "url(" not in text
    assert "@import" not in text
    assert "<script" not in text


def test_the_page_shows_code_as_it_is() -> None:
    page = _Page()
    page.feed(html.render(plan_of(Path("x")), "en"))
    for code in (
        '7print("损失 <b>`x`</b>", "[red]")\n',
        'once(print("损失 <b>`x`</b>", "[red]"))\n',
        "5loader = DataLoader(data, shuffle=True)\n",
        "if rank == 0:\n    if epoch:\n        save(\n            model,\n        )\n",
    ):
        assert code in page.shown


def test_the_page_marks_what_changes() -> None:
    text = html.render(plan_of(Path("x")), "en")
    assert text.count('class="line removed"') == 6
    assert '<span class="line added"><span class="n">setup_ddp</span>' in text


# --- json and sarif -------------------------------------------------------------------------------


def test_the_data_keep_their_form() -> None:
    report = json.loads(data.render(plan_of(Path("x")), "en"))
    assert {key: type(value).__name__ for key, value in report.items()} == {
        "schema": "int",
        "version": "str",
        "language": "str",
        "script": "str",
        "summary": "dict",
        "files": "list",
        "helpers": "list",
        "findings": "list",
        "launch": "list",
    }
    assert report["schema"] == 1
    assert report["summary"] == {"changed": 5, "note": 1, "left": 1}
    assert report["files"] == [
        {"path": "train.py", "changed": True},
        {"path": "models/net.py", "changed": True},
    ]
    assert report["findings"][1] == {
        "code": "MC201",
        "title": wording.title("MC201", "en"),
        "kind": "changed",
        "path": "train.py",
        "line": 5,
        "end_line": 5,
        "why": "why MC201",
        "advice": None,
        "changes": [
            {
                "path": "train.py",
                "line": 5,
                "before": ["loader = DataLoader(data, shuffle=True)"],
                "after": ["loader = DataLoader(data, shuffle=sampler)"],
            },
            {"path": "train.py", "line": 12, "before": ["sys.exit()"], "after": ["last()", "sys.exit()"]},
        ],
    }
    assert report["findings"][-1]["changes"] == []


def test_sarif_points_at_the_code_and_brings_the_fix() -> None:
    report = json.loads(sarif.render(plan_of(Path("x y")), "zh"))
    assert report["version"] == "2.1.0"
    [run] = report["runs"]
    assert run["originalUriBaseIds"]["SCRIPT"]["uri"].endswith("/x%20y/")
    rules = run["tool"]["driver"]["rules"]
    for result in run["results"]:
        assert rules[result["ruleIndex"]]["id"] == result["ruleId"]
    levels = {result["ruleId"]: result["level"] for result in run["results"]}
    assert levels == dict.fromkeys(levels, "note") | {"MC403": "warning"}
    printing = next(result for result in run["results"] if result["ruleId"] == "MC503")
    assert printing["locations"][0]["physicalLocation"] == {
        "artifactLocation": {"uri": "train.py", "uriBaseId": "SCRIPT"},
        "region": {"startLine": 7, "startColumn": 5, "endLine": 7, "endColumn": 36},
    }
    assert printing["fixes"][0]["artifactChanges"][0]["replacements"] == [
        {
            "deletedRegion": {"startLine": 7, "startColumn": 1, "endLine": 7, "endColumn": 36},
            "insertedContent": {"text": '    once(print("损失 <b>`x`</b>", "[red]"))'},
        }
    ]


def test_sarif_fixes_keep_the_line_ends_of_the_file() -> None:
    text = sarif.render(plan_of(Path("x"), TRAIN.replace("\n", "\r\n")), "en")
    [run] = json.loads(text)["runs"]
    inserted = run["results"][0]["fixes"][0]["artifactChanges"][0]["replacements"][0]["insertedContent"]
    assert inserted == {"text": "setup_ddp()\r\nloader = DataLoader(data, shuffle=True)"}
