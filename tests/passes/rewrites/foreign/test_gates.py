from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from tests.passes.rewrites.applying import numbers
from tests.passes.rewrites.foreign.expanding import (
    MICROSOFT,
    assert_computes,
    assert_expands,
    assert_stays,
    one_node,
)

ROWS = numbers(2, 3, 8)
STREAMS = numbers(2, 5, 3, 8)
BLOCK, MIX = numbers(2, 5, 8, seed=1), numbers(2, 5, 3, 3, seed=2)
PER_BRANCH = [numbers(2, 5, 3), numbers(2, 5, 3, 1), numbers(2, 5, 3, 8)]


@pytest.mark.parametrize(
    ("operator", "operands", "attributes"),
    [
        ("GatedAdd", [ROWS, numbers(2, 3, 8, seed=1), numbers(2, 3, 1)], {}),
        ("ScaledSiLU", [ROWS], {"alpha": 0.5}),
        ("ScaledSiLU", [ROWS, np.array(0.7, np.float32)], {}),
        ("GatedRMSNorm", [ROWS, numbers(4), numbers(2, 3, 8, seed=1)], {"activation": "silu"}),
        ("GatedRMSNorm", [ROWS, numbers(8), numbers(2, 3, 8, seed=1)], {"epsilon": 0.1}),
        ("GatedRMSNorm", [ROWS, numbers(4), numbers(2, 3, 8, seed=1)], {"activation": "sigmoid"}),
        ("BranchwiseRMSNorm", [ROWS], {}),
        ("BranchwiseRMSNorm", [ROWS, numbers(24)], {}),
        ("BranchwiseRMSNorm", [ROWS, numbers(3, 8)], {}),
        ("BranchwiseRMSNorm", [numbers(2, 24), numbers(8)], {"num_branches": 3}),
        ("BranchwiseRMSNorm", [numbers(2, 24), numbers(24)], {"num_branches": 3}),
        *(("HyperConnectionPreMix", [STREAMS, w], {"reduction_scale": 0.5}) for w in PER_BRANCH),
        ("HyperConnectionPreMix", [numbers(2, 5, 24), numbers(2, 5, 24)], {"num_branches": 3}),
        ("HyperConnectionPreMix", [numbers(2, 5, 24), PER_BRANCH[0]], {"num_branches": 3}),
        ("HyperConnectionPreMix", [numbers(3, 3, 24), numbers(3, 3, 24)], {"num_branches": 3}),
        *(("HyperConnectionPostMix", [STREAMS, BLOCK, weights], {}) for weights in PER_BRANCH),
        ("HyperConnectionPostMix", [STREAMS, BLOCK, PER_BRANCH[0], MIX], {}),
        ("HyperConnectionPostMix", [numbers(2, 5, 24), BLOCK, PER_BRANCH[0], MIX],
         {"num_branches": 3}),
        ("EngramGate", [STREAMS, numbers(2, 5, 3, 8, seed=1), BLOCK, numbers(3, 8), numbers(3, 8)],
         {}),
    ],
)  # fmt: skip
def test_gates(operator: str, operands: list[Any], attributes: dict[str, Any]) -> None:
    assert_expands(one_node(MICROSOFT, operator, operands, ["y"], **attributes), operands)


def test_gates_with_two_results() -> None:
    operands = [
        STREAMS,
        numbers(2, 5, 3, 8, seed=1),
        BLOCK,
        *(numbers(3, 8, seed=n) for n in (1, 2, 3)),
    ]
    assert_expands(one_node(MICROSOFT, "EngramGate", operands, ["y", "normal"]), operands)
    operands = [numbers(2, 3, 4), numbers(4), -abs(numbers(4)), numbers(2, 3, 4, seed=1)]
    assert_expands(one_node(MICROSOFT, "LinearAttentionGate", operands, ["y", "beta"]), operands)
    operands = operands[:3]
    assert_expands(one_node(MICROSOFT, "LinearAttentionGate", operands, ["y"]), operands)


def test_halves_of_a_value_gate_each_other() -> None:
    operands = [ROWS, numbers(8, seed=1)]
    left, right = torch.from_numpy(ROWS + operands[1]).chunk(2, -1)
    expected = (left * torch.nn.functional.gelu(right)).numpy()
    assert_computes(one_node(MICROSOFT, "BiasSplitGelu", operands, ["y"]), operands, expected)


def test_an_activation_that_is_none_of_a_gate_stays() -> None:
    operands = [ROWS, numbers(4), ROWS]
    proto = one_node(MICROSOFT, "GatedRMSNorm", operands, ["y"], activation="tanh")
    assert_stays(proto, "its activation tanh is none")


def test_gates_of_halves_are_computed_in_float32() -> None:
    operands = [ROWS.astype(np.float16), numbers(8).astype(np.float16), ROWS.astype(np.float16)]
    value, scale, gate = (array.astype(np.float64) for array in operands)
    root = np.sqrt((value**2).mean(-1, keepdims=True) + 1e-5)
    expected = (value / root * scale * gate / (1 + np.exp(-gate))).astype(np.float16)
    proto = one_node(MICROSOFT, "GatedRMSNorm", operands, ["y"])
    # One rounding to 11 bits.
    assert_computes(proto, operands, expected, rtol=1e-3, atol=1e-6)
