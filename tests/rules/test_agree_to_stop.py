"""Every way out of a loop that one rank might take alone."""

import pytest
from harness import LOOP, NET, added, migrate, migrate_modules

from multicard.rules import agree_to_stop as rule

VALIDATE = """
@torch.no_grad()
def validate():
    total = 0.0
    for x, y in val_loader:
        total += criterion(model(x), y).item()
    return total / len(val_loader)


"""
BATCHES = """\
    for x, y in loader:
        loss = criterion(model(x), y)
        loss.backward()
        optimizer.step()
"""
EPOCHS = VALIDATE + "best, waited = 1e9, 0\nfor epoch in range(99):\n" + BATCHES + "    score = validate()\n"
PATIENCE = "    if score < best:\n        best, waited = score, 0\n    else:\n        waited += 1\n"
CLASS = """
class EarlyStopping:
    def __init__(self, patience=7):
        self.patience, self.best, self.counter, self.early_stop = patience, None, 0, False

    def __call__(self, score):
        if self.best is None or score < self.best:
            self.best, self.counter = score, 0
        else:
            self.counter += 1
            if self.counter >= self.patience:
                self.early_stop = True


stopping = EarlyStopping()
"""
STOPS = {
    "patience, as in the guide": (
        EPOCHS + PATIENCE + "    if waited >= 5:\n        break\n",
        "    if broadcast_value(waited >= 5):",
    ),
    "patience counted in the branch": (
        EPOCHS
        + "    if score < best:\n        best, waited = score, 0\n    else:\n        waited += 1\n"
        + "        if waited >= 5:\n            print('stop')\n            break\n",
        "    if broadcast_value(score < best):\n        if broadcast_value(waited >= 5):",
    ),
    "a flag": (
        EPOCHS + "    stop = score > best\n    if stop:\n        break\n",
        "    if broadcast_value(stop):",
    ),
    "a class": (
        CLASS + EPOCHS + "    stopping(score)\n    if stopping.early_stop:\n        break\n",
        "    if broadcast_value(stopping.early_stop):",
    ),
    "good enough": (
        EPOCHS + "    if score < 0.01:\n        break\n",
        "    if broadcast_value(score < 0.01):",
    ),
    "a return": (
        VALIDATE
        + "def run():\n    for epoch in range(99):\n"
        + BATCHES.replace("    ", "        ", 1).replace("\n    ", "\n        ")
        + "        if validate() < 0.01:\n            return epoch\nrun()\n",
        "        if broadcast_value(validate() < 0.01):",
    ),
    "an exit": (
        "import sys\n" + EPOCHS + "    if score != score:\n        sys.exit(1)\n",
        "    if broadcast_value(score != score):",
    ),
    "an error": (
        EPOCHS + "    if score != score:\n        raise RuntimeError('diverged')\n",
        "    if broadcast_value(score != score):",
    ),
    "the clock": (
        "import time\nstart = time.time()\n" + EPOCHS + "    if time.time() - start > 3600:\n        break\n",
        "    if broadcast_value(time.time() - start > 3600):",
    ),
    "in the middle of an epoch": (
        "for epoch in range(9):\n" + BATCHES + "        if loss.item() < 0.1:\n            break\n",
        "        if broadcast_value(loss.item() < 0.1):",
    ),
    "two conditions": (
        EPOCHS + PATIENCE + "    if epoch > 9 and waited > 5:\n        break\n",
        "    if broadcast_value(epoch > 9 and waited > 5):",
    ),
}
SKIPS = {
    "a batch that is not finite": (
        (
            "for epoch in range(9):\n    for x, y in loader:\n        loss = criterion(model(x), y)\n"
            "        if not torch.isfinite(loss):\n            continue\n        loss.backward()\n"
            "        optimizer.step()\n"
        ),
        "        if any_rank(not torch.isfinite(loss)):",
    ),
    "a batch that holds nothing": (
        (
            "for epoch in range(9):\n    for x, y in loader:\n        if y.sum() == 0:\n            continue\n"
            "        loss = criterion(model(x), y)\n        loss.backward()\n        optimizer.step()\n"
        ),
        "        if any_rank(y.sum() == 0):",
    ),
}
LEFT_ALONE = {
    "no way out": LOOP,
    "a number of epochs": LOOP + "    if epoch == 5:\n        break\n",
    "a number of steps": "step = 0\nfor epoch in range(9):\n"
    + BATCHES
    + "        step += 1\n        if step >= 100:\n            break\n",
    "a number of steps that begins with others": "best, step = 0.0, 0\nfor epoch in range(9):\n"
    + BATCHES
    + "        step += 1\n        if step >= 100:\n            break\n",
    "a number of batches": "for epoch in range(9):\n"
    + BATCHES.replace("for x, y in loader", "for i, (x, y) in enumerate(loader)")
    + "        if i >= 100:\n            break\n",
    "an option": "import argparse\nargs = argparse.ArgumentParser().parse_args()\n"
    + LOOP
    + "    if args.fast:\n        break\n",
    "a loop over something else": EPOCHS
    + "    for name in names:\n        if score > 1:\n            break\n",
    "a validation that stops": LOOP
    + "    for x, y in val_loader:\n        if model(x).sum() > 1:\n            break\n",
    "an exit before training": "import sys\nif len(sys.argv) > 3:\n    sys.exit(1)\n" + LOOP,
    "a condition that leaves no loop": EPOCHS + "    if score < best:\n        best = score\n",
    "skipping what evaluation holds": LOOP
    + "    for x, y in val_loader:\n        if y.sum() == 0:\n            continue\n        print(model(x))\n",
}
SCHEDULER = "plateau = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer)\n"


@pytest.mark.parametrize(("part", "after"), STOPS.values(), ids=STOPS)
def test_ranks_stop_together(part: str, after: str) -> None:
    script = NET + part
    text, reasons = migrate(rule, script)
    assert (added(script, text), reasons) == (after, [])


@pytest.mark.parametrize(("part", "after"), SKIPS.values(), ids=SKIPS)
def test_ranks_skip_together(part: str, after: str) -> None:
    script = NET + part
    text, reasons = migrate(rule, script)
    assert (added(script, text), reasons) == (after, [])


@pytest.mark.parametrize("part", LEFT_ALONE.values(), ids=LEFT_ALONE)
def test_leaves_alone(part: str) -> None:
    script = NET + part
    assert migrate(rule, script) == (script, [])


def test_a_schedule_that_looks_at_a_metric_is_given_one_for_all() -> None:
    script = NET + SCHEDULER + EPOCHS + "    plateau.step(score)\n"
    text, reasons = migrate(rule, script)
    assert (added(script, text), reasons) == ("    plateau.step(broadcast_value(score))", [])


def test_a_schedule_that_looks_at_the_last_batch_is_given_one_for_all() -> None:
    script = (
        NET + SCHEDULER + "for epoch in range(9):\n" + BATCHES + "    plateau.step(metrics=loss.item())\n"
    )
    text, reasons = migrate(rule, script)
    assert (added(script, text), reasons) == ("    plateau.step(metrics=broadcast_value(loss.item()))", [])


@pytest.mark.parametrize(
    "line", ["scheduler.step()", "scheduler.step(epoch)"], ids=["no metric", "the epoch"]
)
def test_other_schedules_are_left_alone(line: str) -> None:
    script = NET + "scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 3)\n" + LOOP + f"    {line}\n"
    assert migrate(rule, script) == (script, [])


def test_a_trainer_in_another_module() -> None:
    engine = (
        "class Trainer:\n    def __init__(self, model, optimizer):\n"
        "        self.model, self.optimizer, self.best = model, optimizer, 1e9\n\n"
        "    def fit(self, loader):\n        for epoch in range(99):\n            for x, y in loader:\n"
        "                loss = self.model(x).sum()\n                loss.backward()\n"
        "                self.optimizer.step()\n"
        "            if loss.item() > self.best:\n                break\n            self.best = loss.item()\n"
    )
    script = "from engine import Trainer\n" + NET + "Trainer(model, optimizer).fit(loader)\n"
    texts, reasons = migrate_modules(rule, {"__main__": script, "engine": engine})
    assert added(engine, texts["engine"]) == "            if broadcast_value(loss.item() > self.best):"
    assert (texts["__main__"], reasons) == (script, [])
