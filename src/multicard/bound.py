"""Whether a name is bound wherever a line would use it.

A model, or a loader, that a script makes in one branch only is known by its name in that branch; a line that is
written behind the branches would stop the script with a `NameError` whenever another one was taken.
"""

import ast
from collections.abc import Sequence

from multicard.facts import Facts
from multicard.source import Module
from multicard.tree import held, is_none, nodes, walk


def bound_before(facts: Facts, module: Module, name: str, statement: ast.stmt) -> bool:
    """Whether a name is bound whenever a statement is reached."""
    scope = facts.scope(module, statement)
    block = facts.block(module, statement)
    if _needed(module, block[block.index(statement) :], name):
        return True
    if not name.isidentifier() and not _stores(module, scope, name):
        return _made_elsewhere(facts, module, name)
    here: ast.AST = statement
    tests = _true_tests(facts, module, statement)
    for parent in (*facts.ancestors(module, statement), None):
        if isinstance(here, ast.stmt) and here is not scope:
            block = facts.block(module, here)
            if binds(module, block[: block.index(here)], name, tests):
                return True
        if parent is None or parent is scope:
            break
        if isinstance(parent, ast.For | ast.AsyncFor) and _stores(module, parent.target, name):
            return True
        if isinstance(parent, ast.With | ast.AsyncWith) and any(
            item.optional_vars is not None and _stores(module, item.optional_vars, name)
            for item in parent.items
        ):
            return True
        here = parent
    if not isinstance(scope, ast.FunctionDef | ast.AsyncFunctionDef):
        return False
    arguments = (
        *scope.args.posonlyargs, *scope.args.args, *scope.args.kwonlyargs, scope.args.vararg, scope.args.kwarg
    )  # fmt: skip
    if any(argument is not None and argument.arg == name.partition(".")[0] for argument in arguments):
        return "." not in name
    elsewhere = any(name in node.names for node in nodes(scope, ast.Global)) or not _stores(
        module, scope, name
    )
    return elsewhere and (
        facts.function(module, scope) is not scope or binds(module, module.tree.body, name, frozenset())
    )


def _made_elsewhere(facts: Facts, module: Module, name: str) -> bool:
    """Whether an attribute, or an element, is made in some other function whatever happens, or nobody sees where."""
    seen = False
    for statement in nodes(module.tree, ast.Assign):
        if any(_stores(module, target, name) for target in statement.targets):
            seen = True
            outer: ast.stmt = statement
            scope = facts.scope(module, statement)
            for parent in facts.ancestors(module, statement):
                if parent is scope:
                    break
                outer = parent if isinstance(parent, ast.stmt) else outer
            if binds(module, [outer], name, frozenset()):
                return True
    return not seen


def bound_after(facts: Facts, module: Module, name: str, statement: ast.stmt) -> bool:
    """Whether a name is bound whenever a statement is done."""
    tests = _true_tests(facts, module, statement)
    block = facts.block(module, statement)
    return (
        binds(module, [statement], name, tests)
        or _needed(module, block[block.index(statement) + 1 :], name)
        or bound_before(facts, module, name, statement)
    )


def _needed(module: Module, block: Sequence[ast.stmt], name: str, *, owner: bool = False) -> bool:
    """Whether statements cannot do without a name: a script that ran has bound it, in whatever branch.

    `owner`: not without an attribute of it either, so that it is not None.
    """
    for statement in block:
        match statement:
            case ast.If(test=head) | ast.While(test=head) | ast.For(iter=head) | ast.AsyncFor(iter=head):
                parts: list[ast.AST] = [head]
            case ast.With(items=items) | ast.AsyncWith(items=items):
                parts = [item.context_expr for item in items]
            case ast.Try() | ast.Match() | ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                parts = []
            case _:
                parts = [statement]
        if any(_loads(module, part, name, owner=owner) for part in parts):
            return True
        if isinstance(statement, ast.With | ast.AsyncWith) and _needed(
            module, statement.body, name, owner=owner
        ):
            return True
        if _stores(module, statement, name) or isinstance(statement, ast.Return | ast.Raise):
            return False
    return False


def _loads(module: Module, node: ast.AST, name: str, *, owner: bool) -> bool:
    """Whether evaluating a node reads a name: not where a lambda, a comprehension or an `and` may leave it out."""
    left_out = {
        part
        for lazy in walk(node)
        if isinstance(
            lazy, ast.Lambda | ast.BoolOp | ast.IfExp | ast.ListComp | ast.GeneratorExp | ast.DictComp
        )
        for part in held(lazy)
    }
    owners = {part.value for part in nodes(node, ast.Attribute)} if owner else None
    return any(
        isinstance(part.ctx, ast.Load)
        and part not in left_out
        and module.text(part) == name
        and (owners is None or part in owners)
        for part in nodes(node, _kind(name))
    )


def none_after(facts: Facts, module: Module, name: str, statement: ast.stmt) -> bool:
    """Whether a name may still be the None that it was given before a statement, when that is done."""
    if binds(module, [statement], name, _true_tests(facts, module, statement)):
        return False
    block = facts.block(module, statement)
    if _needed(module, block[block.index(statement) + 1 :], name, owner=True):
        return False
    return any(
        is_none(node.value)
        and node.lineno < statement.lineno
        and any(_stores(module, target, name) for target in node.targets)
        for node in nodes(facts.scope(module, statement), ast.Assign)
    )


def binds(module: Module, block: Sequence[ast.stmt], name: str, tests: frozenset[str]) -> bool:
    """Whether whoever gets through these statements has bound a name; `tests` are known to be true."""
    return any(_binds(module, statement, name, tests) for statement in block)


def _binds(module: Module, statement: ast.stmt, name: str, tests: frozenset[str]) -> bool:
    match statement:
        case ast.If(test=test, body=body, orelse=orelse):
            return binds(module, body, name, tests) and (
                binds(module, orelse, name, tests) or module.text(test) in tests
            )
        case ast.Try(body=body, handlers=handlers, orelse=orelse, finalbody=finalbody):
            return binds(module, finalbody, name, tests) or (
                binds(module, [*body, *orelse], name, tests)
                and all(binds(module, handler.body, name, tests) for handler in handlers)
            )
        case ast.With(body=body) | ast.AsyncWith(body=body):
            return _stores(module, statement, name) and (
                binds(module, body, name, tests)
                or any(
                    item.optional_vars is not None and _stores(module, item.optional_vars, name)
                    for item in statement.items
                )
            )
        case ast.For() | ast.AsyncFor() | ast.While() | ast.Match():
            return False
        case ast.Return() | ast.Raise() | ast.Continue() | ast.Break():
            return True
        case ast.Expr(value=ast.Call(func=function)):
            return module.text(function) in _LEAVES
        case ast.FunctionDef(name=known) | ast.AsyncFunctionDef(name=known) | ast.ClassDef(name=known):
            return known == name
        case _:
            return _stores(module, statement, name)


_LEAVES = frozenset({"sys.exit", "os._exit", "os.abort", "exit", "quit"})


def _stores(module: Module, node: ast.AST, name: str) -> bool:
    """Whether a name, or the path of an attribute, is bound anywhere in a node."""
    parts: tuple[ast.Name | ast.Attribute | ast.Subscript, ...] = nodes(node, _kind(name))
    return any(isinstance(part.ctx, ast.Store) and module.text(part) == name for part in parts) or any(
        (alias.asname or alias.name) == name for alias in nodes(node, ast.alias)
    )


def _kind(name: str) -> type[ast.Name | ast.Attribute | ast.Subscript]:
    """Whether a text is a name, an attribute or an element."""
    if name.endswith("]"):
        return ast.Subscript
    return ast.Attribute if "." in name else ast.Name


def _true_tests(facts: Facts, module: Module, statement: ast.stmt) -> frozenset[str]:
    """The tests that are true where a statement stands."""
    here: ast.AST = statement
    found = set()
    for parent in facts.ancestors(module, statement):
        if isinstance(parent, ast.If) and here in parent.body:
            found.add(module.text(parent.test))
        here = parent
    return frozenset(found)
