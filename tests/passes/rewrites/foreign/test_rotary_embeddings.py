from __future__ import annotations

import numpy as np
import pytest

from tests.backend_cases import run_onnxruntime
from tests.passes.rewrites.applying import numbers
from tests.passes.rewrites.foreign.expanding import (
    MICROSOFT,
    assert_computes,
    assert_expands,
    assert_stays,
    one_node,
)

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


@pytest.mark.parametrize("sections", [[4, 2, 2], [3, 3, 2], [0, 5, 3]])
@pytest.mark.parametrize("layout", [0, 1])
@pytest.mark.parametrize("interleaved", [0, 1])
def test_angles_of_three_positions(sections: list[int], layout: int, interleaved: int) -> None:
    positions = np.random.default_rng(0).integers(0, 20, (3, 2, 5))
    tables = [numbers(20, 8, seed=1), numbers(20, 8, seed=2)]
    attributes = {"mrope_section": sections, "mrope_layout": layout, "interleaved": interleaved}
    operands = [numbers(2, 3, 5, 16), positions, *tables]
    assert_expands(one_node(MICROSOFT, "MRotaryEmbedding", operands, ["y"], **attributes), operands)
    operands = [numbers(2, 5, 48), positions, *tables]
    proto = one_node(
        MICROSOFT, "MRotaryEmbedding", operands, ["y"],
        num_heads=3, rotary_embedding_dim=16, **attributes,
    )  # fmt: skip
    assert_expands(proto, operands)


@pytest.mark.parametrize(
    "sections", [[1, 2, 3], [3, 3, 3], [4, 4], [8], [2, 2, 2, 2], [5, -1, 4], [-2, 5, 5]]
)
@pytest.mark.parametrize("layout", [0, 1])
def test_angles_of_sections_that_are_not_three_that_add_up_stay(
    sections: list[int], layout: int
) -> None:
    """None of them runs in onnxruntime either."""
    operands = [numbers(2, 3, 5, 16), np.zeros((3, 2, 5), np.int64), numbers(20, 8), numbers(20, 8)]
    attributes = {"mrope_section": sections, "mrope_layout": layout}
    proto = one_node(MICROSOFT, "MRotaryEmbedding", operands, ["y"], **attributes)
    with pytest.raises(Exception, match="mrope_section"):
        run_onnxruntime(proto.SerializeToString(), operands)
    assert_stays(proto, f"its sections {sections} are not three that add up to 8")


def test_values_that_come_with_their_turned_selves() -> None:
    angles = numbers(2, 5, 8)
    operands = [angles, *(numbers(2, 3, 5, 8, seed=n).astype(np.float16) for n in (1, 2, 3, 4))]
    sine, cosine = (f(angles).astype(np.float16)[:, None] for f in (np.sin, np.cos))
    expected = [operands[at] * cosine + operands[at + 1] * sine for at in (1, 3)]
    proto = one_node(MICROSOFT, "GemmaRotaryEmbedding", operands, ["a", "b"])
    # one rounding to float16 more or less
    assert_computes(proto, operands, *expected, rtol=2e-3, atol=2e-3)
