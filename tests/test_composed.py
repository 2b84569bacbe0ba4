"""Programs composed by chance are migrated, without a crash, to programs that are Python and are not migrated again.

`MULTICARD_COMPOSED=1000` takes that many instead of the few of every day; `verify/test_composed_proofs.py` proves some.
"""

import os
from pathlib import Path

import pytest
from composed import CHOICES, compose

from multicard.errors import NothingToDoError
from multicard.migrate import migrate
from multicard.plan import Kind, Plan

MANY = int(os.environ.get("MULTICARD_COMPOSED", "40"))


def plan_of(folder: Path, text: str) -> Plan:
    folder.mkdir()
    (folder / "train.py").write_text(text, encoding="utf-8")
    return migrate(folder / "train.py")


@pytest.mark.parametrize("seed", range(MANY))
def test_a_composed_program_is_migrated_once_and_wholly(seed: int, tmp_path: Path) -> None:
    text = compose(seed)
    compile(text, "train.py", "exec")
    plan = plan_of(tmp_path / "single", text)
    new = plan.texts[plan.entry].decode()
    compile(new, "train.py", "exec")
    assert (tmp_path / "single" / "train.py").read_text(encoding="utf-8") == text
    assert [str(finding.why) for finding in plan.findings if finding.kind is Kind.LEFT] == []
    for part in (
        "setup_ddp()",
        "DDP(",
        "vary_seed()",
        "Sampler(",
        "destroy_process_group()",
    ):
        assert part in new
    with pytest.raises(NothingToDoError, match="already distributed"):
        plan_of(tmp_path / "multi", new)


def test_programs_differ_and_every_choice_is_made() -> None:
    texts = [compose(seed) for seed in range(300)]
    assert len(set(texts)) == len(texts)
    for part in (
        "class Trainer",
        "def main():",
        "for phase in",
        "def train_epoch(",
        "OneCycleLR",
        "tqdm(",
        "/ 2",
    ):
        assert any(part in text for text in texts), part
    assert all(len(set(options)) > 1 for options in CHOICES.values())
