from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from samba_onnx.passes.rewrites.foreign.drafting import Draft
from samba_onnx.passes.rewrites.foreign.normalizations import simplified_layer_normalization
from tests.passes.rewrites.applying import numbers, parse
from tests.passes.rewrites.foreign.expanding import MICROSOFT, assert_expands, expanded, one_node

VALUE, SKIP = numbers(2, 3, 8), numbers(2, 3, 8, seed=1)
SCALE, SHIFT, BIAS = numbers(8, seed=2), numbers(8, seed=3), numbers(8, seed=4)


@pytest.mark.parametrize(
    ("operands", "outputs"),
    [
        ([VALUE, SKIP, SCALE, SHIFT, BIAS], ["y", "", "", "total"]),
        ([VALUE, SKIP, SCALE], ["y"]),
        ([VALUE, SKIP, SCALE, None, BIAS], ["y"]),
    ],
)
def test_layer_normalization_of_a_sum(operands: list[Any], outputs: list[str]) -> None:
    proto = one_node(MICROSOFT, "SkipLayerNormalization", operands, outputs, epsilon=1e-3)
    assert_expands(proto, operands)


@pytest.mark.parametrize("bias", [[], [BIAS]])
def test_root_mean_square_normalization_of_a_sum(bias: list[Any]) -> None:
    operands = [VALUE, SKIP, SCALE, *bias]
    outputs = ["y", "", "", "total"]
    proto = one_node(MICROSOFT, "SkipSimplifiedLayerNormalization", operands, outputs, epsilon=1e-5)
    assert_expands(proto, operands)


@pytest.mark.parametrize("axis", [-1, 1, 2, -2])
def test_root_mean_square_normalization_in_the_default_domain(axis: int) -> None:
    operands = [VALUE, numbers(*VALUE.shape[axis:], seed=2)]
    proto = one_node("", "SimplifiedLayerNormalization", operands, ["y"], axis=axis, stash_type=1)
    assert_expands(proto, operands)


def test_half_precision_is_normalized_in_float32() -> None:
    operands = [1000 * VALUE.astype(np.float16), SCALE.astype(np.float16)]  # squares are infinite
    proto = one_node("", "SimplifiedLayerNormalization", operands, ["y"], stash_type=1)
    # one rounding to the 11 bits of float16 on either side
    assert_expands(proto, operands, rtol=2e-3, atol=1e-3)


def test_over_the_last_axis_no_rank_is_needed() -> None:
    model = parse("""g (float x, float[8] s) => (float y) {
        y = com.microsoft.SimplifiedLayerNormalization (x, s)
    }""", imports=', "com.microsoft": 1')  # fmt: skip
    (node,) = model.graph
    assert simplified_layer_normalization(Draft(node)).producer() is not None


@pytest.mark.parametrize("with_mask", [True, False])
@pytest.mark.parametrize("with_positions", [True, False])
def test_embeddings(with_mask: bool, with_positions: bool) -> None:
    generator = np.random.default_rng(0)
    words, segments = generator.integers(0, 7, (2, 5)), generator.integers(0, 2, (2, 5))
    mask = (generator.random((2, 5)) < 0.6).astype(np.int32) if with_mask else None
    positions = np.array([[4, 3, 2, 1, 0], [5, 5, 1, 0, 2]], np.int32) if with_positions else None
    operands = [
        words.astype(np.int32), segments.astype(np.int32), numbers(7, 8), numbers(6, 8, seed=1),
        numbers(2, 8, seed=2), SCALE, SHIFT, mask, positions,
    ]  # fmt: skip
    proto = one_node(
        MICROSOFT, "EmbedLayerNormalization", operands, ["y", "counts", "total"], epsilon=1e-5
    )
    assert_expands(proto, operands)


def test_embeddings_without_segments() -> None:
    # As many words as a row has numbers, and more positions than words.
    words = np.random.default_rng(0).integers(0, 7, (2, 8)).astype(np.int32)
    operands = [
        words, None, numbers(7, 8), numbers(9, 8, seed=1), None, SCALE, SHIFT, None, None,
    ]  # fmt: skip
    proto = one_node(
        MICROSOFT, "EmbedLayerNormalization", operands, ["y", "counts", "total"], epsilon=1e-5
    )
    assert_expands(proto, operands)


def test_a_mean_that_is_read_stays_with_its_node() -> None:
    operands = [VALUE, SKIP, SCALE]
    proto = one_node(MICROSOFT, "SkipLayerNormalization", operands, ["y", "mean"])
    model, notes = expanded(proto)
    assert [node.op_type for node in model.graph] == ["SkipLayerNormalization"]
    assert "its output 1 is not computed by the rule" in " ".join(notes)
