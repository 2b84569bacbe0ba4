"""Which parts of a model may be left without a gradient, so that the wrapper must look for them."""

from textwrap import dedent, indent

import pytest
from harness import LOOP, facts_of

from multicard.wraps import wrapper_options

BEFORE = """
import random
import torch
import torchvision
from torch import nn
from torch.utils.data import DataLoader
from torch.utils.checkpoint import checkpoint


class Net(nn.Module):
    def __init__(self, flag=False):
        super().__init__()
        self.features = nn.Linear(4, 8)
        self.classifier = nn.Linear(8, 2)
"""
AFTER = """
loader = DataLoader(data, 8, shuffle=True)
model = Net()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
"""
WHOLE = "def forward(self, x):\n    return self.classifier(self.features(x))"
USED = {
    "all parts are called": ("", WHOLE),
    "parts that are listed to draw their weights": (
        "for m in self.modules():\n    m.reset_parameters()",
        WHOLE,
    ),
    "a part that is called through a checkpoint": (
        "",
        "def forward(self, x):\n    return self.classifier(checkpoint(self.features, x))",
    ),
    "a part whose weight is used": (
        "",
        "def forward(self, x):\n    return self.classifier(x @ self.features.weight.T)",
    ),
    "a part in a method that forward calls": (
        "",
        (
            "def encode(self, x):\n    return self.features(x)\n\n"
            "def forward(self, x):\n    return self.classifier(self.encode(x))"
        ),
    ),
    "a part without parameters that is not called": ("self.act = nn.ReLU()", WHOLE),
    "a loss that is not called": ("self.loss = nn.CrossEntropyLoss()", WHOLE),
    "a part that is frozen": (
        "self.features.requires_grad_(False)",
        "def forward(self, x):\n    with torch.no_grad():\n        x = self.features(x)\n    return self.classifier(x)",
    ),
    "a size that a library's model was asked for": (
        "self.trunk = torchvision.models.resnet18()\nself.width = self.trunk.fc.in_features",
        "def forward(self, x):\n    return self.classifier(self.features(self.trunk(x)))",
    ),
    "parts in a list": (
        "self.layers = nn.ModuleList([nn.Linear(8, 8) for _ in range(3)])",
        (
            "def forward(self, x):\n    x = self.features(x)\n    for layer in self.layers:\n        x = layer(x)\n"
            "    return self.classifier(x)"
        ),
    ),
    "parts that are called by name": (
        "self.extra = nn.Linear(8, 8)",
        "def forward(self, x):\n    x = getattr(self, 'fea' + 'tures')(x)\n    return self.classifier(x)",
    ),
    "chance chooses what a part is given": (
        "",
        (
            "def forward(self, x):\n    if random.random() < 0.5:\n        x = x.flip(0)\n"
            "    return self.classifier(self.features(x))"
        ),
    ),
    "a library's model without its head": (
        "self.trunk = torchvision.models.resnet18()\nself.trunk.fc = nn.Identity()",
        "def forward(self, x):\n    return self.classifier(self.features(self.trunk.layer1(self.trunk.conv1(x))))",
    ),
    "a library's model that is called whole": (
        "self.trunk = torchvision.models.resnet18()",
        "def forward(self, x):\n    return self.classifier(self.features(self.trunk(x)))",
    ),
}
UNUSED = {
    "a part that nothing reads": ("self.decoder = nn.Linear(8, 4)", WHOLE),
    "also where weights are drawn by listing the parts": (
        "self.decoder = nn.Linear(8, 4)\nfor m in self.modules():\n    m.reset_parameters()",
        WHOLE,
    ),
    "a part that only another method reads": (
        "self.decoder = nn.Linear(8, 4)",
        WHOLE + "\n\ndef sample(self, x):\n    return self.decoder(x)",
    ),
    "a part that is called without gradients": (
        "",
        "def forward(self, x):\n    with torch.no_grad():\n        x = self.features(x)\n    return self.classifier(x)",
    ),
    "a part in a branch that is never taken": (
        "self.decoder = nn.Linear(8, 4)\nself.flag = False",
        (
            "def forward(self, x):\n    x = self.features(x)\n    if self.flag:\n        x = self.decoder(x)\n"
            "    return self.classifier(x)"
        ),
    ),
    "a layer that chance leaves out": (
        "self.layers = nn.ModuleList([nn.Linear(8, 8) for _ in range(3)])",
        (
            "def forward(self, x):\n    x = self.features(x)\n    for layer in self.layers:\n"
            "        if self.training and random.random() < 0.1:\n            continue\n        x = layer(x)\n"
            "    return self.classifier(x)"
        ),
    ),
    "a layer that a draw of its own calls": (
        "",
        (
            "def forward(self, x):\n    keep = torch.rand(1) < 0.9\n    if keep:\n        x = self.features(x)\n"
            "    return self.classifier(x)"
        ),
    ),
    "a library's model that is called in parts": (
        "self.trunk = torchvision.models.resnet18()",
        "def forward(self, x):\n    return self.classifier(self.features(self.trunk.layer1(self.trunk.conv1(x))))",
    ),
    "a part of a part": (
        "self.inner = Inner()",
        "def forward(self, x):\n    return self.classifier(self.inner(self.features(x)))\n\n",
    ),
}
INNER = """
class Inner(nn.Module):
    def __init__(self):
        super().__init__()
        self.one = nn.Linear(8, 8)
        self.two = nn.Linear(8, 8)

    def forward(self, x):
        return self.one(x)
"""


def options(made: str, methods: str) -> list[str]:
    text = BEFORE + indent(made, " " * 8) + "\n\n" + indent(methods, " " * 4) + "\n" + INNER + AFTER + LOOP
    facts = facts_of(dedent(text))
    return wrapper_options(facts, [model for model, _ in facts.places])[0]


@pytest.mark.parametrize(("made", "methods"), USED.values(), ids=USED)
def test_nothing_is_searched_where_all_parts_get_gradients(made: str, methods: str) -> None:
    assert options(made, methods) == []


@pytest.mark.parametrize(("made", "methods"), UNUSED.values(), ids=UNUSED)
def test_unused_parameters_are_searched_where_a_part_may_get_none(made: str, methods: str) -> None:
    assert options(made, methods) == ["find_unused_parameters=True"]


def test_a_head_that_is_switched_off_gets_no_gradient() -> None:
    text = BEFORE.replace("class Net", "class Other") + "\n" + AFTER + LOOP
    text = text.replace(
        "model = Net()", "model = torchvision.models.inception_v3()\nmodel.aux_logits = False"
    )
    facts = facts_of(text)
    found = wrapper_options(facts, [model for model, _ in facts.places])[0]
    assert found[0] == "find_unused_parameters=True"


HEADS = """
    def forward(self, x):
        shared = self.features(x)
        return self.classifier(shared), {second}
"""
ASIDE = {
    "an output called nothing": ("self.other(shared)", "score, _ = model(x)"),
    "an output that nobody reads": ("self.other(shared)", "score, second = model(x)"),
    "the first of two": ("self.other(shared)", "score = model(x)[0]"),
}
NOT_ASIDE = {
    "both are used": ("self.other(shared)", "score, second = model(x)\n        score = score + second"),
    "what the other output rests on": ("shared", "score, _ = model(x)"),
    "an output without parameters": ("torch.relu(shared)", "score, _ = model(x)"),
}


def two_heads(second: str, taken: str) -> list[str]:
    made = BEFORE + "        self.other = nn.Linear(8, 2)\n" + HEADS.format(second=second) + AFTER
    if "self.other" not in second:
        made = made.replace("        self.other = nn.Linear(8, 2)\n", "")
    taken = f"{taken}\n        loss = nn.functional.cross_entropy(score, y)"
    facts = facts_of(made + LOOP.replace("loss = nn.functional.cross_entropy(model(x), y)", taken))
    return [reason for _, reason, _ in facts.unwrapped]


@pytest.mark.parametrize(("second", "taken"), ASIDE.values(), ids=ASIDE)
def test_no_wrapper_waits_for_an_output_that_is_left_aside(second: str, taken: str) -> None:
    [reason] = two_heads(second, taken)
    assert "left aside" in reason


@pytest.mark.parametrize(("second", "taken"), NOT_ASIDE.values(), ids=NOT_ASIDE)
def test_outputs_that_are_used_or_cost_no_parameters(second: str, taken: str) -> None:
    assert two_heads(second, taken) == []
