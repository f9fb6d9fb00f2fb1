from __future__ import annotations

import numpy as np
import pytest

from tests.passes.rewrites.applying import numbers
from tests.passes.rewrites.foreign.expanding import MICROSOFT, assert_expands, one_node

ANGLES = np.outer(np.arange(16), 1 / 10 ** np.arange(4)).astype(np.float32)
TABLES = [np.cos(ANGLES), np.sin(ANGLES)]
STATED = np.array([[3, 0, 7], [1, 2, 15]])


@pytest.mark.parametrize("positions", [np.array([2]), STATED])
@pytest.mark.parametrize("interleaved", [0, 1])
@pytest.mark.parametrize("shape", [(2, 3, 16), (2, 2, 3, 8)])
def test_pairs_are_rotated(positions: np.ndarray, interleaved: int, shape: tuple[int, ...]) -> None:
    operands = [numbers(*shape), positions, *TABLES]
    proto = one_node(MICROSOFT, "RotaryEmbedding", operands, ["y"], interleaved=interleaved)
    assert_expands(proto, operands)


@pytest.mark.parametrize("interleaved", [0, 1])
def test_the_rest_of_a_head_stays_as_it_is(interleaved: int) -> None:
    operands = [numbers(2, 3, 24), STATED, *TABLES]
    proto = one_node(
        MICROSOFT, "RotaryEmbedding", operands, ["y"], interleaved=interleaved,
        num_heads=2, rotary_embedding_dim=8,
    )  # fmt: skip
    assert_expands(proto, operands)
