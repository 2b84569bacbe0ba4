"""What a launched process is told: which run it is, where to write, how far to go.

The launcher and the probe live in different processes, and the probe imports torch while the launcher must
not. So they share this file and nothing else.
"""

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

Role = Literal["original", "migrated"]

PLAN_VARIABLE = "MULTICARD_VERIFY_PLAN"
RUN_VARIABLE = "MULTICARD_VERIFY_RUN"


@dataclass(frozen=True)
class Plan:
    """One process of one run."""

    role: Role
    rank: int
    world_size: int
    folder: str  # where this process writes its trace
    meeting: str  # where the ranks find one another, and where rank 0 leaves tensors
    scratch: str  # the copies of the user's folders
    links: tuple[tuple[str, str], ...]  # (the user's folder, its copy in scratch)
    script: str
    arguments: tuple[str, ...]
    seed: int
    steps: int
    full: bool
    seconds: float  # after this much time, finish as soon as all ranks can
    recorded: tuple[str, ...] = ()  # traces of the migrated run's ranks, to be replayed
    split: int = 1  # into how many batches of the original those of all ranks together are split
    larger: tuple[tuple[int, int], ...] = ()  # batch sizes in the script to be read as others
    turns: int = (
        0  # loops over batches made by hand get those of all ranks: 1 together, 2 one after the other
    )
    mates: tuple[str, ...] = ()  # traces of an earlier run, whose ranks' batches are padded as one
    each: tuple[tuple[str, int], ...] = ()  # lines that draw for each sample, and how often
    absolute: bool = False  # absolute paths in the script lead to the copies
    cuda: bool = False  # answer True to torch.cuda.is_available()

    def write(self, path: Path) -> None:
        path.write_text(json.dumps(asdict(self)))


def read_plan(path: Path) -> Plan:
    data = json.loads(path.read_text())
    data["links"] = tuple((a, b) for a, b in data["links"])
    data["arguments"] = tuple(data["arguments"])
    data["larger"] = tuple((a, b) for a, b in data["larger"])
    data["recorded"], data["mates"] = tuple(data["recorded"]), tuple(data["mates"])
    data["each"] = tuple((a, b) for a, b in data["each"])
    return Plan(**data)
