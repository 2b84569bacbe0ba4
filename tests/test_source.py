"""A file is read by its own encoding and given back in it; every place in it is found."""

import ast
import codecs
from pathlib import Path

import pytest
from hypothesis import given, settings
from shapes import programs

from multicard.errors import SourceError
from multicard.source import Module, Site, parse, parse_text, read

PATH = Path("train.py")


def module(text: str) -> Module:
    return parse_text(PATH, "train", text)


FILES = {
    "UTF-8": "损失 = 'é'\n".encode(),
    "a byte order mark": codecs.BOM_UTF8 + "损失 = 1\n".encode(),
    "a byte order mark and a cookie": codecs.BOM_UTF8 + b"# coding: utf-8\nx = 1\n",
    "gbk": "# -*- coding: gbk -*-\nx = '损失'\n".encode("gbk"),
    "gb18030 in the second line": "#!/usr/bin/python\n# coding=gb18030\nx = '损失'\n".encode("gb18030"),
    "latin-1": "# coding: latin-1\nx = 'é'\r\n".encode("latin-1"),
    "lone CR": b"x = 1\ry = 2\r",
    "form feed": b"\x0c\nx = 1\n\x0cy = 2\n",
    "empty": b"",
}


@pytest.mark.parametrize("raw", FILES.values(), ids=FILES)
def test_a_file_comes_back_byte_for_byte(raw: bytes, tmp_path: Path) -> None:
    path = tmp_path / "train.py"
    path.write_bytes(raw)
    source = read(path, "train")
    assert source.encode(source.data) == raw


def test_a_cookie_names_the_encoding_of_what_is_written() -> None:
    source = parse(PATH, "train", "# coding: gbk\nx = '损失'\n".encode("gbk"))
    assert source.encoding == "gbk"
    assert source.encode("x = '精度'\n".encode()) == "x = '精度'\n".encode("gbk")


REFUSED = {
    "an unknown encoding": (b"# coding: klingon\n", "cannot be decoded"),
    "bytes of another encoding": ("x = '损失'\n".encode("gbk"), "cannot be decoded"),
    "no text encoding": (b"# coding: hex\n", "cannot be decoded"),
    "an encoding that cannot be undone": (
        b"# coding: utf-7\nx = '+AGE-'\n",
        "cannot be written back in utf-7",
    ),
    "a syntax error": (b"x = 1\nif x\n", "train.py:2: syntax error: expected ':'"),
    "a null byte": (b"x = '\0'\n", "null bytes"),
    "nested too deep": (b"x = " + b"-" * 100_000 + b"1\n", "syntax error: "),
}


@pytest.mark.parametrize(("raw", "reason"), REFUSED.values(), ids=REFUSED)
def test_what_cannot_be_read_is_said_in_one_line(raw: bytes, reason: str) -> None:
    with pytest.raises(SourceError) as caught:
        parse(PATH, "train", raw)
    assert reason in caught.value.text.en
    for line in (caught.value.text.en, caught.value.text.zh):
        assert line.startswith(("train.py:", "train.py："))
        assert "\n" not in line


def test_a_missing_file_is_said_in_one_line(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match="No such file"):
        read(tmp_path / "none.py", "none")


def test_new_text_that_the_encoding_lacks_is_said_in_one_line() -> None:
    source = parse(PATH, "train", "# coding: latin-1\nx = 'é'\n".encode("latin-1"))
    with pytest.raises(SourceError, match="iso-8859-1 has no '损失'"):
        source.encode("x = '损失'\n".encode())


@settings(deadline=None)
@given(programs())
def test_the_span_of_a_node_holds_its_source(text: str) -> None:
    source = module(text)
    for node in ast.walk(source.tree):
        if isinstance(node, ast.Name | ast.Attribute | ast.Call) and node not in source.bare_generators:
            again = ast.parse(f"({source.text(node)}\n)", mode="eval").body
            assert _loaded(again) == _loaded(node)


def _loaded(node: ast.AST) -> str:
    return ast.dump(node).replace("Store()", "").replace("Load()", "")


@settings(deadline=None)
@given(programs())
def test_lines_are_those_that_people_count(text: str) -> None:
    source = module(text)
    lines = text.replace("\r\n", "\n").replace("\r", "\n").split("\n")
    assert [source.line(number + 1) for number in range(len(lines))] == lines
    for number, start in enumerate(source.starts, 1):
        assert source.line_of(start) == number


UNITS = {
    "four": ("if x:\n    y\n", "    "),
    "two": ("def f():\n  if x:\n    y\n", "  "),
    "three": ("if x:\n   y\n", "   "),
    "tabs": ("if x:\n\ty\n", "\t"),
    "none to see": ("if x: y\n", "    "),
    "text in a docstring is no code": ('"""\n  a\n"""\nif x:\n        y\n', "        "),
    "the rest of a call is no suite": ("f(\n  x)\nif x:\n    y\n", "    "),
    "only inside a suite on one line's neighbour": ("if x: y\nelse:\n  z\n", "  "),
}


@pytest.mark.parametrize(("text", "unit"), UNITS.values(), ids=UNITS)
def test_a_step_of_indentation_is_the_files_own(text: str, unit: str) -> None:
    assert module(text).unit == unit


@pytest.mark.parametrize(("text", "newline"), [("x", "\n"), ("x\r\ny\n", "\r\n"), ("x\ry", "\r")])
def test_the_line_end_is_that_of_the_first_line(text: str, newline: str) -> None:
    assert module(text).newline == newline


def test_lines_inside_a_string_are_known() -> None:
    source = module('x = ("a"\n"b")\ny = f"""\n{z}\n"""\nw = "\\\n"\n')
    assert source.string_lines == {4, 5, 7}


def test_a_place_reads_as_editors_read_it() -> None:
    source = parse_text(Path("folder/train.py"), "train", "x = 1\ny = 2\n")
    site = Site(source, source.tree.body[1])
    assert (str(site), site.line) == ("train.py:2", 2)


def test_a_warning_about_the_script_is_no_error() -> None:
    assert module('x = "\\d"\n').text(module('x = "\\d"\n').tree.body[0]) == 'x = "\\d"'
