"""After which statement a model is wrapped, and why none can be where none is."""

import pytest
from harness import LOOP, NET, facts_of

from multicard.facts import Facts
from multicard.wraps import wrapper_options

BEFORE, MODEL, AFTER = NET.partition("model = Net()\n")


def places(facts: Facts) -> list[tuple[str, str]]:
    """The statements after which models are wrapped, and the names that are bound anew."""
    return [
        (
            facts.module_of[wrap.target].text(wrap.statement).splitlines()[-1].strip(),
            facts.module_of[wrap.target].text(wrap.target),
        )
        for _, wrap in facts.places
    ]


def reasons(facts: Facts) -> list[str]:
    return [reason for _, reason, _ in facts.unwrapped]


PLACES = {
    "as soon as it is made": (MODEL, ("model = Net()", "model")),
    "with a name of its own": ("net = Net()\nmodel = net\n", ("model = net", "model")),
    "once it is moved": ("model = Net()\nmodel = model.to(device)\n", ("model = model.to(device)", "model")),
    "once it is moved in place": ("model = Net()\nmodel.cuda()\n", ("model.cuda()", "model")),
    "once it is compiled": ("model = torch.compile(Net())\n", ("model = torch.compile(Net())", "model")),
    "once it has its head": (
        "model = Net()\nmodel.classifier = nn.Linear(8, 9)\n",
        ("model.classifier = nn.Linear(8, 9)", "model"),
    ),
    "once half of it is frozen": (
        "model = Net()\nmodel.features.requires_grad_(False)\n",
        ("model.features.requires_grad_(False)", "model"),
    ),
    "once its weights are drawn": ("model = Net()\nmodel.apply(init)\n", ("model.apply(init)", "model")),
    "after a branch": (
        "model = Net()\nif cuda:\n    model = model.cuda()\n",
        ("model = model.cuda()", "model"),
    ),
    "after all branches": (
        "if big:\n    model = Net()\nelif small:\n    model = Net()\nelse:\n    model = Net()\n",
        ("model = Net()", "model"),
    ),
    "after what is tried": (
        "try:\n    model = Net()\nexcept OSError:\n    model = Net()\n",
        ("model = Net()", "model"),
    ),
    "where a function gives it back": (
        "def build():\n    return Net()\nmodel = build()\n",
        ("model = build()", "model"),
    ),
    "where it is unpacked": ("model, other = Net(), 3\n", ("model, other = Net(), 3", "model")),
}
TRAVELS = {
    "as an attribute": (
        (
            "class T:\n    def __init__(self):\n        self.net = Net()\n"
            "        self.opt = torch.optim.SGD(self.net.parameters(), lr=1)\n    def fit(self):\n"
            "        for x, y in loader:\n            self.net(x).sum().backward()\n            self.opt.step()\n"
            "T().fit()\n"
        ),
        [("self.net = Net()", "self.net")],
    ),
    "as an attribute that is given": (
        (
            "class T:\n    def __init__(self, net):\n        self.net = net\n"
            "        self.opt = torch.optim.SGD(net.parameters(), lr=1)\n    def fit(self):\n"
            "        for x, y in loader:\n            self.net(x).sum().backward()\n            self.opt.step()\n"
            "net = Net()\nT(net).fit()\n"
        ),
        [("self.net = net", "self.net")],
    ),
    "as an attribute that is given and made in the call": (
        (
            "class T:\n    def __init__(self, net):\n        self.net = net\n"
            "        self.opt = torch.optim.SGD(net.parameters(), lr=1)\n    def fit(self):\n"
            "        for x, y in loader:\n            self.net(x).sum().backward()\n            self.opt.step()\n"
            "T(Net()).fit()\n"
        ),
        [("self.net = net", "self.net")],
    ),
    "as a parameter": (
        (
            "def fit(net, opt):\n    for x, y in loader:\n        net(x).sum().backward()\n        opt.step()\n"
            "m = Net()\nfit(m, torch.optim.SGD(m.parameters(), lr=1))\n"
        ),
        [("m = Net()", "m")],
    ),
    "in a dict": (
        (
            "parts = {'net': Net()}\nopt = torch.optim.SGD(parts['net'].parameters(), lr=1)\n"
            "net = parts['net']\nfor x, y in loader:\n    net(x).sum().backward()\n    opt.step()\n"
        ),
        [("net = parts['net']", "net")],
    ),
    "anew in each fold": (
        (
            "for fold in range(5):\n    net = Net()\n    opt = torch.optim.SGD(net.parameters(), lr=1)\n"
            "    for x, y in loader:\n        net(x).sum().backward()\n        opt.step()\n"
        ),
        [("net = Net()", "net")],
    ),
    "two of them": (
        (
            "a, b = Net(), Net()\nopt = torch.optim.SGD([*a.parameters(), *b.parameters()], lr=1)\n"
            "for x, y in loader:\n    b(a(x)).sum().backward()\n    opt.step()\n"
        ),
        [("a, b = Net(), Net()", "a"), ("a, b = Net(), Net()", "b")],
    ),
    "inside another model": (
        (
            "class Outer(nn.Module):\n    def __init__(self):\n        super().__init__()\n        self.inner = Net()\n"
            "    def forward(self, x):\n        return self.inner(x)\n"
            "outer = Outer()\nopt = torch.optim.SGD(outer.parameters(), lr=1)\n"
            "for x, y in loader:\n    outer(x).sum().backward()\n    opt.step()\n"
        ),
        [("outer = Outer()", "outer")],
    ),
}
UNFIT = {
    "another method gives the loss": (
        LOOP.replace("nn.functional.cross_entropy(model(x), y)", "model.score(x).sum()"),
        "`score` is called in training",
    ),
    "a part gives the loss": (LOOP.replace("model(x)", "model.features(x)"), ""),
    "its parts are called one by one": (
        LOOP.replace("model(x)", "model.classifier(model.features(x))"),
        "",
    ),
    "a part is called beside the whole": (
        LOOP.replace("model(x)", "model(x) + model.classifier(h)"),
        "parts of it are called in training",
    ),
    "a penalty of gradients": (
        LOOP.replace(
            "        optimizer.zero", "        torch.autograd.grad(loss, x)\n        optimizer.zero"
        ),
        "`autograd.grad` goes through it",
    ),
    "a penalty of gradients, asked for by name": (
        LOOP.replace(
            "        optimizer.zero",
            "        torch.autograd.grad(outputs=loss, inputs=x)\n        optimizer.zero",
        ),
        "`autograd.grad` goes through it",
    ),
    "two backward passes": (
        LOOP.replace("loss.backward()", "loss.backward(retain_graph=True)\n        loss.backward()"),
        "several backward passes",
    ),
    "frozen and thawed between steps": (
        LOOP.replace("        loss =", "        model.features.requires_grad_(epoch > 1)\n        loss ="),
        "frozen and thawed between steps",
    ),
    "new parts later": (
        LOOP + "model.classifier = nn.Linear(8, 3)" + LOOP,
        "new parts after training has begun",
    ),
    "its parameters are used by themselves": (
        LOOP.replace("model(x)", "x @ model.features.weight.T"),
        "its forward pass in training was not seen",
    ),
}
SCORING = BEFORE.replace(
    "    def init_hidden", "    def score(self, x):\n        return self.features(x)\n\n    def init_hidden"
)


@pytest.mark.parametrize(("part", "place"), PLACES.values(), ids=PLACES)
def test_a_model_is_wrapped_when_it_stands_complete(part: str, place: tuple[str, str]) -> None:
    facts = facts_of(BEFORE + part + AFTER + LOOP)
    assert (set(places(facts)), reasons(facts)) == ({place}, [])


@pytest.mark.parametrize(("part", "expected"), TRAVELS.values(), ids=TRAVELS)
def test_a_model_is_wrapped_where_every_training_call_meets_the_wrapper(
    part: str, expected: list[tuple[str, str]]
) -> None:
    facts = facts_of(BEFORE + part)
    assert (places(facts), reasons(facts)) == (expected, [])


@pytest.mark.parametrize(("loop", "reason"), UNFIT.values(), ids=UNFIT)
def test_no_wrapper_can_serve_and_the_reason_is_told(loop: str, reason: str) -> None:
    facts = facts_of(SCORING + MODEL + AFTER + loop)
    assert places(facts) == []
    assert reasons(facts)
    assert any(reason in text for text in reasons(facts))


CHECKPOINT = "from torch.utils.checkpoint import checkpoint\n"


@pytest.mark.parametrize(
    ("option", "reasons_told"), [("", 1), (", use_reentrant=True", 1), (", use_reentrant=False", 0)]
)
def test_a_search_for_unused_parameters_and_reentrant_checkpoints_exclude_each_other(
    option: str, reasons_told: int
) -> None:
    again = BEFORE.replace("self.features(x))", f"checkpoint(self.features, x{option}))")
    facts = facts_of(
        CHECKPOINT + again + MODEL + AFTER + LOOP + "model.features.requires_grad_(False)\n" + LOOP
    )
    assert len(reasons(facts)) == reasons_told
    assert facts_of(CHECKPOINT + again + MODEL + AFTER + LOOP).unwrapped == ()


def test_a_model_of_another_module_is_wrapped_where_it_arrives() -> None:
    facts = facts_of(
        "from nets import build\n" + NET.replace("model = Net()", "model = build()") + LOOP,
        nets=BEFORE + "def build():\n    return Net()\n",
    )
    assert places(facts) == [("model = build()", "model")]


ELSEWHERE = {
    "by a library's class": ("from zoo import Net as Model\nmodel = Model(3)\n", "model = Model(3)"),
    "by a library's function": (
        "import zoo\nmodel = zoo.build('b', 3).to(d)\n",
        "model = zoo.build('b', 3).to(d)",
    ),
    "by a library's function, with more": (
        "import zoo\nmodel, prepare = zoo.load('b')\n",
        "model, prepare = zoo.load('b')",
    ),
    "in a file": ("model = torch.load('model.pt')\nmodel.cuda()\n", "model.cuda()"),
    "by a class that a library's stands behind": (
        "from zoo import Base\nclass Own(Base):\n    pass\nmodel = Own()\n",
        "model = Own()",
    ),
    "by a name that is only known when it runs": (
        "model = registry[args.name](3)\n",
        "model = registry[args.name](3)",
    ),
}


@pytest.mark.parametrize(("model", "statement"), ELSEWHERE.values(), ids=ELSEWHERE)
def test_a_model_made_out_of_sight_is_known_by_its_parameters(model: str, statement: str) -> None:
    facts = facts_of("from options import args, registry\n" + BEFORE + model + AFTER + LOOP)
    assert places(facts) == [(statement, "model")]
    assert reasons(facts) == []


def test_the_branches_of_a_class_that_is_made_twice_share_one_wrapper() -> None:
    trainer = """
class Trainer:
    def __init__(self, small):
        if small:
            self.model = Net()
        else:
            self.model = nn.Sequential(nn.Linear(4, 2))
        self.model.cuda()
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1)

    def fit(self):
        for epoch in range(3):
            for x, y in loader:
                nn.functional.cross_entropy(self.model(x), y).backward()
                self.optimizer.step()


Trainer(True).fit()
Trainer(False).fit()
"""
    facts = facts_of(BEFORE + trainer)
    assert set(places(facts)) == {("self.model.cuda()", "self.model")}
    assert len(facts.wraps) == 1


NO_MODELS = {
    "a function's parameters": "import inspect\nnames = inspect.signature(f).parameters\n",
    "a class with parameters of its own": (
        "class Agent:\n    def parameters(self):\n        return model.parameters()\nagent = Agent()\n"
        "count = len(list(agent.parameters()))\n"
    ),
}


@pytest.mark.parametrize("other", NO_MODELS.values(), ids=NO_MODELS)
def test_what_has_parameters_need_not_be_a_model(other: str) -> None:
    facts = facts_of(BEFORE + MODEL + AFTER + other + LOOP)
    assert places(facts) == [("model = Net()", "model")]


def test_code_that_is_not_reached_does_not_end_the_setting_up() -> None:
    load = "weights = None\nif weights:\n    model.load_state_dict(torch.load(weights))\nmodel.cuda()\n"
    assert places(facts_of(BEFORE + MODEL + load + AFTER + LOOP)) == [("model.cuda()", "model")]


def test_what_is_trained_at_once_is_wrapped_in_one_run_more() -> None:
    facts = facts_of(NET + LOOP)
    assert facts.wraps == tuple(wrap for _, wrap in facts.places)
    assert {event.kind for event in facts.events("wrap")} == {"wrap"}


OPTIONS = {
    "nothing": (MODEL, "", []),
    "frozen after": (MODEL, "model.features.requires_grad_(False)" + LOOP, ["find_unused_parameters=True"]),
    "frozen for good": ("model = Net()\nmodel.features.requires_grad_(False)\n", "", []),
    "thawed after": (MODEL, "model.requires_grad_(True)" + LOOP, []),
}


@pytest.mark.parametrize(("model", "later", "options"), OPTIONS.values(), ids=OPTIONS)
def test_options_of_the_wrapper(model: str, later: str, options: list[str]) -> None:
    facts = facts_of(BEFORE + model + AFTER + LOOP + later)
    assert wrapper_options(facts, [wrapped for wrapped, _ in facts.places])[0] == options


def test_a_model_with_running_statistics_that_is_called_often_keeps_its_buffers() -> None:
    text = NET.replace("nn.Linear(4, 8)", "nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8))")
    facts = facts_of(text + LOOP.replace("model(x)", "model(x) + model(-x)"))
    assert wrapper_options(facts, [model for model, _ in facts.places])[0] == ["**«own_buffers»()"]


HEADS = """
class Head(nn.Module):
    def __init__(self, n):
        super().__init__()
        {}

    def forward(self, x):
        return x if self.inner is None else self.inner(x)


head = Head(3)
optimizer.add_param_group({{"params": head.parameters()}})
optimizer = torch.optim.SGD([*model.parameters(), *head.parameters()], lr=0.1)
"""


@pytest.mark.parametrize(
    ("made", "wrapped"),
    [
        ("self.inner = nn.Linear(2, 2) if n > 1 else nn.Linear(2, 3)", True),
        ("self.inner = None\n        if n > 1:\n            self.inner = nn.Linear(2, 2)", False),
        (
            (
                "if n > 1:\n            self.inner = nn.Linear(2, 2)\n        else:\n"
                "            self.inner = nn.Linear(2, 3)"
            ),
            True,
        ),
    ],
    ids=["always", "perhaps", "in each branch"],
)
def test_a_model_that_may_have_no_parameters_is_not_wrapped(made: str, wrapped: bool) -> None:  # noqa: FBT001
    facts = facts_of(NET + HEADS.format(made) + LOOP.replace("model(x)", "head(model(x))"))
    assert ("head" in {name for _, name in places(facts)}) == wrapped
    assert any("without parameters" in reason for reason in reasons(facts)) != wrapped


def test_a_model_whose_parameters_an_optimizer_holds_alone_has_some() -> None:
    made = "self.inner = None\n        if n > 1:\n            self.inner = nn.Linear(2, 2)"
    script = HEADS.format(made) + "other = torch.optim.SGD(head.parameters(), lr=0.1)\n"
    assert "head" in {
        name for _, name in places(facts_of(NET + script + LOOP.replace("model(x)", "head(model(x))")))
    }
