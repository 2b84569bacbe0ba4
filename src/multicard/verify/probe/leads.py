"""Absolute paths into the user's own folders, in the script's text and on its command line, led to the copies.

Where a script only reads by them nothing is amiss. One that writes by them would change the user's files; it is run
again with what it names there taken for the copy of it.
"""

import ast
import os
from collections.abc import Sequence

from multicard.verify.plan import Plan

LINKS: list[tuple[str, str]] = []  # the user's folders and their copies; none where nothing is to be led


def led(text: str, links: Sequence[tuple[str, str]]) -> str:
    """The same, in the copy if it begins with one of these folders."""
    for folder, copy in links:
        if text == folder or text.startswith(folder + os.sep):
            return copy + text.removeprefix(folder)
    return text


def argument(text: str) -> str:
    """An argument of the command line, which may be an option with its value."""
    option, equals, value = text.partition("=")
    if text.startswith("-") and equals:
        return option + equals + led(value, LINKS)
    return led(text, LINKS)


class Lead(ast.NodeTransformer):
    """Changes the texts in a module."""

    def visit_Constant(self, node: ast.Constant) -> ast.AST:
        if isinstance(node.value, str):
            return ast.copy_location(ast.Constant(led(node.value, LINKS), node.kind), node)
        return node


def install(plan: Plan) -> None:
    LINKS[:] = plan.links if plan.absolute else ()
