"""Two more runs, nearer to each other than the first two, where these have told why they must differ.

Batches that are padded to their longest sample are others on each rank; a draw that a script makes sample by sample in
a loop of its own is for another sample. Neither is a fault, and either hides whether there is one. So where the first
runs differ, and tell of such a thing, both are run again with it taken away; and only if they then compute the same is
that what is judged.
"""

import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from multicard.messages import Text
from multicard.verify.evidence import Event, key_of
from multicard.verify.trial import Hints, Run
from multicard.verify.verdict import Verdict

COMPUTED = {"loss", "gradients", "buffers"}


def apart(verdict: Verdict) -> bool:
    """Whether both runs came to their ends and computed different things."""
    return verdict.ended == "compared" and any(check.name in COMPUTED for check in verdict.failed)


def hints(original: Run, migrated: Run, folder: Path) -> Hints | None:
    """What the runs tell that may set them apart; None for nothing."""
    each = {"original": _lines(original.traces), "migrated": _lines(migrated.traces)}
    padded = padded_otherwise(migrated)
    if len(each["original"]) != len(each["migrated"]) or not (padded or each["original"]):
        return None if not padded else Hints(_kept(migrated, folder), {"original": (), "migrated": ()})
    return Hints(_kept(migrated, folder) if padded else (), each)


def _kept(migrated: Run, folder: Path) -> tuple[str, ...]:
    """Copies of the ranks' traces, which another run would overwrite."""
    (folder / "mates").mkdir()
    found = []
    for rank in range(len(migrated.traces)):
        copy = folder / "mates" / f"rank{rank}.jsonl"
        shutil.copy(folder / "migrated" / f"rank{rank}" / "trace.jsonl", copy)
        found.append(str(copy))
    return tuple(found)


def _lines(traces: tuple[list[Event], ...]) -> tuple[tuple[str, int], ...]:
    """The lines that draw for each sample in all processes."""
    told = [
        [
            (str(site), int(times))
            for event in trace
            if event["kind"] == "drawn-for-each"
            for site, times in event["sites"]
        ]
        for trace in traces
    ]
    return tuple(line for line in told[0] if all(line in lines for lines in told[1:]))


def padded_otherwise(migrated: Run) -> bool:
    """Whether the ranks have had batches of other shapes at the same time, in training."""
    training = {key_of(event) for trace in migrated.traces for event in trace if event["kind"] == "trains"}
    shapes: dict[tuple[object, ...], list[object]] = {}
    for event in _batches(migrated):
        if key_of(event) in training and event.get("shapes"):
            shapes.setdefault((key_of(event), event["number"], event["at"]), []).append(event["shapes"])
    return any(one != found[0] and len(one) == len(found[0]) for found in shapes.values() for one in found)  # type: ignore[arg-type]


def _batches(run: Run) -> Iterator[Event]:
    return (event for trace in run.traces for event in trace if event["kind"] == "batch")


def told(verdict: Verdict, found: Hints) -> Verdict:
    """The verdict on the second runs, which says what has been taken away."""
    en, zh = [], []
    if found.mates:
        en.append("the batches of all ranks padded to one length, as those of one card are")
        zh.append("所有进程的批次按单卡的方式补齐到同一长度")
    if found.each["original"]:
        en.append("what the script draws for each sample in turn the same for that sample")
        zh.append("脚本逐个样本抽取的随机数对同一样本相同")
    return replace(
        verdict,
        checks=tuple(
            replace(
                check,
                state="told",
                detail=Text(
                    f"{check.detail.en}; with {', and '.join(en)}", f"{check.detail.zh}；其中{'，'.join(zh)}"
                ),
            )
            if check.name == "gradients"
            else check
            for check in verdict.checks
        ),
    )
