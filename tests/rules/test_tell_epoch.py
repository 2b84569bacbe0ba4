import pytest
from harness import LOOP, TRAINING, added, migrate, migrate_modules

from multicard.rules import tell_epoch as rule

STEP = "loss = model(x).sum()\n{0}optimizer.zero_grad()\n{0}loss.backward()\n{0}optimizer.step()\n"
ONE_EPOCH = "def one_epoch(loader):\n    for x, y in loader:\n        " + STEP.format("        ")
FIT = (
    "def fit(loader, epochs):\n    for epoch in range(epochs):\n        for x, y in loader:\n            "
    + STEP.format("            ")
)
SECOND = LOOP.replace("epoch", "e").replace("range(3)", "range(3, 9)")
PHASES = (
    "loaders = {p: DataLoader(sets[p], 8, shuffle=True) for p in ['train', 'val']}\nfor epoch in range(3):\n"
    "    for phase in ['train', 'val']:\n        for x, y in loaders[phase]:\n            loss = model(x).sum()\n"
    "            if phase == 'train':\n                optimizer.zero_grad()\n                loss.backward()\n"
    "                optimizer.step()\n"
)
MIGRATED = {
    "as in the guide": (LOOP, "    loader.sampler.set_epoch(epoch)"),
    "another counter": (LOOP.replace("epoch", "ep"), "    loader.sampler.set_epoch(ep)"),
    "counted from one": (LOOP.replace("range(3)", "range(1, 4)"), "    loader.sampler.set_epoch(epoch)"),
    "counted by a progress bar": (
        "from tqdm import trange" + LOOP.replace("range(3)", "trange(3)"),
        "    loader.sampler.set_epoch(epoch)",
    ),
    "counted in a progress bar": (
        "from tqdm import tqdm" + LOOP.replace("range(3)", "tqdm(range(3))"),
        "    loader.sampler.set_epoch(epoch)",
    ),
    "enumerated": (
        LOOP.replace("for epoch in range(3)", "for epoch, rate in enumerate(rates)"),
        "    loader.sampler.set_epoch(epoch)",
    ),
    "batches enumerated": (
        LOOP.replace("x, y in loader", "i, (x, y) in enumerate(loader)"),
        "    loader.sampler.set_epoch(epoch)",
    ),
    "the batches in another function": (
        ONE_EPOCH + "for epoch in range(3):\n    one_epoch(loader)\n",
        "    loader.sampler.set_epoch(epoch)",
    ),
    "both loops in another function": (FIT + "fit(loader, 3)\n", "        loader.sampler.set_epoch(epoch)"),
    "two stages": (LOOP + SECOND, "    loader.sampler.set_epoch(epoch)\n    loader.sampler.set_epoch(e)"),
    "two loaders at once": (
        "other = DataLoader(more, 8, shuffle=True)"
        + LOOP.replace("x, y in loader", "(x, y), (u, v) in zip(loader, other)").replace(
            "model(x)", "model(x + u)"
        ),
        "    loader.sampler.set_epoch(epoch)\n    other.sampler.set_epoch(epoch)",
    ),
    "in a dict": (
        "loaders = {'train': loader}" + LOOP.replace("in loader", "in loaders['train']"),
        "    loaders['train'].sampler.set_epoch(epoch)",
    ),
    "whole batches": (
        "loader = DataLoader(data, batch_sampler=Buckets(data))" + LOOP,
        "    set_epoch(loader, epoch)",
    ),
    "phases that are put together": (
        "phases = ['train'] + (['test'] if args.test else [])\n"
        + PHASES.replace("for phase in ['train', 'val']", "for phase in phases"),
        "        set_epoch(loaders[phase], epoch)",
    ),
    "known by what is walked through": (PHASES, "        set_epoch(loaders[phase], epoch)"),
    "a loader that only a branch makes": (
        "if args.semi:\n    other = DataLoader(more, 8, shuffle=True)\n"
        + LOOP
        + "    if args.semi:\n        for x, y in other:\n            "
        + STEP.format("            "),
        "    loader.sampler.set_epoch(epoch)\n        other.sampler.set_epoch(epoch)",
    ),
    "a loader that may be none": (
        "other = None\nif args.semi:\n    other = DataLoader(more, 8, shuffle=True)\n"
        + LOOP
        + "    if other is not None:\n        for x, y in other:\n            "
        + STEP.format("            "),
        "    loader.sampler.set_epoch(epoch)\n    set_epoch(other, epoch)",
    ),
    "an element that only a branch makes": (
        "loaders = {'train': loader}\nif args.more:\n    loaders['more'] = DataLoader(more, 8, shuffle=True)\n"
        "def one_epoch():\n    for x, y in loaders['train']:\n        "
        + STEP.format("        ")
        + "    if args.more:\n        for x, y in loaders['more']:\n            "
        + STEP.format("            ")
        + "def fit():\n    for epoch in range(3):\n        one_epoch()\nfit()\n",
        "        loader.sampler.set_epoch(epoch)",
    ),
    "an attribute that another method makes in any case": (
        "class Trainer:\n    def __init__(self):\n        if args.more:\n"
        "            self.loader = DataLoader(more, 8, shuffle=True)\n        else:\n            self.loader = loader\n"
        "    def one_epoch(self):\n        for x, y in self.loader:\n            "
        + STEP.format("            ")
        + "    def fit(self):\n        for epoch in range(3):\n            self.one_epoch()\nTrainer().fit()\n",
        "            self.loader.sampler.set_epoch(epoch)",
    ),
    "a loader that each branch makes": (
        "if args.semi:\n    other = DataLoader(more, 8, shuffle=True)\nelse:\n"
        "    other = DataLoader(data, 8, shuffle=True)\n" + LOOP.replace("in loader", "in other"),
        "    other.sampler.set_epoch(epoch)",
    ),
    "a loop on one line": (
        ONE_EPOCH + "for epoch in range(3): one_epoch(loader)\n",
        "for epoch in range(3): \n    loader.sampler.set_epoch(epoch)\n    one_epoch(loader)",
    ),
}
LEFT_ALONE = {
    "epochs without a number: samplers count the passes": LOOP.replace(
        "for epoch in range(3):", "epoch = 0\nwhile epoch < 3:\n    epoch += 1"
    ),
    "a number thrown away": LOOP.replace("epoch", "_"),
    "one pass": "for x, y in loader:\n    " + STEP.format("    "),
    "phases are not epochs": "for phase in ['a', 'b']:\n    for x, y in loader:\n        "
    + STEP.format("        "),
    "things are not epochs": "for rate in [0.1, 0.01]:\n    for x, y in loader:\n        "
    + STEP.format("        "),
    "no loader": "for epoch in range(3):\n    for x, y in batches:\n        " + STEP.format("        "),
    "told already": LOOP.replace("    for x", "    loader.sampler.set_epoch(epoch)\n    for x"),
    "a loop over the epochs that only evaluates": "for epoch in range(3):\n    for x, y in loader:\n        model(x)\n",
}


@pytest.mark.parametrize(("loop", "after"), MIGRATED.values(), ids=MIGRATED)
def test_migrates(loop: str, after: str) -> None:
    script = TRAINING + loop
    text, reasons = migrate(rule, script)
    assert (added(script, text), reasons) == (after, [])


@pytest.mark.parametrize("loop", LEFT_ALONE.values(), ids=LEFT_ALONE)
def test_leaves_alone(loop: str) -> None:
    script = TRAINING + loop
    assert migrate(rule, script) == (script, [])


def test_a_loader_made_anew_each_epoch_is_told_after_it_is_made() -> None:
    script = TRAINING + LOOP.replace(
        "    for x", "    loader = DataLoader(draw(), 8, shuffle=True)\n    for x"
    )
    text, reasons = migrate(rule, script)
    assert (added(script, text), reasons) == ("    loader.sampler.set_epoch(epoch)", [])
    assert text.index("set_epoch") > text.index("    loader = DataLoader(draw()")


def test_a_trainer_in_another_module() -> None:
    trainer = (
        "class Trainer:\n"
        "    def __init__(self, model, loader, optimizer):\n"
        "        self.model, self.loader, self.optimizer = model, loader, optimizer\n"
        "    def epoch(self):\n"
        "        for x, y in self.loader:\n"
        "            loss = self.model(x).sum()\n"
        "            loss.backward()\n"
        "            self.optimizer.step()\n"
        "    def fit(self, n):\n"
        "        for number in range(n):\n"
        "            self.epoch()\n"
    )
    script = "from engine import Trainer\n" + TRAINING + "Trainer(model, loader, optimizer).fit(3)\n"
    texts, _ = migrate_modules(rule, {"__main__": script, "engine": trainer})
    assert added(trainer, texts["engine"]) == "            self.loader.sampler.set_epoch(number)"
    assert texts["__main__"] == script


def test_epochs_counted_out_of_sight_of_the_loader() -> None:
    script = (
        TRAINING
        + "def one_epoch():\n    for x, y in loader:\n        "
        + STEP.format("        ")
        + "def run():\n    for epoch in range(3):\n        one_epoch()\nrun()\n"
    )
    text, _ = migrate(rule, script)
    assert added(script, text) == "        loader.sampler.set_epoch(epoch)"
