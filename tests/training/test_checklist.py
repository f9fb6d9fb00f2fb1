"""Every row of the checklist names tests that there are."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "training_checklist.md"
ROWS = [
    line
    for line in PAGE.read_text().splitlines()
    if line.startswith("|") and not re.match(r"\|( what |---)", line)
]
REFERENCE = re.compile(r"`(tests/[\w/]+\.py)::(test_\w+)`")


@cache
def _tests(path: str) -> frozenset[str]:
    """Names of the tests of a file."""
    tree = ast.parse((ROOT / path).read_text())
    return frozenset(node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef))


def test_the_page_has_its_lists() -> None:
    headings = re.findall(r"^## (.+)$", PAGE.read_text(), re.MULTILINE)
    assert headings == ["Honoured", "Refused", "Different from torch"]
    assert len(ROWS) > 40


@pytest.mark.parametrize("row", ROWS)
def test_a_row_is_held_by_tests(row: str) -> None:
    _, what, held_by, _ = (cell.strip() for cell in row.split("|"))
    assert what
    references = REFERENCE.findall(held_by)
    assert references, "no test is named"
    assert held_by == ", ".join(f"`{path}::{name}`" for path, name in references)
    for path, name in references:
        assert (ROOT / path).is_file(), path
        assert name in _tests(path), f"{path} has no {name}"
