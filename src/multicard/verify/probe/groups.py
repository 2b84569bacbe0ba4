"""The process group, on gloo whatever the script asks for, and every collective with the line that called it.

A hang is two ranks in two different collectives. To name them, each is written down on its way in and out.
"""

import datetime as dt
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch.distributed as dist
from torch.distributed import distributed_c10d

from multicard.verify.doing import COLLECTIVES
from multicard.verify.plan import Plan
from multicard.verify.probe import batchnorm
from multicard.verify.probe import record as recording
from multicard.verify.probe.patching import Function, replace

WRITTEN_DOWN = 20_000
COUNT = [0]
KEPT: list[Any] = []  # process groups: whoever lets go of the last reference joins its threads, and may hang


def _counted(name: str) -> Callable[[Function], Function]:
    def make(original: Function) -> Function:
        def collective(*args: Any, **keywords: Any) -> Any:
            record = recording.record()
            if not record.mine or record.waiting is not None:
                return original(*args, **keywords)
            COUNT[0] += 1
            record.waiting = name
            if COUNT[0] < WRITTEN_DOWN:
                record.write("collective", name=name, number=COUNT[0], chain=recording.chain())
            record.events += 1
            result = original(*args, **keywords)
            # an exception leaves `waiting` as it is: the rank failed in this collective
            record.waiting = None
            record.events += 1
            return result

        return collective

    return make


def _init(plan: Plan) -> Callable[[Function], Function]:
    def make(original: Function) -> Function:
        def init_process_group(backend: Any = None, *args: Any, **keywords: Any) -> Any:
            record = recording.record()
            record.write("init", site=recording.site(), backend=str(backend))
            asked_for_one = keywords.get("world_size") == 1 or plan.world_size == 1
            timeout = keywords.get("timeout") or dt.timedelta(hours=2)
            record.waiting = "init_process_group"
            if asked_for_one:
                alone = dist.HashStore()  # type: ignore[attr-defined]
                result = original("gloo", store=alone, rank=0, world_size=1, timeout=timeout)
            else:
                store = dist.FileStore(  # type: ignore[attr-defined]
                    str(Path(plan.meeting) / "store"), plan.world_size
                )
                result = original(
                    "gloo", store=store, rank=plan.rank, world_size=plan.world_size, timeout=timeout
                )
                batchnorm.open_group()
            KEPT.append(distributed_c10d._get_default_group())  # noqa: SLF001
            record.waiting = None
            record.events += 1
            record.write("joined")
            return result

        return init_process_group

    return make


def install(plan: Plan) -> None:
    for name in COLLECTIVES:
        replace(distributed_c10d, name, _counted(name))
        if hasattr(dist, name):
            setattr(dist, name, getattr(distributed_c10d, name))
    replace(distributed_c10d, "init_process_group", _init(plan))
    dist.init_process_group = distributed_c10d.init_process_group
    replace(distributed_c10d, "new_group", _on_gloo)
    dist.new_group = distributed_c10d.new_group


def _on_gloo(original: Function) -> Function:
    def new_group(*args: Any, **keywords: Any) -> Any:
        keywords["backend"] = "gloo"
        record = recording.record()
        outer, record.waiting = record.waiting, record.waiting or "new_group"
        result = original(*args[:2], **keywords)
        KEPT.append(result)
        record.waiting = outer
        return result

    return new_group
