import pytest
from harness import LOOP, TRAINING, added, facts_of, migrate

from multicard.plan import Kind
from multicard.rules import batch_size as rule

HEAD = TRAINING.replace("loader = DataLoader(data, 8, shuffle=True)\n", "")
EVALUATION = """
hits = 0
with torch.no_grad():
    for x, y in val_loader:
        hits += (model(x).argmax(1) == y).sum().item()
print(hits)
"""
KEPT = {
    "by position": ("loader = DataLoader(data, 64)", "loader = DataLoader(data, per_card(64))"),
    "by keyword": (
        "loader = DataLoader(data, batch_size=64)",
        "loader = DataLoader(data, batch_size=per_card(64))",
    ),
    "a name": ("loader = DataLoader(data, BATCH)", "loader = DataLoader(data, per_card(BATCH))"),
    "an option": (
        "loader = DataLoader(data, batch_size=args.batch_size)",
        "loader = DataLoader(data, batch_size=per_card(args.batch_size))",
    ),
    "computed": ("loader = DataLoader(data, 2 * n)", "loader = DataLoader(data, per_card(2 * n))"),
    "in a function": (
        "def build(n):\n    return DataLoader(data, n, shuffle=True)\nloader = build(64)",
        "    return DataLoader(data, per_card(n), shuffle=True)",
    ),
    "evaluation keeps its own": (
        "val_loader = DataLoader(val_set, 64)\nloader = DataLoader(data, 64)",
        "loader = DataLoader(data, per_card(64))",
    ),
}
COUNTED = {
    "times the cards that are seen": (
        "n = torch.cuda.device_count()\nloader = DataLoader(data, batch_size=16 * max(1, n))",
        "loader = DataLoader(data, batch_size=per_card(16 * max(1, n)))",
    ),
    "an option times a list of cards": (
        (
            "cards = [i for i in range(torch.cuda.device_count())]\nargs.batch *= max(1, len(cards))\n"
            "loader = DataLoader(data, args.batch)"
        ),
        "loader = DataLoader(data, per_card(args.batch))",
    ),
}
NOT_DIVIDED = {
    "one sample at a time": "loader = DataLoader(data)",
    "whole batches of a sampler": "loader = DataLoader(data, batch_sampler=mine)",
    "no loader": "loader = batches",
}
STEPPED = LOOP + "        scheduler.step()\n"
BY_EPOCH = LOOP + "    scheduler.step()\n"
SCHEDULER = "scheduler = torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.1, total_steps=100)\n"


@pytest.mark.parametrize(("before", "after"), KEPT.values(), ids=KEPT)
def test_global_divides_the_training_batch(before: str, after: str) -> None:
    script = HEAD + before + LOOP + (EVALUATION if "val_loader" in before else "")
    text, reasons = migrate(rule, script, batch="global")
    assert (added(script, text), reasons) == (after, [])


@pytest.mark.parametrize(("before", "after"), COUNTED.values(), ids=COUNTED)
def test_a_batch_for_all_cards_is_divided(before: str, after: str) -> None:
    script = HEAD + "import argparse\nargs = argparse.ArgumentParser().parse_args()\n" + before + LOOP
    text, reasons = migrate(rule, script)
    assert (added(script, text), reasons) == (after, [])


@pytest.mark.parametrize("before", NOT_DIVIDED.values(), ids=NOT_DIVIDED)
def test_global_leaves_alone(before: str) -> None:
    script = HEAD + before + LOOP
    assert migrate(rule, script, batch="global") == (script, [])


@pytest.mark.parametrize("before", [before for before, _ in KEPT.values()], ids=KEPT)
def test_per_card_changes_nothing_and_says_what_becomes_of_it(before: str) -> None:
    script = HEAD + before + LOOP
    assert migrate(rule, script) == (script, [])
    [note] = rule.find(facts_of(script))
    assert note.kind is Kind.NOTE
    assert "N times as many samples" in note.why.en


def test_nothing_is_said_where_nothing_is_dealt_out() -> None:
    assert list(rule.find(facts_of(HEAD + "loader = batches" + LOOP))) == []


@pytest.mark.parametrize(("loop", "notes"), [(STEPPED, 1), (BY_EPOCH, 0)], ids=["each batch", "each epoch"])
def test_a_schedule_that_is_stepped_for_each_batch_is_told(loop: str, notes: int) -> None:
    findings = rule.find(facts_of(TRAINING + SCHEDULER + loop))
    assert sum("stepped for each batch" in finding.why.en for finding in findings) == notes


BOTH = "def build(d, train):\n    return DataLoader(d, 64, shuffle={0})\n"


def test_one_size_for_both_is_divided_where_training_is_meant() -> None:
    made = BOTH.format("train") + "loader, val_loader = build(data, True), build(val_set, False)"
    script = HEAD + made + LOOP + EVALUATION
    text, reasons = migrate(rule, script, batch="global")
    line = "    return DataLoader(d, per_card(64) if train else 64, shuffle=train)"
    assert (added(script, text), reasons) == (line, [])


def test_one_size_for_both_is_left_to_the_reader_where_nothing_tells_them_apart() -> None:
    made = BOTH.format("True").replace(", train", "") + "loader, val_loader = build(data), build(val_set)"
    script = HEAD + made + LOOP + EVALUATION
    text, [why] = migrate(rule, script, batch="global")
    assert text == script
    assert "training and evaluation" in why


@pytest.mark.parametrize(
    ("layer", "batch", "notes"),
    [
        ("nn.BatchNorm1d(4)", "global", 1),
        ("nn.BatchNorm1d(4)", "per-card", 0),
        ("nn.LayerNorm(4)", "global", 0),
    ],
)
def test_statistics_of_smaller_batches_are_told(layer: str, batch: str, notes: int) -> None:
    model = f"model = nn.Sequential({layer}, nn.Linear(4, 2))"
    facts = facts_of(TRAINING.replace("model = nn.Linear(4, 2)", model) + LOOP)
    facts.batch = batch
    assert sum("BatchNorm takes its statistics" in finding.why.en for finding in rule.find(facts)) == notes
