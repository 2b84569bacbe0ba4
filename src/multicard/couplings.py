"""Operations that compare the samples of a batch with each other.

A loss over pairs of samples (contrastive, pairwise distances, correlations) is not the mean of the losses of shares
of the batch: each rank sees only the pairs within its own share.
"""

import ast

from multicard.values import Const, Data, Values, stacked_at

TURNED = "turned"
"""The samples of a batch lie along the second axis."""
ROWS = "as rows"
COLUMNS = "as columns"
"""The samples lie along the first of two axes, or along the second, to be combined each with each."""
LAYOUTS = frozenset({TURNED, ROWS, COLUMNS})
RELAID = "relaid"
"""The samples may lie along any axis."""

_JOINS = frozenset({"cat", "concat", "concatenate", "vstack", "stack"})
_PARTS = frozenset({"chunk", "split", "tensor_split", "unbind"})
_SHAPES = frozenset({"view", "reshape", "permute", "transpose", "swapaxes", "movedim"})

BENDS = frozenset({
    "abs", "celu", "clamp", "clamp_max", "clamp_min", "clip", "elu", "exp", "expm1", "gelu", "leaky_relu", "log",
    "log1p", "logsigmoid", "pow", "reciprocal", "relu", "rsqrt", "sigmoid", "softplus", "sqrt", "square", "tanh",
})  # fmt: skip
"""What makes of a mean something else than the mean of what it makes."""

PRODUCTS = frozenset({
    "torch.mm", "torch.matmul", "torch.addmm", "numpy.matmul", "mm", "matmul", "addmm", "addmm_",
})  # fmt: skip
_SPREADS = frozenset({"std", "var", "cov", "corrcoef", "std_mean", "var_mean"})
_ORDERS = frozenset({"topk", "sort", "argsort", "kthvalue", "quantile", "median"})
_DISTANCES = frozenset({"torch.cdist", "torch.pdist", "torch.nn.functional.pdist"})


def depends(data: Data) -> bool:
    """Whether this was computed by a model from a batch, so that gradients flow through it."""
    return bool(data.models) and bool(data.loaders)


def laid_out(data: Data, layout: str) -> Data:
    """The same numbers with their samples along another axis, if they are of a batch and the layout is known."""
    return Data(data.models, data.loaders, data.tags | {layout}) if layout and depends(data) else data


def indexed(index: ast.expr) -> str:
    """How `[:, None]` or `[None]` lays out samples; empty where an index does neither."""
    first, *others = index.elts if isinstance(index, ast.Tuple) and index.elts else [index]
    if isinstance(first, ast.Constant) and first.value is None:
        return COLUMNS
    second = others[0] if others else None
    if isinstance(first, ast.Slice) and isinstance(second, ast.Constant) and second.value is None:
        return ROWS
    return ""


def cuts(index: ast.expr) -> bool:
    """Whether an index takes some of the samples that lie next to each other."""
    first = index.elts[0] if isinstance(index, ast.Tuple) and index.elts else index
    return isinstance(first, ast.Slice) and (first.lower is not None or first.upper is not None)


def _numbers(axes: list[Values]) -> list[object]:
    """The axes that arguments name, as far as they are written out."""
    return [item.value for values in axes for item in values if isinstance(item, Const)]


def unsqueezed(axes: list[Values]) -> str:
    """How `unsqueeze(0)` or `unsqueeze(1)` lays out samples; empty for other axes."""
    numbers = _numbers(axes)
    return (
        {0: COLUMNS, 1: ROWS}.get(numbers[0], "") if len(numbers) == 1 and isinstance(numbers[0], int) else ""
    )


def turns(name: str, axes: list[Values]) -> bool:
    """Whether a method turns a matrix: the samples become columns."""
    if name == "t":
        return True
    return name in {"transpose", "permute", "swapaxes"} and len(axes) == 2 and set(_numbers(axes)) == {0, 1}


def spreads(name: str, axes: list[Values]) -> bool:
    """Whether a method measures how samples differ: a deviation or correlation over the batch."""
    return name in _SPREADS and (not axes or 0 in [n for n in _numbers(axes) if n is not False])


def pairs(parts: list[Data], *, product: bool) -> bool:
    """Whether an operation on these combines each sample with each other one."""
    if all(LAYOUTS.isdisjoint(part.tags) for part in parts):
        return False
    parts = [part for part in parts if depends(part)]
    if len(parts) < 2:
        return False
    if product and any(TURNED in part.tags for part in parts):
        return True
    return any(
        ROWS in first.tags and COLUMNS in second.tags
        for first in parts
        for second in parts
        if first is not second
    )


def orders(name: str, first: Data) -> bool:
    """Whether losses of single samples are sorted or chosen by their size."""
    return name in _ORDERS and bool(first.models) and "each" in first.tags


def distances(name: str, parts: list[Data]) -> bool:
    """Whether a function gives the distances of all pairs."""
    return name in _DISTANCES and any(depends(part) for part in parts)


def arranged(name: str, data: Data, axes: list[Values], node: ast.AST) -> Data:
    """Whether views of a batch are joined along the samples, and taken apart again."""
    if name in _JOINS and data.loaders:
        numbers = _numbers(axes) if axes else [0]
        if numbers and numbers != [0]:
            return data
        plain = numbers and name != "stack"
        return Data(data.models, data.loaders, data.tags | {stacked_at(node) if plain else RELAID})
    if name in _PARTS:
        return apart(data)
    if name in _SHAPES and stacks(data) and not (len(axes) == 2 and -1 in _numbers(axes[1:])):
        return Data(data.models, data.loaders, apart(data).tags | {RELAID})
    return data


def stacks(data: Data) -> frozenset[str]:
    """The tags of the places where views were joined that are part of this."""
    return frozenset(tag for tag in data.tags if tag.startswith("stacked at "))


def apart(data: Data) -> Data:
    """One view of several that were joined."""
    joined = stacks(data)
    return Data(data.models, data.loaders, data.tags - joined) if joined else data


def contracts_samples(equation: Values, parts: list[Data]) -> bool:
    """Whether an einsum combines the samples of one operand with those of another, or sums over them."""
    texts = [item.value for item in equation if isinstance(item, Const) and isinstance(item.value, str)]
    if len(texts) != 1 or sum(depends(part) for part in parts) < 2:
        return False
    inputs, _, output = texts[0].replace(" ", "").partition("->")
    firsts = [term[:1] for term in inputs.split(",") if len(term) == 2]
    if len(firsts) != 2:
        return False
    return firsts[0] != firsts[1] or firsts[0] not in output
