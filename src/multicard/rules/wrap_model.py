from collections.abc import Iterator

from multicard.edits import insert_after
from multicard.facts import Facts
from multicard.interpret import Wrap
from multicard.messages import Text
from multicard.plan import Finding, Kind
from multicard.values import Obj

CODE = "MC301"
TITLE = Text("Wrap the model in DDP", "模型用 DDP 包装")


def find(facts: Facts) -> Iterator[Finding]:
    """One finding for each place where a model is wrapped."""
    wraps: dict[Wrap, list[Obj]] = {}
    for model, wrap in facts.places:
        wraps.setdefault(wrap, []).append(model)
    for wrap, models in wraps.items():
        module = facts.module_of[wrap.target]
        name = module.text(wrap.target)
        options = "".join(f", {option}" for option in facts.wrapper_options(models))
        yield Finding(
            CODE,
            facts.site(module, wrap.statement),
            Text(
                f"gradients of `{name}` are averaged over the ranks in every backward pass",
                f"每次反向传播时对 `{name}` 的梯度做多卡平均",
            ),
            (insert_after(module, wrap.statement, f"{name} = «DDP»({name}, device_ids=«device_ids»({name}){options})"),),
        )
    for model, reason, home in facts.unwrapped:
        del home
        site = model.site or facts.site(facts.program.entry, facts.program.entry.tree.body[0])
        yield Finding(
            CODE,
            site,
            Text(f"`{model.name}` cannot be wrapped: {reason}", f"`{model.name}` 无法包装:{reason}"),
            (),
            Text("wrap it by hand", "请手动包装"),
            Kind.LEFT,
        )
