import pytest
from hypothesis import given
from hypothesis import strategies as st

from multicard.verify import printed


@pytest.mark.parametrize(
    ("line", "numbers"),
    [
        ("Epoch 3: loss 0.1234, acc 91.5%", ["3", "0.1234", "91.5"]),
        ("lr 1e-3, momentum -0.9", ["1e-3", "-0.9"]),
        ("val loss nan", ["nan"]),
        ("conv2d layer3 has 1,234,567 weights", ["1,234,567"]),
        ("第 2 轮，准确率=0.9412", ["2", "0.9412"]),
        ("[[12  0  3]", ["12", "0", "3"]),
    ],
)
def test_numbers_are_read(line: str, numbers: list[str]) -> None:
    assert [number.text for number in printed.read(line).numbers] == numbers


@pytest.mark.parametrize(
    ("line", "left"),
    [
        ("epoch 1 took 3.2s", ["1"]),
        ("用时=12.5秒", []),
        ("The time elapse of epoch 003 is: 00: 01: 05", ["003"]),
        ("time: 5.21 | loss 0.5", ["0.5"]),
        ("2026-11-30 18:30:27 step 4", ["4"]),
        ("saved runs/20261130-194738-188103/best.pth 2", ["2"]),
        ("120 it/s, 7 right", ["7"]),
        ("acc 0.56 (945 tokens)  13686 tok/s, 31 images per second", ["0.56", "945"]),
        ("总耗时：45.1 秒", []),
        ("steps_per_sec/train 12 27.31 of 3", ["3"]),
        ("saved in runs/1130_224903/best.pth 2", ["2"]),
        ("model_time: 0.0519 (0.0520)  loss: 0.5 (0.6)", ["0.5", "0.6"]),
    ],
)
def test_durations_and_moments_are_not_compared(line: str, left: list[str]) -> None:
    assert [number.text for number in printed.read(line).numbers] == left


@pytest.mark.parametrize(
    ("line", "durations"),
    [
        ("1/7 step {} tot 0ms | loss 0.5", ["171ms", "1s20ms", "1.2s", "2m03s", "1h2m3s"]),
        ("epoch 1 took {}, loss 0.5", ["45 sec", "1 min 5 sec", "1 h 2 min 3 s"]),
        ("[{} left] 3", ["980 ms", "1.02 s", "2m", "0:59", "1:02:03"]),
        ("peak {}", ["980MB", "1.2GB"]),
        ("speed {} 5", ["1.20it/s", "2.1 s/it"]),
    ],
)
def test_a_duration_has_one_shape_whatever_its_units(line: str, durations: list[str]) -> None:
    assert len({printed.read(line.format(duration)) for duration in durations}) == 1


def test_the_same_lines_are_the_same() -> None:
    lines = ["epoch 1 loss 0.5", "epoch 2 loss 0.25", "done"]
    found = printed.compare(lines, lines)
    assert not found.differences
    assert (found.numbers, found.lines) == (4, 3)


def test_lines_of_the_migrated_script_alone_are_told_apart() -> None:
    found = printed.compare(["loss 0.5", "bye"], ["rank 0 of 2", "loss 0.5"])
    assert (found.missing, found.extra) == (("bye",), ("rank # of #",))


@pytest.mark.parametrize(
    ("own", "other"),
    [
        ("seen 357", "seen 358"),
        ("loss 0.5000", "loss 0.5100"),
        ("loss nan", "loss 0.5"),
        ("epoch 3 loss 0.5", "epoch 4 loss 0.5"),
    ],
)
def test_differences_are_found(own: str, other: str) -> None:
    [difference, *_] = printed.compare([own], [other]).differences
    assert (difference.own, difference.other) == (own, other)


def test_a_last_digit_may_differ_once() -> None:
    own = [f"loss 0.{n:04d}" for n in range(1000, 1040)]
    other = ["loss 0.1001", *own[1:]]
    assert not printed.compare(own, other).differences


def test_a_last_digit_may_not_differ_always() -> None:
    own = [f"loss 0.{n:04d}" for n in range(1000, 1040)]
    other = [f"loss 0.{n + 1:04d}" for n in range(1000, 1040)]
    assert len(printed.compare(own, other).differences) == 40


def test_rows_of_a_table_are_a_set() -> None:
    assert not printed.differing_lines(["a,1", "b,2"], ["b,2", "a,1"], in_order=False)
    assert printed.differing_lines(["a,1", "b,2"], ["b,1", "a,2"], in_order=False)


def test_lines_of_a_text_are_in_order() -> None:
    assert printed.differing_lines(["loss 0.5", "loss 0.2"], ["loss 0.2", "loss 0.5"], in_order=True)


@given(st.lists(st.text(max_size=40), max_size=8))
def test_any_text_equals_itself(lines: list[str]) -> None:
    found = printed.compare(lines, lines)
    assert not found.differences
    assert not found.missing


@given(st.floats(-1e6, 1e6), st.integers(0, 6))
def test_a_number_is_near_itself_however_it_is_printed(value: float, digits: int) -> None:
    number = printed.number(f"{value:.{digits}f}")
    assert printed.near(number, number)


def test_what_stands_under_the_name_of_a_duration_is_one() -> None:
    own = ["epoch | loss | seconds", "    1 | 0.51 |    1.25"]
    other = ["epoch | loss | seconds", "    1 | 0.51 |    1.75"]
    assert not printed.compare(own, other).differences
    renamed = [[line.replace("seconds", "accuracy") for line in lines] for lines in (own, other)]
    assert printed.compare(*renamed).differences


LOSSES = printed.Losses([(0.6123, 0.6911), (0.9, 0.4)])


@pytest.mark.parametrize(
    ("own", "other", "differs"),
    [
        ("last batch 0.612", "last batch 0.691", False),
        ("last batch 0.612", "last batch 0.692", True),
        ("last batch 0.900", "last batch 0.691", True),
        ("last batch 0.9", "last batch 0.4", True),
    ],
    ids=["of one step", "of none", "of two steps", "too short to be known"],
)
def test_losses_of_a_share_are_told_apart(own: str, other: str, *, differs: bool) -> None:
    found = printed.compare([own], [other], losses=LOSSES)
    assert (bool(found.differences), bool(found.shares)) == (differs, not differs)


@pytest.mark.parametrize(
    ("said", "differs"),
    [(["acc 12.50% val 50.00%"], False), (["acc 13.50% val 50.00%"], True), ([], True)],
    ids=["the mean", "not the mean", "nothing"],
)
def test_a_number_of_which_the_original_has_the_mean_is_a_share(said: list[str], *, differs: bool) -> None:
    found = printed.compare(["acc 18.75% val 50.00%"], ["acc 25.00% val 50.00%"], said=[said])
    assert (bool(found.differences), bool(found.shares)) == (differs, not differs)
