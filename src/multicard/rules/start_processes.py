"""Start the process group and learn which process this is.

torchrun starts the same script once for each card.  Until `init_process_group` the processes do not know of each
other; until `set_device` they all use card 0.  `setup_ddp` does both, seeds all ranks alike, and makes a plain
`python train.py` a world of one.

Before:

    torch.backends.cudnn.benchmark = True
    torch.manual_seed(0)

After:

    local_rank, rank, world_size = setup_ddp()
    torch.backends.cudnn.benchmark = True
    torch.manual_seed(0)
"""

from collections.abc import Iterator

from multicard.edits import insert_before
from multicard.facts import Facts
from multicard.messages import Text
from multicard.plan import Finding
from multicard.start import NAMES, start

CODE = "MC101"
TITLE = Text("Start the process group", "初始化分布式环境")


def find(facts: Facts) -> Iterator[Finding]:
    """One finding: the line that starts everything."""
    place = start(facts)
    call = "«setup_ddp»()"
    line = f"{', '.join(NAMES)} = {call}" if place.names else call
    yield Finding(
        CODE,
        facts.site(place.module, place.before),
        Text(
            "joins the processes that torchrun starts, gives each its own card and one common random state, and is a"
            " world of one under plain python",
            "建立多卡通信,给每个进程分配对应的卡和相同的初始随机状态;直接用 python 运行时就是单进程",
        ),
        (insert_before(place.module, place.before, line),),
    )
