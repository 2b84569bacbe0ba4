"""Plans built by hand, for what reads plans."""

import ast
from pathlib import Path

from multicard.edits import Edit, apply, call_with, guard, insert_before, set_argument
from multicard.messages import Text
from multicard.plan import Finding, Kind, Plan
from multicard.source import Module, Site, parse_text

TRAIN = """\
import torch
from models import net

model = net()
loader = DataLoader(data, shuffle=True)
for epoch in range(3):
    print("损失 <b>`x`</b>", "[red]")
    if epoch:
        save(
            model,
        )
sys.exit()
"""
NET = "def net():\n    return torch.nn.Linear(1, 1)\n"


def plan_of(folder: Path, train: str = TRAIN) -> Plan:
    """Two modules; findings of every kind, with one, several and no edits."""
    entry = parse_text(folder / "train.py", "__main__", train)
    net = parse_text(folder / "models" / "net.py", "models.net", NET)
    _, _, _, loader, loop, last = entry.tree.body
    assert isinstance(loader, ast.Assign)
    assert isinstance(loop, ast.For)
    show, save = loop.body
    assert isinstance(show, ast.Expr)
    call = loader.value
    assert isinstance(call, ast.Call)
    guarded = guard(entry, [save], "if rank == 0:")
    assert guarded is not None
    findings = (
        _found("MC101", entry, loader, (insert_before(entry, loader, "setup_ddp()"),)),
        _found(
            "MC201",
            entry,
            loader,
            (
                set_argument(entry, call, "shuffle", "sampler"),
                insert_before(entry, last, "last()"),
            ),
        ),
        _found("MC503", entry, show, call_with(entry, show.value, "once")),
        _found("MC501", entry, save, guarded),
        Finding(
            "MC206",
            Site(entry, loader),
            Text("each card has the batch", "每张卡都是这个批大小"),
            kind=Kind.NOTE,
        ),
        _found("MC301", net, net.tree.body[0], (insert_before(net, net.tree.body[0], "import ddp"),)),
        Finding(
            "MC403",
            Site(entry, last),
            Text("one rank may leave alone", "某一张卡可能单独退出"),
            advice=Text("let all ranks agree", "让所有卡一起决定"),
            kind=Kind.LEFT,
        ),
    )
    edits = [edit for finding in findings for edit in finding.edits]
    texts = {module: apply(module, edits) for module in (entry, net)}
    return Plan(entry, (entry, net), findings, texts, frozenset({"setup_ddp"}))


def _found(code: str, module: Module, node: ast.stmt, edits: tuple[Edit, ...]) -> Finding:
    return Finding(code, Site(module, node), Text(f"why {code}", f"原因 {code}"), edits)
