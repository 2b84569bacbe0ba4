import pytest
from harness import LOOP, TRAINING, added, migrate

from multicard.rules import show_progress_once as rule

MIGRATED = {
    "round an iterable": ("for i in tqdm(x): f(i)", "for i in tqdm(x, disable=rank != 0): f(i)"),
    "with other arguments": (
        "bar = tqdm(total=3, desc='a')",
        "bar = tqdm(total=3, desc='a', disable=rank != 0)",
    ),
    "trange": ("for i in trange(3): f(i)", "for i in trange(3, disable=rank != 0): f(i)"),
    "by module": (
        "import tqdm as t\nfor i in t.tqdm(x): f(i)",
        "for i in t.tqdm(x, disable=rank != 0): f(i)",
    ),
    "tqdm.auto": ("from tqdm.auto import tqdm as b\nb(x)", "b(x, disable=rank != 0)"),
    "rich": ("from rich.progress import track\ntrack(x)", "track(x, disable=rank != 0)"),
    "a switch is kept": ("tqdm(x, disable=quiet)", "tqdm(x, disable=rank != 0 or quiet)"),
    "a switch of two parts": (
        "tqdm(x, disable=a if b else c)",
        "tqdm(x, disable=rank != 0 or (a if b else c))",
    ),
    "known options": ("o = {'ncols': 3}\ntqdm(x, **o)", "tqdm(x, **o, disable=rank != 0)"),
    "a partial": (
        "from functools import partial\nbar = partial(tqdm, ncols=3)\nbar(x)",
        "bar = partial(tqdm, ncols=3, disable=rank != 0)",
    ),
    "a class of its own": ("class Bar(tqdm): pass\nBar(x)", "Bar(x, disable=rank != 0)"),
    "a bare generator": ("tqdm(i for i in x)", "tqdm((i for i in x), disable=rank != 0)"),
    "text above bars, handed on": (
        "bar = tqdm(x)\nf(lambda text: bar.write(text))",
        "bar = tqdm(x, disable=rank != 0)\nf(lambda text: bar.write(text) if rank == 0 else None)",
    ),
    "a line above the bars": (
        "tqdm.write('a')\ntqdm.write('b')",
        "if rank == 0:\n    tqdm.write('a')\n    tqdm.write('b')",
    ),
}
LEFT_ALONE = {
    "another tqdm": "from mine import tqdm as bar\nbar(x)",
    "under a guard of the user's": "if is_main_process():\n    tqdm(x)",
    "a method of the bar": "bar.set_postfix(a=1)",
    "only imported": "bar = tqdm",
}
REFUSED = {
    "options out of sight": ("tqdm(x, **options)", "`**` may hold"),
    "options with a switch": ("o = {'disable': True}\ntqdm(x, **o)", "`**` may hold"),
    "a bar without a switch": ("import progressbar\nprogressbar.progressbar(x)", "no switch"),
    "a class that sets itself up": (
        "class Bar(tqdm):\n    def __init__(self): super().__init__(total=3)\nBar()",
        "its class decides",
    ),
    "its count is read": ("bar = tqdm(x)\nwhile bar.n < 3: f()", "its count is read"),
}
IMPORTS = "from tqdm import tqdm, trange\n"


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
