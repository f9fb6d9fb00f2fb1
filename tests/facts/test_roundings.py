"""What settings ask to round at random, and what a PEF says of it."""

from __future__ import annotations

from typing import Any

import pytest

from samba_onnx.errors import UsageError
from samba_onnx.facts.roundings import (
    ROUNDING,
    Rounding,
    describe_rounding,
    roundings_of,
    stated_roundings,
    write_rounding,
)


@pytest.mark.parametrize(
    ("choice", "expected"),
    [
        (None, set()),
        ("steps", {"steps"}),
        ("steps,gradients", {"steps", "gradients"}),
        ("steps, gradients ", {"steps", "gradients"}),
        (["bias-gradients", "convolution-gradients"], {"bias-gradients", "convolution-gradients"}),
    ],
)
def test_names(choice: Any, expected: set[str]) -> None:
    assert roundings_of(choice) == expected


@pytest.mark.parametrize("choice", ["weights", "", "steps,", "steps gradients"])
def test_unknown_names_are_refused(choice: str) -> None:
    with pytest.raises(UsageError, match="expected some of steps, gradients, convolution"):
        roundings_of(choice)


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({}, set()),
        ({"enable_stochastic_rounding": False, "weight_grad_reduce": "fp32"}, set()),
        ({"enable_stochastic_rounding": True}, {Rounding.STEPS}),
        ({"enable_safe_stochastic_rounding": "true"}, {Rounding.STEPS}),
        ({"weight_grad_reduce": "bf16sr", "tiling_accum": "bf16sr"}, {Rounding.GRADIENTS}),
    ],
)
def test_settings(settings: dict[str, Any], expected: set[Rounding]) -> None:
    assert stated_roundings(settings) == expected


def test_a_pef_says_what_is_rounded_and_what_there_was_nothing_of() -> None:
    metadata = write_rounding({Rounding.STEPS: 0, Rounding.GRADIENTS: 1200})
    rounded, nothing = describe_rounding(metadata)
    assert rounded == (
        "Stochastic rounding to bfloat16: sums that make gradients of weights (1,200)."
    )
    assert nothing.startswith("Stochastic rounding of steps was asked for, where nothing is")


@pytest.mark.parametrize("text", ["", "[]", "1", '{"other": 1}', '{"steps": null}'])
def test_a_text_that_is_not_ours_says_nothing(text: str) -> None:
    assert describe_rounding({ROUNDING: text}) == ()
    assert describe_rounding({}) == ()
