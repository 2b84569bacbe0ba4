import pytest
from harness import LOOP, NET, TRAINING, added, facts_of, migrate, migrate_modules

from multicard.plan import Kind
from multicard.rules import same_split as rule

IMPORTS = "import os, glob\nfrom pathlib import Path\n"
MIGRATED = {
    "a folder": ("files = os.listdir('d')\nuse(files)", "files = broadcast_value(os.listdir('d'))"),
    "a pattern": (
        "for f in glob.glob('*.png'):\n    use(f)",
        "for f in broadcast_value(glob.glob('*.png')):",
    ),
    "a path's files": (
        "files = [f for f in Path('d').iterdir()]",
        "files = [f for f in broadcast_value(list(Path('d').iterdir()))]",
    ),
    "in a data set": (
        "class D:\n    def __init__(self, root):\n        self.names = os.listdir(root)\nD('d')",
        "        self.names = broadcast_value(os.listdir(root))",
    ),
    "filtered": (
        "files = [f for f in os.listdir('d') if f.endswith('.png')]",
        "files = [f for f in broadcast_value(os.listdir('d')) if f.endswith('.png')]",
    ),
    "walked": (
        "for a, b, c in os.walk('d'):\n    use(c)",
        "for a, b, c in broadcast_value(list(os.walk('d'))):",
    ),
    "a list of a set": (
        "words = list(set(text.split()))",
        "words = broadcast_value(list(set(text.split())))",
    ),
    "a numbered set": (
        "ids = {w: i for i, w in enumerate(set(text.split()))}",
        "ids = {w: i for i, w in enumerate(broadcast_value(list(set(text.split()))))}",
    ),
    "sets put together": (
        "words = set(text.split()) | set(more.split())\nids = {w: i for i, w in enumerate(words)}",
        "ids = {w: i for i, w in enumerate(broadcast_value(list(words)))}",
    ),
    "a set that grows": (
        "words, ids = set(), {}\nfor row in rows:\n    words |= set(row)\nfor w in words - {'a'}:\n    ids[w] = 1",
        "for w in broadcast_value(list(words - {'a'})):",
    ),
    "sets united by a method": (
        "words = set.union(*[set(row) for row in rows])\nids = list(words.difference('a'))",
        "ids = broadcast_value(list(words.difference('a')))",
    ),
    "sets folded": (
        (
            "import functools\nwords = functools.reduce(lambda a, b: a | b, map(lambda row: set(row), rows))\n"
            "ids = list(words)"
        ),
        "ids = broadcast_value(list(words))",
    ),
    "a vocabulary that numbers what it is given": (
        "ids = {}\ndef add(w):\n    ids[w] = len(ids)\nfor w in set(text.split()):\n    add(w)",
        "for w in broadcast_value(list(set(text.split()))):",
    ),
    "numbered by zip": (
        "ids = dict(zip(set(text.split()), range(99)))\nuse(ids)",
        "ids = dict(zip(broadcast_value(list(set(text.split()))), range(99)))",
    ),
    "spread out in a list": (
        "ids = [*set(text.split()), 'a']\nuse(ids)",
        "ids = [*broadcast_value(list(set(text.split()))), 'a']",
    ),
    "joined to one text": (
        "letters = ''.join(set(text))\nuse(letters)",
        "letters = ''.join(broadcast_value(list(set(text))))",
    ),
    "a set with a name": (
        "words = set(text.split())\nids = {}\nfor w in words:\n    ids[w] = len(ids)",
        "for w in broadcast_value(list(words)):",
    ),
    "a tuple of a set": (
        "words = tuple({w for w in text.split()})",
        "words = broadcast_value(tuple({w for w in text.split()}))",
    ),
}
LEFT_ALONE = {
    "sorted": "files = sorted(os.listdir('d'))",
    "written by rank 0 alone": "import numpy as np\nnp.save('a', sorted(os.listdir('d')))",
    "sorted by a key": "files = sorted(glob.glob('*'), key=len)",
    "sorted afterwards": "files = os.listdir('d')\nfiles.sort()",
    "sorted when it is used": "files = os.listdir('d')\nuse(sorted(files))",
    "sorted in a comprehension": "files = sorted(f for f in os.listdir('d') if f)",
    "counted": "n = len(os.listdir('d'))",
    "searched": "there = 'a' in os.listdir('d')",
    "only tested": "if not os.listdir('d'):\n    use(1)",
    "deleted": "for f in os.listdir('d'):\n    os.remove(f)",
    "searched after it has grown": "names = os.listdir('d')\nnames = [*names, 'b']\nthere = 'a' in names",
    "a set that one process makes and writes": (
        "import pickle\ndef build(rows):\n    words = set()\n    for row in rows:\n        words |= set(row.split())\n"
        "    return {w: i for i, w in enumerate(list(words))}\n"
        "if os.path.exists('words.pkl'):\n    ids = pickle.load(open('words.pkl', 'rb'))\n"
        "else:\n    ids = build(rows)\n    pickle.dump(ids, open('words.pkl', 'wb'))"
    ),
    "a set of numbers": "n = list({1, 2, 3})",
    "a set that is searched": "words = set(text.split())\nok = 'a' in words",
    "a set that is shown": "words = set(text.split())\nprint(', '.join(words))",
    "numbers without one": "left = 3 | 4\nrows = list(range(left - 1))",
    "a sorted set": "words = sorted(set(text.split()))",
    "a set of a set": "words = set(list(set(text.split())))",
    "parameters": "for p in set(model.parameters()):\n    rows.append(p)",
    "under a guard of the user's": "if rank() == 0:\n    files = os.listdir('d')",
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


def test_listing_after_training_is_left_alone() -> None:
    script = IMPORTS + TRAINING + LOOP + "files = os.listdir('d')\nuse(files)"
    assert migrate(rule, script) == (script, [])


def test_a_listing_of_what_was_saved_is_that_of_rank_0_where_its_files_are_loaded() -> None:
    script = (
        IMPORTS
        + TRAINING
        + LOOP
        + "    torch.save(model.state_dict(), f'run/{epoch}.pt')\n"
        + "for path in sorted(glob.glob('run/*.pt')):\n    model.load_state_dict(torch.load(path))\n"
    )
    text, reasons = migrate(rule, script)
    assert (added(script, text), reasons) == (
        "for path in sorted(broadcast_value(glob.glob('run/*.pt'))):",
        [],
    )


def test_where_one_process_comes_first_a_listing_is_sorted() -> None:
    data = (
        "class D:\n    def __init__(self, download=False):\n        self.names = os.listdir('d')\n"
        "d = D(download=True)"
    )
    script = IMPORTS + TRAINING + data + LOOP
    text, reasons = migrate(rule, script)
    assert (added(script, text), reasons) == ("        self.names = sorted(os.listdir('d'))", [])


def test_a_set_that_is_met_in_training_is_sorted() -> None:
    script = IMPORTS + TRAINING + LOOP + "    words = list(set(text.split()))\n    use(words)\n"
    text, reasons = migrate(rule, script)
    assert (added(script, text), reasons) == ("    words = sorted(set(text.split()))", [])


def test_a_set_for_each_turn_of_a_loop_is_sorted() -> None:
    script = IMPORTS + TRAINING + "for key in table:\n    table[key] = list(set(table[key].split()))\n" + LOOP
    text, reasons = migrate(rule, script)
    assert (added(script, text), reasons) == ("    table[key] = sorted(set(table[key].split()))", [])


def test_a_module_that_lists_on_import_sorts() -> None:
    own = "import os\nNAMES = os.listdir('d')\n"
    script = "import names\n" + TRAINING + "use(names.NAMES)" + LOOP
    texts, _ = migrate_modules(rule, {"__main__": script, "names": own})
    assert texts["names"] == "import os\nNAMES = sorted(os.listdir('d'))\n"


def test_scanned_folders_are_left_to_the_reader() -> None:
    script = IMPORTS + TRAINING + "files = [e.path for e in os.scandir('d')]" + LOOP
    text, [why] = migrate(rule, script)
    assert text == script
    assert "any order" in why


def test_one_word_on_splits_but_none_on_what_is_drawn_for_a_batch() -> None:
    split = "train_set, val_set = torch.utils.data.random_split(data, [8, 2])\n"
    mixed = LOOP.replace("        loss =", "        x = x[torch.randperm(len(x))]\n        loss =", 1)
    assert [finding.kind for finding in rule.find(facts_of(NET + split + mixed))] == [Kind.NOTE]
    assert list(rule.find(facts_of(NET + mixed))) == []
