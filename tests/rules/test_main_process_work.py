import pytest
from harness import LOOP, TRAINING, added, migrate

from multicard.rules import main_process_work as rule

SCRIPT = "import sys\nimport matplotlib.pyplot as plt\n" + TRAINING
SHOW = """
def show(net, path):
    net.eval()
    plt.imshow(net(noise).detach())
    plt.savefig(path)
    net.train()
"""
AFTER_TRAINING = {
    "with the model": (SHOW + "{loop}show(model, 'a.png')", "if rank == 0:\n    show(model.module, 'a.png')"),
    "neighbours under one guard": (
        SHOW + "{loop}show(model, 'a.png')\nshow(net=model, path='b.png')",
        "if rank == 0:\n    show(model.module, 'a.png')\n    show(net=model.module, path='b.png')",
    ),
    "compiled": (
        SHOW + "model = torch.compile(model)\n{loop}show(model, 'a.png')",
        "if rank == 0:\n    show(unwrap(model), 'a.png')",
    ),
    "each epoch, its mode set back": (
        SHOW + "{loop}    show(model, 'a.png')",
        "    if rank == 0:\n        show(model.module, 'a.png')",
    ),
    "the model from outside": (
        "def show():\n    plt.imshow(model(noise))\n    plt.savefig('a')\n{loop}show()",
        "    plt.imshow(model.module(noise))\nif rank == 0:\n    show()",
    ),
    "curves": (
        "def curves(losses):\n    plt.plot(losses)\n    plt.savefig('a.png')\nlosses = []\n{loop}curves(losses)",
        "if rank == 0:\n    curves(losses)",
    ),
    "checkpoints, the old ones cleared": (
        "import os\ndef keep(net):\n    torch.save(net.state_dict(), 'b')\n    os.remove('a')\n{loop}keep(model)",
        "if rank == 0:\n    keep(model)",
    ),
    "with gradients of its own": (
        (
            "def heat(net):\n    net(noise).sum().backward()\n    plt.imshow(noise.grad)\n"
            "    plt.savefig('a')\n    net.zero_grad()\n{loop}heat(model)"
        ),
        "if rank == 0:\n    heat(model.module)",
    ),
    "a list of its own": (
        (
            "def worst(net):\n    rows = []\n    for x, y in loader:\n        rows.append(net(x))\n        break\n"
            "    open('a', 'w').write(str(rows))\n{loop}worst(model)"
        ),
        "if rank == 0:\n    worst(model.module)",
    ),
    "a method": (
        (
            "class Trainer:\n    def __init__(self, net):\n        self.net = net\n    def show(self):\n"
            "        plt.imshow(self.net(noise))\n        plt.savefig('a')\n{loop}t = Trainer(model)\nt.show()"
        ),
        "        plt.imshow(self.net.module(noise))\nif rank == 0:\n    t.show()",
    ),
}
LEFT_ALONE = {
    "it fetches data and clears what it unpacked": (
        "import os\ndef fetch():\n    open('a.gz', 'wb').write(b'')\n    open('a', 'w').write('')\n"
        "    os.remove('a.gz')\n{loop}fetch()"
    ),
    "its value is used": SHOW.replace("net.train()", "return 1") + "{loop}x = show(model, 'a.png')",
    "it only prints": "def show(net):\n    print(net(noise))\n{loop}show(model)",
    "it writes without work": "def note(x):\n    open('a', 'w').write(x)\n{loop}note('b')",
    "it trains": SHOW.replace("net.eval()", "optimizer.step()") + "{loop}show(model, 'a.png')",
    "its gradients are used": (
        "def part(net):\n    net(noise).sum().backward()\n    plt.imshow(noise)\n    plt.savefig('a')\n"
        "{loop}part(model)\noptimizer.step()"
    ),
    "it sets a global": SHOW.replace("net.eval()", "global n\n    n = 1") + "{loop}show(model, 'a.png')",
    "it changes an argument": SHOW.replace("net.eval()", "path.append(1)") + "{loop}show(model, p)",
    "it changes what it took from an argument": (
        SHOW.replace("net.eval()", "rows = path.rows\n    rows.append(1)") + "{loop}show(model, p)"
    ),
    "it loads weights": SHOW.replace("net.eval()", "net.load_state_dict(best)")
    + "{loop}show(model, 'a.png')",
    "it leaves the program": SHOW.replace("net.eval()", "sys.exit(0)") + "{loop}show(model, 'a.png')",
    "training goes on in its mode": SHOW.replace("    net.train()\n", "") + "{loop}    show(model, 'a.png')",
    "under a guard of the user's": SHOW + "{loop}if is_main_process():\n    show(model, 'a.png')",
    "the model is called in its arguments": (
        "def show(x):\n    plt.imshow(x)\n    plt.savefig('a')\n{loop}show(model(noise))"
    ),
    "the same place with its value used": (
        SHOW.replace("net.train()", "return 1") + "{loop}show(model, 'a.png')\nx = show(model, 'b.png')"
    ),
    "random numbers that later ones depend on": (
        "import numpy as np\ndef show():\n    plt.imshow(np.random.rand(3))\n    plt.savefig('a')\n"
        "show()\norder = np.random.permutation(9)\n{loop}"
    ),
    "a library's": "{loop}plt.savefig('a')",
}


@pytest.mark.parametrize(("script", "after"), AFTER_TRAINING.values(), ids=AFTER_TRAINING)
def test_migrates(script: str, after: str) -> None:
    script = SCRIPT + script.replace("{loop}", LOOP)
    text, reasons = migrate(rule, script)
    assert (added(script, text), reasons) == (after, [])


@pytest.mark.parametrize("script", LEFT_ALONE.values(), ids=LEFT_ALONE)
def test_leaves_alone(script: str) -> None:
    script = SCRIPT + script.replace("{loop}", LOOP)
    assert migrate(rule, script) == (script, [])


def test_a_function_that_reaches_inside_gets_the_wrapper_and_calls_the_model_in_it() -> None:
    show = (
        "def show(net):\n    plt.imshow(net(noise))\n    plt.imshow(net.weight)\n    plt.hist(summary(model=net))\n"
        "    plt.savefig('a')\n"
    )
    script = SCRIPT + "from torchinfo import summary\n" + show + LOOP + "show(model)"
    text, reasons = migrate(rule, script)
    after = "    plt.imshow(net.module(noise))\n    plt.hist(summary(model=net.module))\nif rank == 0:\n    show(model)"
    assert (added(script, text), reasons) == (after, [])
