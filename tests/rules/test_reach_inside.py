"""The model's own attributes are reached through the wrapper, and only there."""

import pytest
from harness import LOOP, NET, added, migrate, migrate_modules

from multicard.rules import reach_inside as rule

MIGRATED = {
    "freezing, as in the guide": (
        "for p in model.features.parameters():\n    p.requires_grad = False",
        "for p in model.module.features.parameters():",
    ),
    "an optimizer of a part": (
        "optimizer = torch.optim.AdamW(model.classifier.parameters())",
        "optimizer = torch.optim.AdamW(model.module.classifier.parameters())",
    ),
    "a number that it keeps": ("print(model.n_classes)", "print(model.module.n_classes)"),
    "a method of its own": ("hidden = model.init_hidden(8)", "hidden = model.module.init_hidden(8)"),
    "its state": ("state = model.state_dict()", "state = model.module.state_dict()"),
    "its state, loaded": ("model.load_state_dict(state)", "model.module.load_state_dict(state)"),
    "parameters by name": (
        "decay = [p for n, p in model.named_parameters() if 'bias' not in n]",
        "decay = [p for n, p in model.module.named_parameters() if 'bias' not in n]",
    ),
    "what it keeps, taken away": ("del model.seen[:]", "del model.module.seen[:]"),
    "its children": (
        "for part in model.children():\n    print(part)",
        "for part in model.module.children():",
    ),
    "a number is counted up": ("model.seen = model.seen + 8", "model.module.seen = model.module.seen + 8"),
    "named at run time": ("layer = getattr(model, 'features')", "layer = getattr(model.module, 'features')"),
    "twice on a line": (
        "print(model.features, model.classifier)",
        "print(model.module.features, model.module.classifier)",
    ),
    "in a function": (
        "def size(net):\n    return net.n_classes\nsize(model)",
        "    return net.module.n_classes",
    ),
    "in a function that sees it bare too": (
        "def size(net):\n    return net.n_classes\nsize(model)\nsize(Net())",
        "    return unwrap(net).n_classes",
    ),
    "in a loop over models": (
        "for net in [model]:\n    torch.save(net.state_dict(), 'a.pth')",
        "    torch.save(net.module.state_dict(), 'a.pth')",
    ),
    "copied": ("import copy\nbest = copy.deepcopy(model)", "best = copy.deepcopy(model.module)"),
    "averaged": (
        "from torch.optim.swa_utils import AveragedModel\nswa = AveragedModel(model)\nswa.update_parameters(model)",
        "swa = AveragedModel(model.module)",
    ),
    "asked for the model's class": ("print(isinstance(model, Net))", "print(isinstance(model.module, Net))"),
    "asked for one of several classes": (
        "print(isinstance(model, (Net, nn.Linear)))",
        "print(isinstance(model.module, (Net, nn.Linear)))",
    ),
    "the name of its class": (
        "state = {'arch': type(model).__name__}\nname = model.__class__.__name__",
        "state = {'arch': type(model.module).__name__}\nname = model.module.__class__.__name__",
    ),
    "asked for a part": ("print(hasattr(model, 'features'))", "print(hasattr(model.module, 'features'))"),
    "as a text": ("log.write(str(model))", "log.write(str(model.module))"),
    "printed": ("print(model)", "print(model.module)"),
    "in a formatted text": (
        "log.write(f'net {model!r}, {len(y)}')",
        "log.write(f'net {model.module!r}, {len(y)}')",
    ),
    "behind a percent sign": ("log.write('net: %s' % model)", "log.write('net: %s' % model.module)"),
    "behind one of several": (
        "log.write('%d %s' % (3, model))",
        "log.write('%d %s' % (3, model.module))",
    ),
    "formatted": ("log.write('net: {}'.format(model))", "log.write('net: {}'.format(model.module))"),
    "printed with others": ("print('net', model, sep=': ')", "print('net', model.module, sep=': ')"),
    "every module": (
        "for m in model.modules():\n    print(type(m))",
        "for m in model.module.modules():",
    ),
    "its modules counted": ("n = len([*model.modules()])", "n = len([*model.module.modules()])"),
    "its modules by number": (
        "for i, m in enumerate(model.modules()):\n    if isinstance(m, nn.Linear):\n        print(i)",
        "for i, m in enumerate(model.module.modules()):",
    ),
    "drawn": ("from torchsummary import summary\nsummary(model, (4,))", "summary(model.module, (4,))"),
    "exported": ("traced = torch.jit.trace(model, x)", "traced = torch.jit.trace(model.module, x)"),
}
LEFT_ALONE = {
    "called": "y = model(x)",
    "its mode": "model.train()\nmodel.eval()",
    "its parameters": "n = sum(p.numel() for p in model.parameters())",
    "clipped": "torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)",
    "its gradients": "model.zero_grad()",
    "moved": "model.to(device)",
    "its parameters frozen": "model.requires_grad_(False)",
    "whether it trains": "print(model.training)",
    "every module of a class": "for m in model.modules():\n    if isinstance(m, nn.Linear):\n        m.eval()",
    "the modules of a class": "linear = [m for m in model.modules() if isinstance(m, nn.Linear)]",
    "asked whether it is a module": "print(isinstance(model, nn.Module))",
    "asked for a wrapper": "inner = model.module if isinstance(model, nn.DataParallel) else model",
    "asked for a wrapper by its attribute": "inner = model.module if hasattr(model, 'module') else model",
    "another model": "other = Net()\nprint(other.features, other.state_dict())",
    "a part of it": "print(other_net.features)",
}


@pytest.mark.parametrize(("part", "after"), MIGRATED.values(), ids=MIGRATED)
def test_migrates(part: str, after: str) -> None:
    script = NET + LOOP + part
    text, reasons = migrate(rule, script)
    assert (added(script, text), reasons) == (after, [])


@pytest.mark.parametrize("part", LEFT_ALONE.values(), ids=LEFT_ALONE)
def test_leaves_alone(part: str) -> None:
    script = NET + LOOP + part
    assert migrate(rule, script) == (script, [])


@pytest.mark.parametrize(
    "part", ["model.classifier = nn.Linear(8, 3)\n", "model.features.to(device)\nmodel.cuda()\n"]
)
def test_leaves_alone_what_comes_before_the_wrapper(part: str) -> None:
    before, model, after = NET.partition("model = Net()\n")
    script = before + model + part + after + LOOP
    assert migrate(rule, script) == (script, [])


def test_inside_the_model_nothing_changes() -> None:
    script = (
        NET.replace("return self.classifier(", "print(self.n_classes)\n        return self.classifier(")
        + LOOP
    )
    assert migrate(rule, script) == (script, [])


def test_names_in_the_state_of_a_compiled_model_have_no_prefix() -> None:
    script = NET.replace("model = Net()", "model = torch.compile(Net())") + LOOP
    text, _ = migrate(rule, script + "state = model.state_dict()\nprint(model.n_classes)")
    assert "state = unwrap(model).state_dict()\nprint(model.module.n_classes)" in text


def test_what_data_parallel_made_the_script_write_stays() -> None:
    script = NET.replace("model = Net()\n", "model = Net()\nmodel = nn.DataParallel(model)\n") + LOOP
    script += "torch.save(model.module.state_dict(), 'a.pth')\n"
    assert migrate(rule, script) == (script, [])


def test_a_trainer_in_another_module() -> None:
    trainer = (
        "import torch\n\n\nclass Trainer:\n    def __init__(self, model, loader, optimizer):\n"
        "        self.model, self.loader, self.optimizer = model, loader, optimizer\n\n"
        "    def fit(self):\n        for epoch in range(3):\n            for x, y in self.loader:\n"
        "                self.model(x).sum().backward()\n                self.optimizer.step()\n"
        "            torch.save(self.model.state_dict(), 'last.pth')\n"
    )
    script = "from engine import Trainer\n" + NET + "Trainer(model, loader, optimizer).fit()\n"
    texts, reasons = migrate_modules(rule, {"__main__": script, "engine": trainer})
    assert (
        added(trainer, texts["engine"])
        == "            torch.save(self.model.module.state_dict(), 'last.pth')"
    )
    assert (texts["__main__"], reasons) == (script, [])
