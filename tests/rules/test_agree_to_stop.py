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
    "a signal": (
        "import signal\nstopped = False\n\n\ndef stop(number, frame):\n    global stopped\n    stopped = True\n\n\n"
        "signal.signal(signal.SIGTERM, stop)\n" + EPOCHS + "    if stopped:\n        break\n",
        "    if broadcast_value(stopped):",
    ),
    "a signal that an object keeps": (
        "import signal\n\n\nclass Run:\n    def __init__(self):\n        self.stopped = False\n"
        "        signal.signal(signal.SIGTERM, self.stop)\n\n    def stop(self, number, frame):\n"
        "        self.stopped = True\n\n    def fit(self):\n        for epoch in range(9):\n"
        + BATCHES.replace("    ", "            ", 1).replace("\n    ", "\n            ")
        + "            if self.stopped:\n                break\n\n\nRun().fit()\n",
        "            if broadcast_value(self.stopped):",
    ),
    "a loop while patience lasts": (
        EPOCHS.replace("for epoch in range(99):", "while waited < 5:") + PATIENCE,
        "while broadcast_value(waited < 5):",
    ),
    "a loop while there is time": (
        "import time\nend = time.time() + 60\nwhile time.time() < end:\n" + BATCHES,
        "while broadcast_value(time.time() < end):",
    ),
    "a loop until a flag": (
        "done = False\nwhile not done:\n" + BATCHES + "    done = loss.item() < 0.1\n",
        "while broadcast_value(not done):",
    ),
    "a loop over batches while the loss is high": (
        (
            "loss, batches = torch.tensor(9.0), iter(loader)\nwhile loss > 0.1:\n    x, y = next(batches)\n"
            "    loss = criterion(model(x), y)\n    loss.backward()\n    optimizer.step()\n"
        ),
        "while broadcast_value(loss > 0.1):",
    ),
    "an error where the loss is not finite": (
        "for epoch in range(9):\n"
        + BATCHES
        + "        if torch.isnan(loss):\n            raise ValueError\n",
        "        if any_rank(torch.isnan(loss)):",
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
STEP = "            optimizer.zero_grad()\n            loss.backward()\n            optimizer.step()\n"
IN_BATCHES = "for epoch in range(9):\n    for x, y in loader:\n        loss = criterion(model(x), y)\n"
BRANCHES = {
    "a library's meter of the training loss": (
        "from torchnet import meter\nlosses, before = meter.AverageValueMeter(), 1e9\nfor epoch in range(9):\n"
        + BATCHES
        + "        losses.add(loss.item())\n    if losses.value()[0] > before:\n"
        "        optimizer.param_groups[0]['lr'] *= 0.5\n    before = losses.value()[0]\n",
        "    if broadcast_value(losses.value()[0] > before):",
    ),
    "an evaluation of a wrapped model that sends buffers": (
        "model.features = nn.BatchNorm1d(4)\nrows = [(torch.randn(2, 4), torch.ones(2)) for _ in range(3)]\n"
        "def judged():\n    return sum(model(x).sum().item() for x, y in rows)\nbest = 0\n"
        + LOOP
        + "    model.eval()\n    if loss.item() > best:\n        print(judged())\n",
        "    if broadcast_value(loss.item() > best):",
    ),
    "a step where the loss is finite": (
        IN_BATCHES + "        if torch.isfinite(loss):\n" + STEP,
        "        if not any_rank(not torch.isfinite(loss)):",
    ),
    "a step where the loss is not nan": (
        IN_BATCHES + "        if not torch.isnan(loss):\n" + STEP,
        "        if not any_rank(torch.isnan(loss)):",
    ),
    "a step where the loss is small": (
        IN_BATCHES + "        if loss.item() < 10:\n" + STEP,
        "        if not any_rank(not (loss.item() < 10)):",
    ),
    "one of two losses by chance": (
        "import random\n"
        + IN_BATCHES
        + "        if random.random() < 0.5:\n"
        + STEP
        + "        else:\n"
        + STEP.replace("loss.backward", "(2 * loss).backward"),
        "        if broadcast_value(random.random() < 0.5):",
    ),
    "one of two models by chance": (
        (
            "import random\nother = Net()\nsecond = torch.optim.SGD(other.parameters(), lr=0.1)\n"
            "for epoch in range(9):\n    for x, y in loader:\n        if random.random() < 0.5:\n"
            "            out = model(x)\n        else:\n            out = other(x)\n"
            "        criterion(out, y).backward()\n        optimizer.step()\n        second.step()\n"
        ),
        "        if broadcast_value(random.random() < 0.5):",
    ),
    "as many steps as chance says": (
        (
            "import random\nfor epoch in range(9):\n    for x, y in loader:\n"
            "        for _ in range(random.randint(1, 3)):\n            criterion(model(x), y).backward()\n"
            "            optimizer.step()\n"
        ),
        "        for _ in range(broadcast_value(random.randint(1, 3))):",
    ),
    "validation when training got better": (
        VALIDATE
        + "best = 9.0\nfor epoch in range(9):\n"
        + BATCHES
        + "    if loss.item() < best:\n        best = loss.item()\n        print(validate())\n",
        "    if broadcast_value(loss.item() < best):",
    ),
    "validation unless a function returns before": (
        VALIDATE
        + "def check(loss):\n    if loss.item() > 9:\n        return\n    print(validate())\n\n\n"
        + LOOP
        + "    check(loss)\n",
        "    if broadcast_value(loss.item() > 9):",
    ),
    "validation unless an epoch ends before": (
        VALIDATE + LOOP + "    if loss.item() > 9:\n        continue\n    print(validate())\n",
        "    if broadcast_value(loss.item() > 9):",
    ),
    "a step that returns before its backward pass": (
        (
            "def step(x, y):\n    loss = criterion(model(x), y)\n    if torch.isnan(loss):\n        return\n"
            "    loss.backward()\n    optimizer.step()\n\n\n"
            "for epoch in range(9):\n    for x, y in loader:\n        step(x, y)\n"
        ),
        "    if any_rank(torch.isnan(loss)):",
    ),
    "a smaller learning rate": (
        LOOP
        + "    if loss.item() > 1:\n        for group in optimizer.param_groups:\n            group['lr'] *= 0.5\n",
        "    if broadcast_value(loss.item() > 1):",
    ),
    "a smaller learning rate, by a function": (
        "def slow(optimizer, rate):\n    for group in optimizer.param_groups:\n        group['lr'] = rate\n\n\n"
        + LOOP
        + "    if loss.item() > 1:\n        slow(optimizer, 0.01)\n",
        "    if broadcast_value(loss.item() > 1):",
    ),
    "a number that is the learning rate later": (
        "class Trainer:\n    def slow(self, rate):\n        for group in optimizer.param_groups:\n"
        "            group['lr'] = rate\n\n\nrate, trainer = 0.1, Trainer()\n"
        + LOOP
        + "    if loss.item() > 1:\n        rate *= 0.5\n    trainer.slow(rate)\n",
        "    if broadcast_value(loss.item() > 1):",
    ),
    "a number that another optimizer is given": (
        "rate = 0.1\n"
        + LOOP
        + "    if loss.item() > 1:\n        rate = 0.5 * rate\n"
        + "    optimizer = torch.optim.SGD(model.parameters(), lr=rate)\n",
        "    if broadcast_value(loss.item() > 1):",
    ),
    "a schedule's step": (
        "plan = torch.optim.lr_scheduler.StepLR(optimizer, 1)\n"
        + LOOP
        + "    if loss.item() > 1:\n        plan.step()\n",
        "    if broadcast_value(loss.item() > 1):",
    ),
}
LEFT_ALONE = {
    "a step counted by a progress bar": "from tqdm import tqdm\nbatches = iter(loader)\n"
    "with tqdm(range(9)) as bar:\n    for i in bar:\n        x, y = next(batches)\n"
    "        if i == 0:\n            continue\n"
    "        loss = criterion(model(x), y)\n        loss.backward()\n        optimizer.step()\n",
    "an argument that is given or not": (
        "def judged(out, target=None):\n    if target is None:\n        return out\n    chosen = target > 0\n"
        "    return nn.functional.mse_loss(out[chosen], target[chosen])\n"
        "for epoch in range(9):\n    for x, y in loader:\n        judged(model(x), y).backward()\n"
        "        optimizer.step()\n    print(judged(model(x)))\n"
    ),
    "a kind of value": IN_BATCHES
    + "        if isinstance(loss, tuple):\n            loss = sum(loss)\n"
    + STEP.replace("            ", "        "),
    "the backward pass of a kind of value": IN_BATCHES + "        if not isinstance(x, list):\n" + STEP,
    "an error that is raised again": (
        "for epoch in range(9):\n    for x, y in loader:\n        try:\n            criterion(model(x), y).backward()\n"
        "            optimizer.step()\n        except RuntimeError as error:\n"
        "            if 'memory' in str(error):\n                print(1)\n            else:\n                raise\n"
    ),
    "an evaluation every few batches": VALIDATE
    + "for epoch in range(9):\n"
    + BATCHES.replace("for x, y in loader", "for i, (x, y) in enumerate(loader)")
    + "        if i % 10 == 0:\n            print(validate())\n",
    "a number that is no learning rate": "most = 0.1\n"
    + LOOP
    + "    if loss.item() > 1:\n        most = loss.item()\n    for group in optimizer.param_groups:\n"
    + "        group['lr'] = 0.1 ** epoch\n",
    "a learning rate that is written down": "seen = {}\n" + LOOP + "    seen['lr'] = loss.item()\n",
    "each sample of a batch": "for epoch in range(9):\n    for x, y in loader:\n        for i in range(len(x)):\n"
    "            criterion(model(x[i]), y[i]).backward()\n        optimizer.step()\n",
    "another batch for the same model by chance": "import random\nfor epoch in range(9):\n    for x, y in loader:\n"
    "        if random.random() < 0.5:\n            out = model(x)\n        else:\n            out = model(-x)\n"
    "        criterion(out, y).backward()\n        optimizer.step()\n",
    "a choice by an option": "import argparse\nargs = argparse.ArgumentParser().parse_args()\n"
    + IN_BATCHES
    + "        if args.train:\n"
    + STEP,
    "a line where the loss is large": IN_BATCHES
    + "        if loss.item() > 9:\n            print(loss)\n"
    + STEP[4:].replace("\n    ", "\n"),
    "what evaluation counts under a condition": LOOP
    + "    hits = []\n    for x, y in val_loader:\n        if (model(x).argmax(1) == y).all():\n"
    + "            hits.append(1)\n    print(sum(hits))\n",
    "a number of steps that was loaded": "state = torch.load('a.pth')\nstep = state['step']\nfor epoch in range(9):\n"
    + BATCHES
    + "        step += 1\n        if step >= 100:\n            break\n",
    "a loop over a number of steps": "step, batches = 0, iter(loader)\nwhile step < 100:\n    x, y = next(batches)\n"
    "    criterion(model(x), y).backward()\n    optimizer.step()\n    step += 1\n",
    "no way out": LOOP,
    "a number of epochs": LOOP + "    if epoch == 5:\n        break\n",
    "a number of steps": "step = 0\nfor epoch in range(9):\n"
    + BATCHES
    + "        step += 1\n        if step >= 100:\n            break\n",
    "a number of steps, spelled out": "step = 0\nfor epoch in range(9):\n"
    + BATCHES
    + "        step = step + 1\n        show = step % 10 == 0\n        show = show or step == 1\n"
    + "        if show:\n            if step >= 100:\n                break\n",
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


@pytest.mark.parametrize(("part", "after"), BRANCHES.values(), ids=BRANCHES)
def test_ranks_take_the_same_branch(part: str, after: str) -> None:
    script = NET + part
    text, reasons = migrate(rule, script)
    assert (added(script, text), reasons) == (after, [])


@pytest.mark.parametrize("part", LEFT_ALONE.values(), ids=LEFT_ALONE)
def test_leaves_alone(part: str) -> None:
    script = NET + part
    assert migrate(rule, script) == (script, [])


FINDER = """
def one_batch(x, y):
    loss = criterion(model(x), y)
    loss.backward()
    optimizer.step()
    return loss.item()


average, best = 0.0, 1e9
for epoch in range(9):
    for x, y in loader:
        loss = one_batch(x, y)
        average = 0.9 * average + 0.1 * loss
        if average > 6 * best:
            break
        best = min(best, average)
"""


def test_the_loss_that_ends_training_is_that_of_all_ranks() -> None:
    text, reasons = migrate(rule, NET + FINDER)
    assert (added(NET + FINDER, text), reasons) == (
        "        loss = all_reduce_mean(one_batch(x, y))\n        if broadcast_value(average > 6 * best):",
        [],
    )


def test_a_loss_that_is_still_to_go_backward_is_not_put_together() -> None:
    script = NET + (
        "for epoch in range(9):\n    for x, y in loader:\n        loss = criterion(model(x), y)\n"
        "        loss.backward()\n        optimizer.step()\n        if loss < 0.1:\n            break\n"
    )
    text, _ = migrate(rule, script)
    assert added(script, text) == "        if broadcast_value(loss < 0.1):"


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


RATES = {
    "found out from losses": (
        "rate = 0.1 / losses[-1]\noptimizer = torch.optim.SGD(model.parameters(), lr=rate)",
        "optimizer = torch.optim.SGD(model.parameters(), lr=broadcast_value(rate))",
    ),
    "chosen by the smallest loss": (
        "rate = [1e-3, 1e-2][losses.index(min(losses))]\noptimizer = torch.optim.Adam(model.parameters(), rate)",
        "optimizer = torch.optim.Adam(model.parameters(), broadcast_value(rate))",
    ),
    "set in the optimizer's groups": (
        "rate = 0.1 / losses[-1]\nfor group in optimizer.param_groups:\n    group['lr'] = rate",
        "    group['lr'] = broadcast_value(rate)",
    ),
    "of the steps that were made": (
        (
            "steps = 0\nfor rows in loader:\n    for row in rows:\n        steps += 1\n"
            "for group in optimizer.param_groups:\n    group['lr'] = steps**-0.5"
        ),
        "",
    ),
    "an option": ("optimizer = torch.optim.SGD(model.parameters(), lr=args.lr)", ""),
    "of the batch size": ("optimizer = torch.optim.SGD(model.parameters(), lr=0.1 * BATCH / 256)", ""),
}


@pytest.mark.parametrize(("part", "after"), RATES.values(), ids=RATES)
def test_a_rate_that_a_rank_found_out_is_rank_0s(part: str, after: str) -> None:
    kept = LOOP.replace(
        "        optimizer.step()", "        optimizer.step()\n        losses.append(loss.item())"
    )
    script = f"{NET}losses = []\n{kept}{part}\n{LOOP}"
    text, reasons = migrate(rule, script)
    assert (added(script, text), reasons) == (after, [])


ATTACK = """
def attack(x, y):
    delta = torch.zeros_like(x, requires_grad=True)
    for _ in range(5):
        out = model(x + delta)
        left = torch.where(out.argmax(1) == y)[0]
        if {test}:
            break
        criterion(out, y).backward()
        delta.data[left] += delta.grad[left].sign()
        delta.grad.zero_()
    return delta.detach()


for epoch in range(3):
    for x, y in loader:
        loss = criterion(model(x + attack(x, y)), y)
        {clear}
        loss.backward()
        optimizer.step()
"""
NORMED = NET.replace("nn.Linear(4, 8)", "nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8))")
NONE_LEFT = {
    "none is left": ("len(left) == 0", "not any_rank(not (len(left) == 0))"),
    "no number": ("left.numel() == 0", "not any_rank(not (left.numel() == 0))"),
    "all are wrong": ("(out.argmax(1) != y).all()", "not any_rank(not (out.argmax(1) != y).all())"),
    "none is right": ("not (out.argmax(1) == y).any()", "not any_rank((out.argmax(1) == y).any())"),
    "one is enough": ("len(left) < 3", "any_rank(len(left) < 3)"),
}


@pytest.mark.parametrize(("test", "after"), NONE_LEFT.values(), ids=NONE_LEFT)
def test_a_loop_over_one_batch_goes_on_while_a_rank_has_samples_left(test: str, after: str) -> None:
    script = NORMED + ATTACK.format(test=test, clear="optimizer.zero_grad()")
    text, reasons = migrate(rule, script)
    assert (added(script, text), reasons) == (f"        if {after}:", [])


def test_a_loop_over_one_batch_of_which_ranks_may_have_different_numbers_is_left() -> None:
    script = NORMED + ATTACK.format(test="len(left) == 0", clear="optimizer.zero_grad()")
    script += "hits = 0\nfor x, y in val_loader:\n    hits += (attack(x, y) > 0).sum().item()\nprint(hits)\n"
    text, reasons = migrate(rule, script)
    assert text == script
    assert "a different number of times" in reasons[0]


def test_an_attack_that_meets_nobody_ends_for_each_rank() -> None:
    script = NET + ATTACK.format(test="len(left) == 0", clear="optimizer.zero_grad()")
    assert migrate(rule, script) == (script, [])
    used = NET + ATTACK.format(test="len(left) == 0", clear="")
    assert "if not any_rank(" in migrate(rule, used)[0]


PHASES = """
loaders = {"train": loader, "val": val_loader}
for epoch in range(3):
    for phase in PHASES:
        for x, y in loaders[phase]:
            out = model(x)
            if phase == "train":
                if out.max() < 0:
                    continue
                loss = criterion(out, y)
                loss.backward()
                optimizer.step()
"""


@pytest.mark.parametrize(
    ("phases", "after"),
    [
        ('["train", "val"]', ""),
        ('("train", "val")', ""),
        ("given()", '            if any_rank(phase == "train"):\n'),
    ],
)
def test_phases_that_are_written_out_are_those_of_all_ranks(phases: str, after: str) -> None:
    script = NET + PHASES.replace("PHASES", phases)
    text, reasons = migrate(rule, script)
    assert (added(script, text), reasons) == (f"{after}                if any_rank(out.max() < 0):", [])
