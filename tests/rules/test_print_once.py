import pytest
from harness import LOOP, TRAINING, added, migrate, migrate_modules

from multicard.rules import print_once as rule

MIGRATED = {
    "a call": ("print('a', b)", "print_log('a', b)"),
    "every argument stays": ("print(f(x), sep='', flush=True)", "print_log(f(x), sep='', flush=True)"),
    "a value": ("say = print", "say = print_log"),
    "handed to a function": ("run(callback=print)", "run(callback=print_log)"),
    "in an expression": ("debug and print(1)", "debug and print_log(1)"),
    "to the screen by name": ("import sys\nprint(1, file=sys.stderr)", "print_log(1, file=sys.stderr)"),
    "several in one line": ("print(1); print(2)", "print_log(1); print_log(2)"),
    "a lambda": ("say = lambda *a: print(*a)", "say = lambda *a: print_log(*a)"),
    "where it is expected to fail": (
        "try:\n    import apex\nexcept ImportError:\n    print('no apex')",
        "    print_log('no apex')",
    ),
    "written to the screen": (
        "import sys\nsys.stdout.write('a')\nsys.stdout.flush()",
        "if rank == 0:\n    sys.stdout.write('a')\n    sys.stdout.flush()",
    ),
    "pprint": ("from pprint import pprint\npprint(x)", "if rank == 0:\n    pprint(x)"),
    "loguru, line by line": (
        "from loguru import logger\nlogger.info('a')\nlogger.error('b')",
        "if rank == 0:\n    logger.info('a')",
    ),
    "a log file": (
        "import logging\nlogging.basicConfig(filename='a.log', level=10)",
        "logging.basicConfig(filename='a.log' if rank == 0 else os.devnull, level=10)",
    ),
    "a file handler": (
        "import logging\nhandler = logging.FileHandler(p if p else 'a.log')",
        "handler = logging.FileHandler((p if p else 'a.log') if rank == 0 else os.devnull)",
    ),
    "a log file may be named by its keyword": (
        "import logging\nhandler = logging.FileHandler(filename='a.log', mode='a')",
        "handler = logging.FileHandler(filename='a.log' if rank == 0 else os.devnull, mode='a')",
    ),
    "a question": (
        "name = input('name? ')",
        "name = broadcast_value(input('name? ') if rank == 0 else None)",
    ),
}
LEFT_ALONE = {
    "to a file": "print(1, file=log)",
    "an error that one rank may have": "try:\n    f()\nexcept ValueError as error:\n    print(error)",
    "any error": "try:\n    f()\nexcept:\n    print('failed')\n    raise",
    "under a guard of the user's": "if rank() == 0:\n    print(1)",
    "a function of the user's": "def print(x):\n    pass\nprint(1)",
    "another library's": "from mylog import print\nprint(1)",
    "a method": "table.print()",
    "a word in a string": "s = 'print(1)'",
    "flushing alone": "import sys\nsys.stdout.flush()",
    "errors by loguru": "from loguru import logger\nlogger.error('b')",
    "a stream handler": "import logging\nhandler = logging.StreamHandler()",
    "warnings": "import warnings\nwarnings.warn('a')",
}
REFUSED = {
    "a question in a loop": ("for i in range(3):\n    x = input()", "a different number of times"),
    "a pop inside": ("from pprint import pprint\nrows = []\npprint(rows.pop())", "changes an object"),
}


@pytest.mark.parametrize(("before", "after"), MIGRATED.values(), ids=MIGRATED)
def test_migrates(before: str, after: str) -> None:
    text, reasons = migrate(rule, TRAINING + before + LOOP)
    assert reasons == []
    assert added(TRAINING + before + LOOP, text) == after


@pytest.mark.parametrize("script", LEFT_ALONE.values(), ids=LEFT_ALONE)
def test_leaves_alone(script: str) -> None:
    assert migrate(rule, TRAINING + script + LOOP) == (TRAINING + script + LOOP, [])


@pytest.mark.parametrize(("script", "reason"), REFUSED.values(), ids=REFUSED)
def test_says_what_it_leaves(script: str, reason: str) -> None:
    text, [why] = migrate(rule, TRAINING + script + LOOP)
    assert text == TRAINING + script + LOOP
    assert reason in why


def test_loggers_are_quiet_on_other_ranks_from_the_start() -> None:
    script = "import logging\n" + TRAINING + "log = logging.getLogger()\nlog.info('a')" + LOOP
    text, reasons = migrate(rule, script)
    line = "logging.disable(logging.NOTSET if rank == 0 else logging.WARNING)"
    assert (added(script, text), reasons) == (line, [])
    assert text.index(line) < text.index("model = ")


def test_loggers_that_only_warn_are_left_alone() -> None:
    script = "import logging\n" + TRAINING + "logging.getLogger().warning('a')" + LOOP
    assert migrate(rule, script) == (script, [])


def test_local_modules_print_by_the_same_name_and_their_own_main_part_is_left() -> None:
    own = "def show(x):\n    print(x)\n\nif __name__ == '__main__':\n    print('alone')\n"
    script = "from shows import show\n" + TRAINING + "show(1)" + LOOP
    texts, reasons = migrate_modules(rule, {"__main__": script, "shows": own})
    assert (added(own, texts["shows"]), reasons) == ("    print_log(x)", [])
