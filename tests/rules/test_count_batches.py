import pytest
from harness import LOOP, NET, added, migrate

from multicard.rules import count_batches as rule

EVALUATION = """
model.eval()
total = 0.0
with torch.no_grad():
    for x, y in val_loader:
        total += criterion(model(x), y).item()
"""
RUNNING = LOOP.replace("    for x", "    running = 0.0\n    for x") + "        running += loss.item()\n"
TRAIN_ONE = """
def train_one(model, loader):
    total = 0.0
    for x, y in loader:
        loss = criterion(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        total += loss.item()
    return total
"""
COUNTED = LOOP.replace("for x, y in loader", "for i, (x, y) in enumerate(loader)")
MIGRATED = {
    "a mean of batches": (
        LOOP + EVALUATION + "print(total / len(val_loader))\n",
        "print(total / global_batches(val_loader))",
    ),
    "the length of an evaluation's sampler": (
        LOOP + EVALUATION + "print(total / len(val_loader.sampler))\n",
        "print(total / global_samples(val_loader))",
    ),
    "the length of an evaluation's sampler, named": (
        LOOP + EVALUATION + "n = len(val_loader.sampler)\nprint(total / n)\n",
        "n = global_samples(val_loader)",
    ),
    "the length of a training's sampler": (
        RUNNING + "    print(running / len(loader.sampler))\n",
        "    print(running / global_samples(loader))",
    ),
    "the length of a sampler beside what all ranks have seen": (
        "\nseen = 0"
        + LOOP
        + "        seen += len(x)\n        print(f'{seen} of {len(loader.sampler)}')\nprint(seen)\n",
        "        print(f'{seen} of {global_samples(loader)}')",
    ),
    "the length of a batch sampler": (
        LOOP + EVALUATION + "print(total / len(val_loader.batch_sampler))\n",
        "print(total / global_batches(val_loader))",
    ),
    "in place": (LOOP + EVALUATION + "total /= len(val_loader)\n", "total /= global_batches(val_loader)"),
    "as a float": (
        LOOP + EVALUATION + "print(total / float(len(val_loader)))\n",
        "print(total / float(global_batches(val_loader)))",
    ),
    "of batches and their size": (
        LOOP + EVALUATION + "print(total / (len(val_loader) * 8))\n",
        "print(total / (global_batches(val_loader) * 8))",
    ),
    "named first": (
        LOOP + EVALUATION + "n = len(val_loader)\nprint(total / n)\n",
        "n = global_batches(val_loader)",
    ),
    "at least one": (
        LOOP + EVALUATION + "print(total / max(1, len(val_loader)))\n",
        "print(total / max(1, global_batches(val_loader)))",
    ),
    "asked of the loader itself": (
        LOOP + EVALUATION + "print(total / val_loader.__len__())\n",
        "print(total / global_batches(val_loader))",
    ),
    "the length of a progress bar": (
        "from tqdm import tqdm\n"
        + LOOP
        + EVALUATION.replace("    for x, y in val_loader", "    bar = tqdm(val_loader)\n    for x, y in bar")
        + "print(total / len(bar))\n",
        "print(total / global_batches(val_loader))",
    ),
    "the length of a progress bar under the loader's own name": (
        "from tqdm import tqdm\ndef evaluate(loader):\n    total = 0\n    loader = tqdm(loader)\n"
        "    for x, y in loader:\n        total += criterion(model(x), y).item()\n    return total / len(loader)\n"
        + LOOP
        + "print(evaluate(val_loader))\n",
        "    return total / global_batches(loader)",
    ),
    "the length of a progress bar of training": (
        "from tqdm import tqdm\n"
        + RUNNING.replace(
            "    for x, y in loader", "    bar = tqdm(enumerate(loader), total=9)\n    for i, (x, y) in bar"
        )
        + "    print(running / len(bar))\n",
        "    print(running / global_batches(loader))",
    ),
    "of training, whose total is over all ranks": (
        RUNNING + "    print(running / len(loader))\n",
        "    print(running / global_batches(loader))",
    ),
    "of training, divided by the caller": (
        TRAIN_ONE + "for epoch in range(3):\n    print(train_one(model, loader) / len(loader))\n",
        "    print(train_one(model, loader) / global_batches(loader))",
    ),
    "of training, named and divided by the caller": (
        TRAIN_ONE + "for epoch in range(3):\n    loss = train_one(model, loader)\n    loss /= len(loader)\n",
        "    loss /= global_batches(loader)",
    ),
    "samples seen, told in a format": (
        COUNTED + "        print('[{}/{}]'.format(i * len(x), len(loader.dataset)))\n",
        "        print('[{}/{}]'.format(i * len(x) * dist.get_world_size(), len(loader.dataset)))",
    ),
    "samples seen, told after a name": (
        COUNTED
        + "        loss, current = loss.item(), (i + 1) * len(x)\n        print(f'{loss} [{current:>5d}]')\n",
        "        loss, current = loss.item(), (i + 1) * len(x) * dist.get_world_size()",
    ),
    "samples seen, with those of this batch": (
        COUNTED + "        print('%d images' % (i * 8 + x.size(0)))\n",
        "        print('%d images' % ((i * 8 + x.size(0)) * dist.get_world_size()))",
    ),
    "samples seen since the start, along a curve": (
        COUNTED + "        add_scalar(loss, (epoch * len(loader) + i) * loader.batch_size)\n",
        "        add_scalar(loss, (epoch * len(loader) + i) * loader.batch_size * dist.get_world_size())",
    ),
    "samples seen, beside those of the epochs before": (
        "seen = []"
        + COUNTED
        + "        seen.append(i * 8 + (epoch - 1) * len(loader.dataset))\nplt.plot(seen, losses)\n",
        "        seen.append(i * 8 * dist.get_world_size() + (epoch - 1) * len(loader.dataset))",
    ),
    "samples seen, told by a function": (
        "def progress(n):\n    done = n * loader.batch_size\n    return '{}'.format(done)\n"
        + COUNTED
        + "        print(progress(i))\n",
        "    done = n * loader.batch_size * dist.get_world_size()",
    ),
    "samples seen, in a bar over all": (
        "from tqdm import tqdm\nbar = tqdm(total=len(loader.dataset))"
        + LOOP
        + "        bar.update(x.size(0))\n",
        "        bar.update(x.size(0) * dist.get_world_size())",
    ),
    "samples seen, as a share of all": (
        COUNTED + "        print(f'{100 * i * len(x) / len(loader.dataset)}')\n",
        "        print(f'{100 * i * len(x) * dist.get_world_size() / len(loader.dataset)}')",
    ),
}
LEFT_ALONE = {
    "samples seen choose what is trained on": COUNTED + "        part = rows[i * len(x):(i + 1) * len(x)]\n",
    "samples seen divide this rank's own sum": COUNTED + "        print(f'{running / (i * len(x))}')\n",
    "samples seen are divided by later": COUNTED
    + "        n = (i + 1) * len(x)\n        print(f'{n} {running / n}')\n",
    "samples seen end the epoch": COUNTED + "        if i * len(x) > 100:\n            break\n",
    "samples seen in an evaluation": LOOP
    + EVALUATION.replace("for x, y in val_loader", "for i, (x, y) in enumerate(val_loader)")
    + "        print(f'{i * 8}')\n",
    "the steps of a bar over batches": "from tqdm import tqdm\nbar = tqdm(total=len(loader))"
    + LOOP
    + "        bar.update(1)\n",
    "the steps of a bar over this rank's share": "from tqdm import tqdm\nbar = tqdm(total=len(loader) * 8)"
    + LOOP
    + "        bar.update(len(x))\n",
    "what a meter is told": LOOP + "        meter.update(len(x))\n",
    "the number of another loop": COUNTED
    + "        for j in range(3):\n            print(f'{j * len(x)}')\n",
    "a number that two loops count by": COUNTED + "for i in range(3):\n    print(f'{i * 8}')\n",
    "the length of the data set": LOOP + EVALUATION + "print(total / len(val_loader.dataset))\n",
    "the length of a list": LOOP + EVALUATION + "print(total / len(names))\n",
    "a loader that is not dealt out": LOOP
    + EVALUATION.replace("        total", "        if total > 9:\n            break\n        total")
    + "print(total / len(val_loader))\n",
    "the steps of a schedule are those of a rank": (
        "scheduler = torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.1, total_steps=3 * len(loader))" + LOOP
    ),
    "the steps of an epoch, named": "steps = len(loader)\nwarmup = steps // 10" + LOOP,
    "progress within an epoch": LOOP.replace("for x, y in loader", "for i, (x, y) in enumerate(loader)")
    + "        print(epoch + i / len(loader))\n",
    "a step number for a curve": LOOP.replace("for x, y in loader", "for i, (x, y) in enumerate(loader)")
    + "        print(epoch * len(loader) + i)\n",
    "the length of a progress bar within an epoch": (
        "from tqdm import tqdm\n"
        + LOOP.replace(
            "    for x, y in loader", "    bar = tqdm(loader)\n    for i, (x, y) in enumerate(bar)"
        )
        + "        print(i / len(bar))\n"
    ),
    "the length of a sampler as a measure of progress": LOOP.replace(
        "for x, y in loader", "for i, (x, y) in enumerate(loader)"
    )
    + "        print(i / len(loader.sampler))\n",
    "the length of a sampler that is not dealt out": LOOP
    + EVALUATION.replace("        total", "        if total > 9:\n            break\n        total")
    + "print(total / len(val_loader.sampler))\n",
    "only shown": LOOP + EVALUATION + "print('batches', len(loader))\n",
    "the end of a progress bar": "from tqdm import tqdm\nbar = tqdm(total=len(loader))" + LOOP,
    "a loss scaled for accumulation": LOOP.replace("loss.backward()", "(loss / len(loader)).backward()"),
    "the last batch": LOOP.replace("for x, y in loader", "for i, (x, y) in enumerate(loader)")
    + "        if i == len(loader) - 1:\n            print(loss)\n",
}


def test_a_batch_size_of_all_cards_counts_what_all_have_seen() -> None:
    script = NET + COUNTED + "        print(f'{i * 8} {i * loader.batch_size}')\n"
    text, _ = migrate(rule, script, batch="global")
    after = "        print(f'{i * 8} {i * loader.batch_size * dist.get_world_size()}')"
    assert added(script, text) == after


@pytest.mark.parametrize(("part", "after"), MIGRATED.values(), ids=MIGRATED)
def test_migrates(part: str, after: str) -> None:
    script = NET + part
    text, reasons = migrate(rule, script)
    assert (added(script, text), reasons) == (after, [])


@pytest.mark.parametrize("part", LEFT_ALONE.values(), ids=LEFT_ALONE)
def test_leaves_alone(part: str) -> None:
    script = NET + part
    assert migrate(rule, script) == (script, [])


def test_in_a_function_that_is_given_both_kinds_of_loader() -> None:
    script = (
        NET
        + "def run(loader, train):\n    total = 0.0\n    for x, y in loader:\n        loss = criterion(model(x), y)\n"
        "        if train:\n            loss.backward()\n            optimizer.step()\n        total += loss.item()\n"
        "    return total / len(loader)\n\n"
        "for epoch in range(3):\n    run(loader, True)\n    with torch.no_grad():\n        run(val_loader, False)\n"
    )
    text, reasons = migrate(rule, script)
    assert (added(script, text), reasons) == ("    return total / global_batches(loader)", [])
