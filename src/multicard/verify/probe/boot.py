"""Starts a user's script as plain python would, watched.

`python -c "from multicard.verify.probe.boot import main; main()"` with the plan in the environment. The
script gets its own `__main__`, `sys.argv`, `sys.path[0]` and `__file__`, and its tracebacks show none of
this.
"""

import atexit
import contextlib
import ctypes
import faulthandler
import gc
import io
import os
import signal
import sys
import types
from pathlib import Path

from multicard.verify.doing import doing_in
from multicard.verify.plan import PLAN_VARIABLE, Plan, read_plan

PR_SET_PDEATHSIG = 1


def die_with_the_launcher() -> None:
    """Ask the system to end this process when the one that started it is gone, however that went."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def install(plan: Plan) -> None:
    from multicard.verify.probe import (
        batchnorm,
        each_sample,
        groups,
        leads,
        loaders,
        lookups,
        modules,
        outputs,
        randomness,
        scalars,
        shim,
        sizes,
        training,
    )

    leads.install(plan)
    shim.install(plan)
    loaders.install(plan)
    randomness.install(plan)
    each_sample.install(plan)
    training.install(plan)
    modules.install(plan)
    if plan.role == "migrated":
        groups.install(plan)
        batchnorm.install()
    outputs.install(plan)
    lookups.install(plan)
    scalars.install()
    sizes.install(plan)


def main() -> None:
    die_with_the_launcher()
    plan = read_plan(Path(os.environ[PLAN_VARIABLE]))
    if os.getppid() == 1:
        sys.exit(9)
    from multicard.verify.probe import leads, monitor
    from multicard.verify.probe import record as recording

    record = recording.begin(plan)
    record.write("process", python=sys.version.split()[0])
    install(plan)
    monitor.start(plan)
    faulthandler.enable()  # gloo aborts the process when collectives do not match; then it still tells where it was
    module = types.ModuleType("__main__")
    module.__file__ = plan.script
    module.__builtins__ = __builtins__  # type: ignore[attr-defined]
    sys.modules["__main__"] = module
    sys.argv = [plan.script, *map(leads.argument, plan.arguments)]
    sys.path[0] = os.path.dirname(plan.script)
    record.write("begin", working=os.getcwd())
    end(run(plan, module))


def run(plan: Plan, module: types.ModuleType) -> int:
    """Run the script and return its exit code."""
    from multicard.verify.probe import outputs, sizes
    from multicard.verify.probe import record as recording

    record = recording.record()
    try:
        code = sizes.compiled(Path(plan.script).read_bytes(), plan.script)
        exec(code, module.__dict__)  # noqa: S102
    except SystemExit as exit_:
        return left(exit_)
    except BaseException as error:  # noqa: BLE001
        text = outputs.error_text(error)
        record.write(
            "error",
            text=text,
            type=type(error).__name__,
            message=str(error)[:2000],
            site=innermost(error),
            doing=doing(error),
            chain=chain_of(error),
        )
        sys.stderr.write(text)
        return 1
    record.write("finished")
    return 0


def end(code: int) -> None:
    """End the process as the interpreter would, but for taking everything apart.

    With torch 2.13 that hangs now and then: the main thread destroys a process group and joins its thread, which
    waits for the main thread to destroy a tensor.
    """
    import threading

    threading._shutdown()  # type: ignore[attr-defined]  # noqa: SLF001
    atexit._run_exitfuncs()  # noqa: SLF001
    leave()
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):
            stream.flush()
    os._exit(code)


def leave() -> None:
    """The last thing that happens: files that the script left open are closed, then compared."""
    from multicard.verify.probe import by_hand, contents, each_sample, rehearsal, scalars
    from multicard.verify.probe import record as recording

    record = recording.record()
    if not record.mine:
        return
    by_hand.ended()
    each_sample.told()
    rehearsal.told()
    for thing in gc.get_objects():
        if issubclass(type(thing), io.IOBase):
            with contextlib.suppress(OSError, ValueError):
                thing.flush()
    record.write("scalars", number=-2, step=0, rows=scalars.ROWS[0], scalars=scalars.take())
    if record.plan.role == "original" and record.plan.recorded:
        contents.compare_all()
    for paper in Path(record.plan.folder).glob("augments-*"):
        _, generator, loader = paper.name.split("-")
        record.write("augments", generator=generator, loader=int(loader))
    record.write("exit")


def left(exit_: SystemExit) -> int:
    """The script called `sys.exit`, or something like it."""
    from multicard.verify.probe import record as recording

    code = exit_.code if isinstance(exit_.code, int) else 0 if exit_.code is None else 1
    if code == 1 and exit_.code != 1:
        sys.stderr.write(f"{exit_.code}\n")
    recording.record().write("left", code=code, message=str(exit_.code), site=innermost(exit_))
    return code


def doing(error: BaseException) -> str:
    """What the user's line was in when it raised."""
    from multicard.verify.probe import record as recording

    names: list[str] = []
    tb = error.__traceback__
    while tb is not None:
        if recording.is_the_users(tb.tb_frame.f_code.co_filename):
            names = []
        else:
            names.append(tb.tb_frame.f_code.co_name)
        tb = tb.tb_next
    return doing_in(reversed(names))


def chain_of(error: BaseException) -> list[str]:
    """The user's lines through which an exception came, innermost first."""
    from multicard.verify.probe import record as recording

    found, tb = [], error.__traceback__
    while tb is not None:
        if recording.is_the_users(tb.tb_frame.f_code.co_filename):
            found.append(f"{tb.tb_frame.f_code.co_filename}:{tb.tb_lineno}")
        tb = tb.tb_next
    return found[::-1]


def innermost(error: BaseException) -> str | None:
    """The user's line that raised."""
    return next(iter(chain_of(error)), None)
