import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from harness import LOOP, TRAINING

from multicard import cli
from multicard.roles import Understood, understand

NET = """
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(4, 2)

    def forward(self, x):
        return self.fc(x)
"""
SCRIPT = """
import argparse
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.tensorboard import SummaryWriter
from net import Net

parser = argparse.ArgumentParser()
parser.add_argument("--optim", default="SGD")
args = parser.parse_args()
device = torch.device("cuda")
writer = SummaryWriter()
train_set, val_set = TensorDataset(x, y), TensorDataset(x, y)
loaders = {"train": DataLoader(train_set, 8, shuffle=True), "val": DataLoader(val_set, 8)}
model = Net().to(device)
criterion = nn.CrossEntropyLoss()
optimizer = getattr(torch.optim, args.optim)(model.parameters())
scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 3)
scaler = torch.amp.GradScaler("cuda")
for epoch in range(3):
    for x, y in loaders["train"]:
        loss = criterion(model(x), y)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
    scheduler.step()
    correct, rows = 0, []
    with torch.no_grad():
        for x, y in loaders["val"]:
            out = model(x)
            correct += (out.argmax(1) == y).sum().item()
            rows.extend(out.tolist())
            for item in extras:
                if item.found(out):
                    break
    print(correct, rows)
"""


@pytest.fixture
def script(tmp_path: Path) -> Path:
    (tmp_path / "net.py").write_text(NET)
    (tmp_path / "train.py").write_text(SCRIPT)
    return tmp_path / "train.py"


@pytest.fixture
def known(script: Path) -> Understood:
    return understand(script)


def line_of(text: str, source: str = SCRIPT) -> int:
    return next(number for number, line in enumerate(source.splitlines(), 1) if text in line)


def run(*arguments: str | Path) -> Result:
    return CliRunner().invoke(cli.main, ["explain", *map(str, arguments)], catch_exceptions=False)


ROLES = {
    "model": (("model",), "model = Net()"),
    "optimizer": (("optimizer",), "optimizer = getattr"),
    "scheduler": (("scheduler",), "scheduler ="),
    "scaler": (("scaler",), "scaler ="),
    "criterion": (("criterion",), "criterion ="),
    "device": (("device",), "device ="),
    "writer": (("writer",), "writer ="),
}


@pytest.mark.parametrize("kind", ROLES)
def test_every_role_is_told_with_its_name_and_where_it_is_made(kind: str, known: Understood) -> None:
    names, source = ROLES[kind]
    [role] = [role for role in known.roles if role.kind == kind]
    assert role.names == names
    assert (role.born.path, role.born.line) == ("train.py", line_of(source))


def test_values_in_a_container_have_its_name(known: Understood) -> None:
    loaders = [role.names for role in known.roles if role.kind == "loader"]
    assert loaders == [('loaders["train"]',), ('loaders["val"]',)]


EVIDENCE = {
    "a model's class and module": ("model", "made by the script's class `Net` <- torch.nn.Module (net.py:5)"),
    "which loss": ("model", f"its loss goes backward in train.py:{line_of('.backward()')}"),
    "which optimizer": ("model", f"`optimizer` holds its parameters (train.py:{line_of('optimizer = ')})"),
    "calls in training": ("model", f"called in training in train.py:{line_of('loss = criterion')}"),
    "calls in evaluation": ("model", f"called outside training in train.py:{line_of('out = model(x)')}"),
    "the wrapper": ("model", f"to be wrapped after train.py:{line_of('model = Net()')}"),
    "what an optimizer holds": ("optimizer", "holds parameters of `model`"),
    "when it steps": ("optimizer", f"steps in train.py:{line_of('scaler.step')}"),
    "when a scheduler steps": ("scheduler", f"steps in train.py:{line_of('scheduler.step')}"),
    "what a loader reads": ("loader", "reads `train_set`"),
    "what is dealt out": ("loader", "to be dealt out to the ranks"),
    "who reads a data set": (
        "dataset",
        f'read by `loaders["train"]` (train.py:{line_of("loaders = ")})',
    ),
}


@pytest.mark.parametrize(("kind", "text"), EVIDENCE.values(), ids=EVIDENCE)
def test_the_evidence_is_told(kind: str, text: str, known: Understood) -> None:
    said = [item.en for role in known.roles if role.kind == kind for item in role.evidence]
    assert text in said


def test_a_class_that_is_named_at_run_time_is_known_by_its_family(known: Understood) -> None:
    [optimizer] = [role for role in known.roles if role.kind == "optimizer"]
    assert "decided at run time" in optimizer.sure.en
    assert all("followed" in role.sure.en for role in known.roles if role.kind != "optimizer")


def test_arguments_out_of_sight_are_told(tmp_path: Path) -> None:
    text = TRAINING.replace("DataLoader(data, 8, shuffle=True)", "DataLoader(*options)") + LOOP
    (tmp_path / "a.py").write_text(text)
    [loader] = [role for role in understand(tmp_path / "a.py").roles if role.kind == "loader"]
    assert "out of sight" in loader.sure.en
    assert "stays whole on every rank" in [item.en for item in loader.evidence]


def test_a_reason_against_a_wrapper_is_told(tmp_path: Path) -> None:
    text = TRAINING + LOOP.replace("model(x)", "model.weight @ x")
    (tmp_path / "a.py").write_text(text)
    [model] = [role for role in understand(tmp_path / "a.py").roles if role.kind == "model"]
    assert "no wrapper: its forward pass in training was not seen" in [item.en for item in model.evidence]


def test_loops_are_told_with_what_they_carry(known: Understood) -> None:
    [training] = [walk for walk in known.walks if walk.kind == "training"]
    assert training.place.line == line_of('in loaders["train"]')
    assert 'batches of `loaders["train"]`' in [text.en for text in training.about]
    [evaluation] = [walk for walk in known.walks if walk.kind == "evaluation"]
    assert evaluation.place.line == line_of('in loaders["val"]')
    assert evaluation.carries == (("correct", "all_reduce_sum"), ("rows", "gather_in_order"))
    assert evaluation.not_understood == ()


def test_what_is_not_understood_of_a_loop_is_told_with_its_line(tmp_path: Path) -> None:
    text = SCRIPT.replace("for item in extras:", "if correct > 9:").replace(
        "                if item.found(out):\n                    break\n", "                break\n"
    )
    (tmp_path / "net.py").write_text(NET)
    (tmp_path / "train.py").write_text(text)
    [evaluation] = [walk for walk in understand(tmp_path / "train.py").walks if walk.kind == "evaluation"]
    [(place, why)] = evaluation.not_understood
    assert place.line == line_of("break", text)
    assert "stops" in why.en
    assert "every rank walks through all batches" in [item.en for item in evaluation.about]


def test_functions_that_are_not_known_are_told(known: Understood, tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text(TRAINING + LOOP + "report = undefined(model)\n")
    [(place, reason)] = understand(tmp_path / "a.py").unknown
    assert reason == "`undefined` is not defined before this line"
    assert place.source == "report = undefined(model)"
    assert known.unknown == ()


LINES = {
    "a training step": (
        "loss = criterion",
        {
            "model": ["a model: `Net` (train.py:16), trained"],
            "criterion": [f"a criterion: `torch.nn.CrossEntropyLoss` (train.py:{line_of('criterion = ')})"],
            "x": ['data: differs between ranks, a batch, from batches of `loaders["train"]`'],
        },
        ["in the training loop"],
    ),
    "an option": ("optimizer = ", {"args": ["options: `argparse.Namespace` (train.py:11)"]}, []),
    "a library": ("device = ", {"torch.device": ["`torch.device` of a library"]}, []),
    "a class of the script": ("model = ", {"Net": ["the script's class `Net` (net.py:5)"]}, []),
    "evaluation": ("out = model(x)", {}, ["in the evaluation loop"]),
}


@pytest.mark.parametrize(("source", "names", "loops"), LINES.values(), ids=LINES)
def test_a_line_is_told(source: str, names: dict[str, list[str]], loops: list[str], script: Path) -> None:
    known = understand(script, line_of(source))
    said = {name: [item.en for item in texts] for name, texts in known.names}
    assert {name: said.get(name) for name in names} == names
    assert [text.en.rpartition(" of ")[0] for text in known.round] == loops


def test_text_and_data_say_the_same(script: Path) -> None:
    text, data = run(script, "--lang", "en"), run(script, "--lang", "en", "--format", "json")
    assert (text.exit_code, data.exit_code) == (0, 0)
    told = json.loads(data.output)
    assert told["script"] == "train.py"
    for role in told["roles"]:
        assert f"{', '.join(role['names'])}  {role['path']}:{role['line']}\n" in text.output
        assert all(f"    - {item}\n" in text.output for item in role["evidence"])
        assert f"    = {role['sure']}\n" in text.output
    for loop in told["loops"]:
        assert f"  {loop['path']}:{loop['line']}\n" in text.output
        assert all(f"> carries `{item['name']}`: " in text.output for item in loop["carries"])
    assert len(told["loops"]) == 2


def test_a_line_as_text_and_as_data(script: Path) -> None:
    where = f"{script}:{line_of('loss = criterion')}"
    told = json.loads(run(where, "--format", "json", "--lang", "en").output)
    text = run(where, "--lang", "en").output
    assert told["line"] == line_of("loss = criterion")
    assert all(item in text for entry in told["names"] for item in (entry["name"], *entry["is"]))
    assert told["in"] == [text.splitlines()[0]]


def test_everything_is_said_in_chinese_too(script: Path) -> None:
    for where in (str(script), f"{script}:{line_of('loss = criterion')}"):
        lines = run(where, "--lang", "zh").output.splitlines()
        own = [line for line in lines if line.startswith(("    - ", "    = ", "    > ", "    ! "))]
        assert own
        assert [line for line in own if not any("\u4e00" <= letter <= "\u9fff" for letter in line)] == []


def test_a_script_without_training_is_told_too(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("x = 1\n")
    outcome = run(tmp_path / "a.py", "--lang", "en")
    assert (outcome.exit_code, outcome.output) == (0, "a.py: nothing of a training script was found\n")


def test_a_line_without_values_is_told(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("x = 1\n\n")
    assert "nothing is known of this line" in run(f"{tmp_path / 'a.py'}:2", "--lang", "en").output


@pytest.mark.parametrize(
    ("where", "said"),
    [("absent.py", "No such file"), ("broken.py", "syntax error"), ("short.py:9", "no line 9")],
    ids=["absent", "broken", "a line too far"],
)
def test_what_cannot_be_read_is_one_line_and_exit_code_2(where: str, said: str, tmp_path: Path) -> None:
    (tmp_path / "broken.py").write_text("def\n")
    (tmp_path / "short.py").write_text("x = 1\n")
    outcome = run(tmp_path / where, "--lang", "en")
    assert outcome.exit_code == 2
    assert said in outcome.output
    assert outcome.output.count("\n") == 1


def test_a_name_with_a_colon_is_a_file_where_there_is_one(tmp_path: Path) -> None:
    (tmp_path / "a:1").write_text("x = 1\n")
    assert "a:1: nothing" in run(tmp_path / "a:1", "--lang", "en").output
