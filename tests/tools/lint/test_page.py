"""The page of the documentation is made of the table."""

from __future__ import annotations

from docs.generators.lint_rules import PAGE, rules_page


def test_the_page_is_that_of_the_table() -> None:
    refresh = "python -m docs.generators.lint_rules"
    assert PAGE.read_text() == rules_page(), f"refresh it: {refresh}"
