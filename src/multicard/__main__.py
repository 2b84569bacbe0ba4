"""Where a command starts: `multicard`, and `python -m multicard` where that is not on the path."""

import atexit
import gc


def main() -> None:
    """Run a command without looking for garbage: it is done before that pays, and all of its trees are in use."""
    gc.disable()
    atexit.register(gc.freeze)  # or Python would look through all of them as it ends
    from multicard.cli import main as command

    command(prog_name="multicard")


if __name__ == "__main__":
    main()
