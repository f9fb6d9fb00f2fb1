"""Published figures of RDUs, as ``published.toml`` has them: what a model of time is held against."""

from __future__ import annotations

import functools
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

_FILE: Final = Path(__file__).with_name("published.toml")
FITTED, JUDGED = "fitted", "judged"
LOW, HIGH = 0.8, 1.25
"""A figure is met where modelled over published is between these."""


@dataclass(frozen=True)
class PublishedRow:
    """One figure that others have published, and the program that it is of."""

    id: str
    """Of its series, with its own behind a slash where the series has several rows."""
    series: str
    half: str
    """``fitted`` or ``judged``."""
    program: str
    """The builder, by the name that ``fidelity_programs.BUILDERS`` has for it."""
    profile: str
    """The target."""
    level: str
    quantity: str
    """What the figure is of, as ``step``, ``token``, ``first token``, ``throughput`` or ``sections``."""
    value: float
    unit: str
    kind: str
    """``T``, ``P``, ``V`` or ``D``, which the file explains."""
    source: str
    sizes: Mapping[str, int | str] = field(default_factory=lambda: MappingProxyType({}))
    """What the builder is called with."""
    tiles: int = 0
    """Tiles of one chip that the program had; 0 for whole chips."""
    rdus: int = 1
    """RDUs that the program is cut for."""
    replicas: int = 1
    """How many of the program train side by side."""
    low: float | None = None
    """Where a range was published, its ends; ``value`` is the middle."""
    high: float | None = None
    note: str = ""
    repeats: str = ""
    """The series whose rows these are once more, for another operator of the same curve: they are counted once."""


@functools.cache
def published_rows() -> tuple[PublishedRow, ...]:
    """Return all rows, in the order of the file, each in its half.

    Raises:
        ValueError: Two rows have one id, or a series names a row that it does not have.
    """
    rows = [row for series in _document()["series"] for row in _rows(dict(series))]
    if len({row.id for row in rows}) != len(rows):
        raise ValueError(f"{_FILE.name}: ids of rows must differ")
    return tuple(rows)


def published_row(name: str) -> PublishedRow:
    """Return the row with an id.

    Args:
        name: As ``sn30/gpt2/o3/1600x6``.

    Raises:
        KeyError: There is none.
    """
    return {row.id: row for row in published_rows()}[name]


def published_figures(table: str) -> tuple[Mapping[str, Any], ...]:
    """Return the ``statements`` or ``constants`` of the file: id, words, low, high, unit and source.

    Args:
        table: One of the two words.
    """
    return tuple(MappingProxyType(row) for row in _document()[table])


@functools.cache
def _document() -> dict[str, Any]:
    return tomllib.loads(_FILE.read_text(encoding="utf-8"))


def _rows(series: dict[str, Any]) -> list[PublishedRow]:
    """Return the rows of a series, each in its half, which the series states."""
    name, rows, fitted = series.pop("id"), series.pop("rows"), series.pop("fitted", [])
    unknown = set(fitted) - {row.get("id") for row in rows}
    if unknown:
        raise ValueError(f"{_FILE.name}: {name} has no row {', '.join(sorted(unknown))}")
    made = []
    for row in rows:
        whole = {**series, **row, "series": name}
        whole["half"] = FITTED if row.get("id") in fitted else JUDGED
        whole["id"] = f"{name}/{row['id']}" if "id" in row else name
        made.append(PublishedRow(**whole))
    return made
