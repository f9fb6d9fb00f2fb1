from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.passes.rewrites.applying import numbers
from tests.passes.rewrites.foreign.expanding import MICROSOFT, assert_expands, one_node

SCALE, SHIFT = numbers(8, seed=2), numbers(8, seed=3)


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


@pytest.mark.parametrize("with_mask", [True, False])
@pytest.mark.parametrize("with_segments", [True, False])
def test_embeddings_in_tables_of_integers(with_mask: bool, with_segments: bool) -> None:
    generator = np.random.default_rng(0)

    def table(*shape: int) -> Any:
        return generator.integers(0, 256, shape, np.uint8)

    words, segments = generator.integers(0, 7, (2, 5)), generator.integers(0, 2, (2, 5))
    mask = np.array([[1, 1, 1, 0, 0], [1, 1, 1, 1, 1]], np.int32) if with_mask else None
    scales = [np.array(0.01 * number, np.float32) for number in range(1, 6)]
    points = [np.array(number, np.uint8) for number in (128, 120, 7, 130, 0)]
    operands = [
        words.astype(np.int32), segments.astype(np.int32), table(7, 8), table(6, 8), table(2, 8),
        table(8), table(8), mask, *scales, *points,
    ]  # fmt: skip
    if not with_segments:
        for position in (1, 4, 10, 15):
            operands[position] = None
    constants = (2, 3, 4, 5, 6, *range(8, 18))
    proto = one_node(
        MICROSOFT, "QEmbedLayerNormalization", operands, ["y", "counts"], constants, epsilon=1e-5
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
