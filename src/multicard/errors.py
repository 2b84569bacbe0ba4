"""What ends a command with one line instead of a result.

    MulticardError          the user's trouble: printed as one line, exit 2
    ├── SourceError         a file that cannot be read, decoded or parsed
    └── NothingToDoError    not a training script, or already distributed

A thing in a script that cannot be migrated is not an error: it is a finding without edits.
"""

from multicard.messages import Text


class MulticardError(Exception):
    """One line for the user, in both languages."""

    def __init__(self, text: Text) -> None:
        super().__init__(text.en)
        self.text = text


class SourceError(MulticardError):
    """A file cannot be read, decoded or parsed."""


class NothingToDoError(MulticardError):
    """The script does not train, or is distributed already."""
