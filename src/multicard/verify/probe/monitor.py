"""Where this process stands, told twice a second, so that a hang can be told from slow work."""

import json
import os
import sys
import threading
from pathlib import Path
from types import FrameType

from multicard.verify.doing import doing_in
from multicard.verify.plan import Plan
from multicard.verify.probe import record as recording

INTERVAL = 0.4


def doing(frame: FrameType | None, record: recording.Record) -> str:
    """What the innermost user's line waits in."""
    if record.waiting:
        return record.waiting
    names = []
    while frame is not None and not recording.is_the_users(frame.f_code.co_filename):
        names.append(frame.f_code.co_name)
        frame = frame.f_back
    return doing_in(names) or record.doing


def stand(record: recording.Record, main: int) -> dict[str, object]:
    frame = sys._current_frames().get(main)  # noqa: SLF001
    return {
        "events": record.events,
        "steps": record.steps,
        "doing": doing(frame, record),
        "frames": recording.user_frames(frame)[:8],
    }


def start(plan: Plan) -> None:
    record = recording.record()
    path = Path(plan.folder) / "status.json"
    main = threading.main_thread().ident or 0
    stop = threading.Event()

    def watch() -> None:
        while not stop.wait(INTERVAL):
            if os.getppid() == 1 and PARENT[0] != 1:
                os._exit(9)  # the launcher is gone
            part = path.with_suffix(".part")
            part.write_text(json.dumps(stand(record, main)))
            part.rename(path)

    PARENT[:] = [os.getppid()]
    threading.Thread(target=watch, name="multicard-verify", daemon=True).start()


PARENT = [0]
