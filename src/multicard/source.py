"""One source file as text, tree and byte positions.

`ast` counts lines and UTF-8 bytes; people count lines.  This is the one place that converts, so that an edit
can say which bytes it replaces and every other byte of the file stays as it was, whatever its encoding and
line ends.
"""

import ast
import codecs
import io
import re
import tokenize
import warnings
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

from multicard.errors import SourceError
from multicard.messages import Text
from multicard.tree import nodes

_PLACED = (ast.expr, ast.stmt, ast.keyword, ast.arg, ast.alias, ast.excepthandler, ast.pattern)
"""Nodes that know where they stand."""
_SUITES = ("body", "handlers", "cases", "orelse", "finalbody")
_LINE_END = re.compile(rb"\r\n|\r|\n")


class Span(NamedTuple):
    """A half-open range of UTF-8 bytes of a module's text."""

    start: int
    end: int

    def holds(self, other: "Span") -> bool:
        """Whether `other` lies inside."""
        return self.start <= other.start and other.end <= self.end


@dataclass(frozen=True, eq=False, repr=False)
class Module:
    """One parsed file.  `data` is its text in UTF-8 without a byte order mark: what spans count in."""

    path: Path
    name: str
    data: bytes
    tree: ast.Module
    encoding: str
    bom: bytes = b""
    starts: tuple[int, ...] = field(default=(), repr=False)

    def offset(self, line: int, column: int) -> int:
        """The byte at `column` (bytes) of `line` (from 1), as `ast` counts."""
        return self.starts[line - 1] + column

    def span(self, node: ast.AST) -> Span:
        """The bytes of a node; of a decorated definition without its decorators."""
        assert isinstance(node, _PLACED)
        assert node.end_lineno is not None
        assert node.end_col_offset is not None
        return Span(
            self.offset(node.lineno, node.col_offset), self.offset(node.end_lineno, node.end_col_offset)
        )

    def text(self, node: ast.AST) -> str:
        """The source of a node."""
        span = self.span(node)
        return self.data[span.start : span.end].decode()

    def line_of(self, offset: int) -> int:
        """The line (from 1) that holds a byte."""
        low, high = 0, len(self.starts)
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if self.starts[middle] <= offset else (low, middle)
        return low + 1

    def line(self, number: int) -> str:
        """The text of a line, without its end."""
        end = self.starts[number] if number < len(self.starts) else len(self.data)
        return self.data[self.starts[number - 1] : end].decode().rstrip("\r\n")

    def indent(self, node: ast.stmt) -> str:
        """The white space that a statement on a line of its own begins with."""
        return self.white_space(node.lineno)

    def white_space(self, number: int) -> str:
        """What a line begins with; a form feed, and what stands before it, does not count."""
        line = self.line(number)
        return line[: len(line) - len(line.lstrip(" \t\f"))].rpartition("\f")[2]

    @cached_property
    def unit(self) -> str:
        """One step of indentation, as this file makes it."""
        for statement, (owner, _) in self.suites.items():
            start = self.starts[statement.lineno - 1]
            before = self.data[start : start + statement.col_offset]
            if isinstance(owner, ast.stmt) and not before.strip():
                inner, outer = self.indent(statement), self.indent(owner)
                if len(inner) > len(outer) and inner.startswith(outer):
                    return inner[len(outer) :]
        return "    "

    @cached_property
    def newline(self) -> str:
        """The line end of this file: its first."""
        found = _LINE_END.search(self.data)
        return found[0].decode() if found else "\n"

    @cached_property
    def suites(self) -> dict[ast.stmt, tuple[ast.AST, list[ast.stmt]]]:
        """What each statement stands under, and the statements that it stands among."""
        found: dict[ast.stmt, tuple[ast.AST, list[ast.stmt]]] = {}
        owners: list[ast.AST] = [self.tree]
        for owner in owners:
            for name in owner._fields:
                members: list[ast.stmt] = getattr(owner, name) if name in _SUITES else []
                for member in members:
                    owners.append(member)
                    if isinstance(member, ast.stmt):
                        found[member] = owner, members
        return found

    @cached_property
    def bare_generators(self) -> frozenset[ast.expr]:
        """Generators that share their parentheses with the call: `sum(x for x in y)`."""
        return frozenset(
            call.args[0]
            for call in nodes(self.tree, ast.Call)
            if [type(argument) for argument in call.args] == [ast.GeneratorExp]
            and self.span(call.args[0]).end == self.span(call).end
        )

    @cached_property
    def string_lines(self) -> frozenset[int]:
        """Lines that begin inside a string: white space before them is the string's, not the code's."""
        inside: set[int] = set()
        strings = []
        for token in self._tokens:
            name = tokenize.tok_name[token.type]
            if name in ("FSTRING_START", "TSTRING_START"):
                strings.append(token.start[0])
            elif name in ("FSTRING_END", "TSTRING_END"):
                inside.update(range(strings.pop() + 1, token.end[0] + 1))
            elif name == "STRING":
                inside.update(range(token.start[0] + 1, token.end[0] + 1))
        return frozenset(inside)

    @cached_property
    def comment_lines(self) -> frozenset[int]:
        """Lines that hold a comment: a backslash at their end joins nothing."""
        return frozenset(token.start[0] for token in self._tokens if token.type == tokenize.COMMENT)

    @property
    def _tokens(self) -> Iterator[tokenize.TokenInfo]:
        return tokenize.generate_tokens(io.StringIO(self.data.decode(), newline=None).readline)

    def encode(self, data: bytes) -> bytes:
        """`data` (UTF-8) in this file's encoding, mark and all; raises `SourceError` where that cannot be."""
        try:
            return self.bom + data.decode().encode(self.encoding)
        except UnicodeEncodeError as error:
            letters = error.object[error.start : error.end]
            why = Text(
                f"{self.path}: its encoding {self.encoding} has no {letters!r}, which its new text needs",
                f"{self.path}：新内容需要的 {letters!r} 无法用该文件的编码 {self.encoding} 表示",
            )
            raise SourceError(why) from None


class Site(NamedTuple):
    """A place that a reader can be sent to."""

    module: Module
    node: ast.expr | ast.stmt

    @property
    def line(self) -> int:
        """The line, from 1."""
        return self.node.lineno

    def __str__(self) -> str:
        """The place as editors understand it: `train.py:12`."""
        return f"{self.module.path.name}:{self.node.lineno}"


def parse(path: Path, name: str, raw: bytes) -> Module:
    """Decode by byte order mark or cookie and parse the text; raises `SourceError` in one line."""
    bom = codecs.BOM_UTF8 if raw.startswith(codecs.BOM_UTF8) else b""
    try:
        encoding = tokenize.detect_encoding(io.BytesIO(raw).readline)[0].replace("utf-8-sig", "utf-8")
        text = raw[len(bom) :].decode(encoding)
        returns = text.encode(encoding) == raw[len(bom) :]
    except (SyntaxError, UnicodeError, LookupError) as error:
        why = Text(f"{path}: cannot be decoded: {error}", f"{path}：无法解码：{error}")
        raise SourceError(why) from None
    if not returns:
        why = Text(
            f"{path}: cannot be written back in {encoding} as it was",
            f"{path}：用 {encoding} 编码写回后内容会改变",
        )
        raise SourceError(why)
    return parse_text(path, name, text, encoding=encoding, bom=bom)


def parse_text(path: Path, name: str, text: str, *, encoding: str = "utf-8", bom: bytes = b"") -> Module:
    """Parse `text`; raises `SourceError` in one line, with the place."""
    try:
        data = text.encode()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # `"\d"` in a script is for its author to hear of, from Python
            tree = ast.parse(text, filename=str(path))
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        line = getattr(error, "lineno", None)
        place = f"{path}:{line}" if line else str(path)
        message = getattr(error, "msg", None) or str(error) or type(error).__name__
        why = Text(f"{place}: syntax error: {message}", f"{place}：语法错误：{message}")
        raise SourceError(why) from None
    starts = (0, *(match.end() for match in _LINE_END.finditer(data)))
    return Module(path, name, data, tree, encoding, bom, starts)


def read(path: Path, name: str) -> Module:
    """Read and parse one file; raises `SourceError` where it cannot."""
    try:
        raw = path.read_bytes()
    except OSError as error:
        why = reason(error)
        raise SourceError(Text(f"{path}: {why.en}", f"{path}：{why.zh}")) from None
    return parse(path, name, raw)


def reason(error: OSError) -> Text:
    """What the system said, in a few words."""
    said = error.strerror or str(error)
    match error:
        case FileNotFoundError():
            return Text(said, "没有这个文件或文件夹")
        case PermissionError():
            return Text(said, "没有权限")
        case IsADirectoryError():
            return Text(said, "是文件夹，不是文件")
        case _:
            return Text(said, said)


def compile_quietly(text: str, name: str) -> None:
    """Raise `SyntaxError` where Python would; what it only warns of, the author hears from Python."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        compile(text, name, "exec", dont_inherit=True)
