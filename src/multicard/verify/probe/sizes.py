"""The batch size in the original's own words, made that of all ranks together.

A loader can be fed any batch; but a script may also make a buffer, a label or a hidden state of so many rows.  So where
feeding alone does not do, the number is changed at its source, in memory: the option, constant or default named like a
batch size that has its value.
"""

import argparse
import ast
import importlib.machinery
import re
from typing import Any

from multicard.verify.plan import Plan
from multicard.verify.probe import leads, turns
from multicard.verify.probe import record as recording
from multicard.verify.probe.patching import Function, replace

NAME = re.compile(r"(^|_)(batch_?size|bs|bsz|batch|bsize|minibatch|batchsz)$", re.IGNORECASE)
EVALUATION = re.compile(r"test|val|eval|infer|dev", re.IGNORECASE)
LARGER: dict[int, int] = {}


def is_a_batch_size(name: object) -> bool:
    if not isinstance(name, str):
        return False
    plain = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name)
    return bool(NAME.search(plain)) and not EVALUATION.search(plain)


def larger(name: object, value: object) -> Any:
    """The value that stands for this one under this name."""
    if not isinstance(value, int) or isinstance(value, bool) or value < 1 or not is_a_batch_size(name):
        return value
    becomes = LARGER.get(value, value * LARGER.get(0, 1))
    if becomes != value:
        recording.record().write_once("larger", name, name=name, value=value, becomes=becomes)
    return becomes


class Enlarge(ast.NodeTransformer):
    """Rewrites literals that are bound to the name of a batch size; a loader's own argument is left to its sampler."""

    def _constant(self, name: object, node: ast.expr | None) -> ast.expr | None:
        if isinstance(node, ast.Constant):
            return ast.copy_location(ast.Constant(larger(name, node.value)), node)
        return node

    def visit_Assign(self, node: ast.Assign) -> ast.AST:
        self.generic_visit(node)
        for target in node.targets:
            name = target.id if isinstance(target, ast.Name) else getattr(target, "attr", None)
            node.value = self._constant(name, node.value) or node.value
        return node

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.AST:
        self.generic_visit(node)
        name = node.target.id if isinstance(node.target, ast.Name) else getattr(node.target, "attr", None)
        node.value = self._constant(name, node.value)
        return node

    def visit_Dict(self, node: ast.Dict) -> ast.AST:
        self.generic_visit(node)
        keys = [key.value if isinstance(key, ast.Constant) else None for key in node.keys]
        node.values = [
            self._constant(key, value) or value for key, value in zip(keys, node.values, strict=True)
        ]
        return node

    def visit_arguments(self, node: ast.arguments) -> ast.AST:
        self.generic_visit(node)
        positional = [*node.posonlyargs, *node.args]
        named = positional[len(positional) - len(node.defaults) :]
        node.defaults = [self._constant(a.arg, d) or d for a, d in zip(named, node.defaults, strict=True)]
        node.kw_defaults = [
            self._constant(a.arg, d) for a, d in zip(node.kwonlyargs, node.kw_defaults, strict=True)
        ]
        return node

    def visit_keyword(self, node: ast.keyword) -> ast.AST:
        self.generic_visit(node)
        node.value = self._constant(node.arg, node.value) or node.value
        return node

    def visit_Call(self, node: ast.Call) -> ast.AST:
        called = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        if called in {"DataLoader", "add_argument"}:
            return node
        return self.generic_visit(node)


def enlarged(tree: ast.Module) -> ast.Module:
    return ast.fix_missing_locations(Enlarge().visit(tree))  # type: ignore[no-any-return]


def compiled(data: bytes, path: str) -> Any:
    """The user's code, with the larger sizes and the loops over dealt batches if there are any."""
    deals = turns.rewrites(data)
    if not LARGER and not deals and not leads.LINKS:
        return compile(data, path, "exec", dont_inherit=True)
    tree = compile(data, path, "exec", ast.PyCF_ONLY_AST, dont_inherit=True)
    assert isinstance(tree, ast.Module)
    tree = turns.rewritten(tree) if deals else tree
    tree = leads.Lead().visit(tree) if leads.LINKS else tree
    return compile(enlarged(tree) if LARGER else tree, path, "exec", dont_inherit=True)


def _parsed(original: Function) -> Function:
    def parse(self: argparse.ArgumentParser, *args: Any, **keywords: Any) -> Any:
        result = original(self, *args, **keywords)
        namespace = result[0] if isinstance(result, tuple) else result
        for name, value in list(vars(namespace).items()):
            if larger(name, value) != value:
                setattr(namespace, name, larger(name, value))
        return result

    return parse


def _source(original: Function) -> Function:
    def source_to_code(self: Any, data: Any, path: Any, **keywords: Any) -> Any:
        if isinstance(data, bytes) and recording.is_the_users(str(path)):
            return compiled(data, str(path))
        return original(self, data, path, **keywords)

    return source_to_code


def install(plan: Plan) -> None:
    turns.install(plan)
    if plan.larger:
        LARGER.update(plan.larger)
        # parse_args calls parse_known_args, and 3 of 4 times 4 would be 16
        replace(argparse.ArgumentParser, "parse_known_args", _parsed)
    replace(importlib.machinery.SourceFileLoader, "source_to_code", _source)
