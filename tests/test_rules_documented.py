"""A rule's documentation is what it does: its example is run, and the page of all rules cannot go stale unseen."""

import ast
import re
from pathlib import Path
from textwrap import dedent

import pytest
from harness import migrate

from multicard import rules as folder
from multicard.plan import Rule
from multicard.rules import RULES

HEAD = """
import os
import time

import matplotlib.pyplot as plt
import pandas as pd
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from torchvision.datasets import MNIST


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.features = nn.Linear(4, 8)
        self.fc = nn.Linear(8, 2)

    def forward(self, x):
        return self.fc(self.features(x).relu())


"""
MODEL = """
data = TensorDataset(torch.randn(64, 4), torch.randint(2, (64,)))
val_set = TensorDataset(torch.randn(11, 4), torch.randint(2, (11,)))
loader = DataLoader(data, batch_size=8, shuffle=True)
val_loader = DataLoader(val_set, batch_size=4)
model = Net()
criterion = nn.CrossEntropyLoss()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
"""
LOOP = """
for epoch in range(3):
    for x, y in loader:
        loss = criterion(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
"""
MAIN = "def main():\n" + "\n".join(f"    {line}".rstrip() for line in (MODEL + LOOP).splitlines())
AROUND = {
    "MC101": (HEAD, MODEL + LOOP),
    "MC102": (HEAD, MODEL + LOOP),
    "MC103": (HEAD + MAIN, ""),
    "MC104": (HEAD + MODEL, ""),
    "MC105": ("", HEAD + MODEL + LOOP),
    "MC203": (HEAD + MODEL, ""),
    "MC208": (HEAD + MODEL, ""),
    "MC302": (HEAD + MODEL + LOOP, ""),
    "MC303": (HEAD + MODEL + LOOP, ""),
    "MC306": (HEAD + MODEL, ""),
    "MC401": (HEAD + MODEL + LOOP, ""),
    "MC403": (HEAD + MODEL, ""),
    "MC404": (HEAD + MODEL + LOOP, ""),
    "MC506": (HEAD + MODEL + LOOP, ""),
}
"""What stands before and after an example; where nothing is said, it stands between the model and its training."""

IMPORT = re.compile(
    r"^(from ddp_runtime import .*|import torch\.distributed as dist|from torch\.nn\.parallel import .* as DDP)\n",
    re.MULTILINE,
)
"""Imports are written once for all rules."""


def name_of(rule: Rule) -> str:
    return str(vars(rule)["__name__"]).rpartition(".")[2]


def example_of(rule: Rule) -> tuple[str, str]:
    _, example = (rule.__doc__ or "").split("\nBefore:\n\n")
    before, after = re.split(r"\nAfter(?: \(`.*`\))?:\n\n", example)
    return dedent(before), dedent(after)


@pytest.mark.parametrize("rule", RULES, ids=name_of)
def test_the_example_in_the_docstring_is_what_the_rule_does(rule: Rule) -> None:
    before, after = example_of(rule)
    head, tail = AROUND.get(rule.CODE, (HEAD + MODEL, LOOP))
    batch = "global" if "--batch global" in (rule.__doc__ or "").partition("\nBefore:")[2] else "per-card"
    text, reasons = migrate(rule, f"{head}\n{before}\n{tail}".lstrip(), batch=batch)
    assert (IMPORT.sub("", text), reasons) == (f"{head}\n{after}\n{tail}".lstrip(), [])


def test_codes_are_distinct() -> None:
    codes = [rule.CODE for rule in RULES]
    assert sorted(codes) == sorted(set(codes))
    assert all(re.fullmatch(r"MC[1-5]\d\d", code) for code in codes)


def test_every_file_of_the_folder_is_in_the_list() -> None:
    files = {path.stem for path in Path(folder.__file__).parent.glob("*.py")} - {"__init__"}
    assert {name_of(rule) for rule in RULES} == files


@pytest.mark.parametrize("rule", RULES, ids=name_of)
def test_a_title_is_a_few_words_in_both_languages(rule: Rule) -> None:
    assert re.fullmatch(r"[A-Z][ -~]{5,60}[^.]", rule.TITLE.en)
    assert re.search(r"[\u4e00-\u9fff]", rule.TITLE.zh)


@pytest.mark.parametrize("rule", RULES, ids=name_of)
def test_a_docstring_opens_with_one_sentence_and_says_what_it_is_for(rule: Rule) -> None:
    first, why, *_ = (rule.__doc__ or "").split("\n\n")
    assert re.fullmatch(r"[A-Z`][^\n]*\.", first)
    assert len(why) > 60
    assert ast.get_docstring(ast.parse(Path(str(vars(rule)["__file__"])).read_text(encoding="utf-8")))
