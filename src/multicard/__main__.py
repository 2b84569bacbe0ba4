"""`python -m multicard`, where the command is not on the path."""

from multicard.cli import main

if __name__ == "__main__":
    main(prog_name="multicard")
