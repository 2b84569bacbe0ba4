"""What the probe puts in the place of torch's functions, in one process."""

import ast
import copy
import gc
import io
import json
import random
import weakref
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from records import epoch, loader, trains
from torch import nn
from torch.utils.data import Subset

from multicard.verify import printed
from multicard.verify.plan import Plan, read_plan
from multicard.verify.probe import contents, loaders, lookups, modules, randomness, sizes
from multicard.verify.probe import record as recording
from multicard.verify.probe.replay import Replay


def plan(folder: Path, **more: object) -> Plan:
    return Plan(
        "original",
        0,
        1,
        str(folder),
        str(folder),
        str(folder / "s"),
        (),
        "",
        (),
        0,
        5,
        False,
        60.0,
        **more,  # type: ignore[arg-type]
    )


@pytest.fixture
def record(tmp_path: Path) -> Iterator[recording.Record]:
    begun = recording.begin(plan(tmp_path))
    yield begun
    begun.close()


@pytest.fixture
def phase() -> Iterator[randomness.Phase]:
    with randomness.generators_kept():
        yield randomness.PHASE
        randomness.PHASE.key = None
        randomness.PHASE.samples = ()


def noise(shape: tuple[int, ...]) -> torch.Tensor:
    return randomness.fill(torch.empty(shape), lambda row, g: row.normal_(generator=g))


@pytest.mark.usefixtures("record")
def test_a_sample_gets_the_same_noise_in_any_batch(phase: randomness.Phase) -> None:
    phase.turn((1, 2, 3), samples=[4, 8, 5, 7])
    whole = noise((4, 6))
    phase.turn((1, 2, 3), samples=[5, 4])
    part = noise((2, 6))
    assert torch.equal(part, whole[[2, 0]])
    assert not torch.equal(whole[0], whole[1])


@pytest.mark.usefixtures("record")
def test_ranks_without_samples_draw_their_rows_of_the_whole(phase: randomness.Phase) -> None:
    phase.turn((1,), (2, 2))
    whole = noise((4, 3))
    phase.turn((1,), (2, 2), 1)
    assert torch.equal(noise((2, 3)), whole[2:])


@pytest.mark.usefixtures("record")
def test_a_draw_of_as_many_rows_as_a_share_is_that_of_rank_0(phase: randomness.Phase) -> None:
    phase.turn((1,), (2, 2), samples=[7, 5, 8, 6])
    pictures = noise((2, 3))
    phase.turn((1,), (2, 2), 0, samples=[7, 5])
    assert torch.equal(noise((2, 3)), pictures)


@pytest.mark.usefixtures("record")
def test_draws_of_one_batch_differ_from_each_other_and_from_the_next_batchs(phase: randomness.Phase) -> None:
    phase.turn((1,), samples=[0, 1])
    first, second = noise((2, 3)), noise((2, 3))
    phase.turn((2,), samples=[0, 1])
    third = noise((2, 3))
    assert len({tensor.sum().item() for tensor in (first, second, third)}) == 3


def test_generators_are_left_as_they_were() -> None:
    before = randomness.states()
    with randomness.generators_kept():
        randomness.seed_all(7)
        random.random()
        np.random.rand(3)  # noqa: NPY002
        torch.rand(3)
    assert randomness.states() == before


@pytest.mark.parametrize(
    ("name", "plain"),
    [
        ("module.fc.weight", "fc.weight"),
        ("_orig_mod.module.fc.weight", "fc.weight"),
        ("module._orig_mod.fc.weight", "fc.weight"),
        ("fc.weight", "fc.weight"),
        ("net.module.fc.weight", "net.fc.weight"),
    ],
)
def test_names_without_wrappers(name: str, plain: str) -> None:
    assert modules.strip(name) == plain


def test_models_are_known_from_when_they_are_made_till_they_are_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(modules, "ALIVE", {})
    for name in ("__init__", "__setstate__"):
        monkeypatch.setattr(nn.Module, name, modules._note(getattr(nn.Module, name)))
    model = nn.Sequential(nn.Linear(1, 1), nn.BatchNorm1d(1))
    twin = copy.deepcopy(model)
    assert modules.roots_alive() == [model, twin]
    del model
    gc.collect()
    assert modules.roots_alive() == [twin]


def test_names_of_parameters_come_from_the_model_that_holds_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nn.Module, "__init__", modules._note(nn.Module.__init__))
    model = nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3))
    parameters: list[torch.Tensor] = list(model.parameters())
    assert modules.names_of(parameters) == ["0.weight", "0.bias", "1.weight", "1.bias"]
    assert [name for name, _ in modules.buffers_around([parameters[0]])] == [
        "1.running_mean",
        "1.running_var",
    ]


def replay(tmp_path: Path, split: int = 1) -> Replay:
    paths = []
    for rank, batches in enumerate(([[0, 2], [4]], [[1, 3], [5]])):
        path = tmp_path / f"{rank}.jsonl"
        path.write_text("\n".join(json.dumps(e) for e in [loader(), trains(), *epoch(5, 0, batches)]))
        paths.append(str(path))
    return Replay.read(paths, split)


def test_the_original_is_dealt_the_batches_of_all_ranks(tmp_path: Path) -> None:
    [dealt] = replay(tmp_path).loaders
    assert dealt.trains
    assert dealt.batches_of(0) == [[[0, 2], [1, 3]], [[4], [5]]]
    assert (dealt.rows, dealt.ending_of(0), dealt.ending_of(1)) == (4, "end", "none")
    assert dealt.in_turn(0) == [[0, 2], [4], [1, 3], [5]]


def test_or_one_after_the_other(tmp_path: Path) -> None:
    [dealt] = replay(tmp_path, split=2).loaders
    assert dealt.batches_of(0) == [[[0, 2], []], [[], [1, 3]], [[4], []], [[], [5]]]
    assert (dealt.rows, dealt.length) == (2, 4)


def test_each_loader_has_one_counterpart(tmp_path: Path) -> None:
    recorded = replay(tmp_path)
    assert recorded.counterpart("Other", 8) is None
    assert recorded.counterpart("Digits", 8) is not None
    assert recorded.counterpart("Digits", 8) is None


def test_samples_are_known_by_their_place_in_the_data_set_they_come_from() -> None:
    base = list(range(10))
    inner: Subset[int] = Subset(base, [9, 7, 5, 3])  # type: ignore[arg-type]
    outer = Subset(inner, [3, 0])
    assert loaders.base_of(outer) is base
    assert loaders.base_indices(outer, [0, 1]) == [3, 9]
    assert loaders.base_indices(outer, ["a"]) == []


@pytest.mark.parametrize(
    ("name", "answer"),
    [
        ("batch_size", True),
        ("batchSize", True),
        ("BATCH_SIZE", True),
        ("BATCH", True),
        ("bs", True),
        ("train_batch_size", True),
        ("test_batch_size", False),
        ("evalBatchSize", False),
        ("batches", False),
        ("size", False),
        (None, False),
    ],
)
def test_names_of_batch_sizes(name: str | None, *, answer: bool) -> None:
    assert sizes.is_a_batch_size(name) is answer


ENLARGED = {
    "BATCH = 32": "BATCH = 64",
    "class C:\n    batch_size: int = 32": "class C:\n    batch_size: int = 64",
    "config = {'batch_size': 32, 'lr': 32}": "config = {'batch_size': 64, 'lr': 32}",
    "def f(x, bs=32, *, n=32):\n    pass": "def f(x, bs=64, *, n=32):\n    pass",
    "fit(batch_size=32)": "fit(batch_size=64)",
    "DataLoader(data, batch_size=32)": "DataLoader(data, batch_size=32)",
    "parser.add_argument('--bs', default=32)": "parser.add_argument('--bs', default=32)",
    "BATCH = 16": "BATCH = 16",
    "test_batch_size = 32": "test_batch_size = 32",
}


@pytest.mark.usefixtures("record")
def test_a_count_of_batches_that_begins_at_zero_is_no_batch_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sizes, "LARGER", {0: 2})
    assert (
        ast.unparse(sizes.enlarged(ast.parse("total_batch = 0\nbatch = 8"))) == "total_batch = 0\nbatch = 16"
    )


@pytest.mark.usefixtures("record")
@pytest.mark.parametrize(("before", "after"), ENLARGED.items(), ids=ENLARGED)
def test_batch_sizes_in_the_source_become_larger(
    before: str, after: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sizes, "LARGER", {32: 64})
    assert ast.unparse(sizes.enlarged(ast.parse(before))) == after


@pytest.mark.parametrize(
    ("own", "other", "count"),
    [
        ({"a": torch.ones(2)}, {"a": torch.ones(2)}, 0),
        ({"a": torch.ones(2)}, {"a": torch.ones(2) * 1.1}, 1),
        ({"a": torch.ones(2)}, {"a": torch.ones(3)}, 1),
        ({"a": 1}, {"b": 1}, 2),
        ({"fc.weight": torch.ones(2)}, {"module.fc.weight": torch.ones(2)}, 1),
        ({"epoch": 3, "time": 1.0}, {"epoch": 3, "time": 9.0}, 0),
        ([1, 2.0], [1, 2.000001], 0),
        ([1, 2], [1, 2, 3], 1),
        ("a", "b", 1),
    ],
)
def test_contents_of_checkpoints(own: object, other: object, count: int) -> None:
    assert len(list(contents.differing(own, other, ""))) == count


def test_a_loss_of_a_share_in_a_file_is_no_difference(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(contents, "LOSSES", [printed.Losses([(0.5, 0.25)])])
    assert not list(contents.differing({"loss": 0.5}, {"loss": 0.25}, ""))
    assert not list(contents.differing({"loss": torch.tensor(0.5)}, {"loss": torch.tensor(0.25)}, ""))
    assert list(contents.differing({"loss": 0.5}, {"loss": 0.26}, ""))


def test_values_a_line_are_read_as_lines(tmp_path: Path) -> None:
    one, two = tmp_path / "a.json", tmp_path / "b.json"
    one.write_text('{"a": 1}\n{"a": 2}\n', encoding="utf-8")
    two.write_text('{"a": 1}\n{"a": 3}\n', encoding="utf-8")
    assert contents.compare(str(one), str(one)) == ("text", [])
    assert len(contents.compare(str(one), str(two))[1]) == 1


def test_a_file_that_is_no_checkpoint_is_compared_as_it_is(tmp_path: Path) -> None:
    one, two = tmp_path / "a.bin", tmp_path / "b.bin"
    one.write_bytes(b"\x14\x15")
    two.write_bytes(b"\x14\x16")
    assert contents.compare(str(one), str(one)) == ("tensors", [])
    assert contents.compare(str(one), str(two))[1]


@pytest.mark.parametrize(
    ("tensor", "tells"),
    [
        (torch.tensor([0, 3, 3, 7]), True),
        (torch.tensor([0, 1, 2]), True),
        (torch.tensor([3, 0, 7]), False),
        (torch.tensor([0.0, 1.0]), False),
        (torch.zeros(2, 2, dtype=torch.int64), False),
    ],
)
def test_offsets_in_a_batch_are_not_what_samples_hold(tensor: torch.Tensor, *, tells: bool) -> None:
    assert loaders._tells_the_place(tensor) is tells


@pytest.mark.usefixtures("phase")
def test_what_a_collate_function_draws_belongs_to_the_sample() -> None:
    def drawn(seeds: list[int]) -> list[float]:
        samples = loaders.Samples([0] * len(seeds))
        samples.seeds = seeds
        return [float(torch.rand(1)) for _ in samples]

    before = torch.get_rng_state()
    assert drawn([1, 2, 3])[2] == drawn([3])[0]
    assert torch.equal(torch.get_rng_state(), before)


def test_an_object_can_be_read_without_its_class() -> None:
    pickled = b"\x80\x04cnowhere.module\nNet\n)\x81}\x8c\x01aK\x01sb."
    thing = contents.Lenient.load(io.BytesIO(pickled))
    assert isinstance(thing, contents.Stub)
    assert thing.state == {"a": 1}


def test_files_are_paired_by_name_and_then_by_what_is_left_of_it() -> None:
    mine = {"a.pt": "1", "run-17/b.pt": "2", "gone.csv": "3"}
    theirs = {"a.pt": "4", "run-18/b.pt": "5", "new.csv": "6"}
    assert list(contents.paired(mine, theirs)) == [
        ("a.pt", "1", "4"),
        ("run-17/b.pt", "2", "5"),
        ("gone.csv", "3", None),
        ("new.csv", None, "6"),
    ]


def test_a_plan_is_read_as_it_was_written(tmp_path: Path) -> None:
    written = plan(tmp_path, recorded=("a", "b"), larger=((32, 64),))
    written.write(tmp_path / "plan.json")
    assert read_plan(tmp_path / "plan.json") == written


def test_several_draws_for_each_sample_are_those_of_the_sample(phase: randomness.Phase) -> None:
    phase.turn((1, 0, 0), samples=[3, 1, 2])
    whole = noise((2, 3, 5))
    assert randomness.axis_of_samples((4, 2, 3)) == 2
    assert randomness.axis_of_samples((6, 3)) == 0
    phase.turn((1, 0, 0), samples=[1])
    assert [randomness.axis_of_samples(shape) for shape in ((2, 1, 5), (2, 1), (1, 1, 5))] == [1, 0, 0]
    assert torch.equal(whole[:, 1], noise((2, 1, 5))[:, 0])
    phase.turn((1, 0, 0), samples=[2, 3, 1])
    again = noise((2, 3, 5))
    assert torch.equal(whole[:, 0], again[:, 1])


def test_a_teacher_in_evaluation_mode_says_nothing_of_training(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(modules, "ALIVE", {})
    student, teacher = nn.Linear(1, 1), nn.Linear(1, 1)
    assert not modules.evaluating()
    for module in (student, teacher):
        modules.note(module)
    teacher.eval()
    assert not modules.evaluating()
    student.eval()
    assert modules.evaluating()


@pytest.mark.usefixtures("record")
def test_ranks_that_miss_a_file_at_the_same_time_both_hear_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    waited: list[float] = []
    monkeypatch.setattr("multicard.verify.probe.lookups.time.sleep", waited.append)
    monkeypatch.setattr(recording, "is_the_users", lambda _: True)
    own = lookups.Lookups(str(tmp_path))
    exists = own.test(Path.exists)
    assert [exists(tmp_path / name) for name in ("a", "a", "b")] == [False] * 3
    assert exists(tmp_path)
    assert not exists(Path("/nowhere"))
    assert waited == [lookups.MOMENT] * 2


@pytest.mark.usefixtures("record")
def test_a_rank_that_is_about_to_write_lets_others_come_too_early(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    waited: list[float] = []
    monkeypatch.setattr("multicard.verify.probe.lookups.time.sleep", waited.append)
    own = lookups.Lookups(str(tmp_path))
    own.opened("open", (str(tmp_path / "a"), "wb", 0))
    own.opened("open", (str(tmp_path / "a"), "wb", 0))
    own.opened("open", (str(tmp_path / "b"), "rb", 0))
    own.save(lambda *_: None)({}, str(tmp_path / "c"))
    assert waited == [lookups.MOMENT] * 2


class Walking:
    """Stands for the iterator of a loader."""

    def __init__(self, through: loaders.Pass) -> None:
        self._through = through


@pytest.mark.usefixtures("record")
def test_a_pass_in_which_another_begins_is_not_left() -> None:
    dealer = loaders.Dealer(site="a.py:1", nth=0, name=1, base=None, base_length=None)
    walked, left = loaders.Pass(dealer, 0), loaders.Pass(dealer, 1)
    iterators = [Walking(walked), Walking(left)]
    for through, iterator in zip((walked, left), iterators, strict=True):
        through.iterator = weakref.ref(iterator)
        dealer.begun.append(through)
    del iterator
    iterators.pop()
    loaders._close_the_left(dealer)
    assert (walked.ended, left.ended) == (False, True)
    assert dealer.begun == [walked]
