import pytest
from harness import LOOP, TRAINING, added, migrate, migrate_modules

from multicard.rules import write_files_once as rule

IMPORTS = (
    "import os, shutil, subprocess\nimport numpy as np\nimport pandas as pd\nimport wandb\n"
    "import matplotlib.pyplot as plt\nfrom pathlib import Path\n"
    "from torchvision.utils import save_image\nfrom torch.utils.tensorboard import SummaryWriter\n"
)
OWN = (
    "class Own(SummaryWriter):\n    def __init__(self, folder):\n        super().__init__(folder)\n"
    "        self.seen = 0\n    def shown(self, model, x):\n        self.seen += 1\n"
    "        self.add_scalar('a', 1, self.seen)\n"
)
MIGRATED = {
    "a writer of the script's own kind": (
        OWN + "w = Own('a')\nw.shown(model, x)",
        "w = Own('a') if rank == 0 else NullWriter()",
    ),
    "opened to read too, and only written": (
        "with open('a', 'wb+') as f:\n    f.write(b'1')",
        "with open('a' if rank == 0 else os.devnull, 'wb+') as f:",
    ),
    "opened to write": ("f = open('a', 'w')", "f = open('a' if rank == 0 else os.devnull, 'w')"),
    "opened by name": (
        "f = open(file=p, mode='ab')",
        "f = open(file=p if rank == 0 else os.devnull, mode='ab')",
    ),
    "a path of two": (
        "f = open(a if b else c, 'w')",
        "f = open((a if b else c) if rank == 0 else os.devnull, 'w')",
    ),
    "opened to create": (
        "f = open('a', 'x')",
        "f = open('a' if rank == 0 else os.devnull, 'x' if rank == 0 else \"w\")",
    ),
    "a path's own open": (
        "p = Path('a')\nwith p.open('w', newline='') as f: f.write('1')",
        "with open(p if rank == 0 else os.devnull, 'w', newline='') as f: f.write('1')",
    ),
    "a path in parentheses": (
        "with (Path('a') / 'b').open('w') as f: pass",
        "with open((Path('a') / 'b') if rank == 0 else os.devnull, 'w') as f: pass",
    ),
    "a folder that must be new": (
        "os.makedirs('a', exist_ok=False)",
        "if rank == 0:\n    os.makedirs('a', exist_ok=False)\ndist.barrier()",
    ),
    "a folder that is tested for": (
        "p = Path('a')\nif not p.is_dir():\n    p.mkdir(parents=True, exist_ok=False)",
        "    p.mkdir(parents=True, exist_ok=True)",
    ),
    "a run whose settings are told": (
        "run = wandb.init()\nrun.config.update({'lr': 1})\nrun.summary['best'] = 2",
        "run = wandb.init() if rank == 0 else NullWriter()",
    ),
    "what comes off a list is deleted": (
        "kept = ['a']\nos.remove(kept.pop(0))",
        "path = kept.pop(0)\nif rank == 0:\n    os.remove(path)",
    ),
    "compressed": (
        "import gzip\nf = gzip.open('a', 'wt')",
        "f = gzip.open('a' if rank == 0 else os.devnull, 'wt')",
    ),
    "the mode in a name": (
        "def put(path, mode):\n    open(path, mode)\nput('a', 'w')",
        "    open(path if rank == 0 else os.devnull, mode)",
    ),
    "a table": ("df = pd.DataFrame(rows)\ndf.to_csv('a')", "if rank == 0:\n    df.to_csv('a')"),
    "neighbours under one guard": (
        "np.save('a', x)\nnp.save('b', y)\nsave_image(z, 'c')",
        "if rank == 0:\n    np.save('a', x)\n    np.save('b', y)\n    save_image(z, 'c')",
    ),
    "a picture": (
        "from PIL import Image\nImage.fromarray(x).save('a')",
        "if rank == 0:\n    Image.fromarray(x).save('a')",
    ),
    "in a row": (
        "[np.save(str(i), x) for i in range(3)]",
        "if rank == 0:\n    [np.save(str(i), x) for i in range(3)]",
    ),
    "deleted": ("os.remove('a')", "if rank == 0:\n    os.remove('a')"),
    "shown": ("plt.show()", "if rank == 0:\n    plt.show()"),
    "a whole figure": (
        "plt.figure()\nplt.plot(x)\nplt.savefig('a')\nplt.close()",
        "if rank == 0:\n    plt.figure()\n    plt.plot(x)\n    plt.savefig('a')\n    plt.close()",
    ),
    "a figure that begins elsewhere": (
        "fig = plt.figure()\nplt.plot(x)\nplt.savefig('a')\nplt.close()",
        "if rank == 0:\n    plt.savefig('a')",
    ),
    "a folder": ("os.makedirs('a')", "os.makedirs('a', exist_ok=True)"),
    "a folder that is looked for": (
        "if not os.path.exists('a'):\n    os.mkdir('a')",
        "    os.makedirs('a', exist_ok=True)",
    ),
    "a folder by a name of its own": ("from os import mkdir\nmkdir('a')", "os.makedirs('a', exist_ok=True)"),
    "a folder whose error stops the program": (
        "try:\n    os.makedirs('a')\nexcept OSError:\n    raise SystemExit",
        "    os.makedirs('a', exist_ok=True)",
    ),
    "a path's folder": ("Path('a').mkdir(parents=True)", "Path('a').mkdir(parents=True, exist_ok=True)"),
    "a writer whose folder is asked for": (
        "w = SummaryWriter()\np = os.path.join(w.log_dir, 'a')",
        "w = SummaryWriter() if rank == 0 else NullWriter()\nw.log_dir = broadcast_value(w.log_dir)",
    ),
    "a run that is told its settings": (
        "run = wandb.init(project='a')\nrun.config.update({'lr': 1})",
        "run = wandb.init(project='a') if rank == 0 else NullWriter()",
    ),
    "a writer": ("w = SummaryWriter('a')", "w = SummaryWriter('a') if rank == 0 else NullWriter()"),
    "a writer of an attribute": (
        "class L:\n    def __init__(self):\n        self.w = SummaryWriter()\nL()",
        "        self.w = SummaryWriter() if rank == 0 else NullWriter()",
    ),
    "a run": (
        "wandb.init(project='a')\nwandb.log({'a': 1})",
        "if rank == 0:\n    wandb.init(project='a')\n    wandb.log({'a': 1})",
    ),
    "a run that is kept": (
        "run = wandb.init(project='a')\nrun.log({'a': 1})",
        "run = wandb.init(project='a') if rank == 0 else NullWriter()\nif rank == 0:\n    run.log({'a': 1})",
    ),
    "an archive": (
        "import h5py\nwith h5py.File('a', 'w') as f:\n    f['x'] = 1",
        "with h5py.File('a', 'w') if rank == 0 else NullWriter() as f:",
    ),
    "random numbers of a generator of its own": (
        "rng = np.random.RandomState(0)\nnp.save('a', rng.rand(3))",
        "if rank == 0:\n    np.save('a', rng.rand(3))",
    ),
    "written before training and read under a path that is not known": (
        "pd.DataFrame(rows).to_csv('a.csv')\ny = pd.read_csv(args.data)",
        "if rank == 0:\n    pd.DataFrame(rows).to_csv('a.csv')\ndist.barrier()",
    ),
    "copied and used": (
        "shutil.copytree('a', '/tmp/a')\nuse('/tmp/a')",
        "if rank == 0:\n    shutil.copytree('a', '/tmp/a')\ndist.barrier()",
    ),
    "flushed to disk": (
        "f = open('a', 'w')\nf.write('1')\nos.fsync(f.fileno())",
        "f = open('a' if rank == 0 else os.devnull, 'w')\nif rank == 0:\n    os.fsync(f.fileno())",
    ),
    "a command": ("os.system('clear')", "if rank == 0:\n    os.system('clear')"),
}
AFTER_TRAINING = {
    "the model called in it": (
        "save_image(model(z), 'a')",
        "if rank == 0:\n    save_image(unwrap(model)(z), 'a')",
    ),
    "written and read": (
        "np.save('a.npy', x)\ny = np.load('a.npy')",
        "if rank == 0:\n    np.save('a.npy', x)\ndist.barrier()",
    ),
    "written and read by an interface of a data set": (
        (
            "import json\nfrom pycocotools.coco import COCO\nannotations = COCO('b.json')\n"
            "json.dump(rows, open('a.json', 'w'))\nfound = annotations.loadRes('a.json')"
        ),
        "json.dump(rows, open('a.json' if rank == 0 else os.devnull, 'w'))\ndist.barrier()",
    ),
    "written line by line and read": (
        "with open('a', 'w') as f:\n    f.write('1')\nrows = open('a').read()",
        "with open('a' if rank == 0 else os.devnull, 'w') as f:\ndist.barrier()",
    ),
    "deleted and made again": (
        "if os.path.exists('a'):\n    shutil.rmtree('a')\nos.makedirs('a')",
        "    if rank == 0:\n        shutil.rmtree('a')\ndist.barrier()\nos.makedirs('a', exist_ok=True)",
    ),
    "written and read by a pattern": (
        (
            "def build(folder):\n    for i in range(3):\n        np.save(folder + 'part_{}.npy'.format(i), x)\n"
            "build('d/')\nfor i in range(3):\n    use(np.load(f'd/part_{i}.npy'))"
        ),
        "        if rank == 0:\n            np.save(folder + 'part_{}.npy'.format(i), x)\n    dist.barrier()",
    ),
    "read and then overwritten": (
        "y = np.load('a.npy')\nnp.save('a.npy', y + 1)",
        "dist.barrier()\nif rank == 0:\n    np.save('a.npy', y + 1)",
    ),
    "read and then deleted": (
        "for i in range(3):\n    y = torch.load(f'm{i}.pth')\n    os.remove(f'm{i}.pth')",
        "    dist.barrier()\n    if rank == 0:\n        os.remove(f'm{i}.pth')\n    dist.barrier()",
    ),
    "read where it is there, and then written": (
        (
            "def remember(x):\n    rows = []\n    if os.path.exists('a'):\n        with open('a') as f:\n"
            "            rows = f.readlines()\n    rows.append(x)\n    with open('a', 'w') as f:\n"
            "        f.writelines(rows)\nremember('b')"
        ),
        "    dist.barrier()\n    with open('a' if rank == 0 else os.devnull, 'w') as f:",
    ),
    "read or written": (
        "if fresh:\n    y = np.load('a.npy')\nelse:\n    np.save('a.npy', x)",
        "    if rank == 0:\n        np.save('a.npy', x)",
    ),
    "read, then training, then overwritten": (
        "y = torch.load('a.pth')\nloss = model(x).sum()\nloss.backward()\noptimizer.step()\nos.remove('a.pth')",
        "if rank == 0:\n    os.remove('a.pth')",
    ),
    "read by another name": (
        "np.save('a.npy', x)\ndef get(path):\n    return np.load(path)\nget('a.npy')",
        "if rank == 0:\n    np.save('a.npy', x)\n    dist.barrier()",
    ),
    "a graph of the model": (
        "w = SummaryWriter()\nw.add_graph(model, x)",
        "w = SummaryWriter() if rank == 0 else NullWriter()\nw.add_graph(unwrap(model), x)",
    ),
}
LEFT_ALONE = {
    "opened to read": "f = open('a')",
    "opened to read bytes": "f = open('a', 'rb')",
    "under a guard of the user's": "if rank() == 0:\n    np.save('a', x)",
    "a folder that may be there": "os.makedirs('a', exist_ok=True)",
    "a folder whose error is caught": "try:\n    os.makedirs('a')\nexcept OSError:\n    pass",
    "a folder whose error is looked into": (
        "import errno\ntry:\n    os.makedirs('a')\nexcept OSError as e:\n    if e.errno != errno.EEXIST:\n        raise"
    ),
    "text of a table": "text = df.to_csv()",
    "a picture in memory": "import io\nbuffer = io.BytesIO()\nplt.savefig(buffer)\nshow(buffer)",
    "drawn and not saved": "plt.plot(x)",
    "a command that is asked": "out = subprocess.run(['git', 'log'])",
    "a folder by a command": "os.system('mkdir -p a')",
    "an archive to read": "import h5py\nf = h5py.File('a', 'r')",
    "a function of the user's": "def save_image(x, y): return x\nsave_image(z, 'a')",
    "a string": "s = s.replace('a', 'b')\ns.replace('a', 'b')",
    "a file that may be missing": "if os.path.exists('a'):\n    x = 1",
    "another file under the same parameter": (
        "import json\ndef put(path):\n    return 1\ndef get(path):\n    return open(path).read()\nget('b')\nput('a')"
    ),
    "another file is read": "x = np.load('b.npy')",
    "a data frame": "df = pd.DataFrame(rows)\ndf.rename({'a': 'b'}, inplace=True)",
}
REFUSED = {
    "its value is used": ("p = shutil.copy('a', 'b')", "its value is used"),
    "read and written": ("f = open('a', 'w+')\nf.write('1')\nf.seek(0)", "read and written"),
    "written and loaded": ("f = open('a', 'wb+')\ntorch.load(f)", "read and written"),
    "written and walked through": ("f = open('a', 'w+')\nfor line in f:\n    pass", "read and written"),
    "read and changed": ("f = open('a', 'r+')", "read and written"),
    "a mode in doubt": (
        "def get(path, mode):\n    return open(path, mode)\nget('a', 'r')\nget('b', 'w')",
        "known only when it runs",
    ),
    "in worker processes": (
        (
            "from torch.utils.data import Dataset\nclass D(Dataset):\n    def __getitem__(self, i):\n"
            "        np.save(str(i), i)\n        return i\n"
        ),
        "worker processes",
    ),
    "random numbers before the ranks part": ("np.save('a', np.random.rand(3))", "draws random numbers"),
    "a metric that ranks compute together": (
        "from torchmetrics import Accuracy\nacc = Accuracy()\nwandb.log({'acc': acc.compute()})",
        "torchmetrics",
    ),
    "a list is emptied": ("rows = [1]\nnp.save('a', rows.pop())", "changes an object"),
    "a name is bound": ("np.save('a', (x := f()))", "binds a name"),
    "a folder that must be new, here and there": (
        "for x, y in DataLoader(other): os.makedirs('a', exist_ok=False)",
        "finds the folder there",
    ),
    "a writer that is read": (
        "w = [SummaryWriter()]\np = os.path.join(w[0].log_dir, 'a')",
        "`log_dir` is read",
    ),
    "a writer of the script's own kind that is read": (
        OWN + "w = Own('a')\nw.shown(model, x)\nprint(w.seen)",
        "`seen` is read",
    ),
    "a writer of the script's own kind that calls the model": (
        OWN.replace("'a', 1", "'a', model(x).mean()") + "w = Own('a')\nw.shown(model, x)",
        "it calls the model",
    ),
    "settings of the run": ("run = wandb.init()\nlr = wandb.config.lr", "`wandb.config` is read"),
}


@pytest.mark.parametrize(("before", "after"), MIGRATED.values(), ids=MIGRATED)
def test_migrates(before: str, after: str) -> None:
    script = IMPORTS + TRAINING + before + LOOP
    text, reasons = migrate(rule, script)
    assert (added(script, text), reasons) == (after, [])


@pytest.mark.parametrize(("before", "after"), AFTER_TRAINING.values(), ids=AFTER_TRAINING)
def test_migrates_what_follows_training(before: str, after: str) -> None:
    script = IMPORTS + TRAINING + LOOP + before
    text, reasons = migrate(rule, script)
    assert (added(script, text), reasons) == (after, [])


@pytest.mark.parametrize("script", LEFT_ALONE.values(), ids=LEFT_ALONE)
def test_leaves_alone(script: str) -> None:
    script = IMPORTS + TRAINING + script + LOOP
    assert migrate(rule, script) == (script, [])


@pytest.mark.parametrize(("script", "reason"), REFUSED.values(), ids=REFUSED)
def test_says_what_it_leaves(script: str, reason: str) -> None:
    script = IMPORTS + TRAINING + script + LOOP
    text, [why] = migrate(rule, script)
    assert text == script
    assert reason in why


def test_ranks_agree_whether_a_folder_was_there() -> None:
    before = "if os.path.exists('a'):\n    raise SystemExit('a is there')\nos.makedirs('a')"
    script = IMPORTS + TRAINING + before + LOOP
    text, reasons = migrate(rule, script)
    after = "if broadcast_value(os.path.exists('a')):\nos.makedirs('a', exist_ok=True)"
    assert (added(script, text), reasons) == (after, [])


@pytest.mark.parametrize(
    ("looked_for", "made"),
    [
        ("'runs/' + name", "f'runs/{name}'"),
        ("f'runs/{args.name}'", "os.path.join('runs', args.name)"),
        ("'%s/%s' % (root, name)", "'{}/{}'.format(root, name)"),
        ("Path(root) / name", "os.path.join(root, name, 'checkpoints')"),
    ],
)
def test_a_folder_is_the_same_however_it_is_spelled(looked_for: str, made: str) -> None:
    script = (
        f"if os.path.exists({looked_for}):\n    raise FileExistsError\nos.makedirs({made}, exist_ok=True)\n"
    )
    text, reasons = migrate(rule, IMPORTS + TRAINING + script + LOOP)
    assert f"if broadcast_value(os.path.exists({looked_for})):" in text
    assert reasons == []


def test_what_rank_0_does_alone_needs_no_guard_inside() -> None:
    show = "def show(net):\n    plt.imshow(net(z))\n    plt.savefig('a')\n"
    script = IMPORTS + TRAINING + show + LOOP + "show(model)"
    assert migrate(rule, script) == (script, [])


def test_local_modules_write_once_too() -> None:
    helper = "import numpy as np\n\n\ndef keep(x):\n    np.save('a', x)\n"
    script = "from keeping import keep\n" + TRAINING + LOOP + "keep(1)"
    texts, reasons = migrate_modules(rule, {"__main__": script, "keeping": helper})
    assert reasons == []
    assert added(helper, texts["keeping"]) == "    if is_main_process():\n        np.save('a', x)"
