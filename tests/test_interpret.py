"""The inference: who trains what, on which data, in which loop, in the styles in which real scripts are written.

Each program says itself what is true of it, in comments at the ends of its lines:

    # model      a trained model is made here
    # train      a loader is made here whose batches are trained on
    # share      an evaluation loader is made here that is dealt out to the ranks
    # batches    a loop over batches that trains
    # epochs     the loop that counts its epochs
    # evaluates  a loop that walks through each rank's share and calls the model
    # whole      a loop over batches that every rank walks through whole
"""

import ast
import re
from pathlib import Path

import pytest
from harness import LOOP, TRAINING, facts_of

from multicard.facts import Facts
from multicard.program import read_program
from multicard.values import Const, data_of
from multicard.wraps import wrap_models

MARKS = ("model", "train", "share", "batches", "epochs", "evaluates", "whole")
HEAD = """
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset, TensorDataset

"""
NET = """
class Net(nn.Module):
    def __init__(self, width=8):
        super().__init__()
        self.body, self.head = nn.Linear(4, width), nn.Linear(width, 2)

    def forward(self, x):
        return self.head(torch.relu(self.body(x)))

"""

MODULE_LEVEL = (
    HEAD
    + NET
    + """
train_loader = DataLoader(train_set, 8, shuffle=True)  # train
val_loader = DataLoader(val_set, 8)  # share
net = Net()  # model
opt = torch.optim.Adam(net.parameters())
for ep in range(3):  # epochs
    net.train()
    for data, target in train_loader:  # batches
        opt.zero_grad()
        F.cross_entropy(net(data), target).backward()
        opt.step()
    net.eval()
    hits = 0
    with torch.no_grad():
        for data, target in val_loader:  # evaluates
            hits += (net(data).argmax(1) == target).sum().item()
    print(hits)
"""
)
MAIN_ARGS = (
    HEAD
    + NET
    + """
import argparse


def train(args, model, device, train_loader, optimizer, epoch):
    model.train()
    for batch_idx, (data, target) in enumerate(train_loader):  # batches
        data, target = data.to(device), target.to(device)
        optimizer.zero_grad()
        loss = F.nll_loss(model(data), target)
        loss.backward()
        optimizer.step()
        if args.dry_run:
            break


def test(model, device, test_loader):
    model.eval()
    test_loss = correct = 0
    with torch.no_grad():
        for data, target in test_loader:  # evaluates
            output = model(data.to(device))
            test_loss += F.nll_loss(output, target.to(device), reduction="sum").item()
            correct += output.argmax(1).eq(target).sum().item()
    print(test_loss, correct)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--dry-run", action="store_true")
    args = parser.parse_args()
    device = torch.device("cpu")
    kwargs = {"batch_size": 8}
    test_kwargs = {"batch_size": 16}
    if torch.cuda.is_available():
        cuda_kwargs = {"num_workers": 1, "pin_memory": True}
        kwargs.update(cuda_kwargs)
        test_kwargs.update(cuda_kwargs)
    train_loader = DataLoader(a, shuffle=True, **kwargs)  # train
    test_loader = DataLoader(b, **test_kwargs)  # share
    model = Net().to(device)  # model
    optimizer = torch.optim.Adadelta(model.parameters(), lr=1.0)
    for epoch in range(1, 4):  # epochs
        train(args, model, device, train_loader, optimizer, epoch)
        test(model, device, test_loader)


if __name__ == "__main__":
    main()
"""
)
BASE = """
class BaseTrainer:
    def __init__(self, model, optimizer, config):
        self.model, self.optimizer, self.config = model, optimizer, config
        self.epochs = config["epochs"]

    def train(self):
        for epoch in range(self.epochs):  # epochs
            result = self._train_epoch(epoch)
            self.report(result)

    def _train_epoch(self, epoch):
        raise NotImplementedError

    def report(self, result):
        print(result)
"""
TRAINER = """
import torch
from base import BaseTrainer


class Trainer(BaseTrainer):
    def __init__(self, model, criterion, optimizer, config, data_loader, valid_data_loader=None):
        super().__init__(model, optimizer, config)
        self.criterion = criterion
        self.data_loader = data_loader
        self.valid_data_loader = valid_data_loader

    def _train_epoch(self, epoch):
        self.model.train()
        for batch_idx, (data, target) in enumerate(self.data_loader):  # batches
            self.optimizer.zero_grad()
            loss = self.criterion(self.model(data), target)
            loss.backward()
            self.optimizer.step()
        return self._valid_epoch(epoch)

    def _valid_epoch(self, epoch):
        self.model.eval()
        total = 0.0
        with torch.no_grad():
            for data, target in self.valid_data_loader:  # evaluates
                total += self.criterion(self.model(data), target).item()
        return total
"""
TRAINER_MAIN = (
    HEAD
    + "from trainer import Trainer\n"
    + NET
    + """
train_loader = DataLoader(a, 8, shuffle=True)  # train
valid_loader = DataLoader(b, 8)  # share
model = Net()  # model
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
Trainer(model, nn.CrossEntropyLoss(), optimizer, {"epochs": 3}, train_loader, valid_loader).train()
"""
)
FACTORY_MODELS = HEAD + NET + "\n\nclass Other(Net): ...\n"
FACTORY = (
    HEAD
    + """
import json
import models as module_arch

config = json.load(open("config.json"))


def init_obj(module, name, *args, **kwargs):
    return getattr(module, config[name]["type"])(*args, **config[name]["args"], **kwargs)  # model


loader = DataLoader(data, 8, shuffle=True)  # train
model = init_obj(module_arch, "arch")
optimizer = init_obj(torch.optim, "optimizer", model.parameters())
for epoch in range(config["epochs"]):  # epochs
    for x, y in loader:  # batches
        loss = F.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
"""
)
REGISTRY = (
    HEAD
    + """
MODELS = {}


def register(name):
    def keep(cls):
        MODELS[name] = cls
        return cls

    return keep


@register("small")
class Small(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(4, 2)

    def forward(self, x):
        return self.fc(x)


loader = DataLoader(data, 8, shuffle=True)  # train
model = MODELS["small"]()  # model
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for epoch in range(3):  # epochs
    for x, y in loader:  # batches
        F.cross_entropy(model(x), y).backward()
        optimizer.step()
"""
)
PHASES = (
    HEAD
    + NET
    + """
dataloaders = {
    x: DataLoader(sets[x], batch_size=4, shuffle=True, num_workers=4)  # train  # share
    for x in ["train", "val"]
}


def train_model(model, criterion, optimizer, num_epochs=3):
    for epoch in range(num_epochs):  # epochs
        for phase in ["train", "val"]:
            if phase == "train":
                model.train()
            else:
                model.eval()
            running_loss, running_corrects = 0.0, 0
            for inputs, labels in dataloaders[phase]:  # batches  # evaluates
                optimizer.zero_grad()
                with torch.set_grad_enabled(phase == "train"):
                    outputs = model(inputs)
                    _, preds = torch.max(outputs, 1)
                    loss = criterion(outputs, labels)
                    if phase == "train":
                        loss.backward()
                        optimizer.step()
                running_loss += loss.item() * inputs.size(0)
                running_corrects += torch.sum(preds == labels.data)
            print(phase, running_loss, running_corrects)
    return model


model_ft = Net()  # model
optimizer_ft = torch.optim.SGD(model_ft.parameters(), lr=0.001)
train_model(model_ft, nn.CrossEntropyLoss(), optimizer_ft)
"""
)
GENERATOR = (
    HEAD
    + NET
    + """
def forever(loader):
    while True:
        for batch in loader:
            yield batch


loader = DataLoader(data, 8, shuffle=True)  # train
model = Net()  # model
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
source = forever(loader)
for step in range(100):  # batches
    x, y = next(source)
    loss = F.cross_entropy(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""
)
CLOSURE = (
    HEAD
    + NET
    + """
def make_step(model, optimizer, criterion):
    def step(x, y):
        optimizer.zero_grad()
        loss = criterion(model(x), y)
        loss.backward()
        optimizer.step()
        return loss.item()

    return step


loader = DataLoader(data, 8, shuffle=True)  # train
model = Net()  # model
step = make_step(model, torch.optim.SGD(model.parameters(), lr=0.1), nn.CrossEntropyLoss())
for epoch in range(3):  # epochs
    for x, y in loader:  # batches
        step(x, y)
"""
)
LBFGS = (
    HEAD
    + NET
    + """
loader = DataLoader(data, 8, shuffle=True)  # train
model = Net()  # model
optimizer = torch.optim.LBFGS(model.parameters())
for epoch in range(3):  # epochs
    for x, y in loader:  # batches

        def closure():
            optimizer.zero_grad()
            loss = F.mse_loss(model(x), y)
            loss.backward()
            return loss

        optimizer.step(closure)
"""
)
DECORATED = (
    HEAD
    + NET
    + """
import functools
import time


def timed(function):
    @functools.wraps(function)
    def inner(*args, **kwargs):
        begin = time.time()
        result = function(*args, **kwargs)
        print(time.time() - begin)
        return result

    return inner


@timed
def one_epoch(model, loader, optimizer):
    for x, y in loader:  # batches
        F.cross_entropy(model(x), y).backward()
        optimizer.step()


loader = DataLoader(data, 8, shuffle=True)  # train
model = Net()  # model
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for epoch in range(3):  # epochs
    one_epoch(model, loader, optimizer)
"""
)
PARTIAL = (
    HEAD
    + NET
    + """
from functools import partial

make_loader = partial(DataLoader, batch_size=8, num_workers=2)
make_optimizer = partial(torch.optim.SGD, lr=0.1)
loader = make_loader(data, shuffle=True)  # train
model = Net()  # model
optimizer = make_optimizer(model.parameters())
for epoch in range(3):  # epochs
    for x, y in loader:  # batches
        F.cross_entropy(model(x), y).backward()
        optimizer.step()
"""
)
DATACLASS = (
    HEAD
    + NET
    + """
from dataclasses import dataclass, field


@dataclass
class Config:
    epochs: int = 3
    batch_size: int = 8
    widths: list = field(default_factory=list)


@dataclass
class State:
    model: nn.Module
    optimizer: torch.optim.Optimizer
    config: Config


def fit(state, loader):
    for epoch in range(state.config.epochs):  # epochs
        for x, y in loader:  # batches
            loss = F.cross_entropy(state.model(x), y)
            state.optimizer.zero_grad()
            loss.backward()
            state.optimizer.step()


config = Config()
net = Net()  # model
state = State(net, torch.optim.SGD(net.parameters(), lr=0.1), config)
fit(state, DataLoader(data, config.batch_size, shuffle=True))  # train
"""
)
KEYWORDS = (
    HEAD
    + NET
    + """
def build(kind, **kwargs):
    return Net(**kwargs) if kind == "net" else nn.Linear(**kwargs)  # model


def run(**parts):
    for epoch in range(3):  # epochs
        for x, y in parts["loader"]:  # batches
            F.cross_entropy(parts["model"](x), y).backward()
            parts["optimizer"].step()


model = build("net", width=4)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
run(model=model, optimizer=optimizer, loader=DataLoader(data, 8, shuffle=True))  # train
"""
)
GAN = (
    HEAD
    + NET
    + """
G = Net()  # model
D = Net()  # model
g_opt = torch.optim.Adam(G.parameters())
d_opt = torch.optim.Adam(D.parameters())
bce = nn.BCEWithLogitsLoss()
loader = DataLoader(data, 8, shuffle=True)  # train
for epoch in range(3):  # epochs
    for real, _ in loader:  # batches
        fake = G(torch.randn(real.size(0), 4))
        d_loss = bce(D(real), ones) + bce(D(fake.detach()), zeros)
        d_opt.zero_grad()
        d_loss.backward()
        d_opt.step()
        g_loss = bce(D(fake), ones)
        g_opt.zero_grad()
        g_loss.backward()
        g_opt.step()
"""
)
DISTILLED = (
    HEAD
    + NET
    + """
teacher = Net(64)
teacher.load_state_dict(torch.load("teacher.pth"))
student = Net()  # model
optimizer = torch.optim.SGD(student.parameters(), lr=0.1)
loader = DataLoader(data, 8, shuffle=True)  # train
for epoch in range(3):  # epochs
    for x, y in loader:  # batches
        with torch.no_grad():
            soft = teacher(x)
        loss = F.kl_div(student(x).log_softmax(1), soft.softmax(1), reduction="batchmean")
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
"""
)
AMP = (
    HEAD
    + NET
    + """
model = Net()  # model
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
scaler = torch.cuda.amp.GradScaler()
loader = DataLoader(data, 8, shuffle=True)  # train
for epoch in range(3):  # epochs
    for i, (x, y) in enumerate(loader):  # batches
        with torch.autocast("cuda"):
            loss = F.cross_entropy(model(x), y) / 4
        scaler.scale(loss).backward()
        if (i + 1) % 4 == 0:
            scaler.unscale_(optimizer)
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            scaler.step(optimizer)
            scaler.update()
            optimizer.zero_grad()
"""
)
OWNS_OPTIMIZER = (
    HEAD
    + """
class Solver(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Linear(4, 2)
        self.optimizer = torch.optim.Adam(self.net.parameters())

    def fit(self, x, y):
        loss = F.mse_loss(self.net(x), y)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()


solver = Solver()  # model
for epoch in range(3):  # epochs
    for x, y in DataLoader(data, 8, shuffle=True):  # train  # batches
        solver.fit(x, y)
"""
)
LISTED = (
    HEAD
    + NET
    + """
models = [Net() for _ in range(5)]  # model
optimizers = [torch.optim.SGD(m.parameters(), lr=0.1) for m in models]
loader = DataLoader(data, 8, shuffle=True)  # train
for epoch in range(3):  # epochs
    for x, y in loader:  # batches
        for model, optimizer in zip(models, optimizers):
            F.cross_entropy(model(x), y).backward()
            optimizer.step()
"""
)
TUPLES = (
    HEAD
    + NET
    + """
def loaders(batch):
    train = DataLoader(a, batch, shuffle=True)  # train
    val = DataLoader(b, batch)  # share
    return train, val


def setup():
    net = Net()  # model
    return net, torch.optim.SGD(net.parameters(), lr=0.1)


train_dl, val_dl = loaders(8)
net, opt = setup()
for i in range(3):  # epochs
    for x, y in train_dl:  # batches
        F.cross_entropy(net(x), y).backward()
        opt.step()
    scores = []
    with torch.inference_mode():
        for x, y in val_dl:  # evaluates
            scores.append(net(x))
    print(torch.cat(scores))
"""
)
GLOBALS = (
    HEAD
    + NET
    + """
best = 0


def train():
    global net
    for x, y in loader:  # batches
        F.cross_entropy(net(x), y).backward()
        opt.step()


loader = DataLoader(data, 8, shuffle=True)  # train
net = Net()  # model
opt = torch.optim.SGD(net.parameters(), lr=0.1)
for epoch in range(3):  # epochs
    train()
"""
)
CALLBACKS = (
    HEAD
    + NET
    + """
class Callback:
    def on_batch(self, loss): ...


class Print(Callback):
    def on_batch(self, loss):
        print(loss.item())


class Learner:
    def __init__(self, model, loader, callbacks):
        self.model, self.loader, self.callbacks = model, loader, callbacks
        self.opt = torch.optim.SGD(model.parameters(), lr=0.1)

    def __call__(self, epochs):
        for epoch in range(epochs):  # epochs
            for batch in self.loader:  # batches
                loss = self.step(batch)
                for callback in self.callbacks:
                    callback.on_batch(loss)

    def step(self, batch):
        x, y = batch
        loss = F.cross_entropy(self.model(x), y)
        self.opt.zero_grad()
        loss.backward()
        self.opt.step()
        return loss


Learner(Net(), DataLoader(data, 8, shuffle=True), [Print()])(3)  # model  # train
"""
)
STEPS = (
    HEAD
    + NET
    + """
loader = DataLoader(data, 8, shuffle=True)  # train
model = Net()  # model
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
batches, step = iter(loader), 0
while step < 100:  # batches
    try:
        x, y = next(batches)
    except StopIteration:
        batches = iter(loader)
        x, y = next(batches)
    F.cross_entropy(model(x), y).backward()
    optimizer.step()
    step += 1
"""
)
TWO_STAGES = (
    HEAD
    + NET
    + """
def fit(model, params, loader, epochs):
    optimizer = torch.optim.SGD(params, lr=0.1)
    for epoch in range(epochs):  # epochs
        for x, y in loader:  # batches
            F.cross_entropy(model(x), y).backward()
            optimizer.step()


model = Net()  # model
loader = DataLoader(data, 8, shuffle=True)  # train
fit(model, model.head.parameters(), loader, 2)
fit(model, model.parameters(), loader, 5)
"""
)
BOTH_WAYS = (
    HEAD
    + NET
    + """
def run(model, loader, optimizer=None):
    training = optimizer is not None
    model.train(training)
    total = 0.0
    for x, y in loader:  # batches  # evaluates
        with torch.set_grad_enabled(training):
            loss = F.cross_entropy(model(x), y)
        if training:
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        total += loss.item()
    return total


model = Net()  # model
opt = torch.optim.SGD(model.parameters(), lr=0.1)
train_loader = DataLoader(a, 8, shuffle=True)  # train
val_loader = DataLoader(b, 8)  # share
for epoch in range(3):  # epochs
    run(model, train_loader, opt)
    run(model, val_loader)
"""
)
FROM_ANOTHER_FOLDER = {
    "__main__": "from src.train import main\n\nif __name__ == '__main__':\n    main()\n",
    "src": "",
    "src.data": HEAD + "\n\ndef loader(kind):\n    return DataLoader(sets[kind], 8, shuffle=True)  # train\n",
    "src.models": HEAD + NET,
    "src.train": (
        "import torch\nfrom . import models\nfrom .data import loader as make\n\n\n"
        "def main():\n    net = models.Net()  # model\n    opt = torch.optim.SGD(net.parameters(), lr=0.1)\n"
        "    for epoch in range(3):  # epochs\n        for x, y in make('a'):  # batches\n"
        "            net(x).sum().backward()\n            opt.step()\n"
    ),
}

PROGRAMS: dict[str, dict[str, str]] = {
    "everything at module level": {"__main__": MODULE_LEVEL},
    "main(args), as in torch's examples": {"__main__": MAIN_ARGS},
    "a trainer whose base class is in another module": {
        "__main__": TRAINER_MAIN,
        "base": BASE,
        "trainer": TRAINER,
    },
    "models and optimizers by names in a JSON file": {"__main__": FACTORY, "models": FACTORY_MODELS},
    "models from a registry": {"__main__": REGISTRY},
    "a loop over phases and a dict of loaders": {"__main__": PHASES},
    "batches from a generator without an end": {"__main__": GENERATOR},
    "a step made by a function": {"__main__": CLOSURE},
    "a closure for LBFGS": {"__main__": LBFGS},
    "a decorated epoch": {"__main__": DECORATED},
    "constructors with some arguments bound": {"__main__": PARTIAL},
    "configurations and state in data classes": {"__main__": DATACLASS},
    "everything in keywords": {"__main__": KEYWORDS},
    "two networks against each other": {"__main__": GAN},
    "a teacher that is not trained": {"__main__": DISTILLED},
    "scaled gradients, accumulated and clipped": {"__main__": AMP},
    "a model that owns its optimizer": {"__main__": OWNS_OPTIMIZER},
    "a list of models": {"__main__": LISTED},
    "functions that give back several things": {"__main__": TUPLES},
    "globals": {"__main__": GLOBALS},
    "a learner that is called, with callbacks": {"__main__": CALLBACKS},
    "a number of steps": {"__main__": STEPS},
    "two stages of one function": {"__main__": TWO_STAGES},
    "one function that trains and evaluates": {"__main__": BOTH_WAYS},
    "packages and relative imports": FROM_ANOTHER_FOLDER,
}


def marked(texts: dict[str, str]) -> dict[str, set[tuple[str, int]]]:
    """The lines that a program marks, by mark."""
    found: dict[str, set[tuple[str, int]]] = {mark: set() for mark in MARKS}
    for name, text in texts.items():
        for number, line in enumerate(text.splitlines(), 1):
            for mark in re.findall(r"# (\w+)", line):
                found[mark].add((name, number))
    return found


def seen(facts: Facts) -> dict[str, set[tuple[str, int]]]:
    """The lines that are found, by mark."""
    found: dict[str, set[tuple[str, int]]] = {mark: set() for mark in MARKS}
    for model in facts.trained:
        assert model.site is not None
        found["model"].add((model.site.module.name, model.site.line))
    for kind, loaders in (("train", facts.train_loaders), ("share", facts.dealing.dealt)):
        for loader in loaders:
            assert loader.site is not None
            found[kind].add((loader.site.module.name, loader.site.line))
    for training in facts.trainings:
        for kind, loop in (("batches", training.loop), ("epochs", training.epochs)):
            if loop is not None:
                assert isinstance(loop.node, ast.stmt)
                found[kind].add((loop.module.name, loop.node.lineno))
    for visit in facts.dealing.visits:
        if visit.loaders and not visit.dead:
            kind = "evaluates" if facts.dealing.shared(visit) and visit.forwards else "whole"
            found[kind].add((visit.module.name, visit.node.lineno))
    return found


@pytest.mark.parametrize("texts", PROGRAMS.values(), ids=PROGRAMS)
def test_a_program_is_understood(texts: dict[str, str]) -> None:
    modules = {name: text for name, text in texts.items() if name != "__main__"}
    assert seen(facts_of(texts["__main__"], **modules)) == marked(texts)


# --- what is not training, and what cannot be followed ----------------------------------------------------------------

QUIET = {
    "a model that is only called": HEAD
    + NET
    + "model = Net()\nfor x, y in DataLoader(data, 8):\n    print(model(x))\n",
    "a loss of no model": HEAD
    + "w = torch.ones(4, requires_grad=True)\nfor i in range(9):\n    (w * 2).sum().backward()\n",
    "a gradient of the input": (
        HEAD
        + NET
        + "model, image = Net(), torch.zeros(4, requires_grad=True)\nopt = torch.optim.Adam([image])\n"
        "for i in range(9):\n    model(image).sum().backward()\n    opt.step()\n"
    ),
    "training that nobody calls": HEAD
    + NET
    + "def train(model, loader):\n    for x in loader:\n        model(x).backward()\n",
    "a method of that name": "class A:\n    def backward(self): ...\nfor i in range(9):\n    A().backward()\n",
}


@pytest.mark.parametrize("text", QUIET.values(), ids=QUIET)
def test_nothing_is_trained(text: str) -> None:
    assert facts_of(text).trained == ()


UNKNOWN = {
    "a name that is not there": ("y = absent(3)", "y", "`absent` is not defined before this line"),
    "a name that a local module lacks": (
        "from other import absent",
        "absent",
        "`absent` is not defined in other",
    ),
    "a module that is named at run time": (
        "import importlib, sys\nm = importlib.import_module(sys.argv[1])",
        "m",
        "a module whose name is only known when it runs",
    ),
    "an attribute that a class lacks": ("class A: ...\ny = A.absent", "y", "no `absent` in the class"),
    "a parameter that nobody gives": ("def f(x):\n    return x\ny = f()", "y", "`x` is not given"),
}


@pytest.mark.parametrize(("text", "name", "reason"), UNKNOWN.values(), ids=UNKNOWN)
def test_what_cannot_be_followed_says_why(text: str, name: str, reason: str) -> None:
    facts = facts_of(text, other="x = 1\n")
    values = facts.run.frames[facts.program.entry].names[name]
    if name == "y" and "absent(" in text:
        values = next(
            facts.values(node.func)
            for node in ast.walk(facts.program.entry.tree)
            if isinstance(node, ast.Call)
        )
    assert [getattr(value, "reason", None) for value in values] == [reason]


BRANCHES = {
    "a literal decides": ("flag = 3\ndef f(train):\n    return 'a' if train else 'b'\ny = f(True)", {"a"}),
    "an option does not": ("TRAIN = True\ny = 'a' if TRAIN else 'b'", {"a", "b"}),
    "a comparison of literals decides": ("def f(k):\n    return 'a' if k == 'x' else 'b'\ny = f('x')", {"a"}),
    "two calls are two stories": (
        "def f(k):\n    if k == 'x':\n        return 'a'\n    return 'b'\ny = [f('x'), f('z')][0]",
        {"a"},
    ),
    "None is told from an object": ("def f(o=None):\n    return 'a' if o is None else 'b'\ny = f()", {"a"}),
    "membership decides": ("def f(k):\n    return 'a' if k in ('x', 'z') else 'b'\ny = f('z')", {"a"}),
    "what is tried and what is caught": ("try:\n    y = 'a'\nexcept OSError:\n    y = 'b'", {"a", "b"}),
    "cases": ("match kind:\n    case 1:\n        y = 'a'\n    case _:\n        y = 'b'", {"a", "b"}),
    "a default": ("y = {'x': 'a'}.get('x', 'b')", {"a", "b"}),
    "a dict": ("d = {'x': 'a', 'z': 'b'}\ny = d['x']", {"a"}),
    "an attribute of a class": ("class A:\n    k = 'a'\ny = A().k", {"a"}),
    "a property": ("class A:\n    @property\n    def k(self):\n        return 'a'\ny = A().k", {"a"}),
    "a static method": (
        "class A:\n    @staticmethod\n    def k(x):\n        return x\ny = A().k('a')",
        {"a"},
    ),
    "a class method": (
        "class A:\n    @classmethod\n    def k(cls, x):\n        return x\ny = A.k('a')",
        {"a"},
    ),
    "a method of a base class": (
        "class A:\n    def k(self):\n        return 'a'\nclass B(A): ...\ny = B().k()",
        {"a"},
    ),
    "super": (
        (
            "class A:\n    def k(self):\n        return 'a'\n"
            "class B(A):\n    def k(self):\n        return super().k()\n"
            "y = B().k()"
        ),
        {"a"},
    ),
    "a nonlocal": (
        "def f():\n    y = 'a'\n    def g():\n        nonlocal y\n        y = 'b'\n    g()\n    return y\ny = f()",
        {"a", "b"},
    ),
    "unpacking": ("(x, *rest), y = (1, 2, 3), 'a'", {"a"}),
    "the walrus": ("if (y := 'a'):\n    pass", {"a"}),
    "a lambda": ("f = lambda x: x\ny = f('a')", {"a"}),
    "arguments by star": ("def f(a, b):\n    return b\ny = f(*(1, 'a'))", {"a"}),
    "arguments by two stars": ("def f(a, b):\n    return b\ny = f(**{'a': 1, 'b': 'a'})", {"a"}),
}


@pytest.mark.parametrize(("text", "values"), BRANCHES.values(), ids=BRANCHES)
def test_python_is_followed_as_python_runs(text: str, values: set[str]) -> None:
    facts = facts_of(text)
    found = facts.run.frames[facts.program.entry].names["y"]
    assert {
        value.value for value in found if isinstance(value, Const) and isinstance(value.value, str)
    } == values


TAGS = {
    "a batch differs between ranks": ("for x, y in loader:\n    pass", "x", {"local", "batch"}),
    "what a model says differs": ("for x, y in loader:\n    z = model(x)", "z", {"local", "batch"}),
    "a loss averages": ("for x, y in loader:\n    z = F.cross_entropy(model(x), y)", "z", {"averaged"}),
    "a loss may sum": (
        "for x, y in loader:\n    z = F.mse_loss(model(x), y, reduction='sum')",
        "z",
        {"summed"},
    ),
    "a sum is a sum": ("for x, y in loader:\n    z = model(x).sum()", "z", {"summed"}),
    "a mean of a sum is a mean": ("for x, y in loader:\n    z = model(x).sum() / len(x)", "z", {"averaged"}),
    "what is drawn is random": ("import random\nz = random.random()", "z", {"random"}),
    "what is drawn by torch is random": ("z = torch.rand(3)", "z", {"random"}),
    "a clock is a clock": ("import time\nz = time.time()", "z", {"clock"}),
    "parameters are parameters": ("z = model.parameters()", "z", {"params"}),
    "a setting is neither": ("z = 3 * 4", "z", set()),
}


@pytest.mark.parametrize(("text", "name", "tags"), TAGS.values(), ids=TAGS)
def test_data_remember_what_they_are(text: str, name: str, tags: set[str]) -> None:
    start = HEAD + NET + "model = Net()\nloader = DataLoader(data, 8)\n"
    facts = facts_of(start + text)
    values = facts.run.frames[facts.program.entry].names[name]
    found = data_of(values).tags
    assert tags <= found
    assert not (found if not tags else found & {"summed", "averaged"} - tags)


COMMANDS = {
    "fire": "import fire\nfire.Fire()\n",
    "fire with a function": "import fire\nfire.Fire(train)\n",
    "fire with a dictionary": "import fire\nfire.Fire({'fit': train})\n",
    "fire with a class": "import fire\nclass Runs:\n    def fit(self):\n        train()\nfire.Fire(Runs)\n",
    "fire with an object": "import fire\nclass Runs:\n    def fit(self):\n        train()\nfire.Fire(Runs())\n",
    "typer": "import typer\napp = typer.Typer()\n@app.command()\ndef fit():\n    train()\napp()\n",
    "click": (
        "import click\n@click.group()\ndef cli(): ...\n@cli.command()\n@click.option('--lr')\n"
        "def fit(lr):\n    train(lr=lr)\ncli()\n"
    ),
}


@pytest.mark.parametrize("commands", COMMANDS.values(), ids=COMMANDS)
def test_commands_are_run_as_the_command_line_runs_them(commands: str) -> None:
    train = """
def train(lr=0.1, **options):
    net = Net()
    opt = torch.optim.SGD(net.parameters(), lr=lr)
    for epoch in range(3):
        for x, y in DataLoader(data, 8):
            F.cross_entropy(net(x), y).backward()
            opt.step()

"""
    facts = facts_of(HEAD + NET + train + commands)
    assert [model.name for model in facts.trained] == ["Net"]
    assert len(facts.trainings) == 1


def test_a_name_asked_of_a_package_may_be_any_that_it_takes_from_its_modules(tmp_path: Path) -> None:
    package = tmp_path / "loaders"
    package.mkdir()
    (package / "__init__.py").write_text("from .one import One\nfrom .two import Two\n")
    for name in ("One", "Two"):
        (package / f"{name.lower()}.py").write_text(
            f"from torch.utils.data import DataLoader\n\n\nclass {name}(DataLoader):\n"
            "    def __init__(self, data):\n        super().__init__(data, 8, shuffle=True)\n"
        )
    script = tmp_path / "train.py"
    train = (
        "model = Net()\nopt = torch.optim.Adam(model.parameters())\n"
        "for x, y in getattr(loaders, name)(data):\n    F.cross_entropy(model(x), y).backward()\n    opt.step()\n"
    )
    script.write_text(HEAD + "import loaders\n" + NET + train)
    facts = wrap_models(read_program(script))
    assert {loader.name for loader in facts.train_loaders} == {"One", "Two"}


RECURSIVE = """
import torch
from torch import nn
from torch.utils.data import DataLoader

train_loader, val_loader = DataLoader(a, 8, shuffle=True), DataLoader(b, 8)


class Hourglass(nn.Module):
    def __init__(self):
        super().__init__()
        self.line = nn.Linear(4, 4)

    def level(self, n, x):
        low = self.level(n - 1, x) if n > 1 else x
        return self.line(low)

    def forward(self, x):
        return self.level(4, x)


model = Hourglass()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)


def validate():
    for x, y in val_loader:
        print(model(x))


def train():
    for x, y in train_loader:
        loss = model(x).mean()
        loss.backward()
        optimizer.step()


validate()
for epoch in range(3):
    train()
    validate()
"""


def test_a_function_that_calls_itself_gives_nothing_of_the_batches_of_other_calls() -> None:
    (training,) = facts_of(RECURSIVE).trainings
    assert len(training.loaders) == 1


ENUMERATED = """
import enum
import torch
from torch import nn
from torch.utils.data import DataLoader


class Phase(enum.Enum):
    TRAIN = 0,
    VAL = 1,


train_loader, val_loader = DataLoader(a, 8, shuffle=True), DataLoader(b, 8)
model = nn.Linear(4, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)


def run(phase, loader):
    for x, y in loader:
        loss = model(x).mean()
        if phase == Phase.TRAIN:
            loss.backward()
            optimizer.step()


for epoch in range(3):
    run(Phase.TRAIN, train_loader)
    with torch.no_grad():
        run(Phase.VAL, val_loader)
"""


def test_the_members_of_an_enumeration_are_told_apart() -> None:
    (training,) = facts_of(ENUMERATED).trainings
    assert len(training.loaders) == 1


def test_what_a_library_makes_out_of_sight_has_no_place() -> None:
    facts = facts_of(TRAINING + "words = [row | {'a'} for row in map(set, rows)]\n" + LOOP)
    assert len(facts.trainings) == 1


def test_methods_of_several_objects_are_followed_as_these_stand_in_the_source() -> None:
    made = "".join(f"items.append(Item({number}))\n" for number in range(6))
    script = (
        "import random\n\n\nclass Item:\n    def __init__(self, n):\n        self.n = n\n\n"
        "    def mix(self):\n        random.shuffle(self.n)\n\n\nitems = []\n"
        f"{made}for item in items:\n    item.mix()\n"
    )
    mixes = [event for event in facts_of(script).events("call") if event.name == "random.shuffle"]
    owners = [event.frames[-1].self_value for event in mixes]
    lines = [owner.site.line for owner in owners if owner and owner.site]
    assert lines == list(range(13, 19))
