import pytest
from harness import LOOP, TRAINING, added, migrate

from multicard.rules import finish_processes as rule

MAIN = "def main():\n    " + (TRAINING + LOOP).replace("\n", "\n    ").strip() + "\n\n\n"
MIGRATED = {
    "the end of the module": (TRAINING + LOOP, ""),
    "after what comes last": (TRAINING + LOOP + "print('done')\n", ""),
    "the end of the guard": (MAIN + "if __name__ == '__main__':\n    main()\n    print('done')\n", "    "),
    "after a call of main": (MAIN + "main()\n", ""),
    "without a last line end": (TRAINING + LOOP + "print('done')", ""),
    "after a last block": (TRAINING + LOOP + "if args.test:\n    print('tested')\n", ""),
}
LEFT_ALONE = {
    "it exits itself": MAIN + "if __name__ == '__main__':\n    import sys\n    sys.exit(main())\n",
    "it exits by the builtin": TRAINING + LOOP + "exit()\n",
    "it ends by an error": TRAINING + LOOP + "raise SystemExit(0)\n",
}


@pytest.mark.parametrize(("script", "indent"), MIGRATED.values(), ids=MIGRATED)
def test_migrates(script: str, indent: str) -> None:
    text, reasons = migrate(rule, script)
    assert (added(script, text), reasons) == (f"{indent}dist.destroy_process_group()", [])
    assert text.splitlines()[-1] == f"{indent}dist.destroy_process_group()"


@pytest.mark.parametrize("script", LEFT_ALONE.values(), ids=LEFT_ALONE)
def test_leaves_alone(script: str) -> None:
    assert migrate(rule, script) == (script, [])


def test_distributed_under_its_own_name_is_used() -> None:
    script = "import torch.distributed as td\n" + TRAINING + LOOP
    assert added(script, migrate(rule, script)[0]) == "td.destroy_process_group()"


def test_a_name_of_the_users_is_not_taken() -> None:
    script = TRAINING + LOOP + "dist = 3.0\n"
    text, _ = migrate(rule, script)
    assert "import torch.distributed as ddp_dist\n" in text
    assert text.endswith("ddp_dist.destroy_process_group()\n")
