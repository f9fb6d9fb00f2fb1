"""What ``compare`` prints of values that hold by torch's own error."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from samba_onnx.tools.compare.compare_report import ValueComparisonReport, ValueErrorReport
from samba_onnx.tools.compare.compare_text import values_text


def value(of_allowed: float | None, passed: bool) -> ValueErrorReport:
    return ValueErrorReport(
        name="y",
        operator="silu",
        node="",
        location="",
        stage=0,
        dtype="bfloat16",
        pef_dtype="bfloat16",
        shape=(2,),
        identical=False,
        max_absolute_error=0.5,
        max_relative_error=0.5,
        mean_absolute_error=0.5,
        cosine=0.9,
        tolerance="torch's",
        of_allowed=of_allowed,
        mismatched=0 if passed else 2,
        elements=2,
        passed=passed,
        operands_agree=True,
    )


@pytest.mark.parametrize(
    ("values", "sentence"),
    [
        (
            [value(53.0, True), value(0.5, True), value(None, False)],
            "1 value beyond 1 of allowed held",
        ),
        ([value(1.0, True), value(7.0, False), value(None, True)], ""),
    ],
)
def test_values_that_hold_beyond_the_tolerance_are_explained(
    values: list[ValueErrorReport], sentence: str
) -> None:
    report = ValueComparisonReport(
        headline="h",
        passed=True,
        graph="g",
        inputs="x",
        total=3,
        compared=3,
        gone={},
        own=0,
        first=None,
        advice="",
        values=tuple(values),
    )
    stream = io.StringIO()
    Console(file=stream, width=200).print(values_text(report))
    assert ("beyond 1 of allowed" in stream.getvalue()) == bool(sentence)
    assert sentence in stream.getvalue()
