"""Edits as data, their makers, and the one function that applies them.

An edit never repeats text that it leaves unchanged: wrapping an expression is two insertions.  So rules can
touch one line without knowing of each other, and "nothing outside the edits moves" can be proved.

Text of an edit may hold marks, `«all_reduce_sum»`: a name that the module must have imported.  They are
resolved once, in `plan.settle`, so that no rule can forget an import, add one twice, or hide a user's name.
"""

import ast
import re
import unicodedata
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import NamedTuple

from multicard.source import Module, Span


class Side(IntEnum):
    """What an edit belongs to, where several meet at one byte: ends come before beginnings."""

    CLOSE = 0
    """Ends an expression or a list of arguments."""
    AFTER = 1
    """Comes after a statement."""
    UNGUARD = 2
    """Ends a guard."""
    INDENT = 3
    """Moves a line to the right."""
    BEFORE = 4
    """Comes before a statement."""
    GUARD = 5
    """Begins a guard: what edits put between here and its end moves to the right."""
    OPEN = 6
    """Begins an expression."""
    REPLACE = 7
    """Stands in place of something."""


@dataclass(frozen=True, eq=False, repr=False)
class Edit:
    """Put `text` in place of `span` of `module`.  `reach` is what an insertion goes round or belongs to."""

    module: Module
    span: Span
    text: str
    side: Side = Side.REPLACE
    reach: Span | None = None

    @property
    def order(self) -> tuple[int, int, int, int]:
        """Where the edit comes among those that begin at the same byte: outer pairs enclose inner ones."""
        start, reach = self.span.start, self.reach or self.span
        match self.side:
            case Side.CLOSE:
                return (start, self.side, -reach.start, 0)
            case Side.AFTER | Side.UNGUARD:
                return (start, Side.AFTER, -reach.start, 0 if self.side is Side.UNGUARD else 1)
            case Side.GUARD | Side.OPEN:
                return (start, self.side, -reach.end, 0)
            case _:
                return (start, self.side, 0, 0)


def replace(module: Module, node: ast.AST, text: str) -> Edit:
    """Put `text` in place of a node."""
    return Edit(module, module.span(node), text)


def insert(module: Module, offset: int, text: str, side: Side = Side.BEFORE) -> Edit:
    """Put `text` at a byte."""
    return Edit(module, Span(offset, offset), text, side)


def wrap(module: Module, node: ast.expr, prefix: str, suffix: str) -> tuple[Edit, Edit]:
    """Enclose an expression; of two pairs round the same expression the first is the outer one."""
    span = module.span(node)
    if node in module.bare_generators:
        span = Span(span.start + 1, span.end - 1)
    if _needs_parentheses(module, node):
        prefix, suffix = f"{prefix}(", f"){suffix}"
    return (
        Edit(module, Span(span.start, span.start), prefix, Side.OPEN, span),
        Edit(module, Span(span.end, span.end), suffix, Side.CLOSE, span),
    )


def call_with(module: Module, node: ast.expr, function: str) -> tuple[Edit, Edit]:
    """`node` becomes `function(node)`; not for a starred expression."""
    return wrap(module, node, f"{function}(", ")")


def _needs_parentheses(module: Module, node: ast.expr) -> bool:
    """Whether an expression that stands without parentheses cannot be an argument so."""
    if not isinstance(node, ast.Tuple):
        return node in module.bare_generators or isinstance(node, ast.Yield | ast.YieldFrom)
    try:
        ast.parse(f"[{module.text(node)[1:-1]}\n]")
    except SyntaxError:
        return True  # `a, b`, and also `(a), (b)`
    return not module.text(node).startswith("(")


def attribute(module: Module, node: ast.expr, name: str) -> Edit:
    """`node` becomes `node.name`; the node must be a name, attribute, call or subscript."""
    end = module.span(node).end
    return insert(module, end, f".{name}", Side.CLOSE)


# --- arguments of calls ---------------------------------------------------------------------------


class _Argument(NamedTuple):
    """An argument where it stands: with the parentheses round it, and the comma after it."""

    node: ast.expr | ast.keyword
    span: Span
    comma: int | None


def _arguments(module: Module, call: ast.Call) -> list[_Argument]:
    """The arguments of a call in the order of the source."""
    nodes: list[ast.expr | ast.keyword] = [*call.args, *call.keywords]
    nodes.sort(key=lambda node: module.span(node).start)
    close = module.span(call).end - 1
    found = []
    left = _open_parenthesis(module, call) + 1
    for index, node in enumerate(nodes):
        span = module.span(node)
        if node in module.bare_generators:
            found.append(_Argument(node, Span(span.start + 1, span.end - 1), None))
            break
        right = module.span(nodes[index + 1]).start if index + 1 < len(nodes) else close
        before, after = _code_between(module, left, span.start), _code_between(module, span.end, right)
        comma = after.find(",")
        own = after if comma < 0 else after[:comma]
        start = span.start - len(before.lstrip("\\ \t\f\r\n"))
        end = span.end + own.rfind(")") + 1
        found.append(_Argument(node, Span(start, end), None if comma < 0 else span.end + comma))
        left = span.end + comma + 1
    return found


def _open_parenthesis(module: Module, call: ast.Call) -> int:
    after = module.span(call.func).end
    return after + _code_between(module, after, module.span(call).end).index("(")


def _code_between(module: Module, start: int, end: int) -> str:
    """The bytes between two offsets, one character a byte, with comments blanked out; no strings expected."""
    text = module.data[start:end].decode("latin-1")
    return re.sub(r"#[^\r\n]*", lambda found: " " * len(found[0]), text)


def add_argument(module: Module, call: ast.Call, text: str) -> Edit:
    """Put an argument at the end of a call, in the manner of the last one: line and trailing comma."""
    arguments = _arguments(module, call)
    if not arguments:
        start = _open_parenthesis(module, call) + 1
        end = module.span(call).end - 1
        # Replaces, so that a second argument collides: neither could know that it needs a comma.
        return Edit(module, Span(start - 1, end), f"({module.data[start:end].decode()}{text}")
    last = arguments[-1]
    if last.node in module.bare_generators:
        # The one place where text is repeated: the parentheses that are missing need two places.
        inner = module.data[last.span.start : last.span.end].decode()
        return Edit(module, last.span, f"({inner}), {text}")
    if last.comma is None:
        return insert(module, last.span.end, f", {text}", Side.CLOSE)
    if _begins_line(module, last.span.start) and _ends_line(module, last.comma + 1):
        indent = module.white_space(module.line_of(last.span.start))
        end = _end_of_line(module, last.comma)
        return insert(module, end, f"{module.newline}{indent}{text},", Side.CLOSE)
    return insert(module, last.comma + 1, f" {text},", Side.CLOSE)


def remove_argument(module: Module, call: ast.Call, node: ast.expr | ast.keyword) -> Edit:
    """Take an argument out of a call, with the comma, the lines and the comment that are its own."""
    arguments = _arguments(module, call)
    index = next(index for index, argument in enumerate(arguments) if argument.node is node)
    own = arguments[index]
    if own.comma is not None and _begins_line(module, own.span.start) and _ends_line(module, own.comma + 1):
        line_above = module.starts[module.line_of(own.span.start) - 2]
        return Edit(module, Span(_end_of_line(module, line_above), _end_of_line(module, own.comma)), "")
    if index:
        comma = arguments[index - 1].comma
        assert comma is not None
        gap = module.data[comma + 1 : own.span.start].decode()
        return Edit(module, Span(comma, own.span.end), gap if "#" in gap else "")
    end = own.span.end if own.comma is None else own.comma + 1
    return Edit(module, Span(own.span.start, arguments[1].span.start if len(arguments) > 1 else end), "")


def remove_element(module: Module, display: ast.AST, node: ast.expr) -> Edit:
    """Take an element that is not the first out of a list, with a comma; a comment of the one before stays."""
    elements = getattr(display, "elts", [])
    before, own = (module.span(elements[elements.index(node) + step]) for step in (-1, 0))
    comma = before.end + _code_between(module, before.end, own.start).rindex(",")
    after = _code_between(module, own.end, module.span(display).end).find(",")
    if "#" in module.data[comma : own.start].decode():
        return Edit(module, Span(own.start, own.end + after + 1), "")
    return Edit(module, Span(comma, own.end), "")


def set_argument(module: Module, call: ast.Call, name: str, text: str, position: int | None = None) -> Edit:
    """Give argument `name` the value `text`: in place of the one given, by name or at `position`, or added.

    What `*a` or `**k` in the call hold cannot be seen here; ask before.
    """
    given = keyword_value(call, name)
    if given is not None:
        return replace(module, given.value, text)
    if position is not None and position < len(call.args):
        node = call.args[position]
        if not any(isinstance(earlier, ast.Starred) for earlier in call.args[: position + 1]):
            span = next(argument.span for argument in _arguments(module, call) if argument.node is node)
            return Edit(module, span, text)
    return add_argument(module, call, f"{name}={text}")


def keyword_value(call: ast.Call, name: str) -> ast.keyword | None:
    """The keyword argument `name` of a call."""
    return next((given for given in call.keywords if given.arg == name), None)


# --- statements -----------------------------------------------------------------------------------


def insert_before(module: Module, statement: ast.stmt, *lines: str) -> Edit:
    """Put lines of code before a statement, at its indentation; a suite on one line is cut open.

    Before an `elif` there is no such place: the result does not parse, and the finding goes to the reader.
    """
    place = _Place.of(module, statement)
    if place.lead == "":
        text = "".join(f"{line}{module.newline}{place.indent}" for line in lines)
    else:
        text = place.broken(lines) if place.lead == ":" else place.within_line(lines)
    return Edit(module, Span(place.start, place.start), text, Side.BEFORE)


def insert_after(module: Module, statement: ast.stmt, *lines: str) -> Edit:
    """Put lines of code after a statement, at its indentation; a comment on its last line stays there.

    After an `elif` alone there is no such place: the result does not parse, and the finding goes to the
    reader.
    """
    place = _Place.of(module, statement)
    if place.is_elif:
        return insert_before(module, statement, *lines)
    if place.follower is not None:
        offset, text = place.follower, place.within_line(lines)
    elif place.one_line:
        offset, text = place.end, "".join(f"; {line}" for line in lines)
    else:
        offset = _end_of_statement(module, place.end)
        text = "".join(f"{module.newline}{place.indent}{line}" for line in lines)
    return Edit(module, Span(offset, offset), text, Side.AFTER, Span(place.start, place.end))


def guard(module: Module, statements: Sequence[ast.stmt], header: str) -> tuple[Edit, ...] | None:
    """Put neighbouring statements under `header` (`if rank == 0:`); None where no such line can stand."""
    first, last = (_Place.of(module, statement) for statement in (statements[0], statements[-1]))
    if first.is_elif:
        return None
    reach, indent = Span(first.start, last.end), first.indent
    edits = []
    if first.one_line and first.lead == ";":
        opening = _first_byte(module, module.suites[statements[0]][1][0])
        edits.append(insert(module, opening, f"{module.newline}{indent}"))
    text = f"{header}{module.newline}{indent}{module.unit}"
    if first.lead:
        text = f"{module.newline}{indent}{text}"
    edits.append(Edit(module, Span(reach.start, reach.start), text, Side.GUARD, reach))
    for number in range(module.line_of(reach.start) + 1, module.line_of(reach.end) + 1):
        line = module.line(number)
        if line.strip() and number not in module.string_lines:
            edits.append(insert(module, _after_indent(module, number, indent), module.unit, Side.INDENT))
    if last.follower is None:
        end, text = _end_of_statement(module, last.end), ""
    else:
        end, text = last.follower, f"{module.newline}{indent}"
    edits.append(Edit(module, Span(end, end), text, Side.UNGUARD, Span(last.start, last.end)))
    return tuple(edits)


class _Place(NamedTuple):
    """Where a statement stands among others."""

    module: Module
    start: int
    end: int
    lead: str
    """What stands before it: nothing, the `:` of a suite on the same line, or the `;` of a neighbour."""
    follower: int | None
    """The byte at which the next statement of its line begins."""
    one_line: bool
    """Whether its suite is on the line of its header."""
    indent: str
    """What its line begins with, or would begin with if it had one."""
    is_elif: bool

    @classmethod
    def of(cls, module: Module, statement: ast.stmt) -> "_Place":
        owner, suite = module.suites[statement]
        start, end = _first_byte(module, statement), module.span(statement).end
        index = suite.index(statement)
        following = _first_byte(module, suite[index + 1]) if index + 1 < len(suite) else None
        if following is not None and _lead(module, following)[0] != ";":
            following = None
        lead, _ = _lead(module, start)
        while lead == ";":
            index -= 1
            lead, _ = _lead(module, _first_byte(module, suite[index]))
        one_line = lead == ":"
        if one_line:
            indent = _indent_of_header(module, owner, suite) + module.unit
        else:
            indent = module.white_space(_lead(module, _first_byte(module, suite[index]))[1])
        is_elif = isinstance(statement, ast.If) and module.data.startswith(b"elif", start)
        return cls(module, start, end, _lead(module, start)[0], following, one_line, indent, is_elif)

    def broken(self, lines: Sequence[str]) -> str:
        """The text that puts `lines` on lines of their own where a line has begun already."""
        return "".join(f"{self.module.newline}{self.indent}{line}" for line in (*lines, ""))

    def within_line(self, lines: Sequence[str]) -> str:
        """The text that puts `lines` between two statements of one line."""
        return "".join(f"{line}; " for line in lines) if self.one_line else self.broken(lines)


def _first_byte(module: Module, statement: ast.stmt) -> int:
    """Where a statement begins, decorators included."""
    decorators = getattr(statement, "decorator_list", [])
    if decorators:
        return module.data.rfind(b"@", 0, module.span(decorators[0]).start)
    return module.span(statement).start


def _lead(module: Module, offset: int) -> tuple[str, int]:
    """The last code before a statement on its logical line (`:`, `;` or nothing), and the line of that."""
    number = module.line_of(offset)
    before = module.data[module.starts[number - 1] : offset].strip(b" \t\f")
    while not before and _continues(module, number):
        number -= 1
        before = module.line(number).encode()[:-1].strip(b" \t\f")
    return before[-1:].decode("latin-1"), number


def _indent_of_header(module: Module, owner: ast.AST, suite: Sequence[ast.stmt]) -> str:
    """What the header of a suite begins its line with; headers may go over several lines."""
    if isinstance(owner, ast.match_case):
        keyword = module.data.rfind(b"case", 0, module.span(owner.pattern).start)
        return module.white_space(module.line_of(keyword))
    assert isinstance(owner, ast.stmt | ast.excepthandler), suite
    return module.white_space(_lead(module, module.span(owner).start)[1])


def _continues(module: Module, number: int) -> bool:
    """Whether a backslash joins a line to the one above."""
    return number > 1 and module.line(number - 1).endswith("\\") and number - 1 not in module.comment_lines


def _after_indent(module: Module, number: int, indent: str) -> int:
    """The byte of a line where a further step of indentation goes."""
    line = module.line(number)
    feed = line.rfind("\f", 0, len(line) - len(line.lstrip(" \t\f"))) + 1
    own = line.startswith(indent, feed) and not _continues(module, number)
    return module.starts[number - 1] + feed + (len(indent) if own else 0)


def _begins_line(module: Module, offset: int) -> bool:
    return not module.data[module.starts[module.line_of(offset) - 1] : offset].strip()


def _ends_line(module: Module, offset: int) -> bool:
    """Whether nothing but a comment follows."""
    end = _end_of_line(module, offset)
    return module.line_of(offset) < len(module.starts) and not _code_between(module, offset, end).strip()


def _end_of_line(module: Module, offset: int) -> int:
    number = module.line_of(offset)
    return module.starts[number - 1] + len(module.line(number).encode())


def _end_of_statement(module: Module, offset: int) -> int:
    """The end of the line of a statement that ends its line; before a backslash, if one is there."""
    end = _end_of_line(module, offset)
    return offset if _code_between(module, offset, end).endswith("\\") else end


def delete_statement(block: Sequence[ast.stmt], module: Module, statement: ast.stmt) -> Edit:
    """Take a simple statement out of its block, with its line if that is its own; else it becomes `pass`.

    The last of a block becomes `pass` too: what is put after the block needs its line.
    """
    span = module.span(statement)
    number = module.line_of(span.end)
    alone = _begins_line(module, span.start) and _ends_line(module, span.end)
    if statement is block[-1] or not alone or _continues(module, module.line_of(span.start)):
        return replace(module, statement, "pass")
    start, end = module.starts[module.line_of(span.start) - 1], module.starts[number]
    indent = module.data[start : span.start]
    if module.data.startswith(indent, end):
        # From indentation to indentation, so that what comes before the statement can still be put there.
        return Edit(module, Span(span.start, end + len(indent)), "")
    return Edit(module, Span(start, end), "")


# --- applying -------------------------------------------------------------------------------------


def collide(first: Edit, second: Edit) -> bool:
    """Whether two edits cannot both be made: both want the same bytes, or one catches what the other adds."""
    a, b = first.span, second.span
    if first.module is not second.module or Side.INDENT in (first.side, second.side):
        return False
    if a.start == a.end and b.start == b.end:
        return _guards_cross(first, second) or _caught(first, second) or _caught(second, first)
    if a.start == a.end:
        return b.start < a.start < b.end
    if b.start == b.end:
        return a.start < b.start < a.end
    return a.start < b.end and b.start < a.end


def _guards_cross(first: Edit, second: Edit) -> bool:
    if first.side is not Side.GUARD or second.side is not Side.GUARD or not (first.reach and second.reach):
        return False
    apart = first.reach.end <= second.reach.start or second.reach.end <= first.reach.start
    return not (apart or first.reach.holds(second.reach) or second.reach.holds(first.reach))


def _caught(guard_end: Edit, addition: Edit) -> bool:
    """Whether `for x in y: f(); g()` would have its added `g()` under the guard of `f()`."""
    same = (
        guard_end.side is Side.UNGUARD and addition.side is Side.AFTER and guard_end.reach == addition.reach
    )
    return same and addition.text.startswith(";")


def apply(module: Module, edits: Iterable[Edit]) -> bytes:
    """The module's data with all edits made, in one forward copy; overlapping edits are our fault."""
    own = [edit for edit in edits if edit.module is module]
    # Of two pairs round one expression the first is the outer one: it opens first and closes last.
    keys = {edit: (edit.order, -i if edit.side is Side.CLOSE else i) for i, edit in enumerate(own)}
    pieces: list[bytes] = []
    position, line_begun = 0, ""
    guards: list[str] = []
    for edit in sorted(own, key=keys.__getitem__):
        if edit.span.start < position:
            assert edit.side is Side.INDENT, "edits overlap after settling"
            continue
        if edit.side is Side.UNGUARD and guards:
            guards.pop()
        text = edit.text if edit.side is Side.REPLACE else _moved(edit.text, guards, module)
        if line_begun and edit.span.start == position:
            text = text.removeprefix(line_begun)
        pieces += (module.data[position : edit.span.start], text.encode())
        position = edit.span.end
        white = text[len(text.rstrip(" \t\r\n")) :]
        line_begun = white[white.rindex(module.newline) :] if module.newline in white else ""
        if edit.side is Side.GUARD:
            guards.append(edit.text.rpartition(module.newline)[2])
    return b"".join((*pieces, module.data[position:]))


def _moved(text: str, guards: Sequence[str], module: Module) -> str:
    """Lines that are put inside guards, as far to the right as these move them."""
    for inner in reversed(guards):
        outer = inner.removesuffix(module.unit)
        text = text.replace(f"{module.newline}{outer}", f"{module.newline}{inner}")
    return text


_WORD = re.compile(r"[^\W\d]\w*")
_TOKEN = re.compile(
    r"""
    \#[^\r\n]*
    | (?P<kind>[A-Za-z]{0,2})(?P<quote>\"{3}|'{3}|["'])(?P<body>(?:\\.|(?!(?P=quote)).)*)(?P=quote)?
    | (?P<name>[^\W\d]\w*)
    """,
    re.DOTALL | re.VERBOSE,
)


def names_in(source: str) -> frozenset[str]:
    """Every name in a piece of source, whole or not, also in the fields of f-strings."""
    found: set[str] = set()
    for token in _TOKEN.finditer(source):
        if token["name"]:
            found.add(token["name"])
        elif token["kind"] and "f" in token["kind"].lower():
            found.update(
                word for field in re.findall(r"\{([^{}]*)", token["body"]) for word in _WORD.findall(field)
            )
    return frozenset(unicodedata.normalize("NFKC", name) for name in found)
