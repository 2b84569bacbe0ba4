"""Each way in which a training loader is made."""

import pytest
from harness import LOOP, TRAINING, added, migrate, migrate_modules

from multicard.rules import shard_training_data as rule

HEAD = TRAINING.replace("loader = DataLoader(data, 8, shuffle=True)\n", "")
EVALUATION = """
with torch.no_grad():
    for x, y in val_loader:
        hits += (model(x).argmax(1) == y).sum().item()
print(hits)
"""
DEAL = "DistributedSampler(data, shuffle=True)"
MIGRATED = {
    "as in the guide": (
        "loader = DataLoader(data, 32, shuffle=True, num_workers=4, pin_memory=True, drop_last=True)",
        f"loader = DataLoader(data, 32, sampler={DEAL}, num_workers=4, pin_memory=True, drop_last=True)",
    ),
    "by keywords": (
        "loader = DataLoader(dataset=data, batch_size=32, shuffle=True)",
        f"loader = DataLoader(dataset=data, batch_size=32, sampler={DEAL})",
    ),
    "by position": ("loader = DataLoader(data, 32, True)", f"loader = DataLoader(data, 32, sampler={DEAL})"),
    "by position, with others behind": (
        "loader = DataLoader(data, 32, True, None, None, 4)",
        f"loader = DataLoader(data, 32, None, {DEAL}, None, 4)",
    ),
    "no shuffle means False": (
        "loader = DataLoader(data, 32)",
        "loader = DataLoader(data, 32, sampler=DistributedSampler(data, shuffle=False))",
    ),
    "shuffle may be an expression": (
        "loader = DataLoader(data, 32, shuffle=not args.fixed)",
        "loader = DataLoader(data, 32, sampler=DistributedSampler(data, shuffle=not args.fixed))",
    ),
    "a generator draws the order": (
        "loader = DataLoader(data, 32, shuffle=True, generator=g)",
        "loader = DataLoader(data, 32, sampler=DistributedSampler(data, shuffle=True, generator=g), generator=g)",
    ),
    "no sampler is none": (
        "loader = DataLoader(data, 32, shuffle=True, sampler=None)",
        f"loader = DataLoader(data, 32, shuffle=None, sampler={DEAL})",
    ),
    "by its long name": (
        "loader = torch.utils.data.DataLoader(data, shuffle=True)",
        f"loader = torch.utils.data.DataLoader(data, sampler={DEAL})",
    ),
    "a weighted sampler is dealt out": (
        (
            "from torch.utils.data import WeightedRandomSampler\n"
            "loader = DataLoader(data, 32, sampler=WeightedRandomSampler(w, 99))"
        ),
        "loader = DataLoader(data, 32, sampler=ShardedSampler(WeightedRandomSampler(w, 99)))",
    ),
    "a sampler of the script's own": (
        (
            "class Mine(torch.utils.data.Sampler):\n    def __iter__(self): return iter(range(9))\n"
            "mine = Mine(data)\nloader = DataLoader(data, sampler=mine, batch_size=4)"
        ),
        "loader = DataLoader(data, sampler=ShardedSampler(mine), batch_size=4)",
    ),
    "a sampler or none": (
        (
            "sampler = torch.utils.data.SubsetRandomSampler(part) if part else None\n"
            "loader = DataLoader(data, 32, shuffle=(sampler is None), sampler=sampler)"
        ),
        (
            "loader = DataLoader(data, 32, shuffle=(None), sampler=ShardedSampler(sampler) if sampler is not None else"
            " DistributedSampler(data, shuffle=sampler is None))"
        ),
    ),
    "whole batches": (
        "loader = DataLoader(data, batch_sampler=BucketSampler(data, 32))",
        "loader = DataLoader(data, batch_sampler=ShardedBatchSampler(BucketSampler(data, 32)))",
    ),
    "a stream": (
        (
            "class Stream(torch.utils.data.IterableDataset):\n    def __iter__(self): yield 1\n"
            "loader = DataLoader(Stream(), batch_size=8)"
        ),
        "loader = DataLoader(ShardedIterable(Stream()), batch_size=8)",
    ),
    "a corpus that is a stream": (
        "from torchtext.datasets import AG_NEWS\nstream, rest = AG_NEWS()\nloader = DataLoader(stream, batch_size=8)",
        "loader = DataLoader(ShardedIterable(stream), batch_size=8)",
    ),
    "a data set that is streamed": (
        (
            "from datasets import load_dataset\nstreams = load_dataset('imdb', streaming=True)\n"
            "loader = DataLoader(streams['train'].map(tidy).with_format('torch'), batch_size=8)"
        ),
        "loader = DataLoader(ShardedIterable(streams['train'].map(tidy).with_format('torch')), batch_size=8)",
    ),
    "a stream read into a list": (
        "from torchtext.datasets import AG_NEWS\nrows = list(AG_NEWS(split='train'))\nloader = DataLoader(rows, 8)",
        "loader = DataLoader(rows, 8, sampler=DistributedSampler(rows, shuffle=False))",
    ),
    "a data set made in the call is made once": (
        "loader = DataLoader(MNIST('.', train=True), 32, shuffle=True)",
        (
            "loader = DataLoader(train_set := MNIST('.', train=True), 32,"
            " sampler=DistributedSampler(train_set, shuffle=True))"
        ),
    ),
    "a data set made in the call by keyword": (
        "loader = DataLoader(dataset=MNIST('.'), shuffle=True)",
        "loader = DataLoader(dataset=(train_set := MNIST('.')), sampler=DistributedSampler(train_set, shuffle=True))",
    ),
    "a data set that is an attribute": (
        "loader = DataLoader(args.data, 32, shuffle=True)",
        "loader = DataLoader(args.data, 32, sampler=DistributedSampler(args.data, shuffle=True))",
    ),
    "a data set in a dict": (
        "loader = DataLoader(sets['train'], 32, shuffle=True)",
        "loader = DataLoader(sets['train'], 32, sampler=DistributedSampler(sets['train'], shuffle=True))",
    ),
    "options that do not shuffle": (
        "options = {'num_workers': 4}\nloader = DataLoader(data, 32, shuffle=True, **options)",
        f"loader = DataLoader(data, 32, sampler={DEAL}, **options)",
    ),
    "batches of its own in a dict of arguments": (
        "options = dict(batch_sampler=Buckets(data), num_workers=4)\nloader = DataLoader(data, **options)",
        (
            'loader = DataLoader(data, **{**options, "batch_sampler": ShardedBatchSampler(options["batch_sampler"])})'
        ),
    ),
    "a sampler of its own in a dict of arguments": (
        "options = {'sampler': Weighted(data)}\nloader = DataLoader(data, 8, **options)",
        'loader = DataLoader(data, 8, **{**options, "sampler": ShardedSampler(options["sampler"])})',
    ),
    "options that shuffle": (
        "options = {'shuffle': True, 'num_workers': 4}\nloader = DataLoader(data, 32, **options)",
        (
            'loader = DataLoader(data, 32, **{**options, "shuffle": None},'
            ' sampler=DistributedSampler(data, shuffle=options.get("shuffle", False)))'
        ),
    ),
    "a second name": (
        "from torch.utils.data import DataLoader as DL\nloader = DL(data, 32, shuffle=True)",
        f"loader = DL(data, 32, sampler={DEAL})",
    ),
    "over lines, with comments": (
        "loader = DataLoader(\n    data,  # all of it\n    32,\n    shuffle=True,  # each epoch anew\n)",
        f"    sampler={DEAL},  # each epoch anew",
    ),
    "in a function": (
        "def build(data):\n    return DataLoader(data, 32, shuffle=True)\nloader = build(everything)",
        f"    return DataLoader(data, 32, sampler={DEAL})",
    ),
    "named at run time": (
        "loader = getattr(torch.utils.data, 'DataLoader')(data, 32, shuffle=True)",
        f"loader = getattr(torch.utils.data, 'DataLoader')(data, 32, sampler={DEAL})",
    ),
    "a class of the script's": (
        (
            "class Loader(DataLoader):\n    def __init__(self, data):\n"
            "        super().__init__(data, 32, shuffle=True)\n"
            "loader = Loader(data)"
        ),
        f"        super().__init__(data, 32, sampler={DEAL})",
    ),
    "a class of the script's that hands on what it is given": (
        (
            "class Loader(DataLoader):\n    def __init__(self, *args, **kwargs):\n"
            "        kwargs['collate_fn'] = list\n        super().__init__(*args, **kwargs)\n"
            "loader = Loader(data, batch_size=8, shuffle=True)"
        ),
        f"loader = Loader(data, batch_size=8, sampler={DEAL})",
    ),
    "arguments bound before": (
        "from functools import partial\nmake = partial(DataLoader, batch_size=8)\nloader = make(data, shuffle=True)",
        f"loader = make(data, sampler={DEAL})",
    ),
}
BOTH = {
    "one function, told by its argument": (
        (
            "def build(data, train):\n    return DataLoader(data, 8, shuffle=train)\n"
            "loader, val_loader = build(a, True), build(b, False)"
        ),
        (
            "    return DataLoader(data, 8, sampler=DistributedSampler(data, shuffle=train) if train else"
            " EvalSampler(data, 8))"
        ),
    ),
    "one comprehension, told by its key": (
        (
            "loaders = {k: DataLoader(sets[k], batch_size=8, shuffle=True) for k in ['train', 'val']}\n"
            "loader, val_loader = loaders['train'], loaders['val']"
        ),
        (
            "loaders = {k: DataLoader(sets[k], batch_size=8,"
            ' sampler=DistributedSampler(sets[k], shuffle=True) if k == "train" else EvalSampler(sets[k], 8))'
            " for k in ['train', 'val']}"
        ),
    ),
    "one comprehension that shuffles by its key": (
        (
            "loaders = {k: DataLoader(sets[k], 8, shuffle=k == 'train') for k in ('train', 'val')}\n"
            "loader, val_loader = loaders['train'], loaders['val']"
        ),
        (
            "loaders = {k: DataLoader(sets[k], 8, sampler=DistributedSampler(sets[k], shuffle=k == 'train')"
            " if k == \"train\" else EvalSampler(sets[k], 8)) for k in ('train', 'val')}"
        ),
    ),
    "one function, told by a word": (
        (
            "def build(split):\n    data = Data(split)\n    return DataLoader(data, 8, shuffle=True)\n"
            "loader, val_loader = build('train'), build(split='test')"
        ),
        (
            '    return DataLoader(data, 8, sampler=DistributedSampler(data, shuffle=True) if split == "train" else'
            " EvalSampler(data, 8))"
        ),
    ),
}
LEFT_ALONE = {
    "a loader that nothing trains on": "other = DataLoader(rest, 8, shuffle=True)\n",
    "a class of the script's own of that name": "class DataLoader:\n    def __iter__(self): yield 1, 2\n"
    "loader = DataLoader()\n",
    "lists of batches": "loader = [(x, y) for x, y in pairs]\n",
    "batches of another library": "import loaders\nloader = loaders.make(data, shuffle=True)\n",
}
REFUSED = {
    "arguments out of sight": ("loader = DataLoader(*parts)", "cannot be seen"),
    "a class of the script's that changes what it is given": (
        (
            "class Loader(DataLoader):\n    def __init__(self, *args, **kwargs):\n        kwargs['shuffle'] = True\n"
            "        super().__init__(*args, **kwargs)\nloader = Loader(data, batch_size=8)"
        ),
        "cannot be seen",
    ),
    "two dicts of arguments": ("loader = DataLoader(data, **a, **b)", "cannot be seen"),
    "arguments that are computed": ("loader = DataLoader(**options())", "cannot be seen"),
}


@pytest.mark.parametrize(("before", "after"), MIGRATED.values(), ids=MIGRATED)
def test_migrates(before: str, after: str) -> None:
    script = HEAD + before + LOOP
    text, reasons = migrate(rule, script)
    assert (added(script, text), reasons) == (after, [])


@pytest.mark.parametrize(("before", "after"), BOTH.values(), ids=BOTH)
def test_one_place_that_makes_both_kinds(before: str, after: str) -> None:
    script = HEAD + before + LOOP + "hits = 0" + EVALUATION
    text, reasons = migrate(rule, script)
    assert (added(script, text), reasons) == (after, [])


@pytest.mark.parametrize("part", LEFT_ALONE.values(), ids=LEFT_ALONE)
def test_leaves_alone(part: str) -> None:
    script = HEAD + part + LOOP
    assert migrate(rule, script) == (script, [])


def test_leaves_evaluation_to_its_own_rule() -> None:
    script = TRAINING + "val_loader = DataLoader(val_set, 8)" + LOOP + "hits = 0" + EVALUATION
    text, _ = migrate(rule, script)
    assert added(script, text) == f"loader = DataLoader(data, 8, sampler={DEAL})"


@pytest.mark.parametrize(("part", "reason"), REFUSED.values(), ids=REFUSED)
def test_says_what_it_leaves(part: str, reason: str) -> None:
    script = HEAD + part + LOOP
    text, [why] = migrate(rule, script)
    assert text == script
    assert reason in why


def test_one_place_that_makes_both_kinds_and_does_not_tell_them_apart() -> None:
    script = (
        HEAD
        + "def build(data):\n    return DataLoader(data, 8, shuffle=True)\nloader, val_loader = build(a), build(b)"
        + LOOP
        + "hits = 0"
        + EVALUATION
    )
    text, reasons = migrate(rule, script)
    assert reasons == []
    assert added(script, text) == f"    return DataLoader(data, 8, sampler={DEAL})"


def test_a_loader_of_a_local_module() -> None:
    script = (
        HEAD.replace("import torch\n", "import torch\nfrom feeding import build\n", 1)
        + "loader = build(8)"
        + LOOP
    )
    feeding = (
        "from torch.utils.data import DataLoader\n\n\ndef build(n):\n    data = Data()\n"
        "    return DataLoader(data, n, shuffle=True)\n"
    )
    texts, reasons = migrate_modules(rule, {"__main__": script, "feeding": feeding})
    assert added(feeding, texts["feeding"]) == f"    return DataLoader(data, n, sampler={DEAL})"
    assert (texts["__main__"], reasons) == (script, [])


def test_the_names_of_the_helpers_are_not_taken_from_the_script() -> None:
    script = HEAD + "class DistributedSampler: ...\nloader = DataLoader(data, 8, shuffle=True)" + LOOP
    text, _ = migrate(rule, script)
    assert "from ddp_runtime import DistributedSampler as DistributedSampler_\n" in text
    assert "sampler=DistributedSampler_(data, shuffle=True)" in text
