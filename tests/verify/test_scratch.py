import ast
import os
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from multicard.verify import scratch, trial
from multicard.verify.plan import Plan
from multicard.verify.probe import leads, outputs
from multicard.verify.probe import record as recording


@pytest.fixture
def project(tmp_path: Path) -> Path:
    root = tmp_path / "project"
    (root / "data" / "cats").mkdir(parents=True)
    (root / "data" / "cats" / "1.png").write_bytes(b"cat")
    (root / "models").mkdir()
    (root / "models" / "__init__.py").write_text("")
    (root / ".git").mkdir()
    (root / "train.py").write_text("print(1)")
    (root / "old.pt").write_bytes(b"weights")
    return root


def copied(project: Path) -> tuple[Path, Path]:
    home = project.parent / "scratch"
    scratch.copy_code(project, home / "tree")
    return home, home / "tree"


def test_code_is_copied_and_data_is_linked(project: Path) -> None:
    _, tree = copied(project)
    assert not (tree / "train.py").is_symlink()
    assert not (tree / "models" / "__init__.py").is_symlink()
    assert (tree / "data").is_symlink()
    assert (tree / "old.pt").is_symlink()
    assert not (tree / ".git").exists()


def test_a_new_file_in_linked_data_stays_in_the_copy(project: Path) -> None:
    home, tree = copied(project)
    target = tree / "data" / "cats" / "new.txt"
    scratch.make_own(str(target), str(home), keep=True)
    target.write_text("mine")
    assert not (project / "data" / "cats" / "new.txt").exists()
    assert (tree / "data" / "cats" / "1.png").read_bytes() == b"cat"


def test_an_overwritten_file_is_the_copys_own(project: Path) -> None:
    home, tree = copied(project)
    scratch.make_own(str(tree / "old.pt"), str(home), keep=False)
    (tree / "old.pt").write_bytes(b"new")
    assert (project / "old.pt").read_bytes() == b"weights"


def test_a_file_that_is_added_to_keeps_what_it_holds(project: Path) -> None:
    home, tree = copied(project)
    scratch.make_own(str(tree / "old.pt"), str(home), keep=True)
    assert not (tree / "old.pt").is_symlink()
    assert (tree / "old.pt").read_bytes() == b"weights"


def test_paths_outside_are_left_alone(project: Path) -> None:
    home, _ = copied(project)
    scratch.make_own(str(project / "old.pt"), str(home), keep=False)
    assert (project / "old.pt").read_bytes() == b"weights"


def test_only_the_way_to_the_script_is_laid_out(project: Path) -> None:
    inner = project / "jobs" / "a"
    inner.mkdir(parents=True)
    (inner / "run.py").write_text("")
    tree = project.parent / "scratch" / "tree"
    scratch.lay_out(project, tree, down_to=inner)
    assert not (tree / "jobs").is_symlink()
    assert not (tree / "jobs" / "a" / "run.py").is_symlink()
    assert (tree / "models").is_symlink()


@pytest.fixture
def watch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[outputs.Watch]:
    home, copy = tmp_path / "home", tmp_path / "shop" / "copy"
    (home / "output").mkdir(parents=True)
    (home / "output" / "best.pt").write_text("the user's")
    scratch.lay_out(home, copy)
    folder = str(tmp_path / "shop")
    monkeypatch.chdir(copy)
    links = ((str(home), str(copy)),)
    plan = Plan("migrated", 0, 2, folder, f"{folder}/meeting", str(copy), links, "", (), 0, 5, False, 60.0)
    begun = recording.begin(plan)
    yield outputs.Watch(plan)
    begun.close()


def test_a_path_that_leads_out_of_the_copy_is_led_back(watch: outputs.Watch) -> None:
    real = outputs._real(watch.links)(os.path.realpath)
    assert real("output/best.pt") == f"{watch.scratch}/output/best.pt"
    assert real("/usr") == os.path.realpath("/usr")
    assert real(watch.scratch) == watch.scratch


@pytest.mark.parametrize("event", ["open", "os.remove", "os.rename", "os.mkdir", "shutil.rmtree"])
def test_a_file_of_the_users_is_not_changed_by_any_path(event: str, watch: outputs.Watch) -> None:
    path = str(Path("../../home/output/best.pt").absolute())
    arguments = {"open": (path, "w", 0), "os.rename": (path, "other", -1, -1)}.get(event, (path, None))
    with pytest.raises(outputs.KeptError):
        watch(event, arguments)


def test_caches_in_hidden_folders_may_change(watch: outputs.Watch) -> None:
    watch("open", (str(Path("../../home/.cache/torch/lock").absolute()), "w", 0))


def test_a_folder_that_is_gone_into_is_the_copys_own(watch: outputs.Watch) -> None:
    assert Path("output").is_symlink()
    watch("os.chdir", ("output",))
    assert not Path("output").is_symlink()
    assert Path("output/best.pt").is_symlink()


@pytest.mark.parametrize("name", ["tools", "jobs"])
def test_modules_beside_the_scripts_folder_are_the_migrated_ones(tmp_path: Path, name: str) -> None:
    for project, folder in (("one", "tools"), ("multi", name)):
        for part in (folder, "lib"):
            (tmp_path / project / part).mkdir(parents=True)
            (tmp_path / project / part / f"{part[0]}.py").write_text(project)
    place = trial.settle_over(
        tmp_path / "one" / "tools" / "t.py",
        tmp_path / "multi" / name / f"{name[0]}.py",
        tmp_path / "one",
        tmp_path / "scratch",
    )
    assert place.script.read_text() == "multi"
    beside = place.script.parent.parent / "lib" / "l.py"
    assert beside.read_text() == ("multi" if name == "tools" else "one")


LED = {
    "a file": ("/home/me/net/out/m.pt", "/copy/out/m.pt"),
    "the folder": ("/home/me/net", "/copy"),
    "another of the same beginning": ("/home/me/networks/m.pt", "/home/me/networks/m.pt"),
    "none": ("out/m.pt", "out/m.pt"),
}


@pytest.fixture
def _led(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leads, "LINKS", [("/home/me/net", "/copy")])


@pytest.mark.usefixtures("_led")
@pytest.mark.parametrize(("path", "copy"), LED.values(), ids=LED)
def test_absolute_paths_are_led_to_the_copy(path: str, copy: str) -> None:
    assert leads.argument(path) == copy
    assert leads.argument(f"--out={path}") == f"--out={copy}"
    tree = leads.Lead().visit(ast.parse(f"open(f'{path}{{n}}' if n else {path!r})"))
    assert ast.unparse(tree) == f"open(f'{copy}{{n}}' if n else {copy!r})"


def test_what_is_printed_names_the_users_folders() -> None:
    place = trial.Place(Path("/t"), Path("/t/tree"), Path("/t/tree/a.py"), (("/home/me/net", "/t/tree"),))
    assert place.named("saved /t/tree/out/m.pt") == "saved /home/me/net/out/m.pt"


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="elsewhere paths cannot be exchanged")
def test_nobody_finds_a_file_missing_while_its_folder_is_made_own(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "params.json").write_text("{}")
    copies = tmp_path / "copies"
    copies.mkdir()
    missing, stop = [], threading.Event()

    def read(path: Path) -> None:
        while not stop.is_set():
            if not path.exists():
                missing.append(path)

    for number in range(60):
        folder = copies / f"run{number}"
        folder.symlink_to(tmp_path / "data")
        stop.clear()
        reader = threading.Thread(target=read, args=(folder / "params.json",))
        reader.start()
        scratch.make_own(str(folder / "params.json"), str(copies), keep=True)
        stop.set()
        reader.join()
    assert missing == []
