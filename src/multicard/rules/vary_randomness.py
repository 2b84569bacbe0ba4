"""Let dropout and augmentation differ between the ranks.

All ranks start from one random state, so that splits, initial weights and shuffles agree.  If it stayed so, every
rank would draw the same dropout masks and the same crops.  Samplers keep the common seed.

Before:

    for epoch in range(3):
        for x, y in loader:
            loss = criterion(model(x), y)
            loss.backward()

After:

    vary_seed()
    for epoch in range(3):
        for x, y in loader:
            loss = criterion(model(x), y)
            loss.backward()
"""

import ast
from collections.abc import Iterator

from multicard.edits import insert_before
from multicard.facts import Facts, key
from multicard.interpret import Event, Frame
from multicard.messages import Text
from multicard.plan import Finding, Kind
from multicard.rules.share_batches import drawing_loops, in_step
from multicard.source import Module
from multicard.values import Obj, data_of

CODE = "MC104"
TITLE = Text("Different noise on each rank", "各卡使用不同的随机噪声")

_DECIDING = frozenset(
    {
        "torch.utils.data.random_split",
        "random.shuffle",
        "random.sample",
        "numpy.random.shuffle",
        "numpy.random.permutation",
        "torch.randperm",
        "sklearn.model_selection.train_test_split",
    }
)


def find(facts: Facts) -> Iterator[Finding]:
    """One line before the first loop that trains, unless data are drawn after it."""
    place = _place(facts)
    if place is None:
        return
    module, loop, order = place
    if any(in_step(facts, training) for training in facts.trainings):
        yield Finding(
            CODE,
            facts.site(module, loop),
            Text(
                "what the model chooses decides how long training goes on, so all ranks keep one random state"
                " and choose alike",
                "模型的选择决定了训练进行多久,因此各卡保持同一随机状态,作出相同的选择",
            ),
            kind=Kind.NOTE,
        )
        return
    own = drawing_loops(facts)
    draws = (event for event in facts.run.events if event.order >= order and _decides(event))
    draw = next((event for event in draws if not own.intersection(map(key, event.loops))), None)
    if draw is not None:
        yield Finding(
            CODE,
            facts.site(draw.module, draw.node),
            Text(
                f"`{draw.name}` decides on data after training has begun, so all ranks keep one random state and"
                " draw the same dropout masks",
                f"训练开始后 `{draw.name}` 仍在决定数据,因此各卡保持同一随机状态,dropout 等噪声相同",
            ),
            kind=Kind.NOTE,
        )
        return
    yield Finding(
        CODE,
        facts.site(module, loop),
        Text(
            "from here on each rank draws its own dropout masks and augmentations; samplers keep the common seed",
            "从这里开始各卡的 dropout 与数据增强各不相同;采样器仍用共同的种子",
        ),
        (insert_before(module, loop, "«vary_seed»()"),),
    )


def _place(facts: Facts) -> tuple[Module, ast.stmt, int] | None:
    """The outermost loop round the first training in which no model is made, and when the outermost of all begins."""
    made = [
        event
        for event in facts.events("construct", dead=False)
        if isinstance(event.subject, Obj) and event.subject in facts.trained
    ]
    for training in facts.trainings:
        loops = [loop for loop in training.backward.loops if isinstance(loop.node, ast.For | ast.While)]
        if loops:
            begin = min(item.order for item in facts.run.events if loops[0] in item.loops)
            around = {loop for event in made for loop in event.loops}
            place = next((loop for loop in loops if loop not in around), loops[0])
            if isinstance(place.node, ast.For | ast.While):
                return place.module, place.node, begin
    return None


def _decides(event: Event) -> bool:
    """Whether a draw chooses data in the main process, not noise in a data set or a model."""
    if event.kind != "call" or event.dead or event.name not in _DECIDING:
        return False
    if any(_builds_a_model(frame) for frame in event.frames):
        return True
    if event.inside:
        return False
    for frame in event.frames:
        owner = frame.self_value
        if owner is not None and owner.kind in {"dataset", "sampler", "model"}:
            return owner.kind == "dataset" and _asked_by_the_script(frame)
    return not _mixes(event)


def _asked_by_the_script(frame: Frame) -> bool:
    """Whether a method of a data set is one that only the script itself calls: `train_set.shuffle()`."""
    return isinstance(frame.node, ast.FunctionDef) and not frame.node.name.startswith("__")


def _builds_a_model(frame: Frame) -> bool:
    """Whether a model is being made: what is drawn for its shape must be the same on all ranks."""
    owner = frame.self_value
    return (
        owner is not None
        and owner.kind == "model"
        and isinstance(frame.node, ast.FunctionDef)
        and frame.node.name == "__init__"
    )


def _mixes(event: Event) -> bool:
    """Whether a permutation only mixes the samples of one batch, as mixup does."""
    sizes = (data_of(values) for values in event.args.values())
    return any("size" in size.tags and size.loaders for size in sizes)
