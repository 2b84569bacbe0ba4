import pytest
from harness import LOOP, TRAINING, added, migrate, migrate_modules

from multicard.rules import vary_randomness as rule

TRAIN = "def train(model, loader):" + LOOP.replace("\n", "\n    ") + "\n"
MIXUP = LOOP.replace("        loss", "        x = x[torch.randperm(x.size(0))]\n        loss")
MIGRATED = {
    "before the epochs": (TRAINING + LOOP, "vary_seed()\nfor epoch in range(3):"),
    "in the function that trains": (
        TRAINING + TRAIN + "train(model, loader)\n",
        "    vary_seed()\n    for epoch in range(3):",
    ),
    "before the epochs, though batches are walked through elsewhere": (
        TRAINING
        + "def one_epoch(model):"
        + LOOP.replace("for epoch in range(3):", "").replace("\n    ", "\n").replace("\n", "\n    ")
        + "\nfor epoch in range(3):\n    one_epoch(model)\n",
        "vary_seed()\nfor epoch in range(3):",
    ),
    "split before training": (
        TRAINING.replace("loader =", "data, rest = torch.utils.data.random_split(data, [8, 2])\nloader =")
        + LOOP,
        "vary_seed()\nfor epoch in range(3):",
    ),
    "after a model that a loop makes": (
        TRAINING.replace(
            "model = nn.Linear(4, 2)\noptimizer = torch.optim.SGD(model.parameters(), lr=0.1)\n", ""
        )
        + "for run in range(2):\n    model = nn.Linear(4, 2)\n"
        "    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)" + LOOP.replace("\n", "\n    "),
        "    vary_seed()\n    for epoch in range(3):",
    ),
    "batches that each rank draws for itself": (
        TRAINING
        + "import random\nfor step in range(9):\n    loss = model(torch.stack(random.sample(rows, 8))).mean()\n"
        "    loss.backward()\n    optimizer.step()\n",
        "vary_seed()\nfor step in range(9):",
    ),
    "noise that mixes a batch": (TRAINING + MIXUP, "vary_seed()\nfor epoch in range(3):"),
    "a step count": (
        TRAINING + "step = 0\nwhile step < 9:\n    for x, y in loader:\n        model(x).sum().backward()\n"
        "        optimizer.step()\n        step += 1\n",
        "vary_seed()\nwhile step < 9:",
    ),
    "drawn in the data set": (
        TRAINING.replace(
            "loader =",
            "class D(torch.utils.data.Dataset):\n    def __getitem__(self, i):\n        return torch.randperm(9)\n"
            "data = D()\nloader =",
        )
        + LOOP,
        "vary_seed()\nfor epoch in range(3):",
    ),
}
FOLDS = """
for fold in range(5):
    train_set, val_set = torch.utils.data.random_split(data, [8, 2])
    model = nn.Linear(4, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    loader = DataLoader(train_set, 8, shuffle=True)
""" + LOOP.replace("\n", "\n    ")
LEFT_ALONE = {
    "a model whose shape is drawn": TRAINING.replace(
        "model = nn.Linear(4, 2)\n",
        "import random\nclass Net(nn.Module):\n    def __init__(self):\n        super().__init__()\n"
        "        self.modes = random.sample(range(9), 3)\n        self.inner = nn.Linear(4, 2)\n"
        "    def forward(self, x):\n        return self.inner(x)\n\n\nfor run in range(2):\n    model = Net()\n",
    )
    .replace("optimizer =", "    optimizer =")
    .replace("loader =", "    loader =")
    + LOOP.replace("\n", "\n    ").rstrip(" "),
    "episodes that decide how often the model is trained": TRAINING
    + "import gym\nenv = gym.make('a')\nfor episode in range(3):\n    state, done = env.reset(), False\n"
    "    while not done:\n        state, reward, done, _ = env.step(model(state).argmax().item())\n"
    "        loss = model(state).sum()\n        loss.backward()\n        optimizer.step()\n",
    "a split for each fold": TRAINING + FOLDS,
    "an order drawn each epoch": TRAINING + "for epoch in range(3):\n    order = torch.randperm(len(data))\n"
    "    for i in range(0, 64, 8):\n        loss = model(data[order[i:i + 8]]).sum()\n"
    "        loss.backward()\n        optimizer.step()\n",
    "files shuffled each epoch": TRAINING
    + "import random\nfor epoch in range(3):\n    random.shuffle(files)\n    for name in files:\n"
    "        loss = model(torch.load(name)).sum()\n        loss.backward()\n        optimizer.step()\n",
    "a data set that the script shuffles each epoch": TRAINING.replace(
        "loader =",
        "import random\nclass D(torch.utils.data.Dataset):\n    def __init__(self):\n"
        "        self.items = list(range(64))\n    def shuffle(self):\n        random.shuffle(self.items)\n"
        "    def __len__(self):\n        return 64\n    def __getitem__(self, i):\n"
        "        return self.items[i], 0\ndata = D()\nloader =",
    )
    + LOOP.replace("    for x, y", "    loader.dataset.shuffle()\n    for x, y"),
    "another split after training": TRAINING
    + LOOP
    + "from sklearn.model_selection import train_test_split\na, b = train_test_split(data)\n",
    "training without any loop": TRAINING + "loss = model(x).sum()\nloss.backward()\noptimizer.step()\n",
}


@pytest.mark.parametrize(("script", "lines"), MIGRATED.values(), ids=MIGRATED)
def test_migrates(script: str, lines: str) -> None:
    text, reasons = migrate(rule, script)
    assert lines + "\n" in text
    assert (added(script, text).strip(), reasons) == ("vary_seed()", [])


@pytest.mark.parametrize("script", LEFT_ALONE.values(), ids=LEFT_ALONE)
def test_keeps_one_random_state_where_it_still_decides_on_data(script: str) -> None:
    assert migrate(rule, script) == (script, [])


def test_the_loop_of_a_trainer_in_another_module() -> None:
    trainer = (
        "from torch import nn\n\n\nclass Trainer:\n    def fit(self, model, loader, optimizer):"
        + LOOP.replace("\n", "\n        ")
        + "\n"
    )
    script = "from engine import Trainer\n" + TRAINING + "Trainer().fit(model, loader, optimizer)\n"
    texts, _ = migrate_modules(rule, {"__main__": script, "engine": trainer})
    assert texts["__main__"] == script
    assert "        vary_seed()\n        for epoch in range(3):\n" in texts["engine"]
