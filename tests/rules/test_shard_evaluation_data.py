"""Which evaluation loaders are dealt out, and which loops still see every batch."""

import pytest
from harness import LOOP, NET, TRAINING, added, facts_of, migrate, migrate_modules

from multicard.rules import shard_evaluation_data as rule

HITS = """
hits = 0
with torch.no_grad():
    for x, y in val_loader:
        hits += (model(x).argmax(1) == y).sum().item()
print(hits)
"""
MIGRATED = {
    "as in the guide": (
        "val_loader = DataLoader(val_set, 64, shuffle=False, num_workers=4, pin_memory=True)",
        "val_loader = DataLoader(val_set, 64, sampler=EvalSampler(val_set, 64), num_workers=4, pin_memory=True)",
    ),
    "by keywords": (
        "val_loader = DataLoader(dataset=val_set, batch_size=args.test_batch, shuffle=False)",
        (
            "val_loader = DataLoader(dataset=val_set, batch_size=args.test_batch,"
            " sampler=EvalSampler(val_set, args.test_batch))"
        ),
    ),
    "no batch size is one": (
        "val_loader = DataLoader(val_set)",
        "val_loader = DataLoader(val_set, sampler=EvalSampler(val_set, 1))",
    ),
    "shuffled for no reason": (
        "val_loader = DataLoader(val_set, 64, shuffle=True)",
        "val_loader = DataLoader(val_set, 64, sampler=EvalSampler(val_set, 64))",
    ),
    "a tail that is dropped": (
        "val_loader = DataLoader(val_set, 64, drop_last=True)",
        "val_loader = DataLoader(val_set, 64, drop_last=True, sampler=EvalSampler(val_set, 64))",
    ),
    "no sampler": (
        "val_loader = DataLoader(val_set, 64, sampler=None)",
        "val_loader = DataLoader(val_set, 64, sampler=EvalSampler(val_set, 64))",
    ),
    "a data set made in the call": (
        "val_loader = DataLoader(MNIST('.', train=False), 64)",
        "val_loader = DataLoader(val_set := MNIST('.', train=False), 64, sampler=EvalSampler(val_set, 64))",
    ),
    "by position": (
        "val_loader = DataLoader(val_set, 64, False, None, None, 2)",
        "val_loader = DataLoader(val_set, 64, False, EvalSampler(val_set, 64), None, 2)",
    ),
}
LOADER = "val_loader = DataLoader(val_set, 64)\n"
WHOLE = {
    "a loop that stops early": (
        HITS.replace("\nprint", "\n        if hits > 9:\n            break\nprint"),
        "    for x, y in whole_loader(val_loader):",
    ),
    "a file for each batch": (
        HITS.replace("\nprint", "\n        torch.save(x, f'{hits}.pt')\nprint"),
        "    for x, y in whole_loader(val_loader):",
    ),
    "batches one by one": (
        "x, y = next(iter(val_loader))\nprint(model(x))",
        "x, y = next(iter(whole_loader(val_loader)))",
    ),
    "the last batch": (
        HITS.replace("print(hits)", "print(hits, x.mean())"),
        "    for x, y in whole_loader(val_loader):",
    ),
    "counted and wrapped in a bar": (
        "from tqdm import tqdm\n"
        + HITS.replace("in val_loader:", "in tqdm(val_loader):").replace(
            "\nprint", "\n        if hits > 9: break\nprint"
        ),
        "    for x, y in tqdm(whole_loader(val_loader)):",
    ),
    "enumerated": (
        HITS.replace("for x, y in val_loader:", "for i, (x, y) in enumerate(val_loader):").replace(
            "\nprint", "\n        if i == 3: break\nprint"
        ),
        "    for i, (x, y) in enumerate(whole_loader(val_loader)):",
    ),
}
STAYS = {
    "nothing evaluates it": (LOADER, ""),
    "a sampler of its own": (
        "val_loader = DataLoader(val_set, 64, sampler=torch.utils.data.SubsetRandomSampler(part))\n" + HITS,
        "sampler of its own",
    ),
    "batches of its own": (
        "val_loader = DataLoader(val_set, batch_sampler=mine)\n" + HITS,
        "sampler of its own",
    ),
    "a stream": (
        "class Stream(torch.utils.data.IterableDataset):\n    def __iter__(self): yield 1\n"
        "val_set = Stream()\nval_loader = DataLoader(val_set, 8)\n" + HITS,
        "sampler of its own",
    ),
    "arguments out of sight": ("val_loader = DataLoader(*parts)\n" + HITS, "cannot be seen"),
    "only loops that are not understood": (
        LOADER + HITS.replace("\nprint", "\n        if hits > 9:\n            break\nprint"),
        "stops",
    ),
    "data that no model sees": (
        LOADER + "total = 0\nfor x, y in val_loader:\n    total += x.sum().item()\nprint(total)\n",
        "",
    ),
}


@pytest.mark.parametrize(("before", "after"), MIGRATED.values(), ids=MIGRATED)
def test_migrates(before: str, after: str) -> None:
    script = TRAINING + before + LOOP + HITS
    text, reasons = migrate(rule, script)
    assert (added(script, text), reasons) == (after, [])


@pytest.mark.parametrize(("part", "after"), WHOLE.values(), ids=WHOLE)
def test_a_loop_that_is_not_understood_sees_all_of_a_dealt_loader(part: str, after: str) -> None:
    script = TRAINING + LOADER + LOOP + HITS + part
    text, reasons = migrate(rule, script)
    dealt = "val_loader = DataLoader(val_set, 64, sampler=EvalSampler(val_set, 64))"
    assert (added(script, text), reasons) == (f"{dealt}\n{after}", [])


@pytest.mark.parametrize(("part", "reason"), STAYS.values(), ids=STAYS)
def test_stays_whole_on_every_rank_and_says_why(part: str, reason: str) -> None:
    script = TRAINING + LOOP + part
    assert migrate(rule, script) == (script, [])
    assert any(reason in finding.why.en for finding in rule.find(facts_of(script))) == bool(reason)


def test_the_accuracy_over_the_training_data_sees_all_of_it() -> None:
    script = TRAINING + LOOP + HITS.replace("val_loader", "loader")
    text, reasons = migrate(rule, script)
    assert (added(script, text), reasons) == ("    for x, y in whole_loader(loader):", [])


def test_a_loader_of_a_local_module_used_in_another() -> None:
    feeding = "from torch.utils.data import DataLoader\n\n\ndef build(d):\n    return DataLoader(d, 4)\n"
    script = (
        TRAINING.replace("import torch\n", "import torch\nfrom feeding import build\n", 1)
        + "val_loader = build(val_set)"
        + LOOP
        + HITS
    )
    texts, _ = migrate_modules(rule, {"__main__": script, "feeding": feeding})
    assert added(feeding, texts["feeding"]) == "    return DataLoader(d, 4, sampler=EvalSampler(d, 4))"


@pytest.mark.parametrize(
    ("caller", "after"),
    {
        "print(evaluate(loader) / len(loader))": "print(evaluate(loader) / len(whole_loader(loader)))",
        "total = evaluate(loader)\ntotal /= len(loader)": "total /= len(whole_loader(loader))",
    }.items(),
)
def test_a_caller_that_divides_measures_it_whole_too(caller: str, after: str) -> None:
    script = (
        TRAINING
        + "val_loader = DataLoader(val_set, 8)\ncriterion = nn.CrossEntropyLoss()\n"
        + "def evaluate(batches):\n    total = 0.0\n    with torch.no_grad():\n        for x, y in batches:\n"
        + "            total += criterion(model(x), y).item()\n    return total\n"
        + LOOP
        + f"{caller}\nprint(evaluate(val_loader) / len(val_loader))\n"
    )
    text, reasons = migrate(rule, script)
    assert added(script, text).splitlines() == ["        for x, y in whole_loader(batches):", after]
    assert reasons == []


def test_what_is_not_dealt_walks_through_all_though_its_line_makes_the_training_loader_too() -> None:
    made = """
def build(split):
    data = Data(split)
    return data, DataLoader(data, 8, shuffle=split != "test", drop_last=True)


train_set, loader = build("train")
val_set, val_loader = build("val")
"""
    script = (
        NET.replace("loader = DataLoader(data, 8, shuffle=True)\nval_loader = DataLoader(val_set, 8)\n", made)
        + LOOP
        + "    for x, y in val_loader:\n        history.best = model(x).max()\n"
    )
    text, reasons = migrate(rule, script)
    assert (added(script, text), reasons) == ("    for x, y in whole_loader(val_loader):", [])


def test_a_loop_that_trains_and_evaluates_with_one_call_is_left_where_nothing_tells_the_two_apart() -> None:
    script = TRAINING + (
        "for epoch in range(3):\n    for phase in ['train', 'val']:\n        total = 0\n"
        "        for x, y in (loader if phase == 'train' else val_loader):\n            loss = criterion(model(x), y)\n"
        "            if phase == 'train':\n                loss.backward()\n                optimizer.step()\n"
        "            total += loss.item()\n        print(total)\n"
    ).replace("for epoch", LOADER + "for epoch", 1)
    text, reasons = migrate(rule, script)
    assert text == script
    assert [reason.partition(",")[0] for reason in reasons] == ["this loop trains and evaluates"]


LOADERS = """
class Loaders:
    def __init__(self, data):
        self.data = data

    @property
    def loader(self):
        return DataLoader(self.data, 8, shuffle=True)


loader = Loaders(train_set).loader
val_loader = {}
"""
BROKEN_OFF = HITS.replace("\nprint", "\n        if hits > 9:\n            break\nprint")


def test_loaders_that_a_property_makes_are_told_apart() -> None:
    script = TRAINING + LOADERS.format("Loaders(val_set).loader") + LOOP + BROKEN_OFF
    text, reasons = migrate(rule, script)
    assert "for x, y in whole_loader(val_loader):" in text
    assert reasons == []


def test_says_where_a_loader_that_must_be_whole_is_not_in_sight() -> None:
    script = (
        TRAINING
        + LOADERS.format("Loaders(val_set).loader if args.val else open('batches')")
        + LOOP
        + BROKEN_OFF
    )
    text, reasons = migrate(rule, script)
    assert "whole_loader" not in text
    assert [reason.partition(",")[0] for reason in reasons] == ["this loop must see all batches"]
