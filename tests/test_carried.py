"""What a loop carries out: each form that can be put together again, and each refusal."""

import ast
import re

import pytest
from harness import NET, facts_of

from multicard.carried import How, Reading, read_loop

METERS = """
class Average:
    def __init__(self):
        self.total, self.n = 0.0, 0

    def update(self, value, n=1):
        self.total += value * n
        self.n += n

    @property
    def mean(self):
        return self.total / self.n


class AverageMeter(object):
    def __init__(self, name, fmt=":f"):
        self.name = name
        self.fmt = fmt
        self.reset()

    def reset(self):
        self.val = 0
        self.avg = 0
        self.sum = 0
        self.count = 0

    def update(self, val, n=1):
        self.val = val
        self.sum += val * n
        self.count += n
        self.avg = self.sum / self.count

    def __str__(self):
        return f"{self.name} {self.val} ({self.avg})"


class Smooth:
    def __init__(self):
        self.value = 0.0

    def update(self, value):
        self.value = 0.9 * self.value + 0.1 * value


class Window:
    def __init__(self):
        self.values = []

    def update(self, value):
        self.values.append(value)


class Best:
    def __init__(self):
        self.best = 0.0

    def update(self, value):
        if value > self.best:
            self.best = value
"""


def read(start: str, body: str, after: str, head: str = "for x, y in val_loader:") -> Reading:
    lines = "".join(f"        {line}\n" for line in body.splitlines())
    script = (
        f"import numpy as np\nfrom collections import Counter, defaultdict, deque\n{METERS}{NET}"
        "for x, y in loader:\n    criterion(model(x), y).backward()\n    optimizer.step()\n"
        f"{start}\nwith torch.no_grad():\n    {head}\n        out = model(x)\n{lines}{after}\n"
    )
    facts = facts_of(script)
    module = facts.program.entry
    loops = [node for node in ast.walk(module.tree) if isinstance(node, ast.For)]
    loop = next(node for node in loops if module.text(node).startswith(head))
    return read_loop(facts, module, loop)


SUMS = {
    "a number": ("n = 0", "n += len(y)"),
    "a float": ("n = 0.", "n += criterion(out, y).item()"),
    "spelled out": ("n = 0", "n = n + len(y)"),
    "spelled the other way": ("n = 0", "n = len(y) + n"),
    "taken away": ("n = 0", "n -= len(y)"),
    "a tensor": ("n = torch.zeros(1)", "n += criterion(out, y)"),
    "a tensor on a device": ("n = torch.tensor(0.0).to(device)", "n += criterion(out, y)"),
    "a tensor in place": ("n = torch.zeros(3)", "n.add_(out.sum(0))"),
    "an array": ("n = np.zeros(3)", "n += out.sum(0).numpy()"),
    "an array by class": ("n = np.zeros(3)", "n[int(y[0])] += 1"),
    "a matrix": ("n = torch.zeros(2, 2)", "n[int(y[0]), 0] += 1"),
    "a list of counts": ("n = [0, 0]", "n[0] += 1"),
    "many counts": ("n = [0 for _ in range(9)]", "n[int(y[0])] += 1"),
    "counts by key": ("n = {'a': 0, 'b': 0}", "n['a'] += len(y)"),
    "counts by any key": ("n = defaultdict(float)", "n[int(y[0])] += 1.0"),
    "counts of a comprehension": ("n = {k: 0 for k in names}", "n[names[0]] += 1"),
    "an empty dict of counts": ("n = dict()", "n['a'] += 1"),
    "counts by key, spelled out": ("n = {}", "n['a'] = n.get('a', 0) + len(y)"),
    "counts by any key, spelled out": ("n = defaultdict(int)", "n[int(y[0])] = n[int(y[0])] + 1"),
    "a counter": ("n = Counter()", "n[int(y[0])] += 1"),
    "several at once": ("n = m = 0", "n += 1\nm += 2"),
    "a tuple at once": ("n, m = 0, 0.0", "n += 1\nm += 2"),
    "under a condition of the data": ("n = 0", "if out.sum() > 0:\n    n += 1"),
    "in an inner loop": ("n = 0", "for a, b in zip(y, out):\n    n += int(a)"),
}
LISTS = {
    "appended": ("n = []", "n.append(out)"),
    "extended": ("n = []", "n.extend(out.tolist())"),
    "added": ("n = []", "n += out.tolist()"),
    "by its class": ("n = list()", "n.append(out)"),
    "a text": ("n = ''", "n += str(int(y[0]))"),
    "a set": ("n = set()", "n.add(int(y[0]))"),
    "concatenated tensors": ("n = torch.tensor([])", "n = torch.cat([n, out])"),
    "concatenated along the first axis": ("n = torch.empty(0, 2)", "n = torch.cat((n, out), dim=0)"),
    "concatenated arrays": ("n = np.array([])", "n = np.append(n, out.numpy())"),
    "stacked arrays": ("n = np.empty((0, 2))", "n = np.vstack([n, out.numpy()])"),
    "by key": ("n = {}", "n[int(y[0])] = out"),
    "merged by key": ("n = {}", "n.update({int(y[0]): out})"),
    "lists by key": ("n = {'a': [], 'b': []}", "n['a'].append(out)"),
    "lists by any key": ("n = defaultdict(list)", "n[int(y[0])].extend(out)"),
    "in an inner loop": ("n = []", "for a in out:\n    n.append(a)"),
}
EXTREMES = {
    "the largest": ("n = 0", "n = max(n, float(out.max()))", How.MAX),
    "the largest, the other way": ("n = -1e9", "n = max(float(out.max()), n)", How.MAX),
    "the smallest": ("n = 1e9", "n = min(n, float(out.min()))", How.MIN),
}
NOTHING = {
    "nothing": ("", "out.sum()", ""),
    "what nobody reads": ("n = 0", "n += 1", ""),
    "what the loop makes itself": ("", "n = 0\nn += len(y)", ""),
    "what is set anew after the loop": ("n = 0", "n += 1", "n = 3\nprint(n)"),
    "what another loop binds": ("", "z = out", "for z in names:\n    print(z)"),
    "a variable of a comprehension": ("", "z = out", "print([z for z in names])"),
    "the model's mode": ("", "model.eval()", "print(model)"),
}
REFUSED = {
    "the last batch": ("", "z = out", "print(z)", "not a plain sum"),
    "the last batch's own name": ("", "pass", "print(x)", "last batch"),
    "a running mean": ("n = 0.0", "n = 0.9 * n + 0.1 * float(out.sum())", "print(n)", "not a plain sum"),
    "a product": ("n = 1.0", "n *= float(out.sum())", "print(n)", "not a plain sum"),
    "a sum that does not start empty": ("n = 5", "n += 1", "print(n)", "not a plain sum"),
    "a list that does not start empty": ("n = [1]", "n.append(out)", "print(n)", "not a plain sum"),
    "a total of totals": ("n = m = 0", "n += 1\nm += n", "print(n, m)", "not a plain sum"),
    "only every other batch": ("n = 0", "if i % 2:\n    n += 1", "print(n)", "number of the batch"),
    "the number of the batch is added": ("n = 0", "n += i", "print(n)", "number of the batch"),
    "the number of the batch is kept": ("n = []", "n.append((i, out))", "print(n)", "number of the batch"),
    "the number of the batch is the key": ("n = {}", "n[i] = out", "print(n)", "number of the batch"),
    "up to so many": ("n = []", "if len(n) < 3:\n    n.append(out)", "print(n)", "grown so far"),
    "until a sum is reached": ("n = 0", "if n < 5:\n    n += len(y)", "print(n)", "grown so far"),
    "each thing once": (
        "seen, n = set(), 0",
        "if int(y[0]) not in seen:\n    seen.add(int(y[0]))\n    n += 1",
        "print(n, seen)",
        "grown so far",
    ),
    "a running number is kept": ("n, k = [], 0", "n.append((k, out))\nk += 1", "print(n, k)", "grown so far"),
    "a running number is the key": ("n, k = {}, 0", "n[k] = out\nk += 1", "print(n, k)", "grown so far"),
    "where the list stands is kept": ("n = []", "n.append((len(n), out))", "print(n)", "grown so far"),
    "a stop": ("n = 0", "n += 1\nif n > 3:\n    break", "print(n)", "stops after some batches"),
    "concatenated along another axis": (
        "n = torch.tensor([])",
        "n = torch.cat([n, out], 1)",
        "print(n)",
        "not a plain",
    ),
    "added in front": ("n = []", "n.insert(0, out)", "print(n)", "not a plain sum"),
    "taken out again": ("n = []", "n.append(out)\nn.pop()", "print(n)", "not a plain sum"),
    "a window": ("n = deque(maxlen=9)", "n.append(out)", "print(n)", "not a plain sum"),
    "set to what comes": (
        "best = 0.0",
        "if out.max() > best:\n    best = float(out.max())",
        "print(best)",
        "not a plain",
    ),
    "a smoothed meter": ("n = Smooth()", "n.update(out.sum())", "print(n.value)", "keeps state of its own"),
    "a meter of a window": (
        "n = Window()",
        "n.update(out.sum())",
        "print(n.values)",
        "keeps state of its own",
    ),
    "a meter of the best": ("n = Best()", "n.update(out.sum())", "print(n.best)", "keeps state of its own"),
}


@pytest.mark.parametrize(("start", "body"), SUMS.values(), ids=SUMS)
def test_a_sum_over_the_ranks_is_the_sum(start: str, body: str) -> None:
    reading = read(start, body, "print(n)")
    assert ([item for item in reading.of(How.SUM) if item != "m"], reading.problems) == (["n"], [])


@pytest.mark.parametrize(("start", "body"), LISTS.values(), ids=LISTS)
def test_shares_joined_in_rank_order_are_the_whole(start: str, body: str) -> None:
    reading = read(start, body, "print(n)")
    assert (reading.of(How.GATHER), reading.problems) == (["n"], [])


@pytest.mark.parametrize(("start", "body", "how"), EXTREMES.values(), ids=EXTREMES)
def test_the_largest_and_the_smallest(start: str, body: str, how: How) -> None:
    reading = read(start, body, "print(n)")
    assert (reading.of(how), reading.problems) == (["n"], [])


@pytest.mark.parametrize(("start", "body", "after"), NOTHING.values(), ids=NOTHING)
def test_nothing_is_carried(start: str, body: str, after: str) -> None:
    reading = read(start, body, after)
    assert (reading.carried, reading.problems) == ([], [])


@pytest.mark.parametrize(("start", "body", "after", "why"), REFUSED.values(), ids=REFUSED)
def test_is_not_understood_and_says_why(start: str, body: str, after: str, why: str) -> None:
    numbered = re.search(r"\bi\b", body)
    head = "for i, (x, y) in enumerate(val_loader):" if numbered else "for x, y in val_loader:"
    reading = read(start, body, after, head)
    assert why in " ".join(en for _, en, _ in reading.problems)
    assert all(zh for _, _, zh in reading.problems)


@pytest.mark.parametrize(
    ("kind", "sums", "derived"),
    [
        ("Average()", ("total", "n"), ()),
        ("AverageMeter('loss')", ("sum", "count"), (("avg", "self.sum / self.count"),)),
    ],
)
def test_a_meter_is_its_sums_and_what_follows_from_them(
    kind: str, sums: tuple[str, ...], derived: tuple[tuple[str, str], ...]
) -> None:
    reading = read(f"m = {kind}", "m.update(criterion(out, y).item(), len(y))", "print(m)")
    assert (reading.of(How.METER), reading.problems) == (["m"], [])
    assert (reading.meters["m"].sums, reading.meters["m"].derived) == (sums, derived)


def test_the_number_of_the_last_batch_is_that_of_all_batches() -> None:
    reading = read("n = 0", "n += 1", "print(n / (i + 1))", "for i, (x, y) in enumerate(val_loader):")
    assert (reading.of(How.SUM), reading.of(How.COUNT), reading.problems) == (["n"], ["i"], [])


def test_a_return_in_the_loop_is_a_way_out() -> None:
    script = (
        f"{NET}for x, y in loader:\n    criterion(model(x), y).backward()\n    optimizer.step()\n"
        "def first():\n    for x, y in val_loader:\n        if y[0]:\n            return model(x)\nfirst()\n"
    )
    facts = facts_of(script)
    module = facts.program.entry
    loop = [node for node in ast.walk(module.tree) if isinstance(node, ast.For)][-1]
    assert [en for _, en, _ in read_loop(facts, module, loop).problems] == ["the loop returns before its end"]


def test_what_is_begun_anew_behind_the_outer_loop_is_carried_to_where_it_is_read_in_it() -> None:
    script = (
        f"{NET}for epoch in range(3):\n    for x, y in loader:\n        criterion(model(x), y).backward()\n"
        "        optimizer.step()\n    n = 0\n    for x, y in val_loader:\n        n += len(model(x))\n"
        "    n = n / 2\n    print(n)\nn = 0\nprint(n)\n"
    )
    facts = facts_of(script)
    module = facts.program.entry
    loop = next(
        node
        for node in ast.walk(module.tree)
        if isinstance(node, ast.For) and module.text(node.iter) == "val_loader"
    )
    assert read_loop(facts, module, loop).of(How.SUM) == ["n"]


def test_a_value_that_the_outer_loop_reads_next_time_is_carried() -> None:
    reading = read("n = 0\nfor epoch in range(3):\n  print(n)", "n += 1", "", "for x, y in val_loader:")
    assert reading.of(How.SUM) == []
    script = (
        f"{NET}n = 0\nfor epoch in range(3):\n    print(n)\n    for x, y in loader:\n"
        "        criterion(model(x), y).backward()\n        optimizer.step()\n"
        "    for x, y in val_loader:\n        n += len(model(x))\n"
    )
    facts = facts_of(script)
    module = facts.program.entry
    loop = next(
        node
        for node in ast.walk(module.tree)
        if isinstance(node, ast.For)
        and "len(" in module.text(node)
        and "val_loader" in module.text(node.iter)
    )
    reading = read_loop(facts, module, loop)
    assert [en for _, en, _ in reading.problems] == [
        "`n` leaves the loop and is not a plain sum or list that starts before it"
    ]
