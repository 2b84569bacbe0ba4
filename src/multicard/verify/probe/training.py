"""Gradients as the optimizer uses them, losses, learning rates and weights, step by step.

The migrated run leaves rank 0's on disk. The original compares its own with them as it goes, and after each
step goes on from the migrated run's weights: every step is then judged by itself, and rounding cannot grow
from step to step into a difference that means nothing.
"""

import json
import math
import sys
import weakref
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.optim import optimizer as optimizers

from multicard.verify.plan import Plan
from multicard.verify.probe import by_hand, loaders, modules, randomness, scalars, steps_between, turns
from multicard.verify.probe import record as recording
from multicard.verify.probe.loaders import checksum
from multicard.verify.probe.patching import Function, replace

DISK = 2 << 30  # bytes of tensors that a run may leave behind
MOST = 2000  # steps to look at in detail


class Steps:
    """The optimizers of the script, in the order in which it made them."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.known: weakref.WeakKeyDictionary[Any, int] = weakref.WeakKeyDictionary()
        self.made = 0
        self.passes = 0
        self.taken: dict[int, int] = {}
        self.losses: list[float | None] = []
        self.backward_sites: list[str] = []
        self.begun = 0
        self.told_models = {e["number"]: e for e in events_of(plan, "models")}
        self.alive: list[torch.nn.Module] = []
        self.spent = 0
        self.kept: dict[int, list[Tensor]] = {}
        self.clips: list[float] = []

    @property
    def replays(self) -> bool:
        return self.plan.role == "original" and bool(self.plan.recorded)

    def path(self, what: str, number: int, step: int) -> Path:
        return Path(self.plan.meeting) / f"{what}_{number}_{step:06d}.pt"

    def keep(self, what: str, number: int, step: int, tensors: list[Tensor | None]) -> None:
        """Leave rank 0's tensors for the original to compare with."""
        if self.plan.role != "migrated" or self.plan.rank != 0 or self.spent > DISK:
            return
        self.spent += sum(t.numel() * t.element_size() for t in tensors if t is not None)
        path = self.path(what, number, step)
        torch.save([None if t is None else t.detach() for t in tensors], path.with_suffix(".part"))
        path.with_suffix(".part").rename(path)

    def recorded(self, what: str, number: int, step: int) -> list[Tensor | None] | None:
        path = self.path(what, number, step)
        if not self.replays or not path.exists():
            return None
        return torch.load(path, weights_only=True)  # type: ignore[no-any-return]


STEPS: list[Steps] = []


def events_of(plan: Plan, kind: str) -> list[dict[str, Any]]:
    """What rank 0 of the migrated run recorded of this kind."""
    if not plan.recorded:
        return []
    lines = Path(plan.recorded[0]).read_text(encoding="utf-8").splitlines()
    events = (json.loads(line) for line in lines if f'"kind":"{kind}"' in line and line.endswith("}"))
    return [event for event in events if event["kind"] == kind]


def parameters_of(optimizer: Any) -> list[Tensor]:
    return [p for group in optimizer.param_groups for p in group["params"]]


def sketch(tensors: list[Tensor | None]) -> list[list[float] | None]:
    """Of each tensor what tells two of them apart: a checksum, the norm, and the sum."""
    found: list[list[float] | None] = []
    for tensor in tensors:
        if tensor is None:
            found.append(None)
            continue
        t = tensor.detach()
        t = t.coalesce().values() if t.is_sparse else t
        wide = t.float()
        found.append([checksum(t), _number(torch.linalg.vector_norm(wide)), _number(wide.sum())])
    return found


def _number(value: Tensor | float) -> float:
    number = float(value)
    return number if math.isfinite(number) else 1e300


def gradients_of(parameters: list[Tensor]) -> list[Tensor | None]:
    return [None if p.grad is None else p.grad.detach() for p in parameters]


def _made(original: Function) -> Function:
    def __init__(self: Any, *args: Any, **keywords: Any) -> None:  # noqa: N807
        original(self, *args, **keywords)
        if recording.record().mine and self not in STEPS[0].known:
            _know(self)

    return __init__


def _know(optimizer: Any) -> None:
    steps = STEPS[0]
    number = steps.known[optimizer] = steps.made
    steps.made += 1
    loaders.COURSE.optimizes = True
    recording.record().write(
        "optimizer",
        number=number,
        site=recording.site(),
        type=type(optimizer).__name__,
        shapes=[list(p.shape) for p in parameters_of(optimizer)],
    )


def hand_moves(hand: by_hand.Hand) -> None:
    """The script is about to move the weights of a model itself."""
    if hand not in STEPS[0].known:
        _know(hand)
    _use(hand)


def hand_moved(hand: by_hand.Hand) -> None:
    _after(hand, (), {})


def _before(optimizer: Any, args: Any, keywords: Any) -> Any:
    steps = STEPS[0]
    if not recording.record().mine or optimizer not in steps.known:
        return None
    closure = args[1] if len(args) > 1 else keywords.get("closure")
    if callable(closure):
        closure = _watched_closure(optimizer, closure)
        return (
            ((args[0], closure, *args[2:]), keywords)
            if len(args) > 1
            else (args, {**keywords, "closure": closure})
        )
    if turns.TURN.waits:
        turns.put_aside(parameters_of(optimizer))
        return None
    if turns.TURN.of > 1:
        turns.put_together(parameters_of(optimizer))
    _use(optimizer)
    return None


def _watched_closure(optimizer: Any, closure: Callable[[], Any]) -> Callable[[], Any]:
    def watched() -> Any:
        loss = closure()
        _use(optimizer)
        return loss

    return watched


def _use(optimizer: Any) -> None:
    """The optimizer is about to use the gradients as they are now."""
    steps = STEPS[0]
    steps_between.stepped(recording.user_frames(sys._getframe(1)))  # noqa: SLF001
    number = steps.known[optimizer]
    step = steps.taken.get(number, 0)
    steps.taken[number] = step + 1
    loaders.stepped()
    parameters = parameters_of(optimizer)
    gradients = gradients_of(parameters)
    detailed = steps.spent < DISK and step < MOST
    if step == 0:
        recording.record().write("names", number=number, names=modules.names_of(parameters))
        modules.note_models(parameters, f"optimizer {number}")
    fields: dict[str, Any] = {}
    if detailed:
        steps.keep("gradient", number, step, gradients)
        fields["gradients"] = sketch(gradients)
        theirs = steps.recorded("gradient", number, step)
        if theirs is not None:
            if turns.TURN.uneven:
                fields["uneven"] = True
            else:
                fields["against"] = against(gradients, theirs, parameters)
            _take_gradients(parameters, theirs, drop=not isinstance(optimizer, by_hand.Hand))
    steps.kept[number] = [p.detach().clone() for p in parameters] if steps.replays else []
    recording.record().write(
        "step",
        number=number,
        step=step,
        site=recording.site(),
        lr=[float(group["lr"]) for group in optimizer.param_groups if "lr" in group],
        trained=[i for i, g in enumerate(gradients) if g is not None],
        losses=turns.mean_over_turns(steps.losses),
        rows=scalars.ROWS[0],
        scalars=scalars.take(),
        backward=steps.backward_sites,
        before=_together(parameters),
        clips=steps.clips,
        **modules.since_last_step(parameters),
        **fields,
    )
    steps.losses, steps.backward_sites, steps.clips = [], [], []


def _together(tensors: list[Tensor]) -> int:
    total = 0
    for tensor in tensors:
        total = zlib.crc32(checksum(tensor).to_bytes(4, "big"), total)
    return total


def against(
    mine: list[Tensor | None], theirs: list[Tensor | None], parameters: list[Tensor]
) -> list[list[float]] | str:
    """Of each: the largest difference, the largest of mine, of theirs, theirs as a multiple of mine, and two norms.

    The norms are of the difference and of mine.
    """
    if len(mine) != len(theirs):
        return f"{len(mine)} parameters here, {len(theirs)} there"
    rows = []
    for own, other, parameter in zip(mine, theirs, parameters, strict=True):
        a = torch.zeros_like(parameter) if own is None else own.to_dense() if own.is_sparse else own
        b = torch.zeros_like(parameter) if other is None else other.to_dense() if other.is_sparse else other
        if a.shape != b.shape:
            return f"{list(a.shape)} here, {list(b.shape)} there"
        a, b = a.double().reshape(-1), b.double().reshape(-1)
        if a.numel() == 0:
            rows.append([0.0, 0.0, 0.0, 1.0, 0.0, 0.0])
            continue
        both_odd = ~a.isfinite() & ~b.isfinite()
        a, b = a.masked_fill(both_odd, 0.0), b.masked_fill(both_odd, 0.0)
        square = float(a @ a)
        rows.append(
            [
                _number((a - b).abs().max()),
                _number(a.abs().max()),
                _number(b.abs().max()),
                _number(float(a @ b) / square if square > 0 else 1.0),
                _number((a - b).norm()),
                _number(square**0.5),
            ]
        )
    return rows


def _after(optimizer: Any, _args: Any, _keywords: Any) -> None:
    steps = STEPS[0]
    if not recording.record().mine or optimizer not in steps.known or turns.TURN.waits:
        return
    number = steps.known[optimizer]
    step = steps.taken.get(number, 0) - 1
    parameters = parameters_of(optimizer)
    steps.keep("weights", number, step, list(parameters))
    theirs = steps.recorded("weights", number, step)
    fields: dict[str, Any] = {}
    if theirs is not None and len(theirs) == len(parameters):
        fields["update"] = update_against(steps.kept.get(number, []), parameters, theirs)
        _take_over(parameters, theirs)
    detailed = steps.spent < DISK and step < MOST
    recording.record().write(
        "stepped",
        number=number,
        step=step,
        weights=sketch(list(parameters)) if detailed else None,
        together=_together(parameters),
        **fields,
    )
    if randomness.PHASE.key is not None and not turns.TURN.loops and not loaders.COURSE.training_batches:
        # nothing deals batches: each step draws its own, the same in both runs
        randomness.PHASE.turn((-3, loaders.COURSE.steps))
    _perhaps_finish(steps)


def update_against(before: list[Tensor], mine: list[Tensor], theirs: list[Tensor | None]) -> list[float]:
    """The largest difference of the two updates of one gradient, the largest update, and which parameter."""
    worst, largest, at = 0.0, 0.0, -1.0
    for i, (old, new, other) in enumerate(zip(before, mine, theirs, strict=False)):
        if other is None or new.shape != other.shape or new.numel() == 0 or not new.is_floating_point():
            continue
        own_update, other_update = (new.detach() - old).double(), (other - old).double()
        difference = _number((own_update - other_update).abs().max())
        size = max(_number(own_update.abs().max()), _number(other_update.abs().max()))
        # weights are rounded to their own size, and so is what was added to them
        difference = max(0.0, difference - 2e-7 * _number(old.abs().max()))
        if size > 0 and difference / size > worst:
            worst, at = difference / size, float(i)
        largest = max(largest, size)
    return [worst, largest, at]


def _take_over(parameters: list[Tensor], theirs: list[Tensor | None]) -> None:
    with torch.no_grad():
        for own, other in zip(parameters, theirs, strict=False):
            if other is not None and own.shape == other.shape:
                own.copy_(other)


def _take_gradients(parameters: list[Tensor], theirs: list[Tensor | None], *, drop: bool) -> None:
    """Go on with the migrated run's gradients: they have been judged, and the optimizer is judged by what it does."""
    with torch.no_grad():
        for own, other in zip(parameters, theirs, strict=False):
            if other is None and drop:
                own.grad = None
            elif other is None:
                continue
            elif own.grad is not None and own.grad.shape == other.shape and not own.grad.is_sparse:
                own.grad.copy_(other)


def begin(module: torch.nn.Module) -> None:
    """At the first forward of a model: the original takes over what the migrated run's models began with.

    All models there are by then, since one may be a copy of another.
    """
    steps = STEPS[0]
    roots = [root for root in modules.roots_alive() if id(root) not in modules.BEGUN]
    modules.BEGUN.update(id(part) for part in (module, *module.modules()))
    tensors = []
    for root in roots:
        modules.BEGUN.update(id(part) for part in root.modules())
        tensors.append([t.detach() for t in (*root.parameters(), *root.buffers()) if t.numel()])
    steps.alive += roots  # an id must not be given to another module
    number = steps.begun
    steps.begun += 1
    shapes = [[list(t.shape) for t in one] for one in tensors]
    recording.record().write(
        "models", number=number, types=[type(root).__name__ for root in roots], shapes=shapes
    )
    steps.keep("models", number, 0, [tensor for one in tensors for tensor in one])
    theirs = steps.recorded("models", number, 0)
    if theirs is not None:
        _take_models(number, [type(root).__name__ for root in roots], tensors, theirs)


def _take_models(
    number: int, types: list[str], mine: list[list[Tensor]], theirs: list[Tensor | None]
) -> None:
    """Give each model what the migrated run's of its type and shapes began with."""
    steps = STEPS[0]
    told = steps.told_models.get(number)
    if told is None:
        return
    left, first = [], 0
    for kind, shapes in zip(told["types"], told["shapes"], strict=True):
        left.append((kind, shapes, theirs[first : first + len(shapes)]))
        first += len(shapes)
    worst, unmatched = 0.0, 0
    for kind, tensors in zip(types, mine, strict=True):
        shapes = [list(t.shape) for t in tensors]
        match = next((one for one in left if one[0] == kind and one[1] == shapes), None)
        if match is None:
            unmatched += bool(tensors)
            continue
        left.remove(match)
        pairs = [(a, b) for a, b in zip(tensors, match[2], strict=True) if b is not None]
        worst = max(worst, *(_number((a.double() - b.double()).abs().max()) for a, b in pairs), 0.0)
        _take_over(tensors, match[2])
    recording.record().write("start", number=number, unmatched=unmatched, difference=worst)


def note_buffers() -> None:
    """After each pass over training data: running statistics and whatever else the models keep."""
    by_hand.ended()
    steps = STEPS[0]
    parameters = [p for optimizer in steps.known for p in parameters_of(optimizer)]
    named = modules.buffers_around(parameters)
    number = steps.passes
    steps.passes += 1
    recording.record().write("scalars", number=-1, step=number, rows=scalars.ROWS[0], scalars=scalars.take())
    modules.note_models(parameters, f"pass {number}")
    if not named:
        return
    steps.keep("buffers", 0, number, [buffer.detach() for _, buffer in named])
    theirs = steps.recorded("buffers", 0, number)
    fields: dict[str, Any] = {}
    if theirs is not None:
        mine: list[Tensor | None] = [buffer.detach() for _, buffer in named]
        fields["against"] = against(mine, theirs, [buffer for _, buffer in named])
        _take_over([buffer for _, buffer in named], theirs)
    recording.record().write("buffers", number=number, names=[name for name, _ in named], **fields)


def _perhaps_finish(steps: Steps) -> None:
    """When time is up all ranks leave after the same step: rank 0 names one that nobody has reached."""
    record = recording.record()
    if steps.plan.role != "migrated" or record.elapsed() < steps.plan.seconds:
        return
    course = loaders.COURSE
    paper = Path(steps.plan.meeting) / "finish"
    if steps.plan.rank == 0 and not paper.exists():
        paper.with_suffix(".part").write_text(str(course.steps + 4))
        paper.with_suffix(".part").rename(paper)
    if course.finish_at is None and paper.exists():
        course.finish_at = int(paper.read_text())
    if course.finish_at is not None and course.steps >= course.finish_at + 200 * course.per_step:
        raise loaders.EnoughError(0)
    if course.finish_at is not None and course.steps >= course.finish_at and not course.per_step:
        record.write("enough")
        raise loaders.EnoughError(0)


def _backward(original: Function) -> Function:
    def backward(tensors: Any, *args: Any, **keywords: Any) -> Any:
        steps = STEPS[0]
        by_hand.ended()
        if recording.record().mine:
            first = tensors if isinstance(tensors, Tensor) else next(iter(tensors), None)
            value = float(first.detach()) if isinstance(first, Tensor) and first.numel() == 1 else None
            steps.losses.append(value if value is None or math.isfinite(value) else None)
            where = recording.site()
            if where and where not in steps.backward_sites:
                steps.backward_sites.append(where)
            recording.record().events += 1
            modules.backward_called()
        recording.record().doing = "backward"
        try:
            result = original(tensors, *args, **keywords)
        finally:
            recording.record().doing = ""
            recording.record().events += 1
        by_hand.backward_ended(steps.made)
        return result

    return backward


def _schedule(original: Function) -> Function:
    def step(self: Any, *args: Any, **keywords: Any) -> Any:
        if turns.TURN.waits:
            return None
        if recording.record().mine:
            where = recording.site()
            recording.record().write_once("schedule", where, site=where)
            if isinstance(self, torch.optim.lr_scheduler.ReduceLROnPlateau) and (
                args or "metrics" in keywords
            ):
                value = _number(float(args[0] if args else keywords["metrics"]))
                recording.record().write("plateau", site=where, value=value)
        return original(self, *args, **keywords)

    return step


def _clip(original: Function) -> Function:
    def clip(parameters: Any, *args: Any, **keywords: Any) -> Any:
        if turns.TURN.of > 1:
            parameters = [parameters] if isinstance(parameters, Tensor) else list(parameters)
            if turns.TURN.waits:
                return original(parameters, float("inf"))
            turns.put_together(parameters)
        result = original(parameters, *args, **keywords)
        if recording.record().mine and isinstance(result, Tensor):
            STEPS[0].clips.append(_number(result.detach()))
        return result

    return clip


def install(plan: Plan) -> None:
    STEPS[:] = [Steps(plan)]
    loaders.AFTER_TRAINING.append(note_buffers)
    replace(optimizers.Optimizer, "__init__", _made)
    optimizers.register_optimizer_step_pre_hook(_before)
    optimizers.register_optimizer_step_post_hook(_after)
    replace(torch.autograd, "backward", _backward)
    for schedule in (torch.optim.lr_scheduler.LRScheduler, torch.optim.lr_scheduler.ReduceLROnPlateau):
        replace(schedule, "step", _schedule)
    replace(torch.nn.utils, "clip_grad_norm_", _clip)
    replace(torch.nn.utils.clip_grad, "clip_grad_norm_", _clip)
