"""The whole way from a path to new texts: what stays as it was, what is refused in one line, what options do."""

import random
import subprocess
import sys
import sysconfig
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from harness import LOOP, NET

from multicard import cli
from multicard.errors import MulticardError, NothingToDoError, SourceError
from multicard.migrate import Options, migrate
from multicard.plan import Kind, Plan
from multicard.write import files_in

SCRIPTS = Path(__file__).parent / "scripts"
EXAMPLE = Path(__file__).parent.parent / "examples" / "finetune" / "train.py"
EVALUATION = """
hits, total = 0, 0
model.eval()
with torch.no_grad():
    for x, y in val_loader:
        hits += (model(x).argmax(1) == y).sum().item()
        total += len(y)
print(f"accuracy {hits / total:.3f}")
torch.save(model.state_dict(), "last.pth")
"""
TRAIN = f"{NET}{LOOP}{EVALUATION}"


def plan_of(text: str | bytes, folder: Path, options: Options | None = None) -> Plan:
    script = folder / "train.py"
    script.write_bytes(text.encode() if isinstance(text, str) else text)
    return migrate(script, options or Options())


def refusal(script: Path) -> MulticardError | None:
    """Why a script is not migrated; where it is, its new text must be Python."""
    try:
        plan = migrate(script)
    except MulticardError as error:
        return error
    compile(new_bytes(plan), str(script), "exec", dont_inherit=True)
    return None


def new_bytes(plan: Plan) -> bytes:
    return plan.entry.encode(plan.texts[plan.entry])


def run(*arguments: str | Path) -> Result:
    return CliRunner().invoke(
        cli.main, ["migrate", *map(str, arguments), "--lang", "en"], catch_exceptions=False
    )


# --- migrating twice ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("runtime", ["vendor", "package"])
def test_migrating_a_migrated_script_changes_nothing_and_says_so_in_one_line(
    runtime: str, tmp_path: Path
) -> None:
    (tmp_path / "train.py").write_text(TRAIN)
    first = run(tmp_path / "train.py", "-o", tmp_path / "multi", "--runtime", runtime)
    assert first.exit_code == 0
    before = {path: path.read_bytes() for path in (tmp_path / "multi").rglob("*") if path.is_file()}
    for again in (("--in-place",), ("-o", tmp_path / "third")):
        second = run(tmp_path / "multi" / "train.py", "--runtime", runtime, *again)
        assert second.exit_code == 2
        assert second.output.count("\n") == 1
        assert "already distributed (`" in second.output
    assert {path: path.read_bytes() for path in (tmp_path / "multi").rglob("*") if path.is_file()} == before
    assert not (tmp_path / "third").exists()


def entries() -> list[Path]:
    found = []
    for description in sorted(SCRIPTS.glob("*/script.toml")):
        for line in description.read_text(encoding="utf-8").splitlines():
            name, _, value = line.partition(" = ")
            if name == "entry":
                found.append(description.parent / value.strip('"'))
    return found


@pytest.mark.parametrize("entry", entries()[::5], ids=lambda entry: str(entry.parent.name))
def test_real_scripts_migrate_to_scripts_that_are_distributed(entry: Path, tmp_path: Path) -> None:
    try:
        plan = migrate(entry)
    except NothingToDoError:
        assert entry.parent.name == "already_ddp"
        return
    texts = {module.path.name: plan.texts[module] for module in plan.modules}
    folder = tmp_path / "multi"
    folder.mkdir()
    for module in plan.modules:
        place = folder / module.path.relative_to(entry.parent)
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(module.encode(plan.texts[module]))
    assert texts
    with pytest.raises(NothingToDoError, match="already distributed"):
        migrate(folder / entry.name)


# --- what is refused ------------------------------------------------------------------------------------------------

REFUSED = {
    "a syntax error": ("def f(:\n", "train.py:1: syntax error"),
    "an empty file": ("", "the file is empty"),
    "nothing but comments": ("# later\n\n", "the file is empty"),
    "no training": ("import torch\nprint(torch.ones(3))\n", "no training was found"),
    "a model that is only used": (TRAIN.replace("        loss.backward()\n", ""), "no training was found"),
    "a loss of no model": (TRAIN.replace("model(x)", "x"), "no training was found"),
    "an attack on a model": (
        "from torch.autograd import Variable\n"
        + TRAIN.replace("model(x)", "model(moved := Variable(x.data, requires_grad=True))")
        .replace("optimizer.step()", "x = x + moved.grad.sign()")
        .replace("model.parameters()", "[start]"),
        "no training was found",
    ),
    "gradients that no backward pass brings": (
        TRAIN.replace("loss.backward()", "grads = torch.autograd.grad(loss, model.parameters())"),
        "no training was found",
    ),
    "a backward pass of something else": (
        "class A:\n    def backward(self): ...\nA().backward()\n",
        "no training",
    ),
    "DDP": (
        TRAIN.replace("model = Net()", "model = nn.parallel.DistributedDataParallel(Net())"),
        "distributed",
    ),
    "a process group": (
        "import torch.distributed as dist\ndist.init_process_group('nccl')\n" + TRAIN,
        "distributed",
    ),
    "accelerate": (
        "from accelerate import Accelerator\naccelerator = Accelerator()\n" + TRAIN,
        "distributed",
    ),
    "Lightning": ("import lightning as L\nL.Trainer().fit(m)\n", "distributed"),
    "Fabric": ("from lightning.fabric import Fabric\nfabric = Fabric()\n" + TRAIN, "distributed"),
    "DeepSpeed": ("import deepspeed\ndeepspeed.initialize(model=m)\n" + TRAIN, "distributed"),
    "Hugging Face's trainer": ("from transformers import Trainer\nTrainer(model=m).train()\n", "distributed"),
    "processes of its own": (
        "import torch.multiprocessing as mp\nmp.spawn(f, nprocs=2)\n" + TRAIN,
        "distributed",
    ),
}


@pytest.mark.parametrize(("text", "said"), REFUSED.values(), ids=REFUSED)
def test_what_cannot_be_migrated_is_one_line_and_nothing_is_written(
    text: str, said: str, tmp_path: Path
) -> None:
    script = tmp_path / "train.py"
    script.write_text(text)
    for write in ((), ("--in-place",), ("-o", tmp_path / "multi")):
        outcome = run(script, *write)
        assert outcome.exit_code == 2
        assert outcome.output.count("\n") == 1
        assert said in outcome.output
    assert script.read_text() == text
    assert [path.name for path in tmp_path.iterdir()] == ["train.py"]


def test_no_training_is_found_where_a_module_cannot_be_read_and_that_is_said(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text("import engine\nengine.train()\n")
    (tmp_path / "engine.py").write_text("def train(): x.cuda(async=True)\n")
    outcome = run(script)
    assert outcome.exit_code == 2
    assert outcome.output.count("engine.py:1: syntax error") == 1


def test_helpers_for_many_processes_that_nobody_calls_do_not_make_a_script_distributed(
    tmp_path: Path,
) -> None:
    dormant = "import torch.distributed as dist\ndef setup():\n    dist.init_process_group('nccl')\n"
    assert plan_of(dormant + TRAIN, tmp_path).changed


def test_a_local_module_that_cannot_be_parsed_does_not_stop_the_rest(tmp_path: Path) -> None:
    (tmp_path / "broken.py").write_text("def f(:\n")
    plan = plan_of(TRAIN.replace("import torch\n", "import torch\nfrom broken import f\n", 1), tmp_path)
    assert plan.changed == (plan.entry,)


# --- bytes --------------------------------------------------------------------------------------------------------

DRESSED = TRAIN.replace("\nmodel = Net()\n", "\n# 模型 \n\n\nmodel = Net()  # 网络\n") + "\n\n# end\t \n"
FORMS = {
    "line feeds": DRESSED.encode(),
    "carriage returns too": DRESSED.replace("\n", "\r\n").encode(),
    "tabs": DRESSED.replace("    ", "\t").encode(),
    "a byte order mark": b"\xef\xbb\xbf" + DRESSED.encode(),
    "gbk": ("# -*- coding: gbk -*-\n" + DRESSED).encode("gbk"),
    "no line end at the end": DRESSED.rstrip().encode(),
    "form feeds and blank lines": DRESSED.replace("\n\n\n", "\n\f\n   \n").encode(),
    "two spaces": DRESSED.replace("    ", "  ").encode(),
}


def touched(plan: Plan) -> set[int]:
    """The lines of the entry that some finding changes."""
    return {
        number
        for change in plan.changes
        if change.finding.edits
        for hunk in change.hunks
        if hunk.module is plan.entry
        for number in range(hunk.line, hunk.line + hunk.before.count("\n") + 1)
    }


@pytest.mark.parametrize("raw", FORMS.values(), ids=FORMS)
def test_lines_that_no_finding_changes_stay_byte_for_byte(raw: bytes, tmp_path: Path) -> None:
    plan = plan_of(raw, tmp_path)
    after = iter(new_bytes(plan).splitlines(keepends=True))
    changed = touched(plan)
    assert len(changed) > 5
    kept = [line for number, line in enumerate(raw.splitlines(keepends=True), 1) if number not in changed]
    assert len(kept) > 20
    for line in kept[:-1]:
        assert line in after, line


@pytest.mark.parametrize("raw", FORMS.values(), ids=FORMS)
def test_new_lines_are_written_as_the_file_writes_its_own(raw: bytes, tmp_path: Path) -> None:
    new = new_bytes(plan_of(raw, tmp_path))
    assert new.startswith(b"\xef\xbb\xbf") == raw.startswith(b"\xef\xbb\xbf")
    if b"\r\n" in raw:
        assert new.count(b"\n") == new.count(b"\r\n")
    else:
        assert b"\r" not in new
    if b"\t" in raw.replace(b"\t ", b""):
        assert b"\n    " not in new.replace(b"\n    from ", b"")
    encoding = "gbk" if b"gbk" in raw else "utf-8-sig"
    assert "# 网络" in new.decode(encoding)
    compile(new, "train.py", "exec", dont_inherit=True)


# --- options --------------------------------------------------------------------------------------------------------


def codes(plan: Plan) -> set[str]:
    return {finding.code for finding in plan.findings if finding.kind is Kind.CHANGED} - {"MC100"}


def test_select_keeps_what_it_names(tmp_path: Path) -> None:
    everything = codes(plan_of(TRAIN, tmp_path))
    assert codes(plan_of(TRAIN, tmp_path, Options(select=frozenset({"MC2", "MC501"})))) == {
        code for code in everything if code.startswith("MC2") or code == "MC501"
    }


def test_ignore_leaves_out_what_it_names(tmp_path: Path) -> None:
    everything = codes(plan_of(TRAIN, tmp_path))
    without = codes(plan_of(TRAIN, tmp_path, Options(ignore=frozenset({"MC2", "MC501"}))))
    assert without == {code for code in everything if not code.startswith("MC2") and code != "MC501"}
    assert {"MC101", "MC301"} <= without


def test_ignore_is_stronger_than_select(tmp_path: Path) -> None:
    options = Options(select=frozenset({"MC2"}), ignore=frozenset({"MC202"}))
    assert codes(plan_of(TRAIN, tmp_path, options)) == {"MC201", "MC203"}


def test_the_batch_is_that_of_each_card_unless_asked_otherwise(tmp_path: Path) -> None:
    assert b"per_card" not in new_bytes(plan_of(TRAIN, tmp_path))
    new = new_bytes(plan_of(TRAIN, tmp_path, Options(batch="global")))
    assert b"loader = DataLoader(data, per_card(8), sampler=DistributedSampler(data, shuffle=True))" in new
    assert b"val_loader = DataLoader(val_set, 8, sampler=EvalSampler(val_set, 8))" in new


def test_the_runtime_may_be_that_of_the_package(tmp_path: Path) -> None:
    new = new_bytes(plan_of(TRAIN, tmp_path, Options(runtime="package")))
    assert b"from multicard.runtime import" in new
    assert b"ddp_runtime" not in new


# --- the script's own package ---------------------------------------------------------------------------------------

LOADER = """
import torch
from torch.utils.data import DataLoader, TensorDataset


def load():
    return DataLoader(TensorDataset(torch.randn(64, 4), torch.zeros(64).long()), 8, shuffle=True)
"""


def project(folder: Path, *parts: str) -> Path:
    """A script in a folder of a project, and a package `digits` beside or round it."""
    (folder / "digits").mkdir(parents=True)
    (folder / "digits" / "__init__.py").touch()
    (folder / "digits" / "corpus.py").write_text(LOADER)
    script = folder.joinpath(*parts, "train.py")
    script.parent.mkdir(parents=True, exist_ok=True)
    script.write_text("import sys\nfrom digits.corpus import load\n" + NET + "loader = load()\n" + LOOP)
    return script


@pytest.mark.parametrize("parts", [("digits",), ("digits", "bin")], ids=["in the package", "below it"])
def test_the_package_that_a_script_stands_in_is_migrated_with_it(
    parts: tuple[str, ...], tmp_path: Path
) -> None:
    plan = migrate(project(tmp_path / "home", *parts))
    up = "/".join(".." for _ in parts)
    lines = new_bytes(plan).decode().splitlines()
    place = lines.index("from digits.corpus import load")
    assert lines[place - 2 : place] == [
        "import os",
        f'sys.path.insert(1, os.path.abspath(os.path.join(os.path.dirname(__file__), "{up}")))',
    ]
    script, files = files_in(tmp_path / "out", plan, "vendor")
    assert script == tmp_path.joinpath("out", *parts, "train.py")
    assert tmp_path / "out" / "digits" / "corpus.py" in {file.path for file in files}
    assert any(
        b"DistributedSampler(" in text for module, text in plan.texts.items() if module is not plan.entry
    )


def test_a_package_of_the_project_is_migrated_where_the_project_is_marked_as_one(tmp_path: Path) -> None:
    script = project(tmp_path / "home", "tools")
    assert len(migrate(script).modules) == 1
    (tmp_path / "home" / "setup.py").touch()
    assert len(migrate(script).modules) == 3


def test_a_package_above_is_migrated_where_a_module_tells_python_of_it(tmp_path: Path) -> None:
    script = project(tmp_path / "home", "tools")
    (script.parent / "paths.py").write_text(
        "import os\nimport sys\n\n\ndef add(path):\n    sys.path.insert(0, path)\n\n\n"
        "here = os.path.dirname(__file__)\nadd(os.path.join(here, '..'))\n"
    )
    script.write_text("import paths\n" + script.read_text())
    assert len(migrate(script).modules) == 4


# --- any file -------------------------------------------------------------------------------------------------------


def files_of_python() -> Iterator[Path]:
    for name in ("stdlib", "purelib"):
        yield from Path(sysconfig.get_paths()[name]).rglob("*.py")


@pytest.fixture(scope="module")
def some_files() -> list[Path]:
    files = sorted({path for path in files_of_python() if path.stat().st_size < 40_000})
    return random.Random(0).sample(files, 250)


def test_files_that_do_not_train_are_refused_in_one_line(some_files: list[Path], tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    refusals = {}
    for path in some_files:
        raw = path.read_bytes()
        script.write_bytes(raw)
        refusals[path] = refusal(script)
        assert script.read_bytes() == raw
    said = {path: error.text.en for path, error in refusals.items() if error}
    assert len(said) > 200
    assert {path: text for path, text in said.items() if "\n" in text} == {}
    assert {type(error) for error in refusals.values() if error} <= {NothingToDoError, SourceError}


def test_the_same_script_gives_the_same_text_whatever_the_hash_seed() -> None:
    program = (
        "import sys, hashlib\nfrom pathlib import Path\nfrom multicard.migrate import migrate\n"
        "for name in sys.argv[1:]:\n"
        "    plan = migrate(Path(name))\n"
        "    said = [(f.code, str(f.site), f.why.en) for f in plan.findings]\n"
        "    print(name, hashlib.sha256(repr((list(plan.texts.values()), said)).encode()).hexdigest())\n"
    )
    names = [str(entry) for entry in entries() if entry.parent.name != "already_ddp"][::6]
    outputs = {
        subprocess.run(
            [sys.executable, "-c", program, *names, str(EXAMPLE)],
            check=True,
            capture_output=True,
            text=True,
            env={"PYTHONHASHSEED": seed, "PATH": ""},
        ).stdout
        for seed in ("1", "2", "3")
    }
    assert len(outputs) == 1
    assert outputs.pop().count("\n") == len(names) + 1


def test_what_python_warns_of_is_not_said_while_migrating(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(TRAIN + "assert model is not 3\n")
    outcome = run(script, "-o", tmp_path / "multi")
    assert outcome.exit_code in {0, 1}
    assert "SyntaxWarning" not in outcome.output


def test_how_to_launch_it_is_said_first(tmp_path: Path) -> None:
    text = new_bytes(plan_of(f"__author__ = 'me'\n{TRAIN}", tmp_path)).decode()
    assert text.startswith("# torchrun --nproc-per-node=2 train.py\n")
