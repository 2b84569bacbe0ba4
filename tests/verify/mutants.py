"""Builds the scripts on which `verify` is judged: correct ones in many styles, and mutants with one fault.

Sixty near-copies of a script hide the one line that matters, and drift from what they were copied from. So a
mutant is kept as edits of a correct script, each of which must be found exactly once, and the text is made
when it is asked for.
"""

import sys
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

PROGRAMS = Path(__file__).parent / "programs"

Edits = tuple[tuple[str, str], ...]


class EditError(Exception):
    """An edit that is not found exactly once."""


@dataclass(frozen=True)
class Correct:
    """A multi-process script without a fault, and what it must be compared with."""

    name: str
    program: str
    what: str
    text: str
    single: str
    batch: str
    processes: tuple[int, ...]


@dataclass(frozen=True)
class Mutant:
    """A correct script with one fault, and what a report of it must say."""

    name: str
    base: Correct
    what: str
    text: str
    modes: tuple[int, ...]
    codes: tuple[str, ...]
    outcome: str
    shows: str
    says: tuple[str, ...]


def edited(text: str, edits: Edits) -> str:
    for old, new in edits:
        if (found := text.count(old)) != 1:
            message = f"found {found} times: {old!r}"
            raise EditError(message)
        text = text.replace(old, new)
    return text


def manifest(name: str) -> dict[str, Any]:
    return tomllib.loads((PROGRAMS / f"{name}.toml").read_text("utf-8"))


def pairs(edits: list[list[str]]) -> Edits:
    return tuple((old, new) for old, new in edits)


@cache
def correct() -> dict[str, Correct]:
    """Every correct script, under its path or its name."""
    scripts: dict[str, Correct] = {}
    for program, entry in manifest("programs").items():
        single = (PROGRAMS / entry["single"]).read_text("utf-8")
        for path in entry["correct"]:
            text = (PROGRAMS / path).read_text("utf-8")
            scripts[path] = Correct(path, program, entry["what"], text, single, entry["batch"], (2, 3))
    for entry in manifest("variants")["variant"]:
        base = scripts[entry["base"]]
        scripts[entry["name"]] = Correct(
            entry["name"],
            base.program,
            entry["what"],
            edited(base.text, pairs(entry["edits"])),
            base.single,
            entry.get("batch", base.batch),
            tuple(entry.get("processes", base.processes)),
        )
    return scripts


@cache
def mutants() -> dict[str, Mutant]:
    found: dict[str, Mutant] = {}
    for entry in manifest("mutants")["mutant"]:
        base = correct()[entry["base"]]
        found[entry["name"]] = Mutant(
            entry["name"],
            base,
            entry["what"],
            edited(base.text, pairs(entry["edits"])),
            tuple(entry["modes"]),
            tuple(entry["codes"]),
            entry["outcome"],
            entry["shows"],
            tuple(entry.get("says", ())),
        )
    return found


def write_pair(folder: Path, script: Correct | Mutant) -> tuple[Path, Path]:
    """Put the original and the script beside each other, as a user has them; returns both paths."""
    single = script.single if isinstance(script, Correct) else script.base.single
    original, migrated = folder / "single.py", folder / "ddp.py"
    original.write_text(single, "utf-8")
    migrated.write_text(script.text, "utf-8")
    return original, migrated
