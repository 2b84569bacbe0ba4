"""What the libraries do with values: a table of transfer functions by qualified name.

`m.to(d)` is m; `torch.compile(m)` is m, compiled; iterating a loader yields batches; a criterion yields a loss;
`loss.backward()` trains every model that the loss depends on.  A name that is not here is a function of its
arguments (lower case) or a plain object (capitalised).
"""

import ast
from collections.abc import Callable
from functools import lru_cache
from typing import TYPE_CHECKING

from multicard import couplings
from multicard.tree import held, nodes
from multicard.values import (
    LOCAL,
    NONE,
    NOTHING,
    PLAIN,
    SOME,
    Class,
    Const,
    Data,
    Func,
    Lib,
    Method,
    Mod,
    Obj,
    Unknown,
    Value,
    Values,
    averages_in,
    contained,
    data_of,
    join,
    mean_at,
    merge,
    objects,
    one,
    sum_at,
)

if TYPE_CHECKING:
    from multicard.interpret import Interpreter

NO_GRAD = frozenset(
    {"torch.no_grad", "torch.inference_mode", "torch.autograd.no_grad", "torch.autograd.grad_mode.no_grad"}
)
EXITS = frozenset({"sys.exit", "os._exit", "builtins.exit", "builtins.quit", "os.abort"})
LOADERS = frozenset(
    {
        "torch.utils.data.DataLoader",
        "torch_geometric.loader.DataLoader",
        "torch_geometric.data.DataLoader",
        "monai.data.DataLoader",
        "torchdata.stateful_dataloader.StatefulDataLoader",
    }
)
DATASETS = frozenset(
    {
        "torch.utils.data.Dataset",
        "torch.utils.data.TensorDataset",
        "torch.utils.data.Subset",
        "torch.utils.data.ConcatDataset",
        "torch.utils.data.IterableDataset",
        "torch.utils.data.ChainDataset",
        "torch.utils.data.StackDataset",
    }
)
SAMPLERS = frozenset(
    {
        "torch.utils.data.Sampler",
        "torch.utils.data.RandomSampler",
        "torch.utils.data.SequentialSampler",
        "torch.utils.data.SubsetRandomSampler",
        "torch.utils.data.WeightedRandomSampler",
        "torch.utils.data.BatchSampler",
        "torch.utils.data.DistributedSampler",
    }
)
WRITERS = frozenset(
    {
        "torch.utils.tensorboard.SummaryWriter",
        "tensorboard.SummaryWriter",
        "tensorboardX.SummaryWriter",
        "tensorboard_logger.Logger",
        "visdom.Visdom",
    }
)
DISTRIBUTED = frozenset(
    {
        "ddp_runtime.setup_ddp",
        "multicard.runtime.setup_ddp",
        "torch.distributed.init_process_group",
        "torch.nn.parallel.DistributedDataParallel",
        "accelerate.Accelerator",
        "lightning.Fabric",
        "lightning.fabric.Fabric",
        "lightning_fabric.Fabric",
        "pytorch_lightning.Trainer",
        "lightning.Trainer",
        "lightning.pytorch.Trainer",
        "deepspeed.initialize",
        "horovod.torch.init",
        "ignite.distributed.Parallel",
        "torch.distributed.fsdp.FullyShardedDataParallel",
        "torch.distributed.fsdp.fully_shard",
        "torch.multiprocessing.spawn",
        "transformers.Trainer",
    }
)
DATA_ATTRIBUTES = frozenset(
    {
        "shape",
        "data",
        "grad",
        "T",
        "mT",
        "H",
        "dtype",
        "device",
        "ndim",
        "values",
        "is_cuda",
        "requires_grad",
        "real",
        "imag",
        "columns",
        "index",
        "iloc",
        "loc",
        "grad_fn",
        "is_leaf",
        "layout",
        "itemsize",
        "nbytes",
        "str",
        "text",
        "_values",
        "loss",
        "logits",
        "label",
        "labels",
        "x",
        "y",
        "edge_index",
        "batch",
        "sents",
        "hidden_states",
    }
)
MODEL_METHODS = frozenset(
    {
        "add_module",
        "apply",
        "bfloat16",
        "buffers",
        "children",
        "compile",
        "cpu",
        "cuda",
        "double",
        "eval",
        "extra_repr",
        "float",
        "forward",
        "get_buffer",
        "get_parameter",
        "get_submodule",
        "half",
        "ipu",
        "load_state_dict",
        "modules",
        "named_buffers",
        "named_children",
        "named_modules",
        "named_parameters",
        "parameters",
        "register_backward_hook",
        "register_buffer",
        "register_forward_hook",
        "register_forward_pre_hook",
        "register_full_backward_hook",
        "register_module",
        "register_parameter",
        "requires_grad_",
        "save_pretrained",
        "share_memory",
        "state_dict",
        "to",
        "to_empty",
        "train",
        "type",
        "xpu",
        "zero_grad",
        "append",
        "extend",
        "insert",
        "items",
        "keys",
        "values",
        "update",
        "pop",
        "from_pretrained",
        "generate",
        "gradient_checkpointing_enable",
        "resize_token_embeddings",
    }
)
USUAL = {
    "F": "torch.nn.functional",
    "json": "json",
    "math": "math",
    "nn": "torch.nn",
    "np": "numpy",
    "optim": "torch.optim",
    "os": "os",
    "plt": "matplotlib.pyplot",
    "random": "random",
    "shutil": "shutil",
    "sys": "sys",
    "time": "time",
    "torch": "torch",
}
"""What a script that names them without an import has by `from ... import *` of a module that cannot be seen."""
HOLDERS = frozenset({"torch.nn.ModuleDict", "torch.nn.ModuleList"})
"""Modules that only hold others."""
SAME_MODEL = frozenset(
    {
        "apply",
        "bfloat16",
        "cpu",
        "cuda",
        "double",
        "eval",
        "float",
        "half",
        "requires_grad_",
        "share_memory",
        "to",
        "train",
        "type",
        "xpu",
        "npu",
        "to_empty",
        "to_memory_format",
    }
)
CHOSEN = "{target}.numel()"
"""What a mean over what a mask selects divides by."""
PARAMETERS = frozenset({"parameters", "named_parameters"})
WITHOUT_PARAMETERS = frozenset(
    {
        "ReLU",
        "ReLU6",
        "LeakyReLU",
        "GELU",
        "ELU",
        "SELU",
        "CELU",
        "SiLU",
        "Mish",
        "Hardswish",
        "Hardsigmoid",
        "Hardtanh",
        "Tanh",
        "Sigmoid",
        "LogSigmoid",
        "Softmax",
        "LogSoftmax",
        "Softmax2d",
        "Softplus",
        "Softsign",
        "Dropout",
        "Dropout1d",
        "Dropout2d",
        "Dropout3d",
        "AlphaDropout",
        "MaxPool1d",
        "MaxPool2d",
        "MaxPool3d",
        "AvgPool1d",
        "AvgPool2d",
        "AvgPool3d",
        "AdaptiveAvgPool1d",
        "AdaptiveAvgPool2d",
        "AdaptiveAvgPool3d",
        "AdaptiveMaxPool1d",
        "AdaptiveMaxPool2d",
        "Flatten",
        "Unflatten",
        "Identity",
        "Upsample",
        "UpsamplingBilinear2d",
        "UpsamplingNearest2d",
        "PixelShuffle",
        "PixelUnshuffle",
        "ZeroPad2d",
        "ReflectionPad2d",
        "ReplicationPad2d",
        "ConstantPad2d",
        "CosineSimilarity",
        "PairwiseDistance",
        "Unfold",
        "Fold",
        "MaxUnpool2d",
        "ReflectionPad1d",
        "ZeroPad1d",
        "ConstantPad1d",
        "ChannelShuffle",
    }
)
_SIGNATURES: dict[str, tuple[str, ...]] = {
    "torch.utils.data.DataLoader": (
        "dataset",
        "batch_size",
        "shuffle",
        "sampler",
        "batch_sampler",
        "num_workers",
        "collate_fn",
        "pin_memory",
        "drop_last",
        "timeout",
        "worker_init_fn",
        "multiprocessing_context",
        "generator",
    ),
    "torch.save": ("obj", "f", "pickle_module"),
    "torch.load": ("f", "map_location", "pickle_module"),
    "torch.utils.data.TensorDataset": ("0",),
    "torch.utils.data.Subset": ("dataset", "indices"),
    "torch.utils.data.random_split": ("dataset", "lengths", "generator"),
    "torch.utils.data.WeightedRandomSampler": ("weights", "num_samples", "replacement", "generator"),
    "torch.utils.data.BatchSampler": ("sampler", "batch_size", "drop_last"),
    "torch.device": ("device", "index"),
    "os.makedirs": ("name", "mode", "exist_ok"),
    "os.mkdir": ("path", "mode"),
    "builtins.open": ("file", "mode"),
    "io.open": ("file", "mode"),
    "tqdm.tqdm": ("iterable", "desc", "total"),
    "sklearn.model_selection.train_test_split": ("0",),
    "torch.nn.DataParallel": ("module", "device_ids", "output_device"),
    "torch.nn.CrossEntropyLoss": ("weight", "size_average", "ignore_index", "reduce", "reduction"),
    "torch.nn.NLLLoss": ("weight", "size_average", "ignore_index", "reduce", "reduction"),
    **dict.fromkeys(
        ("torch.nn.functional.cross_entropy", "torch.nn.functional.nll_loss"),
        ("input", "target", "weight", "size_average", "ignore_index", "reduce", "reduction"),
    ),
}
_CANONICAL = {
    "torch.utils.data.dataloader": "torch.utils.data",
    "torch.utils.data.dataset": "torch.utils.data",
    "torch.utils.data.sampler": "torch.utils.data",
    "torch.utils.data.distributed": "torch.utils.data",
    "torch.nn.modules.module": "torch.nn",
    "torch.nn.modules": "torch.nn",
    "torch.nn.parallel.data_parallel": "torch.nn",
    "torch.nn.parallel.distributed": "torch.nn.parallel",
    "torch.nn.parameter": "torch.nn",
    "torch.optim.optimizer": "torch.optim",
    "torch.cuda.amp.grad_scaler": "torch.cuda.amp",
    "tqdm.auto": "tqdm",
    "tqdm.notebook": "tqdm",
    "tqdm.autonotebook": "tqdm",
    "tqdm.std": "tqdm",
    "pylab": "matplotlib.pyplot",
    "matplotlib.pylab": "matplotlib.pyplot",
}
_EXACT = {
    "torch.nn.parallel.DataParallel": "torch.nn.DataParallel",
    "torch.nn.modules.DataParallel": "torch.nn.DataParallel",
    "torch.nn.DistributedDataParallel": "torch.nn.parallel.DistributedDataParallel",
    "torch.jit.ScriptModule": "torch.nn.Module",
    "lightning.fabric.fabric.Fabric": "lightning.fabric.Fabric",
}
_STARS: dict[str, tuple[str, ...]] = {
    "torch.utils.data": (
        "DataLoader",
        "Dataset",
        "TensorDataset",
        "random_split",
        "Subset",
        "ConcatDataset",
        "IterableDataset",
        "Sampler",
        "RandomSampler",
        "SubsetRandomSampler",
        "WeightedRandomSampler",
    ),
    "tqdm": ("tqdm", "trange"),
    "torch": (
        "nn",
        "optim",
        "utils",
        "cuda",
        "device",
        "Tensor",
        "tensor",
        "save",
        "load",
        "no_grad",
        "manual_seed",
    ),
    "torch.nn": (
        "Module",
        "Linear",
        "Conv2d",
        "Sequential",
        "BatchNorm2d",
        "ReLU",
        "CrossEntropyLoss",
        "DataParallel",
    ),
    "torch.optim": ("Adam", "AdamW", "SGD", "RMSprop", "lr_scheduler"),
    "os": ("path", "listdir", "makedirs", "mkdir", "environ"),
}


def canonical(name: str) -> str:
    """One name for what torch exports under several."""
    if name in _EXACT:
        return _EXACT[name]
    if name in _CANONICAL:
        return _CANONICAL[name]
    head, _, tail = name.rpartition(".")
    if head in _CANONICAL:
        name = f"{_CANONICAL[head]}.{tail}"
    return _EXACT.get(name, name)


@lru_cache(maxsize=4096)
def named(name: str) -> Values:
    """Something of a library by any of its names."""
    return one(Lib(canonical(name)))


def star(base: str) -> tuple[str, ...]:
    """What `from base import *` brings in, as far as training scripts use it."""
    return _STARS.get(base, ())


def kind_of_base(name: str) -> str:
    """What a class with this library base is."""
    head, _, tail = name.rpartition(".")
    if name in DATASETS or name.startswith(("torchvision.datasets.", "torchaudio.datasets.")):
        return "dataset"
    if name in SAMPLERS:
        return "sampler"
    if name in LOADERS:
        return "loader"
    if name == "torch.optim.Optimizer" or (head == "torch.optim" and tail[:1].isupper()):
        return "optimizer"
    if head.startswith("torch.optim.lr_scheduler"):
        return "scheduler"
    if name.startswith("torch.nn.") and tail.endswith("Loss"):
        return "criterion"
    if (
        name.startswith(("torch.nn.", "torchvision.models.", "transformers.", "torch_geometric.nn."))
        and tail[:1].isupper()
    ):
        return "model"
    if tail.endswith(("Exception", "Error")) and head == "builtins":
        return "exception"
    return ""


def bind(name: str, args: list[Values], kwargs: dict[str, Values]) -> dict[str, Values]:
    """Arguments under the names of their parameters; by position where they are not known."""
    if not args:
        return dict(kwargs)
    parameters = _SIGNATURES.get("torch.utils.data.DataLoader" if name in LOADERS else name, ())
    bound = {
        parameters[index] if index < len(parameters) else str(index): values
        for index, values in enumerate(args)
    }
    return {**bound, **kwargs}


def call(
    run: "Interpreter",
    name: str,
    node: ast.Call | None,
    args: list[Values],
    kwargs: dict[str, Values],
    *,
    starred: bool = False,
) -> Values:
    """A call of something of a library."""
    bound = bind(name, args, kwargs)
    head, _, tail = name.rpartition(".")
    place: ast.AST = node if node is not None else ast.Pass()
    if head == "builtins":
        return _builtin(run, tail, place, args, kwargs)
    special = _SPECIAL.get(name)
    if special is not None:
        return special(run, name, place, bound)
    kind = _kind_of_call(name, head, tail)
    if kind:
        obj = run.birth(kind, name, place)
        obj.args = bound
        obj.starred = starred
        run.record("construct", name, place, obj, bound)
        if kind == "model":
            for index, values in enumerate(args):
                for value in values:
                    if isinstance(value, Obj) and value.kind == "model":
                        obj.attrs[str(index)] = values
                        run._adopt(obj, values)
                    elif isinstance(value, Obj) and value.kind in {"list", "dict", "iter", "tuple"}:
                        for inner in contained(one(value), "model"):
                            run._adopt(obj, one(inner))
                        _fill(obj, value)
        return one(obj)
    event = None
    if not name.startswith(_QUIET):
        event = run.record("call", name, place, None, bound)
    if isinstance(place, ast.Call):
        run.escape(place, args, kwargs, name)
    parts = [data_of(values) for values in bound.values()]
    data = _combined(run, name, place, bound, parts) if parts else PLAIN
    if head == "torch" and parts and not run.in_a_network():
        axes = [values for key, values in bound.items() if key in {"1", "dim", "axis"}]
        data = couplings.arranged(tail, data, axes, place)
    if parts and selects(name, parts[0], parts[1:]):
        data = Data(data.models, data.loaders, data.tags | {"selected"})
    elif tail == "pad_packed_sequence":
        data = Data(data.models, data.loaders, data.tags - {"selected"})
    if name in NO_GRAD or name in {"torch.set_grad_enabled", "torch.enable_grad"}:
        return _grad_mode(run, name, place, bound)
    if name.startswith("torch.nn.functional.") and data.models:
        data = _functional_loss(run, tail, place, bound, data)
    elif name.startswith("torch.") and tail in _QUOTIENTS and len(parts) == 2:
        data = run.divided(place, parts[0], parts[1], list(bound.values())[1])
    elif name.startswith("torch.") and tail in _PRODUCTS and len(parts) == 2:
        data = run.multiplied(place, parts[0], parts[1])
    elif name in {"torch.sum", "torch.mean"}:
        axes = [values for key, values in bound.items() if key in {"1", "dim", "axis"}]
        whole = len(bound) == 1
        data = _mean(run, place, data) if tail == "mean" and whole else _reduced(tail, data, whole=whole)
        data = _added_up(run, place, data, tail, axes)
    elif head == "torch" and tail in couplings.BENDS:
        data = run.bent(place, data)
    elif name == "torch.autograd.grad":
        data = Data(data.models, data.loaders, data.tags - averages_in(data))
    if draws(name):
        data = Data(data.models, data.loaders, data.tags | {"random"})
    elif name in _CLOCKS:
        data = Data(data.models, data.loaders, data.tags | {"clock"})
    elif name in _CARDS:
        data = Data(tags=frozenset({"cards"}))
    computed = name == "torch.autograd.Variable" and (data.loaders or data.models)
    if bound.get("requires_grad") == one(Const(True)) or (
        name == "torch.nn.Parameter" and not run.in_a_network() and not run.in_a_constructor()
    ):
        data = leaf(data)
    if (tail[:1].isupper() and not computed) or name in _FACTORIES:
        obj = run.birth("lib", name, place)
        obj.args = bound
        obj.starred = starred
        obj.rest = one(data)
        if event is not None:
            event.subject = obj
        return one(obj)
    return one(traced(run, name, place, data))


def leaf(data: Data) -> Data:
    """The same made a tensor of its own that may be trained; what comes out of a batch or a model is none."""
    if data.models or data.loaders:
        return data
    return Data(data.models, data.loaders, data.tags | {"leaf"})


def traced(run: "Interpreter", name: str, place: ast.AST | None, data: Data) -> Value:
    """What an unknown call gives, with an identity while it is looked for where a model was made."""
    if not run.tracing or data.models or data.loaders or not isinstance(place, ast.Call):
        return data
    obj = run.birth("lib", name, place)
    obj.rest = one(data)
    return obj


def _combined(
    run: "Interpreter", name: str, place: ast.AST, bound: dict[str, Values], parts: list[Data]
) -> Data:
    """What a function of tensors gives, and whether it turns a batch or compares its samples."""
    if not any(couplings.depends(part) for part in parts):
        return merge(parts)
    tail = name.rpartition(".")[2]
    values = list(bound.values())
    if name.startswith(("torch.", "numpy.")) and "." not in name.partition(".")[2]:
        if couplings.turns(tail, values[1:]) and (tail == "t" or not run.in_a_network()):
            return couplings.laid_out(merge(parts), couplings.TURNED)
        if couplings.spreads(tail, values[1:]) and not run.in_a_network():
            return run.coupled(place, parts)
    contracted = tail == "einsum" and couplings.contracts_samples(values[0], parts[1:])
    if contracted or couplings.distances(name, parts) or couplings.orders(tail, parts[0]):
        return run.coupled(place, parts)
    return run.combined(place, parts, product=name in couplings.PRODUCTS)


_LOSSES = frozenset(
    {
        "cross_entropy",
        "nll_loss",
        "mse_loss",
        "l1_loss",
        "smooth_l1_loss",
        "binary_cross_entropy",
        "huber_loss",
        "binary_cross_entropy_with_logits",
        "kl_div",
        "margin_ranking_loss",
        "triplet_margin_loss",
        "cosine_embedding_loss",
        "ctc_loss",
        "hinge_embedding_loss",
        "soft_margin_loss",
        "poisson_nll_loss",
        "gaussian_nll_loss",
    }
)


def _functional_loss(
    run: "Interpreter", tail: str, place: ast.AST, bound: dict[str, Values], data: Data
) -> Data:
    """What a loss function gives: a sum, a mean, or a mean over what is not ignored."""
    if tail not in _LOSSES:
        return run.bent(place, data) if tail in couplings.BENDS else data
    data = run.bent(place, data)
    reduction = bound.get("reduction", NOTHING)
    if Const("sum") in reduction or Const(False) in bound.get("size_average", NOTHING):
        return Data(data.models, data.loaders, data.tags | {"summed"})
    if Const("none") in reduction or Const(False) in bound.get("reduce", NOTHING):
        return Data(data.models, data.loaders, data.tags | {"each"})
    if isinstance(place, ast.Call):
        given = dict(zip(_SIGNATURES.get(f"torch.nn.functional.{tail}", ()), place.args, strict=False))
        given |= {item.arg: item.value for item in place.keywords if item.arg is not None}
        named = {name: run.frame.module.text(value) for name, value in given.items()}
        counts = counted(tail, bound, named.get("weight", ""), named.get("ignore_index", "-100"))
        if counts is not None:
            run.record("local_mean", counts, place, data)
            mean = Data(data.models, data.loaders, data.tags | {"averaged", mean_at(place)})
            return run.averaged(place, mean)
    return _mean(run, place, data)


def counted(name: str, bound: dict[str, Values], weight: str, ignored: str) -> str | None:
    """What a classification loss divides its sum by, where it is no number of samples, for the target `{target}`.

    The sum of the weights of the classes that came, or the number of what is not ignored; nothing where only running
    it would tell.
    """
    if name.rpartition(".")[2] not in {"CrossEntropy", "NLL", "cross_entropy", "nll_loss"}:
        return f"({{target}} != {ignored}).sum()" if "ignore_index" in bound else None
    weights = bound.get("weight", NONE)
    if weights != NONE:
        known = weight and not any(value == Const(None) or isinstance(value, Unknown) for value in weights)
        return f"{weight}[{{target}}[{{target}} != {ignored}]].sum()" if known else ""
    return f"({{target}} != {ignored}).sum()" if "ignore_index" in bound else None


def _mean(run: "Interpreter", place: ast.AST, data: Data) -> Data:
    """A mean over all that is given; over what a mask selects it is this rank's own."""
    tags = (data.tags - {"summed"}) | {"averaged"}
    if "selected" in data.tags and data.models:
        run.record("local_mean", CHOSEN, place, data)
        tags |= {mean_at(place)}
    mean = Data(data.models, data.loaders, tags)
    if isinstance(place, ast.Call) and _one_sample(place):
        return mean
    return run.averaged(place, mean)


def _one_sample(call: ast.Call) -> bool:
    """Whether a mean is taken of one element of something, by its index."""
    owner = call.func.value if isinstance(call.func, ast.Attribute) and not call.args else None
    part = owner if owner is not None else call.args[0] if call.args else None
    index = part.slice if isinstance(part, ast.Subscript) else None
    first = index.elts[0] if isinstance(index, ast.Tuple) and index.elts else index
    return index is not None and not isinstance(first, ast.Slice | ast.Compare)


_SELECTIONS = frozenset(
    {
        "torch.masked_select",
        "torch.index_select",
        "torch.nn.utils.rnn.pack_padded_sequence",
        "torch.nn.utils.rnn.pack_sequence",
    }
)


def selects(name: str, owner: Data, by: list[Data]) -> bool:
    """Whether a function picks as many elements of a batch as its data say."""
    if name in {"masked_select", "index_select"}:
        name = f"torch.{name}"
    if name not in _SELECTIONS or not owner.loaders:
        return False
    return not name.endswith("_select") or any("mask" in data.tags for data in by)


def _reduced(name: str, data: Data, *, whole: bool) -> Data:
    """A sum or a mean over all elements."""
    if name == "mean":
        return Data(data.models, data.loaders, (data.tags - {"summed"}) | {"averaged"})
    penalty = "params" in data.tags and not data.loaders
    if data.models:
        summed = whole and not penalty
        return Data(data.models, data.loaders, data.tags | {"summed"}) if summed else data
    return Data(data.models, data.loaders, data.tags | {"count"})


def _added_up(run: "Interpreter", place: ast.AST, data: Data, name: str, axes: list[Values]) -> Data:
    """What a sum over the batch gives, marked with where it is made: a ratio of such sums is no mean over samples."""
    if name != "sum" or not isinstance(place, ast.Call) or "params" in data.tags:
        return data
    known = [_numbers(values) for values in axes]
    if any(numbers and 0 not in numbers for numbers in known):
        return data
    tag = sum_at(place)
    run.sums[tag] = run.frame.module, place, not all(known)
    return Data(data.models, data.loaders, data.tags | {tag})


def _numbers(axis: Values) -> list[object]:
    """The axes that an argument names; none where they are only known when it runs."""
    if len(axis) != 1:
        return []
    (value,) = axis
    if isinstance(value, Obj) and value.items is not None and not value.rest:
        inner = [_numbers(item) for item in value.items]
        return [number for numbers in inner for number in numbers] if all(inner) else []
    return [value.value] if isinstance(value, Const) and value.value is not None else []


_SPEAKING = ("logging", "wandb", "time", "datetime", "tqdm", "argparse", "matplotlib", "mlflow", "rich")
"""Libraries whose objects give nothing back of what they are told."""
_QUIET = ("torch.nn.functional.", "math.", "os.path.", "numpy.float", "torch.float", "torch.long")
_CARDS = frozenset({"torch.cuda.device_count", "torch.accelerator.device_count", "torch.npu.device_count"})
"""How many cards one process sees: all of the machine's."""
_CLOCKS = frozenset(
    {
        "time.time",
        "time.strftime",
        "time.localtime",
        "time.ctime",
        "time.asctime",
        "datetime.datetime.now",
        "datetime.datetime.today",
        "datetime.date.today",
        "datetime.now",
        "datetime.datetime.utcnow",
        "time.perf_counter",
        "time.gmtime",
        "uuid.uuid4",
        "time.monotonic",
        "os.getpid",
    }
)
_FACTORIES = frozenset(
    {
        "gym.make",
        "gym.vector.make",
        "gymnasium.make",
        "gymnasium.make_vec",
        "csv.writer",
        "csv.reader",
        "logging.getLogger",
        "matplotlib.pyplot.subplots",
        "matplotlib.pyplot.figure",
        "pandas.read_csv",
        "wandb.init",
        "pandas.concat",
        "gzip.open",
        "codecs.open",
        "h5py.File",
        "zipfile.ZipFile",
        "tarfile.open",
        "neptune.init_run",
        "mlflow.start_run",
        "datetime.datetime.now",
        "pathlib.Path",
        "matplotlib.pyplot.gca",
        "matplotlib.pyplot.gcf",
        "matplotlib.pyplot.subplot",
        "matplotlib.pyplot.axes",
        "PIL.Image.open",
        "PIL.Image.fromarray",
        "yaml.safe_load",
        "yaml.load",
        "json.load",
        "json.loads",
        "toml.load",
    }
)


def draws(name: str) -> bool:
    """Whether a function of a library draws random numbers."""
    return name.startswith(("numpy.random.", "random.")) or (
        name.startswith("torch.")
        and name.rpartition(".")[2]
        in {
            "rand",
            "randn",
            "randint",
            "randperm",
            "rand_like",
            "randn_like",
            "bernoulli",
            "multinomial",
            "normal",
            "poisson",
            "randint_like",
        }
    )


_CHAINED = frozenset(
    {"batch", "cast", "filter", "map", "remove", "rename", "select", "set", "shuffle", "skip", "take", "with"}
)
"""How the methods begin that give a stream of the same kind."""


def streams(dataset: Obj) -> bool:
    """Whether a data set of a library can only be read from its beginning, and has no length."""
    corpus = dataset.name.startswith("torchtext.datasets.") and dataset.name.count(".") == 2
    return corpus or ".datapipes." in dataset.name or Const(True) in dataset.args.get("streaming", ())


@lru_cache(maxsize=4096)
def _kind_of_call(name: str, head: str, tail: str) -> str:
    if name in LOADERS:
        return "loader"
    if name in WRITERS:
        return "writer"
    if name in DATASETS or (
        name.startswith(("torchvision.datasets.", "torchaudio.datasets.", "torchtext.datasets."))
    ):
        return "dataset"
    if name in {"datasets.load_dataset", "datasets.load_from_disk"}:
        return "dataset"
    if name in SAMPLERS:
        return "sampler"
    if head.startswith("torch.optim.lr_scheduler") or (
        head == "transformers" and tail.startswith("get_") and "schedule" in tail
    ):
        return "scheduler"
    if (
        head in {"torch.optim", "torch_optimizer", "timm.optim", "bitsandbytes.optim", "adabelief_pytorch"}
        and tail[:1].isupper()
    ) or (head == "transformers" and tail in {"AdamW", "Adafactor"}):
        return "optimizer"
    if name == "torch.optim.*":
        return "optimizer"
    if name in {"torch.amp.GradScaler", "torch.cuda.amp.GradScaler"}:
        return "scaler"
    if head == "torch.nn" and tail.endswith("Loss"):
        return "criterion"
    if head in {"torch.nn", "torch_geometric.nn", "torchvision.ops"} and (
        tail[:1].isupper() and tail != "Parameter"
    ):
        return "model"
    if name.startswith(
        (
            "torchvision.models.",
            "timm.create_model",
            "segmentation_models_pytorch.",
            "efficientnet_pytorch.",
            "pretrainedmodels.",
            "torchvision.models.*",
        )
    ):
        return "model"
    if (
        name.startswith("transformers.")
        and tail in {"from_pretrained", "from_config"}
        and "Model" in head + "For"
        and ("Model" in head or "For" in head)
    ):
        return "model"
    if head.startswith("transformers") and ("Model" in tail or "For" in tail) and tail[:1].isupper():
        return "model"
    if name in {"torch.hub.load", "torch.jit.load"}:
        return "model"
    if head.startswith("torchmetrics") and tail[:1].isupper():
        return "metric"
    return ""


def _grad_mode(run: "Interpreter", name: str, place: ast.AST, bound: dict[str, Values]) -> Values:
    obj = run.birth("grad_mode", name, place)
    if name in NO_GRAD:
        mode = bound.get("0") or bound.get("mode")
        obj.args = {"mode": one(Const(False)) if mode is None else _negated(mode)}
    elif name == "torch.enable_grad":
        obj.args = {"mode": one(Const(True))}
    else:
        mode = bound.get("0") or bound.get("mode") or SOME
        obj.args = {"mode": mode}
        consts = [value for value in mode if isinstance(value, Const)]
        if len(consts) == len(mode) == 1:
            run.grad = bool(consts[0].value)
    return one(obj)


def _negated(values: Values) -> Values:
    consts = [value for value in values if isinstance(value, Const)]
    return one(Const(not consts[0].value)) if len(consts) == len(values) == 1 else SOME


# --- special functions --------------------------------------------------------------------------------------------

_Handler = Callable[["Interpreter", str, ast.AST, dict[str, Values]], Values]


def _compile(run: "Interpreter", name: str, place: ast.AST, bound: dict[str, Values]) -> Values:
    values = bound.get("0") or bound.get("model") or NOTHING
    for value in values:
        if isinstance(value, Obj) and value.kind in {"model", "wrapped"}:
            model = value.inner or value
            model.args["*compiled"] = one(Const(True))
            run.record("compile", name, place, value)
    return values or SOME


def _initialized(run: "Interpreter", name: str, place: ast.AST, bound: dict[str, Values]) -> Values:
    """Apex gives back the models and optimizers that it is given."""
    run.record("call", name, place, None, bound)
    models = bound.get("0", bound.get("models", SOME))
    optimizers = bound.get("1", bound.get("optimizers", NONE))
    if optimizers == NONE:
        return models
    pair = run.birth("tuple", "tuple", place)
    pair.items = [models, optimizers]
    return one(pair)


def _data_parallel(run: "Interpreter", name: str, place: ast.AST, bound: dict[str, Values]) -> Values:
    """The model itself: a migrated script has one process a card, so this wrapper goes."""
    for value in bound.get("module", NOTHING):
        if isinstance(value, Obj) and value.kind == "model":
            run.record("data_parallel", name, place, value, bound)
    return bound.get("module", SOME)


def _parallel_call(run: "Interpreter", name: str, place: ast.AST, bound: dict[str, Values]) -> Values:
    """A model that is called on a batch split over several cards."""
    run.record("parallel_call", name, place, None, bound)
    inputs = bound.get("1", bound.get("inputs", SOME))
    tuples = objects(inputs, "tuple")
    args = list(tuples[0].items or ()) if tuples and tuples[0].items is not None else [inputs]
    result: Values = NOTHING
    for value in bound.get("0", bound.get("module", NOTHING)):
        result = join(result, run.apply(value, None, args, {}))
    return result or SOME


def _distributed(run: "Interpreter", name: str, place: ast.AST, bound: dict[str, Values]) -> Values:
    run.record("distributed", name, place, None, bound)
    result: Values = NOTHING
    if name == "torch.nn.parallel.DistributedDataParallel":
        for value in bound.get("0", bound.get("module", NOTHING)):
            is_model = isinstance(value, Obj) and value.kind == "model"
            result = join(
                result, one(run.wrapper(value)) if is_model and isinstance(value, Obj) else one(value)
            )
    return result or SOME


def _random_split(run: "Interpreter", name: str, place: ast.AST, bound: dict[str, Values]) -> Values:
    run.record("call", name, place, None, bound)
    split = run.birth("list", "list", place)
    lengths = [
        item for item in bound.get("lengths", NOTHING) if isinstance(item, Obj) and item.items is not None
    ]
    count = len(lengths[0].items or ()) if lengths else 2
    items: list[Values] = []
    for index in range(count):
        key = (place, "split", index, *run.calls[-6:])
        part = run.born.get(key)
        if part is None:
            part = run.birth("dataset", "torch.utils.data.Subset", ast.Pass())
            part.site = run.birth("list", "list", place).site
            part.args = {"dataset": bound.get("dataset", SOME), "split": one(Const(index))}
            run.born[key] = part
        items.append(one(part))
    split.items = items
    return one(split)


def _train_test_split(run: "Interpreter", name: str, place: ast.AST, bound: dict[str, Values]) -> Values:
    run.record("call", name, place, None, bound)
    return one(merge([data_of(values) for values in bound.values()] or [PLAIN]))


def _chain(run: "Interpreter", name: str, place: ast.AST, bound: dict[str, Values]) -> Values:
    obj = run.birth("iter", name.rpartition(".")[2], place)
    obj.items = [values for key, values in bound.items() if key.isdigit()]
    return one(obj)


def _progress(run: "Interpreter", name: str, place: ast.AST, bound: dict[str, Values]) -> Values:
    run.record("call", name, place, None, bound)
    obj = run.birth("iter", "tqdm", place)
    obj.args = bound
    obj.items = [bound["iterable"]] if "iterable" in bound else []
    obj.rest = SOME if name.endswith("trange") or not obj.items else NOTHING
    return one(obj)


def _partial(run: "Interpreter", name: str, place: ast.AST, bound: dict[str, Values]) -> Values:
    obj = run.birth("partial", name, place)
    obj.rest = bound.get("0", NOTHING)
    obj.items = [values for key, values in bound.items() if key.isdigit() and key != "0"]
    obj.attrs = {key: values for key, values in bound.items() if not key.isdigit()}
    return one(obj)


def _folded(run: "Interpreter", name: str, place: ast.AST, bound: dict[str, Values]) -> Values:
    del name, place
    given = join(run.iterate(bound.get("1", NOTHING)), bound.get("2", NOTHING))
    return run.call_values(bound.get("0", NOTHING), None, [given, given], {}) or SOME


def _set_method(run: "Interpreter", name: str, place: ast.AST, bound: dict[str, Values]) -> Values:
    """`set.union(a, b)`, `set.union(*sets)`."""
    del name
    return one(run.set_of(place, *bound.values()))


def _collection(run: "Interpreter", name: str, place: ast.AST, bound: dict[str, Values]) -> Values:
    kind = "list" if name.endswith("deque") else "dict"
    obj = run.birth(kind, name, place)
    for value in bound.get("0", NOTHING):
        if isinstance(value, Obj) and value.kind in {"list", "tuple", "dict", "iter"}:
            obj.attrs.update(value.attrs)
            for item in (*(value.items or ()), value.rest):
                obj.rest = join(obj.rest, item)
    obj.attrs.update({key: values for key, values in bound.items() if not key.isdigit() and key != "maxlen"})
    return one(obj)


def _deepcopy(run: "Interpreter", name: str, place: ast.AST, bound: dict[str, Values]) -> Values:
    result: Values = NOTHING
    for value in bound.get("0", bound.get("x", NOTHING)):
        if isinstance(value, Obj) and value.kind in {"model", "wrapped"}:
            run.record("escape", name, place, value)
            model = value.inner or value
            copy = run.birth("model", model.name, place, cls=model.cls)
            copy.cls = model.cls
            copy.attrs = dict(model.attrs)
            result = join(result, one(copy))
        else:
            result = join(result, one(value))
    return result or SOME


def _averaged_model(run: "Interpreter", name: str, place: ast.AST, bound: dict[str, Values]) -> Values:
    """A copy of a model that follows its weights: it copies what it is given, a wrapper too."""
    for value in bound.get("0", bound.get("model", NOTHING)):
        if isinstance(value, Obj) and value.kind in {"model", "wrapped"}:
            run.record("escape", name, place, value)
    obj = run.birth("model", name, place)
    obj.args = bound
    run.record("construct", name, place, obj, bound)
    return one(obj)


def _backward(run: "Interpreter", name: str, place: ast.AST, bound: dict[str, Values]) -> Values:
    values = bound.get("0", bound.get("tensors", bound.get("outputs", NOTHING)))
    run.record(
        "backward" if name.endswith("backward") else "autograd_grad", name, place, data_of(values), bound
    )
    return one(data_of(values))


def _clip(run: "Interpreter", name: str, place: ast.AST, bound: dict[str, Values]) -> Values:
    run.record("clip", name, place, data_of(bound.get("0", bound.get("parameters", NOTHING))), bound)
    return SOME


def _import_module(run: "Interpreter", name: str, place: ast.AST, bound: dict[str, Values]) -> Values:
    for value in bound.get("0", bound.get("name", NOTHING)):
        if isinstance(value, Const) and isinstance(value.value, str):
            return one(run._imported(value.value))
    shape = _shape(place.args[0]) if isinstance(place, ast.Call) and place.args else None
    if shape is not None:
        named = [
            item for item in run.program.modules if item.startswith(shape[0]) and item.endswith(shape[1])
        ]
        found = frozenset(run._imported(item) for item in named if "." in item or shape[0] or shape[1])
        if found:
            return found
    return one(Unknown("a module whose name is only known when it runs"))


def _shape(node: ast.expr) -> tuple[str, str] | None:
    """The literal beginning and end of a text that is put together: `"models." + name + "_model"`."""
    match node:
        case ast.Constant(value=str(text)):
            return text, text
        case ast.BinOp(left=left, op=ast.Add(), right=right):
            first, last = _shape(left), _shape(right)
            return (first[0] if first else "", last[1] if last else "")
        case ast.BinOp(left=ast.Constant(value=str(text)), op=ast.Mod()):
            head, _, _ = text.partition("%")
            return head, text.rpartition("%")[2][1:]
        case ast.JoinedStr(values=[first_part, *_, last_part]):
            before = first_part.value if isinstance(first_part, ast.Constant) else ""
            after = last_part.value if isinstance(last_part, ast.Constant) else ""
            return str(before), str(after)
        case ast.Call(func=ast.Attribute(value=ast.Constant(value=str(text)), attr="format")):
            return text.partition("{")[0], text.rpartition("}")[2]
        case _:
            return None


def _fire(run: "Interpreter", name: str, place: ast.AST, bound: dict[str, Values]) -> Values:
    """A command line made of functions: all of the script's, those of a class, or those that are given."""
    run.record("call", name, place, None, bound)
    given = bound.get("0", bound.get("component"))
    if given is None:
        module = run.frame.module
        top = run.frame.top.names.values() if run.frame.top else ()
        chosen = [v for values in top for v in values if isinstance(v, Func) and v.module is module]
    else:
        chosen = [function for value in given for function in _functions_of(run, value)]
    for function in dict.fromkeys(chosen):
        run.apply(function, None, [], {}, starred=True)
    return NONE


def _functions_of(run: "Interpreter", value: Value) -> list[Func]:
    match value:
        case Func():
            return [value]
        case Class():
            made = run.apply(value, None, [], {}, starred=True)
            return [function for item in made for function in _functions_of(run, item)]
        case Obj(kind="dict" | "list" | "tuple"):
            held = [*value.attrs.values(), *(value.items or ()), value.rest]
            return [function for values in held for item in values for function in _functions_of(run, item)]
        case Obj(cls=Class() as cls):
            public = [name for name in cls.names if not name.startswith("_")]
            return [v for name in public for v in run.lookup(value, name) if isinstance(v, Func)]
        case _:
            return []


def _namespace(run: "Interpreter", name: str, place: ast.AST, bound: dict[str, Values]) -> Values:
    obj = run.birth("namespace", name, place)
    obj.attrs.update({key: _config(values) for key, values in bound.items() if not key.isdigit()})
    return one(obj)


def _config(values: Values) -> Values:
    return frozenset(Const(v.value, config=True) if isinstance(v, Const) else v for v in values)


def _cuda_device(run: "Interpreter", name: str, place: ast.AST, bound: dict[str, Values]) -> Values:
    run.record("call", name, place, None, bound)
    obj = run.birth("device", name, place)
    obj.args = bound
    return one(obj)


def _load(run: "Interpreter", name: str, place: ast.AST, bound: dict[str, Values]) -> Values:
    obj = run.birth("loaded", name, place)
    obj.args = bound
    run.record("load", name, place, obj, bound)
    return one(obj)


_SPECIAL: dict[str, _Handler] = {
    "torch.compile": _compile,
    "torch.jit.script": _compile,
    "torch.nn.SyncBatchNorm.convert_sync_batchnorm": _compile,
    "torch.nn.DataParallel": _data_parallel,
    "apex.amp.initialize": _initialized,
    "torch.nn": _parallel_call,  # the module of this name holds a function of this name
    "torch.utils.data.random_split": _random_split,
    "sklearn.model_selection.train_test_split": _train_test_split,
    "itertools.chain": _chain,
    "itertools.chain.from_iterable": _chain,
    "itertools.cycle": _chain,
    "itertools.islice": _chain,
    "tqdm.tqdm": _progress,
    "tqdm": _progress,
    "tqdm.trange": _progress,
    "functools.partial": _partial,
    "functools.reduce": _folded,
    "builtins.set.union": _set_method,
    "builtins.set.intersection": _set_method,
    "collections.deque": _collection,
    "collections.defaultdict": _collection,
    "collections.OrderedDict": _collection,
    "collections.Counter": _collection,
    "copy.deepcopy": _deepcopy,
    "copy.copy": _deepcopy,
    "torch.optim.swa_utils.AveragedModel": _averaged_model,
    "torch.autograd.backward": _backward,
    "torch.autograd.grad": _backward,
    "torch.nn.utils.clip_grad_norm_": _clip,
    "torch.nn.utils.clip_grad_norm": _clip,
    "torch.nn.utils.clip_grad_value_": _clip,
    "importlib.import_module": _import_module,
    "fire.Fire": _fire,
    "argparse.Namespace": _namespace,
    "types.SimpleNamespace": _namespace,
    "easydict.EasyDict": _namespace,
    "torch.device": _cuda_device,
    "torch.load": _load,
    **dict.fromkeys(DISTRIBUTED, _distributed),
}


# --- builtins -----------------------------------------------------------------------------------------------------


def _builtin(
    run: "Interpreter", tail: str, place: ast.AST, args: list[Values], kwargs: dict[str, Values]
) -> Values:
    first = args[0] if args else NOTHING
    data = merge([data_of(values) for values in (*args, *kwargs.values())] or [PLAIN])
    match tail:
        case "print" | "exit" | "quit" | "input":
            run.record("call", f"builtins.{tail}", place, None, bind(f"builtins.{tail}", args, kwargs))
            for values in args:
                written_out(run, place, values, tail)
            return NONE
        case "open":
            bound = bind("builtins.open", args, kwargs)
            obj = run.birth("file", "builtins.open", place)
            obj.args = bound
            run.record("call", "builtins.open", place, obj, bound)
            return one(obj)
        case "super":
            frame = run.frame
            while frame.self_value is None and frame.parent is not None:
                frame = frame.parent
            if frame.self_value is not None:
                proxy = run.birth("super", "super", place)
                proxy.inner = frame.self_value
                proxy.attrs = {}
                return one(_super_of(run, frame.self_value, place))
            return SOME
        case "enumerate" | "zip" | "iter" | "reversed" | "filter" | "map" | "sorted":
            obj = run.birth("iter", tail, place)
            items = args[:1] if tail == "enumerate" else args
            if tail in {"map", "filter"}:
                items = args[1:]
                if tail == "map" and args:
                    mapped = run.call_values(first, None, [run.iterate(item) for item in items], {})
                    obj.rest = join(obj.rest, mapped)
                    obj.walks |= any(run.loaders_of(item) for item in items)
                    items = []
            obj.items = items
            return one(obj)
        case "list" | "tuple" | "set":
            loaders = run.loaders_of(first)
            for loader in loaders:
                run.record("iterate", tail, place, loader)
            obj = run.birth(tail, tail, place)
            for value in first:
                if isinstance(value, Obj) and value.items is not None and value.kind in {"list", "tuple"}:
                    obj.items = list(value.items)
            if obj.items is None and args:
                obj.rest = join(obj.rest, run.iterate(first))
            elif obj.items is None:
                obj.items = []
            return one(obj)
        case "dict":
            obj = run.birth("dict", "dict", place)
            for source in objects(first, "dict"):
                obj.attrs.update(source.attrs)
                obj.rest = join(obj.rest, source.rest)
            obj.attrs.update(kwargs)
            return one(obj)
        case "next":
            for loader in run.loaders_of(first):
                run.record("next", "next", place, loader)
            return run.iterate(first)
        case "getattr":
            return _getattr(run, args, place)
        case "setattr" if len(args) > 2:
            names = [value.value for value in args[1] if isinstance(value, Const)]
            for value in first:
                run.store_attribute(value, str(names[0]) if names else "*", args[2], place)
            return NONE
        case "hasattr" if args[1:]:
            names = [value.value for value in args[1] if isinstance(value, Const)]
            for value in first:
                if isinstance(value, Obj) and value.kind in {"model", "wrapped"}:
                    run.record("attr", str(names[0]) if len(names) == 1 else "*", place, value)
            return SOME
        case "hasattr" | "isinstance" | "callable" | "issubclass":
            if tail == "isinstance":
                _shown(run, tail, place, first)
            return SOME
        case "vars":
            return SOME
        case "len":
            for value in first:
                if isinstance(value, Obj) and value.kind == "loader":
                    run.record("len", "len", place, value)
                    return one(Data(tags=frozenset({"length"})))
                if isinstance(value, Obj) and (value.kind, value.name) == ("iter", "tqdm"):
                    loaders = run.loaders_of(one(value))
                    for loader in loaders:
                        run.record("len", "len", place, loader)
                    if loaders:
                        return one(Data(tags=frozenset({"length"})))
                if (isinstance(value, Obj) and value.kind == "dataset") or _is_loaders_dataset(place):
                    return one(Data(tags=frozenset({"size", "all"})))
            return one(
                Data(
                    frozenset(),
                    data.loaders,
                    frozenset({"size"}) | (data.tags & {"local", "selected", "cards"}),
                )
            )
        case "property" | "staticmethod" | "classmethod" if args:
            return first
        case "type" if len(args) == 1:
            _shown(run, tail, place, first)
            classes = frozenset(
                value.cls for value in first if isinstance(value, Obj) and value.cls is not None
            )
            return classes or SOME
        case "globals" | "locals":
            obj = run.birth("dict", "dict", place)
            source_frame = run.frame.top if tail == "globals" and run.frame.top else run.frame
            obj.attrs = dict(source_frame.names)
            return one(obj)
        case "exec" | "eval":
            return _eval(run, first)
        case "object":
            return one(run.birth("instance", "object", place))
        case "str" | "int" | "float" | "bool":
            if tail == "str":
                written_out(run, place, first)
            return one(data) if args else one(Const(None, config=True))
        case "max" | "min":
            return one(data)
        case "sum" if "size" in data.tags and data.loaders:
            return one(Data(data.models, data.loaders, (data.tags - {"size"}) | {"count"}))
    if tail[:1].isupper():
        return one(run.birth("exception", tail, place))
    if isinstance(place, ast.Call):
        run.escape(place, args, kwargs, f"builtins.{tail}")
    return one(data)


def _shown(run: "Interpreter", tail: str, place: ast.AST, values: Values) -> None:
    """A builtin looks at what a model itself is."""
    for value in values:
        if isinstance(value, Obj) and value.kind in {"model", "wrapped"}:
            run.record("escape", f"builtins.{tail}", place, value)


def written_out(run: "Interpreter", place: ast.AST, values: Values, by: str = "str") -> None:
    """A model becomes text, itself or in a tuple: its wrapper would be written round it."""
    inside = {
        item for value in values if isinstance(value, Obj) for part in value.items or () for item in part
    }
    _shown(run, by, place, frozenset(v for v in {*values, *inside} if getattr(v, "kind", "") == "wrapped"))


def _super_of(run: "Interpreter", owner: Obj, place: ast.AST) -> Obj:
    """A stand-in whose methods are those of the classes above the one that is running."""
    running = next(
        (frame.node for frame in reversed(run.stack) if isinstance(frame.node, ast.FunctionDef)), None
    )
    proxy = run.birth("super", "super", place)
    proxy.inner = None
    proxy.attrs = {}
    if owner.cls is None:
        return proxy
    above = False
    for cls in owner.cls.mro():
        if not isinstance(cls, Class):
            continue
        if above:
            for name, values in cls.names.items():
                if name not in proxy.attrs:
                    proxy.attrs[name] = frozenset(
                        Func(v.node, v.module, v.closure, owner, v.cls, v.decorators)
                        if isinstance(v, Func)
                        else v
                        for v in values
                    )
        elif running is not None and running in cls.node.body:
            above = True
    proxy.items = None
    proxy.rest = one(owner)
    return proxy


def _getattr(run: "Interpreter", args: list[Values], place: ast.AST) -> Values:
    if len(args) < 2:
        return SOME
    names = [value.value for value in args[1] if isinstance(value, Const) and isinstance(value.value, str)]
    exact = len(names) == len(args[1])
    result: Values = NOTHING
    for value in args[0]:
        if exact:
            for name in names:
                if isinstance(value, Obj) and value.kind == "model":
                    run.record("attr", name, place, value)
                    result = join(result, run.attribute_of(value, name, _expr(place)))
                else:
                    result = join(result, run.attribute(value, name, _expr(place)))
        elif isinstance(value, Mod):
            result = join(result, _offered(value))
        elif isinstance(value, Lib):
            result = join(result, one(Lib(f"{value.name}.*")))
        elif isinstance(value, Obj) and value.cls is not None:
            methods = [v for names_ in value.cls.names.values() for v in names_ if isinstance(v, Func)]
            held = [v for values in value.attrs.values() for v in values if not isinstance(v, Const)]
            del methods
            result = join(result, frozenset(held))
    if len(args) > 2:
        result = join(result, args[2])
    return result or SOME


def _offered(module: Mod) -> Values:
    """The classes and functions of a module, and for a package those that it takes from its own modules."""
    folder = module.module.path.parent if module.module.path.name == "__init__.py" else None
    return frozenset(
        value
        for values in module.frame.names.values()
        for value in values
        if isinstance(value, Class | Func)
        and (value.module is module.module or (folder is not None and folder in value.module.path.parents))
    )


def _expr(place: ast.AST) -> ast.expr:
    return place if isinstance(place, ast.expr) else ast.Constant(None)


def _eval(run: "Interpreter", values: Values) -> Values:
    for value in values:
        if isinstance(value, Const) and isinstance(value.value, str) and value.value.isidentifier():
            return run.load(value.value)
    own = [
        v
        for found in (run.frame.top.names.values() if run.frame.top else ())
        for v in found
        if isinstance(v, Class) and run._kind_of(v) == "model"
    ]
    return frozenset(own) or one(Unknown("evaluates text that is only known when it runs"))


# --- methods ------------------------------------------------------------------------------------------------------


def method(
    run: "Interpreter", callee: Method, node: ast.Call | None, args: list[Values], kwargs: dict[str, Values]
) -> Values:
    """A call of a library's method."""
    owner, name = callee.owner, callee.name
    place: ast.AST = node if node is not None else ast.Pass()
    given = [*args, *kwargs.values()]
    bound = {str(index): values for index, values in enumerate(args)} | kwargs
    match owner:
        case Data():
            return _data_method(run, owner, name, place, given, bound)
        case Const(value=str()):
            if name == "format":
                for values in given:
                    written_out(run, place, values)
                return one(merge([data_of(values) for values in given] or [PLAIN]))
            if name == "split":
                return SOME
            return one(merge([data_of(values) for values in given])) if given else SOME
        case Obj(kind="wrapped" | "model"):
            return _model_method(run, owner, name, place, args, kwargs)
        case Obj(kind="list" | "tuple" | "set" | "dict" | "iter" | "namespace"):
            return _container_method(run, owner, name, place, args, kwargs)
        case Obj():
            return _object_method(run, owner, name, place, args, kwargs)
        case _:
            return one(merge([data_of(values) for values in given] or [PLAIN]))


def _data_method(
    run: "Interpreter", owner: Data, name: str, place: ast.AST, given: list[Values], bound: dict[str, Values]
) -> Values:
    if name == "backward":
        run.record("backward", name, place, owner, bound)
        return NONE
    if name == "register_hook":
        for values in given:
            for value in values:
                if isinstance(value, Func):
                    run.apply(value, None, [SOME], {})
        return SOME
    if name == "requires_grad_" and "params" in owner.tags:
        for model in owner.models:
            run.record("freeze", "", place, model, {"value": bound.get("0", one(Const(True)))})
        return one(owner)
    if name == "requires_grad_" and bound.get("0", one(Const(True))) == one(Const(True)):
        run.make_leaf(place)
        return one(leaf(owner))
    if name in WRITES or name in {"cuda", "to", "cuda_", "type"}:
        run.record("data_call", name, place, owner, bound)
    parts = [owner, *(data_of(values) for values in given)]
    data = run.combined(place, parts, product=name in couplings.PRODUCTS)
    if name == "addmm_":
        run.rebind(place, data)
    axes = list(bound.values())
    if couplings.turns(name, axes) and (name == "t" or not run.in_a_network()):
        data = couplings.laid_out(data, couplings.TURNED)
    elif name == "unsqueeze" and not run.in_a_network():
        data = couplings.laid_out(data, couplings.unsqueezed(axes))
    elif couplings.orders(name, owner) or (
        couplings.depends(data) and couplings.spreads(name, axes) and not run.in_a_network()
    ):
        data = run.coupled(place, parts)
    if not run.in_a_network():
        data = couplings.arranged(name, data, axes, place)
    if name in _QUOTIENTS and len(parts) == 2:
        data = run.divided(place, parts[0], parts[1], given[0])
    elif name in _PRODUCTS and len(parts) == 2:
        data = run.multiplied(place, parts[0], parts[1])
    elif name in _DRAWING_METHODS:
        data = Data(data.models, data.loaders, data.tags | {"random"})
    elif selects(name, owner, parts[1:]):
        data = Data(data.models, data.loaders, data.tags | {"selected"})
    if name == "detach":
        data = Data(frozenset(), data.loaders, data.tags - {"leaf"})
    elif name in {"sum", "mean"}:
        axes = [values for key, values in bound.items() if key in {"0", "dim", "axis"}]
        data = (
            _mean(run, place, data) if name == "mean" and not axes else _reduced(name, data, whole=not axes)
        )
        data = _added_up(run, place, data, name, axes)
    elif name in {"size", "numel", "dim", "nelement"}:
        axis = next(iter(bound.values()), frozenset({Const(0)}))
        extent = {"extent"} if Const(0) not in axis else set()
        data = Data(frozenset(), data.loaders, (data.tags & {"local", "selected"}) | {"size", *extent})
    elif name in couplings.BENDS:
        data = run.bent(place, data)
    elif name == "bool":
        data = Data(data.models, data.loaders, data.tags | {"mask"})
    elif name in {"item", "tolist", "numpy"}:
        data = Data(data.models, data.loaders, data.tags)
    return one(data)


def _is_loaders_dataset(place: ast.AST) -> bool:
    """Whether a length is asked of `loader.dataset`."""
    return (
        isinstance(place, ast.Call)
        and bool(place.args)
        and isinstance(place.args[0], ast.Attribute)
        and place.args[0].attr == "dataset"
    )


_QUOTIENTS = frozenset({"div", "div_", "divide", "divide_", "true_divide", "true_divide_"})
_PRODUCTS = frozenset({"mul", "mul_", "multiply", "multiply_"})
_DRAWING_METHODS = frozenset({"normal_", "uniform_", "random_", "bernoulli_", "exponential_", "shuffle"})
WRITES = frozenset(
    {
        "to_csv",
        "to_excel",
        "to_json",
        "to_pickle",
        "to_parquet",
        "to_feather",
        "to_html",
        "savefig",
        "save",
        "tofile",
        "save_model",
        "save_pretrained",
        "to_hdf",
        "dump",
        "imwrite",
        "write_image",
        "to_latex",
        "write_html",
        "savetxt",
        "write_text",
        "write_bytes",
        "mkdir",
        "unlink",
        "rmdir",
        "rename",
        "touch",
    }
)


def _model_method(
    run: "Interpreter", owner: Obj, name: str, place: ast.AST, args: list[Values], kwargs: dict[str, Values]
) -> Values:
    model = owner.inner if owner.kind == "wrapped" and owner.inner is not None else owner
    bound = {str(index): values for index, values in enumerate(args)} | kwargs
    own = bool(run.inside) and run.inside[-1] is model
    if not own:
        run.record("method", name, place, owner, bound)
    if name == "eval":
        run.evaluating[model] = True
    elif name == "train":
        mode = args[0] if args else kwargs.get("mode", one(Const(True)))
        consts = [value.value for value in mode if isinstance(value, Const)]
        run.evaluating[model] = bool(consts) and len(consts) == len(mode) and not any(consts)
    if name in SAME_MODEL:
        if name == "requires_grad_":
            run.record("freeze", "", place, model, {"value": bound.get("0", one(Const(True)))})
        if name == "apply" and args:
            run.escape_function(args[0])
        return one(owner)
    if name in {"parameters", "named_parameters", "buffers", "named_buffers"}:
        return one(Data(models=frozenset({model}), tags=frozenset({"params"})))
    if name == "state_dict":
        return one(_state(run, model, place))
    if name in {"modules", "children", "named_modules", "named_children", "values", "items", "keys"}:
        obj = run.birth("iter", name, place)
        inner = run.birth("model", f"{model.name}.{name}", place)
        inner.owner = inner.owner or model
        obj.rest = one(inner)
        if name.startswith("named") or name == "items":
            pair = run.birth("tuple", "tuple", place)
            pair.items = [SOME, one(inner)]
            obj.rest = one(pair)
        return one(obj)
    if name == "forward":
        through = owner if owner.kind == "wrapped" else None
        return run.forward(model, place if isinstance(place, ast.Call) else None, args, kwargs, through)
    if name in {"append", "extend", "insert", "add_module", "update", "register_module"}:
        if not run.being_made(model):
            run.record("grow", name, place, model)
        last = name == "append" and not (run.loops or run.unsure or model.rest)
        for values in [*args, *kwargs.values()]:
            held = contained(values, "model")
            if last and model.name in HOLDERS and held:
                model.attrs[str(len(model.attrs))] = values
            for inner in held:
                if not last or model.name not in HOLDERS:
                    model.rest = join(model.rest, one(inner))
                run._adopt(model, one(inner))
        return NONE
    if name in {"load_state_dict", "zero_grad", "register_buffer", "register_parameter"}:
        return NONE
    if name.startswith("register_") and args:
        for value in args[0]:
            if isinstance(value, Func):
                run.apply(value, None, [], {}, starred=True)
        return SOME
    data = merge([data_of(values) for values in bound.values()] or [PLAIN])
    return one(Data(data.models | {model}, data.loaders, data.tags))


def _fill(model: Obj, container: Obj) -> None:
    """The modules of a list or dict go into a module; into a holder under their place in it, where that is sure."""
    if model.name in HOLDERS and not container.rest and not container.starred:
        named = {str(index): item for index, item in enumerate(container.items or ())} | container.attrs
        if all(contained(item, "model") for item in named.values()):
            model.attrs.update(named)
            return
    for inner in contained(one(container), "model"):
        model.rest = join(model.rest, one(inner))


def _state(run: "Interpreter", model: Obj, place: ast.AST) -> Obj:
    obj = run.birth("state", "state_dict", place)
    obj.inner = model
    return obj


def _container_method(
    run: "Interpreter", owner: Obj, name: str, place: ast.AST, args: list[Values], kwargs: dict[str, Values]
) -> Values:
    match name:
        case "append" | "add" | "insert" | "appendleft" | "push":
            value = args[-1] if args else NOTHING
            sure = name == "append" and not (run.loops or run.unsure or owner.rest)
            if sure and owner.items is not None and len(owner.items) < 8:
                owner.items = [*owner.items, value]
            elif name in {"insert", "appendleft"}:
                owner.rest = join(owner.rest, frozenset().union(value, *(owner.items or ())))
                owner.items = None
            else:
                owner.rest = join(owner.rest, value)
            return NONE
        case "extend":
            if args:
                run.extend(owner, args[0])
            return NONE
        case "index" | "count" if args and owner.kind in {"list", "tuple"}:
            parts = merge([data_of(values) for values in (*(owner.items or ()), owner.rest, args[0])])
            return one(Data(tags=frozenset({"local"}) if parts.local else frozenset()))
        case "update":
            for source in args:
                for held in source:
                    if isinstance(held, Obj):
                        owner.attrs.update(held.attrs)
                        owner.rest = join(owner.rest, held.rest)
            owner.attrs.update(kwargs)
            return NONE
        case "items" if owner.name == "__dict__" or (
            owner.attrs and not owner.rest and len(owner.attrs) <= 4
        ):
            obj = run.birth("list", "items", place)
            obj.items = []
            for index, (key, item) in enumerate(owner.attrs.items()):
                pair = run.born.setdefault(
                    (place, "pair", index, *run.calls[-6:]), Obj("tuple", "tuple", None)
                )
                pair.items = [one(Const(key)), item]
                obj.items.append(one(pair))
            return one(obj)
        case "items":
            obj = run.birth("iter", "items", place)
            pair = run.birth("tuple", "tuple", place)
            everything = owner.rest
            for item in owner.attrs.values():
                everything = join(everything, item)
            pair.items = [SOME, everything or SOME]
            obj.rest = one(pair)
            return one(obj)
        case "values":
            obj = run.birth("iter", "values", place)
            everything = owner.rest
            for item in owner.attrs.values():
                everything = join(everything, item)
            obj.rest = everything or SOME
            return one(obj)
        case "keys":
            return SOME
        case "get" | "pop" | "setdefault" | "popleft":
            if owner.kind in {"dict", "namespace"} and args:
                keys = [value.value for value in args[0] if isinstance(value, Const)]
                found: Values = NOTHING
                for named in keys:
                    found = join(found, owner.attrs.get(str(named), NOTHING))
                result = join(found or owner.rest, args[1] if len(args) > 1 else NOTHING)
                return result or SOME
            return run.iterate(one(owner))
        case "copy":
            return one(owner)
        case "union" | "intersection" | "difference" | "symmetric_difference" if owner.kind == "set":
            return one(run.set_of(place, one(owner), *args))
        case "set_postfix" | "set_description" | "set_postfix_str" | "write" | "close" | "refresh":
            run.record("call", f"tqdm.{name}", place, owner, {str(i): v for i, v in enumerate(args)})
            return NONE
        case "__next__" | "next":
            for loader in run.loaders_of(one(owner)):
                run.record("next", "next", place, loader)
            return run.iterate(one(owner))
        case _:
            data = merge([data_of(one(owner)), *(data_of(values) for values in (*args, *kwargs.values()))])
            return one(data)


_DECIDES = frozenset({"dataset", "batch_size", "shuffle", "sampler", "batch_sampler", "drop_last"})


def _hands_on(function: ast.AST | None, call: ast.AST) -> bool:
    """Whether a constructor gives all that it is given to that of its base: `super().__init__(*args, **kwargs)`."""
    match function, call:
        case (
            ast.FunctionDef(args=ast.arguments(args=[_], vararg=ast.arg(arg=most), kwarg=ast.arg(arg=named))),
            ast.Call(
                args=[ast.Starred(value=ast.Name(id=given))],
                keywords=[ast.keyword(arg=None, value=ast.Name(id=options))],
            ),
        ) if (given, options) == (most, named):
            pass
        case _:
            return False
    own = [node for node in nodes(function, ast.Name) if node.id in {most, named}]
    set_here = {
        id(node.value)
        for node in nodes(function, ast.Subscript)
        if isinstance(node.ctx, ast.Store)
        and isinstance(node.slice, ast.Constant)
        and node.slice.value not in _DECIDES
    }
    return all(node in held(call) or id(node) in set_here for node in own)


def _object_method(
    run: "Interpreter", owner: Obj, name: str, place: ast.AST, args: list[Values], kwargs: dict[str, Values]
) -> Values:
    isinstance(place, ast.Call) and any(keyword.arg is None for keyword in place.keywords)
    bound = {str(index): values for index, values in enumerate(args)} | kwargs
    if owner.kind == "super":
        for value in owner.rest:
            if isinstance(value, Obj) and name == "forward":
                return one(Data(models=frozenset({value}), tags=frozenset({"local"})))
            if isinstance(value, Obj) and value.kind == "model":
                return _model_method(run, value, name, place, args, kwargs)
            if isinstance(value, Obj) and name == "__init__":
                for index, values in enumerate(args):
                    value.args.setdefault(f"super.{index}", values)
                for key, values in kwargs.items():
                    value.args[key] = values
                if value.kind == "loader" and value.call is not None and _hands_on(run.frame.node, place):
                    given = [values for key, values in value.args.items() if key.isdigit()]
                    named = {key: values for key, values in value.args.items() if not key.isdigit()}
                    value.args.update(bind("torch.utils.data.DataLoader", given, named))
                elif value.kind in {"loader", "dataset"}:
                    value.args.update(
                        bind("torch.utils.data.DataLoader", args, kwargs) if value.kind == "loader" else {}
                    )
                    if value.kind == "loader" and isinstance(place, ast.Call):
                        value.starred = value.starred or any(item.arg is None for item in place.keywords)
                        maker = (run.frame.module, place)
                        if maker not in value.makers:
                            value.makers.append(maker)
        return NONE
    if owner.kind == "dataset" and streams(owner) and name.partition("_")[0] in _CHAINED:
        return one(owner)
    if owner.kind == "optimizer":
        if name == "step":
            run.record("step", name, place, owner, bound)
            for values in (*args, *kwargs.values()):
                for value in values:
                    if isinstance(value, Func):
                        return run.apply(value, None, [], {})
            return NONE
        run.record("optimizer", name, place, owner, bound)
        if name == "state_dict":
            state = run.birth("state", "state_dict", place)
            state.inner = owner
            return one(state)
        return SOME
    if owner.kind == "scaler":
        if name == "scale" and args:
            return args[0]
        if name == "step" and args:
            for optimizer in objects(args[0], "optimizer"):
                run.record("step", "scaler.step", place, optimizer, bound)
            return NONE
        if name == "unscale_" and args:
            run.record("unscale", name, place, owner, bound)
        return SOME
    if owner.kind == "scheduler":
        run.record("schedule" if name == "step" else "scheduler", name, place, owner, bound)
        return SOME
    if owner.kind == "loader" and name == "__len__":
        run.record("len", "len", place, owner)
        return one(Data(tags=frozenset({"length"})))
    if owner.kind == "loader" and name == "__iter__":
        obj = run.birth("iter", "iter", place)
        obj.items = [one(owner)]
        return one(obj)
    if name in SAME_MODEL and (
        owner.kind == "criterion" or (run.tracing and owner.kind in {"lib", "loaded", "instance"})
    ):
        return one(owner)
    if owner.kind == "loaded" and name not in {"items", "keys", "values"}:
        return SOME
    run.record("call", f"{owner.name}.{name}", place, owner, bound)
    if isinstance(place, ast.Call):
        run.escape(place, args, kwargs, f"{owner.name}.{name}")
    if name == "add_argument":
        _option(owner, args, kwargs)
    if name in {"parse_args", "parse_known_args"}:
        space = run.birth("namespace", "argparse.Namespace", place)
        space.attrs.update(owner.attrs)
        if name == "parse_known_args":
            pair = run.birth("tuple", "tuple", place)
            pair.items = [one(space), SOME]
            return one(pair)
        return one(space)
    if owner.kind in {"file", "writer"}:
        return SOME
    if name in {"now", "today", "strftime"} or "clock" in data_of(owner.rest).tags:
        return one(Data(tags=frozenset({"clock"})))
    data = merge([data_of(one(owner)), *(data_of(values) for values in (*args, *kwargs.values()))])
    if owner.name == "torch.Generator":
        return one(owner)
    if owner.kind == "lib" and data.local and not owner.name.startswith(_SPEAKING):
        owner.rest = join(owner.rest, one(Data(tags=data.tags & LOCAL)))
    if owner.kind in {"lib", "metric"} and owner.name.startswith(
        ("pandas", "matplotlib", "PIL", "wandb", "logging", "pathlib")
    ):
        child = run.birth("lib", f"{owner.name}.{name}", place)
        child.rest = join(child.rest, one(data))
        return one(child)
    return one(data)


def _option(parser: Obj, args: list[Values], kwargs: dict[str, Values]) -> None:
    """An option of a command line: a word that it is given by default may name a module or a class."""
    flags = [value.value for values in args for value in values if isinstance(value, Const)]
    names = [flag for flag in flags if isinstance(flag, str)]
    words = [
        value
        for value in kwargs.get("default", ())
        if isinstance(value, Const) and isinstance(value.value, str)
    ]
    if names and words:
        longest = max(names, key=len).lstrip("-").replace("-", "_")
        parser.attrs[longest] = join(frozenset(Const(word.value, config=True) for word in words), SOME)


def is_value(value: Value) -> bool:
    """Whether a value is plain data."""
    return isinstance(value, Data | Const)
