"""Whether two expressions name one file, as far as their words, constants and ends tell.

What rank 0 writes the others may only read once it is there; but a barrier before every read would be noise.
"""

import ast
import re

from multicard.effects import Effect
from multicard.facts import Facts
from multicard.tree import walk
from multicard.values import Const

_READS = {
    "pandas.read_csv": ("csv", "tsv", "txt", "data", "dat"),
    "pandas.read_json": ("json", "jsonl"),
    "pandas.read_pickle": ("pkl", "pickle"),
    "pandas.read_parquet": ("parquet",),
    "numpy.load": ("npy", "npz"),
    "numpy.loadtxt": ("txt", "csv"),
    "joblib.load": ("joblib", "pkl"),
    "PIL.Image.open": ("png", "jpg", "jpeg", "bmp"),
    "cv2.imread": ("png", "jpg", "jpeg", "bmp"),
}


def spelled(node: ast.expr) -> str:
    """A path in one spelling, however it is put together: `{}` round each part that is no constant."""
    match node:
        case ast.Constant(value=str(text)):
            return text
        case ast.JoinedStr(values=parts):
            return "".join(spelled(part) for part in parts)
        case ast.FormattedValue(value=value, format_spec=None):
            return spelled(value)
        case ast.BinOp(left=left, op=ast.Add(), right=right):
            return spelled(left) + spelled(right)
        case ast.BinOp(left=left, op=ast.Div(), right=right):
            return f"{spelled(left).rstrip('/')}/{spelled(right)}"
        case ast.BinOp(left=ast.Constant(value=str(template)), op=ast.Mod(), right=given):
            return _filled(
                re.split(_PERCENT, template), given.elts if isinstance(given, ast.Tuple) else [given]
            )
        case ast.Call(func=ast.Attribute(value=ast.Constant(value=str(template)), attr="format"), args=given):
            return _filled(re.split(_BRACES, template), given)
        case ast.Call(func=ast.Attribute(attr="join"), args=[_, _, *_] as parts):
            return "/".join(spelled(part).rstrip("/") for part in parts)
        case ast.Call(func=ast.Name(id="Path" | "str"), args=[only]):
            return spelled(only)
        case _:
            return f"{{{ast.unparse(node)}}}"


def _filled(template: list[str], given: list[ast.expr]) -> str:
    """A template with what it is given in its gaps."""
    gaps = [spelled(part) for part in given] + ["{?}"] * len(template)
    return "".join(text + gap for text, gap in zip(template, [*gaps[: len(template) - 1], ""], strict=True))


def may_be_same_file(facts: Facts, first: ast.expr | None, second: ast.expr | None) -> bool:
    """Whether two paths may name one file, as far as their ends and constants tell."""
    if first is None or second is None:
        return True
    one, other = (_known(facts, node) for node in (first, second))
    if one and other:
        return bool(one & other)
    ends = [_end(node) for node in (first, second)]
    return not all(ends) or ends[0].endswith(ends[1]) or ends[1].endswith(ends[0])


def _known(facts: Facts, node: ast.expr) -> frozenset[str]:
    """All that a path may be, if that is known."""
    if isinstance(node, ast.Constant):
        return frozenset({str(node.value)})
    values = facts.values(node)
    texts = [value.value for value in values if isinstance(value, Const) and isinstance(value.value, str)]
    return frozenset(texts) if texts and len(texts) == len(values) else frozenset()


_FEW = 6
"""So many letters of a pattern, its extension among them, say too little to tell files apart."""


def _pattern(node: ast.expr) -> str:
    """The literal parts of a file's name with `{}` between them; empty where nothing is filled in."""
    match node:
        case ast.JoinedStr(values=parts):
            text = "".join(str(part.value) if isinstance(part, ast.Constant) else "{}" for part in parts)
        case ast.BinOp(left=ast.Constant(value=str(template)), op=ast.Mod()):
            text = re.sub(_PERCENT, "{}", template)
        case ast.BinOp(op=ast.Add() | ast.Div(), right=right):
            return _pattern(right)
        case ast.Call(func=ast.Attribute(value=ast.Constant(value=str(template)), attr="format")):
            text = re.sub(_BRACES, "{}", template)
        case ast.Call(func=ast.Attribute(attr="join" | "joinpath"), args=[*_, last]):
            return _pattern(last)
        case ast.Call(args=[only]):
            return _pattern(only)
        case _:
            return ""
    name = text.rpartition("/")[2]
    return name if "{}" in name else ""


_PERCENT = r"%[-+ 0-9.]*[a-zA-Z]"
_BRACES = r"\{[^{}]*\}"


def _end(node: ast.expr) -> str:
    """The literal end of a path."""
    match node:
        case ast.Constant(value=str(text)):
            return text.rpartition("/")[2]
        case ast.JoinedStr(values=[*_, ast.Constant(value=str(text))]):
            return text.rpartition("/")[2]
        case ast.BinOp(left=ast.Constant(value=str(text)), op=ast.Mod()):
            return text.rpartition("/")[2].rpartition("%")[2][1:]
        case ast.BinOp(op=ast.Add() | ast.Div(), right=right):
            return _end(right)
        case ast.Call(func=ast.Attribute(value=ast.Constant(value=str(text)), attr="format")):
            return text.rpartition("/")[2].rpartition("}")[2]
        case ast.Call(func=ast.Attribute(attr="join" | "joinpath"), args=[*_, last]):
            return _end(last)
        case ast.Call(args=[only]):
            return _end(only)
        case _:
            return ""


def surely_same_file(facts: Facts, first: Effect, second: Effect) -> bool:
    """Whether two effects name one file: by the same words, the same constant, or the same literal end."""
    if first.path is None or second.path is None:
        return False
    if first.module.text(first.path) == second.module.text(second.path) and _same_names(facts, first, second):
        return True
    one, other = (_known(facts, node) for node in (first.path, second.path))
    if one and other:
        return bool(one & other)
    ends = [_end(node) for node in (first.path, second.path)]
    if ends[0] == ends[1] and "." in ends[0].lstrip("."):
        return True
    patterns = [_pattern(node) for node in (first.path, second.path)]
    return patterns[0] == patterns[1] and sum(letter.isalpha() for letter in patterns[0]) > _FEW


def likely_same_file(facts: Facts, written: Effect, read: Effect) -> bool:
    """Whether a path that is not known at the read may be one that was written: its kind of file fits."""
    if surely_same_file(facts, written, read):
        return True
    if written.path is None or read.path is None or _known(facts, read.path) or _end(read.path):
        return False
    return (_end(written.path) or "").rpartition(".")[2] in _READS.get(read.name, ())


def _same_names(facts: Facts, first: Effect, second: Effect) -> bool:
    """Whether the same words mean the same: they stand in one function, or name nothing that a function binds."""
    assert first.path is not None
    assert second.path is not None
    scopes = [facts.scope(effect.module, effect.call) for effect in (first, second)]
    if scopes[0] is scopes[1]:
        return True
    used = {node.id for node in walk(first.path) if isinstance(node, ast.Name)} - {"self"}
    local = {
        node.arg if isinstance(node, ast.arg) else node.id
        for scope in scopes
        if isinstance(scope, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
        for node in walk(scope)
        if isinstance(node, ast.arg) or (isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store))
    }
    return not used & local
