"""Rows of a table of which the default test command runs some: the others are slow tests."""

from __future__ import annotations

from collections.abc import Collection, Iterable

import pytest
from _pytest.mark.structures import ParameterSet

__all__ = ["others_slow"]


def others_slow(rows: Iterable[str], quick: Collection[str]) -> list[str | ParameterSet]:
    """Mark the rows of a table that are not among the quick ones.

    Args:
        rows: The names of all rows.
        quick: The names of those that the default test command runs, too.

    Returns:
        All rows in their order, for ``pytest.mark.parametrize``.
    """
    names = list(rows)
    unknown = set(quick) - set(names)
    assert not unknown, f"no rows of the table: {', '.join(sorted(unknown))}"
    return [name if name in quick else pytest.param(name, marks=pytest.mark.slow) for name in names]
