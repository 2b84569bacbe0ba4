"""Batches that scripts make by hand: shared out, drawn by each rank, or nothing to share."""

import pytest
from harness import TRAINING, added, facts_of, migrate

from multicard.plan import Kind
from multicard.rules import share_batches as rule

HEAD = TRAINING.replace(
    "loader = DataLoader(data, 8, shuffle=True)\n", "inputs, labels = torch.randn(64, 4), torch.randn(64)\n"
)
STEP = (
    "{0}loss = criterion(model({1}), y)\n{0}optimizer.zero_grad()\n{0}loss.backward()\n{0}optimizer.step()\n"
)
EPOCH = "for epoch in range(3):\n    order = torch.randperm(64)\n"


def step(inputs: str, indent: int = 2) -> str:
    return STEP.format("    " * indent, inputs)


SHARED = {
    "slices of tensors": (
        EPOCH
        + "    for i in range(0, 64, 8):\n        x, y = inputs[i:i + 8], labels[i:i + 8]\n"
        + step("x"),
        "    for i in share_of(range(0, 64, 8)):",
    ),
    "through an order": (
        EPOCH
        + "    for i in range(0, 64, 8):\n        batch = order[i:i + 8]\n        y = labels[batch]\n"
        + step("inputs[batch]"),
        "    for i in share_of(range(0, 64, 8)):",
    ),
    "by the number of the batch": (
        EPOCH
        + "    for b in range(8):\n        s = b * 8\n        x, y = inputs[s:s + 8], labels[s:s + 8]\n"
        + step("x"),
        "    for b in share_of(range(8)):",
    ),
    "in a progress bar": (
        "from tqdm import tqdm\n"
        + EPOCH
        + "    for i in tqdm(range(0, 64, 8)):\n        x, y = inputs[i:i + 8], labels[i:i + 8]\n"
        + step("x"),
        "    for i in tqdm(share_of(range(0, 64, 8))):",
    ),
    "a list of batches": (
        "batches = [(inputs[i:i + 8], labels[i:i + 8]) for i in range(0, 64, 8)]\n"
        + EPOCH
        + "    for x, y in batches:\n"
        + step("x"),
        "    for x, y in share_of(batches):",
    ),
    "two lists of batches": (
        "xs = [inputs[i:i + 8] for i in range(0, 64, 8)]\nys = [labels[i:i + 8] for i in range(0, 64, 8)]\n"
        + EPOCH
        + "    for x, y in zip(xs, ys):\n"
        + step("x"),
        "    for x, y in share_of(zip(xs, ys)):",
    ),
    "a list of batches, numbered": (
        "batches = [(inputs[i:i + 8], labels[i:i + 8]) for i in range(0, 64, 8)]\n"
        + EPOCH
        + "    for n, (x, y) in enumerate(batches):\n"
        + step("x"),
        "    for n, (x, y) in enumerate(share_of(batches)):",
    ),
    "a generator": (
        "def batches(n):\n    for i in range(0, 64, n):\n        yield inputs[i:i + n], labels[i:i + n]\n"
        + EPOCH
        + "    for x, y in batches(8):\n"
        + step("x"),
        "    for x, y in share_of(batches(8)):",
    ),
    "cut by a function": (
        "def cut(source, i):\n    return source[i:i + 35], source[i + 1:i + 36]\n"
        + EPOCH
        + "    for i in range(0, 64, 35):\n        x, y = cut(inputs, i)\n"
        + step("x"),
        "    for i in share_of(range(0, 64, 35)):",
    ),
    "sample by sample": (
        EPOCH + "    for i in range(len(inputs)):\n        x, y = inputs[i], labels[i]\n" + step("x"),
        "    for i in share_of(range(len(inputs))):",
    ),
    "an object that is iterated": (
        "class Batches:\n    def __iter__(self):\n        yield inputs, labels\n"
        "batches = Batches()\n" + EPOCH + "    for x, y in batches:\n" + step("x"),
        "    for x, y in share_of(batches):",
    ),
}
DRAWN = "    x, y = inputs[i:i + 8], labels[i:i + 8]\n"
NOTED = {
    "drawn at random": "for s in range(99):\n    i = torch.randint(0, 56, (1,))\n" + DRAWN + step("x", 1),
    "drawn by numpy": (
        "import numpy as np\nfor s in range(99):\n    i = np.random.choice(56)\n" + DRAWN + step("x", 1)
    ),
    "drawn in a function": (
        "import random\ndef draw():\n    i = random.randint(0, 56)\n    return inputs[i:i + 8], labels[i:i + 8]\n"
        "for s in range(99):\n    x, y = draw()\n" + step("x", 1)
    ),
    "from what was played": (
        "import random\nstate = start()\nfor s in range(99):\n    action = model(state).argmax()\n"
        "    new, reward = env.step(action)\n    memory.append((state, reward))\n    state = new\n"
        "    x, y = random.sample(memory, 8)\n" + step("x", 1)
    ),
    "of a formula": (
        "from itertools import count\ndef draw():\n    x = torch.randn(32).unsqueeze(1)\n"
        "    return torch.cat([x ** i for i in range(4)], 1), x.sin()\n"
        "for s in count():\n    x, y = draw()\n" + step("x", 1) + "    if loss < 1e-3: break\n"
    ),
}
EPISODES = """
import gymnasium as gym
env = gym.make("CartPole-v1")
for episode in range(9):
    state, _ = env.reset()
    done = False
    while not done:
        action = model(state).argmax().item()
        state, reward, done, _, _ = env.step(action)
        loss = criterion(model(state), reward)
        loss.backward()
        optimizer.step()
"""
TRAINS_AFTER = """
import gymnasium as gym
env = gym.make("CartPole-v1")
for episode in range(9):
    state, _ = env.reset()
    done = False
    while not done:
        state, reward, done, _, _ = env.step(model(state).argmax().item())
    loss = criterion(model(state), reward)
    loss.backward()
    optimizer.step()
"""
CELL = """
class Cell(nn.Module):
    def __init__(self):
        super().__init__()
        self.rnn, self.head = nn.GRU(4, 8), nn.Linear(8, 3)

    def forward(self, x, memory):
        out, memory = self.rnn(x[None], memory)
        return self.head(out[0]), memory

class Keeper(Cell):
    def reset(self):
        self.state = torch.zeros(1, 8, 8)

    def forward(self, x):
        out, self.state = self.rnn(x[None], self.state)
        return self.head(out[0])

model, keeper = Cell(), Keeper()
keeper.reset()
optimizer = torch.optim.SGD([*model.parameters(), *keeper.parameters()], 0.1)
"""
ROUND = (
    EPOCH
    + "    memory = torch.zeros(1, 8, 8)\n    for i in range(0, 64, 8):\n"
    + "        x, y = inputs[i:i + 8], labels[i:i + 8]\n"
)
BACK = "        loss = criterion(out, y)\n        loss.backward()\n        optimizer.step()\n"
STATES = {
    "taken up in a branch": (
        "        if args.plain:\n            out = model(x)\n        else:\n            memory = memory.detach()\n"
        "            out, memory = model(x, memory)\n"
    ),
    "put back by another statement": (
        "        both = model(x, memory)\n        out, new = both\n        memory = new.detach()\n"
    ),
    "in an attribute": "        out, box.memory = model(x, box.memory)\n",
    "kept by the model": "        keeper.state = keeper.state.detach()\n        out = keeper(x)\n",
    "kept by the model, begun anew at times": (
        "        if i % 32 == 0:\n            keeper.reset()\n        out = keeper(x)\n"
    ),
}
NO_STATES = {
    "begun anew for each batch": (
        "        memory = torch.zeros(1, 8, 8)\n        out, memory = model(x, memory)\n"
    ),
    "begun anew in both branches": (
        "        if args.plain:\n            memory = torch.zeros(1, 8, 8)\n        else:\n"
        "            memory = torch.ones(1, 8, 8)\n        out, memory = model(x, memory)\n"
    ),
    "the model begins anew": "        keeper.reset()\n        out = keeper(x)\n",
    "only what the model is given": "        out, new = model(x, memory)\n",
}
NOTHING_TO_SHARE = {
    "a list of models": (
        "y, nets = labels, [nn.Linear(4, 1) for _ in range(3)]\n"
        "steps = [torch.optim.SGD(net.parameters(), lr=0.1) for net in nets]\n"
        + EPOCH
        + "    for model, optimizer in zip(nets, steps):\n"
        + step("inputs"),
        "there are no batches",
    ),
    "batches from out of sight": (
        "from corpus import loader\n" + EPOCH + "    for x, y in loader:\n" + step("x"),
        "where the batches of `loader` come from is not seen",
    ),
    "counted batches from out of sight": (
        "from corpus import load\nloader = load()\n"
        + EPOCH
        + "    for i, (x, y) in enumerate(loader):\n"
        + step("x"),
        "is not seen",
    ),
    "the whole data": ("for epoch in range(99):\n    y = labels\n" + step("inputs", 1), "no batches"),
    "a state that goes on": (
        "hidden = None\n" + EPOCH + "    for i in range(0, 64, 8):\n        y = labels[i:i + 8]\n"
        "        output, hidden = model(inputs[i:i + 8], hidden)\n        loss = criterion(output, y)\n"
        "        loss.backward()\n        optimizer.step()\n",
        "goes into the next",
    ),
}
LEFT_ALONE = {
    "a loader": "loader = DataLoader(data, 8)\n" + EPOCH + "    for x, y in loader:\n" + step("x"),
    "evaluation": EPOCH + "    for i in range(0, 64, 8):\n        print(model(inputs[i:i + 8]))\n",
    "no loop": "y = labels\n" + step("inputs", 0),
}


@pytest.mark.parametrize(("part", "after"), SHARED.values(), ids=SHARED)
def test_shares_out(part: str, after: str) -> None:
    script = HEAD + "criterion = nn.MSELoss()\n" + part
    text, reasons = migrate(rule, script)
    assert (added(script, text), reasons) == (after, [])


@pytest.mark.parametrize("part", NOTED.values(), ids=NOTED)
def test_each_rank_draws_its_own(part: str) -> None:
    script = HEAD + "criterion = nn.MSELoss()\n" + part
    assert migrate(rule, script) == (script, [])
    [note] = rule.find(facts_of(script))
    assert note.kind is Kind.NOTE
    assert "drawn at random" in note.why.en


@pytest.mark.parametrize(("part", "reason"), NOTHING_TO_SHARE.values(), ids=NOTHING_TO_SHARE)
def test_says_that_there_is_nothing_to_share(part: str, reason: str) -> None:
    script = HEAD + "criterion = nn.MSELoss()\n" + part
    text, [why] = migrate(rule, script)
    assert text == script
    assert reason in why


@pytest.mark.parametrize("part", LEFT_ALONE.values(), ids=LEFT_ALONE)
def test_leaves_alone(part: str) -> None:
    script = HEAD + "criterion = nn.MSELoss()\n" + part
    assert migrate(rule, script) == (script, [])
    assert list(rule.find(facts_of(script))) == []


def test_rank_0_plays_where_episodes_decide_how_often_the_model_is_trained() -> None:
    script = HEAD + "criterion = nn.MSELoss()\n" + EPISODES
    text, [why] = migrate(rule, script)
    assert added(script, text) == (
        "    state, _ = broadcast_value(env.reset() if rank == 0 else None)\n"
        "        state, reward, done, _, _ = broadcast_value(env.step(action) if rank == 0 else None)"
    )
    assert "no batches" in why


def test_each_rank_plays_its_own_episodes_where_each_is_trained_on_once() -> None:
    script = HEAD + "criterion = nn.MSELoss()\n" + TRAINS_AFTER
    text, [why] = migrate(rule, script)
    assert text == script
    assert "no batches" in why


def test_an_action_drawn_by_chance_is_that_of_rank_0() -> None:
    script = (
        HEAD
        + "criterion = nn.MSELoss()\n"
        + EPISODES.replace("= model(state).argmax().item()", "= env.action_space.sample()")
    )
    script = script.replace(
        "state, reward, done, _, _ = env", "model(state)\n        state, reward, done, _, _ = env"
    )
    text, _ = migrate(rule, script.replace("while not done:", "while model(state).max() < 9:"))
    assert "action = broadcast_value(env.action_space.sample() if rank == 0 else None)\n" in text


def test_a_loader_behind_an_iterator_of_the_script_s_is_no_batch_by_hand() -> None:
    endless = """
class Endless:
    def __init__(self, loader):
        self.batches = self.run(loader)

    def __next__(self):
        return next(self.batches)

    @staticmethod
    def run(loader):
        while True:
            yield from loader


batches = Endless(DataLoader(data, 8, shuffle=True))
for step in range(99):
    x, y = next(batches)
"""
    script = HEAD + "criterion = nn.MSELoss()\n" + endless + step("x", 1)
    assert migrate(rule, script) == (script, [])
    assert len(facts_of(script).train_loaders) == 1


def test_says_that_a_position_which_goes_on_is_the_same_on_every_rank() -> None:
    part = (
        "import numpy as np\nat = 0\nfor i in range(99):\n    if args.cut:\n"
        "        x, y = inputs[at:at + 8], labels[at:at + 8]\n        at += 8\n    else:\n"
        "        rows = np.random.choice(64, 8)\n        x, y = inputs[rows], labels[rows]\n"
    )
    text, [why] = migrate(rule, HEAD + part + step("x", 1))
    assert text == HEAD + part + step("x", 1)
    assert "`at` is the same on every rank" in why


@pytest.mark.parametrize("part", STATES.values(), ids=STATES)
def test_leaves_batches_together_that_a_state_joins(part: str) -> None:
    script = HEAD + "criterion = nn.MSELoss()\n" + CELL + ROUND + part + BACK
    text, [reason] = migrate(rule, script)
    assert text == script
    assert "goes into the next" in reason


@pytest.mark.parametrize("part", NO_STATES.values(), ids=NO_STATES)
def test_shares_out_batches_that_begin_anew(part: str) -> None:
    script = HEAD + "criterion = nn.MSELoss()\n" + CELL + ROUND + part + BACK
    text, reasons = migrate(rule, script)
    assert "in share_of(range(0, 64, 8))" in text
    assert reasons == []


def test_says_how_a_state_goes_on_from_one_batch_of_a_loader_to_the_next() -> None:
    loop = EPOCH + "    for x, y in loader:\n        out, memory = model(x, memory)\n" + BACK
    script = HEAD + "criterion = nn.MSELoss()\nloader = DataLoader(data, 8)\nmemory = None\n" + CELL + loop
    [note] = rule.find(facts_of(script))
    assert (note.kind, "row by row" in note.why.en) == (Kind.NOTE, True)
