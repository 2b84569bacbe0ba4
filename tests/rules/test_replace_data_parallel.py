"""Every spelling of DataParallel is taken away, and `.module` where no wrapper stands."""

import pytest
from harness import LOOP, NET, added, migrate

from multicard.rules import replace_data_parallel as rule
from multicard.rules import wrap_model

BEFORE, MODEL, AFTER = NET.partition("model = Net()\n")
MIGRATED = {
    "in one line with the model": ("model = nn.DataParallel(Net())", "model = Net()"),
    "with its device ids": ("model = nn.DataParallel(Net(), device_ids=[0, 1])", "model = Net()"),
    "moved": ("model = nn.DataParallel(Net()).cuda()", "model = Net().cuda()"),
    "by its long name": ("model = torch.nn.parallel.DataParallel(Net())", "model = Net()"),
    "imported by name": ("from torch.nn import DataParallel\nmodel = DataParallel(Net())", "model = Net()"),
    "its argument named": ("model = nn.DataParallel(module=Net(), dim=0)", "model = Net()"),
    "under another name": ("net = Net()\nmodel = nn.DataParallel(net)", "model = net"),
    "a part of a model": (
        "model = Net()\nmodel.features = nn.DataParallel(model.features)",
        "",
    ),
}
GONE = {
    "where there are several cards": "if torch.cuda.device_count() > 1:\n    model = nn.DataParallel(model)\n",
    "told about": (
        "if torch.cuda.device_count() > 1:\n    print('cards', torch.cuda.device_count())\n"
        "    model = nn.DataParallel(model)\n"
    ),
}
INSIDE = {
    "before the wrapper stands": (
        "model = nn.DataParallel(Net())\nprint(model.module.n_classes)\nmodel = model.to(device)",
        "model = Net()\nprint(model.n_classes)",
    ),
    "of a model that is not trained": (
        "model = Net()\nother = nn.DataParallel(Net())\nprint(other.module.n_classes)",
        "other = Net()\nprint(other.n_classes)",
    ),
}
LEFT_ALONE = {
    "no DataParallel": MODEL,
    "an attribute of that name": "model = Net()\nmodel.module = 3\nprint(model.module)",
    "a class of the script's": "class DataParallel(Net): ...\nmodel = DataParallel()",
}


@pytest.mark.parametrize(("part", "after"), MIGRATED.values(), ids=MIGRATED)
def test_migrates(part: str, after: str) -> None:
    script = f"{BEFORE}{part}\n{AFTER}{LOOP}"
    text, reasons = migrate(rule, script)
    assert (added(script, text), reasons) == (after, [])
    assert "DataParallel(" not in text


@pytest.mark.parametrize("part", GONE.values(), ids=GONE)
def test_a_statement_of_its_own_goes(part: str) -> None:
    script = f"{BEFORE}{MODEL}{part}{AFTER}{LOOP}"
    text, reasons = migrate(rule, script)
    assert ("DataParallel(" in text, reasons) == (False, [])
    assert text.count("\n") >= script.count("\n") - 1


@pytest.mark.parametrize(("part", "after"), INSIDE.values(), ids=INSIDE)
def test_module_goes_where_no_wrapper_stands(part: str, after: str) -> None:
    script = f"{BEFORE}{part}\n{AFTER}{LOOP}"
    text, reasons = migrate(rule, script)
    assert (added(script, text), reasons) == (after, [])


def test_module_stays_where_the_wrapper_stands() -> None:
    script = f"{BEFORE}model = nn.DataParallel(Net())\n{AFTER}{LOOP}torch.save(model.module.state_dict(), 'a.pth')\n"
    text, _ = migrate(rule, script)
    assert text == script.replace("nn.DataParallel(Net())", "Net()")


def test_the_wrapper_takes_the_line_of_data_parallel() -> None:
    script = f"{BEFORE}{MODEL}model = nn.DataParallel(model)\n{AFTER}{LOOP}"
    assert migrate(rule, script) == (script, [])
    text, _ = migrate(wrap_model, script)
    assert added(script, text) == "model = DDP(model, device_ids=device_ids(model))"
    assert "DataParallel(model)" not in text


@pytest.mark.parametrize("part", LEFT_ALONE.values(), ids=LEFT_ALONE)
def test_leaves_alone(part: str) -> None:
    script = f"{BEFORE}{part}\n{AFTER}{LOOP}"
    assert migrate(rule, script) == (script, [])


NAMES = {
    "in a loop": (
        "for name, p in model.named_parameters():\n    if name.startswith('module.bn'):\n        slow.append(p)",
        "    if name.startswith('bn'):",
    ),
    "in a comprehension": (
        "slow = [p for n, p in model.named_parameters() if 'module.bn' in n]",
        "slow = [p for n, p in model.named_parameters() if 'bn' in n]",
    ),
    "the prefix itself is looked for": (
        "state = {k[7:] if k.startswith('module.') else k: v for k, v in model.state_dict().items()}",
        "",
    ),
    "the prefix is cut off, in a comprehension": (
        "state = {k[7:]: v for k, v in torch.load('a').items()}",
        "state = {k[7:] if k.startswith(\"module.\") else k: v for k, v in torch.load('a').items()}",
    ),
    "the prefix is cut off, in a loop": (
        "state, loaded = {}, torch.load('a')\nfor k, v in loaded.items():\n    name = k[7:]\n    state[name] = v",
        '    name = k[7:] if k.startswith("module.") else k',
    ),
    "the prefix is exchanged": (
        "state = {}\nfor k, v in torch.load('a').items():\n    state['net.' + k[7:]] = v",
        "    state['net.' + (k[7:] if k.startswith(\"module.\") else k)] = v",
    ),
    "something else is cut off": ("state = {k[3:]: v for k, v in torch.load('a').items()}", ""),
    "names in a file": ("state = {k: v for k, v in torch.load('a').items() if k != 'module.fc'}", ""),
}


@pytest.mark.parametrize(("part", "after"), NAMES.values(), ids=NAMES)
def test_names_lose_the_prefix(part: str, after: str) -> None:
    script = f"{BEFORE}{MODEL}model = nn.DataParallel(model)\n{AFTER}slow = []\n{part}\n{LOOP}"
    text, reasons = migrate(rule, script)
    assert (added(script, text), reasons) == (after, [])


SPLIT = LOOP.replace("model(x)", "{}")


def test_a_batch_that_is_split_over_cards_is_given_to_the_model_whole() -> None:
    branch = "nn.parallel.data_parallel(model, x, device_ids=[0, 1]) if many else model(x)"
    text, reasons = migrate(rule, NET + SPLIT.format(branch))
    assert reasons == []
    assert "forward_of(model)(x) if many else model(x)" in text


def test_several_inputs_that_are_split_over_cards_stay_several() -> None:
    branch = "nn.parallel.data_parallel(model, (x,), range(2)) if many else model(x)"
    text, _ = migrate(rule, NET + SPLIT.format(branch))
    assert "forward_of(model)(*(x,)) if many else model(x)" in text


def test_a_part_that_is_split_over_cards_inside_the_model() -> None:
    inner = NET.replace("self.features(x)", "nn.parallel.data_parallel(self.features, x, range(self.n))")
    text, reasons = migrate(rule, inner + LOOP)
    assert (added(inner + LOOP, text), reasons) == ("        return self.classifier(self.features(x))", [])


def test_says_that_copies_on_other_cards_go_past_the_wrapper() -> None:
    script = NET + SPLIT.format(
        "nn.parallel.parallel_apply(nn.parallel.replicate(model, cards), parts)[0] if many else model(x)"
    )
    text, reasons = migrate(rule, script)
    assert text == script
    assert all("cards of the other processes" in why for why in reasons)
    assert len(reasons) == 2


BALANCED = """
class Balanced(nn.DataParallel):
    def __init__(self, first, *args, **options):
        self.first = first
        super().__init__(*args, **options)

    def forward(self, *inputs):
        return self.module(*inputs)


"""


def test_a_data_parallel_of_the_script_s_own_is_taken_away_and_stays_as_it_is() -> None:
    script = BEFORE + BALANCED + "model = Balanced(4, Net(), dim=0).cuda()\n" + AFTER + LOOP
    text, reasons = migrate(rule, script)
    assert (added(script, text), reasons) == ("model = Net().cuda()", [])


def test_it_goes_where_the_model_inside_is_called_by_another_method() -> None:
    script = (
        NET.replace(
            "    def init_hidden", "    def classify(self, x):\n        return self(x)\n\n    def init_hidden"
        )
        + "model = nn.DataParallel(model)\n"
        + LOOP.replace("model(x)", "model.module.classify(x)")
    )
    alone, _ = migrate(rule, script)
    assert "model = nn.DataParallel(model)" in alone
    assert "cross_entropy(model.classify(x), y)" in alone
    bare, reasons = migrate(wrap_model, script)
    assert "\nbroadcast_model(model)\n" in bare
    assert "DataParallel(model)" not in bare
    assert reasons == []
