"""Files are written whole or not at all, with their permissions, and nothing of the user's is lost."""

import os
import shutil
from pathlib import Path

import pytest
from plans import NET, TRAIN, plan_of

from multicard import write
from multicard.edits import apply, insert_before
from multicard.errors import SourceError
from multicard.messages import Text
from multicard.plan import Finding, Plan
from multicard.source import Module, Site, parse, read
from multicard.write import File, WriteError, files_in, files_in_place


def tree(folder: Path) -> dict[str, bytes]:
    """Every file under a folder."""
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A folder with the script and its module."""
    folder = tmp_path / "项目 源码"
    (folder / "models").mkdir(parents=True)
    (folder / "train.py").write_text(TRAIN)
    (folder / "models" / "net.py").write_text(NET)
    return folder


def files(plan: Plan, target: Path | None = None) -> tuple[File, ...]:
    return (files_in(target, plan, "vendor") if target else files_in_place(plan, "vendor"))[1]


def test_a_folder_gets_the_script_its_modules_and_the_runtime(home: Path, tmp_path: Path) -> None:
    plan = plan_of(home)
    before = tree(home)
    target = tmp_path / "多卡" / "out"
    script, new = files_in(target, plan, "vendor")
    write.write(new)
    assert script == target / "train.py"
    assert tree(target) == {
        "ddp_runtime.py": write.RUNTIME.read_bytes(),
        "models/net.py": plan.texts[plan.modules[1]],
        "train.py": plan.texts[plan.entry],
    }
    assert tree(home) == before


def test_a_folder_inside_the_scripts_is_as_good(home: Path) -> None:
    write.write(files(plan_of(home), home / "multi"))
    assert set(tree(home)) == {
        "train.py",
        "models/net.py",
        "multi/train.py",
        "multi/models/net.py",
        "multi/ddp_runtime.py",
    }


def test_in_place_changes_what_changes_and_adds_the_runtime(home: Path) -> None:
    whole = plan_of(home)
    net = whole.modules[1]
    plan = Plan(whole.entry, whole.modules, whole.findings, {**whole.texts, net: net.data}, whole.helpers)
    assert [file.path.name for file in files(plan)] == ["train.py", "ddp_runtime.py"]
    write.write(files(plan))
    assert tree(home) == {
        "ddp_runtime.py": write.RUNTIME.read_bytes(),
        "models/net.py": NET.encode(),
        "train.py": plan.texts[plan.entry],
    }


def test_no_runtime_where_the_package_is_used_or_no_helper_is(home: Path, tmp_path: Path) -> None:
    plan = plan_of(home)
    assert [file.path.name for file in files_in(tmp_path / "o", plan, "package")[1]] == ["train.py", "net.py"]
    bare = Plan(plan.entry, plan.modules, plan.findings, plan.texts)
    assert [file.path.name for file in files(bare, tmp_path / "o")] == ["train.py", "net.py"]


def test_permissions_stay(home: Path, tmp_path: Path) -> None:
    (home / "train.py").chmod(0o750)
    write.write(files(plan_of(home), tmp_path / "out"))
    write.write(files(plan_of(home)))
    for path in (tmp_path / "out" / "train.py", home / "train.py"):
        assert path.stat().st_mode & 0o777 == 0o750


def test_encoding_and_line_ends_stay(home: Path) -> None:
    raw = "# coding: gbk\r\nx = '这里写的是中文注释'\r\n".encode("gbk")
    (home / "train.py").write_bytes(raw)
    entry = read(home / "train.py", "__main__")
    statement = entry.tree.body[0]
    edits = (insert_before(entry, statement, "y = 1"),)
    finding = Finding("MC101", Site(entry, statement), Text("", ""), edits)
    write.write(files(Plan(entry, (entry,), (finding,), {entry: apply(entry, edits)})))
    assert (
        home / "train.py"
    ).read_bytes() == "# coding: gbk\r\ny = 1\r\nx = '这里写的是中文注释'\r\n".encode("gbk")


def test_a_link_stays_a_link(home: Path, tmp_path: Path) -> None:
    real = tmp_path / "real.py"
    (home / "train.py").rename(real)
    (home / "train.py").symlink_to(real)
    plan = plan_of(home)
    write.write(files(plan))
    assert (home / "train.py").is_symlink()
    assert real.read_bytes() == plan.texts[plan.entry]


def outside(home: Path, where: Path, *, changes: bool) -> Plan:
    """A plan whose second module lies elsewhere."""
    where.parent.mkdir(parents=True, exist_ok=True)
    where.write_text(NET)
    entry, net = (read(home / "train.py", "__main__"), read(where, "net"))
    new: dict[Module, bytes] = {entry: entry.data, net: b"# new\n" + net.data if changes else net.data}
    return Plan(entry, (entry, net), (), new)


def test_a_module_above_the_script_keeps_its_place_to_it(home: Path, tmp_path: Path) -> None:
    plan = outside(home, tmp_path / "common" / "net.py", changes=True)
    script, new = files_in(tmp_path / "out", plan, "vendor")
    write.write(new)
    assert script == tmp_path / "out" / home.name / "train.py"
    assert set(tree(tmp_path / "out")) == {f"{home.name}/train.py", "common/net.py"}


def test_a_module_far_off_stays_there_if_it_does_not_change(tmp_path: Path) -> None:
    home = tmp_path / "a" / "b" / "c"
    home.mkdir(parents=True)
    (home / "train.py").write_text(TRAIN)
    far = tmp_path / "lib" / "net.py"
    script, new = files_in(tmp_path / "out", outside(home, far, changes=False), "vendor")
    assert [file.path for file in new] == [script] == [tmp_path / "out" / "train.py"]
    with pytest.raises(WriteError, match="lies too far from the script"):
        files_in(tmp_path / "out", outside(home, far, changes=True), "vendor")


# --- refused, with nothing written ----------------------------------------------------------------


def refused(reason: str, plan: Plan, target: Path | None, *, watch: Path) -> None:
    """One line says why, in both languages, and nothing under `watch` has changed."""
    before = tree(watch)
    with pytest.raises(WriteError, match=reason) as caught:
        write.write(files(plan, target))
    assert tree(watch) == before
    for line in (caught.value.text.en, caught.value.text.zh):
        assert line
        assert "\n" not in line


def test_the_scripts_own_folder_is_refused(home: Path, tmp_path: Path) -> None:
    refused("use --in-place", plan_of(home), home / "models" / "..", watch=tmp_path)


def test_a_file_is_no_folder(home: Path, tmp_path: Path) -> None:
    (tmp_path / "out").write_text("mine")
    refused("is not a folder", plan_of(home), tmp_path / "out", watch=tmp_path)


def test_a_file_in_the_way_of_a_folder_is_said(home: Path, tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "models").write_text("mine")
    refused(
        "models/net.py: Not a directory; nothing was written", plan_of(home), tmp_path / "out", watch=tmp_path
    )


def test_a_folder_in_the_way_of_a_file_is_said(home: Path, tmp_path: Path) -> None:
    (tmp_path / "out" / "models" / "net.py" / "x").mkdir(parents=True)
    refused("Is a directory; nothing was written", plan_of(home), tmp_path / "out", watch=tmp_path)


def test_a_link_to_the_source_is_not_written_through(home: Path, tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "train.py").symlink_to(home / "train.py")
    refused("one of the files to be read", plan_of(home), tmp_path / "out", watch=tmp_path)


@pytest.mark.parametrize("name", ["train.py", "."])
def test_what_may_not_be_written_is_not(home: Path, tmp_path: Path, name: str) -> None:
    before = home.joinpath(name).stat().st_mode
    home.joinpath(name).chmod(before & ~0o222)
    refused("Permission denied; nothing was written", plan_of(home), None, watch=tmp_path)
    home.joinpath(name).chmod(before)


@pytest.mark.parametrize("place", ["source", "target"])
def test_a_runtime_of_the_users_own_is_kept(home: Path, tmp_path: Path, place: str) -> None:
    target = tmp_path / "out"
    target.mkdir()
    {"source": home, "target": target}[place].joinpath("ddp_runtime.py").write_text("mine = 1\n")
    refused("use --runtime package", plan_of(home), target, watch=tmp_path)


def test_an_earlier_runtime_of_ours_is_renewed(home: Path) -> None:
    old = write.RUNTIME.read_bytes() + b"# an earlier version\n"
    (home / "ddp_runtime.py").write_bytes(old)
    write.write(files(plan_of(home)))
    assert (home / "ddp_runtime.py").read_bytes() == write.RUNTIME.read_bytes()


def test_text_that_does_not_compile_is_not_written(home: Path, tmp_path: Path) -> None:
    plan = plan_of(home)
    bad = Plan(plan.entry, plan.modules, plan.findings, {**plan.texts, plan.entry: b"return\n"})
    refused("would not compile: .*train.py:1: 'return' outside function", bad, None, watch=tmp_path)


@pytest.mark.parametrize("failing", [1, 2, 3])
def test_a_failure_half_way_leaves_everything_as_it_was(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failing: int
) -> None:
    """The disk fails when the last, the second or the first file takes its place."""
    replace, done = Path.replace, 0

    def fails(self: Path, target: Path) -> Path:
        nonlocal done
        done += self.suffix == ".new"
        if done == failing and self.suffix == ".new":
            raise OSError(28, os.strerror(28), str(target))
        return replace(self, target)

    monkeypatch.setattr(Path, "replace", fails)
    refused("No space left on device; nothing was written", plan_of(home), None, watch=tmp_path)
    done = 0
    refused(
        "No space left on device; nothing was written",
        plan_of(home),
        tmp_path / "new" / "out",
        watch=tmp_path,
    )
    assert not (tmp_path / "new").exists()


def test_an_interruption_leaves_everything_as_it_was(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = tree(home)

    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(shutil, "copy2", interrupted)
    with pytest.raises(KeyboardInterrupt):
        write.write(files(plan_of(home)))
    assert tree(home) == before


def test_a_letter_that_the_encoding_lacks_stops_everything(home: Path) -> None:
    raw = b"# coding: latin-1\nx = 1\n"
    entry = parse(home / "train.py", "__main__", raw)
    plan = Plan(entry, (entry,), (), {entry: "# coding: latin-1\nx = '损失'\n".encode()})
    with pytest.raises(SourceError, match="has no '损失'"):
        files(plan)
