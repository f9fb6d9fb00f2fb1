"""No architecture passes between RDU and CPU more often than before, or than the table says."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

import models
from docs.generators.boundaries import PAGE, page
from tests.architectures.catalogue import ARCHITECTURES
from tests.boundaries.counting import Counts, count
from tests.boundaries.subjects import CAPTURED, SUBJECTS
from tests.boundaries.table import Row, difference, read, write
from tests.versions import needs

TABLE = read()


@pytest.mark.parametrize("name", sorted(SUBJECTS))
def test_an_architecture_has_no_more_boundaries_than_the_table(name: str) -> None:
    counts = count(name)
    assert counts.boundaries <= TABLE[name].before.boundaries
    worse = difference(counts, TABLE[name])
    assert not worse, worse


def test_no_architecture_has_more_boundaries_than_before() -> None:
    more = {name for name, row in TABLE.items() if row.after.boundaries > row.before.boundaries}
    assert not more


def test_the_table_has_forty_architectures_and_those_only() -> None:
    assert set(TABLE) == set(SUBJECTS)
    assert len(SUBJECTS) >= 40
    assert set(SUBJECTS) <= set(ARCHITECTURES)
    assert set(CAPTURED) <= set(SUBJECTS)
    assert not set(SUBJECTS) & set(models.MODELS)


@needs("transformers", "5.23")  # which it names
def test_the_page_is_that_of_the_table() -> None:
    assert PAGE.read_text() == page(TABLE), "python -m docs.generators.boundaries writes it"


def test_what_is_worse_is_told(tmp_path: Path) -> None:
    counts = Counts(2, 5, 640, {"TopK": 1})
    row = Row(dataclasses.replace(counts, boundaries=4), counts)
    assert not difference(counts, row)
    assert not difference(dataclasses.replace(counts, boundaries=0, bytes=1), row)
    for field in ("boundaries", "transfers", "bytes"):
        value = getattr(counts, field)
        told = difference(dataclasses.replace(counts, **{field: value + 1}), row)
        assert told.startswith(f"{field}: {value} -> {value + 1}; run ")
    write({"x": row}, tmp_path / "t.json")
    assert read(tmp_path / "t.json") == {"x": row}
