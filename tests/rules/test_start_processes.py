"""Where the processes start: before anything that uses a device, writes or prints, and not when only imported."""

import pytest
from harness import LOOP, TRAINING, migrate, migrate_modules

from multicard.rules import start_processes as rule

NAMES = "local_rank, rank, world_size = setup_ddp()"
MAIN = TRAINING.replace("\nmodel", "\n\ndef main():\n    model").replace(
    "\noptimizer", "\n    optimizer"
).replace("\nloader", "\n    loader") + LOOP.replace("\n", "\n    ").rstrip(" ")
BEFORE = {
    "the first statement that does something": (TRAINING + LOOP, "model = nn.Linear(4, 2)"),
    "cuDNN's settings, as in the guide": (
        "import torch\ntorch.backends.cudnn.benchmark = True\n" + TRAINING + LOOP,
        "torch.backends.cudnn.benchmark = True",
    ),
    "the seed": ("import torch\ntorch.manual_seed(0)\n" + TRAINING + LOOP, "torch.manual_seed(0)"),
    "options, after constants": (
        "EPOCHS = 3\nNAMES = ['a', 'b']\nimport argparse\nargs = argparse.ArgumentParser().parse_args()\n"
        + TRAINING
        + LOOP,
        "args = argparse.ArgumentParser().parse_args()",
    ),
    "what follows imports that may fail": (
        "try:\n    import wandb\nexcept ImportError:\n    wandb = None\nprint('start')\n" + TRAINING + LOOP,
        "print('start')",
    ),
    "what follows the environment's settings": (
        "import os\nos.environ['OMP_NUM_THREADS'] = '1'\nprint('start')\n" + TRAINING + LOOP,
        "print('start')",
    ),
    "what follows functions and classes": (
        "def f():\n    return 1\n\n\nclass A:\n    b = f()\n\n\nprint(A.b)\n" + TRAINING + LOOP,
        "print(A.b)",
    ),
    "the call of main": (MAIN + "\n\nmain()\n", "main()"),
    "the first line under the guard": (
        MAIN + "\n\nif __name__ == '__main__':\n    print('start')\n    main()\n",
        "    print('start')",
    ),
    "the docstring and the future stay first": (
        '"""Trains."""\nfrom __future__ import annotations\nprint(1)\n' + TRAINING + LOOP,
        "print(1)",
    ),
    "cells of a notebook": (
        "# In[1]:\nimport torch\n# In[2]:\ntorch.manual_seed(1)\n" + TRAINING + LOOP,
        "torch.manual_seed(1)",
    ),
}


@pytest.mark.parametrize(("script", "line"), BEFORE.values(), ids=BEFORE)
def test_the_processes_start_before(script: str, line: str) -> None:
    text, reasons = migrate(rule, script)
    lines = text.splitlines()
    indent = line[: len(line) - len(line.lstrip())]
    assert lines.count(indent + NAMES) == 1
    assert lines[lines.index(indent + NAMES) + 1] == line
    assert reasons == []


def test_a_guard_on_one_line_is_opened() -> None:
    text, _ = migrate(rule, MAIN + "\n\nif __name__ == '__main__': main()\n")
    assert text.replace(": \n", ":\n").endswith(f"if __name__ == '__main__':\n    {NAMES}\n    main()\n")


@pytest.mark.parametrize("name", ["rank", "local_rank", "world_size"])
def test_a_name_that_the_script_uses_is_not_taken(name: str) -> None:
    text, _ = migrate(rule, TRAINING + LOOP + f"{name} = 1\n")
    assert "setup_ddp()\nmodel = " in text
    assert "= setup_ddp()" not in text


def test_a_local_module_that_acts_when_imported_comes_after_the_start() -> None:
    script = TRAINING.replace("import torch\n", "import torch\nfrom paths import out\n", 1) + LOOP
    texts, _ = migrate_modules(
        rule, {"__main__": script, "paths": "import os\nout = 'runs'\nos.makedirs(out)\n"}
    )
    assert f"{NAMES}\nfrom paths import out\n" in texts["__main__"]
    assert texts["paths"] == "import os\nout = 'runs'\nos.makedirs(out)\n"


def test_a_local_module_that_only_defines_stays_among_the_imports() -> None:
    script = TRAINING.replace("import torch\n", "import torch\nfrom paths import out\n", 1) + LOOP
    texts, _ = migrate_modules(rule, {"__main__": script, "paths": "out = 'runs'\n"})
    assert f"{NAMES}\nmodel = " in texts["__main__"]
