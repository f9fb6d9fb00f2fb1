"""The page of the documentation is made of the rules and reasons."""

from __future__ import annotations

from docs.generators.foreign_operators import PAGE, foreign_page


def test_the_page_is_that_of_the_tables() -> None:
    refresh = "python -m docs.generators.foreign_operators"
    assert PAGE.read_text() == foreign_page(), f"refresh it: {refresh}"


def test_every_row_says_something() -> None:
    rows = [line for line in foreign_page().splitlines() if line.startswith("| ")]
    assert len(rows) > 150
    assert not [row for row in rows if row.rstrip().endswith("|  |")]
