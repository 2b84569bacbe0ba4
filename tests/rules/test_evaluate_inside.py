import pytest
from harness import LOOP, NET, added, migrate, migrate_modules

from multicard.rules import evaluate_inside as rule

EVALUATION = """
loss, hits = 0.0, 0
model.eval()
with torch.no_grad():
    for x, y in val_loader:
        out = model(x)
        loss += criterion(out, y).item()
        hits += (out.argmax(1) == y).sum().item()
print(loss, hits)
"""
FUNCTION = """
@torch.no_grad()
def validate(net, loader):
    hits = 0
    for x, y in loader:
        hits += (net(x).argmax(1) == y).sum().item()
    return hits
"""
MIGRATED = {
    "as in the guide": (EVALUATION, "    sync_buffers(model)\n        out = model.module(x)"),
    "in a function": (
        FUNCTION + "print(validate(model, val_loader))\n",
        "    sync_buffers(net)\n        hits += (net.module(x).argmax(1) == y).sum().item()",
    ),
    "in a function that evaluates the bare model too": (
        FUNCTION + "print(validate(model, val_loader), validate(Net(), val_loader))\n",
        "    sync_buffers(net)\n        hits += (unwrap(net)(x).argmax(1) == y).sum().item()",
    ),
    "called twice": (
        EVALUATION.replace("out = model(x)", "out = model(x) + model(-x)"),
        "    sync_buffers(model)\n        out = model.module(x) + model.module(-x)",
    ),
    "in a progress bar": (
        "from tqdm import tqdm\n" + EVALUATION.replace("in val_loader", "in tqdm(val_loader)"),
        "    sync_buffers(model)\n        out = model.module(x)",
    ),
    "by its forward method": (
        EVALUATION.replace("model(x)", "model.forward(x)"),
        "    sync_buffers(model)\n        out = model.module.forward(x)",
    ),
    "each epoch": (
        LOOP + "    " + EVALUATION.strip().replace("\n", "\n    ") + "\n",
        "        sync_buffers(model)\n            out = model.module(x)",
    ),
    "in a helper that the loop calls": (
        "def predict(net, x):\n    return net(x).softmax(1)\n"
        + EVALUATION.replace("model(x)", "predict(model, x)"),
        "    return net.module(x).softmax(1)\n    sync_buffers(model)",
    ),
}
LEFT_ALONE = {
    "training": LOOP,
    "an evaluation that is not dealt out": EVALUATION.replace(
        "        hits", "        if hits > 9:\n            break\n        hits"
    ),
    "a loop without the model": "n = 0\nfor x, y in val_loader:\n    n += len(x)\nprint(n)\n",
    "another model": EVALUATION.replace("model", "other")
    .replace("\nloss,", "\nother = Net()\nloss,")
    .replace("val_loader", "loader"),
    "one sample": "print(model(torch.randn(1, 4)))\n",
}
PHASES = """
for epoch in range(3):
    for phase in ["train", "val"]:
        total = 0
        for x, y in loaders[phase]:
            with torch.set_grad_enabled(phase == "train"):
                loss = criterion(model(x), y)
                if phase == "train":
                    loss.backward()
                    optimizer.step()
            total += loss.item()
        print(total)
"""


@pytest.mark.parametrize(("part", "after"), MIGRATED.values(), ids=MIGRATED)
def test_migrates(part: str, after: str) -> None:
    script = NET + LOOP + part
    text, reasons = migrate(rule, script)
    assert (added(script, text), reasons) == (after, [])


@pytest.mark.parametrize("part", LEFT_ALONE.values(), ids=LEFT_ALONE)
def test_leaves_alone(part: str) -> None:
    script = NET + LOOP + part
    assert migrate(rule, script) == (script, [])


def test_one_call_that_trains_and_evaluates_asks_for_its_mode() -> None:
    script = NET + "loaders = {'train': loader, 'val': val_loader}" + PHASES
    text, reasons = migrate(rule, script)
    assert (added(script, text), reasons) == (
        "        sync_buffers(model)\n                loss = criterion(forward_of(model)(x), y)",
        [],
    )


def test_a_trainer_in_another_module() -> None:
    engine = (
        "import torch\n\n\nclass Trainer:\n    def __init__(self, model, optimizer):\n"
        "        self.model, self.optimizer = model, optimizer\n\n"
        "    def fit(self, loader):\n        for epoch in range(3):\n            for x, y in loader:\n"
        "                self.model(x).sum().backward()\n                self.optimizer.step()\n\n"
        "    @torch.no_grad()\n    def test(self, loader):\n        total = 0\n        for x, y in loader:\n"
        "            total += self.model(x).sum()\n        return total\n"
    )
    script = (
        "from engine import Trainer\n"
        + NET
        + "t = Trainer(model, optimizer)\nt.fit(loader)\nt.test(val_loader)\n"
    )
    texts, reasons = migrate_modules(rule, {"__main__": script, "engine": engine})
    assert added(engine, texts["engine"]) == (
        "        sync_buffers(self.model)\n            total += self.model.module(x).sum()"
    )
    assert (texts["__main__"], reasons) == (script, [])


TWICE = LOOP.replace("model(x), y)", "model(x) + model(-x), y)")
WHOLE = EVALUATION.replace("        hits", "        if hits > 9:\n            break\n        hits")


@pytest.mark.parametrize(
    ("norm", "training", "after"),
    [
        (
            "nn.BatchNorm1d(8)",
            TWICE.replace("model(-x)", "model(\n            -x)"),
            "    sync_buffers(model)",
        ),
        ("nn.BatchNorm1d(8)", LOOP, ""),
        ("nn.LayerNorm(8)", TWICE, ""),
    ],
    ids=["no wrapper sends them", "the wrapper sends them", "there are none"],
)
def test_whole_evaluation_with_statistics_that_no_wrapper_sends(norm: str, training: str, after: str) -> None:
    net = NET.replace("nn.Linear(4, 8)", f"nn.Sequential(nn.Linear(4, 8), {norm})")
    script = net + training + WHOLE
    text, reasons = migrate(rule, script)
    assert (added(script, text), reasons) == (after, [])


MODES = """
for epoch in range(3):
    for phase in ["train", "val"]:
        {mode}
        total = 0
        for x, y in (loader if phase == "train" else val_loader):
            out = model(x)
            loss = criterion(out, y)
            if phase == "train":
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
            total += loss.item()
        print(total)
"""


def test_a_call_that_trains_and_evaluates_with_gradients_goes_by_the_mode() -> None:
    script = NET + MODES.format(mode="model.train(phase == 'train')")
    text, reasons = migrate(rule, script)
    assert "out = forward_of(model, trains=model.training)(x)" in text
    assert reasons == []


def test_a_call_that_trains_and_evaluates_in_one_mode_keeps_the_evaluation_whole() -> None:
    script = NET + MODES.format(mode="model.train()")
    assert "forward_of" not in migrate(rule, script)[0]


ATTACK = """
def attack(x, y):
    delta = torch.zeros_like(x, requires_grad=True)
    loss = criterion(model(x + delta), y)
    loss.backward()
    gradient = delta.grad.detach()
    delta.grad.zero_()
    return x + gradient.sign()


for epoch in range(3):
    for x, y in loader:
        first
        x = attack(x, y)
        clear
        loss = criterion(model(x), y)
        loss.backward()
        optimizer.step()
"""
CLEARED = ATTACK.replace("first", "model.train()").replace("clear", "optimizer.zero_grad()")
ATTACKS = {
    "cleared by the optimizer": CLEARED,
    "cleared by the model": CLEARED.replace("optimizer.zero", "model.zero"),
    "many times": CLEARED.replace("x = attack", "for _ in range(5):\n            x = attack"),
    "in the loop itself": CLEARED.replace(
        "x = attack(x, y)",
        "delta = torch.zeros_like(x, requires_grad=True)\n        criterion(model(x + delta), y).backward()\n"
        "        x = x + delta.grad.sign()",
    ),
}
USED = {
    "nothing clears the gradients": ATTACK.replace("first", "model.train()").replace(
        "clear", "model.train()"
    ),
    "they are cleared before": ATTACK.replace("first", "optimizer.zero_grad()").replace("clear", "pass"),
    "they are cleared now and then": CLEARED.replace(
        "optimizer.zero", "if epoch:\n            optimizer.zero"
    ),
    "a step is made first": CLEARED.replace("x = attack(x, y)", "x = attack(x, y)\n        optimizer.step()"),
    "they are looked at": CLEARED.replace(
        "x = attack(x, y)", "x = attack(x, y)\n        print([p.grad for p in model.parameters()])"
    ),
    "gradients of the model are asked for, too": CLEARED.replace(
        "gradient = ", "print(model.classifier.weight.grad)\n    gradient = "
    ),
    "another model is cleared": CLEARED.replace("optimizer.zero", "criterion.zero"),
    "a call waits for its backward pass": ATTACK.replace("first", "clean = model(x)")
    .replace("clear", "optimizer.zero_grad()")
    .replace("loss = criterion(model(x), y)", "loss = criterion(model(x), y) + criterion(clean, y)"),
    "its output trains": CLEARED.replace(
        "x = attack(x, y)",
        "delta = torch.zeros_like(x, requires_grad=True)\n        out = model(x + delta)\n"
        "        criterion(out, y).backward(retain_graph=True)\n        x = x + delta.grad.sign()",
    ).replace("loss = criterion(model(x), y)", "loss = criterion(out, y)"),
}


@pytest.mark.parametrize("script", ATTACKS.values(), ids=ATTACKS)
def test_an_attack_asks_the_model_inside(script: str) -> None:
    script = NET + script
    text, reasons = migrate(rule, script)
    assert "criterion(model.module(x + delta), y)" in text
    assert (text.count("model.module"), reasons) == (1, [])


@pytest.mark.parametrize("script", USED.values(), ids=USED)
def test_an_attack_whose_gradients_are_used_goes_through_the_wrapper(script: str) -> None:
    script = NET + script
    assert migrate(rule, script) == (script, [])


def test_an_attack_on_a_model_with_statistics_of_the_batch_goes_through_the_wrapper() -> None:
    net = NET.replace("nn.Linear(4, 8)", "nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8))")
    assert migrate(rule, net + CLEARED) == (net + CLEARED, [])
    evaluating = net + CLEARED.replace("x = attack(x, y)", "model.eval()\n        x = attack(x, y)")
    assert "model.module(x + delta)" in migrate(rule, evaluating)[0]
