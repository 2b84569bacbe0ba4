"""BatchNorm over the batch of all ranks, on any device.

One card normalises over its whole batch, N cards each over their share: a difference that every correct
migration has, and that would hide all others. SyncBatchNorm removes it and refuses CPUs; here it is done
with a differentiable all-reduce. What stays as in the real run: each rank's running statistics are its own
until somebody synchronises them. So ranks other than 0 have theirs off by a last bit, too little to change a
result and enough to be seen.
"""

from typing import Any

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor
from torch.nn.parallel import DistributedDataParallel

from multicard.verify.probe import record as recording
from multicard.verify.probe.patching import Function, replace

GROUP: list[Any] = []
WRAPPED: set[int] = set()
"""Running statistics of wrapped models: outside of their wrapper one rank may call them alone."""
ENTERED: list[bool] = []
"""Of each forward of a wrapper around us, whether gradients were recorded as it began: then all ranks are in it."""


class Total(torch.autograd.Function):
    """The sum over ranks; so is its gradient."""

    @staticmethod
    def forward(ctx: Any, values: Tensor) -> Tensor:
        total = values.clone()
        dist.all_reduce(total, group=GROUP[0])
        return total

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        total = gradient.clone()
        record = recording.record()
        record.waiting = "BatchNorm"
        dist.all_reduce(total, group=GROUP[0])
        record.waiting = None
        return total


def open_group() -> None:
    """Open a group of our own, on all ranks, so that the script's is never disturbed."""
    if dist.get_world_size() > 1:
        GROUP[:] = [dist.new_group(backend="gloo")]


def normalise(
    x: Tensor,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    weight: Tensor | None,
    bias: Tensor | None,
    momentum: float,
    eps: float,
) -> Tensor:
    dims = [d for d in range(x.dim()) if d != 1]
    channels = x.shape[1]
    wide = x.double()
    count = torch.full((1,), float(x.numel() // channels), dtype=torch.float64)
    recording.record().waiting = "BatchNorm"
    sums: Tensor = Total.apply(  # type: ignore[no-untyped-call]
        torch.cat([wide.sum(dims), (wide * wide).sum(dims), count])
    )
    recording.record().waiting = None
    recording.record().events += 1
    n = sums[-1].detach()
    mean = sums[:channels] / n
    var = (sums[channels:-1] / n - mean * mean).clamp(min=0.0)
    shape = [1, channels] + [1] * (x.dim() - 2)
    y = (wide - mean.view(shape)) * torch.rsqrt(var + eps).view(shape)
    if weight is not None:
        y = y * weight.double().view(shape)
    if bias is not None:
        y = y + bias.double().view(shape)
    with torch.no_grad():
        _remember(running_mean, mean, momentum)
        _remember(running_var, var * (n / (n - 1).clamp(min=1.0)), momentum)
    return y.to(x.dtype)


def _remember(running: Tensor | None, value: Tensor, momentum: float) -> None:
    if running is None or momentum == 0:
        return
    running.mul_(1 - momentum).add_((momentum * value).to(running.dtype))
    for _ in range(dist.get_rank()):
        running.copy_(torch.nextafter(running, torch.full_like(running, torch.inf)))


def _batch_norm(original: Function) -> Function:
    def batch_norm(
        input: Tensor,  # noqa: A002
        running_mean: Tensor | None,
        running_var: Tensor | None,
        weight: Tensor | None = None,
        bias: Tensor | None = None,
        training: bool = False,  # noqa: FBT001, FBT002
        momentum: float = 0.1,
        eps: float = 1e-5,
    ) -> Any:
        alone = id(running_mean) in WRAPPED and not ENTERED
        together = torch.is_grad_enabled() or any(
            ENTERED
        )  # a key encoder within, say, records none of its own
        if not training or not GROUP or alone or not together:
            return original(input, running_mean, running_var, weight, bias, training, momentum, eps)
        recording.record().write_once("batchnorm")
        return normalise(input, running_mean, running_var, weight, bias, momentum, eps)

    return batch_norm


def _sync_batch_norm(original: Function) -> Function:
    def forward(self: Any, input: Tensor) -> Any:  # noqa: A002
        if input.device.type != "cpu":
            return original(self, input)
        return torch.nn.modules.batchnorm._BatchNorm.forward(self, input)  # noqa: SLF001

    return forward


def _wrap(original: Function) -> Function:
    def init(self: Any, module: Any, *args: Any, **keywords: Any) -> None:
        original(self, module, *args, **keywords)
        held = (getattr(part, "running_mean", None) for part in module.modules())
        WRAPPED.update(id(mean) for mean in held if mean is not None)

    return init


def _through_the_wrapper(original: Function) -> Function:
    def forward(self: Any, *args: Any, **keywords: Any) -> Any:
        ENTERED.append(torch.is_grad_enabled())
        try:
            return original(self, *args, **keywords)
        finally:
            ENTERED.pop()

    return forward


def install() -> None:
    replace(DistributedDataParallel, "__init__", _wrap)
    replace(DistributedDataParallel, "forward", _through_the_wrapper)
    replace(F, "batch_norm", _batch_norm)
    replace(torch.nn.SyncBatchNorm, "forward", _sync_batch_norm)
