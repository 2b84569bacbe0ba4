"""Models as the script uses them: through the wrapper or past it, frozen before it or after.

Numbers say that two runs differ; what is recorded here says why.
"""

import weakref
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules import module as torch_module
from torch.nn.parallel import DistributedDataParallel
from torch.utils.weak import WeakTensorKeyDictionary

from multicard.verify.plan import Plan
from multicard.verify.probe import randomness, steps_between
from multicard.verify.probe import record as recording
from multicard.verify.probe.patching import Function, replace

WRAPPERS = ("module.", "_orig_mod.")
WRAPPERS_OF_MODELS = {"DistributedDataParallel", "DataParallel", "OptimizedModule"}
COUNTS = {"backward": 0, "through": 0, "unsynchronised": 0, "past": 0, "reduces": 0}
PAST_SITES: list[str] = []
WRAPPED: "weakref.WeakKeyDictionary[nn.Module, bool]" = weakref.WeakKeyDictionary()
REDUCED = WeakTensorKeyDictionary()
HELD = WeakTensorKeyDictionary()
SINCE: "weakref.WeakKeyDictionary[nn.Module, int]" = (
    weakref.WeakKeyDictionary()
)  # backward calls since its forward
DEPTH = [0]
INSIDE: list[bool] = []  # not empty while a module puts its parts into training mode
ALIVE: dict[int, "weakref.ref[nn.Module]"] = {}  # by id, in the order in which they were made
BEGUN: set[int] = set()  # modules whose weights at their first forward have been seen to


def backward_called() -> None:
    COUNTS["backward"] += 1
    for module in SINCE:
        SINCE[module] += 1


class Evaluation:
    """Whether the script trained since the buffers of the ranks were last looked at."""

    def __init__(self) -> None:
        self.trained = False
        self.number = 0
        self.seen: set[int] = set()


EVALUATION = Evaluation()


def strip(name: str) -> str:
    """The name of a parameter without the wrappers in it."""
    while name.startswith(WRAPPERS):
        name = name.split(".", 1)[1]
    for wrapper in WRAPPERS:
        name = name.replace("." + wrapper, ".")
    return name


def _note(original: Function) -> Function:
    """A module is made, by its constructor or as a copy."""

    def noted(self: nn.Module, *args: Any, **keywords: Any) -> None:
        note(self)
        original(self, *args, **keywords)

    return noted


def note(module: nn.Module) -> None:
    name = id(module)
    if name in ALIVE and ALIVE[name]() is module:
        return

    def gone(dead: "weakref.ref[nn.Module]") -> None:
        if ALIVE.get(name) is dead:
            del ALIVE[name]

    ALIVE.pop(name, None)
    ALIVE[name] = weakref.ref(module, gone)


def roots_alive() -> list[nn.Module]:
    """The modules of the script that are part of no other; wrappers round them do not count."""
    found = [
        module
        for known in list(ALIVE.values())
        if (module := known()) is not None and type(module).__name__ not in WRAPPERS_OF_MODELS
    ]
    inner = {id(child) for module in found for child in module.children()}
    return [module for module in found if id(module) not in inner] or found


def evaluating() -> bool:
    """Whether all models that could be trained are in evaluation mode; a part or a teacher that is says nothing."""
    able = [root for root in roots_alive() if any(p.requires_grad for p in root.parameters())]
    return bool(able) and not any(root.training for root in able)


def names_of(parameters: list[Tensor]) -> list[str]:
    """The names of parameters in the largest module that holds them."""
    wanted = {id(p): i for i, p in enumerate(parameters)}
    names: list[str | None] = [None] * len(parameters)
    for module in sorted(roots_alive(), key=lambda module: -sum(1 for _ in module.parameters())):
        for name, parameter in module.named_parameters():
            at = wanted.get(id(parameter))
            if at is not None and names[at] is None:
                names[at] = strip(name)
    return [name or f"parameter {i}" for i, name in enumerate(names)]


def _holding(parameters: list[Tensor]) -> list[nn.Module]:
    """The models that hold these parameters, in the order of the parameters."""
    order = {id(p): i for i, p in reversed(list(enumerate(parameters)))}
    holding: list[tuple[int, nn.Module]] = []
    for module in roots_alive():
        at = min((order[id(p)] for p in module.parameters() if id(p) in order), default=None)
        if at is not None:
            holding.append((at, module))
    return [module for _, module in sorted(holding, key=lambda pair: pair[0])]


def buffers_around(parameters: list[Tensor]) -> list[tuple[str, Tensor]]:
    """Floating-point buffers of the models that hold these parameters, in the order of the parameters."""
    found: list[tuple[str, Tensor]] = []
    seen: set[int] = set()
    for module in _holding(parameters):
        for name, buffer in module.named_buffers():
            if buffer.is_floating_point() and id(buffer) not in seen:
                seen.add(id(buffer))
                found.append((strip(name), buffer))
    return found


def since_last_step(parameters: list[Tensor]) -> dict[str, Any]:
    """How the model was used for the gradients of this step."""
    global_counts = dict(COUNTS)
    sites = list(PAST_SITES)
    for name in COUNTS:
        COUNTS[name] = 0
    PAST_SITES.clear()
    EVALUATION.trained = True
    EVALUATION.seen.clear()
    return {
        "counts": global_counts,
        "past": sites,
        "unreduced": [i for i, p in enumerate(parameters) if p in HELD and not REDUCED[p]],
        "again": [i for i, p in enumerate(parameters) if p in HELD and SINCE.get(HELD[p], 0) > 1],
        "unheld": [i for i, p in enumerate(parameters) if p not in HELD],
    }


def _wrap(original: Function) -> Function:
    def __init__(self: Any, module: nn.Module, *args: Any, **keywords: Any) -> None:  # noqa: N807
        if all(p.device.type == "cpu" for p in module.parameters()):
            keywords = {k: v for k, v in keywords.items() if k not in {"device_ids", "output_device"}}
            args = ()
        record = recording.record()
        record.doing = "DDP"
        original(self, module, *args, **keywords)
        record.doing = ""
        record.events += 1
        WRAPPED[module] = True
        frozen = []
        for name, parameter in module.named_parameters():
            HELD[parameter] = module
            REDUCED[parameter] = parameter.requires_grad
            if not parameter.requires_grad:
                frozen.append(strip(name))
        record.write(
            "wrap",
            site=recording.site(),
            model=type(module).__name__,
            frozen=frozen,
            unused=bool(keywords.get("find_unused_parameters", False)),
            buffers=len(list(module.buffers())),
        )

    return __init__


def _through(original: Function) -> Function:
    def forward(self: Any, *args: Any, **keywords: Any) -> Any:
        record = recording.record()
        record.write_once("forward", recording.site(), site=recording.site(), training=self.training)
        if torch.is_grad_enabled():
            SINCE[self.module] = 0
            COUNTS["through" if self.require_backward_grad_sync else "unsynchronised"] += 1
            COUNTS["reduces"] = int(self.require_backward_grad_sync)  # the last forward decides
        DEPTH[0] += 1
        record.doing = "DDP forward"
        try:
            return original(self, *args, **keywords)
        finally:
            DEPTH[0] -= 1
            record.doing = ""
            record.events += 1

    return forward


def _pre(module: nn.Module, _: Any) -> None:
    from multicard.verify.probe import by_hand

    if not recording.record().mine:
        return
    by_hand.ended()
    if id(module) not in BEGUN:
        note(module)
        from multicard.verify.probe import training

        training.begin(module)
    if not torch.is_grad_enabled():
        steps_between.evaluated()
    elif DEPTH[0] == 0 and module in WRAPPED and module.training:
        COUNTS["past"] += 1
        where = recording.site()
        if where and where not in PAST_SITES:
            PAST_SITES.append(where)


def _post(module: nn.Module, _: Any, __: Any) -> None:
    """Note what buffers the ranks have at the first evaluation after training."""
    if not EVALUATION.trained or module.training or DEPTH[0] or not recording.record().mine:
        return
    if not isinstance(module, DistributedDataParallel) and module not in WRAPPED:
        return
    inner = module.module if isinstance(module, DistributedDataParallel) else module
    if id(inner) in EVALUATION.seen:
        return
    EVALUATION.seen.add(id(inner))
    note_buffers(inner, "evaluated")


def note_models(parameters: list[Tensor], occasion: str) -> None:
    """The weights of all models, frozen ones and copies too: they must be alike on all ranks, and in both runs."""
    from multicard.verify.probe import training

    holding = _holding(parameters)
    # what has not been called yet holds what it was made with, which the other run takes over at its first call
    kept = [module for module in roots_alive() if module not in holding]
    holding, kept = ([m for m in some if id(m) in BEGUN] for some in (holding, kept))
    for module, trained in [*((m, True) for m in holding), *((m, False) for m in kept)]:
        named = [(strip(name), p) for name, p in module.named_parameters()]
        if named:
            recording.record().write(
                "model",
                occasion=occasion,
                site=recording.site(),
                type=type(module).__name__,
                trained=trained,
                names=[name for name, _ in named],
                weights=training.sketch([p for _, p in named]),
            )


def note_buffers(module: Any, kind: str) -> None:
    from multicard.verify.probe import training

    named = [(strip(name), buffer) for name, buffer in module.named_buffers() if buffer.is_floating_point()]
    if not named:
        return
    recording.record().write(
        kind,
        model=type(module).__name__,
        site=recording.site(),
        names=[name for name, _ in named],
        buffers=training.sketch([buffer for _, buffer in named]),
    )


def _train(original: Function) -> Function:
    def train(self: nn.Module, mode: bool = True) -> Any:  # noqa: FBT001, FBT002
        from multicard.verify.probe import training

        if INSIDE or not mode or not training.STEPS[0].made or not recording.record().mine:
            return original(self, mode)
        randomness.training_begins()
        INSIDE.append(True)
        try:
            return original(self, mode)
        finally:
            INSIDE.clear()

    return train


def install(plan: Plan) -> None:
    replace(nn.Module, "__init__", _note)
    replace(nn.Module, "__setstate__", _note)
    replace(nn.Module, "train", _train)
    torch_module.register_module_forward_pre_hook(_pre)
    if plan.role == "migrated":
        replace(DistributedDataParallel, "__init__", _wrap)
        replace(DistributedDataParallel, "forward", _through)
        torch_module.register_module_forward_hook(_post)
