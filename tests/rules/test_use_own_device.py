"""Each way in which real scripts name a card."""

import pytest
from harness import LOOP, TRAINING, added, migrate, migrate_modules

from multicard.rules import use_own_device as rule

OWN = 'f"cuda:{local_rank}"'
MIGRATED = {
    "as in the guide": (
        'device = torch.device("cuda" if torch.cuda.is_available() else "cpu")',
        f'device = torch.device({OWN} if torch.cuda.is_available() else "cpu")',
    ),
    "with a card's number": (
        'device = torch.device("cuda:0" if use_cuda else "cpu")',
        f'device = torch.device({OWN} if use_cuda else "cpu")',
    ),
    "without the choice": ("d = torch.device('cuda')", f"d = torch.device({OWN})"),
    "its own keyword": ("d = torch.device(device='cuda:2')", f"d = torch.device(device={OWN})"),
    "kind and number": ("d = torch.device('cuda', 0)", "d = torch.device('cuda', local_rank)"),
    "kind and an option": ("d = torch.device('cuda', args.gpu)", "d = torch.device('cuda', local_rank)"),
    "a number in a name": ("device = 'cuda:1' if cuda else 'cpu'", "device = \"cuda\" if cuda else 'cpu'"),
    "moved to a literal": ("model.to('cuda:0')", f"model.to({OWN})"),
    "moved to cuda": ("x = x.to('cuda', non_blocking=True)", f"x = x.to({OWN}, non_blocking=True)"),
    "moved to a number": ("model.to(0)", "model.to(local_rank)"),
    "moved to an option": ("model.to(args.gpu)", "model.to(local_rank)"),
    "cuda of a number": ("model.cuda(0)", "model.cuda()"),
    "cuda of an option": ("x = x.cuda(opt.gpu_id, non_blocking=True)", "x = x.cuda(non_blocking=True)"),
    "cuda of a keyword": ("model.cuda(device=1)", "model.cuda()"),
    "the current card": ("torch.cuda.set_device(0)", "torch.cuda.set_device(local_rank)"),
    "the current card of an option": (
        "if cuda:\n    torch.cuda.set_device(args.gpu)",
        "    torch.cuda.set_device(local_rank)",
    ),
    "an f-string": ('d = torch.device(f"cuda:{args.gpu}")', f"d = torch.device({OWN})"),
    "a sum of strings": ("d = torch.device('cuda:' + str(gpu))", f"d = torch.device({OWN})"),
    "a format": ("d = torch.device('cuda:{}'.format(gpu))", f"d = torch.device({OWN})"),
    "a percent": ("d = torch.device('cuda:%d' % gpu)", f"d = torch.device({OWN})"),
    "an f-string with a choice": (
        'd = torch.device(f"cuda:{args.gpu}" if args.gpu >= 0 else "cpu")',
        f'd = torch.device({OWN} if args.gpu >= 0 else "cpu")',
    ),
    "an option's default": (
        "import argparse\np = argparse.ArgumentParser()\np.add_argument('--device', default='cuda:0')",
        "p.add_argument('--device', default=\"cuda\")",
    ),
    "a parameter's default": (
        "def run(x, device='cuda:0'):\n    return x.to(device)",
        'def run(x, device="cuda"):',
    ),
    "a configuration": ("config = {'device': 'cuda:0'}", "config = {'device': \"cuda\"}"),
    "where tensors are made": ("x = torch.zeros(3, device='cuda:0')", f"x = torch.zeros(3, device={OWN})"),
    "where tensors are loaded": (
        "s = torch.load('a.pth', map_location='cuda:0')",
        f"s = torch.load('a.pth', map_location={OWN})",
    ),
    "the default device": ("torch.set_default_device('cuda')", f"torch.set_default_device({OWN})"),
    "a block for a card": ("with torch.cuda.device(1):\n    pass", "with torch.cuda.device(local_rank):"),
    "in a function": ("def move(x):\n    return x.to('cuda:0')", f"    return x.to({OWN})"),
}
OPTION = "import argparse\np = argparse.ArgumentParser()\np.add_argument('--device', choices={})\n"
MIGRATED |= {
    "several cards to choose from": (
        OPTION.format("['cpu', 'cuda:0', 'cuda:1', 'mps']"),
        "p.add_argument('--device', choices=['cpu', \"cuda\", 'mps'])",
    ),
    "a card with a number after one without": (
        OPTION.format("('cuda', 'cuda:0', 'cpu')"),
        "p.add_argument('--device', choices=('cuda', 'cpu'))",
    ),
    "one without a number last": (
        OPTION.format("{'cuda:1', 'cuda'}"),
        "p.add_argument('--device', choices={\"cuda\"})",
    ),
    "cards to choose from, one a line": (
        OPTION.format("[\n    'cuda:0',  # small\n    'cuda:1',  # large\n    'cpu',\n]"),
        '    "cuda",  # small\n      # large',
    ),
    "nothing but cards, in parentheses": (
        OPTION.format("('cuda:0', 'cuda:1')"),
        'p.add_argument(\'--device\', choices=("cuda", "cuda"))',
    ),
    "a name with a number that is asked for": (
        "d = 'cuda:0' if cuda else 'cpu'\nif d == 'cuda:0':\n    print(d in ['cuda:0', 'cpu'], d != 'cuda:1')",
        "d = \"cuda\" if cuda else 'cpu'\nif d == \"cuda\":\n    print(d in [\"cuda\", 'cpu'], d != 'cuda:1')",
    ),
}
LEFT_ALONE = {
    "a device whose name is asked for": "if str(device) == 'cuda:0':\n    print(device)",
    "cuda without a number as a name": "device = 'cuda' if torch.cuda.is_available() else 'cpu'",
    "moved to a device": "model.to(device)",
    "moved to another type": "x = x.to(torch.float32)",
    "cuda": "x = x.cuda()",
    "cuda without blocking": "x = x.cuda(non_blocking=True)",
    "a type": "Tensor = torch.cuda.FloatTensor if cuda else torch.FloatTensor",
    "the CPU": "device = torch.device('cpu')",
    "a comparison": "if device.type == 'cuda':\n    print(1)",
    "a prefix": "fast = name.startswith('cuda')",
    "autocast": "with torch.autocast('cuda'):\n    y = model(x)",
    "autocast by keyword": "with torch.amp.autocast(device_type='cuda', dtype=torch.float16):\n    y = model(x)",
    "a scaler": "scaler = torch.amp.GradScaler('cuda')",
    "a text": "print('cuda:0 is used')",
    "a text that is only the name": "print('cuda:0')",
    "the number of cards": "n = torch.cuda.device_count()",
    "a card's name": "print(torch.cuda.get_device_name(0))",
    "no cards at all": "import os\nos.environ['CUDA_VISIBLE_DEVICES'] = ''",
    "no cards by number": "import os\nos.environ['CUDA_VISIBLE_DEVICES'] = '-1'",
    "another variable": "import os\nos.environ['CUDA_LAUNCH_BLOCKING'] = '1'",
    "the accelerator's own": "device = torch.accelerator.current_accelerator()",
    "the model's own": "device = next(model.parameters()).device",
    "the local rank already": "torch.cuda.set_device(local_rank)",
    "a method of the script's called to": "class A:\n    def to(self, n):\n        return n\nA().to(0)",
}


@pytest.mark.parametrize(("before", "after"), MIGRATED.values(), ids=MIGRATED)
def test_migrates(before: str, after: str) -> None:
    script = TRAINING + before + LOOP
    text, reasons = migrate(rule, script)
    assert (added(script, text), reasons) == (after, [])


@pytest.mark.parametrize(
    "line",
    [
        "os.environ['CUDA_VISIBLE_DEVICES'] = '0'",
        'os.environ["CUDA_VISIBLE_DEVICES"] = args.gpu',
        "os.environ.setdefault('CUDA_VISIBLE_DEVICES', '0,1')",
        "os.putenv('CUDA_VISIBLE_DEVICES', '0')",
    ],
)
def test_visible_cards_are_chosen_outside(line: str) -> None:
    script = f"import os\n{line}\n" + TRAINING + LOOP
    assert migrate(rule, script) == (script.replace(f"{line}\n", ""), [])


@pytest.mark.parametrize("part", LEFT_ALONE.values(), ids=LEFT_ALONE)
def test_leaves_alone(part: str) -> None:
    script = TRAINING + part + LOOP
    assert migrate(rule, script) == (script, [])


def test_before_the_start_there_is_no_local_rank_yet() -> None:
    script = "import torch\ndef f(x, d=torch.device('cuda:0')): return x\n" + TRAINING + LOOP
    text, _ = migrate(rule, script)
    assert 'd=torch.device("cuda")' in text


def test_a_local_module_uses_the_current_card() -> None:
    script = (
        TRAINING.replace("import torch\n", "import torch\nimport moving\n", 1) + "moving.move(model)" + LOOP
    )
    moving = "import torch\n\n\ndef move(m):\n    torch.cuda.set_device(0)\n    return m.to(torch.device('cuda:0'))\n"
    texts, _ = migrate_modules(rule, {"__main__": script, "moving": moving})
    assert added(moving, texts["moving"]) == (
        '    torch.cuda.set_device(own_device())\n    return m.to(torch.device("cuda"))'
    )


def test_where_the_script_has_a_rank_of_its_own_the_runtime_is_asked() -> None:
    script = TRAINING + "rank = 3\nmodel.to(0)\nd = torch.device('cuda', 1)" + LOOP
    text, _ = migrate(rule, script)
    assert added(script, text) == "model.to(own_device())\nd = torch.device('cuda', own_device().index)"
