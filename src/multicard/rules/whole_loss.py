"""Make a summed or locally normalised loss that of the whole batch.

DDP averages gradients over the ranks.  For a mean over equally many samples that is the mean over all of them.  A
sum comes out N times too small; a mean over a number that differs from rank to rank (valid tokens, masked pixels)
comes out weighted wrongly.

Before:

    criterion = nn.MSELoss(reduction="sum")
    loss = criterion(model(x), y)
    loss.backward()

After:

    criterion = nn.MSELoss(reduction="sum")
    loss = criterion(model(x), y)
    (loss * dist.get_world_size()).backward()
"""

import ast
from collections.abc import Iterator

from multicard.edits import wrap
from multicard.facts import Facts
from multicard.interpret import Event, mean_at
from multicard.messages import Text
from multicard.plan import Finding, Kind
from multicard.reach import differs, left_out
from multicard.source import Module
from multicard.tree import held, nodes
from multicard.values import Data

CODE = "MC306"
TITLE = Text("The loss of the whole batch", "整个批次的损失")

_SUM = Text(
    "the loss is a sum, and gradients are averaged over the ranks: times the world size it is the sum over all ranks",
    "损失是求和形式,而梯度会在各进程间取平均:乘以进程数才是全部样本的和",
)
_COUNT = Text(
    "the loss is divided by a number that differs from rank to rank; scaled by this rank's share of it, the average is"
    " that over all ranks",
    "损失除以的数量在各进程间不同;按本进程所占比例缩放后,平均值才等于全部样本的平均",
)
_PASSED = Text(
    "; a rank whose own data have none does not come here, and the others would wait for it",
    ";而自身数据没有这一项的进程不会执行到这里,其他进程会一直等待它",
)
_COST = Text("; one small all-reduce a step", ";每步多一次很小的 all-reduce")


def find(facts: Facts) -> Iterator[Finding]:
    """Backward passes of sums, and divisions by local counts."""
    done: set[ast.AST] = set()
    for event in facts.backwards:
        data = event.subject
        if event.node in done or not isinstance(data, Data) or not isinstance(event.node, ast.Call):
            continue
        done.add(event.node)
        if "summed" in data.tags:
            yield _summed(facts, event, data)
    used = {tag for event in facts.backwards for tag in getattr(event.subject, "tags", ())}
    for event in facts.events("local_mean", dead=False):
        if event.node in done or not facts.trains(event) or mean_at(event.node) not in used:
            continue
        done.add(event.node)
        yield from _local_mean(facts, event)


def _summed(facts: Facts, event: Event, data: Data) -> Finding:
    place = facts.site(event.module, event.node)
    function = event.node.func if isinstance(event.node, ast.Call) else None
    if "averaged" in data.tags or not isinstance(function, ast.Attribute):
        return Finding(
            CODE,
            place,
            Text(
                "this loss adds sums over the batch to means over it, and only sums must grow with the number of ranks",
                "该损失把对批次的求和与平均加在一起,而只有求和部分需要随进程数放大",
            ),
            advice=Text(
                "multiply the summed part by dist.get_world_size(), or make it a mean",
                "请把求和的部分乘以 dist.get_world_size(),或改为平均",
            ),
            kind=Kind.LEFT,
        )
    edits = wrap(event.module, function.value, "(", " * «dist».get_world_size())")
    return Finding(CODE, place, _SUM, edits)


def _local_mean(facts: Facts, event: Event) -> Iterator[Finding]:
    module, node = event.module, event.node
    others = [other for other in facts.by_node.get(node, ()) if other.kind == "local_mean"]
    if any(other.grad and not facts.trains(other) and not other.dead for other in others):
        yield _by_hand(facts, event)
        return
    if _passed_by(facts, module, node):
        yield _by_hand(facts, event, passed_by=True)
        return
    why = Text(_COUNT.en + _COST.en, _COUNT.zh + _COST.zh)
    if isinstance(node, ast.BinOp):
        count = _divisor(module, node.right)
        yield Finding(
            CODE, facts.site(module, node), why, wrap(module, node, "(", f" * «scale_by_count»({count}))")
        )
    elif isinstance(node, ast.Call) and len(node.args) > 1 and event.name:
        target = module.text(node.args[1])
        count = f"({target} != {event.name}).sum()"
        yield Finding(
            CODE, facts.site(module, node), why, wrap(module, node, "(", f" * «scale_by_count»({count}))")
        )
    else:
        yield _by_hand(facts, event)


def _divisor(module: Module, node: ast.expr) -> str:
    """The arguments for `scale_by_count`: the divisor, and what was counted where it is kept from being zero."""
    text = module.text(node)
    match node:
        case ast.Call(func=ast.Attribute(value=count, attr="clamp" | "clamp_" | "clamp_min" | "clip")):
            return f"{text}, {module.text(count)}"
        case (
            ast.Call(func=ast.Name(id="max"), args=[ast.Constant(), count])
            | ast.Call(func=ast.Name(id="max"), args=[count, ast.Constant()])
        ):
            return f"{text}, {module.text(count)}"
        case ast.BinOp(left=count, op=ast.Add(), right=ast.Constant()):
            return f"{text}, {module.text(count)}"
        case ast.BinOp(left=ast.Constant(), op=ast.Add(), right=count):
            return f"{text}, {module.text(count)}"
        case _:
            return text


def _passed_by(facts: Facts, module: Module, node: ast.AST) -> bool:
    """Whether ranks may come to a mean or not, as their own data say."""
    function = facts.function(module, node)
    for branch in nodes(function, ast.If) if function is not None else ():
        beyond = (*branch.body, *branch.orelse, *left_out(facts, module, branch))
        if any(node in held(statement) for statement in beyond) and differs(facts, branch.test):
            return True
    return False


def _by_hand(facts: Facts, event: Event, *, passed_by: bool = False) -> Finding:
    why = Text(_COUNT.en + _PASSED.en, _COUNT.zh + _PASSED.zh) if passed_by else _COUNT
    return Finding(
        CODE,
        facts.site(event.module, event.node),
        why,
        advice=Text(
            "multiply the loss by scale_by_count(count) from ddp_runtime in training, and not in evaluation",
            "请在训练时把损失乘以 ddp_runtime 的 scale_by_count(count)，验证时不要乘",
        ),
        kind=Kind.LEFT,
    )
