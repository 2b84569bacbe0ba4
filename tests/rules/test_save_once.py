import pytest
from harness import LOOP, TRAINING, added, migrate, migrate_modules

from multicard.rules import save_once as rule

MIGRATED = {
    "a state": ("torch.save(state, 'a.pth')", "save_checkpoint(state, 'a.pth')"),
    "its arguments stay": (
        "torch.save(obj=s, f=p, pickle_protocol=4)",
        "save_checkpoint(obj=s, f=p, pickle_protocol=4)",
    ),
    "by its own name": ("from torch import save\nsave(state, 'a.pth')", "save_checkpoint(state, 'a.pth')"),
    "handed on": ("run(torch.save)", "run(save_checkpoint)"),
    "the whole model": ("torch.save(model, 'a.pth')", "save_checkpoint(unwrap(model), 'a.pth')"),
    "in a dict": (
        "torch.save({'net': model, 'epoch': 1}, 'a.pth')",
        "save_checkpoint({'net': unwrap(model), 'epoch': 1}, 'a.pth')",
    ),
    "in a dict built before": (
        "state = {'net': model}\ntorch.save(state, 'a.pth')",
        "state = {'net': unwrap(model)}\nsave_checkpoint(state, 'a.pth')",
    ),
    "put into a dict": (
        "state = {}\nstate['net'] = model\ntorch.save(state, 'a.pth')",
        "state['net'] = unwrap(model)\nsave_checkpoint(state, 'a.pth')",
    ),
    "in a function of the user's": (
        "def keep(net, path):\n    torch.save(net, path)\nkeep(model, 'a.pth')",
        "    save_checkpoint(unwrap(net), path)",
    ),
    "in a dict made elsewhere": (
        "def state(net):\n    return dict(net=net)\ntorch.save(state(model), 'a.pth')",
        "    return dict(net=unwrap(net))\nsave_checkpoint(state(model), 'a.pth')",
    ),
    "pickled": ("import pickle\npickle.dump(model, f)", "pickle.dump(unwrap(model), f)"),
    "exported": (
        "torch.onnx.export(model, x, 'a.onnx')",
        "if rank == 0:\n    torch.onnx.export(unwrap(model), x, 'a.onnx')",
    ),
    "a name of the user's is kept": (
        "def save_checkpoint(state):\n    torch.save(state, 'a.pth')\nsave_checkpoint(s)",
        "    ddp_save_checkpoint(state, 'a.pth')",
    ),
}
LEFT_ALONE = {
    "under a guard of the user's": "if is_main_process():\n    torch.save(state, 'a.pth')",
    "another save": "numpy.save('a', x)",
    "a method": "logger.save(state)",
    "loading": "torch.load('a.pth')",
    "pickling data": "import pickle\npickle.dump(rows, f)",
}
REFUSED = {
    "a trainer that holds it": (
        "class T:\n    def __init__(self, net): self.net = net\nimport pickle\npickle.dump(T(model), f)",
        "holds the wrapped model",
    ),
    "a container that is used": (
        "nets = {'a': model}\nnets['a'](x)\nimport pickle\npickle.dump(nets, f)",
        "used otherwise",
    ),
    "in worker processes": (
        "from torch.utils.data import Dataset as D\nclass E(D):\n    def __getitem__(self, i): torch.save(i, 'a')",
        "worker processes",
    ),
}


@pytest.mark.parametrize(("before", "after"), MIGRATED.values(), ids=MIGRATED)
def test_migrates(before: str, after: str) -> None:
    script = TRAINING + LOOP + before
    text, reasons = migrate(rule, script)
    assert (added(script, text), reasons) == (after, [])


@pytest.mark.parametrize("script", LEFT_ALONE.values(), ids=LEFT_ALONE)
def test_leaves_alone(script: str) -> None:
    script = TRAINING + LOOP + script
    assert migrate(rule, script) == (script, [])


@pytest.mark.parametrize(("script", "reason"), REFUSED.values(), ids=REFUSED)
def test_says_what_it_leaves(script: str, reason: str) -> None:
    script = TRAINING + LOOP + script
    text, [why] = migrate(rule, script)
    assert text == script
    assert reason in why


def test_helpers_in_local_modules_save_once_too() -> None:
    helper = "import torch\n\n\ndef keep(state, path):\n    torch.save(state, path)\n"
    script = "from keeping import keep\n" + TRAINING + LOOP + "keep(model.state_dict(), 'a.pth')"
    texts, _ = migrate_modules(rule, {"__main__": script, "keeping": helper})
    assert added(helper, texts["keeping"]) == "    save_checkpoint(state, path)"


def test_torch_may_come_by_a_star_that_cannot_be_seen() -> None:
    script = (
        TRAINING.replace("import torch\n", "from lost import *\n", 1) + LOOP + "torch.save(state, 'a.pth')\n"
    )
    text, reasons = migrate(rule, script)
    assert (added(script, text), reasons) == ("save_checkpoint(state, 'a.pth')", [])
