"""What a loop counts is put together over the ranks, in every form that real scripts count in."""

import pytest
from harness import LOOP, NET, added, facts_of, migrate, migrate_modules

from multicard.plan import Kind
from multicard.rules import total_metrics as rule


def evaluation(start: str, body: str, after: str) -> str:
    lines = "".join(f"        {line}\n" for line in body.splitlines())
    head = "model.eval()\nwith torch.no_grad():\n    for x, y in val_loader:\n        out = model(x)\n"
    return f"{start}\n{head}{lines}{after}\n"


HITS = "hits += (out.argmax(1) == y).sum().item()\ntotal += len(y)"
MEASURED = {
    "numbers, as in the guide": (
        evaluation("hits, total = 0, 0", HITS, "print(hits / total)"),
        "    hits, total = all_reduce_sum(hits, total)",
    ),
    "tensors on a device": (
        evaluation(
            "hits = torch.tensor(0, device=device)\nloss = torch.zeros(1).to(device)",
            "hits += (out.argmax(1) == y).sum()\nloss += criterion(out, y)",
            "print(hits.item(), loss.item())",
        ),
        "    hits, loss = all_reduce_sum(hits, loss)",
    ),
    "a sum, spelled out": (
        evaluation(
            "loss = 0.0", "loss = loss + criterion(out, y).item() * x.size(0)", "print(loss / len(val_set))"
        ),
        "    loss = all_reduce_sum(loss)",
    ),
    "a dict": (
        evaluation(
            "seen = {'hits': 0, 'total': 0}",
            "seen['hits'] += (out.argmax(1) == y).sum().item()\nseen['total'] += len(y)",
            "print(seen)",
        ),
        "    seen = all_reduce_sum(seen)",
    ),
    "what is counted of all that was gathered": (
        "def pairs(a, b):\n    for one, other in zip(a, b):\n        yield one, other\n\n"
        + evaluation(
            "found, truth, of = [], [], {}",
            "found.extend(out.argmax(1).tolist())\ntruth.extend(y.tolist())\nof.update(zip(x.tolist(), y.tolist()))",
            "good = 0\nfor a, b in zip(map(int, found), truth):\n    good += a == b\n"
            "for a, b in pairs(found, truth):\n    good += a == b\n"
            "for same in (a == b for a, b in zip(found, truth)):\n    good += same\n"
            "for key, value in of.items():\n    good += key == value\n"
            "for value in of.values():\n    good += value\nprint(good)",
        ),
        "    found, truth, of = gather_in_order(found, truth, of)",
    ),
    "batches that are changed on the way": (
        "def moved(batches):\n    for x, y in batches:\n        yield x.cuda(), y.cuda()\n\n"
        + evaluation("hits, total = 0, 0", HITS, "print(hits / total)").replace(
            "in val_loader", "in moved(val_loader)"
        ),
        "    hits, total = all_reduce_sum(hits, total)",
    ),
    "a default dict": (
        "from collections import defaultdict\n"
        + evaluation(
            "seen = defaultdict(int)", "for c in y.tolist():\n    seen[c] += 1", "print(dict(seen))"
        ),
        "    seen = all_reduce_sum(seen)",
    ),
    "a count for each class": (
        evaluation("per = [0] * 10", "for c in y.tolist():\n    per[c] += 1", "print(per)"),
        "    per = all_reduce_sum(per)",
    ),
    "a confusion matrix": (
        "import numpy as np\n"
        + evaluation(
            "matrix = np.zeros((2, 2))",
            "for a, b in zip(y, out.argmax(1)):\n    matrix[a, b] += 1",
            "print(matrix)",
        ),
        "    matrix = all_reduce_sum(matrix)",
    ),
    "lists that are extended": (
        evaluation("preds = []", "preds.extend(out.argmax(1).tolist())", "print(preds)"),
        "    preds = gather_in_order(preds)",
    ),
    "lists of tensors": (
        evaluation(
            "preds, labels = [], []", "preds.append(out)\nlabels.append(y)", "print(torch.cat(preds), labels)"
        ),
        "    preds, labels = gather_in_order(preds, labels)",
    ),
    "lists added to": (
        evaluation("preds = []", "preds += out.tolist()", "print(preds)"),
        "    preds = gather_in_order(preds)",
    ),
    "tensors grown by concatenation": (
        evaluation("preds = torch.tensor([])", "preds = torch.cat((preds, out.cpu()))", "print(preds)"),
        "    preds = gather_in_order(preds)",
    ),
    "arrays grown by concatenation": (
        "import numpy as np\n"
        + evaluation(
            "preds = np.empty((0, 2))", "preds = np.concatenate([preds, out.numpy()], axis=0)", "print(preds)"
        ),
        "    preds = gather_in_order(preds)",
    ),
    "a set": (
        evaluation("seen = set()", "seen.update(y.tolist())", "print(len(seen))"),
        "    seen = gather_in_order(seen)",
    ),
    "lists in a dict": (
        evaluation(
            "rows = {'out': [], 'y': []}", "rows['out'].extend(out)\nrows['y'].append(y)", "print(rows)"
        ),
        "    rows = gather_in_order(rows)",
    ),
    "lists in a default dict": (
        "from collections import defaultdict\n"
        + evaluation(
            "rows = defaultdict(list)", "for c, o in zip(y, out):\n    rows[c].append(o)", "print(rows)"
        ),
        "    rows = gather_in_order(rows)",
    ),
    "a counter": (
        "from collections import Counter\n"
        + evaluation("seen = Counter()", "seen.update(y.tolist())", "print(seen)"),
        "    seen = gather_in_order(seen)",
    ),
    "the largest": (
        evaluation("worst = 0", "worst = max(worst, criterion(out, y).item())", "print(worst)"),
        "    worst = all_reduce_max(worst)",
    ),
    "the smallest": (
        evaluation("best = 1e9", "best = min(best, criterion(out, y).item())", "print(best)"),
        "    best = all_reduce_min(best)",
    ),
    "sums and lists": (
        evaluation(
            "total, preds = 0, []", "total += len(y)\npreds.extend(out.tolist())", "print(total, preds)"
        ),
        "    total = all_reduce_sum(total)\n    preds = gather_in_order(preds)",
    ),
    "losses of batches, averaged": (
        evaluation(
            "losses = []", "losses.append(criterion(out, y).item())", "print(sum(losses) / len(losses))"
        ),
        "    losses = gather_in_order(losses)",
    ),
    "batches counted": (
        evaluation("loss, n = 0, 0", "loss += criterion(out, y).item()\nn += 1", "print(loss / n)"),
        "    loss, n = all_reduce_sum(loss, n)",
    ),
    "a number thrown away after the loop stays": (
        evaluation("hits, total = 0, 0", HITS + "\nshare = hits / total", "print(hits / total)"),
        "    hits, total = all_reduce_sum(hits, total)",
    ),
}
KEPT = "kept.extend(out.argmax(1).tolist())"
MEASURED |= {
    "lists that are there under a condition": (
        evaluation(
            "hits = 0\nif args.keep:\n    kept, other = [], []",
            "hits += (out.argmax(1) == y).sum().item()\nif args.keep:\n    kept.append(out)\n    other.append(y)",
            "print(hits)\nif args.keep:\n    print(kept, other)",
        ),
        (
            "    hits = all_reduce_sum(hits)\n    if args.keep:\n"
            "        kept, other = gather_in_order(kept, other)"
        ),
    ),
    "a list or None": (
        evaluation("kept = [] if args.keep else None", f"if args.keep:\n    {KEPT}", "print(kept)"),
        "    kept = gather_in_order(kept)",
    ),
    "a list or None, in two branches": (
        evaluation(
            "if args.keep:\n    kept = []\nelse:\n    kept = None",
            f"if kept is not None:\n    {KEPT}",
            "print(kept)",
        ),
        "    kept = gather_in_order(kept)",
    ),
    "None, or a list": (
        evaluation("kept = None if args.quick else []", f"if kept is not None:\n    {KEPT}", "print(kept)"),
        "    kept = gather_in_order(kept)",
    ),
}
METER = """
class AverageMeter:
    def __init__(self):
        self.reset()

    def reset(self):
        self.val = self.avg = self.sum = self.count = 0

    def update(self, val, n=1):
        self.val = val
        self.sum += val * n
        self.count += n
        self.avg = self.sum / self.count


"""
LEFT_ALONE = {
    "a list that is there under a condition that changes": evaluation(
        "keep = args.keep\nif keep:\n    kept = []",
        f"if keep:\n    {KEPT}",
        "keep = True\nprint(kept)",
    ),
    "a list that is there under a condition of its own data": evaluation(
        "r = criterion(model(x), y).item()\nif r > 1:\n    kept = []", f"if r > 1:\n    {KEPT}", "print(kept)"
    ),
    "a list that is there under what is asked anew": evaluation(
        "if ready():\n    kept = []", f"if ready():\n    {KEPT}", "print(kept)"
    ),
    "a list or something else": evaluation(
        "if args.keep:\n    kept = []\nelse:\n    kept = old", KEPT, "print(kept)"
    ),
    "a list that is there otherwise": evaluation(
        "if args.quick:\n    pass\nelse:\n    kept = []", KEPT, "print(kept)"
    ),
    "whether it is there, and more": evaluation(
        "kept = [] if args.keep else None",
        f"if kept is not None and len(kept) < 10:\n    {KEPT}",
        "print(kept)",
    ),
    "nothing is counted": evaluation("", "print(out)", ""),
    "what is counted inside alone": evaluation("", "n = 0\nn += len(y)", ""),
    "what nobody reads": evaluation("n = 0", "n += len(y)", ""),
    "a loop that is not dealt out": evaluation("n = 0", "n += len(y)\nif n > 9:\n    break", "print(n)"),
    "counts outside of any loop over data": "n = 0\nfor i in range(9):\n    n += i\nprint(n)\n",
}
TRAINING_TOTALS = {
    "the mean loss of an epoch": (
        LOOP.replace("    for x", "    running = 0.0\n    for x") + "        running += loss.item()\n"
        "    print(running / len(loader))\n",
        "    running = all_reduce_sum(running)",
    ),
    "accuracy in training": (
        LOOP.replace("    for x", "    hits = total = 0\n    for x")
        + "        hits += (model(x).argmax(1) == y).sum().item()\n        total += len(y)\n    print(hits / total)\n",
        "    hits, total = all_reduce_sum(hits, total)",
    ),
    "losses kept": (
        LOOP.replace("    for x", "    losses = []\n    for x")
        + "        losses.append(loss.item())\n    print(sum(losses) / len(losses))\n",
        "    losses = all_reduce_mean(losses)",
    ),
    "predictions kept": (
        LOOP.replace("    for x", "    preds = []\n    for x") + "        preds.append(model(x))\n"
        "    print(torch.cat(preds).shape)\n",
        "    preds = gather_in_order(preds)",
    ),
    "hits of each batch kept": (
        LOOP.replace("    for x", "    hits = []\n    for x")
        + "        hits.append((model(x).argmax(1) == y).sum().item())\n    print(sum(hits))\n",
        "    hits = gather_in_order(hits)",
    ),
}


@pytest.mark.parametrize(("part", "after"), MEASURED.values(), ids=MEASURED)
def test_what_evaluation_counts_is_put_together(part: str, after: str) -> None:
    script = NET + LOOP + part
    text, reasons = migrate(rule, script)
    assert (added(script, text), reasons) == (after, [])


BAR = "from tqdm import tqdm\n"


def test_the_batches_of_a_named_progress_bar_are_counted() -> None:
    part = evaluation("loss = 0", "loss += criterion(out, y).item()", "print(loss / (i + 1))").replace(
        "    for x, y in val_loader:", "    bar = tqdm(enumerate(val_loader))\n    for i, (x, y) in bar:"
    )
    script = BAR + NET + LOOP + part
    text, _ = migrate(rule, script)
    assert added(script, text) == "    loss = all_reduce_sum(loss)\n    i = global_batches(val_loader) - 1"


def test_the_batches_are_counted_of_a_progress_bar_that_takes_the_loaders_name() -> None:
    part = (
        "def evaluate(loader):\n    loss = 0\n    loader = tqdm(loader)\n    for i, (x, y) in enumerate(loader):\n"
        "        loss += criterion(model(x), y).item()\n    return loss / (i + 1)\nprint(evaluate(val_loader))\n"
    )
    script = BAR + NET + LOOP + part
    text, reasons = migrate(rule, script)
    after = "    loss = all_reduce_sum(loss)\n    i = global_batches(loader) - 1"
    assert (added(script, text), reasons) == (after, [])


def test_says_that_the_batches_of_all_ranks_cannot_be_counted() -> None:
    part = (
        "def batches():\n    return val_loader\nloss = 0\nfor i, (x, y) in enumerate(batches()):\n"
        "    loss += criterion(model(x), y).item()\nprint(loss / (i + 1))\n"
    )
    _, [reason] = migrate(rule, NET + LOOP + part)
    assert "no name gives the loader" in reason


def test_a_running_mean_over_a_named_progress_bar() -> None:
    loop = COUNTED.replace(
        "    for i, (x, y) in enumerate(loader):",
        "    bar = tqdm(enumerate(loader))\n    for i, (x, y) in bar:",
    )
    script = BAR + NET + loop + "        mean = (mean * i + loss.item()) / (i + 1)\n    print(mean)\n"
    text, _ = migrate(rule, script)
    assert added(script, text) == "    mean = all_reduce_mean(mean)"


@pytest.mark.parametrize("part", LEFT_ALONE.values(), ids=LEFT_ALONE)
def test_leaves_alone(part: str) -> None:
    script = NET + LOOP + part
    assert migrate(rule, script) == (script, [])


@pytest.mark.parametrize(("loop", "after"), TRAINING_TOTALS.values(), ids=TRAINING_TOTALS)
def test_what_training_counts_is_put_together(loop: str, after: str) -> None:
    script = NET + loop
    text, reasons = migrate(rule, script)
    assert (added(script, text), reasons) == (after, [])


def test_no_collective_stands_inside_the_loop() -> None:
    script = NET + LOOP + evaluation("hits, total = 0, 0", HITS, "print(hits / total)")
    text, _ = migrate(rule, script)
    lines = text.splitlines()
    [place] = [number for number, line in enumerate(lines) if "all_reduce_sum(" in line]
    assert lines[place - 1] == "            total += len(y)".replace("            ", "        ")
    assert lines[place + 1] == "print(hits / total)"


def test_meters() -> None:
    part = evaluation(
        "losses = AverageMeter()", "losses.update(criterion(out, y).item(), x.size(0))", "print(losses.avg)"
    )
    script = METER + NET + LOOP + part
    text, reasons = migrate(rule, script)
    assert (added(script, text), reasons) == (
        (
            "    losses.sum, losses.count = all_reduce_sum(losses.sum, losses.count)\n"
            "    losses.avg = losses.sum / losses.count"
        ),
        [],
    )


def test_in_a_function_of_a_local_module() -> None:
    testing = (
        "import torch\n\n\n@torch.no_grad()\ndef accuracy(model, loader):\n    hits = total = 0\n"
        "    for x, y in loader:\n        hits += (model(x).argmax(1) == y).sum().item()\n        total += y.size(0)\n"
        "    return hits / total\n"
    )
    script = "from testing import accuracy\n" + NET + LOOP + "print(accuracy(model, val_loader))\n"
    texts, reasons = migrate_modules(rule, {"__main__": script, "testing": testing})
    assert added(testing, texts["testing"]) == "    hits, total = all_reduce_sum(hits, total)"
    assert (texts["__main__"], reasons) == (script, [])


def test_attributes_of_a_trainer() -> None:
    script = (
        NET
        + LOOP
        + "class Tester:\n    def run(self):\n        self.hits = 0\n        with torch.no_grad():\n"
        "            for x, y in val_loader:\n                self.hits += (model(x).argmax(1) == y).sum().item()\n"
        "        return self.hits\n\nprint(Tester().run())\n"
    )
    text, reasons = migrate(rule, script)
    assert (added(script, text), reasons) == ("            self.hits = all_reduce_sum(self.hits)", [])


def test_a_total_of_training_that_is_given_away_with_the_length_of_this_rank_is_a_mean() -> None:
    script = (
        NET
        + "def one_epoch():\n    running = 0.0\n    for x, y in loader:\n        loss = criterion(model(x), y)\n"
        "        loss.backward()\n        optimizer.step()\n        running += loss.item()\n"
        "    return running, len(loader)\n\nfor epoch in range(3):\n    total, n = one_epoch()\n    print(total / n)\n"
    )
    text, reasons = migrate(rule, script)
    assert (added(script, text), reasons) == ("    running = all_reduce_mean(running)", [])


COUNTED = LOOP.replace("    for x, y in loader:", "    mean = 0.0\n    for i, (x, y) in enumerate(loader):")
MEANS = {
    "a total divided by a count of this rank": (
        COUNTED + "        mean += loss.item()\n    print(mean / (i + 1))\n"
    ),
    "a total over batches that are cut by hand": (
        "def cut():\n    for i in range(0, 64, 8):\n        yield data[i:i + 8], labels[i:i + 8]\n"
        + COUNTED.replace("enumerate(loader)", "enumerate(cut())")
        + "        mean += loss.item()\n    mean /= i + 1\n    print(mean)\n"
    ),
    "a running mean": COUNTED + "        mean = (mean * i + loss.item()) / (i + 1)\n    print(mean)\n",
    "a running mean of steps towards it": COUNTED
    + "        mean += (loss.item() - mean) / (i + 1)\n    print(mean)\n",
    "a moving average": COUNTED + "        mean = 0.9 * mean + 0.1 * loss.item()\n    print(mean)\n",
    "a moving average that fades": COUNTED
    + "        mean *= 0.9\n        mean += 0.1 * loss.item()\n    print(mean)\n",
    "a moving average that begins with the first": COUNTED.replace("= 0.0", "= None")
    + "        mean = loss.item() if mean is None else 0.9 * mean + 0.1 * loss.item()\n    print(mean)\n",
    "a moving average that begins with the first batch": COUNTED
    + "        if i == 0:\n            mean = loss.item()\n        else:\n"
    "            mean = 0.9 * mean + 0.1 * loss.item()\n    print(mean)\n",
}
NO_MEANS = {
    "not linear": COUNTED + "        mean = mean * mean + loss.item()\n    print(mean)\n",
    "weighted by what this rank has": COUNTED + "        mean = mean * loss.item() + 1\n    print(mean)\n",
    "under what this rank has": COUNTED
    + "        if loss.item() > 1:\n            mean = 0.9 * mean + 0.1 * loss.item()\n    print(mean)\n",
    "shown in the loop alone": COUNTED
    + "        mean = 0.9 * mean + 0.1 * loss.item()\n        print(mean)\n",
}


@pytest.mark.parametrize("loop", MEANS.values(), ids=MEANS)
def test_means_of_training_are_those_of_all_ranks(loop: str) -> None:
    script = NET + loop
    text, reasons = migrate(rule, script)
    assert (added(script, text), reasons) == ("    mean = all_reduce_mean(mean)", [])


@pytest.mark.parametrize("loop", NO_MEANS.values(), ids=NO_MEANS)
def test_what_is_no_mean_stays(loop: str) -> None:
    script = NET + loop
    assert migrate(rule, script) == (script, [])


def test_a_running_mean_of_an_evaluation_is_not_that_of_all_ranks() -> None:
    part = evaluation(
        "mean, n = 0.0, 0", "n += 1\nmean += (criterion(out, y).item() - mean) / n", "print(mean)"
    )
    script = NET + LOOP + part
    assert migrate(rule, script) == (script, [])


def test_what_training_keeps_of_some_batches_is_put_together() -> None:
    loop = COUNTED.replace("mean = 0.0", "kept = []")
    script = (
        NET
        + loop
        + "        if i % 10 == 0:\n            kept.append(loss.item())\n    print(sum(kept) / len(kept))\n"
    )
    text, reasons = migrate(rule, script)
    assert (added(script, text), reasons) == ("    kept = all_reduce_mean(kept)", [])


SAVED = "save(losses)\n"
STEPS = LOOP.replace("    for x, y in loader:", "    for i, (x, y) in enumerate(loader):")
CURVES = {
    "a curve of all epochs": ("losses = []", "losses.append(loss.item())", SAVED, "losses"),
    "a tensor of each step": ("losses = []", "losses.append(loss.detach().cpu())", SAVED, "losses"),
    "added as a list": ("losses = []", "losses += [float(loss)]", SAVED, "losses"),
    "one of a few": (
        "kept = {'loss': []}",
        "kept['loss'].append(loss.item())",
        "save(kept)\n",
        "kept['loss']",
    ),
    "rows": ("rows = []", "rows.append((epoch, i, loss.item()))", "save(rows)\n", "rows"),
    "a rate beside it": (
        "rows = []",
        "rows.append((loss.item(), optimizer.param_groups[0]['lr'], time.time()))",
        "save(rows)\n",
        "rows",
    ),
    "rows that have a name": (
        "rows, step = [], 0",
        "step += 1\n        row = {'loss': loss.item()}\n        rows.append({**row, 'step': step})",
        "save(rows)\n",
        "rows",
    ),
    "what a function gives": (
        "losses = []\ndef once():\n    return criterion(model(torch.ones(8, 4)), torch.ones(8).long()).item()\n",
        "losses.append(once())",
        SAVED,
        "losses",
    ),
    "a running mean": (
        "curve, total = [], 0.0",
        "total += loss.item()\n        curve.append(total / (i + 1))",
        "save(curve)\n",
        "curve",
    ),
    "each tenth": ("losses = []", "if i % 10 == 0:\n            losses.append(loss.item())", SAVED, "losses"),
    "the accuracy of a batch": (
        "accs = []",
        "hits = (model(x).argmax(1) == y).sum().item()\n        accs.append(100 * hits / len(y))",
        "save(accs)\n",
        "accs",
    ),
    "with the number of batches in a list": (
        "rows, batches = [], list(loader)",
        "rows.append({'steps': len(batches), 'size': len(x), 'loss': loss.item()})",
        "save(rows)\n",
        "rows",
    ),
}
NO_CURVES = {
    "sums over the batch": (
        "hits = []",
        "hits.append((model(x).argmax(1) == y).sum().item())",
        "save(hits)\n",
    ),
    "under what this rank has": (
        "kept = []",
        "if loss.item() > 1:\n            kept.append(loss.item())",
        "save(kept)\n",
    ),
    "what all ranks have": ("rates = []", "rates.append(optimizer.param_groups[0]['lr'])", "save(rates)\n"),
    "what nobody reads": ("", "losses = []\n        losses.append(loss.item())", ""),
    "times": ("times = []", "times.append(time.time())", "save(times)\n"),
    "labels, moved": ("seen = []", "y = y.cuda()\n        seen.append(y.cpu().numpy())", "save(seen)\n"),
    "what the model chose": ("chosen = []", "chosen.append(model(x).argmax().item())", "save(chosen)\n"),
}


@pytest.mark.parametrize(("start", "body", "after", "name"), CURVES.values(), ids=CURVES)
def test_curves_are_those_of_all_ranks(start: str, body: str, after: str, name: str) -> None:
    script = f"import time\n{NET}{start}{STEPS}        {body}\n{after}"
    text, reasons = migrate(rule, script)
    assert (added(script, text), reasons) == (f"    average_over_ranks({name})", [])


@pytest.mark.parametrize(("start", "body", "after"), NO_CURVES.values(), ids=NO_CURVES)
def test_what_is_no_curve_is_not_averaged(start: str, body: str, after: str) -> None:
    script = f"import time\n{NET}{start}{STEPS}        {body}\n{after}"
    assert migrate(rule, script)[0] == script


def test_a_list_that_a_caller_holds_is_averaged_where_it_stands() -> None:
    script = (
        NET + "def one_epoch(losses):\n    for x, y in loader:\n        loss = criterion(model(x), y)\n"
        "        loss.backward()\n        optimizer.step()\n        losses.append(loss.item())\n\n"
        "curve = []\nfor epoch in range(3):\n    one_epoch(curve)\nprint(curve)\n"
    )
    text, _ = migrate(rule, script)
    assert added(script, text) == "    average_over_ranks(losses)"


METERS = """
from collections import defaultdict, deque


class Smoothed:
    def __init__(self):
        self.recent = deque(maxlen=20)
        self.total = 0.0
        self.count = 0

    def update(self, value):
        self.recent.append(value)
        self.count += 1
        self.total += value

    @property
    def average(self):
        return self.total / self.count


class Log:
    def __init__(self):
        self.meters = defaultdict(Smoothed)

    def update(self, **given):
        for name, value in given.items():
            if isinstance(value, torch.Tensor):
                value = value.item()
            self.meters[name].update(value)


class Best:
    def __init__(self):
        self.best = 0.0

    def update(self, value):
        if value > self.best:
            self.best = value


class Memory:
    def __init__(self):
        self.rows = deque(maxlen=9)

    def push(self, row):
        self.rows.append(row)


class Sums:
    def __init__(self, n):
        self.data = [0.0] * n

    def add(self, *given):
        self.data = [a + float(b) for a, b in zip(self.data, given)]

    def __getitem__(self, index):
        return self.data[index]


class Spread:
    def __init__(self):
        self.squares, self.seen = 0.0, []

    def update(self, value):
        self.seen.append(value)
        self.squares += value * value


"""
METERED = {
    "a logger of meters": ("log = Log()", "log.update(loss=loss)", "print(log.meters)", "log"),
    "meters in a dict": (
        "log = {'loss': Smoothed(), 'other': Smoothed()}",
        "log['loss'].update(loss.item())",
        "print(log['loss'].average)",
        "log",
    ),
    "a meter with a window": ("log = Smoothed()", "log.update(loss.item())", "print(log.average)", "log"),
    "a list of sums": (
        "log = Sums(3)",
        "log.add(loss * x.shape[0], (model(x).argmax(1) == y).sum(), x.shape[0])",
        "print(log[0] / log[2], log[1] / log[2])",
        "log",
    ),
    "what the model chose, remembered": (
        "log = Memory()",
        "log.push((x, model(x).argmax().item(), loss.item()))",
        "print(log)",
        "",
    ),
    "the largest": ("log = Best()", "log.update(loss.item())", "print(log.best)", ""),
    "squares": ("log = Spread()", "log.update(loss.item())", "print(log.squares)", ""),
    "what nobody reads": ("", "log = Log()\n        log.update(loss=loss)", "", ""),
}


@pytest.mark.parametrize(("start", "body", "after", "name"), METERED.values(), ids=METERED)
def test_meters_of_training_that_hold_more_than_sums(start: str, body: str, after: str, name: str) -> None:
    loop = LOOP.replace("    for x", f"    {start}\n    for x")
    script = METERS.replace("\nfrom", "from", 1) + NET + f"{loop}        {body}\n    {after}\n"
    text, _ = migrate(rule, script)
    assert added(script, text) == (f"    average_over_ranks({name})" if name else "")


WINDOWS = {
    "a window that is read after the loop": "total += loss.item()\n        if i % 4 == 3:\n"
    "            mean, total = total / 4, 0.0\n    print(mean)\n",
    "the last average": "total += loss.item()\n        mean = total / (i + 1)\n    print(mean)\n",
    "a total of all epochs": "mean += loss.item()\n    print(mean)\n",
}


@pytest.mark.parametrize("body", WINDOWS.values(), ids=WINDOWS)
def test_averages_that_leave_the_loop(body: str) -> None:
    script = (
        NET + "mean = 0.0\n" + STEPS.replace("    for i", "    total = 0.0\n    for i") + "        " + body
    )
    text, reasons = migrate(rule, script)
    assert (added(script, text), reasons) == ("    mean = all_reduce_mean(mean)", [])


def test_what_all_ranks_count_alike_is_not_added_up() -> None:
    loop = (
        COUNTED.replace("mean", "skipped")
        .replace("= 0.0", "= 0")
        .replace(
            "        loss.backward()",
            "        if torch.isnan(loss):\n            skipped += 1\n            continue\n        loss.backward()",
        )
    )
    script = NET + loop + "    print(skipped)\n"
    assert migrate(rule, script) == (script, [])


def test_a_total_that_a_caller_divides_by_a_kept_length_is_the_mean_of_the_ranks() -> None:
    script = (
        NET
        + "def train_one(batches):\n    total = 0.0\n    for x, y in batches:\n"
        + "        loss = criterion(model(x), y)\n        loss.backward()\n        optimizer.step()\n"
        + "        total += loss.item()\n    return total\n\n\nsteps = len(loader)\n"
        + "for epoch in range(3):\n    print(train_one(loader) / steps)\n"
    )
    text, reasons = migrate(rule, script)
    assert (added(script, text), reasons) == ("    total = all_reduce_mean(total)", [])


LAST = {
    "a loss that is shown after the loop": (
        "loss = criterion(model(x), y)",
        "print(loss.item())",
        "mean(loss)",
    ),
    "a number out of it": (
        "out = criterion(model(x), y)\nout.backward()\nlast = out.item()",
        "print(last)",
        "mean(last)",
    ),
    "a sum of it": ("loss = (model(x) - y).pow(2).sum()", "print(loss.item())", "sum(loss)"),
    "divided for accumulation": (
        "loss = criterion(model(x), y)\nloss = loss / 4",
        "print(loss.item())",
        "mean(loss)",
    ),
    "under autocast": (
        "with torch.autocast('cuda'):\n    loss = criterion(model(x), y)",
        "best = min(best, loss.item())",
        "mean(loss)",
    ),
}
NOT_LAST = {
    "bound anew before it is read": ("loss = criterion(model(x), y)", "loss = 0\nprint(loss)"),
    "read inside the loop only": ("loss = criterion(model(x), y)\nprint(loss.item())", "pass"),
    "kept for some batches": (
        "loss = criterion(model(x), y)\nif x.sum() > 0:\n    last = loss.item()",
        "print(last)",
    ),
    "no number": ("loss = criterion(model(x), y)\nout = model(x)", "show(out)"),
}


def last_batch(body: str, after: str) -> str:
    lines = "".join(f"        {line}\n" for line in body.splitlines())
    if "backward" not in body:
        lines += "        loss.backward()\n"
    end = "".join(f"    {line}\n" for line in after.splitlines())
    return f"{NET}for epoch in range(3):\n    for x, y in loader:\n{lines}        optimizer.step()\n{end}"


@pytest.mark.parametrize(("body", "after", "how"), LAST.values(), ids=LAST)
def test_the_loss_of_the_last_batch_is_that_of_the_whole_batch(body: str, after: str, how: str) -> None:
    script = last_batch(body, after)
    name = how.partition("(")[2].rstrip(")")
    text, left = migrate(rule, script)
    assert (added(script, text), left) == (f"    {name} = all_reduce_{how}", [])


@pytest.mark.parametrize(("body", "after"), NOT_LAST.values(), ids=NOT_LAST)
def test_what_the_last_batch_leaves_otherwise_is_left(body: str, after: str) -> None:
    script = last_batch(body, after)
    assert migrate(rule, script)[0] == script


def test_the_curve_of_batches_that_each_rank_draws_for_itself() -> None:
    script = (
        NET
        + "inputs, labels, losses = torch.randn(64, 4), torch.zeros(64).long(), []\nfor step in range(9):\n"
        "    pick = torch.randint(64, (8,))\n    loss = criterion(model(inputs[pick]), labels[pick])\n"
        "    optimizer.zero_grad()\n    loss.backward()\n    optimizer.step()\n    losses.append(loss.item())\n"
        "print(losses)\n"
    )
    text, _ = migrate(rule, script)
    assert added(script, text) == "losses = all_reduce_mean(losses)"


def test_the_total_of_batches_that_each_rank_draws_for_itself() -> None:
    script = (
        NET
        + "inputs, labels, total, hits = torch.randn(64, 4), torch.zeros(64).long(), 0.0, 0\nfor step in range(9):\n"
        "    pick = torch.randint(64, (8,))\n    out = model(inputs[pick])\n    loss = criterion(out, labels[pick])\n"
        "    optimizer.zero_grad()\n    loss.backward()\n    optimizer.step()\n"
        "    loss = loss.detach().cpu().numpy()\n    total += loss\n    steps += 1\n"
        "    hits += (out.argmax(1) == labels[pick]).sum().item()\n"
        "print(total / 9, hits / 72)\n"
    )
    text, _ = migrate(rule, script)
    assert added(script, text) == "total, hits = all_reduce_mean(total, hits)"


def test_an_average_of_what_an_object_adds_up() -> None:
    loop = LOOP.replace("    for x", "    log = Sums(2)\n    for x")
    script = (
        METERS.replace("\nfrom", "from", 1)
        + NET
        + loop
        + "        log.add(loss * len(x), len(x))\n        mean = log[0] / log[1]\n    print(mean)\n"
    )
    text, _ = migrate(rule, script)
    assert added(script, text) == "    mean = all_reduce_mean(mean)"


def test_what_means_something_else_after_the_loop_is_left() -> None:
    script = (
        NET
        + LOOP.replace("    for x", "    sums = [torch.zeros(1)]\n    for x")
        + ("        for k in range(1):\n            sums[k].data += loss.item()\n    print(sums)\n")
    )
    assert migrate(rule, script)[0] == script


TOLD = {
    "the largest of a meter": ("log = Best()", "log.update(loss.item())", "print(log.best)", "log"),
    "losses that some ranks keep": (
        "kept = []",
        "if loss.item() > 1:\n            kept.append(loss.item())",
        "if epoch:\n        print(kept)",
        "",
    ),
    "a text": ("", "line = 'loss %g' % loss.item()", "print(line)", "line"),
    "sums over batches, from epoch to epoch": (
        "hits = hits if epoch else []",
        "hits.append((model(x).argmax(1) == y).sum().item())",
        "print(hits)",
        "hits",
    ),
    "what is evaluated in between": (
        (
            "seen = []\n    def score():\n        total = 0\n        for a, b in val_loader:\n"
            "            total += criterion(model(a), b).item()\n        return total"
        ),
        "now = score()\n        seen.append(now)",
        "print(seen)",
        "",
    ),
    "what the loop alone reads": ("log = Best()", "log.update(loss.item())\n        print(log)", "", ""),
    "what all ranks have": (
        "rates = []",
        "rates.append(optimizer.param_groups[0]['lr'])",
        "print(rates)",
        "",
    ),
}


@pytest.mark.parametrize(("start", "body", "after", "name"), TOLD.values(), ids=TOLD)
def test_what_stays_each_ranks_own_is_told(start: str, body: str, after: str, name: str) -> None:
    loop = LOOP.replace("    for x", f"    {start}\n    for x")
    script = METERS.replace("\nfrom", "from", 1) + NET + f"{loop}        {body}\n    {after}\n"
    notes = [finding for finding in rule.find(facts_of(script)) if finding.kind is Kind.NOTE]
    assert [note.why.en.split("`")[1] for note in notes] == ([name] if name else [])


TRAINER = """
class Trainer:
    def __init__(self):
        self.seen = 0

    def step(self, x, y):
        loss = criterion(model(x), y)
        loss.backward()
        optimizer.step()
        self.count(x)

    def count(self, x):
        self.seen += x.shape[0]

    def train(self):
        for x, y in loader:
            lr = 0.1 * min(1.0, self.seen / 100)
            self.step(x, y)


trainer = Trainer()
for epoch in range(3):
    trainer.train()
    print(trainer.seen)
"""
SEEN = "seen += len(x)"
COUNTED_ON = {
    "samples, with the length of a batch": (SEEN, "print(seen)", "seen += len(x) * dist.get_world_size()"),
    "what the model remembers": (
        "model.seen += x.size(0)",
        "print(model.seen)",
        "model.seen += x.size(0) * dist.get_world_size()",
    ),
    "an item of what is saved": (
        "state['seen'] += x.shape[0]",
        "torch.save(state, 'a.pt')",
        "state['seen'] += x.shape[0] * dist.get_world_size()",
    ),
    "a size that has a name": (
        "n, features = x.shape\n        k = x.size()[0]\n        seen += k",
        "print(seen)",
        "seen += k * dist.get_world_size()",
    ),
    "tokens, of which each rank has its own": (
        "seen += (y > 0).sum().item()",
        "print(seen)",
        "seen += all_reduce_sum((y > 0).sum().item())",
    ),
    "numbers of a tensor": ("seen += x.numel()", "print(seen)", "seen += all_reduce_sum(x.numel())"),
    "a learning rate that hangs on it": (
        f"{SEEN}\n        lr = 0.1 * min(1.0, seen / 100)",
        "",
        "seen += len(x) * dist.get_world_size()",
    ),
    "an end of training that hangs on it": (
        f"{SEEN}\n        if seen >= 1000:\n            break",
        "",
        "seen += len(x) * dist.get_world_size()",
    ),
    "progress through the epoch": (
        f"{SEEN}\n        print(f'{{seen}}/{{len(data)}}')",
        "",
        "seen += len(x) * dist.get_world_size()",
    ),
    "samples in a second": (
        SEEN,
        "speed = seen / (time.time() - began)\n    print('%.1f' % speed)",
        "seen += len(x) * dist.get_world_size()",
    ),
    "the batch size of this rank": (
        "seen += loader.batch_size",
        "print(seen)",
        "seen += loader.batch_size * dist.get_world_size()",
    ),
    "given to a function that shows it": (
        SEEN,
        "show(3, seen)",
        "seen += len(x) * dist.get_world_size()",
    ),
}
COUNTED_APART = {
    "a total is divided by it": (f"total += loss.item() * len(x)\n        {SEEN}", "print(total / seen)"),
    "by what is made of it": (SEEN, "n = max(seen, 1)\n    print(total / n)"),
    "in a function": (SEEN, "print(mean(total, seen))"),
    "in place": (SEEN, "total /= seen"),
    "a place in a list": (SEEN, "print(rows[seen:])"),
    "how far to go": (SEEN, "for i in range(seen):\n        print(i)"),
    "it is given back": (SEEN, "f = lambda: seen"),
    "under a condition of its own data": (f"if loss < 1:\n            {SEEN}", "print(seen)"),
    "counted elsewhere too": (SEEN, "seen += len(rows)\n    print(seen)"),
    "constants": ("seen += 1", "print(seen)"),
    "what the model says": ("seen += (model(x) > 0).sum().item()", "print(seen)"),
}
FUNCTIONS = (
    "def show(epoch, n):\n    print(epoch, n)\n\n\ndef mean(part, n):\n    return part / n\n\n\n"
    "seen, total, state = 0, 0.0, {'seen': 0}\n"
)


@pytest.mark.parametrize(("body", "after", "new"), COUNTED_ON.values(), ids=COUNTED_ON)
def test_what_is_counted_on_and_on_is_what_all_ranks_have_seen(body: str, after: str, new: str) -> None:
    script = f"{NET}{FUNCTIONS}{LOOP}        {body}\n    {after}\n"
    text, reasons = migrate(rule, script)
    assert (added(script, text).strip(), reasons) == (new, [])


@pytest.mark.parametrize(("body", "after"), COUNTED_APART.values(), ids=COUNTED_APART)
def test_what_is_counted_on_and_on_stays_where_more_than_a_look_hangs_on_it(body: str, after: str) -> None:
    script = f"{NET}{FUNCTIONS}{LOOP}        {body}\n    {after}\n"
    text, _ = migrate(rule, script)
    assert "all_reduce_sum" not in text
    assert "get_world_size" not in text


def test_what_a_method_counts_on_and_on() -> None:
    script = NET + TRAINER
    text, reasons = migrate(rule, script)
    new = "        self.seen += x.shape[0] * dist.get_world_size()"
    assert (added(script, text), reasons) == (new, [])
    evaluated = script + "with torch.no_grad():\n    for x, y in val_loader:\n        trainer.count(x)\n"
    assert "get_world_size" not in migrate(rule, evaluated)[0]


RETURNED = """
def train(batches, seen):
    for x, y in batches:
        loss = criterion(model(x), y)
        loss.backward()
        optimizer.step()
        seen += len(x)
    return {value}


seen, loss = 0, 0.0
for epoch in range(3):
    {taken} = train(loader, seen)
    print({shown})
"""
TAKEN = {
    "itself": ("seen", "seen", "seen"),
    "among others": ("loss.item(), seen", "loss, seen", "seen, loss"),
    "in thousands": ("seen / 1000", "k", "k"),
    "and left alone": ("loss.item(), seen", "loss, seen", ""),
}
TAKEN_APART = {
    "divided by it": ("loss.item(), seen", "loss, seen", "loss / seen"),
    "as one": ("loss.item(), seen", "both", "both"),
    "in a list": ("[loss.item(), seen]", "loss, seen", "seen"),
    "with a star": ("(loss.item(), seen)", "*loss, seen", "seen"),
    "a ratio": ("loss.item() / seen", "loss", "loss"),
}


@pytest.mark.parametrize(("value", "taken", "shown"), TAKEN.values(), ids=TAKEN)
def test_what_a_function_counts_on_and_gives_back(value: str, taken: str, shown: str) -> None:
    script = NET + RETURNED.format(value=value, taken=taken, shown=shown)
    text, _ = migrate(rule, script)
    assert "        seen += len(x) * dist.get_world_size()" in text


def test_what_a_function_counts_on_and_nobody_takes() -> None:
    script = NET + RETURNED.format(value="seen", taken="seen", shown="").replace("seen = train", "train")
    assert "seen += len(x) * dist.get_world_size()" in migrate(rule, script)[0]


@pytest.mark.parametrize(("value", "taken", "shown"), TAKEN_APART.values(), ids=TAKEN_APART)
def test_what_a_function_gives_back_to_be_divided_by_stays(value: str, taken: str, shown: str) -> None:
    script = NET + RETURNED.format(value=value, taken=taken, shown=shown)
    assert "get_world_size" not in migrate(rule, script)[0]


@pytest.mark.parametrize(
    "arguments",
    ["collate_fn=pad", "batch_sampler=Buckets(data)", "sampler=None, collate_fn=lambda rows: rows"],
)
def test_batches_of_which_ranks_may_have_different_ones_are_counted_together(arguments: str) -> None:
    net = NET.replace("DataLoader(data, 8, shuffle=True)", f"DataLoader(data, {arguments})")
    script = f"{net}seen = 0\n{LOOP}        {SEEN}\n    print(seen)\n"
    text, _ = migrate(rule, script)
    assert added(script, text) == "        seen += all_reduce_sum(len(x))"


FILLED = """
def note(i, out, y, places):
    start = i * 8
    places[0, start : start + len(y)] = out.detach().max(1)[0]
    places[1, start : start + len(y)] = y


for epoch in range(3):
    places = torch.zeros(2, len(data))
    for i, (x, y) in enumerate(loader):
        out = model(x)
        note(i, out, y, places)
        loss = criterion(out, y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(places.mean(1))
"""


def test_says_that_each_rank_fills_the_first_places_only() -> None:
    script = NET.replace("loader = ", "data = Digits()\nloader = ", 1) + FILLED
    script = script.replace("class Net", "class Digits(torch.utils.data.Dataset): ...\n\n\nclass Net", 1)
    text, reasons = migrate(rule, script)
    assert text == script
    assert len(reasons) == 1
    assert "`places` has a place for each sample" in reasons[0]
    epochs = script.replace("zeros(2, len(data))", "zeros(2, 800)")
    assert migrate(rule, epochs)[1] == []
