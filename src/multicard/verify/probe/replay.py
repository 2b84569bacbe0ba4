"""What the ranks of the migrated run dealt, read from their traces."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

Key = tuple[str, int]


@dataclass
class DealtLoader:
    """One loader of the migrated script, over all ranks."""

    key: Key
    dataset: str
    base: int | None
    length: int | None
    batch_size: int | None = None
    iterable: bool = False
    trains: bool = False
    taken: bool = False
    shares: dict[int, dict[int, list[list[int]]]] = field(default_factory=dict)  # pass -> rank -> batches
    kept: dict[int, dict[int, list[str | None]]] = field(
        default_factory=dict
    )  # of a stream: where its samples are
    seeds: dict[int, int] = field(default_factory=dict)  # of a stream: what its draws began with
    endings: dict[int, str] = field(default_factory=dict)
    ranks: int = 1
    split: int = 1
    _together: dict[int, list[list[list[int]]]] = field(default_factory=dict)

    def batches_of(self, number: int) -> list[list[list[int]]]:
        """The shares of the ranks, batch by batch."""
        if number not in self._together:
            by_rank = self.shares.get(number, {})
            count = max((len(batches) for batches in by_rank.values()), default=0)
            together = [
                [
                    by_rank[rank][at] if rank in by_rank and at < len(by_rank[rank]) else []
                    for rank in range(self.ranks)
                ]
                for at in range(count)
            ]
            self._together[number] = [part for shares in together for part in self._parts(shares)]
        return self._together[number]

    def samples_of(self, number: int) -> list[list[str] | None]:
        """Where the samples of each batch of a stream are kept; None for those that could not be."""
        by_rank, size = self.kept.get(number, {}), self.ranks // self.split
        count = max(map(len, by_rank.values()), default=0)
        found: list[list[str] | None] = []
        for at in range(count):
            for group in range(self.split):
                ranks = range(group * size, (group + 1) * size)
                paths = [by_rank[rank][at] for rank in ranks if at < len(by_rank.get(rank, ()))]
                known = [path for path in paths if path is not None]
                found.append(known if len(known) == len(paths) else None)
        return found

    def in_turn(self, number: int) -> list[list[int]]:
        """The batches of rank 0, then those of rank 1, and so on; once, where all ranks had the same."""
        by_rank = [batches for _, batches in sorted(self.shares.get(number, {}).items())]
        if len(by_rank) > 1 and all(batches == by_rank[0] for batches in by_rank[1:]):
            by_rank = by_rank[:1]
        seen: set[int] = set()
        batches = []
        for batch in (batch for one in by_rank for batch in one):
            fresh = [index for index in batch if index not in seen]
            seen.update(fresh)
            if fresh:
                batches.append(fresh)
        return batches

    def _parts(self, shares: list[list[int]]) -> list[list[list[int]]]:
        """The shares of groups of ranks, one group after the other."""
        size = self.ranks // self.split
        return [
            [share if rank // size == group else [] for rank, share in enumerate(shares)]
            for group in range(self.split)
        ]

    @property
    def rows(self) -> int:
        """How many samples a full batch of all ranks together had."""
        return max(
            (sum(map(len, shares)) for number in self.shares for shares in self.batches_of(number)), default=0
        )

    def ending_of(self, number: int) -> str:
        return self.endings.get(number, "none")


@dataclass
class Replay:
    """All loaders of the migrated run."""

    loaders: list[DealtLoader]

    @staticmethod
    def read(paths: Sequence[str], split: int = 1) -> "Replay":
        loaders: dict[Key, DealtLoader] = {}
        for rank, path in enumerate(paths):
            for line in Path(path).read_text(encoding="utf-8").splitlines():
                _take(json.loads(line), rank, len(paths), loaders)
        for loader in loaders.values():
            loader.split = split
            if loader.trains and loader.length is not None:
                loader.length *= split
        return Replay(list(loaders.values()))

    def counterpart(self, dataset: str, base: int | None, *, iterable: bool = False) -> DealtLoader | None:
        """The loader of the migrated script that this one of the original became.

        A stream is often wrapped in another, and then tells another length.
        """
        free = [loader for loader in self.loaders if not loader.taken and loader.iterable == iterable]
        if iterable:
            found = next((loader for loader in free if loader.dataset == dataset), next(iter(free), None))
        else:
            found = next((one for one in free if one.dataset == dataset and one.base == base), None)
        if found is not None:
            found.taken = True
        return found


def _take(event: dict[str, Any], rank: int, ranks: int, loaders: dict[Key, DealtLoader]) -> None:
    kind = event["kind"]
    if kind not in {"loader", "trains", "pass", "batch", "passed"}:
        return
    key: Key = (event["key"][0], event["key"][1])
    if kind == "loader":
        if key not in loaders:
            loaders[key] = DealtLoader(
                key,
                event["dataset"],
                event["base"],
                event["length"],
                event.get("batch_size"),
                event.get("iterable", False),
                ranks=ranks,
            )
        return
    loader = loaders[key]
    if kind == "trains":
        loader.trains = True
    elif kind == "pass":
        if event.get("seed") is not None:
            loader.seeds[event["number"]] = event["seed"]
    elif kind == "batch":
        loader.shares.setdefault(event["number"], {}).setdefault(rank, []).append(event["indices"])
        if loader.iterable:
            loader.kept.setdefault(event["number"], {}).setdefault(rank, []).append(event.get("kept"))
    elif rank == 0 or event["number"] not in loader.endings:
        loader.endings[event["number"]] = event["how"]
