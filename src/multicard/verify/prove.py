"""Both runs, from the first process to the verdict.

The migrated script runs first, since the original is fed what its ranks dealt. A run that hangs is reported
at once; the original is then not needed to know that something is wrong.
"""

import re
import signal
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from itertools import zip_longest
from pathlib import Path
from typing import Any

from multicard.messages import Text
from multicard.verify import causes, endings, nearer, trial
from multicard.verify.checks import compare, ranks, steps, streams
from multicard.verify.doing import doing_in
from multicard.verify.evidence import Event, Pair, Trace, batches_per_step
from multicard.verify.trial import Options, Run
from multicard.verify.verdict import Cause, Check, Curve, Verdict, Where

Progress = Callable[[str, int, float], None]
TITLE_END = Text("both runs end", "两边都正常结束")
FRAME = re.compile(r'\s+File "(?P<path>.+)", line (?P<line>\d+) in (?P<name>\S+)')
MISMATCH = re.compile(r"op\.preamble\.length|EnforceNotMet|collective mismatch")
WANTS_CARD = re.compile(r"cuda|gpu|nvidia|显卡", re.IGNORECASE)


@dataclass(frozen=True)
class Failure:
    """An exception of one process: the user's traceback, and its last line of theirs."""

    rank: int
    text: str
    site: str | None
    t: float


def prove(options: Options, progress: Progress) -> Verdict:
    """Run both scripts and compare them."""
    with trial.workshop() as folder:
        verdict = _attempt(options, folder / "first", progress, cuda=False)
        if verdict is None:
            verdict = _attempt(options, folder / "second", progress, cuda=True)
        assert verdict is not None
        return verdict


def _attempt(options: Options, folder: Path, progress: Progress, *, cuda: bool) -> Verdict | None:
    """One try at both runs; None where they refuse to run without a card, and have not been told of one."""
    folder.mkdir()
    migrated = trial.run("migrated", options, folder, lambda s, t: progress("migrated", s, t), cuda=cuda)
    if not cuda and _refused(migrated):
        return None
    if migrated.outcome.ended == "failed" and _cut_short(migrated):
        # what the script makes at the end of an epoch may have been missing
        options = replace(options, full=True)
        migrated = trial.run("migrated", options, folder, lambda s, t: progress("migrated", s, t), cuda=cuda)
    led = partial(_attempt, replace(options, absolute=True), folder / "led", progress, cuda=cuda)
    if _kept(migrated) and not options.absolute:
        return led()
    if migrated.outcome.ended == "hung":
        return _hung(options, migrated)
    again = partial(
        trial.run,
        "original",
        options,
        folder,
        lambda s, t: progress("original", s, t),
        replay=True,
        cuda=cuda,
    )
    turns = 1 if migrated.events("turns") else 0
    settings: dict[str, Any] = {"turns": turns}
    original = again(**settings)
    if _kept(original) and not options.absolute:
        return led()
    if turns and original.outcome.ended == "failed":
        turns = 2  # batches that cannot be one: sorted by length, say
        settings = {"turns": turns}
        original = again(**settings)
    if not cuda and _refused(original):
        return None
    split = _batches_to_split(original, migrated)
    if split > 1:
        settings = {"split": split}
        original = again(**settings)
    elif wants_larger(original, migrated):
        larger = again(larger=sizes(migrated))
        if _accepted(larger, original, migrated, turns=turns):
            original, settings = larger, {"larger": sizes(migrated)}
        elif original.outcome.ended == "finished":
            original = again(**settings)  # the first attempt's files are gone
    if original.outcome.ended != "finished":
        (folder / "alone").mkdir()
        few = replace(options, steps=min(options.steps, 3), full=False)
        alone = trial.run(
            "original", few, folder / "alone", lambda s, t: progress("original", s, t), cuda=cuda
        )
        return _incomparable(options, original, alone, migrated)
    verdict = _compared(options, original, migrated)
    hints = nearer.hints(original, migrated, folder) if nearer.apart(verdict) else None
    if hints is None:
        return verdict
    migrated = trial.run(
        "migrated", options, folder, lambda s, t: progress("migrated", s, t), hints=hints, cuda=cuda
    )
    if migrated.outcome.ended != "finished":
        return verdict
    original = again(hints=hints, **settings)
    second = _compared(options, original, migrated) if original.outcome.ended == "finished" else verdict
    return verdict if nearer.apart(second) else nearer.told(second, hints)


def _cut_short(run: Run) -> bool:
    """Whether an epoch was left before its end, only to be done sooner."""
    return any(event["how"] == "cut" for event in run.events("passed"))


def _kept(run: Run) -> bool:
    """Whether it failed since it was to write into a folder of the user's, by a path that does not lead to the copy."""
    errors = [event for rank in range(len(run.traces)) for event in run.events("error", rank)]
    return run.outcome.ended == "failed" and any(event["type"] == "KeptError" for event in errors)


def wants_larger(original: Run, migrated: Run) -> bool:
    """Whether the original may have to be told of a larger batch by name, and not only be fed one."""
    if original.outcome.ended == "failed":
        return True
    pair = pair_of(original, migrated)
    if pair.training or migrated.outcome.ended != "finished" or ranks.first_drift(pair) is not None:
        return False
    return steps.first_gradient_difference(pair) is not None


def _accepted(larger: Run, plain: Run, migrated: Run, *, turns: int) -> bool:
    """Whether the run with larger batches is the one to compare with.

    A fault of the migrated script must not be hidden behind batches of another size: a script whose ranks share one
    batch has the original's.
    """
    if not larger.events("larger") or larger.outcome.ended != "finished":
        return False
    apart = steps.apart(pair_of(larger, migrated))
    if turns and apart[1]:
        return False
    return plain.outcome.ended != "finished" or apart <= steps.apart(pair_of(plain, migrated))


def sizes(migrated: Run) -> tuple[tuple[int, int], ...]:
    """Which batch sizes become which; 0 stands for any, where no loader says what one card's is."""
    pair = pair_of(None, migrated)
    found: dict[int, int] = {}
    for passage in pair.passages.values():
        size = pair.loaders[passage.key].get("batch_size")
        if passage.key in pair.training and size:
            batches = zip_longest(*passage.batches.values(), fillvalue=[])
            found[size] = max(
                found.get(size, 0), max((sum(map(len, shares)) for shares in batches), default=0)
            )
    return tuple(found.items()) or ((0, pair.world),)


def _batches_to_split(original: Run, migrated: Run) -> int:
    """How many batches of the original make one of all ranks together.

    A script that keeps its effective batch by accumulating less often has fewer batches to a step; the original
    then wants the batches of the ranks one after the other.
    """
    own, theirs = (Counter(batches_per_step(Trace(tuple(run.traces[0])))) for run in (original, migrated))
    if not own or not theirs:
        return 1
    a, b = own.most_common(1)[0][0], theirs.most_common(1)[0][0]
    world = len(migrated.traces)
    return a // b if b and a > b and a % b == 0 and world % (a // b) == 0 else 1


def _refused(run: Run) -> bool:
    """It ended before training, and what it said last is about a card."""
    if run.outcome.ended == "finished" and not (run.events("left") and not run.events("step")):
        return False
    last = "\n".join([*run.printed[0][-3:], *run.complained[0].splitlines()[-2:]])
    said = " ".join(str(event.get("message", "")) for event in run.events("left"))
    return not run.events("step") and bool(WANTS_CARD.search(last + said))


def pair_of(original: Run | None, migrated: Run) -> Pair:
    traces = tuple(
        Trace(tuple(events), lines, complaint)
        for events, lines, complaint in zip(
            migrated.traces, migrated.printed, migrated.complained, strict=True
        )
    )
    own = (
        Trace(())
        if original is None
        else Trace(tuple(original.traces[0]), original.printed[0], original.complained[0])
    )
    return Pair(own, traces, migrated.place.shown)


def failures(run: Run) -> list[Failure]:
    """Exceptions of the run's processes, those first that did not come from another process being gone."""
    found = []
    for rank, events in enumerate(run.traces):
        for event in events:
            if event["kind"] == "error":
                text = run.place.shown_text(event["text"])
                found.append(
                    Failure(rank, text, event["site"] and run.place.shown(event["site"]), event["t"])
                )
    for rank, code in enumerate(run.outcome.codes):
        if code not in (0, -9, None) and not any(failure.rank == rank for failure in found):
            found.append(
                Failure(rank, last_words(run, rank) or f"exit code {code}", _standing_site(run, rank), 1e9)
            )
    return sorted(
        found, key=lambda failure: (bool(endings.PEER.search(failure.text.strip()[-400:])), failure.t)
    )


def last_words(run: Run, rank: int) -> str:
    """The end of what a process wrote to standard error, up to where it was aborted."""
    before, _, _ = run.complained[rank].partition("Fatal Python error")
    return run.place.shown_text("\n".join(before.strip().splitlines()[-12:]))


def _standing_site(run: Run, rank: int) -> str | None:
    site = run.outcome.standings[rank].site
    return run.place.shown(site) if site else None


def where(run: Run) -> tuple[Where, ...]:
    """Each rank, with the line of the user's script at which it stands."""
    found = []
    for standing, events in zip(run.outcome.standings, run.traces, strict=True):
        state, doing = standing.state, standing.doing
        chain = [f"{file}:{line}" for file, line, _ in standing.frames]
        error = next((e for e in events if e["kind"] == "error"), None)
        left = next((e for e in events if e["kind"] == "left"), None)
        if error is not None:
            state, doing, chain = "failed", error["doing"], error["chain"] or chain
        elif run.outcome.codes[standing.rank] == -signal.SIGABRT:
            state = "failed"
            chain, doing = dumped(run, standing.rank)
        elif left is not None:
            state, chain = "finished", [left["site"]] if left["site"] else []
        elif any(e["kind"] == "finished" for e in events):
            state, chain = "finished", []
        shown = tuple(run.place.shown(site) for site in chain)
        site = shown[0] if shown else None
        found.append(Where(standing.rank, state, doing, site, source_of(chain[0] if chain else None), shown))
    return tuple(found)


def dumped(run: Run, rank: int) -> tuple[list[str], str]:
    """Where a process stood that was aborted, from the dump that it left on standard error."""
    chain: list[str] = []
    innermost: list[str] = []
    for line in run.complained[rank].splitlines():
        match = FRAME.match(line)
        if match is None:
            if chain:
                break
            innermost = []
        elif match["path"].startswith(str(run.place.root)) and not match["path"].endswith("ddp_runtime.py"):
            chain.append(f"{match['path']}:{match['line']}")
        elif not chain:
            innermost.append(match["name"])
    return chain, doing_in(innermost)


def source_of(site: str | None) -> str:
    if not site:
        return ""
    path, _, line = site.rpartition(":")
    try:
        return Path(path).read_text(encoding="utf-8", errors="replace").splitlines()[int(line) - 1].strip()
    except (OSError, ValueError, IndexError):
        return ""


def _verdict(
    options: Options, ended: str, checks: list[Check], original: Run | None, migrated: Run, **more: object
) -> Verdict:
    replaced = dict.fromkeys(
        e["what"]
        for run in (original, migrated)
        if run
        for trace in run.traces
        for e in trace
        if e["kind"] == "replaced"
    )
    cut = any(
        e["kind"] == "enough" or (e["kind"] == "passed" and e["how"] == "cut")
        for t in migrated.traces
        for e in t
    )
    return Verdict(
        original=str(options.original),
        migrated=str(options.migrated),
        nproc=options.nproc,
        ended=ended,
        checks=tuple(checks),
        replaced=tuple(replaced),
        shortened=cut,
        seconds=(original.outcome.seconds if original else 0.0, migrated.outcome.seconds),
        **more,  # type: ignore[arg-type]
    )


def _hung(options: Options, migrated: Run) -> Verdict:
    places = where(migrated)
    pair = pair_of(None, migrated)
    cause = endings.of_hang(pair, places)
    doing = sorted({w.doing for w in places if w.state == "waiting" and w.doing})
    check = Check(
        "end",
        TITLE_END,
        "failed",
        Text(f"the ranks wait for each other in {', '.join(doing)}", f"各进程互相等待：{', '.join(doing)}"),
        cause,
    )
    between = [c for c in (ranks.check_ranks(pair), ranks.check_rank_buffers(pair)) if c.state == "failed"]
    return _verdict(
        options, "hung", [check, *causes.explained(pair, between)], None, migrated, steps=0, where=places
    )


def _incomparable(options: Options, original: Run, alone: Run, migrated: Run) -> Verdict:
    if alone.outcome.ended == "finished":
        why = Text(
            "the original runs by itself, but not on the batches of all ranks together",
            "原脚本单独运行正常，但无法使用所有进程合并后的批次",
        )
        run = original
        if migrated.outcome.ended != "finished":
            return _broken(options, None, migrated)
    elif alone.outcome.ended == "timeout":
        why = Text("the original did not end in time", "原脚本没有在规定时间内结束")
        run = alone
    else:
        why = Text("the original itself fails", "原脚本本身运行失败")
        run = alone
    found = failures(run)
    return _verdict(
        options,
        "incomparable",
        [Check("end", TITLE_END, "failed", why)],
        original,
        migrated,
        steps=0,
        traceback=found[0].text
        if found
        else run.place.shown_text("\n".join(run.complained[0].splitlines()[-20:])),
    )


def _broken(options: Options, original: Run | None, migrated: Run) -> Verdict:
    """The migrated run failed where the original does not."""
    pair = pair_of(original, migrated)
    found = failures(migrated)
    places = where(migrated)
    if migrated.outcome.ended == "timeout":
        text = Text("the migrated script did not end in time", "迁移后的脚本没有在规定时间内结束")
        checks = [Check("end", TITLE_END, "failed", text)]
    else:
        first = found[0] if found else None
        cause = None if first is None else _cause_of_end(pair, first, places)
        detail = _last_line(first)
        checks = [Check("end", TITLE_END, "failed", Text(*detail), cause)]
    if original is not None:
        others = [
            check for check in compare(pair) if check.name not in {"steps", "files", "evaluated", "printed"}
        ]
        checks += causes.explained(pair, others)
    return _verdict(
        options,
        migrated.outcome.ended,
        checks,
        original,
        migrated,
        steps=steps.compared_steps(pair),
        where=places,
        traceback=found[0].text if found else "",
        curves=curves(pair),
    )


def _cause_of_end(pair: Pair, first: Failure, places: tuple[Where, ...]) -> Cause | None:
    if MISMATCH.search(first.text):
        return endings.of_mismatch(pair, _at_peers(places))
    if endings.PEER.search(first.text.strip()[-400:]):
        return endings.of_hang(pair, _at_peers(places))
    return endings.of_error(first.text, first.site)


def _at_peers(places: tuple[Where, ...]) -> tuple[Where, ...]:
    """A rank whose peer went away was waiting for it."""
    return tuple(
        Where(w.rank, "waiting" if w.state == "failed" else w.state, w.doing, w.site, w.source, w.chain)
        for w in places
    )


def _last_line(failure: Failure | None) -> tuple[str, str]:
    if failure is None:
        return "the migrated script fails", "迁移后的脚本运行失败"
    last = failure.text.strip().splitlines()[-1][:300]
    return f"rank {failure.rank} fails: {last}", f"进程 {failure.rank} 运行失败：{last}"


def _compared(options: Options, original: Run, migrated: Run) -> Verdict:
    if migrated.outcome.ended != "finished":
        return _broken(options, original, migrated)
    pair = pair_of(original, migrated)
    end = Check("end", TITLE_END, "held", Text("with exit code 0", "退出码为 0"))
    checks = [end, *causes.explained(pair, compare(pair))]
    unfed = next((check for check in checks if check.detail == streams.UNFED), None)
    if unfed is not None and not any(check.state == "failed" for check in checks):
        checks[0] = Check("end", TITLE_END, "failed", streams.UNFED)
    return _verdict(
        options,
        "compared" if checks[0] is end else "incomparable",
        checks,
        original,
        migrated,
        steps=steps.compared_steps(pair),
        curves=curves(pair),
    )


def curves(pair: Pair) -> tuple[Curve, ...]:
    """Loss and gradient of both runs, one after the other as the steps were made."""
    keys = [(e["number"], e["step"]) for e in pair.original.of("step")]
    own_loss: list[float | None] = []
    other_loss: list[float | None] = []
    own_norm: list[float | None] = []
    other_norm: list[float | None] = []
    theirs = pair.steps(0)
    for key in keys:
        found = steps.losses(pair, key)
        own_loss.append(found[0] if found else None)
        other_loss.append(found[1] if found else None)
        own_norm.append(_norm(pair.own_steps[key]))
        other_norm.append(_norm(theirs.get(key, {})))
    return (
        Curve("loss", tuple(own_loss), tuple(other_loss)),
        Curve("gradient", tuple(own_norm), tuple(other_norm)),
    )


def _norm(event: Event) -> float | None:
    gradients = event.get("gradients")
    if gradients is None:
        return None
    return float(sum(g[1] ** 2 for g in gradients if g is not None) ** 0.5)
