"""The committed page of operators is the one that the table gives."""

from __future__ import annotations

from pathlib import Path

import pytest

from samba_onnx.passes.targets import (
    available_targets,
    describe_limits,
    describe_operands,
    describe_types,
    load_target,
    operator_table_markdown,
)

PAGE = Path(__file__).parents[3] / "docs" / "operators.md"


def test_page_is_current() -> None:
    assert PAGE.read_text() == operator_table_markdown(load_target("sn40l"))


@pytest.mark.parametrize("name", available_targets())
def test_page_has_every_row_in_five_cells(name: str) -> None:
    target = load_target(name)
    lines = operator_table_markdown(target).splitlines()

    supported = [line for line in lines if line.startswith("|") and line.count("|") == 6]
    refused = [line for line in lines if line.startswith("|") and line.count("|") == 4]

    assert len(supported) == len(target.rows) + 2  # head and rule
    assert len(refused) == len(target.unsupported) + 2


def test_row_in_words() -> None:
    row = load_target("sn40l").row("", "TopK")

    assert row is not None
    assert describe_types(row.types) == "observed: bfloat16, float32"
    assert describe_operands(row) == ("Indices: observed: int64",)
    assert describe_limits(row) == (
        "largest is 1",
        "constant at compile time: K",
        "one row to search",
    )
