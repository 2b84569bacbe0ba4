"""Records of two runs written by hand, as small as a question about them allows."""

from multicard.verify.evidence import Event, Pair, Trace

SITE = "ddp.py:10"


def weights(value: float) -> list[list[float]]:
    return [[hash(value), abs(value), value]]


def step(number: int = 0, at: int = 0, *, loss: float = 1.0, lr: float = 0.1, **more: object) -> Event:
    return {
        "kind": "step",
        "number": number,
        "step": at,
        "site": "ddp.py:30",
        "lr": [lr],
        "trained": [0],
        "losses": [loss],
        "backward": ["ddp.py:29"],
        "before": at,
        "clips": [],
        "counts": {"backward": 1, "through": 1, "unsynchronised": 0, "past": 0},
        "past": [],
        "unreduced": [],
        "unheld": [],
        "again": [],
        "gradients": weights(0.5),
        **more,
    }


def stepped(number: int = 0, at: int = 0, *, value: float = 2.0, **more: object) -> Event:
    return {
        "kind": "stepped",
        "number": number,
        "step": at,
        "weights": weights(value + at),
        "together": at + 1,
        **more,
    }


def against(
    difference: float = 0.0, size: float = 1.0, factor: float = 1.0, apart: float | None = None
) -> list[list[float]]:
    """One parameter; `apart` is the norm of the difference, as large as the largest entry of it unless said."""
    return [[difference, size, size * abs(factor), factor, difference if apart is None else apart, size]]


def loader(line: int = 5, *, samples: int = 8, **more: object) -> Event:
    return {
        "kind": "loader",
        "key": [f"ddp.py:{line}", 0],
        "name": line,
        "counterpart": None,
        "site": f"ddp.py:{line}",
        "dataset": "Digits",
        "base": samples,
        "own": samples,
        "own_first": None,
        "iterable": False,
        "batch_size": 2,
        "drop_last": False,
        "sampler": "DistributedSampler",
        "batch_sampler": "BatchSampler",
        "sampler_length": samples // 2,
        "shuffles": True,
        "replacement": False,
        "length": samples // 4,
        "workers": 0,
        **more,
    }


def epoch(
    line: int, number: int, batches: list[list[int]], *, how: str = "end", step_from: int | None = None
) -> list[Event]:
    """A pass through the loader of this line; `step_from`: each batch is trained on, from this step on."""
    key = [f"ddp.py:{line}", 0]
    events: list[Event] = [{"kind": "pass", "key": key, "number": number, "site": "ddp.py:25"}]
    for at, indices in enumerate(batches):
        events.append(
            {"kind": "batch", "key": key, "number": number, "at": at, "indices": indices, "firsts": []}
        )
        if step_from is not None:
            events += [step(at=step_from + at), stepped(at=step_from + at)]
    events.append(
        {"kind": "passed", "key": key, "number": number, "how": how, "given": len(batches), "order": None}
    )
    return events


def trains(line: int = 5) -> Event:
    return {"kind": "trains", "key": [f"ddp.py:{line}", 0]}


def trace(*events: Event | list[Event], lines: tuple[str, ...] = (), complaints: str = "") -> Trace:
    flat = [event for part in events for event in (part if isinstance(part, list) else [part])]
    return Trace(tuple(flat), lines, complaints)


def optimizer(**more: object) -> Event:
    return {"kind": "optimizer", "number": 0, "site": "ddp.py:20", "type": "SGD", "shapes": [[3]], **more}


def wrap(**more: object) -> Event:
    return {
        "kind": "wrap",
        "site": "ddp.py:15",
        "model": "Net",
        "frozen": [],
        "unused": False,
        "buffers": 0,
        **more,
    }


JOINED: Event = {"kind": "joined"}


def pair(original: Trace, *ranks: Trace) -> Pair:
    return Pair(original, ranks)
