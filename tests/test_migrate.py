"""The command on whole scripts: what it refuses, what it leaves as it was, and that doing it twice does nothing."""

import sysconfig
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from multicard.cli import main
from multicard.migrate import Options, migrate

SCRIPT = """\
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

data = TensorDataset(torch.randn(64, 4), torch.randint(2, (64,)))
loader = DataLoader(data, batch_size=8, shuffle=True)
model = nn.Linear(4, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for epoch in range(2):
    for x, y in loader:
        loss = nn.functional.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(epoch, loss.item())
torch.save(model.state_dict(), "model.pt")
"""
REFUSED = {
    "an empty file": ("", "empty"),
    "a syntax error": ("def f(:\n    pass\n", "syntax error"),
    "Python 2": ("print 'hello'\n", "syntax error"),
    "no training": (
        "import torch\nmodel = torch.nn.Linear(2, 2)\nprint(model(torch.ones(1, 2)))\n",
        "no training",
    ),
    "already distributed": (
        "import torch.distributed as dist\ndist.init_process_group('nccl')\n" + SCRIPT,
        "already distributed",
    ),
}


def call(*arguments: str | Path) -> Result:
    return CliRunner().invoke(main, ["migrate", "--lang", "en", *map(str, arguments)])


@pytest.mark.parametrize(("text", "reason"), REFUSED.values(), ids=REFUSED)
def test_refuses_in_one_line_and_writes_nothing(text: str, reason: str, tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(text, encoding="utf-8")
    outcome = call(script, "-o", tmp_path / "out")
    assert outcome.exit_code == 2
    assert len(outcome.stderr.splitlines()) == 1
    assert reason in outcome.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["train.py"]
    assert script.read_text(encoding="utf-8") == text


@pytest.mark.parametrize("runtime", ["vendor", "package"])
def test_a_migrated_script_is_left_as_it_is(runtime: str, tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(SCRIPT, encoding="utf-8")
    assert call(script, "--in-place", "--runtime", runtime).exit_code == 0
    files = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    outcome = call(script, "--in-place", "--runtime", runtime)
    assert (outcome.exit_code, len(outcome.stderr.splitlines())) == (2, 1)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == files


@pytest.mark.parametrize("end", ["\r\n", "\n"])
@pytest.mark.parametrize(("encoding", "head"), [("gbk", "# coding: gbk\n"), ("utf-8", ""), ("utf-8-sig", "")])
def test_nothing_outside_the_edits_moves(end: str, encoding: str, head: str, tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    text = head + SCRIPT.replace("model = nn", "# 模型:两类\n\n\nmodel = nn").replace("    ", "\t")
    script.write_bytes(text.replace("\n", end).encode(encoding))
    plan = migrate(script)
    new = plan.entry.encode(plan.texts[plan.entry]).decode(encoding)
    assert ("\r\n" in new) == (end == "\r\n")
    assert new.count("\n") == new.count(end)
    kept = iter(new.replace(end, "\n").splitlines())
    untouched = [
        line for line in text.splitlines() if not any(w in line for w in ("DataLoader(", "print(", "save("))
    ]
    assert all(line in kept for line in untouched)


def test_the_batch_is_of_each_card_or_of_all(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(SCRIPT, encoding="utf-8")
    each, together = migrate(script), migrate(script, Options(batch="global"))
    assert b"batch_size=8" in each.texts[each.entry]
    assert b"batch_size=per_card(8)" in together.texts[together.entry]


def test_codes_choose_what_is_changed(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(SCRIPT, encoding="utf-8")
    chosen = migrate(script, Options(select=frozenset({"MC5"})))
    assert {finding.code[:3] for finding in chosen.findings} == {"MC1", "MC5"}
    assert all(finding.code == "MC100" for finding in chosen.findings if finding.code[:3] == "MC1")
    without = migrate(script, Options(ignore=frozenset({"MC503"})))
    assert b"print_log" not in without.texts[without.entry]


@pytest.mark.parametrize("start", range(8))
def test_any_python_file_is_refused_or_becomes_python(start: int, tmp_path: Path) -> None:
    for path in sorted(Path(sysconfig.get_paths()["stdlib"]).glob("*.py"))[start::24]:
        alone = tmp_path / path.name
        alone.write_bytes(path.read_bytes())
        outcome = call(alone, "--format", "json")
        assert outcome.exception is None or isinstance(outcome.exception, SystemExit), path
        assert outcome.exit_code == 2 or outcome.stdout.startswith("{"), path
        assert len(outcome.stderr.splitlines()) == (outcome.exit_code == 2), path
        assert alone.read_bytes() == path.read_bytes()
