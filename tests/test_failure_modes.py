"""The ninety-one ways in which one card to many goes wrong: each has a script that would show that `migrate` causes it.

The rows below go through the whole migration. What they cannot show is in `failure_modes.toml`: other tests, mutants
of `verify`'s programs, whole scripts that are run on two ranks, or the reason why no migration can cause it.
"""

import ast
import re
import sys
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Literal

import pytest

from multicard.migrate import Options, migrate

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).parent
MODES = range(1, 92)
HEAD = """
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.features = nn.Linear(4, 8)
        self.classifier = nn.Linear(8, 3)

    def forward(self, x):
        return self.classifier(torch.relu(self.features(x)))


device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
data = TensorDataset(torch.randn(64, 4), torch.randint(3, (64,)))
val_set = TensorDataset(torch.randn(30, 4), torch.randint(3, (30,)))
loader = DataLoader(data, batch_size=8, shuffle=True)
val_loader = DataLoader(val_set, batch_size=8)
"""
MODEL = """
model = Net().to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
criterion = nn.CrossEntropyLoss()
"""
LOOP = """
for epoch in range(3):
    model.train()
    for x, y in loader:
        x, y = x.to(device), y.to(device)
        optimizer.zero_grad()
        loss = criterion(model(x), y)
        loss.backward()
        optimizer.step()
"""
EVALUATE = """
    model.eval()
    correct, total = 0, 0.0
    with torch.no_grad():
        for x, y in val_loader:
            out = model(x.to(device))
            correct += (out.argmax(1) == y.to(device)).sum().item()
            total += criterion(out, y.to(device)).item()
    acc = correct / len(val_loader.dataset)
    print(f"epoch {epoch} accuracy {acc:.3f} loss {total / len(val_loader):.3f}")
"""
SAVE = "    torch.save(model.state_dict(), 'last.pth')\n"
LOSS = "        loss = criterion(model(x), y)\n"
STEP = "        optimizer.step()\n"
FREEZE = (
    "    if epoch == 1:\n        for p in model.features.parameters():\n            p.requires_grad = {0}\n"
)
WRAPPED = "model = DDP(model, device_ids=device_ids(model))"
SEARCHED = "model = DDP(model, device_ids=device_ids(model), find_unused_parameters=True)"
AVERAGED = "        average_gradients(model)"
SAMPLER = "sampler=DistributedSampler(data, shuffle=True)"


def script(*edits: tuple[str, str], after: str = "") -> str:
    """The program with each text replaced once, and with more behind it."""
    text = HEAD + MODEL + LOOP + after
    for old, new in edits:
        assert text.count(old) == 1, (text.count(old), old)
        text = text.replace(old, new)
    return text


@dataclass(frozen=True)
class Row:
    """A script, what its migration must have and lack, and what must be said of it."""

    script: str
    has: tuple[str, ...] = ()
    lacks: tuple[str, ...] = ()
    says: str = ""
    batch: Literal["per-card", "global"] = "per-card"


def before_training(text: str) -> tuple[str, str]:
    return "\nfor epoch", f"\n{text}\nfor epoch"


def in_forward(line: str) -> tuple[str, str]:
    return "        return self.classifier(torch.relu(self.features(x)))", line


def stamped(text: str) -> tuple[str, str]:
    return "\nimport torch\n", f"\nimport {text}\nimport torch\n"


BATCH_NORM = (
    "self.features = nn.Linear(4, 8)",
    "self.features = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8))",
)
PATIENCE = """\
    if acc > best:
        best, wait = acc, 0
    else:
        wait += 1
    if wait > 2:
        break
"""
ROWS = {
    "1 the wrapper is called in training, the model itself in evaluation": Row(
        script(after=EVALUATE), (WRAPPED, "criterion(model(x), y)", "out = model.module(x.to(device))")
    ),
    "2 forward by its name goes through the wrapper": Row(
        script(("model(x)", "model.forward(x)")), (WRAPPED, "model.forward(x)"), ("module",)
    ),
    "3 another method than forward": Row(
        script(
            (
                "    def forward",
                "    def score(self, x, y):\n        return F.cross_entropy(self(x), y)\n\n    def forward",
            ),
            ("criterion(model(x), y)", "model.score(x, y)"),
        ),
        ("broadcast_model(model)", AVERAGED),
        ("DDP",),
    ),
    "4 thawed after it is wrapped": Row(
        script(
            before_training("for p in model.features.parameters():\n    p.requires_grad = False"),
            ("    model.train()\n", FREEZE.format(True) + "    model.train()\n"),
        ),
        (SEARCHED, "\nfor p in model.module.features.parameters():\n    p.requires_grad = False"),
    ),
    "5 frozen after it is wrapped": Row(
        script(("    model.train()\n", FREEZE.format(False) + "    model.train()\n")), (SEARCHED,)
    ),
    "6 its head is replaced first": Row(
        script(before_training("model.classifier = nn.Linear(8, 5)")),
        (f"model.classifier = nn.Linear(8, 5)\n{WRAPPED}",),
    ),
    "6 its head is replaced later": Row(
        script(after="model.classifier = nn.Linear(8, 5)\n" + LOOP),
        ("model.classifier = nn.Linear(8, 5)\nbroadcast_model(model)", AVERAGED),
        ("DDP",),
    ),
    "7 two backward passes on one forward pass": Row(
        script(
            (LOSS, "        out = model(x)\n        loss = criterion(out, y)\n"),
            (
                "        loss.backward()",
                "        out.pow(2).mean().backward(retain_graph=True)\n        loss.backward()",
            ),
        ),
        (AVERAGED,),
        ("DDP",),
    ),
    "9 accumulation leaves every backward pass to the wrapper": Row(
        script(
            ("for x, y in loader", "for i, (x, y) in enumerate(loader)"),
            ("        optimizer.zero_grad()\n", ""),
            (
                STEP,
                "        if (i + 1) % 4 == 0:\n            optimizer.step()\n            optimizer.zero_grad()\n",
            ),
        ),
        (WRAPPED, "        loss.backward()", "        if (i + 1) % 4 == 0:"),
        ("no_sync",),
    ),
    "11 a summed loss": Row(
        script(("CrossEntropyLoss()", "CrossEntropyLoss(reduction='sum')")),
        ("(loss * dist.get_world_size()).backward()",),
    ),
    "12 what is ignored does not count": Row(
        script(("CrossEntropyLoss()", "CrossEntropyLoss(ignore_index=0)")),
        ("mean_by_count(criterion(model(x), y), (y != criterion.ignore_index).sum())",),
    ),
    "12 classes weigh differently": Row(
        script(("CrossEntropyLoss()", "CrossEntropyLoss(weight=torch.rand(3).to(device))")),
        ("mean_by_count(criterion(model(x), y), criterion.weight[y[y != criterion.ignore_index]].sum())",),
    ),
    "12 a mean over what is selected": Row(
        script(("criterion(model(x), y)", "criterion(model(x)[y > 0], y[y > 0])")),
        says="divided by a number that differs",
    ),
    "13 shares of one length, the last batch too": Row(
        script(
            ("torch.randn(64, 4), torch.randint(3, (64,))", "torch.randn(61, 4), torch.randint(3, (61,))")
        ),
        (SAMPLER,),
    ),
    "14 samples compared with each other": Row(
        script(
            (
                LOSS,
                "        z = model(x)\n        loss = criterion(z @ z.T, torch.arange(len(x), device=device))\n",
            )
        ),
        says="compared with each other",
    ),
    "14 the hardest samples of a batch": Row(
        script(
            (LOSS, "        loss = F.cross_entropy(model(x), y, reduction='none').topk(4).values.mean()\n")
        ),
        says="compared with each other",
    ),
    "15 no gather without gradients": Row(script(), lacks=("all_gather(",)),
    "16 a queue in the model": Row(
        script(
            (
                "        self.classifier =",
                "        self.register_buffer('queue', torch.zeros(64, 8))\n        self.classifier =",
            ),
            in_forward(
                "        x = self.features(x)\n        self.queue[:8] = x.detach()\n        return self.classifier(x)"
            ),
        ),
        (WRAPPED,),
        says="its buffer `queue`",
    ),
    "17 weights loaded by every rank": Row(
        script(before_training("model.load_state_dict(torch.load('a.pth'))")),
        ("model.module.load_state_dict(torch.load('a.pth', map_location=device))",),
        ("rank == 0",),
    ),
    "18 a plateau of a validation": Row(
        script(
            before_training("plateau = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer)"),
            after=EVALUATE + "    plateau.step(acc)\n",
        ),
        ("plateau.step(broadcast_value(acc))",),
    ),
    "18 a rate set by hand": Row(
        script(after="    if loss.item() > 1:\n        optimizer.param_groups[0]['lr'] *= 0.5\n"),
        ("    if broadcast_value(loss.item() > 1):",),
    ),
    "20 reentrant checkpoints and a search exclude each other": Row(
        script(
            stamped("torch.utils.checkpoint as again"),
            in_forward("        return self.classifier(again.checkpoint(self.features, x))"),
            ("    model.train()\n", FREEZE.format(False) + "    model.train()\n"),
        ),
        (AVERAGED,),
        ("find_unused",),
    ),
    "21 a part that is never used": Row(
        script(
            ("        self.classifier =", "        self.other = nn.Linear(8, 3)\n        self.classifier =")
        ),
        (SEARCHED,),
    ),
    "22 a part that some batches use": Row(
        script(
            in_forward(
                "        x = self.features(x)\n        return self.classifier(x) if x.mean() > 0 else x"
            )
        ),
        (SEARCHED,),
    ),
    "23 no search without need": Row(script(), (WRAPPED,), ("find_unused",)),
    "24 a teacher stays bare": Row(
        script(
            before_training("teacher = Net().to(device).eval().requires_grad_(False)"),
            (LOSS, "        loss = F.mse_loss(model(x), teacher(x))\n"),
        ),
        (WRAPPED, "teacher(x)"),
        ("DDP(teacher",),
    ),
    "25 two forward passes with statistics": Row(
        script(BATCH_NORM, (LOSS, "        loss = criterion(model(x), y) + criterion(model(-x), y)\n")),
        ("model = DDP(model, device_ids=device_ids(model), **own_buffers())",),
    ),
    "26 a gradient penalty keeps its layers": Row(
        script(
            BATCH_NORM,
            (
                "        loss.backward()",
                (
                    "        (g,) = torch.autograd.grad(model(x.requires_grad_()).sum(), x, create_graph=True)\n"
                    "        (loss + g.pow(2).mean()).backward()"
                ),
            ),
        ),
        (AVERAGED,),
        ("SyncBatchNorm", "DDP"),
    ),
    "27 parameters by name": Row(
        script(
            ("SGD(model.parameters()", "SGD([p for n, p in model.named_parameters() if n.startswith('cl')]")
        ),
        ("for n, p in model.module.named_parameters()",),
    ),
    "28 the model's class and parts": Row(
        script(
            after="    print(isinstance(model, Net), type(model).__name__, model.classifier, hasattr(model, 'head'))\n"
        ),
        (
            "isinstance(model.module, Net), type(model.module).__name__, model.module.classifier, hasattr(model.module",
        ),
    ),
    "29 an average of the weights": Row(
        script(
            stamped("copy"),
            before_training("ema = copy.deepcopy(model)"),
            (
                STEP,
                STEP
                + "        for k, v in model.state_dict().items():\n            ema.state_dict()[k].lerp_(v, 0.1)\n",
            ),
        ),
        ("ema = copy.deepcopy(model.module)", "in model.module.state_dict().items()"),
        ("DDP(ema",),
    ),
    "30 as many classes on each rank": Row(
        script(
            ("nn.Linear(8, 3)", "nn.Linear(8, len(classes))"),
            (
                "\nclass Net",
                "\nimport os\n\nclasses = {c: i for i, c in enumerate(os.listdir('data'))}\n\n\nclass Net",
            ),
        ),
        ("setup_ddp()\nclasses = ",),
        ("broadcast_value",),
    ),
    "31 a batch is skipped by all": Row(
        script(
            (STEP, STEP),
            (
                "        loss.backward()",
                "        if not torch.isfinite(loss):\n            continue\n        loss.backward()",
            ),
        ),
        ("        if any_rank(not torch.isfinite(loss)):",),
    ),
    "31 a step is made by all or by none": Row(
        script(
            (
                "        loss.backward()\n        optimizer.step()\n",
                "        if y.any():\n            loss.backward()\n            optimizer.step()\n",
            )
        ),
        ("        if not any_rank(not y.any()):",),
    ),
    "32 samplers are told the epoch": Row(script(), ("    loader.sampler.set_epoch(epoch)\n",)),
    "33 evaluation pads nothing": Row(script(after=EVALUATE), ("sampler=EvalSampler(val_set, 8)",)),
    "34 evaluation keeps its tail": Row(
        script(("shuffle=True)", "shuffle=True, drop_last=True)"), after=EVALUATE),
        ("val_loader = DataLoader(val_set, batch_size=8, sampler=EvalSampler(val_set, 8))",),
    ),
    "35 counts of all ranks over the whole data set": Row(
        script(after=EVALUATE),
        (
            "        correct, total = all_reduce_sum(correct, total)",
            "acc = correct / len(val_loader.dataset)",
        ),
    ),
    "36 sums over sums": Row(script(after=EVALUATE), ("{total / global_batches(val_loader):.3f}",)),
    "37 a weighted sampler is dealt out": Row(
        script(("shuffle=True)", "sampler=torch.utils.data.WeightedRandomSampler(torch.ones(64), 64))")),
        ("sampler=ShardedSampler(torch.utils.data.WeightedRandomSampler(torch.ones(64), 64))",),
    ),
    "38 whole batches are dealt out": Row(
        script(
            ("batch_size=8, shuffle=True)", "batch_sampler=Buckets(data))"),
            ("\nclass Net", "\nfrom mine import Buckets\n\n\nclass Net"),
        ),
        ("batch_sampler=ShardedBatchSampler(Buckets(data))", "set_epoch(loader, epoch)"),
    ),
    "39 a stream is dealt out once": Row(
        script(
            (
                "loader = DataLoader(data, batch_size=8, shuffle=True)",
                "loader = DataLoader(Stream(), batch_size=8)",
            ),
            (
                "\nclass Net",
                (
                    "\nfrom torch.utils.data import IterableDataset\n\n\nclass Stream(IterableDataset):\n"
                    "    def __iter__(self):\n        yield from data\n\n\nclass Net"
                ),
            ),
        ),
        ("DataLoader(ShardedIterable(Stream()), batch_size=8)",),
    ),
    "40 a split before ranks draw differently": Row(
        script(
            (
                "loader = DataLoader(data",
                "data, held = torch.utils.data.random_split(data, [48, 16])\nloader = DataLoader(data",
            ),
            ("DataLoader(val_set", "DataLoader(held"),
            after=EVALUATE,
        ),
        ("setup_ddp()\ndevice", "random_split(data, [48, 16])", "vary_seed()\nfor epoch"),
        says="all ranks start from one random state",
    ),
    "41 files in one order": Row(
        script(
            stamped("glob"),
            (
                "data = TensorDataset(torch.randn(64, 4)",
                "data = TensorDataset(torch.stack([torch.load(f) for f in glob.glob('*.pt')])",
            ),
        ),
        ("for f in broadcast_value(glob.glob('*.pt'))",),
    ),
    "42 a set in one order": Row(
        script(
            (
                "data = TensorDataset(torch.randn(64, 4), ",
                "codes = {w: i for i, w in enumerate(set('a b c'.split()))}\ndata = TensorDataset(torch.randn(64, 4), ",
            ),
        ),
        ("enumerate(broadcast_value(list(set('a b c'.split())",),
    ),
    "43 as many batches on each rank": Row(
        script(("shuffle=True)", "shuffle=True, drop_last=True)")),
        (f"DataLoader(data, batch_size=8, {SAMPLER}, drop_last=True)",),
    ),
    "44 predictions in order": Row(
        script(
            after=(
                "rows = []\nmodel.eval()\nwith torch.no_grad():\n    for x, _ in val_loader:\n"
                "        rows.extend(model(x.to(device)).argmax(1).tolist())\nprint(rows)\n"
            )
        ),
        ("    rows = gather_in_order(rows)\nprint_log(rows)",),
    ),
    "45 evaluation is not shuffled": Row(
        script(after=EVALUATE), ("EvalSampler(val_set, 8)",), ("EvalSampler(val_set, 8, shuffle",)
    ),
    "46 a schedule over the batches of a rank": Row(
        script(
            before_training(
                "plan = torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.1, total_steps=3 * len(loader))"
            ),
            (STEP, STEP + "        plan.step()\n"),
        ),
        (f"loader = DataLoader(data, batch_size=8, {SAMPLER})", "total_steps=3 * len(loader))"),
        says="stepped for each batch",
    ),
    "47 a schedule is stepped once": Row(
        script(
            before_training("plan = torch.optim.lr_scheduler.StepLR(optimizer, 1)"), after="    plan.step()\n"
        ),
        ("\n    plan.step()\n",),
    ),
    "48 the batch of one card is said to be": Row(
        script(), ("batch_size=8, sampler",), says="stays the batch of one card"
    ),
    "48 the batch of all cards": Row(script(), ("batch_size=per_card(8), sampler",), batch="global"),
    "49 the learning rate is the script's": Row(
        script(), ("lr=0.1)",), says="learning rate (often scaled by N"
    ),
    "50 accumulation keeps its divisor": Row(
        script(
            ("for x, y in loader", "for i, (x, y) in enumerate(loader)"),
            ("loss.backward()", "(loss / 4).backward()"),
            (STEP, "        if (i + 1) % 4 == 0:\n            optimizer.step()\n"),
        ),
        ("(loss / 4).backward()", "(i + 1) % 4"),
        says="N times as many samples",
    ),
    "51 statistics of a smaller batch": Row(
        script(BATCH_NORM), ("per_card(8)",), says="SyncBatchNorm", batch="global"
    ),
    "52 buffers are levelled before evaluation": Row(
        script(BATCH_NORM, after=EVALUATE), ("        sync_buffers(model)\n        for x, y in val_loader",)
    ),
    "54 noise differs between ranks": Row(
        script(before_training("torch.manual_seed(1)")), ("vary_seed()\nfor epoch",)
    ),
    "59 no processes of our own": Row(
        script(
            (
                "batch_size=8, shuffle=True",
                "batch_size=8, shuffle=True, num_workers=2, collate_fn=lambda rows: rows",
            )
        ),
        ("num_workers=2, collate_fn=lambda rows: rows",),
        ("spawn", "multiprocessing"),
    ),
    "60 DataParallel goes": Row(
        script(("model = Net().to(device)", "model = nn.DataParallel(Net()).to(device)")),
        ("model = Net().to(device)\n", WRAPPED),
        ("DataParallel(Net",),
    ),
    "61 rank 0 calls the model itself": Row(
        script(
            after=(
                "def draw():\n    model.eval()\n    with torch.no_grad():\n"
                "        torch.save(model(data[0][0][None]), 'out.pt')\n"
                "    model.train()\n\n\ndraw()\n"
            )
        ),
        ("save_checkpoint(model.module(data[0][0][None]), 'out.pt')", "if rank == 0:\n    draw()"),
    ),
    "62 collectives stand outside of guards": Row(
        script(after=EVALUATE + "    with open('log.txt', 'a') as f:\n        f.write(f'{acc}')\n"),
        ("        correct, total = all_reduce_sum(correct, total)\n    acc",),
    ),
    "63 all come to the collective": Row(
        script(
            after=(
                "    if loss.item() > 9:\n        continue\n    model.eval()\n    hits = 0\n    with torch.no_grad():\n"
                "        for x, y in val_loader:\n            hits += (model(x).argmax(1) == y).sum().item()\n"
                "    print(hits)\n"
            )
        ),
        ("    if broadcast_value(loss.item() > 9):",),
    ),
    "64 ranks stop together": Row(
        script(before_training("best, wait = 0.0, 0"), after=EVALUATE + PATIENCE),
        ("    if broadcast_value(wait > 2):",),
    ),
    "65 a flag travels, not a barrier": Row(
        script(before_training("best, wait = 0.0, 0"), after=EVALUATE + PATIENCE), lacks=("barrier",)
    ),
    "66 a budget of time": Row(
        script(
            stamped("time"),
            before_training("end = time.time() + 60"),
            after="    if time.time() > end:\n        break\n",
        ),
        ("    if broadcast_value(time.time() > end):",),
    ),
    "66 a signal": Row(
        script(
            stamped("signal"),
            before_training(
                "stop = False\n\n\ndef handle(*_):\n    global stop\n    stop = True\n\n\nsignal.signal(15, handle)"
            ),
            after="    if stop:\n        break\n",
        ),
        ("    if broadcast_value(stop):",),
    ),
    "67 an exit at a loss that is not finite": Row(
        script(stamped("sys"), (STEP, STEP + "        if torch.isnan(loss):\n            sys.exit(1)\n")),
        ("        if any_rank(torch.isnan(loss)):",),
    ),
    "70 shares of any length are gathered": Row(
        script(
            after=(
                "preds = []\nmodel.eval()\nwith torch.no_grad():\n    for x, _ in val_loader:\n"
                "        preds.append(model(x).cpu())\n"
                "print(torch.cat(preds).shape)\n"
            )
        ),
        ("preds = gather_in_order(preds)",),
    ),
    "71 counts by key": Row(
        script(
            after=(
                "hits = {}\nmodel.eval()\nwith torch.no_grad():\n    for x, _ in val_loader:\n"
                "        for c in model(x).argmax(1).tolist():\n            hits[c] = hits.get(c, 0) + 1\nprint(hits)\n"
            )
        ),
        ("hits = all_reduce_sum(hits)",),
    ),
    "73 each rank has its own card": Row(
        script(('torch.device("cuda" if torch.cuda.is_available() else "cpu")', 'torch.device("cuda:0")')),
        ('torch.device(f"cuda:{local_rank}")',),
        ("cuda:0",),
    ),
    "74 the card is the local rank": Row(script(), ('f"cuda:{local_rank}"',), ('f"cuda:{rank}"',)),
    "75 cards are chosen outside": Row(
        script(stamped("os\nos.environ['CUDA_VISIBLE_DEVICES'] = '1'")), lacks=("CUDA_VISIBLE_DEVICES",)
    ),
    "77 no argument of a launcher": Row(
        script(stamped("argparse"), before_training("args = argparse.ArgumentParser().parse_args()")),
        ("torchrun --nproc-per-node=2",),
        ("local-rank", "local_rank'"),
    ),
    "78 the rank is known first": Row(
        script(after=SAVE), ("local_rank, rank, world_size = setup_ddp()\ndevice = ",), ("get_rank()",)
    ),
    "79 one writer, whole or not at all": Row(
        script(after=SAVE), ("save_checkpoint(model.module.state_dict(), 'last.pth')",)
    ),
    "80 a folder that is there already": Row(
        script(stamped("os"), before_training("if not os.path.exists('out'):\n    os.makedirs('out')")),
        ("os.makedirs('out', exist_ok=True)",),
    ),
    "81 one process fetches the data": Row(
        script(
            (
                "data = TensorDataset(torch.randn(64, 4), torch.randint(3, (64,)))",
                "from torchvision.datasets import MNIST\ndata = MNIST('d', download=True)",
            )
        ),
        ("with main_process_first():\n    data = MNIST('d', download=True)",),
    ),
    "82 one folder for one run": Row(
        script(
            stamped("os\nimport time"), before_training("run = time.strftime('%H%M%S')\nos.makedirs(run)")
        ),
        ("run = broadcast_value(time.strftime('%H%M%S'))",),
    ),
    "83 read when it is written": Row(
        script(after=SAVE + "model.load_state_dict(torch.load('last.pth'))\n"),
        ("dist.barrier()\nmodel.module.load_state_dict(",),
    ),
    "85 one run of a tracker": Row(
        script(
            (
                "\nimport torch\n",
                "\nimport wandb\nfrom torch.utils.tensorboard import SummaryWriter\nimport torch\n",
            ),
            before_training("wandb.init(project='p')\nwriter = SummaryWriter()"),
        ),
        (
            "if rank == 0:\n    wandb.init(project='p')\nwriter = SummaryWriter() if rank == 0 else NullWriter()",
        ),
    ),
    "86 lines and bars come once": Row(
        script(stamped("tqdm"), ("in loader:", "in tqdm.tqdm(loader):"), after="    print(loss.item())\n"),
        ("tqdm.tqdm(loader, disable=rank != 0)", "print_log(loss.item())"),
    ),
    "87 names without a prefix": Row(
        script(before_training("model = torch.compile(model)"), after=SAVE),
        ("save_checkpoint(unwrap(model).state_dict(), 'last.pth')",),
    ),
    "88 each rank loads onto its own card": Row(
        script(before_training("model.load_state_dict(torch.load('a.pth'))")),
        ("torch.load('a.pth', map_location=device)",),
    ),
    "89 resumed with an epoch and a random state": Row(
        script(
            before_training(
                "c = torch.load('c.pth')\nmodel.load_state_dict(c['model'])\ntorch.set_rng_state(c['rng'])"
            ),
            ("range(3)", "range(c['epoch'] + 1, 3)"),
        ),
        (
            "torch.set_rng_state(c['rng'].cpu())",
            "vary_seed()\nfor epoch",
            "loader.sampler.set_epoch(epoch)",
        ),
    ),
    "90 the best model of all ranks": Row(
        script(
            before_training("best = 0.0"),
            after=EVALUATE + "    if acc > best:\n        best = acc\n    " + SAVE,
        ),
        ("correct, total = all_reduce_sum(correct, total)", "        save_checkpoint("),
    ),
    "91 written by rank 0 of all machines": Row(
        script(after=SAVE + "open('done', 'w').close()\n"), lacks=("local_rank == 0",)
    ),
}


@pytest.mark.parametrize("row", ROWS.values(), ids=ROWS)
def test_a_migration_does_not_cause(row: Row, tmp_path: Path) -> None:
    path = tmp_path / "train.py"
    path.write_text(row.script, encoding="utf-8")
    compile(row.script, "train.py", "exec")
    plan = migrate(path, Options(batch=row.batch))
    text = plan.texts[plan.entry].decode()
    assert [part for part in row.has if part not in text] == [], text
    assert [part for part in row.lacks if part in text] == [], text
    assert row.says in "\n".join(finding.why.en for finding in plan.findings)


# --- every mode is shown ------------------------------------------------------------------------------------------


@cache
def table() -> dict[int, dict[str, Any]]:
    modes = tomllib.loads((ROOT / "failure_modes.toml").read_text("utf-8"))["mode"]
    return {mode["number"]: mode for mode in modes}


@cache
def shown() -> dict[int, list[str]]:
    """What shows each mode, by number: rows, mutants, whole scripts, and the tests that the table names."""
    found: dict[int, list[str]] = {number: list(mode.get("tests", ())) for number, mode in table().items()}
    for name in ROWS:
        found[int(name.partition(" ")[0])].append(f"tests/test_failure_modes.py::{name}")
    manifest = (ROOT / "verify" / "programs" / "mutants.toml").read_text("utf-8")
    for mutant in tomllib.loads(manifest)["mutant"]:
        for number in mutant["modes"]:
            found[number].append(f"mutant {mutant['name']}")
    for path in sorted((ROOT / "scripts").glob("*/script.toml")):
        for number in tomllib.loads(path.read_text("utf-8")).get("shows", ()):
            found[number].append(f"script {path.parent.name}")
    return found


def test_the_table_has_every_mode_once_and_in_order() -> None:
    modes = tomllib.loads((ROOT / "failure_modes.toml").read_text("utf-8"))["mode"]
    assert [mode["number"] for mode in modes] == list(MODES)
    assert len({mode["title"] for mode in modes}) == len(MODES)


@pytest.mark.parametrize("number", MODES)
def test_a_mode_is_shown_by_a_test_or_cannot_be_caused(number: int) -> None:
    tests = [name for name in shown()[number] if name.startswith("tests/")]
    assert bool(tests) != bool(table()[number].get("none")), shown()[number]


@pytest.mark.parametrize("number", [number for number in MODES if table()[number].get("tests")])
def test_the_tests_that_the_table_names_are_there(number: int) -> None:
    for name in table()[number]["tests"]:
        path, function, case = re.fullmatch(r"tests/(\S+\.py)::(\w+)(?:\[(.+)\])?", name).groups()  # type: ignore[union-attr]  # or it fails
        tree = ast.parse((ROOT / path).read_text("utf-8"))
        names = {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}
        words = {node.value for node in ast.walk(tree) if isinstance(node, ast.Constant)}
        if case is not None and path.startswith("distributed/"):
            words |= {name.removeprefix("case_") for name in _functions("distributed/cases.py")}
        assert function in names, name
        assert case is None or case in words, name


def _functions(path: str) -> set[str]:
    tree = ast.parse((ROOT / path).read_text("utf-8"))
    return {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}
