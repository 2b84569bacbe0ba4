"""CUDA on a machine without it: what insists on a card runs on the CPU, and is told of.

Only what would fail is replaced. A script that asks whether there is a card is told the truth, unless it
refuses to run without one.
"""

import contextlib
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from multicard.verify.plan import Plan
from multicard.verify.probe import record as recording
from multicard.verify.probe.patching import Function, replace

DEVICES = ("cuda", "npu", "xpu", "mps", "hpu", "mlu")
FACTORIES = [
    "tensor",
    "as_tensor",
    "zeros",
    "ones",
    "empty",
    "full",
    "rand",
    "randn",
    "randint",
    "randperm",
    "arange",
    "linspace",
    "logspace",
    "eye",
    "zeros_like",
    "ones_like",
    "empty_like",
    "full_like",
    "rand_like",
    "randn_like",
    "randint_like",
    "asarray",
    "normal",
    "tril_indices",
    "triu_indices",
    "empty_strided",
    "scalar_tensor",
    "sparse_coo_tensor",
]
NEW = ("new_tensor", "new_zeros", "new_ones", "new_empty", "new_full")
CPU = torch.device("cpu")


def told(what: str) -> None:
    record = recording.record()
    record.write_once("replaced", what, what=what, site=recording.site())


def on_a_card(device: Any) -> bool:
    if isinstance(device, torch.device):
        return device.type in DEVICES
    if isinstance(device, str):
        return device.split(":")[0] in DEVICES
    return isinstance(device, int) and not isinstance(device, bool)


def _device_argument(name: str) -> Callable[[Function], Function]:
    def make(original: Function) -> Function:
        def made(*args: Any, **keywords: Any) -> Any:
            device = keywords.get("device")
            if device is not None and on_a_card(device):
                told(f"device={str(device)!r}")
                keywords["device"] = CPU
            if keywords.get("pin_memory"):
                keywords["pin_memory"] = False
            return original(*args, **keywords)

        return made

    return make


def _to(original: Function) -> Function:
    def to(self: Any, *args: Any, **keywords: Any) -> Any:
        if args and not isinstance(args[0], Tensor) and on_a_card(args[0]):
            told(f".to({str(args[0])!r})")
            args = (CPU, *args[1:])
        if on_a_card(keywords.get("device")):
            told(f".to({str(keywords['device'])!r})")
            keywords["device"] = CPU
        return original(self, *args, **keywords)

    return to


def _stay(what: str) -> Callable[[Function], Function]:
    def make(_: Function) -> Function:
        def same(self: Any, *_: Any, **__: Any) -> Any:
            told(f".{what}()")
            return self

        return same

    return make


def _type(original: Function) -> Function:
    def type_(self: Tensor, dtype: Any = None, *args: Any, **keywords: Any) -> Any:
        if isinstance(dtype, str) and ".cuda." in dtype:
            told(dtype)
            dtype = dtype.replace(".cuda.", ".")
        return original(self, *([] if dtype is None else [dtype]), *args, **keywords)

    return type_


def _map_location(original: Function) -> Function:
    def load(f: Any, map_location: Any = None, *args: Any, **keywords: Any) -> Any:
        if map_location is None or on_a_card(map_location) or isinstance(map_location, dict):
            map_location = CPU
        return original(f, map_location, *args, **keywords)

    return load


def _nothing(what: str, value: Any = None) -> Callable[[Function], Function]:
    def make(_: Function) -> Function:
        def nothing(*_: Any, **__: Any) -> Any:
            told(what)
            return value

        return nothing

    return make


def _autocast_off(original: Function) -> Function:
    def __init__(  # noqa: N807
        self: Any,
        device_type: str = "cuda",
        dtype: Any = None,
        enabled: bool = True,  # noqa: FBT001, FBT002
        cache_enabled: bool | None = None,  # noqa: FBT001
    ) -> None:
        if enabled:
            told("autocast")
        original(self, "cpu", dtype=torch.bfloat16, enabled=False, cache_enabled=cache_enabled)

    return __init__


def _scaler_off(original: Function) -> Function:
    def __init__(self: Any, *_: Any, enabled: bool = True, **__: Any) -> None:  # noqa: N807
        if enabled:
            told("GradScaler")
        original(self, "cpu", enabled=False)

    return __init__


def _default_type(original: Function) -> Function:
    def set_default_tensor_type(kind: Any) -> None:
        if "cuda" in str(kind):
            told(f"set_default_tensor_type({kind})")
            return
        original(kind)

    return set_default_tensor_type


class _Stream(contextlib.nullcontext[None]):
    """A stream or an event: work on a CPU is done when it returns."""

    def __init__(self, *_: Any, **__: Any) -> None:
        super().__init__()

    def __getattr__(self, name: str) -> Callable[..., float]:
        if name.startswith("__"):
            raise AttributeError(name)
        return lambda *_, **__: 0.0


def _pinned(original: Function) -> Function:
    def __init__(self: Any, *args: Any, **keywords: Any) -> None:  # noqa: N807
        if keywords.get("pin_memory"):
            keywords["pin_memory"] = False
        original(self, *args, **keywords)

    return __init__


def _eager(original: Function) -> Function:
    def compiled(model: Any = None, **keywords: Any) -> Any:
        told("torch.compile")
        keywords = {name: value for name, value in keywords.items() if name in {"dynamic", "fullgraph"}}
        if model is None:
            return lambda function: compiled(function, **keywords)
        return original(model, backend="eager", **keywords)

    return compiled


def install(plan: Plan) -> None:
    if hasattr(torch.compiler, "set_stance"):
        torch.compiler.set_stance("force_eager")
    replace(torch, "compile", _eager)
    if torch.cuda.is_available():
        return
    replace(torch.utils.data.DataLoader, "__init__", _pinned)
    for name in FACTORIES:
        replace(torch, name, _device_argument(name))
    for name in NEW:
        replace(Tensor, name, _device_argument(name))
    replace(Tensor, "to", _to)
    replace(nn.Module, "to", _to)
    for name in ("cuda", "npu", "xpu"):
        replace(Tensor, name, _stay(name))
        replace(nn.Module, name, _stay(name))
    replace(Tensor, "pin_memory", _stay("pin_memory"))
    replace(Tensor, "type", _type)
    replace(torch, "load", _map_location)
    replace(torch, "set_default_tensor_type", _default_type)
    replace(torch.amp.autocast_mode.autocast, "__init__", _autocast_off)
    replace(torch.amp.GradScaler, "__init__", _scaler_off)
    _cards(plan)


def _cards(plan: Plan) -> None:
    cuda = torch.cuda
    count = plan.world_size if plan.role == "migrated" else 1
    if plan.cuda:
        told("torch.cuda.is_available")
        cuda.is_available = lambda: True
        cuda.device_count = lambda: count
    for name, value in {
        "set_device": None,
        "synchronize": None,
        "empty_cache": None,
        "current_device": 0,
        "get_device_name": "CPU",
        "memory_allocated": 0,
        "max_memory_allocated": 0,
        "memory_reserved": 0,
        "max_memory_reserved": 0,
        "reset_peak_memory_stats": None,
        "get_device_capability": (8, 0),
        "is_bf16_supported": False,
        "mem_get_info": (1 << 34, 1 << 34),
    }.items():
        replace(cuda, name, _nothing(f"torch.cuda.{name}", value))
    cuda.Stream = cuda.Event = cuda.device = _Stream  # type: ignore[assignment, misc]
    for name in ("current_stream", "default_stream"):
        setattr(cuda, name, lambda *_, **__: _Stream())
    cuda.stream = lambda _=None: _Stream()  # type: ignore[assignment, misc]
    for kind in ("Float", "Long", "Int", "Double", "Byte", "Bool", "Half", "Short", "Char"):
        setattr(cuda, f"{kind}Tensor", getattr(torch, f"{kind}Tensor"))
    generator = torch.Generator

    class Generator(generator):  # type: ignore[misc, valid-type]
        def __new__(cls, device: Any = "cpu") -> Any:
            return generator("cpu" if on_a_card(device) else device)

    if not plan.cuda:
        return
    torch.Generator = Generator  # type: ignore[misc]
