"""Each reason to leave something to the reader, and each refusal of a whole script, is provoked by some test.

The rows here provoke what the tables of the rules do not; the last test looks for places that nothing provokes.
"""

import ast
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from harness import LOOP, NET, facts_of

from multicard.edits import replace, wrap
from multicard.messages import Text
from multicard.migrate import migrate
from multicard.plan import Finding, Kind
from multicard.rules import wrap_model
from multicard.settle import settle
from multicard.source import Site

ROOT = Path(__file__).parent.parent
ENTRY = NET + LOOP
SAVED = "    torch.save(model.state_dict(), 'a.pth')\n"
REFUSED = {
    "one of two models asked for a part": (
        ENTRY + "other = Net()\nprint((model if torch.rand(1) > 2 else other).classifier)\n",
        "MC302",
        "`classifier` is the model's",
    ),
    "a free name that is used in the loop alone": (
        "import os\n"
        + NET
        + "n = 0\nwhile True:\n    path = f'run{n}'\n    if not os.path.exists(path):\n        os.makedirs(path)\n"
        "        log = open(path + '/log.txt', 'w')\n        break\n    n += 1\n"
        + LOOP
        + "    log.write('x')\n",
        "MC507",
        "take another name",
    ),
    "an export whose value is used": (
        ENTRY + "program = torch.onnx.export(model, torch.zeros(1, 4), 'a.onnx')\nprint(program)\n",
        "MC501",
        "every rank would write this file",
    ),
    "a mixed loss that evaluation shares": (
        NET
        + "def both(out, y):\n    return nn.functional.mse_loss(out, y, reduction='sum') + out.abs().mean()\n\n\n"
        + LOOP.replace("nn.functional.cross_entropy(model(x), y)", "both(model(x), y)")
        + "    for x, y in val_loader:\n        print(both(model(x), y))\n",
        "MC306",
        "sum",
    ),
    "a ratio that evaluation shares": (
        NET
        + "def dice(out, y):\n    out = out.sigmoid()\n    return 1 - 2 * (out * y).sum() / (out.sum() + y.sum())\n\n\n"
        + LOOP.replace("nn.functional.cross_entropy(model(x), y)", "dice(model(x), y)")
        + "    for x, y in val_loader:\n        print(dice(model(x), y))\n",
        "MC306",
        "a ratio, a root or a logarithm of sums over the batch",
    ),
    "tensors beside a model, and no optimizer in sight": (
        "def back(loss):\n    loss.backward()\n\n\n" + NET + "weights = torch.zeros(2, requires_grad=True)\n"
        "optimizer = torch.optim.SGD([*model.parameters(), weights], lr=0.1)\n"
        + LOOP.replace("loss.backward()", "back(loss + weights.sum())"),
        "MC301",
        "the optimizer holds tensors that are no module's",
    ),
    "the length of a bar over numbered batches, under the loader's own name": (
        "from tqdm import tqdm\n"
        + NET
        + "def evaluate(loader):\n    total = 0\n    loader = tqdm(enumerate(loader))\n    for i, (x, y) in loader:\n"
        "        total += len(model(x))\n    return total / len(loader)\n\n\n"
        + LOOP
        + "print(evaluate(val_loader))\n",
        "MC404",
        "length is this rank's share",
    ),
    "a backward pass out of sight of the model": (
        "def back(loss):\n    loss.backward()\n\n\n"
        + NET
        + LOOP.replace("model(x)", "model.features(x)").replace("loss.backward()", "back(loss)"),
        "MC301",
        "neither the model nor its optimizer is in sight",
    ),
    "a save in a branch that each rank takes by its own batch": (
        NET + LOOP + "        if loss.item() < 1:\n            torch.save(loss.item(), 'low.pt')\n"
        "            print(torch.load('low.pt'))\n",
        "MC502",
        "each rank takes by its own batch",
    ),
}


@pytest.mark.parametrize(("script", "code", "said"), REFUSED.values(), ids=REFUSED)
def test_is_left_to_the_reader_and_said(script: str, code: str, said: str, tmp_path: Path) -> None:
    path = tmp_path / "train.py"
    path.write_text(script, encoding="utf-8")
    left = [finding for finding in migrate(path).findings if finding.kind is Kind.LEFT]
    assert any(finding.code.startswith(code) and said in finding.why.en for finding in left), [
        (finding.code, finding.why.en) for finding in left
    ]


def test_a_card_named_by_an_option_in_a_local_module_is_the_current_one(tmp_path: Path) -> None:
    (tmp_path / "devices.py").write_text("def where(gpu):\n    return f'cuda:{gpu}'\n", encoding="utf-8")
    (tmp_path / "train.py").write_text("from devices import where\n" + ENTRY + "model.to(where(1))\n")
    plan = migrate(tmp_path / "train.py")
    assert {module.path.name: plan.texts[module].decode() for module in plan.modules}["devices.py"] == (
        'def where(gpu):\n    return "cuda"\n'
    )


def test_two_changes_of_one_place_and_a_change_that_is_no_python_are_left() -> None:
    facts = facts_of(ENTRY)
    module = facts.program.entry
    first, *_, last = module.tree.body
    why = Text("it must change", "需要修改")
    findings = [
        Finding(wrap_model.CODE, Site(module, node), why, (replace(module, node, text),))
        for node, text in ((first, "import torch as t"), (first, "import torch as u"), (last, "while ("))
    ]
    plan = settle(facts, findings)
    said = [finding.why.en for finding in plan.findings if finding.kind is Kind.LEFT]
    assert len(said) == 2
    assert any("another change is made to the same code" in text for text in said)
    assert any("could not be written into this line" in text for text in said)
    assert plan.texts[module].decode().startswith("\nimport torch as t\n")


def test_what_two_rules_broadcast_is_broadcast_once() -> None:
    facts = facts_of("import os\nif os.path.isfile('best.pth'):\n    pass\n" + ENTRY)
    module = facts.program.entry
    branch = module.tree.body[1]
    assert isinstance(branch, ast.If)
    why = Text("it must be the same", "必须一致")
    edits = wrap(module, branch.test, "«broadcast_value»(", ")")
    plan = settle(facts, [Finding(code, Site(module, branch), why, edits) for code in ("MC403", "MC507")])
    assert plan.texts[module].decode().count("broadcast_value(") == 1
    assert all(finding.kind is Kind.CHANGED for finding in plan.findings)


# --- every place is provoked ----------------------------------------------------------------------------------------

ERRORS = frozenset({"MulticardError", "SourceError", "NothingToDoError", "WriteError"})
TESTS = (
    "rules",
    "test_refusals.py",
    "test_migrate.py",
    "test_cli.py",
    "test_write.py",
    "test_source.py",
    "test_explain.py",
)


def places() -> dict[str, tuple[str, int, int]]:
    """The lines on which findings and errors are made."""
    found = {}
    package = ROOT / "src" / "multicard"
    for path in (*package.glob("*.py"), *package.glob("rules/*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
                if node.func.id in ERRORS or node.func.id == "Finding":
                    name = f"{path.relative_to(package)}:{node.lineno}"
                    found[name] = (str(path), node.lineno, node.end_lineno or node.lineno)
    return found


@pytest.mark.slow
def test_every_finding_and_every_refusal_is_provoked_by_some_test(tmp_path: Path) -> None:
    noted = tmp_path / "noted.json"
    command = [sys.executable, "-m", "pytest", "-q", "-p", "provoked", "-p", "no:cacheprovider"]
    subprocess.run(
        [*command, *(str(ROOT / "tests" / name) for name in TESTS)],
        cwd=ROOT,
        env=os.environ | {"PROVOKED": str(noted)},
        check=True,
        timeout=900,
        stdout=subprocess.DEVNULL,
    )
    hit = {(path, line) for path, line in json.loads(noted.read_text(encoding="utf-8"))}
    missing = [
        name
        for name, (path, first, last) in places().items()
        if not any((path, line) in hit for line in range(first, last + 1))
    ]
    assert missing == []
