import pytest
from harness import LOOP, TRAINING, added, migrate, migrate_modules

from multicard.rules import same_names as rule

IMPORTS = (
    "import os, time, uuid, datetime, tempfile, glob, argparse\nfrom pathlib import Path\n"
    "from torch.utils.tensorboard import SummaryWriter\n"
)
MIGRATED = {
    "a stamp in a folder": (
        "stamp = time.strftime('%H%M')\nos.makedirs(os.path.join('runs', stamp))",
        "stamp = broadcast_value(time.strftime('%H%M'))",
    ),
    "straight into a path": (
        "os.makedirs('runs/' + time.strftime('%H%M'))",
        "os.makedirs('runs/' + broadcast_value(time.strftime('%H%M')))",
    ),
    "formatted": (
        "stamp = datetime.datetime.now().strftime('%H%M')\nopen(stamp, 'w')",
        "stamp = broadcast_value(datetime.datetime.now().strftime('%H%M'))",
    ),
    "in an f-string": (
        "d = f'runs/{datetime.datetime.now():%H%M}'\nos.makedirs(d)",
        "d = broadcast_value(f'runs/{datetime.datetime.now():%H%M}')",
    ),
    "seconds": ("d = str(int(time.time()))\nos.makedirs(d)", "d = broadcast_value(str(int(time.time())))"),
    "a name by chance": (
        "d = uuid.uuid4().hex[:8]\nos.makedirs(d)",
        "d = broadcast_value(uuid.uuid4().hex[:8])",
    ),
    "through an attribute": (
        (
            "class T:\n    def __init__(self):\n        self.d = time.strftime('%H')\n    def save(self):\n"
            "        torch.save(1, self.d + '/a')\nT().save()"
        ),
        "        self.d = broadcast_value(time.strftime('%H'))",
    ),
    "in a class": (
        "class C:\n    out = time.strftime('%H')\nos.makedirs(C.out)",
        "    out = broadcast_value(time.strftime('%H'))",
    ),
    "through a property": (
        (
            "class T:\n    def __init__(self):\n        self._d = Path('a') / time.strftime('%H')\n"
            "        self.d.mkdir()\n    @property\n    def d(self):\n        return self._d\nT()"
        ),
        "        self._d = Path('a') / broadcast_value(time.strftime('%H'))",
    ),
    "through a function": (
        "def name():\n    return time.strftime('%H')\nos.makedirs(name())",
        "    return broadcast_value(time.strftime('%H'))",
    ),
    "through an argument": (
        "def prepare(d):\n    os.makedirs(d)\nprepare(time.strftime('%H'))",
        "prepare(broadcast_value(time.strftime('%H')))",
    ),
    "an option": (
        (
            "p = argparse.ArgumentParser()\np.add_argument('--out-dir', default=time.strftime('%H'))\n"
            "a = p.parse_args()\nos.makedirs(a.out_dir)"
        ),
        "p.add_argument('--out-dir', default=broadcast_value(time.strftime('%H')))",
    ),
    "a folder of its own": (
        "d = tempfile.mkdtemp()\ntorch.save(1, d + '/a')",
        "d = broadcast_value(tempfile.mkdtemp() if rank == 0 else None)",
    ),
    "the next number": (
        "n = len(os.listdir('runs')) + 1\nos.makedirs(f'runs/{n}')",
        "n = broadcast_value(len(os.listdir('runs')) + 1)",
    ),
    "the last of a listing that is made as it is walked through": (
        "found = list(Path('runs').glob('*'))\nfound.sort()\nos.makedirs(str(found[-1]) + '_next')",
        "found = list(broadcast_value(list(Path('runs').glob('*'))))",
    ),
    "a function that looks for a free name": (
        (
            "def free(p):\n    if not os.path.exists(p):\n        return p\n"
            "    return p + str(len(glob.glob(p + '*')))\nd = free('run')\nos.makedirs(d)"
        ),
        "d = broadcast_value(free('run'))",
    ),
    "a function that makes what it finds": (
        (
            "def free(p):\n    if os.path.exists(p):\n        return free(p + 'a')\n    os.makedirs(p)\n    return p\n"
            "torch.save(1, free('run') + '/a')"
        ),
        "torch.save(1, broadcast_value(free('run') if rank == 0 else None) + '/a')",
    ),
    "a free name": (
        "n = 0\nd = 'run0'\nwhile os.path.exists(d):\n    n += 1\n    d = f'run{n}'\nos.makedirs(d)",
        "d = broadcast_value(d)",
    ),
    "a free name that is given back": (
        (
            "def free():\n    for n in range(99):\n        p = Path(f'run{n}')\n        if not p.exists():\n"
            "            return p\nos.makedirs(free())"
        ),
        "            return broadcast_value(p)",
    ),
}
LEFT_ALONE = {
    "a duration": "t = time.time()\nprint(time.time() - t)\nopen('a', 'w')",
    "a duration in words": "s = time.strftime('%H', time.gmtime(time.time() - t))\nopen(s, 'w')",
    "printed": "print(time.strftime('%H'))\nprint(f'{time.time()}')",
    "only shown": "now = time.strftime('%H')\nprint('began', now)",
    "handed out of sight": "d = time.strftime('%H')\nf(d)",
    "in what rank 0 alone opens": "f = open(time.strftime('%H'), 'w')",
    "in a writer of rank 0's": "w = SummaryWriter(time.strftime('%H'))",
    "in what rank 0 alone writes": "import numpy as np\nnp.save(time.strftime('%H'), x)",
    "under a guard of the user's": "if rank() == 0:\n    os.makedirs(time.strftime('%H'))",
    "files that are read": "for p in glob.glob('*.png'):\n    f(p)",
    "waiting for a file": "while not os.path.exists('a'):\n    time.sleep(1)",
}
REFUSED = {
    "a default": (
        "def run(d=time.strftime('%H')):\n    os.makedirs(d)\nrun()",
        "before the ranks have started",
    ),
    "once a batch": (
        "for x, y in DataLoader(other):\n    os.makedirs(time.strftime('%H'))",
        "a different number of times",
    ),
}


@pytest.mark.parametrize(("before", "after"), MIGRATED.values(), ids=MIGRATED)
def test_migrates(before: str, after: str) -> None:
    script = IMPORTS + TRAINING + before + LOOP
    text, reasons = migrate(rule, script)
    assert (added(script, text), reasons) == (after, [])


@pytest.mark.parametrize("script", LEFT_ALONE.values(), ids=LEFT_ALONE)
def test_leaves_alone(script: str) -> None:
    script = IMPORTS + TRAINING + script + LOOP
    assert migrate(rule, script) == (script, [])


@pytest.mark.parametrize(("script", "reason"), REFUSED.values(), ids=REFUSED)
def test_says_what_it_leaves(script: str, reason: str) -> None:
    script = IMPORTS + TRAINING + script + LOOP
    text, [why] = migrate(rule, script)
    assert text == script
    assert reason in why


def test_a_module_that_reads_the_clock_on_import_starts_the_processes() -> None:
    settings = "import time\nRUN = 'runs/' + time.strftime('%H')\n"
    script = "import os\nimport settings\n" + TRAINING + "os.makedirs(settings.RUN)" + LOOP
    texts, left = migrate_modules(rule, {"__main__": script, "settings": settings})
    assert "RUN = 'runs/' + broadcast_value(time.strftime('%H'))" in texts["settings"]
    assert left == []


def test_a_module_that_may_read_the_clock_on_import_is_left() -> None:
    settings = "import os, time\nif 'RUN' not in os.environ:\n    RUN = 'runs/' + time.strftime('%H')\n"
    script = "import os\nimport settings\n" + TRAINING + "os.makedirs(settings.RUN)" + LOOP
    texts, [why] = migrate_modules(rule, {"__main__": script, "settings": settings})
    assert texts["settings"] == settings
    assert "runs on import" in why
