"""Programs of every shape that Python's grammar lets a line take, for properties of the text mechanics."""

from hypothesis import strategies as st

SIMPLE = (
    "f()",
    "x = g(y, *a, **k)",
    "x = (h(1),\n     2)",
    'x = """a\n  b # no comment\n\t"""',
    'print(f"{f(x)} {g(y):.{h(z)}f} {{}}", h(f"""a\n  {f(x)!r}\n"""))',
    "损失 = f(批次)",
    "x = f(a) + \\\n    g(b)",
    's = "é" \\\n  "中"',
    "s = ('a'\n  'b#')",
    "return f(x)",
    "f(x for x in g(y))",
    "f((x))",
    "f(x, )",
    "f(\n    x,  # first\n    y=1,\n)",
    "f(\n  # none\n)",
    "f ( (g) ((1)) )",
    "(f)(x)[g(y)].z = h(x)",
    "x: int = f()",
    "x = lambda: f(g())",
    "assert f(x), '# no comment \\\\'",
    "return",
    "pass",
    "x = yield f(x)",
    "x = f(x), g(y)",
)
ONE_LINE = (
    "for x in f(y): {0}",
    "for x in (a,\n          b): {0}",
    "while f(x): {0}",
    "if f(x): {0}",
    "if x: \\\n   {0}",
    "if f(x): {0}\n§elif x: {1}\n§else: {2}",
    "with f() as x: {0}",
    "class A(f()): {0}",
    "def 函数(x=f()): {0}",
    "try: {0}\n§except f(): {1}\n§finally: {2}",
    "try: {0}\n§except (A,\n   B): {1}\n§else: {2}",
    "match f(x):\n§ case [1]: {0}\n§ case (\n   2): {1}",
)
BLOCKS = (
    "for x in f(y):\n{0}",
    "for x in f(y):  # each \\\n{0}§else:\n{1}",
    "while x:\n{0}",
    "if f(x):\n{0}",
    "if f(x):\n{0}§elif g(x):\n{1}§else:\n{2}",
    "with f() as x, g() as y:\n{0}",
    "@f\n§@g(x)\n§def h(x=f()):\n{0}",
    "async def h():\n{0}",
    "@ (f)\n§class A:\n{0}",
    "try:\n{0}§except E as e:\n{1}§else:\n{2}§finally:\n{0}",
)
ENDS = ("", "", "", "  # 完", "  # a; \\", ";", " ;  # end", "  ")
BETWEEN = ("", "", "", "", "\n", "# alone\n", "# if x: \\\n", "    # deep\n", "   \n", "\f\n")


@st.composite
def _line(draw: st.DrawFn) -> str:
    parts = draw(st.lists(st.sampled_from(SIMPLE), min_size=1, max_size=3))
    return draw(st.sampled_from(("; ", ";", "; \\\n  "))).join(parts) + draw(st.sampled_from(ENDS))


@st.composite
def _suite(draw: st.DrawFn, indent: str, unit: str, depth: int) -> str:
    lines = []
    for _ in range(draw(st.integers(1, 3))):
        kind = draw(
            st.sampled_from(("simple", "simple", "one line", "block") if depth else ("simple", "one line"))
        )
        match kind:
            case "simple":
                statement = f"{draw(_line())}\n"
            case "one line":
                form = draw(st.sampled_from(ONE_LINE)).replace("§", indent)
                statement = f"{form.format(*(draw(_line()) for _ in range(3)))}\n"
            case "block":
                form = draw(st.sampled_from(BLOCKS)).replace("§", indent)
                statement = form.format(*(draw(_suite(indent + unit, unit, depth - 1)) for _ in range(3)))
        feed = draw(st.sampled_from(("", "", "\f")))
        lines.append(draw(st.sampled_from(BETWEEN)) + feed + indent + statement)
    return "".join(lines)


@st.composite
def programs(draw: st.DrawFn) -> str:
    """A program that parses, with one kind of line end throughout."""
    text = draw(_suite("", draw(st.sampled_from(("    ", "  ", "\t", " \t"))), 2))
    if draw(st.booleans()):
        text = text.removesuffix("\n")
    return text.replace("\n", draw(st.sampled_from(("\n", "\r\n", "\r"))))
