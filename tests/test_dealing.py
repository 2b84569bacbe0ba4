"""Which loaders are dealt out, which loops walk through shares, and every reason against it."""

import pytest
from harness import LOOP, NET, facts_of

from multicard.facts import Facts

VISIT = """
hits = 0
model.eval()
with torch.no_grad():
    for x, y in val_loader:
        out = model(x)
        hits += (out.argmax(1) == y).sum().item()
print(hits)
"""


def lines(facts: Facts) -> list[tuple[str, bool]]:
    """Each loop over loaders that does not train, and whether it walks through a share."""
    return [
        (visit.module.text(visit.node).splitlines()[0], facts.dealing.shared(visit))
        for visit in facts.dealing.visits
        if not visit.dead
    ]


def why(facts: Facts) -> str:
    """What was not understood of the loops that live."""
    return "; ".join(
        en
        for visit in facts.dealing.visits
        if not visit.dead
        for _, en, _ in (*visit.problems, *visit.reading.problems)
    )


def whole(facts: Facts) -> list[str]:
    """Expressions that must give a whole loader."""
    return [module.text(node) for module, node, _, _ in facts.dealing.whole]


SHARED = {
    "as in the guide": VISIT,
    "in a function": (
        "def validate(net, loader):\n    hits = 0\n    with torch.no_grad():\n        for x, y in loader:\n"
        "            hits += (net(x).argmax(1) == y).sum().item()\n    return hits\n"
        "print(validate(model, val_loader))\n"
    ),
    "wrapped in a bar": "from tqdm import tqdm\n" + VISIT.replace("in val_loader", "in tqdm(val_loader)"),
    "enumerated": VISIT.replace("for x, y in val_loader", "for i, (x, y) in enumerate(val_loader)"),
    "without no_grad": VISIT.replace("with torch.no_grad():", "if True:"),
    "calling a helper": "def correct(out, y):\n    return (out.argmax(1) == y).sum().item()\n"
    + VISIT.replace("(out.argmax(1) == y).sum().item()", "correct(out, y)"),
    "with a progress line": VISIT.replace("print(hits)", "print(hits)", 1).replace(
        "        hits +=", "        print('.', end='')\n        hits +="
    ),
    "with a file for the first batch alone": VISIT.replace(
        "x, y in val_loader", "i, (x, y) in enumerate(val_loader)"
    ).replace(
        "        hits +=", "        if i == 0:\n            torch.save(out, 'first.pt')\n        hits +="
    ),
    "twice over one loader": VISIT + VISIT,
    "with a clock of its own": (
        "class Clock:\n    def __init__(self):\n        self.spent = 0\n    def tick(self, seconds):\n"
        "        self.spent += seconds\nclock = Clock()\n"
        + VISIT.replace("        hits +=", "        clock.update(1)\n        hits +=").replace(
            "update", "tick"
        )
    ),
    "with a criterion": VISIT.replace("hits += ", "hits += criterion(out, y).item() + "),
}
WHOLE = {
    "a file for each batch": (
        VISIT.replace("        hits +=", "        torch.save(out, f'{hits}.pt')\n        hits +="),
        "a file is written for each batch",
    ),
    "a table row for each batch": (
        "import csv\nrows = csv.writer(open('a.csv', 'w'))\n"
        + VISIT.replace("        hits +=", "        rows.writerow(out.tolist())\n        hits +="),
        "a file is written for each batch",
    ),
    "a curve for each batch": (
        "from torch.utils.tensorboard import SummaryWriter\nwriter = SummaryWriter()\n"
        + VISIT.replace("        hits +=", "        writer.add_scalar('a', hits)\n        hits +="),
        "a file is written for each batch",
    ),
    "a plot for each batch": (
        "import matplotlib.pyplot as plt\n"
        + VISIT.replace("        hits +=", "        plt.imshow(x[0])\n        hits +="),
        "drawn for each batch",
    ),
    "training in it": (
        VISIT.replace("        hits +=", "        optimizer.step()\n        hits +="),
        "the loop trains as well",
    ),
    "a helper that changes its argument": (
        "def keep(out, store):\n    store['last'] = out\nstore = {}\n"
        + VISIT.replace("        hits +=", "        keep(out, store)\n        hits +=")
        + "print(store)\n",
        "`keep` changes what lives on after the loop",
    ),
    "a helper that changes a global": (
        "seen = 0\ndef count():\n    global seen\n    seen += 1\n"
        + VISIT.replace("        hits +=", "        count()\n        hits +=")
        + "print(seen)\n",
        "`count` changes what lives on after the loop",
    ),
    "a method that changes its object": (
        "class Keeper:\n    def __init__(self):\n        self.rows = []\n    def keep(self, out):\n"
        "        self.rows.append(out)\nkeeper = Keeper()\n"
        + VISIT.replace("        hits +=", "        keeper.keep(out)\n        hits +=")
        + "print(keeper.rows)\n",
        "`keep` changes what lives on after the loop",
    ),
    "a stop": (
        VISIT.replace("        hits +=", "        if hits > 3:\n            break\n        hits +="),
        "stops after",
    ),
    "the last batch": (VISIT + "print(out)\n", "not a plain sum"),
    "the training loader": (
        VISIT.replace("val_loader", "loader"),
        "its batches come from the training loader",
    ),
    "a sampler of its own": (
        "val_loader = DataLoader(val_set, 8, sampler=torch.utils.data.RandomSampler(val_set))\n" + VISIT,
        "a sampler of its own",
    ),
    "whole batches of its own": (
        "val_loader = DataLoader(val_set, batch_sampler=mine)\n" + VISIT,
        "a sampler of its own",
    ),
    "arguments out of sight": ("val_loader = DataLoader(*parts)\n" + VISIT, "arguments that cannot be seen"),
    "two dicts of arguments": (
        "val_loader = DataLoader(**a, **b)\n" + VISIT,
        "arguments that cannot be seen",
    ),
    "a stream": (
        "class Stream(torch.utils.data.IterableDataset):\n    def __iter__(self):\n        yield 1\n"
        "val_loader = DataLoader(Stream(), 8)\n" + VISIT,
        "a sampler of its own",
    ),
    "a model out of sight": (
        (
            "class Holder:\n    def __init__(self):\n        self.parts = [model]\n    def run(self, x):\n"
            "        return self.parts[0](x)\nholder = Holder()\n"
            "def validate(h):\n    hits = 0\n    for x, y in val_loader:\n        hits += h.run(x).sum().item()\n"
            "    return hits\n"
            "print(validate(holder))\n"
        ),
        "",
    ),
}
PLACES = {
    "batches one by one": (VISIT + "x, y = next(iter(val_loader))\n", ["val_loader"]),
    "a list of batches": (VISIT + "batches = [x for x, _ in val_loader]\n", ["val_loader"]),
    "a loop that stops": (
        VISIT + VISIT.replace("        hits +=", "        if hits: break\n        hits +="),
        ["val_loader"],
    ),
    "a loop without the model": (
        VISIT + "for x, y in val_loader:\n    last = x\nprint(last)\n",
        ["val_loader"],
    ),
    "a library's loop": (
        "from torch.optim.swa_utils import update_bn\n" + VISIT + "update_bn(loader, model)\n",
        ["loader"],
    ),
    "nothing": (VISIT, []),
    "the training data, and their length": (
        VISIT + VISIT.replace("val_loader", "loader") + "print(hits / len(loader))\n",
        ["loader", "loader"],
    ),
    "the training data, and a length that is another's": (
        "steps = 3 * len(loader)\n"
        + VISIT
        + VISIT.replace("val_loader", "loader")
        + "print(steps / len(val_loader))\n",
        ["loader"],
    ),
}


@pytest.mark.parametrize("part", SHARED.values(), ids=SHARED)
def test_a_loop_walks_through_a_share(part: str) -> None:
    facts = facts_of(NET + LOOP + part)
    assert [shared for _, shared in lines(facts)] == [True] * len(lines(facts)) != []
    assert (len(facts.dealing.dealt), why(facts), whole(facts)) == (1, "", [])


@pytest.mark.parametrize(("part", "reason"), WHOLE.values(), ids=WHOLE)
def test_a_loop_walks_through_everything_and_the_reason_is_told(part: str, reason: str) -> None:
    facts = facts_of(NET + LOOP + part)
    assert True not in [shared for _, shared in lines(facts)]
    assert reason in why(facts)
    assert facts.dealing.dealt == frozenset()


@pytest.mark.parametrize(("part", "expressions"), PLACES.values(), ids=PLACES)
def test_what_must_see_every_batch_of_a_dealt_loader(part: str, expressions: list[str]) -> None:
    facts = facts_of(NET + LOOP + part)
    assert len(facts.dealing.dealt) == 1
    assert whole(facts) == expressions


def test_a_loop_over_two_loaders_is_shared_if_both_are_dealt_out() -> None:
    both = (
        "def run(loader):\n    hits = 0\n    for x, y in loader:\n        hits += model(x).sum().item()\n"
        "    return hits\n"
        "test_loader = DataLoader(test_set, 8)\nprint(run(val_loader), run(test_loader))\n"
    )
    facts = facts_of(NET + LOOP + both)
    assert [shared for _, shared in lines(facts)] == [True]
    assert len(facts.dealing.dealt) == 2
    own = both.replace("DataLoader(test_set, 8)", "DataLoader(test_set, 8, sampler=mine)")
    facts = facts_of(NET + LOOP + own)
    assert [shared for _, shared in lines(facts)] == [False]


CONDITIONS = {
    "a flag": (
        (
            "def build(d, train):\n    return DataLoader(d, 8, shuffle=train)\n"
            "loader, val_loader = build(a, True), build(b, False)\n"
        ),
        "train",
    ),
    "a word": (
        (
            "def build(split):\n    d = Data(split)\n    return DataLoader(d, 8, shuffle=True)\n"
            "loader, val_loader = build('train'), build('val')\n"
        ),
        'split == "train"',
    ),
    "a word by keyword": (
        (
            "def build(*, split):\n    d = Data(split)\n    return DataLoader(d, 8)\n"
            "loader, val_loader = build(split='fit'), build(split='val')\n"
        ),
        "",
    ),
    "a key of a comprehension": (
        (
            "loaders = {k: DataLoader(sets[k], 8) for k in ['train', 'val']}\n"
            "loader, val_loader = loaders['train'], loaders['val']\n"
        ),
        'k == "train"',
    ),
    "a default": (
        "def build(d, train=True):\n    return DataLoader(d, 8)\nloader, val_loader = build(a), build(b, False)\n",
        "train",
    ),
    "nothing tells them apart": (
        "def build(d):\n    return DataLoader(d, 8)\nloader, val_loader = build(a), build(b)\n",
        "",
    ),
}


@pytest.mark.parametrize(("made", "condition"), CONDITIONS.values(), ids=CONDITIONS)
def test_one_line_that_makes_both_kinds_tells_them_by_what_it_is_given(made: str, condition: str) -> None:
    head = NET.replace(
        "loader = DataLoader(data, 8, shuffle=True)\nval_loader = DataLoader(val_set, 8)\n", made
    )
    facts = facts_of(head + LOOP + VISIT)
    [site] = facts.dealing.sites
    assert site.condition == condition
    assert (len(site.train), len(site.evaluate), len(site.spilled)) == ((1, 1, 0) if condition else (1, 0, 1))
    assert [shared for _, shared in lines(facts)] == [bool(condition)]


def test_loaders_of_one_line_stay_whole_where_their_loop_is_not_understood() -> None:
    made, _ = CONDITIONS["a default"]
    head = NET.replace(
        "loader = DataLoader(data, 8, shuffle=True)\nval_loader = DataLoader(val_set, 8)\n", made
    )
    facts = facts_of(head + LOOP + VISIT.replace("hits +=", "hits = hits * 2 +"))
    [site] = facts.dealing.sites
    assert (len(site.train), len(site.evaluate), len(site.spilled)) == (1, 0, 1)
    assert whole(facts) == ["build(b, False)"]
