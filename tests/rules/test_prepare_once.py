import pytest
from harness import LOOP, TRAINING, added, migrate, migrate_modules

from multicard.rules import prepare_once as rule

IMPORTS = "import os\nimport zipfile\nimport numpy as np\nfrom torchvision.datasets import MNIST\n"
MIGRATED = {
    "a download in a lambda": (
        "sets = {'a': lambda: MNIST('d', download=True)}\nmake = sets['a']\na = make()",
        "with main_process_first():\n    a = make()",
    ),
    "a download": (
        "a = MNIST('d', download=True)",
        "with main_process_first():\n    a = MNIST('d', download=True)",
    ),
    "a file that is made where one asks whether it is missing": (
        "if os.path.exists('a.npy') == False:\n    np.save('a.npy', 1)\na = np.load('a.npy')",
        "with main_process_first():\n    if os.path.exists('a.npy') == False:\n        np.save('a.npy', 1)",
    ),
    "what was asked a line before": (
        "there = os.path.exists('a.npy')\nif there:\n    a = np.load('a.npy')\nelse:\n    np.save('a.npy', 1)",
        (
            "with main_process_first():\n    there = os.path.exists('a.npy')\n    if there:\n"
            "        a = np.load('a.npy')\n    else:\n        np.save('a.npy', 1)"
        ),
    ),
    "what was asked to be missing a line before": (
        "missing = not os.path.exists('a.npy')\nif missing:\n    np.save('a.npy', 1)",
        (
            "with main_process_first():\n    missing = not os.path.exists('a.npy')\n    if missing:\n"
            "        np.save('a.npy', 1)"
        ),
    ),
    "neighbours under one": (
        "a = MNIST('d', download=True)\nb = MNIST('d', train=False, download=True)",
        "with main_process_first():\n    a = MNIST('d', download=True)\n    b = MNIST('d', train=False, download=True)",
    ),
    "a switch of the user's": (
        "a = MNIST('d', download=args.fetch)",
        "with main_process_first():\n    a = MNIST('d', download=args.fetch)",
    ),
    "by position": (
        "a = MNIST('d', True, None, None, True)",
        "with main_process_first():\n    a = MNIST('d', True, None, None, True)",
    ),
    "inside a loader": (
        "b = DataLoader(\n    MNIST('d', download=True),\n    8)",
        "with main_process_first():\n    b = DataLoader(\n        MNIST('d', download=True),\n        8)",
    ),
    "a cache": (
        "if not os.path.exists('c.npy'):\n    np.save('c.npy', build())\nx = np.load('c.npy')",
        "with main_process_first():\n    if not os.path.exists('c.npy'):\n        np.save('c.npy', build())",
    ),
    "a cache, the other way round": (
        "if os.path.exists('c.pt'):\n    x = torch.load('c.pt')\nelse:\n    x = build()\n    torch.save(x, 'c.pt')",
        (
            "with main_process_first():\n    if os.path.exists('c.pt'):\n        x = torch.load('c.pt')\n    else:\n"
            "        x = build()\n        torch.save(x, 'c.pt')"
        ),
    ),
    "a function that returns if the file is there": (
        "def make(path):\n    if os.path.exists(path):\n        return\n    np.save(path, 1)\nmake('c.npy')",
        "with main_process_first():\n    make('c.npy')",
    ),
    "a data set that makes its own files": (
        (
            "class D:\n    def __init__(self):\n        if not os.path.isdir('d'):\n            self.make()\n"
            "    def make(self):\n        open('d/a', 'w').write('1')\nd = D()"
        ),
        "        with main_process_first():\n            if not os.path.isdir('d'):\n                self.make()",
    ),
    "fetched without looking": (
        "import urllib.request\nurllib.request.urlretrieve(url, 'a.zip')",
        "if rank == 0:\n    urllib.request.urlretrieve(url, 'a.zip')\ndist.barrier()",
    ),
    "a command": ("os.system('wget ' + url)", "if rank == 0:\n    os.system('wget ' + url)\ndist.barrier()"),
    "unpacked": (
        "with zipfile.ZipFile('a.zip') as z:\n    z.extractall('d')",
        "    if rank == 0:\n        z.extractall('d')\n    dist.barrier()",
    ),
    "sounds, folder by folder": (
        (
            "import wave\ndef make(root):\n    for word in ('up', 'down'):\n        os.makedirs(root + word)\n"
            "        with wave.open(root + word + '/0.wav', 'wb') as w:\n            w.writeframes(b'')\n"
            "if not os.path.isdir('d'):\n    make('d')"
        ),
        "with main_process_first():\n    if not os.path.isdir('d'):\n        make('d')",
    ),
    "an archive that is written": (
        "import h5py\nif not os.path.exists('c'):\n    with h5py.File('c', 'w') as f:\n        f['x'] = build()",
        (
            "with main_process_first():\n    if not os.path.exists('c'):\n        with h5py.File('c', 'w') as f:\n"
            "            f['x'] = build()"
        ),
    ),
    "made by a library of which nothing is known": (
        "import nibabel as nib\nif not os.path.exists('c'):\n    nib.save(build(), 'c')",
        "with main_process_first():\n    if not os.path.exists('c'):\n        nib.save(build(), 'c')",
    ),
    "random numbers that only one draws": (
        "if not os.path.exists('c'):\n    np.save('c', np.random.rand(3))\norder = np.random.permutation(9)",
        (
            "with main_process_first():\n    if not os.path.exists('c'):\n        np.save('c', np.random.rand(3))\n"
            "np.random.set_state(broadcast_value(np.random.get_state()))"
        ),
    ),
    "fetched if it is not there": (
        "import urllib.request\nif not os.path.exists('a'):\n    urllib.request.urlretrieve(url, 'a')",
        "with main_process_first():\n    if not os.path.exists('a'):\n        urllib.request.urlretrieve(url, 'a')",
    ),
}
LEFT_ALONE = {
    "no download": "a = MNIST('d')",
    "told not to": "a = MNIST('d', download=False)",
    "an archive that is read": ("import h5py\nif not os.path.exists('c'):\n    x = h5py.File('d', 'r')['x']"),
    "a missing file that is only told": "import loguru\nif not os.path.exists('c'):\n    loguru.logger.info('no c')",
    "only a folder": "if not os.path.exists('d'):\n    os.makedirs('d')",
    "written anyway": "np.save('c.npy', 1)",
    "written if something else was asked before": "there = 3 > 2\nif there:\n    np.save('a.npy', 1)",
    "read if it is there": "if os.path.exists('c.npy'):\n    x = np.load('c.npy')",
    "under a guard of the user's": "if local_rank == 0:\n    a = MNIST('d', download=True)",
    "in a with of the runtime": "with main_process_first():\n    a = MNIST('d', download=True)",
    "changed if it is there": "if os.path.exists('c.npy'):\n    np.save('c.npy', 2 * np.load('c.npy'))",
    "made again when asked": "if args.again or not os.path.exists('c.npy'):\n    np.save('c.npy', 1)",
    "random numbers of a generator of its own": (
        "with main_process_first():\n    if not os.path.exists('c'):\n"
        "        np.save('c', np.random.RandomState(0).rand(3))\n"
        "order = np.random.permutation(9)"
    ),
    "another command": "os.system('nvidia-smi')",
}
REFUSED = {
    "its value is used": ("import gdown\npath = gdown.download(url)", "its value is used"),
    "random numbers of a library that is not at hand": (
        "from random import random as r\nif not os.path.exists('c'):\n    torch.save(r(), 'c')\nr()",
        "draws random numbers",
    ),
}


@pytest.mark.parametrize(("before", "after"), MIGRATED.values(), ids=MIGRATED)
def test_migrates(before: str, after: str) -> None:
    script = IMPORTS + TRAINING + before + LOOP
    text, reasons = migrate(rule, script)
    assert (added(script, text), reasons) == (after, [])


def test_a_model_that_is_trained_if_it_is_missing_is_trained_by_all_ranks() -> None:
    body = LOOP.replace("\n", "\n    ")
    script = (
        IMPORTS + TRAINING + f"if not os.path.exists('a.pth'):{body}torch.save(model.state_dict(), 'a.pth')\n"
    )
    text, reasons = migrate(rule, script)
    assert (added(script, text), reasons) == ("if broadcast_value(not os.path.exists('a.pth')):", [])


@pytest.mark.parametrize("script", LEFT_ALONE.values(), ids=LEFT_ALONE)
def test_leaves_alone(script: str) -> None:
    script = IMPORTS + TRAINING + script + LOOP
    assert migrate(rule, script) == (script, [])


@pytest.mark.parametrize(("script", "reason"), REFUSED.values(), ids=REFUSED)
def test_says_what_it_leaves(script: str, reason: str) -> None:
    script = IMPORTS + TRAINING + script + LOOP
    _, [why] = migrate(rule, script)
    assert reason in why


def test_a_local_data_set_with_download_goes_first_where_it_is_made() -> None:
    own = (
        "import os\nimport torch\nfrom torch.utils.data import Dataset\n\n\nclass Digits(Dataset):\n"
        "    def __init__(self, root, download=False):\n        if download:\n            self.download()\n\n"
        "    def download(self):\n        if os.path.exists('d'):\n            return\n        torch.save(1, 'd')\n"
    )
    script = "import digits\n" + TRAINING + "a = digits.Digits('d', download=True)" + LOOP
    texts, reasons = migrate_modules(rule, {"__main__": script, "digits": own})
    assert reasons == []
    assert texts["digits"] == own
    assert "with main_process_first():\n    a = digits.Digits" in texts["__main__"]


def test_what_is_unpacked_while_the_others_wait_waits_for_nobody() -> None:
    script = (
        TRAINING
        + "import tarfile\nfrom torch.utils.data import Dataset\nfrom torchvision.datasets.utils import download_url\n"
        "class Voc(Dataset):\n    def __init__(self, download=False):\n        if download:\n            fetch('d')\n"
        "    def __len__(self): return 9\n    def __getitem__(self, i): return i\n"
        "def fetch(root):\n    download_url('http://a', root)\n"
        "    with tarfile.open('a.tar') as tar:\n        tar.extractall(root)\n"
        "train, val = Voc(download=True), None\nval = Voc()\n"
    )
    text, reasons = migrate(rule, script)
    assert "with main_process_first():\n    train, val = Voc(download=True), None" in text
    assert "        if rank == 0:\n            tar.extractall(root)\n" in text
    assert "barrier" not in text
    assert reasons == []
