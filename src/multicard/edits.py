"""Edits as data, their makers, and the one function that applies them.

An edit never repeats text that it leaves unchanged: wrapping an expression is two insertions.  So rules can touch
one line without knowing of each other, and "nothing outside the edits moves" can be proved.

Text of an edit may hold marks, `«all_reduce_sum»`: a name that the module must have imported.  They are resolved
once, in `plan.settle`, so that no rule can forget an import, add one twice, or hide a name of the user's.
"""

import ast
import io
import re
import tokenize
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace as changed
from enum import IntEnum

from multicard.source import Module, Span


class Side(IntEnum):
    """What an insertion belongs to, where several meet at one byte: ends come before beginnings."""

    CLOSE = 0
    AFTER = 1
    REPLACE = 2
    BEFORE = 3
    OPEN = 4


@dataclass(frozen=True, eq=False)
class Edit:
    """Put `text` in place of `span` of `module`.  `reach` is the span that a wrapping pair encloses."""

    module: Module
    span: Span
    text: str
    side: Side = Side.REPLACE
    reach: Span | None = None

    @property
    def order(self) -> tuple[int, int, int, int]:
        """Where the edit comes among those that begin at the same byte: outer pairs enclose inner ones."""
        reach = self.reach or self.span
        if self.side is Side.CLOSE:
            return (self.span.start, self.side, -reach.start, 0)
        return (self.span.start, self.side, -reach.end, 0)


def replace(module: Module, node: ast.AST, text: str) -> Edit:
    """Put `text` in place of a node."""
    return Edit(module, module.span(node), text)


def insert(module: Module, offset: int, text: str, side: Side = Side.BEFORE) -> Edit:
    """Put `text` at a byte."""
    return Edit(module, Span(offset, offset), text, side)


def wrap(module: Module, node: ast.expr, prefix: str, suffix: str) -> tuple[Edit, Edit]:
    """Enclose an expression, together with the parentheses that already stand round it."""
    span = parenthesised(module, node)
    return (
        Edit(module, Span(span.start, span.start), prefix, Side.OPEN, span),
        Edit(module, Span(span.end, span.end), suffix, Side.CLOSE, span),
    )


def call_with(module: Module, node: ast.expr, function: str) -> tuple[Edit, Edit]:
    """`node` becomes `function(node)`; a bare generator or starred expression is not expected here."""
    span = module.span(node)
    return (
        Edit(module, Span(span.start, span.start), f"{function}(", Side.OPEN, span),
        Edit(module, Span(span.end, span.end), ")", Side.CLOSE, span),
    )


def parenthesised(module: Module, node: ast.expr) -> Span:
    """The span of an expression; `ast` leaves its own parentheses out and so does this, on purpose."""
    return module.span(node)


def attribute(module: Module, node: ast.expr, name: str) -> Edit:
    """`node` becomes `node.name`; the node must be a name, attribute, call or subscript."""
    span = module.span(node)
    return Edit(module, Span(span.end, span.end), f".{name}", Side.CLOSE, span)


# --- arguments of calls -----------------------------------------------------------------------------------------


def add_argument(module: Module, call: ast.Call, text: str) -> Edit:
    """Put an argument at the end of a call, minding a trailing comma and a bare generator argument."""
    close = module.span(call).end - 1
    given: list[ast.AST] = [*call.args, *call.keywords]
    if not given:
        return insert(module, close, text, Side.CLOSE)
    last = max(module.span(node).end for node in given)
    tail = _code_between(module, last, close)
    comma = tail.find(",")
    if len(call.args) == 1 and not call.keywords and isinstance(call.args[0], ast.GeneratorExp):
        span = module.span(call.args[0])
        if span.start == module.data.rfind(b"(", 0, span.start + 1) and span.end == close + 1:
            return insert(module, close, f"), {text}", Side.CLOSE)
    if comma >= 0:
        return insert(module, last + comma + 1, f" {text},", Side.CLOSE)
    rest = tail.rfind(")")
    return insert(module, last + rest + 1, f", {text}", Side.CLOSE)


def _code_between(module: Module, start: int, end: int) -> str:
    """The bytes between two offsets, one character a byte, with comments blanked out."""
    text = module.data[start:end].decode("latin-1")
    return re.sub(r"#[^\r\n]*", lambda found: " " * len(found[0]), text)


def remove_argument(module: Module, call: ast.Call, node: ast.expr | ast.keyword) -> Edit:
    """Take an argument out of a call, with the comma that belongs to it."""
    given = sorted([*call.args, *call.keywords], key=lambda item: module.span(item).start)
    index = given.index(node)
    span = module.span(node)
    if index + 1 < len(given):
        return Edit(module, Span(span.start, module.span(given[index + 1]).start), "")
    if index:
        before = module.span(given[index - 1]).end
        gap = _code_between(module, before, span.start)
        return Edit(module, Span(before + gap.index(","), span.end), "")
    return Edit(module, span, "")


def keyword_value(call: ast.Call, name: str) -> ast.keyword | None:
    """The keyword argument `name` of a call."""
    return next((given for given in call.keywords if given.arg == name), None)


# --- statements ---------------------------------------------------------------------------------------------------


def insert_before(module: Module, statement: ast.stmt, *lines: str) -> Edit:
    """Put lines of code before a statement, at its indentation; a suite on one line is cut open."""
    start = _first_byte(module, statement)
    if _begins_its_line(module, start):
        indent = _indent_at(module, start)
        text = "".join(f"{line}{module.newline}{indent}" for line in lines)
        return insert(module, start, text)
    if _opens_suite(module, start):
        indent = _indent_of_line(module, start) + module.unit
        text = module.newline + indent + "".join(f"{line}{module.newline}{indent}" for line in lines)
        return insert(module, start, text)
    return insert(module, start, "".join(f"{line}; " for line in lines))


def insert_after(module: Module, statement: ast.stmt, *lines: str) -> Edit:
    """Put lines of code after a statement, at its indentation; a comment on its last line stays there."""
    span = module.span(statement)
    start = _first_byte(module, statement)
    end = _end_of_line(module, span.end)
    rest = _code_between(module, span.end, end)
    if not _begins_its_line(module, start):
        simple = "; ".join(lines)
        return insert(module, span.end, f"; {simple}", Side.AFTER)
    indent = _indent_at(module, start)
    if rest.strip().startswith(";"):
        semicolon = span.end + rest.index(";") + 1
        if module.data[semicolon:end].split(b"#")[0].strip():
            return insert(module, span.end, "; " + "; ".join(lines), Side.AFTER)
    text = "".join(f"{module.newline}{indent}{line}" for line in lines)
    return insert(module, end, text, Side.AFTER)


def guard(module: Module, statements: Sequence[ast.stmt], header: str) -> tuple[Edit, ...] | None:
    """Put neighbouring statements under `header` (`if rank == 0:`); None where they do not stand on own lines."""
    first, last = statements[0], statements[-1]
    start = _first_byte(module, first)
    end = module.span(last).end
    alone = not _code_between(module, end, _end_of_line(module, end)).strip()
    if not _begins_its_line(module, start):
        if len(statements) == 1 and _opens_suite(module, start) and alone and _is_simple(first):
            indent = _indent_of_line(module, start) + module.unit
            text = f"{module.newline}{indent}{header}{module.newline}{indent}{module.unit}"
            return (insert(module, start, text),)
        return None
    if not alone:
        return None
    indent = _indent_at(module, start)
    edits = [insert(module, start, f"{header}{module.newline}{indent}{module.unit}", Side.OPEN)]
    first_line = module.line_of(start)
    for number in range(first_line + 1, module.line_of(end) + 1):
        line = module.line(number)
        if line.strip() and number not in module.string_lines:
            edits.append(insert(module, module.starts[number - 1], module.unit, Side.OPEN))
    reach = Span(start, end)
    return tuple(changed(edit, reach=reach) for edit in edits)


def _is_simple(statement: ast.stmt) -> bool:
    return not hasattr(statement, "body")


def _first_byte(module: Module, statement: ast.stmt) -> int:
    decorators = getattr(statement, "decorator_list", [])
    if decorators:
        return module.data.rfind(b"@", 0, module.span(decorators[0]).start + 1)
    return module.span(statement).start


def _line_start(module: Module, offset: int) -> int:
    return module.starts[module.line_of(offset) - 1]


def _end_of_line(module: Module, offset: int) -> int:
    number = module.line_of(offset)
    return module.starts[number - 1] + len(module.line(number).encode())


def _begins_its_line(module: Module, offset: int) -> bool:
    if module.data[_line_start(module, offset) : offset].strip():
        return False
    line = module.line_of(offset)
    return line == 1 or not module.line(line - 1).endswith("\\")


def _indent_at(module: Module, offset: int) -> str:
    return module.data[_line_start(module, offset) : offset].decode()


def _indent_of_line(module: Module, offset: int) -> str:
    line = module.line(module.line_of(offset))
    return line[: len(line) - len(line.lstrip(" \t\f"))]


def _opens_suite(module: Module, offset: int) -> bool:
    before = module.data[_line_start(module, offset) : offset].rstrip()
    return before.endswith(b":")


# --- applying -----------------------------------------------------------------------------------------------------


def collide(first: Edit, second: Edit) -> bool:
    """Whether two edits want the same bytes: both replace some, or one lies inside what the other replaces."""
    if first.module is not second.module:
        return False
    a, b = first.span, second.span
    if a.start == a.end and b.start == b.end:
        return False
    if a.start == a.end:
        return b.start < a.start < b.end
    if b.start == b.end:
        return a.start < b.start < a.end
    return a.start < b.end and b.start < a.end


def apply(module: Module, edits: Iterable[Edit]) -> bytes:
    """The module's data with all edits made, in one forward copy; overlapping edits are our fault."""
    pieces: list[bytes] = []
    position = 0
    for edit in sorted((edit for edit in edits if edit.module is module), key=lambda edit: edit.order):
        assert edit.span.start >= position, "edits overlap after settling"
        pieces += (module.data[position : edit.span.start], edit.text.encode())
        position = edit.span.end
    return b"".join((*pieces, module.data[position:]))


def names_in(source: str) -> frozenset[str]:
    """Every name token of a piece of source."""
    tokens = tokenize.generate_tokens(io.StringIO(source).readline)
    return frozenset(token.string for token in tokens if token.type == tokenize.NAME)
