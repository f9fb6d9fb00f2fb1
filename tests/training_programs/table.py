"""The table of outcomes by program: where it lies, and how an outcome differs from it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final

from tests.json_tables import read_table, write_table
from tests.training_programs.outcome import Outcome

__all__ = ["Table", "difference", "read", "write"]

PATH: Final = Path(__file__).with_name("expected.json")

Table = Mapping[str, Outcome]


def read(path: Path = PATH) -> dict[str, Outcome]:
    """Return the outcomes by program that were written last."""
    return read_table(path, Outcome)


def write(table: Table, path: Path = PATH) -> None:
    """Write outcomes, one program a line, in the order of their names."""
    write_table(path, {name: outcome.as_json() for name, outcome in table.items()})


def difference(outcome: Outcome, expected: Outcome | None) -> str:
    """Return in what an outcome is not that of the table; empty where it is.

    Args:
        outcome: What was measured.
        expected: What the table has; None for a program that it does not know.
    """
    if outcome == expected:
        return ""
    return (
        f"{outcome} in the place of {expected}; run `python -m tests.training_programs` to write it"
    )
