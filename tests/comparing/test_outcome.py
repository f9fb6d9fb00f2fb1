"""What a comparison says of itself."""

from __future__ import annotations

import pytest

from samba_onnx.comparing.outcome import both


@pytest.mark.parametrize(
    ("one", "other", "result"),
    [("", "", ""), ("a", "", "a"), ("", "b", "b"), ("a", "b", "a and b")],
)
def test_conditions_are_said_together(one: str, other: str, result: str) -> None:
    assert both(one, other) == result
