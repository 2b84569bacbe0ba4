import pytest
from harness import LOOP, TRAINING, added, migrate, migrate_modules

from multicard.rules import load_everywhere as rule

LOADED = "model.load_state_dict(torch.load('a.pth', map_location=own_device()))"
MIGRATED = {
    "into a model": ("model.load_state_dict(torch.load('a.pth'))", LOADED),
    "the script's own device": (
        "DEVICE = torch.device('cuda')\nmodel.load_state_dict(torch.load('a.pth'))",
        "model.load_state_dict(torch.load('a.pth', map_location=DEVICE))",
    ),
    "a device that is a parameter": (
        "def restore(net, device):\n    net.load_state_dict(torch.load('a.pth'))\nrestore(model, 'cpu')",
        "    net.load_state_dict(torch.load('a.pth', map_location=device))",
    ),
    "a checkpoint with keys": (
        "state = torch.load(path)\nstart = state['epoch']\nmodel.load_state_dict(state['model'])",
        "state = torch.load(path, map_location=own_device())",
    ),
    "a checkpoint with the state of a generator": (
        "state = torch.load(path)\nmodel.load_state_dict(state['model'])\ntorch.set_rng_state(state['rng'])",
        "state = torch.load(path, map_location=own_device())\ntorch.set_rng_state(state['rng'].cpu())",
    ),
    "in a function that gives it back by a name": (
        (
            "def read(path):\n    found = torch.load(path)\n    print(path)\n    return found\n"
            "model.load_state_dict(read('a.pth')['net'])"
        ),
        "    found = torch.load(path, map_location=own_device())",
    ),
    "returned by a function": (
        "def read(path):\n    return torch.load(path)\nmodel.load_state_dict(read('a.pth'))",
        "    return torch.load(path, map_location=own_device())",
    ),
    "a whole model that this script saves": (
        (
            "path = 'a.pth'\ndef keep():\n    torch.save(model, path)\ndef judge(net):\n    return net(x)\n"
            "last = torch.load(path)\njudge(last)\nkeep()"
        ),
        "last = torch.load(path, map_location=own_device())",
    ),
    "a whole model": (
        "best = torch.load('a.pth')\nbest.eval()",
        "best = torch.load('a.pth', map_location=own_device())",
    ),
}
CPU = "model.load_state_dict(torch.load('a.pth', map_location='cpu'))"
SAVE = "torch.save(model.state_dict(), 'a.pth')\n"
WAITS = {
    "after a save": (SAVE + CPU, "dist.barrier()"),
    "before the test for the file": (
        SAVE + "import os\nif os.path.exists('a.pth'):\n    " + CPU,
        "dist.barrier()\nif",
    ),
    "before a test in the caller": (
        "import os\ndef restore():\n    " + CPU + "\n" + SAVE + "if os.path.exists('a.pth'):\n    restore()",
        "dist.barrier()\nif",
    ),
    "once for a row of loads": (
        SAVE
        + "torch.save(optimizer.state_dict(), 'b.pth')\n"
        + CPU
        + "\noptimizer.load_state_dict(torch.load('b.pth', 'cpu'))",
        "dist.barrier()",
    ),
    "in the same epochs": (
        "for epoch in range(2):\n    if epoch:\n        " + CPU + "\n    " + SAVE,
        "        dist.barrier()",
    ),
    "before the folder is listed": (
        "import glob, os\n"
        + SAVE
        + "newest = max(glob.glob('*.pth'), key=os.path.getmtime)\nprint(newest)\n"
        + CPU.replace("'a.pth'", "newest"),
        "dist.barrier()\nnewest = max",
    ),
    "before a try": (SAVE + "try:\n    " + CPU + "\nexcept OSError:\n    pass", "dist.barrier()\ntry"),
}
LEFT_ALONE = {
    "nothing was saved": CPU,
    "another file was saved": "torch.save(model.state_dict(), 'b.pth')\n" + CPU,
    "saved later": CPU + "\n" + SAVE,
    "a device by position": "model.load_state_dict(torch.load('a.pth', 'cpu'))",
    "arguments out of sight": "model.load_state_dict(torch.load('a.pth', **options))",
    "data": "rows = torch.load('rows.pt')\nprint(rows[0])",
    "data that this script saves": "rows = torch.load('r.pt')\nprint(rows[0])\ntorch.save([1, 2], 'r.pt')",
    "a data set's tensors": "a, b = torch.load('rows.pt')",
    "another load": "import json\nx = json.load(f)",
}


@pytest.mark.parametrize(("before", "after"), MIGRATED.values(), ids=MIGRATED)
def test_gives_each_rank_its_device(before: str, after: str) -> None:
    script = TRAINING + before + LOOP
    text, reasons = migrate(rule, script)
    assert (added(script, text), reasons) == (after, [])


@pytest.mark.parametrize(("before", "after"), WAITS.values(), ids=WAITS)
def test_waits_for_rank_0(before: str, after: str) -> None:
    script = TRAINING + LOOP + before
    text, reasons = migrate(rule, script)
    assert (added(script, text), reasons) == (after.partition("\n")[0], [])
    assert after in text


@pytest.mark.parametrize("script", LEFT_ALONE.values(), ids=LEFT_ALONE)
def test_leaves_alone(script: str) -> None:
    script = TRAINING + LOOP + script
    assert migrate(rule, script) == (script, [])


def test_does_not_wait_where_ranks_may_come_a_different_number_of_times() -> None:
    script = TRAINING + LOOP + SAVE + "model.eval()\nfor x, y in DataLoader(other):\n    model(x)\n    " + CPU
    text, [why] = migrate(rule, script)
    assert text == script
    assert "a different" in why or "different numbers" in why


def test_saves_in_a_local_module_count() -> None:
    helper = "import torch\ndef keep(net):\n    torch.save(net.state_dict(), 'a.pth')\n"
    script = "from keeping import keep\n" + TRAINING + LOOP + "keep(model)\n" + CPU
    texts, _ = migrate_modules(rule, {"__main__": script, "keeping": helper})
    assert added(script, texts["__main__"]) == "dist.barrier()"


def test_does_not_wait_in_a_branch_that_ranks_may_take_differently() -> None:
    branch = "if loss.item() < 1:\n    " + SAVE + "    print(torch.load('a.pth', map_location='cpu'))"
    script = TRAINING + LOOP + branch
    text, [why] = migrate(rule, script)
    assert text == script
    assert "ranks may take differently" in why


def test_waits_before_a_branch_that_ranks_may_take_differently() -> None:
    script = (
        TRAINING + LOOP + SAVE + "if loss.item() < 1:\n    print(torch.load('a.pth', map_location='cpu'))"
    )
    text, reasons = migrate(rule, script)
    assert reasons == []
    assert "dist.barrier()\nif loss.item() < 1:" in text


def test_waits_in_a_branch_that_all_ranks_take_together() -> None:
    script = TRAINING + LOOP + SAVE + "if loss.item() < 1:\n    " + CPU
    text, reasons = migrate(rule, script)
    assert reasons == []
    assert "if loss.item() < 1:\n    dist.barrier()\n    model.load" in text
