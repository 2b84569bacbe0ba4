"""Edits do in the text what they say, and nothing else, on every shape of statement and call."""

import ast
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from shapes import programs

from multicard.edits import (
    Edit,
    add_argument,
    apply,
    attribute,
    call_with,
    collide,
    delete_statement,
    guard,
    insert_after,
    insert_before,
    names_in,
    remove_argument,
    remove_element,
    replace,
    set_argument,
    wrap,
)
from multicard.source import Module, parse_text

Suite = list[ast.stmt]
slow_to_draw = settings(
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large], deadline=None
)


def module(text: str) -> Module:
    return parse_text(Path("train.py"), "train", text)


def made(text: Module, *edits: Edit) -> str:
    return apply(text, edits).decode()


def same(result: str, expected: ast.AST) -> bool:
    return ast.dump(ast.parse(result)) == ast.dump(expected)


# --- properties over whole programs ---------------------------------------------------------------


@slow_to_draw
@given(programs())
def test_applying_nothing_is_the_identity(text: str) -> None:
    assert made(module(text)) == text


class _Wrapped(ast.NodeTransformer):
    def visit_Call(self, node: ast.Call) -> ast.AST:
        self.generic_visit(node)
        return ast.Call(
            ast.Name("outer", ast.Load()), [ast.Call(ast.Name("inner", ast.Load()), [node], [])], []
        )


@slow_to_draw
@given(programs())
def test_every_call_can_be_wrapped_twice_at_once(text: str) -> None:
    source = module(text)
    calls = [node for node in ast.walk(source.tree) if isinstance(node, ast.Call)]
    outer = [edit for call in calls for edit in call_with(source, call, "outer")]
    inner = [edit for call in calls for edit in wrap(source, call, "inner(", ")")]
    assert same(made(source, *outer, *inner), _Wrapped().visit(ast.parse(text)))


@slow_to_draw
@given(programs(), st.data())
def test_arguments_come_and_go_in_any_call(text: str, data: st.DataObject) -> None:
    source, expected = module(text), ast.parse(text)
    edits: list[Edit] = []
    pairs = zip(ast.walk(source.tree), ast.walk(expected), strict=True)
    for call, twin in [(c, t) for c, t in pairs if isinstance(c, ast.Call) and isinstance(t, ast.Call)]:
        given_: list[ast.expr | ast.keyword] = [*call.args, *call.keywords]
        twins = [*twin.args, *twin.keywords]
        change = data.draw(st.sampled_from(("nothing", "add", "remove", "both", "set")))
        new: list[Edit] = []
        if change in ("remove", "both") and given_:
            index = data.draw(st.integers(0, len(given_) - 1))
            new.append(remove_argument(source, call, given_[index]))
            twin.args = [a for a in twin.args if a is not twins[index]]
            twin.keywords = [a for a in twin.keywords if a is not twins[index]]
        if change == "add" or (change == "both" and len(given_) > 1):
            new.append(add_argument(source, call, "new=0"))
            twin.keywords.append(ast.keyword("new", ast.Constant(0)))
        if change == "set":
            new.append(set_argument(source, call, "y", "0", position=0))
            _set(twin)
        if any(collide(a, b) for a in new for b in edits):
            return  # an argument that holds a call which changes too: `settle` drops one of the two
        edits += new
    assert same(made(source, *edits), expected)


def _set(call: ast.Call) -> None:
    for given_ in call.keywords:
        if given_.arg == "y":
            given_.value = ast.Constant(0)
            return
    if call.args and not isinstance(call.args[0], ast.Starred):
        call.args[0] = ast.Constant(0)
    else:
        call.keywords.append(ast.keyword("y", ast.Constant(0)))


@slow_to_draw
@given(programs(), st.data())
def test_statements_gain_neighbours_and_guards_that_nest(text: str, data: st.DataObject) -> None:
    source = module(text)
    edits: list[Edit] = []
    before: dict[ast.stmt, Suite] = {}
    after: dict[ast.stmt, Suite] = {}
    guards: dict[ast.stmt, list[tuple[ast.stmt, str]]] = {}

    def accepted(new: tuple[Edit, ...] | None) -> bool:
        if new is None or any(collide(a, b) for a in new for b in edits):
            return False
        edits.extend(new)
        return True

    def name(kind: str) -> str:
        return f"{kind}{len(edits)}"

    for statement, (_, suite) in source.suites.items():
        if source.text(statement).startswith("elif"):
            continue
        if data.draw(st.integers(0, 2)) == 0:
            code = name("before")
            if accepted((insert_before(source, statement, code, "é"),)):
                before[statement] = ast.parse(f"{code}\né").body
        if data.draw(st.integers(0, 2)) == 0:
            code = name("after")
            if accepted((insert_after(source, statement, code, "é"),)):
                after[statement] = ast.parse(f"{code}\né").body
        if data.draw(st.integers(0, 2)) == 0:
            last = suite[data.draw(st.integers(suite.index(statement), len(suite) - 1))]
            members = suite[suite.index(statement) : suite.index(last) + 1]
            test = name("guard")
            if accepted(guard(source, members, f"if {test}:")):
                guards.setdefault(statement, []).append((last, test))
    calls = [node for node in ast.walk(source.tree) if isinstance(node, ast.Call)]
    for call in calls:
        edits.extend(call_with(source, call, "outer"))

    result = made(source, *edits)
    expected = _Grown(before, after, guards).visit(source.tree)
    assert same(result, expected), result


class _Grown(ast.NodeTransformer):
    """Does on the tree what the edits do in the text."""

    def __init__(
        self,
        before: dict[ast.stmt, Suite],
        after: dict[ast.stmt, Suite],
        guards: dict[ast.stmt, list[tuple[ast.stmt, str]]],
    ) -> None:
        self.before, self.after, self.guards = before, after, guards

    def visit_Call(self, node: ast.Call) -> ast.AST:
        self.generic_visit(node)
        return ast.Call(ast.Name("outer", ast.Load()), [node], [])

    def generic_visit(self, node: ast.AST) -> ast.AST:
        for field in ("body", "orelse", "finalbody"):
            suite = getattr(node, field, None)
            if isinstance(suite, list):
                spans = [
                    (index, suite.index(last), test)
                    for index, statement in enumerate(suite)
                    for last, test in self.guards.get(statement, [])
                ]
                spans.sort(key=lambda span: span[0] - span[1])
                grown = self._grown(suite, 0, len(suite) - 1, spans, hoisted=(False, False))
                setattr(node, field, grown)
        for field, value in ast.iter_fields(node):
            if field not in ("body", "orelse", "finalbody") or not isinstance(value, list):
                children = value if isinstance(value, list) else [value]
                visited = [self.visit(child) if isinstance(child, ast.AST) else child for child in children]
                setattr(node, field, visited if isinstance(value, list) else visited[0])
        return node

    def _grown(
        self,
        suite: Suite,
        first: int,
        last: int,
        guards: list[tuple[int, int, str]],
        *,
        hoisted: tuple[bool, bool],
    ) -> Suite:
        out: Suite = []
        index = first
        while index <= last:
            outer = next((g for g in guards if g[0] == index and g[1] <= last), None)
            end = outer[1] if outer else index
            if not (index == first and hoisted[0]):
                out += self.before.get(suite[index], [])
            if outer:
                rest = [g for g in guards if g is not outer and index <= g[0] and g[1] <= end]
                inner = self._grown(suite, index, end, rest, hoisted=(True, True))
                out.append(ast.If(ast.Name(outer[2], ast.Load()), inner, []))
            else:
                out.append(self.visit(suite[index]))
            if not (end == last and hoisted[1]):
                out += self.after.get(suite[end], [])
            index = end + 1
        return out


# --- what a reader of the result sees -------------------------------------------------------------


def first(source: Module, kind: type[ast.AST]) -> ast.AST:
    return next(node for node in ast.walk(source.tree) if isinstance(node, kind))


def call_in(source: Module) -> ast.Call:
    found = first(source, ast.Call)
    assert isinstance(found, ast.Call)
    return found


ADDED = {
    "no argument yet": ("f()", "f(k=1)"),
    "blanks between the parentheses": ("f( )", "f( k=1)"),
    "a comment alone": ("f(  # why\n)", "f(  # why\nk=1)"),
    "one argument": ("f(x)", "f(x, k=1)"),
    "a trailing comma": ("f(x, )", "f(x, k=1, )"),
    "a line each": ("f(\n    x,\n    y=2,  # two\n)", "f(\n    x,\n    y=2,  # two\n    k=1,\n)"),
    "a line each, no trailing comma": ("f(\n    x,\n    y=2  # two\n)", "f(\n    x,\n    y=2, k=1  # two\n)"),
    "an argument in parentheses": ("f((x))", "f((x), k=1)"),
    "a function in parentheses": ("(f)((x),)", "(f)((x), k=1,)"),
    "stars": ("f(*a, **k)", "f(*a, **k, k=1)"),
    "a keyword in parentheses": ("f(y=(2))", "f(y=(2), k=1)"),
    "a comma in a comment": ("f(x  # a, b)\n)", "f(x, k=1  # a, b)\n)"),
    "a bare generator": ("f(x for x in y)", "f((x for x in y), k=1)"),
    "a generator with its own parentheses": ("f((x for x in y))", "f((x for x in y), k=1)"),
    "CRLF": ("f(\r\n\tx,\r\n)", "f(\r\n\tx,\r\n\tk=1,\r\n)"),
    "a field of an f-string": ("f'{f(x)}'", "f'{f(x, k=1)}'"),
}


@pytest.mark.parametrize(("before", "after"), ADDED.values(), ids=ADDED)
def test_an_argument_is_added_in_the_manner_of_the_last(before: str, after: str) -> None:
    source = module(before)
    assert made(source, add_argument(source, call_in(source), "k=1")) == after


REMOVED = {
    "the only one": ("f(k=1)", "f()"),
    "the only one, trailing comma": ("f(k=1,)", "f()"),
    "the first": ("f(k=1, y=2)", "f(y=2)"),
    "the last": ("f(x, k=1)", "f(x)"),
    "the last, trailing comma": ("f(x, k=1, )", "f(x, )"),
    "between others": ("f(x, k=1, y=2)", "f(x, y=2)"),
    "its own line goes, comment and all": (
        "f(\n    x,  # data\n    k=1,  # mix\n    y=2,\n)",
        "f(\n    x,  # data\n    y=2,\n)",
    ),
    "the first line": ("f(\n    k=1,\n    y=2)", "f(\n    y=2)"),
    "the comment of another stays": ("f(\n    x,  # data\n    k=1\n)", "f(\n    x  # data\n    \n)"),
    "blank lines stay": ("f(\n\n    k=1,\n\n    y=2)", "f(\n\n\n    y=2)"),
    "in parentheses": ("f((x), k=(1), y=2)", "f((x), y=2)"),
}


@pytest.mark.parametrize(("before", "after"), REMOVED.values(), ids=REMOVED)
def test_an_argument_is_removed_with_what_is_its_own(before: str, after: str) -> None:
    source = module(before)
    call = call_in(source)
    named = next(given_ for given_ in call.keywords if given_.arg == "k")
    assert made(source, remove_argument(source, call, named)) == after


ELEMENTS = {
    "the last": ("[1, 0]", "[1]"),
    "the last, trailing comma": ("(1, 0,)", "(1,)"),
    "between others": ("{1, 0, 2}", "{1, 2}"),
    "a line": ("[\n    1,\n    0,\n    2,\n]", "[\n    1,\n    2,\n]"),
    "after a comment": ("[\n    1,  # one\n    0,\n    2,\n]", "[\n    1,  # one\n    \n    2,\n]"),
    "the last, after a comment": ("[\n    1,  # one\n    0\n]", "[\n    1,  # one\n    \n]"),
}


@pytest.mark.parametrize(("before", "after"), ELEMENTS.values(), ids=ELEMENTS)
def test_an_element_is_removed_with_a_comma(before: str, after: str) -> None:
    source = module(before)
    display = next(node for node in ast.walk(source.tree) if isinstance(node, ast.List | ast.Tuple | ast.Set))
    own = next(item for item in display.elts if isinstance(item, ast.Constant) and item.value == 0)
    assert made(source, remove_element(source, display, own)) == after


def test_neighbouring_arguments_are_removed_at_once() -> None:
    source = module("f(x, y=1, z=2, w=3)")
    call = call_in(source)
    y, z, _ = call.keywords
    assert made(source, remove_argument(source, call, y), remove_argument(source, call, z)) == "f(x, w=3)"


def test_one_argument_goes_and_another_comes() -> None:
    source = module("f(\n    x,\n    k=1,\n)")
    call = call_in(source)
    edits = (remove_argument(source, call, call.keywords[0]), add_argument(source, call, "new=2"))
    assert not collide(*edits)
    assert made(source, *edits) == "f(\n    x,\n    new=2,\n)"


SET = {
    "given by name": ("f(a, k=(1))", "f(a, k=(0))"),
    "given by position": ("f(a, b, c)", "f(a, 0, c)"),
    "given in parentheses": ("f(a, (b), c)", "f(a, 0, c)"),
    "not given": ("f(a)", "f(a, k=0)"),
    "out of sight behind a star": ("f(*a, b)", "f(*a, b, k=0)"),
}


@pytest.mark.parametrize(("before", "after"), SET.values(), ids=SET)
def test_an_argument_is_set_where_it_is_given(before: str, after: str) -> None:
    source = module(before)
    assert made(source, set_argument(source, call_in(source), "k", "0", position=1)) == after


def test_a_bare_generator_is_set_as_a_whole() -> None:
    source = module("f(x for x in y)")
    assert made(source, set_argument(source, call_in(source), "k", "0", position=0)) == "f(0)"


WRAPPED = {
    "a name": ("y = x", "y = f(x)"),
    "already in parentheses": ("y = (x)", "y = (f(x))"),
    "a tuple": ("y = a, b", "y = f((a, b))"),
    "a tuple of parentheses": ("y = (a), (b)", "y = f(((a), (b)))"),
    "a tuple in parentheses": ("y = (a, b)", "y = f((a, b))"),
    "a generator in the call's own parentheses": ("y = (x for x in z)", "y = f((x for x in z))"),
}


@pytest.mark.parametrize(("before", "after"), WRAPPED.values(), ids=WRAPPED)
def test_an_expression_becomes_an_argument(before: str, after: str) -> None:
    source = module(before)
    value = source.tree.body[0].value  # type: ignore[attr-defined]
    assert made(source, *call_with(source, value, "f")) == after


def test_a_bare_generator_is_wrapped_inside_its_call() -> None:
    source = module("sum(x for x in y)")
    assert made(source, *call_with(source, call_in(source).args[0], "f")) == "sum(f((x for x in y)))"


def test_the_first_of_two_equal_wraps_is_the_outer_one() -> None:
    source = module("y = x")
    value = source.tree.body[0].value  # type: ignore[attr-defined]
    edits = (*wrap(source, value, "f(", ", 1)"), *wrap(source, value, "g(", ", 2)"))
    assert made(source, *edits) == "y = f(g(x, 2), 1)"


def test_an_attribute_binds_closer_than_a_wrap_and_a_replacement() -> None:
    source = module("y = -x")
    name = first(source, ast.UnaryOp).operand  # type: ignore[attr-defined]
    edits = (*call_with(source, name, "f"), attribute(source, name, "module"), replace(source, name, "z"))
    assert made(source, *edits) == "y = -f(z.module)"


NEIGHBOURS = {
    "own line": ("    x\n", "    B\n    x\n    A\n"),
    "comment behind it": ("    x  # why\n", "    B\n    x  # why\n    A\n"),
    "no last line end": ("    x", "    B\n    x\n    A"),
    "trailing semicolon": ("    x;  # why\n", "    B\n    x;  # why\n    A\n"),
    "backslash before nothing": ("    x \\\n\n", "    B\n    x\n    A \\\n\n"),
    "backslash at the end of a comment before": ("    # \\\n    x\n", "    # \\\n    B\n    x\n    A\n"),
    "decorated": ("    @d\n    def x(): pass\n", "    B\n    @d\n    def x(): pass\n    A\n"),
    "several lines": ('    x = """\n"""\n', '    B\n    x = """\n"""\n    A\n'),
    "tab": ("\tx\n", "\tB\n\tx\n\tA\n"),
}


@pytest.mark.parametrize("header", ["if y:", "class C:", "def f():", "for x in y:\n    pass\nelse:"])
@pytest.mark.parametrize(("before", "after"), NEIGHBOURS.values(), ids=NEIGHBOURS)
@pytest.mark.parametrize("newline", ["\n", "\r\n", "\r"])
def test_lines_come_before_and_after(before: str, after: str, header: str, newline: str) -> None:
    text, expected = (f"{header}\n{part}".replace("\n", newline) for part in (before, after))
    source = module(text)
    owner = source.tree.body[0]
    statement = (getattr(owner, "orelse", None) or owner.body)[0]  # type: ignore[attr-defined]
    assert (
        made(source, insert_before(source, statement, "B"), insert_after(source, statement, "A")) == expected
    )


ON_ONE_LINE = {
    "the only one": ("for x in y: f()\n", 0, "for x in y: \n    B\n    f(); A\n"),
    "the second": ("for x in y: a(); f()  # c\n", 1, "for x in y: a(); B; f(); A  # c\n"),
    "the first": ("for x in y: f(); b()\n", 0, "for x in y: \n    B\n    f(); A; b()\n"),
    "header over lines": ("if (x and\n        y): f()\n", 0, "if (x and\n        y): \n    B\n    f(); A\n"),
}


@pytest.mark.parametrize(("before", "index", "after"), ON_ONE_LINE.values(), ids=ON_ONE_LINE)
def test_a_suite_on_one_line_is_cut_open(before: str, index: int, after: str) -> None:
    source = module(before)
    statement = source.tree.body[0].body[index]  # type: ignore[attr-defined]
    assert made(source, insert_before(source, statement, "B"), insert_after(source, statement, "A")) == after


def test_before_and_after_an_elif_nothing_parses() -> None:
    source = module("if a:\n    x\nelif b:\n    y\n")
    statement = source.tree.body[0].orelse[0]  # type: ignore[attr-defined]
    assert guard(source, [statement], "if rank == 0:") is None
    for edit in (insert_before(source, statement, "B"), insert_after(source, statement, "A")):
        with pytest.raises(SyntaxError):
            ast.parse(made(source, edit))


GUARDED = {
    "one line": ("f()\n", "if g:\n    f()\n"),
    "comment stays": ("f()  # why\n", "if g:\n    f()  # why\n"),
    "several lines": ("f(\n    x,\n)\n", "if g:\n    f(\n        x,\n    )\n"),
    "a string keeps its lines": ('f("""\n  a\n""",\n  x)\n', 'if g:\n    f("""\n  a\n""",\n      x)\n'),
    "an implicit join is no string of lines": ("f('a'\n  'b')\n", "if g:\n    f('a'\n      'b')\n"),
    "a suite with blanks and comments": (
        "for x in y:\n\n    # why\n    f()\n",
        "if g:\n    for x in y:\n\n        # why\n        f()\n",
    ),
    "of one line": ("for x in y: f(); h()\n", "if g:\n    for x in y: f(); h()\n"),
    "first of a line": ("f(); h()\n", "if g:\n    f(); \nh()\n"),
    "CRLF and tabs": ("if x:\r\n\tf()\r\n", "if g:\r\n\tif x:\r\n\t\tf()\r\n"),
    "no last line end": ("f()", "if g:\n    f()"),
}


@pytest.mark.parametrize(("before", "after"), GUARDED.values(), ids=GUARDED)
def test_a_statement_is_guarded(before: str, after: str) -> None:
    source = module(before)
    edits = guard(source, source.tree.body[:1], "if g:")
    assert edits is not None
    assert made(source, *edits) == after


def test_lines_that_come_into_a_guard_stand_under_it() -> None:
    source = module("if x:\n    f()\n    for y in z: h()\n")
    outer, (call, loop) = source.tree.body[0], source.tree.body[0].body  # type: ignore[attr-defined]
    edits = guard(source, [call, loop], "if g:")
    assert edits is not None
    added = (
        insert_after(source, call, "A"),
        insert_before(source, loop.body[0], "B"),
        insert_after(source, loop, "C"),
    )
    assert made(source, *edits, *added) == (
        "if x:\n    if g:\n"
        "        f()\n        A\n        for y in z: \n            B\n            h()\n    C\n"
    )
    assert isinstance(outer, ast.If)


def test_a_replacement_may_span_lines_that_a_guard_moves() -> None:
    source = module("f(a(\n    1),\n    b)\n")
    edits = guard(source, source.tree.body, "if g:")
    call = source.tree.body[0].value  # type: ignore[attr-defined]
    new = replace(source, call.args[0], "c")
    assert edits is not None
    assert not any(collide(new, edit) for edit in edits)
    assert made(source, *edits, new) == "if g:\n    f(c,\n        b)\n"


DELETED = {
    "with its line and comment": ("if x:\n    f()  # why\n    g()\n", "if x:\n    g()\n"),
    "before a blank line": ("if x:\n    f()\n\n    g()\n", "if x:\n\n    g()\n"),
    "over several lines": ("if x:\n    f(\n    )\n    g()\n", "if x:\n    g()\n"),
    "the only one": ("if x:\n    f()\n", "if x:\n    pass\n"),
    "beside another": ("if x:\n    f(); g()\n", "if x:\n    pass; g()\n"),
    "after a backslash": ("if x:\n    \\\n    f()\n    g()\n", "if x:\n    \\\n    pass\n    g()\n"),
}


@pytest.mark.parametrize(("before", "after"), DELETED.values(), ids=DELETED)
def test_a_statement_is_deleted(before: str, after: str) -> None:
    source = module(before)
    block = source.tree.body[0].body  # type: ignore[attr-defined]
    assert made(source, delete_statement(block, source, block[0])) == after
    ast.parse(after)


def test_lines_can_come_before_a_statement_that_goes() -> None:
    source = module("if x:\n    f()\n    g()\n")
    block = source.tree.body[0].body  # type: ignore[attr-defined]
    edits = (delete_statement(block, source, block[0]), insert_before(source, block[0], "B"))
    assert not collide(*edits)
    assert made(source, *edits) == "if x:\n    B\n    g()\n"


def test_edits_that_want_the_same_bytes_collide() -> None:
    source = module("for x in y: f(a, b)\n")
    loop = source.tree.body[0]
    call = loop.body[0].value  # type: ignore[attr-defined]
    whole, part = replace(source, call, "g()"), replace(source, call.args[0], "c")
    assert collide(whole, part)
    assert collide(part, whole)
    assert collide(whole, add_argument(source, call, "c"))
    assert not collide(part, add_argument(source, call, "c"))
    assert not collide(whole, insert_before(source, loop, "B"))
    assert not any(collide(whole, edit) for edit in call_with(source, call, "h"))
    assert not collide(whole, replace(module("x"), call, "g()"))


def test_a_guard_collides_with_what_it_would_catch_and_with_one_that_it_crosses() -> None:
    source = module("for x in y: f()\na\nb\nc\n")
    loop, a, b, c = source.tree.body
    inner = loop.body[0]  # type: ignore[attr-defined]
    caught = guard(source, [inner], "if g:")
    assert caught is not None
    assert any(collide(insert_after(source, inner, "A"), edit) for edit in caught)
    assert not any(collide(insert_before(source, inner, "B"), edit) for edit in caught)
    left, right, all_ = (guard(source, part, "if g:") for part in ([a, b], [b, c], [a, b, c]))
    assert left is not None
    assert right is not None
    assert all_ is not None
    assert any(collide(one, other) for one in left for other in right)
    assert not any(collide(one, other) for one in left for other in all_)


NAMES = {
    "code": ("x = f(y.z, k=1)", {"x", "f", "y", "z", "k"}),
    "no strings, no comments": ("'a' \"\"\"b\n'c'\"\"\" rb'd' # e\nf", {"f"}),
    "fields of f-strings": ("f'a {b!r} {c:{d}}' rf\"{e}\"", {"b", "r", "c", "d", "e"}),
    "escapes": (r"'a\' b' + c", {"c"}),
    "letters of any alphabet": ("损失 = ﬁ", {"损失", "fi"}),
    "half a line": ("(«f»(a, ", {"f", "a"}),
    "lone CR": ("# a\rb = c\r", {"b", "c"}),
}


@pytest.mark.parametrize(("source", "names"), NAMES.values(), ids=NAMES)
def test_names_of_a_piece_of_source(source: str, names: set[str]) -> None:
    assert names_in(source) == names
