"""Where a model is wrapped, with which options, and what is done where no wrapper can serve."""

import pytest
from harness import LOOP, TRAINING, added, migrate, migrate_modules

from multicard.rules import wrap_model as rule

HEAD = """
import torch
from torch import nn
from torch.utils.data import DataLoader

loader = DataLoader(data, 8, shuffle=True)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.features = nn.Linear(4, 8)
        self.classifier = nn.Linear(8, 2)

    def forward(self, x):
        return self.classifier(self.features(x))


"""
MAKE = "model = Net()\n"
OPTIMIZER = "optimizer = torch.optim.SGD(model.parameters(), lr=0.1)\n"
DDP = "model = DDP(model, device_ids=device_ids(model))"
FORWARD = "        return self.classifier(self.features(x))"
UNUSED = "model = DDP(model, device_ids=device_ids(model), find_unused_parameters=True)"
PLACES = {
    "after it is made": (MAKE + OPTIMIZER + LOOP, MAKE.strip()),
    "after it is on its device": (
        "model = Net()\nmodel.to(device)\n" + OPTIMIZER + LOOP,
        "model.to(device)",
    ),
    "after it is moved in one line": (
        "model = Net().to(device)\n" + OPTIMIZER + LOOP,
        "model = Net().to(device)",
    ),
    "after it is compiled, as in the guide": (
        "model = Net()\nmodel = torch.compile(model, mode='default')\n" + OPTIMIZER + LOOP,
        "model = torch.compile(model, mode='default')",
    ),
    "after its last layer is replaced": (
        "model = Net()\nmodel.classifier = nn.Linear(8, 5)\n" + OPTIMIZER + LOOP,
        "model.classifier = nn.Linear(8, 5)",
    ),
    "after its weights are initialised": (
        "def init(m): ...\nmodel = Net()\nmodel.apply(init)\n" + OPTIMIZER + LOOP,
        "model.apply(init)",
    ),
    "after it is frozen for good": (
        "model = Net()\nfor p in model.features.parameters():\n    p.requires_grad = False\n"
        + OPTIMIZER
        + LOOP,
        "    p.requires_grad = False",
    ),
    "after the branch that moves it": (
        "model = Net()\nif use_cuda:\n    model.cuda()\n" + OPTIMIZER + LOOP,
        "    model.cuda()",
    ),
    "after apex has prepared it": (
        "from apex import amp\nmodel = Net()\n"
        + OPTIMIZER
        + "model, optimizer = amp.initialize(model, optimizer, opt_level='O1')\n"
        + LOOP,
        "model, optimizer = amp.initialize(model, optimizer, opt_level='O1')",
    ),
    "though it is asked for its settings": (
        "import timm\nmodel = timm.create_model('a')\n"
        + OPTIMIZER
        + LOOP
        + "        print(model.config.to_json_string())\n",
        "model = timm.create_model('a')",
    ),
    "after the branches that make it": (
        "if args.big:\n    model = Net()\nelse:\n    model = nn.Linear(4, 2)\n" + OPTIMIZER + LOOP,
        "    model = nn.Linear(4, 2)",
    ),
    "after branches of which one must have made it": (
        "if args.kind == 'a':\n    model = Net()\nelif args.kind == 'b':\n    model = nn.Linear(4, 2)\n"
        "model.to(device)\n" + OPTIMIZER + LOOP,
        "model.to(device)",
    ),
    "after the branches, of which one ends the script": (
        "if args.big:\n    model = Net()\nelse:\n    raise ValueError(args.big)\n" + OPTIMIZER + LOOP,
        "    raise ValueError(args.big)",
    ),
}
SOLVER = """class Solver:
    def __init__(self, kind):
        self.build(kind)

    def build(self, kind):
        if kind == "a":
            self.net = Net()
        elif kind == "b":
            self.net = nn.Linear(4, 2)
        elif kind == "c":
            self.net = nn.Linear(4, 3)
        self.optimizer = torch.optim.SGD(self.net.parameters(), lr=0.1)
        self.net.to(device)

    def train(self):
        for x, y in loader:
            loss = nn.functional.cross_entropy(self.net(x), y)
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()


Solver(args.kind).train()
"""
OPTIONS = {
    "frozen after it is wrapped": (
        MAKE + OPTIMIZER + LOOP + "for p in model.features.parameters():\n    p.requires_grad = False" + LOOP,
        UNUSED,
    ),
    "a part that gets no gradient": (
        HEAD.replace("self.classifier(self.features(x))", "self.features(x)") + MAKE + OPTIMIZER + LOOP,
        UNUSED,
    ),
    "a part that only some batches use": (
        HEAD.replace(
            FORWARD,
            "        x = self.features(x)\n        if x.sum():\n            x = self.classifier(x)\n        return x",
        )
        + MAKE
        + OPTIMIZER
        + LOOP,
        UNUSED,
    ),
    "a part that is left out by chance": (
        HEAD.replace(
            FORWARD,
            "        x = self.features(x)\n        return x if torch.rand(1) < 0.1 else self.classifier(x)",
        )
        + MAKE
        + OPTIMIZER
        + LOOP,
        UNUSED,
    ),
    "a part that every batch of this shape uses": (
        HEAD.replace(
            FORWARD,
            f"        x = x if x.dim() > 1 else self.features(x[None])\n{FORWARD}",
        )
        + MAKE
        + OPTIMIZER
        + LOOP,
        DDP,
    ),
    "frozen before and thawed after": (
        MAKE
        + "for p in model.features.parameters():\n    p.requires_grad = False\n"
        + OPTIMIZER
        + LOOP
        + "for p in model.features.parameters():\n    p.requires_grad = True"
        + LOOP,
        UNUSED,
    ),
    "frozen while it is made and thawed after": (
        "def build():\n    model = Net()\n    model.features.requires_grad_(False)\n    return model\nmodel = build()\n"
        + OPTIMIZER
        + LOOP
        + "model.features.requires_grad_(True)"
        + LOOP,
        f"with all_trainable(model):\n    {UNUSED}",
    ),
    "frozen before and never thawed": (
        MAKE + "for p in model.features.parameters():\n    p.requires_grad = False\n" + OPTIMIZER + LOOP,
        DDP,
    ),
    "frozen by its method": (
        MAKE + OPTIMIZER + LOOP + "model.features.requires_grad_(False)" + LOOP,
        UNUSED,
    ),
}
ONCE = {
    "another pass that only shows": LOOP
    + "        model.eval()\n        print(model(x))\n        model.train()\n",
    "in one branch or the other": LOOP.replace(
        "        loss = nn.functional.cross_entropy(model(x), y)\n",
        "        if y.sum() > 3:\n            out = model(x)\n        else:\n            out = model(-x)\n"
        "        loss = nn.functional.cross_entropy(out, y)\n",
    ),
    "in two stages": LOOP + LOOP.replace("model(x)", "model(-x)"),
    "in each of several backward passes": LOOP.replace(
        "    for x, y in loader:\n", "    for x, y in loader:\n     for _ in range(2):\n"
    ),
}
OFTEN = {
    "twice": LOOP.replace("model(x)", "model(x) + model(-x)"),
    "in a loop before the backward pass": LOOP.replace(
        "        loss = nn", "        for _ in range(2):\n            x = model(x)\n        loss = nn"
    ).replace("(model(x), y)", "(x, y)"),
}
SEVERAL = {
    "two of a GAN": (
        (
            "G, D = Net(), Net()\noG = torch.optim.Adam(G.parameters())\noD = torch.optim.Adam(D.parameters())\n"
            "for epoch in range(3):\n    for x, y in loader:\n        oD.zero_grad()\n"
            "        D(G(x).detach()).mean().backward()\n"
            "        oD.step()\n        oG.zero_grad()\n        D(G(x)).mean().backward()\n        oG.step()\n"
        ),
        "D = DDP(D, device_ids=device_ids(D))\nG = DDP(G, device_ids=device_ids(G))",
    ),
    "a teacher is not trained": (
        (
            "teacher, student = Net(), Net()\noptimizer = torch.optim.SGD(student.parameters(), lr=0.1)\n"
            "for epoch in range(3):\n    for x, y in loader:\n        with torch.no_grad():\n"
            "            t = teacher(x)\n"
            "        loss = (student(x) - t).pow(2).mean()\n        optimizer.zero_grad()\n        loss.backward()\n"
            "        optimizer.step()\n"
        ),
        "student = DDP(student, device_ids=device_ids(student))",
    ),
    "an average of the weights is not trained": (
        "import copy\nmodel = Net()\nema = copy.deepcopy(model)\n" + OPTIMIZER + LOOP,
        DDP,
    ),
    "a list of models": (
        "encoder, decoder = Net(), Net()\n"
        "optimizer = torch.optim.SGD([*encoder.parameters(), *decoder.parameters()], lr=0.1)\n"
        + LOOP.replace("model(x)", "decoder(encoder(x))"),
        (
            "encoder = DDP(encoder, device_ids=device_ids(encoder))\n"
            "decoder = DDP(decoder, device_ids=device_ids(decoder))"
        ),
    ),
    "one of which the optimizer is given a parameter": (
        "class Head(nn.Module):\n    def __init__(self):\n        super().__init__()\n"
        "        self.kernel = nn.Parameter(torch.randn(2, 2))\n"
        "    def forward(self, x):\n        return x @ self.kernel\n"
        "model, head = Net(), Head()\n"
        "optimizer = torch.optim.SGD([*model.parameters(), head.kernel], lr=0.1)\n"
        + LOOP.replace("model(x)", "head(model(x))"),
        DDP + "\nhead = DDP(head, device_ids=device_ids(head))",
    ),
    "one that is None where a branch does not make it": (
        "model, extra = Net(), None\nextra = None\nparameters = list(model.parameters())\nif args.fine:\n"
        "    extra = nn.Linear(2, 2)\n    parameters += list(extra.parameters())\n"
        "optimizer = torch.optim.SGD(parameters, lr=0.1)\n"
        + LOOP.replace(
            "loss =", "out = model(x)\n        out = out if extra is None else extra(out)\n        loss ="
        ).replace("entropy(model(x)", "entropy(out"),
        DDP + "\n    extra = DDP(extra, device_ids=device_ids(extra))",
    ),
    "one that only a branch makes": (
        "model, mode = Net(), args.mode\nif mode == 'hint':\n    extra = nn.Linear(2, 2)\n"
        "    parameters = [*model.parameters(), *extra.parameters()]\nelse:\n    parameters = model.parameters()\n"
        "optimizer = torch.optim.SGD(parameters, lr=0.1)\n"
        + LOOP.replace(
            "loss =", "out = model(x)\n        out = extra(out) if mode == 'hint' else out\n        loss ="
        ).replace("entropy(model(x)", "entropy(out"),
        DDP + "\n    extra = DDP(extra, device_ids=device_ids(extra))",
    ),
}
BARE = {
    "the loss comes from another method": (
        HEAD.replace(
            "    def forward",
            "    def loss(self, x):\n        return self.features(x).sum()\n\n    def forward",
        )
        + MAKE
        + OPTIMIZER
        + LOOP.replace("nn.functional.cross_entropy(model(x), y)", "model.loss(x)"),
        "broadcast_model(model)\n        average_gradients(model)",
    ),
    "it gets a new part after training has begun": (
        HEAD + MAKE + OPTIMIZER + LOOP + "model.classifier = nn.Linear(8, 5)\n" + OPTIMIZER + LOOP,
        (
            "broadcast_model(model)\n        average_gradients(model)\nbroadcast_model(model)\n"
            "        average_gradients(model)"
        ),
    ),
    "it is put together part by part, and its loss comes from another method": (
        HEAD.replace(
            "        self.features = nn.Linear(4, 8)\n",
            "        parts = nn.Sequential()\n        parts.add_module('first', nn.Linear(4, 8))\n"
            "        self.features = parts\n",
        ).replace(
            "    def forward",
            "    def loss(self, x):\n        return self.features(x).sum()\n\n    def forward",
        )
        + MAKE
        + OPTIMIZER
        + LOOP.replace("nn.functional.cross_entropy(model(x), y)", "model.loss(x)"),
        "broadcast_model(model)\n        average_gradients(model)",
    ),
    "its parts are set up after each epoch": (
        HEAD.replace(
            "    def forward",
            "    def loss(self, x):\n        for part in self._modules.values():\n            x = part(x)\n"
            "        return x.sum()\n\n    def forward",
        )
        + MAKE
        + OPTIMIZER
        + LOOP.replace("nn.functional.cross_entropy(model(x), y)", "model.loss(x)")
        + "    for part in model.modules():\n        part.momentum = 0\n",
        "broadcast_model(model)\n        average_gradients(model)",
    ),
    "parts of it are called": (
        HEAD + MAKE + OPTIMIZER + LOOP.replace("model(x)", "model.classifier(model.features(x))"),
        "        average_gradients(model)",
    ),
    "its layers are copies of one that has parameters of its own": (
        HEAD.replace(
            "class Net",
            "import copy\n\n\nclass Norm(nn.Module):\n    def __init__(self):\n        super().__init__()\n"
            "        self.scale = nn.Parameter(torch.ones(4))\n\n    def forward(self, x):\n"
            "        return self.scale * x\n\n\nclass Layer(nn.Module):\n    def __init__(self):\n"
            "        super().__init__()\n        self.norm = Norm()\n\n    def forward(self, x):\n"
            "        return self.norm(x)\n\n\nclass Net",
        ).replace(
            "    def forward(self, x):\n        return self.classifier",
            "        layer = Layer()\n        self.layers = nn.ModuleList([copy.deepcopy(layer) for _ in range(2)])\n\n"
            "    def loss(self, x):\n        for layer in self.layers:\n            x = layer(x)\n"
            "        return self.features(x).sum()\n\n    def forward(self, x):\n        return self.classifier",
        )
        + MAKE
        + OPTIMIZER
        + LOOP.replace("nn.functional.cross_entropy(model(x), y)", "model.loss(x)"),
        "broadcast_model(model)\n        average_gradients(model)",
    ),
    "one of several, by options": (
        HEAD.replace(
            "    def forward",
            "    def loss(self, x):\n        return self.features(x).sum()\n\n    def forward",
        )
        + "if args.a:\n    if args.b:\n        model = Net()\n    else:\n        model = Net()\n"
        + "elif args.c:\n    model = Net()\nelse:\n    raise ValueError(args)\nmodel = model.to('cpu')\n"
        + OPTIMIZER
        + LOOP.replace("nn.functional.cross_entropy(model(x), y)", "model.loss(x)"),
        "broadcast_model(model)\n        average_gradients(optimizer)",
    ),
    "several in a list": (
        HEAD
        + "models = [Net() for _ in range(3)]\noptimizers = [torch.optim.SGD(m.parameters(), 0.1) for m in models]\n"
        + "for model, optimizer in zip(models, optimizers):\n    "
        + LOOP.strip().replace("\n", "\n    ")
        + "\n",
        "for m in models:\n    broadcast_model(m)\n            average_gradients(model)",
    ),
    "two backward passes for one forward pass": (
        HEAD
        + MAKE
        + OPTIMIZER
        + LOOP.replace(
            "loss.backward()", "loss.backward(retain_graph=True)\n        out.sum().backward()"
        ).replace("        loss =", "        out = model(x)\n        loss ="),
        "broadcast_model(model)\n        average_gradients(model)\n        average_gradients(model)",
    ),
    "the optimizer may be none where gradients are made": (
        HEAD
        + "class Tuner:\n    def __init__(self, model):\n        self.model = model\n"
        + "    def batch(self, x, y, optimizer, rank):\n        if rank:\n"
        + "            nn.functional.cross_entropy(self.model.features(x), y).backward()\n        else:\n"
        + "            nn.functional.cross_entropy(self.model(x), y).backward()\n            optimizer.step()\n"
        + "    def epoch(self, optimizer=None, rank=False):\n        for x, y in loader:\n"
        + "            self.batch(x, y, optimizer, rank)\n"
        + "tuner = Tuner(Net())\noptimizer = torch.optim.SGD(tuner.model.parameters(), lr=0.1)\n"
        + "for i in range(3):\n    tuner.epoch(rank=True)\n    tuner.epoch(optimizer)\n",
        (
            "        broadcast_model(self.model)\n            average_gradients(self.model)\n"
            "            average_gradients(self.model)"
        ),
    ),
    "held by one module to be called, by another to be optimized": (
        HEAD
        + "student, teacher = Net(), Net()\ncalled = nn.ModuleList([])\ncalled.append(student)\n"
        + "trained = nn.ModuleList([])\ntrained.append(student)\n"
        + "if args.hint:\n    extra = nn.Linear(2, 2)\n    called.append(extra)\n    trained.append(extra)\n"
        + "optimizer = torch.optim.SGD(trained.parameters(), lr=0.1)\ncalled.append(teacher)\n"
        + "model, target = called[0], called[-1]\n"
        + LOOP.replace("model(x)", "called[1](model(x)) if args.hint else model(x)"),
        "    broadcast_model(extra)\nbroadcast_model(model)\n        average_gradients(optimizer)",
    ),
    "a setting may freeze all of it": (
        HEAD
        + "tune = False\nmodel, head = Net(), nn.Linear(2, 2)\n"
        + "for p in model.parameters():\n    p.requires_grad = tune\n"
        + "optimizer = torch.optim.SGD([*model.parameters(), *head.parameters()], lr=0.1)\n"
        + LOOP.replace("model(x)", "head(model(x))"),
        (
            "head = DDP(head, device_ids=device_ids(head))\nbroadcast_model(model)\n"
            "        average_gradients(model)"
        ),
    ),
}
LOOSE = {
    "made with gradients": "weight = torch.zeros(1, requires_grad=True)",
    "a parameter of no module": "weight = nn.Parameter(torch.zeros(1))",
    "given gradients by a method": "weight = torch.zeros(1).to(device).requires_grad_()",
    "given gradients in place": "weight = torch.zeros(1)\nweight.requires_grad_(True)",
    "given gradients by an attribute": "weight = torch.zeros(1)\nweight.requires_grad = True",
}
LEFT_ALONE = {
    "a model that is only evaluated": "model = Net()\nfor x, y in loader:\n    print(model(x))\n",
    "a model without an optimizer": "model, other = Net(), Net()\n"
    "optimizer = torch.optim.SGD(other.parameters(), lr=0.1)\nfor x, y in loader:\n    model(x).sum().backward()\n"
    "    optimizer.step()\n",
    "a perturbation, not a model": "model = Net()\nnoise = torch.zeros(4, requires_grad=True)\n"
    "optimizer = torch.optim.SGD([noise], lr=0.1)\nfor x, y in loader:\n    model(x + noise).sum().backward()\n"
    "    optimizer.step()\n",
}


@pytest.mark.parametrize(("part", "last"), PLACES.values(), ids=PLACES)
def test_wraps(part: str, last: str) -> None:
    script = HEAD + part
    text, reasons = migrate(rule, script)
    assert (added(script, text), reasons) == (DDP, [])
    assert f"{last}\n{DDP}\n" in text


def test_wraps_once_behind_the_branches_that_give_an_attribute() -> None:
    script = HEAD + SOLVER
    text, reasons = migrate(rule, script)
    wrapped = "        self.net = DDP(self.net, device_ids=device_ids(self.net))"
    assert (added(script, text), reasons) == (wrapped, [])
    assert f"        self.net.to(device)\n{wrapped}\n" in text


@pytest.mark.parametrize(("part", "after"), OPTIONS.values(), ids=OPTIONS)
def test_options(part: str, after: str) -> None:
    script = part if part.startswith(HEAD[:20]) else HEAD + part
    text, reasons = migrate(rule, script)
    assert (added(script, text), reasons) == (after, [])


@pytest.mark.parametrize(
    ("part", "own"),
    [*((part, False) for part in ONCE.values()), *((part, True) for part in OFTEN.values())],
    ids=[*ONCE, *OFTEN],
)
def test_buffers_stay_where_several_forward_passes_come_before_a_backward_pass(
    part: str, *, own: bool
) -> None:
    head = HEAD.replace("self.features = nn.Linear(4, 8)", "self.features = nn.BatchNorm1d(4)")
    text, _ = migrate(rule, head + MAKE + OPTIMIZER + part)
    assert ("**own_buffers()" in text) == own


@pytest.mark.parametrize("part", OFTEN.values(), ids=OFTEN)
def test_buffers_of_layers_that_are_collected_in_a_list(part: str) -> None:
    layers = (
        "layers = []\n        for i in range(3):\n            layers += [nn.Linear(4, 4), nn.BatchNorm1d(4)]\n"
        "        self.features = nn.Sequential(*layers)"
    )
    head = HEAD.replace("self.features = nn.Linear(4, 8)", layers)
    text, _ = migrate(rule, head + MAKE + OPTIMIZER + part)
    assert "**own_buffers()" in text


def test_parts_that_are_set_deep_inside_a_model_which_is_made_twice_are_no_new_parts() -> None:
    cells = "".join(
        f"class N{i}(nn.Module):\n    def __init__(self):\n        super().__init__()\n"
        f"        self.inner = N{i - 1}()\n    def forward(self, x):\n        return self.inner(x)\n\n\n"
        for i in range(1, 7)
    )
    fixed = (
        "class N0(nn.Module):\n    def __init__(self):\n        super().__init__()\n"
        "        self.emb = nn.Linear(4, 2)\n        self.emb.weight = nn.Parameter(torch.zeros(2, 4))\n"
        "    def forward(self, x):\n        return self.emb(x)\n\n\n"
    )
    trainer = (
        "class Trainer:\n    def __init__(self):\n        self.model = N6()\n\n    def train(self):\n        "
        + (OPTIMIZER + LOOP).strip().replace("\n", "\n        ").replace("model", "self.model")
        + "\n\n\nimport argparse\nargs = argparse.ArgumentParser().parse_args()\n"
        "if args.train:\n    a = Trainer()\n    a.train()\nelse:\n    b = Trainer()\n    print(b.model)\n"
    )
    text, _ = migrate(rule, HEAD + fixed + cells + trainer)
    assert "self.model = DDP(self.model, device_ids=device_ids(self.model))" in text
    assert "average_gradients" not in text


BY_HAND = (
    "        grads = torch.autograd.grad(loss, model.parameters())\n"
    "        for p, g in zip(model.parameters(), grads):\n            p.grad = g\n"
)


def test_says_that_gradients_set_by_hand_are_each_ranks_own() -> None:
    script = (
        HEAD
        + MAKE
        + OPTIMIZER
        + LOOP.replace("        optimizer.step()", BY_HAND + "        optimizer.step()")
    )
    _, [why] = migrate(rule, script)
    assert "set here by hand" in why


@pytest.mark.parametrize("value", ["None", "p.grad * 0.5", "p.grad.clamp(-1, 1)"])
def test_gradients_that_were_averaged_may_be_changed(value: str) -> None:
    change = f"        for p in model.parameters():\n            p.grad = {value}\n"
    _, reasons = migrate(rule, HEAD + MAKE + OPTIMIZER + LOOP + change)
    assert reasons == []


QUEUE = HEAD.replace(
    "        self.classifier =",
    "        self.register_buffer('queue', torch.zeros(64, 8))\n        self.classifier =",
)
WRITTEN = {
    "rows": "self.queue[: len(h)] = h.detach()",
    "in place": "self.queue.copy_(torch.cat([h, self.queue])[:64].detach())",
    "anew": "self.queue = torch.cat([h, self.queue])[:64].detach()",
    "a running mean": "self.queue.mul_(0.9).add_(h.detach().mean(0), alpha=0.1)",
}


@pytest.mark.parametrize("line", WRITTEN.values(), ids=WRITTEN)
def test_says_whose_buffers_stay_where_the_model_writes_them_itself(line: str) -> None:
    forward = f"        h = self.features(x)\n        {line}\n        return self.classifier(h)"
    text, [why] = migrate(rule, QUEUE.replace(FORWARD, forward) + MAKE + OPTIMIZER + LOOP)
    assert DDP in text
    assert "`queue`" in why
    assert "rank 0" in why


@pytest.mark.parametrize("line", ["self.queue += 1", "self.other = h", "print(self.queue[:4])"])
def test_buffers_that_are_the_same_on_all_ranks(line: str) -> None:
    forward = f"        h = self.features(x)\n        {line}\n        return self.classifier(h)"
    text, reasons = migrate(rule, QUEUE.replace(FORWARD, forward) + MAKE + OPTIMIZER + LOOP)
    assert DDP in text
    assert reasons == []


@pytest.mark.parametrize(("part", "after"), SEVERAL.values(), ids=SEVERAL)
def test_several_models(part: str, after: str) -> None:
    script = HEAD + part
    text, reasons = migrate(rule, script)
    assert (added(script, text), reasons) == (after, [])


@pytest.mark.parametrize(("script", "after"), BARE.values(), ids=BARE)
def test_averages_gradients_where_no_wrapper_can_serve(script: str, after: str) -> None:
    text, reasons = migrate(rule, script)
    assert (added(script, text), reasons) == (after, [])


def test_no_gradients_are_averaged_that_an_attack_leaves_behind() -> None:
    net = HEAD.replace(
        "    def forward", "    def scores(self, x):\n        return self.features(x)\n\n    def forward"
    )
    attack = (
        "def gradient(loss, delta):\n    loss.backward()\n    return delta.grad.detach()\n\n\n"
        "def attack(x, y):\n    delta = torch.zeros_like(x, requires_grad=True)\n"
        "    return x + gradient(nn.functional.cross_entropy(model.scores(x + delta), y), delta).sign()\n\n\n"
    )
    loop = LOOP.replace("model(x)", "model.scores(attack(x, y))")
    script = net + MAKE + OPTIMIZER + attack + loop
    text, reasons = migrate(rule, script)
    assert (added(script, text), reasons) == ("broadcast_model(model)\n        average_gradients(model)", [])
    _, [reason] = migrate(rule, script.replace("optimizer.zero_grad()", "pass"))
    assert "neither the model nor its optimizer is in sight" in reason


@pytest.mark.parametrize("part", LEFT_ALONE.values(), ids=LEFT_ALONE)
def test_leaves_alone(part: str) -> None:
    script = HEAD + part
    assert migrate(rule, script) == (script, [])


def test_a_model_of_a_trainer() -> None:
    script = (
        HEAD + "class Trainer:\n    def __init__(self):\n        self.model = Net()\n"
        "        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1)\n\n    def fit(self):"
        + LOOP.replace("\n", "\n        ")
        .replace("model(", "self.model(")
        .replace("optimizer.", "self.optimizer.")
        + "\nTrainer().fit()\n"
    )
    text, reasons = migrate(rule, script)
    assert (added(script, text), reasons) == (
        "        self.model = DDP(self.model, device_ids=device_ids(self.model))",
        [],
    )


def test_a_model_that_a_local_module_builds_is_wrapped_where_it_arrives() -> None:
    nets = HEAD + "def build():\n    return Net()\n"
    script = "from nets import build\n" + TRAINING.replace("nn.Linear(4, 2)", "build()") + LOOP
    texts, reasons = migrate_modules(rule, {"__main__": script, "nets": nets})
    assert (added(script, texts["__main__"]), reasons) == (DDP, [])
    assert texts["nets"] == nets


def test_a_model_is_wrapped_anew_in_each_fold() -> None:
    script = (
        HEAD
        + "for fold in range(5):\n"
        + "".join(f"    {line}\n" if line else "\n" for line in (MAKE + OPTIMIZER + LOOP).splitlines())
    )
    text, reasons = migrate(rule, script)
    assert (added(script, text), reasons) == (f"    {DDP}", [])


def test_the_field_s_name_is_not_taken_from_the_script() -> None:
    script = HEAD + "DDP = 3\n" + MAKE + OPTIMIZER + LOOP
    text, _ = migrate(rule, script)
    assert "import DistributedDataParallel as DDP_\n" in text
    assert "model = DDP_(model, device_ids=device_ids(model))" in text


@pytest.mark.parametrize("made", LOOSE.values(), ids=LOOSE)
def test_averages_the_gradients_of_tensors_that_are_no_modules(made: str) -> None:
    script = (
        f"{HEAD}{MAKE}{made}\noptimizer = torch.optim.SGD([*model.parameters(), weight], lr=0.1)\n"
        + LOOP.replace("model(x), y)", "model(x), y) * weight.exp()")
    )
    text, reasons = migrate(rule, script)
    assert (added(script, text), reasons) == (DDP + "\n        average_gradients(optimizer)", [])


def test_averages_the_gradients_of_a_tensor_after_its_own_loss() -> None:
    script = (
        f"{HEAD}{MAKE}{OPTIMIZER}"
        "log_alpha = torch.zeros(1, requires_grad=True)\n"
        "tuner = torch.optim.Adam([log_alpha])\n"
        + LOOP.replace(
            "        optimizer.zero",
            "        other = (log_alpha * loss.detach()).mean()\n        tuner.zero_grad()\n"
            "        other.backward()\n        tuner.step()\n"
            "        loss = loss * log_alpha.exp().detach()\n        optimizer.zero",
        )
    )
    text, reasons = migrate(rule, script)
    assert (added(script, text), reasons) == (DDP + "\n        average_gradients(tuner)", [])
    assert text.index("average_gradients(tuner)") < text.index("tuner.step()")


def test_a_tensor_that_no_optimizer_holds_is_left_alone() -> None:
    script = f"{HEAD}{MAKE}{OPTIMIZER}noise = torch.zeros(4, requires_grad=True)\n" + LOOP.replace(
        "model(x)", "model(x + noise)"
    )
    assert added(script, migrate(rule, script)[0]) == DDP


KEYS = HEAD.replace(
    "        self.classifier =",
    "        self.register_buffer('queue', torch.zeros(8, 64))\n"
    "        self.register_buffer('labels', torch.zeros(64))\n"
    "        self.register_buffer('at', torch.zeros(1, dtype=torch.long))\n"
    "        self.classifier =",
).replace(
    "    def forward",
    "    @torch.no_grad()\n    def enqueue(self, keys):\n        n = keys.shape[0]\n        at = int(self.at)\n"
    "        self.queue[:, at : at + n] = keys.T\n        self.at[0] = (at + n) % 64\n\n    def forward",
)
FED = "        h = self.features(x)\n        {call}\n        return self.classifier(h)"
CALL = "self.enqueue(h)"
JOINED = (
    "        n = keys.shape[0]\n        at = int(self.at)\n"
    "        self.queue[:, at : at + n] = keys.T\n        self.at[0] = (at + n) % 64\n"
)
FILLED = {
    "as in the paper": (KEYS, CALL, "for keys in batches_of_ranks(h):\n            self.enqueue(keys)"),
    "at one end": (
        KEYS.replace(JOINED, "        self.queue = torch.cat([keys.T, self.queue], 1)[:, :64]\n"),
        CALL,
        "for keys in batches_of_ranks(h):\n            self.enqueue(keys)",
    ),
    "copied": (
        KEYS.replace(JOINED, "        self.queue.copy_(torch.cat([keys.T, self.queue], 1)[:, :64])\n"),
        CALL,
        "for keys in batches_of_ranks(h):\n            self.enqueue(keys)",
    ),
    "without gradients where it is called": (
        KEYS.replace("    @torch.no_grad()\n", ""),
        "with torch.no_grad():\n            self.enqueue(h.detach())",
        "    for keys in batches_of_ranks(h.detach()):\n                self.enqueue(keys)",
    ),
    "two together": (
        KEYS.replace("(self, keys)", "(self, keys, marks)").replace(
            "        self.at[0]", "        self.labels[at : at + n] = marks\n        self.at[0]"
        ),
        "self.enqueue(h, x[:, 0])",
        "for keys, marks in batches_of_ranks(h, x[:, 0]):\n            self.enqueue(keys, marks)",
    ),
    "the name is taken": (
        KEYS,
        "keys = h.detach()\n        self.enqueue(keys)",
        "for keys_ in batches_of_ranks(keys):\n            self.enqueue(keys_)",
    ),
}
UNFILLED = {
    "its result is used": (KEYS.replace("% 64\n", "% 64\n        return n\n", 1), CALL),
    "it stays where it is": (KEYS.replace("% 64\n", "\n", 1), CALL),
    "a mean goes in": (
        KEYS.replace(JOINED, "        self.queue.mul_(0.9).add_(keys.mean(0)[:, None])\n"),
        CALL,
    ),
    "gradients are recorded": (KEYS.replace("    @torch.no_grad()\n", ""), CALL),
    "what it is given has a name": (KEYS, "self.enqueue(keys=h)"),
    "it is called in an expression": (KEYS, "done = self.enqueue(h)"),
    "as the batch says": (KEYS, "if h.sum() > 0:\n            self.enqueue(h)"),
}


@pytest.mark.parametrize(("net", "call", "after"), FILLED.values(), ids=FILLED)
def test_a_queue_takes_the_batches_of_all_ranks(net: str, call: str, after: str) -> None:
    script = net.replace(FORWARD, FED.format(call=call)) + MAKE + OPTIMIZER + LOOP
    text, reasons = migrate(rule, script)
    assert (added(script, text), reasons) == (f"        {after}\n{DDP}", [])


@pytest.mark.parametrize(("net", "call"), UNFILLED.values(), ids=UNFILLED)
def test_says_whose_queue_stays(net: str, call: str) -> None:
    script = net.replace(FORWARD, FED.format(call=call)) + MAKE + OPTIMIZER + LOOP
    text, reasons = migrate(rule, script)
    assert "batches_of_ranks" not in text
    assert "`queue`" in reasons[0]


def test_a_queue_that_an_evaluation_fills_too_stays() -> None:
    script = KEYS.replace(FORWARD, FED.format(call=CALL)) + MAKE + OPTIMIZER + LOOP
    script += "with torch.no_grad():\n    for x, y in DataLoader(data, 8):\n        print(model(x))\n"
    text, reasons = migrate(rule, script)
    assert "batches_of_ranks" not in text
    assert "`queue`" in reasons[0]
