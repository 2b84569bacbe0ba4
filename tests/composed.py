"""Composes training programs as people write them: the choices are those of real scripts, the combinations are chance.

A program is text made of parts: where its options come from, its data, its model, its loss, what it does to gradients
and learning rates, what it counts, when it stops, what it keeps, how it is laid out.  Each runs on one CPU in seconds.
"""

import random
import re
import textwrap
from collections.abc import Callable
from dataclasses import dataclass


@dataclass
class Program:
    """What was chosen."""

    chosen: dict[str, str]

    def __getitem__(self, name: str) -> str:
        return self.chosen[name]


CHOICES: dict[str, tuple[str, ...]] = {
    "style": ("module", "functions", "main", "class", "phases"),
    "shows": ("print", "print", "logging"),
    "kept": ("", "", "", "ema"),
    "seed": ("plain", "function"),
    "device": (
        "device = torch.device('cuda' if torch.cuda.is_available() else 'cpu')\n",
        "device = 'cuda:0' if torch.cuda.is_available() else 'cpu'\n",
        "use_cuda = torch.cuda.is_available()\ndevice = torch.device('cuda:0' if use_cuda else 'cpu')\n",
    ),
    "data": ("tensors", "class", "split", "subset"),
    "drop": ("", ", drop_last=True"),
    "loader": ("keywords", "positional", "kwargs", "function", "sampler"),
    "norm": ("", "", "nn.BatchNorm1d(16), "),
    "dropout": ("", "", ", nn.Dropout(0.2)"),
    "moved": ("once", "line", "cuda"),
    "loss": (
        "criterion = nn.CrossEntropyLoss()",
        "criterion = nn.CrossEntropyLoss()",
        "criterion = nn.CrossEntropyLoss(label_smoothing=0.1)",
        "criterion = nn.CrossEntropyLoss(reduction='sum')",
        "criterion = nn.CrossEntropyLoss(ignore_index=2)",
        "criterion = nn.CrossEntropyLoss(weight=torch.tensor([1.0, 2.0, 0.5]).to(device))",
        "criterion = F.cross_entropy",
    ),
    "optimizer": ("SGD({0}, lr={1}, momentum=0.9)", "Adam({0}, lr={1} / 10)", "AdamW({0}, {1} / 10)"),
    "schedule": ("", "step", "cosine", "cycle", "plateau", "hand"),
    "folder": ("", "exist", "look"),
    "accumulate": ("", "", "2"),
    "clip": ("", "norm", "value"),
    "told": ("", "every"),
    "epochs": ("for epoch in range({0}{1}):", "for epoch in range({0}{1}):", "while"),
    "guard": ("", "guard"),
    "options": ("constants", "argparse", "dict", "class"),
    "bar": ("", "", "tqdm"),
    "log file": ("", "", "text", "csv"),
    "timed": ("", "time"),
    "net": ("class", "class", "sequential"),
    "parallel": ("", "", "", "DataParallel"),
    "changed": ("", "", "head", "frozen", "initialised"),
    "amp": ("", "", "amp"),
    "stop": ("", "", "patience", "flag", "object", "good"),
    "rest": ("", " or i + 1 == len(train_loader)"),
    "grad": ("with", "with", "inference", "set"),
    "best": ("", "file", "memory", "each epoch", "whole"),
    "return": ("x", "tuple"),
    "groups": ("", "", "names"),
    "train metric": ("batches", "samples", "meter", "list", "window"),
    "eval metric": ("correct", "loss", "batches", "matrix", "lists", "meter"),
    "resume": ("", "resume"),
    "reload": ("", "reload"),
    "judged": ("model", "ema"),
    "history": ("", "", "json", "rows"),
    "snapshots": ("", "", "each", "kept"),
    "noise": ("", "", "input"),
    "penalty": ("", "", "l2", "l1"),
    "train score": ("", "scored"),
    "report": ("", "size", "rate"),
    "means": ("python", "numpy"),
    "limit": ("", "", "steps"),
}


def compose(seed: int) -> str:
    """A program, the same for the same seed."""
    chance = random.Random(seed)
    program = Program({name: chance.choice(options) for name, options in CHOICES.items()})
    _settle(program.chosen)
    return LAYOUTS[program["style"]](program)


def _settle(chosen: dict[str, str]) -> None:
    """Leave out what does not go with what was chosen before."""
    if chosen["net"] == "sequential" or chosen["style"] == "phases":
        chosen["return"] = "x"
    if chosen["net"] == "sequential":
        chosen["changed"] = ""
    if chosen["changed"] in {"head", "frozen"} or chosen["return"] == "tuple":
        chosen["parallel"] = ""
    if chosen["changed"] == "frozen":
        chosen["groups"] = ""
    if chosen["style"] == "phases":
        chosen["accumulate"] = chosen["amp"] = chosen["told"] = chosen["kept"] = ""
    if chosen["limit"] and (chosen["schedule"] == "cycle" or chosen["train metric"] == "batches"):
        chosen["limit"] = ""
    if chosen["best"] != "whole":
        chosen["resume"] = ""
    if chosen["resume"] or chosen["stop"] == "patience":
        chosen["epochs"] = "for epoch in range({0}{1}):"


def _indent(text: str, by: int = 1) -> str:
    return textwrap.indent(text, "    " * by)


# --- parts --------------------------------------------------------------------------------------------------------


def _imports(p: Program) -> str:
    lines = ["import os", "import torch", "import torch.nn as nn", "import torch.nn.functional as F"]
    lines += ["from torch.utils.data import DataLoader, Dataset, TensorDataset, random_split, Subset"]
    if p["options"] == "argparse":
        lines.insert(0, "import argparse")
    if _shows(p) == "logging":
        lines += [
            "import logging",
            "logging.basicConfig(level=logging.INFO, format='%(message)s')",
            "logger = logging.getLogger(__name__)",
        ]
    if p["bar"] == "tqdm":
        lines += ["from tqdm import tqdm"]
    if _kept(p) == "ema" or p["best"] == "memory":
        lines += ["import copy"]
    if p["log file"] == "csv":
        lines += ["import csv"]
    if p["timed"] == "time":
        lines += ["import time"]
    if p["history"] == "json":
        lines += ["import json"]
    if p["means"] == "numpy":
        lines += ["import numpy as np"]
    return "\n".join(lines) + "\n"


def _shows(p: Program) -> str:
    return p["shows"]


def _show(p: Program, what: str) -> str:
    return f"logger.info({what})" if _shows(p) == "logging" else f"print({what})"


def _kept(p: Program) -> str:
    return p["kept"]


_OPTIONS = {"epochs": "3", "batch_size": "8", "lr": "0.05", "patience": "2"}


def _options(p: Program) -> str:
    match p["options"]:
        case "argparse":
            lines = ["parser = argparse.ArgumentParser()"]
            lines += [
                f"parser.add_argument('--{name.replace('_', '-')}', type={'float' if '.' in value else 'int'}, default={value})"
                for name, value in _OPTIONS.items()
            ]
            return "\n".join([*lines, "args = parser.parse_args()"]) + "\n"
        case "dict":
            return f"config = {{{', '.join(f'{name!r}: {value}' for name, value in _OPTIONS.items())}}}\n"
        case "class":
            return (
                "class Config:\n"
                + "".join(f"    {name} = {value}\n" for name, value in _OPTIONS.items())
                + "\n\ncfg = Config()\n"
            )
        case _:
            return "".join(f"{name.upper()} = {value}\n" for name, value in _OPTIONS.items())


def _option(p: Program, name: str) -> str:
    form = {"argparse": f"args.{name}", "dict": f"config['{name}']", "class": f"cfg.{name}"}
    return form.get(p["options"], name.upper())


def _seeded(p: Program) -> str:
    match p["seed"]:
        case "function":
            return "def set_seed(seed):\n    torch.manual_seed(seed)\n    if torch.cuda.is_available():\n        torch.cuda.manual_seed_all(seed)\n\n\nset_seed(1)\n"
        case _:
            return "torch.manual_seed(1)\n"


def _device(p: Program) -> str:
    return p["device"]


_TENSORS = "x = torch.randn({n}, 6, generator=torch.Generator().manual_seed({seed}))\ny = (x[:, :3] + x[:, 3:]).argmax(1)\n"


def _data_sets(p: Program) -> str:
    match p["data"]:
        case "tensors":
            return (
                _TENSORS.format(n=104, seed=2)
                + "train_set = TensorDataset(x, y)\n"
                + _TENSORS.format(n=45, seed=3)
                + "val_set = TensorDataset(x, y)\n"
            )
        case "class":
            return (
                "class Numbers(Dataset):\n    def __init__(self, n, seed):\n"
                + _indent(_TENSORS.format(n="n", seed="seed"), 2)
                + "        self.x, self.y = x, y\n\n    def __len__(self):\n        return len(self.x)\n\n"
                "    def __getitem__(self, i):\n        return self.x[i], self.y[i]\n\n\n"
                "train_set, val_set = Numbers(104, 2), Numbers(45, 3)\n"
            )
        case "split":
            return (
                _TENSORS.format(n=149, seed=2)
                + "train_set, val_set = random_split(TensorDataset(x, y), [104, 45])\n"
            )
        case _:
            return (
                _TENSORS.format(n=149, seed=2)
                + "order = torch.randperm(149).tolist()\nfull = TensorDataset(x, y)\n"
                "train_set, val_set = Subset(full, order[:104]), Subset(full, order[104:])\n"
            )


def _loaders(p: Program) -> str:
    size = _option(p, "batch_size")
    drop = p["drop"]
    match p["loader"]:
        case "keywords":
            return (
                f"train_loader = DataLoader(dataset=train_set, batch_size={size}, shuffle=True, num_workers=0{drop})\n"
                f"val_loader = DataLoader(dataset=val_set, batch_size={size}, shuffle=False)\n"
            )
        case "positional":
            return f"train_loader = DataLoader(train_set, {size}, True{drop})\nval_loader = DataLoader(val_set, {size})\n"
        case "kwargs":
            return (
                f"kwargs = {{'batch_size': {size}, 'pin_memory': False}}\n"
                f"train_loader = DataLoader(train_set, shuffle=True{drop}, **kwargs)\n"
                "val_loader = DataLoader(val_set, **kwargs)\n"
            )
        case "function":
            return (
                f"def make_loader(data, train):\n    return DataLoader(data, batch_size={size}, shuffle=train, drop_last=train)\n\n\n"
                "train_loader = make_loader(train_set, True)\nval_loader = make_loader(val_set, False)\n"
            )
        case _:
            return (
                "weights = torch.ones(len(train_set))\n"
                "sampler = torch.utils.data.WeightedRandomSampler(weights, len(train_set))\n"
                f"train_loader = DataLoader(train_set, batch_size={size}, sampler=sampler{drop})\n"
                f"val_loader = DataLoader(val_set, batch_size={size})\n"
            )


def _network(p: Program) -> str:
    norm = p["norm"]
    drop = p["dropout"]
    body = f"nn.Sequential(nn.Linear(6, 16), {norm}nn.ReLU(){drop})"
    if p["net"] == "sequential":
        return f"def build():\n    return nn.Sequential({body}, nn.Linear(16, 3))\n\n\n"
    inside = p["return"] == "tuple"
    return (
        f"class Net(nn.Module):\n    def __init__(self, classes=3):\n        super().__init__()\n        self.body = {body}\n"
        "        self.head = nn.Linear(16, classes)\n\n    def forward(self, x):\n        h = self.body(x)\n"
        f"        return {'h, self.head(h)' if inside else 'self.head(h)'}\n\n\n"
    )


def _model(p: Program) -> str:
    make = "build()" if p["net"] == "sequential" else "Net()"
    match p["moved"]:
        case "once":
            text = f"model = {make}.to(device)\n"
        case "line":
            text = f"model = {make}\nmodel = model.to(device)\n"
        case _:
            text = f"model = {make}\nif torch.cuda.is_available():\n    model.cuda()\n"
    if p["parallel"] and p["return"] == "x":
        text += "if torch.cuda.device_count() > 1:\n    model = nn.DataParallel(model)\n"
    if p["net"] == "class":
        match p["changed"]:
            case "head":
                text += "model.head = nn.Linear(16, 3).to(device)\n"
            case "frozen":
                text += "for param in model.body[0].parameters():\n    param.requires_grad = False\n"
            case "initialised":
                text += "for m in model.modules():\n    if isinstance(m, nn.Linear):\n        nn.init.xavier_uniform_(m.weight)\n"
    return text


def _loss(p: Program) -> str:
    return p["loss"]


def _optimizer(p: Program) -> str:
    lr = _option(p, "lr")
    parameters = "model.parameters()"
    if p["changed"] == "frozen":
        parameters = "filter(lambda w: w.requires_grad, model.parameters())"
    elif p["groups"] == "names":
        parameters = (
            "[{'params': [w for n, w in model.named_parameters() if 'bias' not in n], 'weight_decay': 1e-3},"
            " {'params': [w for n, w in model.named_parameters() if 'bias' in n], 'weight_decay': 0.0}]"
        )
    kind = p["optimizer"]
    return f"optimizer = torch.optim.{kind.format(parameters, lr)}\n"


def _scheduler(p: Program) -> str:
    match p["schedule"]:
        case "step":
            return "scheduler = torch.optim.lr_scheduler.StepLR(optimizer, step_size=1, gamma=0.7)\n"
        case "cosine":
            return f"scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max={_option(p, 'epochs')})\n"
        case "cycle":
            return (
                "scheduler = torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.05, epochs="
                f"{_option(p, 'epochs')}, steps_per_epoch=len(train_loader))\n"
            )
        case "plateau":
            return "scheduler = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, 'max', patience=0)\n"
        case _:
            return ""


def _extras(p: Program) -> str:
    text = ""
    if _amp(p):
        text += "scaler = torch.amp.GradScaler('cuda', enabled=torch.cuda.is_available())\n"
    if _kept(p) == "ema":
        text += "ema = copy.deepcopy(model)\nfor w in ema.parameters():\n    w.requires_grad_(False)\n"
    if p["folder"]:
        text += (
            "os.makedirs('out', exist_ok=True)\n"
            if p["folder"] == "exist"
            else "if not os.path.isdir('out'):\n    os.mkdir('out')\n"
        )
    return text


def _amp(p: Program) -> bool:
    return p["amp"] == "amp"


METER = """class AverageMeter:
    def __init__(self):
        self.sum, self.count, self.avg = 0.0, 0, 0.0

    def update(self, value, n=1):
        self.sum += value * n
        self.count += n
        self.avg = self.sum / self.count


"""
STOPPER = """class EarlyStopping:
    def __init__(self, patience):
        self.patience, self.best, self.wait, self.stop = patience, None, 0, False

    def __call__(self, value):
        if self.best is None or value > self.best:
            self.best, self.wait = value, 0
        else:
            self.wait += 1
            if self.wait >= self.patience:
                self.stop = True


"""


def _classes(p: Program) -> str:
    text = METER if p["train metric"] == "meter" else ""
    if p["eval metric"] == "meter" and not text:
        text = METER
    if p["stop"] == "object":
        text += STOPPER
    return text


def _names(p: Program, text: str) -> str:
    """The text with what a trainer holds as its attributes."""
    if p["style"] != "class":
        return text
    for name in (
        "model",
        "optimizer",
        "scheduler",
        "scaler",
        "criterion",
        "train_loader",
        "val_loader",
        "device",
        "ema",
    ):
        text = re.sub(rf"(?<![\w.'\"]){name}(?!\w|=[^=])", f"self.{name}", text)
    return text


def _output(p: Program, batch: str) -> str:
    return f"{batch}[1]" if p["return"] == "tuple" else batch


def _batches(p: Program, loader: str, *, numbered: bool) -> str:
    over = f"tqdm({loader}, desc='epoch')" if p["bar"] == "tqdm" else loader
    return f"for i, (x, y) in enumerate({over}):" if numbered else f"for x, y in {over}:"


def _train_epoch(p: Program) -> str:
    """One epoch of training, which leaves `train_loss`."""
    gather = p["accumulate"]
    clip = p["clip"]
    every = p["told"]
    metric = p["train metric"]
    begin = {
        "batches": "running = 0.0",
        "samples": "running, seen, hits = 0.0, 0, 0",
        "meter": "meter = AverageMeter()",
        "list": "losses = []",
        "window": "running = 0.0",
    }[metric]
    numbered = bool(gather or every or metric == "window")
    body = ["x, y = x.to(device), y.to(device)"]
    if not gather:
        body += ["optimizer.zero_grad()"]
    forward = [f"output = {_output(p, 'model(x)')}", "loss = criterion(output, y)"]
    if p["noise"]:
        forward.insert(0, "x = x + 0.05 * torch.randn_like(x)")
    if p["penalty"] == "l2":
        forward += ["loss = loss + 1e-3 * sum(w.pow(2).sum() for w in model.parameters())"]
    elif p["penalty"] == "l1":
        forward += [
            "penalty = 0",
            "for w in model.parameters():",
            "    penalty = penalty + w.abs().sum()",
            "loss += 1e-4 * penalty",
        ]
    if _amp(p):
        forward = [
            "with torch.autocast('cuda', enabled=torch.cuda.is_available()):",
            *(f"    {line}" for line in forward),
        ]
    body += forward
    scaled = "loss / 2" if gather else "loss"
    loss = f"({scaled})" if gather else scaled
    body += [f"scaler.scale({scaled}).backward()" if _amp(p) else f"{loss}.backward()"]
    step = []
    if clip and _amp(p):
        step += ["scaler.unscale_(optimizer)"]
    if clip:
        step += [
            "torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)"
            if clip == "norm"
            else "torch.nn.utils.clip_grad_value_(model.parameters(), 0.5)"
        ]
    step += ["scaler.step(optimizer)", "scaler.update()"] if _amp(p) else ["optimizer.step()"]
    if gather:
        step += ["optimizer.zero_grad()"]
    if p["schedule"] == "cycle" and not gather:
        step += ["scheduler.step()"]
    if _kept(p) == "ema":
        step += [
            "with torch.no_grad():",
            "    for a, b in zip(ema.parameters(), model.parameters()):",
            "        a.mul_(0.9).add_(b, alpha=0.1)",
        ]
    if gather:
        last = p["rest"]
        body += [f"if (i + 1) % 2 == 0{last}:", *(f"    {line}" for line in step)]
    else:
        body += step
    body += {
        "batches": ["running += loss.item()"],
        "samples": [
            "running += loss.item() * x.size(0)",
            "seen += x.size(0)",
            "hits += (output.argmax(1) == y).sum().item()",
        ],
        "meter": ["meter.update(loss.item(), x.size(0))"],
        "list": ["losses.append(loss.item())"],
        "window": [
            "running += loss.item()",
            "if i % 4 == 3:",
            "    " + _show(p, "f'batch {i} loss {running / 4:.3f}'"),
            "    running = 0.0",
        ],
    }[metric]
    if every:
        body += [
            "if i % 5 == 0:",
            f"    {_show(p, repr('batch') + ', i' if _shows(p) == 'print' else repr('a batch'))}",
        ]
    end = {
        "batches": "train_loss = running / len(train_loader)",
        "samples": "train_loss = running / seen",
        "meter": "train_loss = meter.avg",
        "list": f"train_loss = {'np.mean(losses)' if p['means'] == 'numpy' else 'sum(losses) / len(losses)'}",
        "window": "train_loss = 0.0",
    }[metric]
    if "sum" in p["loss"]:
        body = [line.replace("loss.item()", "loss.item() / len(x)") for line in body]
    if p["limit"]:
        body += ["if i >= 5:", "    break"]
        numbered = True
    loop = _batches(p, "train_loader", numbered=numbered)
    first = "optimizer.zero_grad()\n" if gather else ""
    return f"model.train()\n{begin}\n{first}{loop}\n{_indent(chr(10).join(body))}\n{end}\n"


def _evaluate(p: Program) -> str:
    """An evaluation, which leaves `score`."""
    metric = p["eval metric"]
    net = "ema" if _kept(p) == "ema" and p["judged"] == "ema" else "model"
    begin, each, end = {
        "correct": (
            "correct, total = 0, 0",
            ["correct += (output.argmax(1) == y).sum().item()", "total += y.size(0)"],
            "score = correct / total",
        ),
        "loss": (
            "total_loss, correct = 0.0, 0",
            [
                "total_loss += F.cross_entropy(output, y, reduction='sum').item()",
                "correct += output.argmax(1).eq(y).sum().item()",
            ],
            "score = -total_loss / len(val_loader.dataset)",
        ),
        "batches": (
            "total_loss = 0.0",
            ["total_loss += F.cross_entropy(output, y).item()"],
            "score = -total_loss / len(val_loader)",
        ),
        "matrix": (
            "matrix = torch.zeros(3, 3)",
            ["for t, q in zip(y.cpu(), output.argmax(1).cpu()):", "    matrix[t, q] += 1"],
            "score = (matrix.diag().sum() / matrix.sum()).item()",
        ),
        "lists": (
            "preds, labels = [], []",
            ["preds.append(output.argmax(1).cpu())", "labels += y.tolist()"],
            "score = (torch.cat(preds).numpy() == np.array(labels)).mean()"
            if p["means"] == "numpy"
            else "score = (torch.cat(preds) == torch.tensor(labels)).float().mean().item()",
        ),
        "meter": (
            "meter = AverageMeter()",
            ["meter.update((output.argmax(1) == y).float().mean().item(), x.size(0))"],
            "score = meter.avg",
        ),
    }[metric]
    body = ["x, y = x.to(device), y.to(device)", f"output = {_output(p, net + '(x)')}", *each]
    loop = f"{_batches(p, 'val_loader', numbered=False)}\n{_indent(chr(10).join(body))}\n"
    if p["grad"] == "set":
        return f"{net}.eval()\n{begin}\ntorch.set_grad_enabled(False)\n{loop}torch.set_grad_enabled(True)\n{end}\n"
    mode = "torch.inference_mode()" if p["grad"] == "inference" else "torch.no_grad()"
    return f"{net}.eval()\n{begin}\nwith {mode}:\n{_indent(loop)}{end}\n"


def _after_epoch(p: Program) -> str:
    """What follows an epoch's training and evaluation: schedules, lines, files, the best model, an end."""
    lines = []
    match p["schedule"]:
        case "step" | "cosine":
            lines += ["scheduler.step()"]
        case "plateau":
            lines += ["scheduler.step(score)"]
        case "hand":
            lines += ["for group in optimizer.param_groups:", "    group['lr'] *= 0.9"]
        case "cycle" if p["accumulate"]:
            lines += ["scheduler.step()"]
        case _:
            pass
    lines += [_show(p, "f'epoch {epoch} train {train_loss:.4f} score {score:.4f}'")]
    match p["log file"]:
        case "text":
            lines += ["with open('log.txt', 'a') as f:", "    f.write(f'{epoch} {score:.4f}\\n')"]
        case "csv":
            lines += [
                "with open('log.csv', 'a', newline='') as f:",
                "    csv.writer(f).writerow([epoch, f'{score:.4f}'])",
            ]
        case _:
            pass
    if p["report"] == "rate":
        lines += [_show(p, "f\"lr {optimizer.param_groups[0]['lr']:.5f}\"")]
    match p["history"]:
        case "json":
            lines += ["history['train'].append(train_loss)", "history['score'].append(float(score))"]
            lines += ["json.dump(history, open('history.json', 'w'))"]
        case "rows":
            lines += ["rows.append((epoch, train_loss, score))"]
        case _:
            pass
    if p["snapshots"]:
        lines += ["torch.save(model.state_dict(), f'epoch_{epoch}.pth')"]
    if p["snapshots"] == "kept":
        lines += ["old = f'epoch_{epoch - 2}.pth'", "if os.path.exists(old):", "    os.remove(old)"]
    path = "'out/best.pth'" if p["folder"] else "'best.pth'"
    keep = {
        "file": [f"torch.save(model.state_dict(), {path})"],
        "memory": ["best_state = copy.deepcopy(model.state_dict())"],
        "whole": [
            f"torch.save({{'epoch': epoch, 'model': model.state_dict(), 'optimizer': optimizer.state_dict(), 'best': best}}, {path})"
        ],
    }.get(p["best"], [])
    if p["best"] == "each epoch":
        lines += [f"torch.save(model.state_dict(), {path})"]
    stop = p["stop"]
    patience = _option(p, "patience")
    lines += ["if score > best:", "    best = score", *(f"    {line}" for line in keep)]
    if stop in {"patience", "flag"}:
        lines += ["    wait = 0", "else:", "    wait += 1"]
        lines += (
            [f"    if wait >= {patience}:", "        break"]
            if stop == "patience"
            else [f"stop = wait >= {patience}", "if stop:", "    break"]
        )
    elif stop == "object":
        lines += ["stopper(score)", "if stopper.stop:", "    break"]
    elif stop == "good":
        lines += ["if score > 0.99:", f"    {_show(p, repr('good enough'))}", "    break"]
    return "\n".join(lines) + "\n"


def _before(p: Program) -> str:
    text = "best = -1e9\n"
    match p["stop"]:
        case "patience" | "flag":
            text += "wait = 0\n"
        case "object":
            text += f"stopper = EarlyStopping({_option(p, 'patience')})\n"
        case _:
            pass
    if p["timed"]:
        text += "begun = time.time()\n"
    text += {"json": "history = {'train': [], 'score': []}\n", "rows": "rows = []\n"}.get(p["history"], "")
    if p["report"] == "size":
        text += _show(p, "f'{sum(w.numel() for w in model.parameters() if w.requires_grad)} weights'") + "\n"
    text += _resume(p)
    return text


def _resume(p: Program) -> str:
    if p["best"] != "whole" or p["resume"] != "resume":
        return ""
    path = "'out/best.pth'" if p["folder"] else "'best.pth'"
    return (
        f"start = 0\nif os.path.exists({path}):\n    state = torch.load({path})\n    model.load_state_dict(state['model'])\n"
        "    optimizer.load_state_dict(state['optimizer'])\n    start, best = state['epoch'] + 1, state['best']\n"
    )


def _finish(p: Program) -> str:
    path = "'out/best.pth'" if p["folder"] else "'best.pth'"
    text = ""
    match p["best"]:
        case "file" | "each epoch":
            if p["reload"]:
                text += f"model.load_state_dict(torch.load({path}))\n"
        case "memory":
            text += f"model.load_state_dict(best_state)\ntorch.save(model.state_dict(), {path})\n"
        case _:
            pass
    if p["history"] == "rows":
        text += "with open('rows.txt', 'w') as f:\n    for row in rows:\n        f.write('%d %.4f %.4f\\n' % row)\n"
    if p["timed"]:
        text += _show(p, "f'took {time.time() - begun:.1f}s'") + "\n"
    return text + _show(p, "f'best {best:.4f}'") + "\n"


def _epochs(p: Program) -> str:
    first = "start, " if p["resume"] and p["best"] == "whole" else ""
    form = p["epochs"]
    if form == "while" and not first and p["stop"] != "patience":
        return f"epoch = -1\nwhile epoch + 1 < {_option(p, 'epochs')}:\n    epoch += 1\n"
    return f"for epoch in range({first}{_option(p, 'epochs')}):\n"


def _setup(p: Program) -> tuple[str, str]:
    """What stands before everything, and what makes data, model and optimizer."""
    top = _imports(p)
    options = _options(p)
    classes = _classes(p) + _network(p)
    made = (
        _device(p)
        + _data_sets(p)
        + _loaders(p)
        + _model(p)
        + f"{_loss(p)}\n"
        + _optimizer(p)
        + _scheduler(p)
        + _extras(p)
    )
    return f"{top}\n{options}\n\n{classes}{_seeded(p)}", made


# --- layouts ------------------------------------------------------------------------------------------------------


def _as_module(p: Program) -> str:
    top, made = _setup(p)
    train, evaluate = _train_epoch(p), _evaluate(p)
    before = _before(p)
    return f"{top}{made}{before}{_epochs(p)}{_indent(train + evaluate + _after_epoch(p))}{_finish(p)}"


def _as_functions(p: Program) -> str:
    top, made = _setup(p)
    held = ", ".join(name for name in ("scheduler", "scaler", "ema") if f"\n{name} = " in "\n" + made)
    extra = f", {held}" if held else ""
    train = f"def train_epoch(model, train_loader, criterion, optimizer, device{extra}):\n{_indent(_train_epoch(p))}    return train_loss\n\n\n"
    evaluation = _evaluate(p)
    decorated = p["grad"] == "with"
    if decorated:
        evaluation = evaluation.replace("with torch.no_grad():\n", "if True:\n")
    evaluate = f"{'@torch.no_grad()' + chr(10) if decorated else ''}def evaluate(model, val_loader, device{extra}):\n{_indent(evaluation)}    return score\n\n\n"
    calls = (
        f"train_loss = train_epoch(model, train_loader, criterion, optimizer, device{extra})\n"
        f"score = evaluate(model, val_loader, device{extra})\n"
    )
    before = _before(p)
    last = ""
    if p["train score"] and p["loader"] != "sampler":
        last = (
            _show(p, f"f'on the training data {{evaluate(model, train_loader, device{extra}):.4f}}'") + "\n"
        )
    run = f"{made}{before}{_epochs(p)}{_indent(calls + _after_epoch(p))}{_finish(p)}{last}"
    return f"{top}\n\n{train}{evaluate}{run}"


def _as_main(p: Program) -> str:
    top, made = _setup(p)
    train, evaluate = _train_epoch(p), _evaluate(p)
    before = _before(p)
    body = f"{made}{before}{_epochs(p)}{_indent(train + evaluate + _after_epoch(p))}{_finish(p)}"
    return f"{top}\n\ndef main():\n{_indent(body)}\n\nif __name__ == '__main__':\n    main()\n"


def _as_class(p: Program) -> str:
    top, made = _setup(p)
    train, evaluate = _names(p, _train_epoch(p)), _names(p, _evaluate(p))
    before = _names(p, _before(p))
    epochs = _epochs(p)
    after = _names(p, _after_epoch(p))
    finish = _names(p, _finish(p))
    given = [name for name in ("scheduler", "scaler", "ema") if f"\n{name} = " in "\n" + made]
    parameters = ["model", "optimizer", "criterion", "train_loader", "val_loader", "device", *given]
    fit = f"train_loss = self.train_epoch(epoch)\nscore = self.evaluate()\n{after}"
    cls = (
        f"class Trainer:\n    def __init__(self, {', '.join(parameters)}):\n"
        + "".join(f"        self.{name} = {name}\n" for name in parameters)
        + f"\n    def train_epoch(self, epoch):\n{_indent(train, 2)}        return train_loss\n"
        + f"\n    def evaluate(self):\n{_indent(evaluate, 2)}        return score\n"
        + f"\n    def fit(self):\n{_indent(before + epochs + _indent(fit) + finish, 2)}\n\n"
    )
    guard = p["guard"]
    start = f"{made}Trainer({', '.join(parameters)}).fit()\n"
    if guard:
        start = f"if __name__ == '__main__':\n{_indent(start)}"
    return f"{top}\n\n{cls}{start}"


def _as_phases(p: Program) -> str:
    top, made = _setup(p)
    norm_step = ["loss.backward()", "optimizer.step()"]
    clip = p["clip"]
    if clip:
        norm_step.insert(1, "torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)")
    if p["schedule"] == "cycle":
        norm_step += ["scheduler.step()"]
    body = (
        "for phase in ['train', 'val']:\n"
        "    if phase == 'train':\n        model.train()\n    else:\n        model.eval()\n"
        "    running_loss, running_corrects = 0.0, 0\n"
        "    for x, y in loaders[phase]:\n        x, y = x.to(device), y.to(device)\n        optimizer.zero_grad()\n"
        "        with torch.set_grad_enabled(phase == 'train'):\n            output = model(x)\n            loss = criterion(output, y)\n"
        "            if phase == 'train':\n" + _indent("\n".join(norm_step), 4) + "\n"
        f"        running_loss += loss.item(){'' if 'sum' in p['loss'] else ' * x.size(0)'}\n        running_corrects += (output.argmax(1) == y).sum().item()\n"
        "    epoch_loss = running_loss / sizes[phase]\n    epoch_acc = running_corrects / sizes[phase]\n"
        "    if phase == 'train':\n        train_loss = epoch_loss\n    else:\n        score = epoch_acc\n"
    )
    before = _before(p)
    head = "loaders = {'train': train_loader, 'val': val_loader}\nsizes = {'train': len(train_set), 'val': len(val_set)}\n"
    run = f"{head}{before}{_epochs(p)}{_indent(body + _after_epoch(p))}{_finish(p)}"
    if p["guard"]:
        return f"{top}{made}\n\ndef train_model():\n{_indent(run)}\n\ntrain_model()\n"
    return f"{top}{made}{run}"


LAYOUTS: dict[str, Callable[[Program], str]] = {
    "module": _as_module,
    "functions": _as_functions,
    "main": _as_main,
    "class": _as_class,
    "phases": _as_phases,
}
