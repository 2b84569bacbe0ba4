"""Runs one rule alone over a script given as text."""

from pathlib import Path

from multicard.facts import Facts
from multicard.plan import Kind, Rule
from multicard.program import Program
from multicard.settle import settle
from multicard.source import parse_text
from multicard.start import start
from multicard.wraps import wrap_models

TRAINING = """
import torch
from torch import nn
from torch.utils.data import DataLoader

model = nn.Linear(4, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
loader = DataLoader(data, 8, shuffle=True)
"""
LOOP = """
for epoch in range(3):
    for x, y in loader:
        loss = nn.functional.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
"""
NET = """
import torch
from torch import nn
from torch.utils.data import DataLoader


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.features = nn.Linear(4, 8)
        self.classifier = nn.Linear(8, 2)
        self.n_classes = 2

    def forward(self, x):
        return self.classifier(self.features(x))

    def init_hidden(self, n):
        return torch.zeros(n, 8)


loader = DataLoader(data, 8, shuffle=True)
val_loader = DataLoader(val_set, 8)
model = Net()
criterion = nn.CrossEntropyLoss()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
"""
IMPORTS = (
    "from ddp_runtime import",
    "from torch.nn.parallel import DistributedDataParallel",
    "import torch.distributed",
    "import os",
)


def migrate(rule: Rule, text: str, *, batch: str = "per-card") -> tuple[str, list[str]]:
    """The text after one rule, and why it left what it left."""
    texts, reasons = migrate_modules(rule, {"__main__": text}, batch=batch)
    return texts["__main__"], reasons


def migrate_modules(
    rule: Rule, texts: dict[str, str], *, batch: str = "per-card"
) -> tuple[dict[str, str], list[str]]:
    """The texts of an entry (`__main__`) and its local modules after one rule, and why it left what it left."""
    modules = {
        name: parse_text(Path(f"{'train' if name == '__main__' else name}.py"), name, text)
        for name, text in texts.items()
    }
    facts = wrap_models(Program(modules["__main__"], modules, ()))
    facts.batch = batch
    plan = settle(facts, rule.find(facts), rank_is_global=start(facts).names)
    new = {name: plan.texts[module].decode() for name, module in modules.items()}
    return new, [finding.why.en for finding in plan.findings if finding.kind is Kind.LEFT]


def facts_of(text: str, **modules: str) -> Facts:
    """What is inferred of an entry and its local modules, its models wrapped."""
    texts = {"__main__": text, **modules}
    parsed = {name: parse_text(Path(f"{name}.py"), name, part) for name, part in texts.items()}
    return wrap_models(Program(parsed["__main__"], parsed, ()))


def added(before: str, after: str) -> str:
    """The lines of a migrated text that are not lines of the original, without its new imports."""
    old = before.splitlines()
    return "\n".join(line for line in after.splitlines() if line not in old and not line.startswith(IMPORTS))
