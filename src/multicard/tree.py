"""Walks over syntax trees that are done once.

Rules ask again and again what stands in a loop or a function; `ast.walk` would build the answer each time, and that
alone would take most of the time of a migration.  Contexts and operators (`Load`, `Add`) are left out: one object
stands for all of a kind, so it has no place, and they would be half of all nodes.
"""

import ast
from collections import defaultdict
from collections.abc import Iterable
from typing import TypeVar

Kind = TypeVar("Kind", bound=ast.AST)

_WALKED: dict[ast.AST, tuple[ast.AST, ...]] = {}
_CHILDREN: dict[ast.AST, tuple[ast.AST, ...]] = {}
_PARENTS: dict[ast.AST, dict[ast.AST, ast.AST]] = {}
_KINDS: dict[ast.AST, dict[type[ast.AST], tuple[ast.AST, ...]]] = {}
_HELD: dict[ast.AST, frozenset[ast.AST]] = {}

_HOLD_NONE = frozenset({
    "id", "attr", "arg", "ctx", "op", "ops", "kind", "level", "module", "asname", "conversion", "simple", "is_async",
    "type_comment", "type_ignores", "tag",
})  # fmt: skip
"""Fields in which no node stands that has a place."""
_FIELDS: dict[type[ast.AST], tuple[str, ...]] = {ast.Constant: ()}
"""The other fields of each class of nodes."""
_LEAVES = frozenset({ast.Name, ast.Constant, ast.Pass, ast.Break, ast.Continue})
"""Nodes that hold none, which are more than half of all."""


def forget() -> None:
    """Forget the trees that were walked so far: their program is done with."""
    for known in (_WALKED, _CHILDREN, _PARENTS, _KINDS, _HELD):
        known.clear()


def walk(node: ast.AST) -> tuple[ast.AST, ...]:
    """A node and everything in it, in the order of `ast.walk`; remembered."""
    found = _WALKED.get(node)
    if found is None:
        queue = [node]
        for item in queue:
            if item.__class__ not in _LEAVES:
                queue += _CHILDREN.get(item) or children(item)
        found = tuple(queue)
        _WALKED[node] = found
    return found


def nodes(root: ast.AST, kind: type[Kind]) -> tuple[Kind, ...]:
    """The nodes of one kind in a node, in the order of `ast.walk`; remembered."""
    return kinds(root).get(kind, ())  # type: ignore[return-value]  # they are listed under their kind


def kinds(root: ast.AST) -> dict[type[ast.AST], tuple[ast.AST, ...]]:
    """The nodes in a node under their classes; remembered."""
    index = _KINDS.get(root)
    if index is None:
        index = _KINDS[root] = by_kind(walk(root))
    return index


def by_kind(nodes: Iterable[ast.AST]) -> dict[type[ast.AST], tuple[ast.AST, ...]]:
    """Nodes under their classes."""
    index: dict[type[ast.AST], list[ast.AST]] = defaultdict(list)
    for node in nodes:
        index[node.__class__].append(node)
    return {kind: tuple(found) for kind, found in index.items()}


def held(node: ast.AST) -> frozenset[ast.AST]:
    """The same as a set: for asking whether something stands in a node; remembered."""
    found = _HELD.get(node)
    if found is None:
        found = frozenset(walk(node))
        _HELD[node] = found
    return found


def parents(root: ast.AST) -> dict[ast.AST, ast.AST]:
    """What each node in a node stands in; remembered."""
    found = _PARENTS.get(root)
    if found is None:
        found = _PARENTS[root] = {child: node for node in walk(root) for child in _CHILDREN.get(node, ())}
    return found


def is_none(node: ast.AST) -> bool:
    """Whether a node is the constant None."""
    return isinstance(node, ast.Constant) and node.value is None


def word_of(node: ast.AST) -> str:
    """The word that a name, an attribute, a parameter or a keyword is called by, or nothing."""
    match node:
        case ast.Name(id=word) | ast.Attribute(attr=word) | ast.arg(arg=word) | ast.keyword(arg=str(word)):
            return word
        case _:
            return ""


def children(node: ast.AST) -> tuple[ast.AST, ...]:
    """The direct children of a node; remembered."""
    found = _CHILDREN.get(node)
    if found is None:
        kind = node.__class__
        names = _FIELDS.get(kind)
        if names is None:
            names = _FIELDS[kind] = tuple(name for name in kind._fields if name not in _HOLD_NONE)
        items: list[ast.AST] = []
        for name in names:
            value = getattr(node, name, None)
            if value.__class__ is list:
                items += [item for item in value if isinstance(item, ast.AST)]
            elif isinstance(value, ast.AST):
                items.append(value)
        found = _CHILDREN[node] = tuple(items)
    return found
