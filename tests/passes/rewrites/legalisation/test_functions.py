"""Operators by ONNX's own definitions of them, where the target has the operator but not this node of it."""

from __future__ import annotations

import numpy as np
import pytest

from tests.passes.rewrites.applying import numbers
from tests.passes.rewrites.legalisation.legalising import legalised, refusal

ROUNDINGS = 1e-5
"""Largest difference of what a definition computes step by step: a dozen roundings of numbers below ten."""


def test_a_node_that_a_limit_refuses_is_written_by_its_definition() -> None:
    text = "g (float[4,6] x, float l, float h) => (float[4,6] y) { y = Clip(x, l, h) }"
    inputs = [numbers(4, 6), np.array(-0.5, np.float32), np.array(0.5, np.float32)]
    assert "Clip" not in legalised(text, inputs)


def test_a_definition_may_need_other_rules() -> None:
    text = """g (float[1,2,6,6] x) => (float[a,b,c,d] y) <int64[4] s = {1, 2, 4, 8}>
{ y = CenterCropPad(x, s) }"""
    made = legalised(text, [numbers(1, 2, 6, 6)], atol=ROUNDINGS)
    assert "CenterCropPad" not in made


def test_types_that_the_target_lacks_stay() -> None:
    text = "g (double[4,6] x) => (double[4,6] y) { y = Softmax(x) }"
    assert refusal(text).startswith("Softmax 'y': it would need what the target lacks")


@pytest.mark.parametrize(
    "graph",
    [
        """g (float[1,2,3] x) => (float[a,b,c,d] y) <int64[4] s = {1, 1, 1, 3}>
{ y = AffineGrid<align_corners=1>(x, s) }""",
        "g (int32[3] x) => (int32[3] y) { y = Shrink<bias=0.5, lambd=1.0>(x) }",
        "g (int32[3] x) => (int32[3] y) { y = Shrink(x) }",
    ],
)
def test_definitions_that_compute_other_numbers_than_runtimes_are_not_used(graph: str) -> None:
    assert "ONNX defines no body for it" in refusal(graph)


@pytest.mark.parametrize("align", [0, 1])
def test_grids_of_affine_transformations(align: int) -> None:
    graph = f"""g (float[2,2,3] x) => (float[2,2,3,2] y) <int64[4] s = {{2, 3, 2, 3}}>
{{ y = AffineGrid<align_corners={align}>(x, s) }}"""
    assert "AffineGrid" not in legalised(graph, [numbers(2, 2, 3)], atol=ROUNDINGS)
