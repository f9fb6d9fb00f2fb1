"""Tables of figures that tests hold: one JSON object with a row on each line."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

__all__ = ["read_table", "write_table"]

Row = TypeVar("Row")


def read_table(path: Path, row: Callable[..., Row]) -> dict[str, Row]:
    """Return the rows of a table by name; none where there is no file.

    Args:
        path: The file.
        row: Makes a row of its fields, by keyword.
    """
    if not path.exists():
        return {}
    return {name: row(**fields) for name, fields in json.loads(path.read_text()).items()}


def write_table(path: Path, table: Mapping[str, Mapping[str, Any]]) -> None:
    """Write a table in the order of the names, a row a line.

    Args:
        path: The file.
        table: Fields of the rows by name.
    """
    rows = (f"{json.dumps(name)}: {json.dumps(row)}" for name, row in sorted(table.items()))
    path.write_text("{\n" + ",\n".join(rows) + "\n}\n")
