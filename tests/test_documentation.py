import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
DOCUMENTS = ("README.md", "README.zh.md", "CHANGELOG.md", "CONTRIBUTING.md", "docs/how-it-works.md")


def test_generated_files_are_what_the_code_generates() -> None:
    outcome = subprocess.run(
        [sys.executable, ROOT / "scripts" / "accept", "--check"],
        check=False,
        capture_output=True,
        text=True,
        encoding="utf-8",
    )
    assert (outcome.returncode, outcome.stdout) == (0, ""), outcome.stderr


@pytest.mark.parametrize("name", DOCUMENTS)
def test_every_file_that_a_document_links_to_is_there(name: str) -> None:
    document = ROOT / name
    links = re.findall(r"\]\(([^)#:]+)[^):]*\)", document.read_text(encoding="utf-8"))
    assert links
    assert [link for link in links if not (document.parent / link).exists()] == []


def test_both_readmes_show_the_same_code() -> None:
    blocks = [
        re.findall(r"```.*?```", (ROOT / name).read_text(encoding="utf-8"), re.DOTALL)
        for name in DOCUMENTS[:2]
    ]
    english, chinese = ([re.sub(r"\s*#.*", "", block) for block in document] for document in blocks)
    assert english == chinese != []
