"""The model of time is one room: nobody else turns figures of a device or of the host into seconds."""

from __future__ import annotations

import ast
import dataclasses

from samba_onnx.pef.host_summary import HostSummary
from samba_onnx.pef.target_summary import TargetSummary, Tier, TimingFigures
from tests.test_house import sources

FIGURES = {
    field.name
    for record in (HostSummary, TargetSummary, Tier, TimingFigures)
    for field in dataclasses.fields(record)
    if field.type in ("float", "dict[str, float]")
}
CALCULATE = (
    "passes/timing/",
    "passes/targets/",  # scales figures: a part of a chip, and suppositions
    "samba_onnx/pef/target_summary.py",  # copies and exchanges, which the runtime times as well
)


def arithmetic_on_figures(text: str) -> list[int]:
    """Return the lines that calculate with an attribute that is called as a figure is."""
    return [
        operation.lineno
        for operation in ast.walk(ast.parse(text))
        if isinstance(operation, ast.BinOp)
        for side in (operation.left, operation.right)
        if isinstance(side, ast.Attribute) and side.attr in FIGURES
    ]


def test_what_is_looked_for() -> None:
    assert {"bytes_per_second", "fill_seconds", "node_seconds", "link_latency_seconds"} < FIGURES
    assert arithmetic_on_figures("x = 1 + size / tier.bytes_per_second") == [1]
    assert arithmetic_on_figures("x = size / tier.bytes; y = tier.bytes_per_second") == []


def test_figures_become_seconds_in_one_room() -> None:
    places = {
        f"{name}:{line}" for name, text in sources().items() for line in arithmetic_on_figures(text)
    }
    assert {place for place in places if not place.startswith(CALCULATE)} == set()
    assert any(place.startswith("passes/timing/") for place in places)
