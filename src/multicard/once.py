"""What may be left to rank 0 without harm, and the guards that do it.

A statement under `if rank == 0:` must hide no collective (the other ranks never come), bind no name that later code
needs, change no object that lives on, and draw no random number before the ranks part.  Every rule that puts
something under a guard asks here.
"""

import ast
from collections.abc import Iterable, Iterator

from multicard.edits import Edit, guard, wrap
from multicard.effects import names_of
from multicard.facts import Facts
from multicard.interpret import Event
from multicard.lasting import MUTATORS, lasting, mutates
from multicard.meeting import meets
from multicard.messages import Text
from multicard.plan import Finding
from multicard.reach import below, is_wrapped, reached, takes_batches, training_begins
from multicard.source import Module
from multicard.tree import held, walk
from multicard.values import Method, Obj

_NO_DRAW = frozenset({
    "numpy.random.RandomState", "numpy.random.default_rng", "numpy.random.Generator", "numpy.random.seed",
    "numpy.random.get_state", "numpy.random.set_state", "random.seed", "random.Random", "random.getstate",
    "random.setstate", "numpy.random.SeedSequence", "numpy.random.PCG64",
})  # fmt: skip

UNDER_A_GUARD = Text("put it under `if rank == 0:`", "请放到 `if rank == 0:` 之下")


def hides(facts: Facts, statement: ast.stmt) -> str:
    """Why a statement must run on every rank, or nothing."""
    for node in walk(statement):
        match node:
            case ast.NamedExpr() | ast.Yield() | ast.YieldFrom() | ast.Await():
                return "it binds a name or gives control away"
            case ast.Call(func=ast.Attribute(attr=attr)) if attr in MUTATORS and mutates(facts, node):
                return f"`{attr}` in it changes an object that lives on"
            case ast.Call() if is_metric(facts, node):
                return "torchmetrics puts its sums of all ranks together in it"
            case ast.Call() if "builtins.input" in names_of(facts, node):
                return "it waits for an answer that all ranks need"
            case _:
                pass
    why = lasting(facts, statement)
    if why:
        return f"it calls a function that {why}"
    if reached(facts, statement) and meets(facts, statement):
        return "all ranks meet in a function that it calls"
    for event in below(facts, statement):
        if event.kind == "forward" and is_wrapped(event.subject) and event.node not in held(statement):
            return "the wrapped model is called in it, which all ranks must do together"
        if takes_batches(facts, event) and not event.dead and event.order < training_begins(facts):
            return "it takes a batch, and with it a random number that all ranks must draw alike"
        if draws_in_common(facts, event):
            return "it draws random numbers while all ranks must draw alike"
    return ""


def is_metric(facts: Facts, call: ast.Call) -> bool:
    """Whether a metric of torchmetrics is called or asked, which it answers from all ranks."""
    values = facts.values(call.func)
    owners = [value.owner if isinstance(value, Method) else value for value in values]
    return any(isinstance(owner, Obj) and owner.kind == "metric" for owner in owners)


def draws_in_common(facts: Facts, event: Event) -> bool:
    """Whether an event draws random numbers that must be equal on all ranks, as before training."""
    if event.dead or event.order >= training_begins(facts) or event.inside:
        return False
    return event.kind == "call" and _draws(event.name)


def _draws(name: str) -> bool:
    if name in _NO_DRAW or name.rpartition(".")[0] in _NO_DRAW:
        return False
    return name.startswith(("numpy.random.", "random.")) or (
        name.startswith("torch.")
        and name.rpartition(".")[2]
        in {"rand", "randn", "randint", "randperm", "bernoulli", "multinomial", "normal", "random_split"}
    )


def statement_of(facts: Facts, module: Module, call: ast.Call) -> ast.Expr | None:
    """The statement that is this call and nothing else."""
    parent = facts.parents(module).get(call)
    return parent if isinstance(parent, ast.Expr) else None


def neighbours(module: Module, statements: Iterable[ast.stmt]) -> Iterator[list[ast.stmt]]:
    """Statements in runs that stand next to each other in one suite, in the order of the source."""
    run: list[ast.stmt] = []
    for statement in sorted(set(statements), key=lambda item: (item.lineno, item.col_offset)):
        suite = module.suites[statement][1]
        if run and module.suites[run[-1]][1] is suite and suite.index(statement) == suite.index(run[-1]) + 1:
            run.append(statement)
        else:
            if run:
                yield run
            run = [statement]
    if run:
        yield run


def keep_to_rank_0(facts: Facts, code: str, module: Module, statements: list[ast.stmt], why: Text) -> Finding:
    """One finding that puts neighbouring statements, none an `elif`, under `if rank == 0:`."""
    edits = guard(module, statements, "if «rank 0»:")
    assert edits is not None
    return Finding(code, facts.site(module, statements[0]), why, edits)


def path_or_devnull(module: Module, path: ast.expr) -> tuple[Edit, ...]:
    """`path` becomes `path if rank == 0 else os.devnull`."""
    opened, closed = ("(", ")") if isinstance(path, ast.IfExp | ast.Lambda) else ("", "")
    return wrap(module, path, opened, f"{closed} if «rank 0» else «os».devnull")
