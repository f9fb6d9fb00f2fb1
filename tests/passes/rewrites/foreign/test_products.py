from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import pytest

from tests.backend_cases import run_onnxruntime
from tests.passes.rewrites.applying import numbers
from tests.passes.rewrites.foreign.expanding import (
    MICROSOFT,
    assert_expands,
    expanded,
    one_node,
    refusal,
)

MATRIX = [numbers(2, 3, 4), numbers(2, 4, 5, seed=1)]
SWAPPED = [numbers(2, 4, 3), numbers(2, 5, 4, seed=1)]
IMAGE = [numbers(1, 3, 6, 6), numbers(4, 3, 3, 3, seed=1), numbers(4, seed=2)]


@pytest.mark.parametrize(
    ("operands", "attributes"),
    [
        (MATRIX, {}),
        (MATRIX, {"alpha": 0.25}),
        (SWAPPED, {"transA": 1, "transB": 1}),
        ([numbers(3, 2, 4), numbers(2, 4, 5, seed=1)], {"transBatchA": 1}),
        ([numbers(4, 2, 3), numbers(5, 2, 4)], {"transA": 1, "transB": 1, "transBatchA": 1, "transBatchB": 1}),
        ([numbers(4), numbers(4, 5)], {"transA": 1, "alpha": 2.0}),
    ],
)  # fmt: skip
def test_products_with_transposed_operands(operands: list[Any], attributes: dict[str, Any]) -> None:
    proto = one_node(MICROSOFT, "FusedMatMul", operands, ["y"], **attributes)
    assert_expands(proto, operands)


@pytest.mark.parametrize(
    "attributes",
    [
        {"activation": "Relu"},
        {"activation": "LeakyRelu", "activation_alpha": 0.3},
        {"activation": "Sigmoid", "transB": 1, "alpha": 0.5, "beta": 2.0},
        {"activation": "Tanh", "transA": 1},
    ],
)
def test_general_products_with_activations(attributes: dict[str, Any]) -> None:
    left = numbers(4, 3) if attributes.get("transA") else numbers(3, 4)
    right = numbers(5, 4, seed=1) if attributes.get("transB") else numbers(4, 5, seed=1)
    operands = [left, right, numbers(5, seed=2)]
    assert_expands(one_node(MICROSOFT, "FusedGemm", operands, ["y"], **attributes), operands)


@pytest.mark.parametrize(
    "attributes",
    [
        {"activation": "Relu", "pads": [1, 1, 1, 1]},
        {"activation": "Clip", "activation_params": [0.0, 0.7]},
        {"activation": "HardSigmoid", "activation_params": [0.25, 0.4], "strides": [2, 2]},
        {"activation": "LeakyRelu", "activation_params": [0.2], "dilations": [2, 2]},
        {"activation": "Tanh", "auto_pad": "SAME_UPPER"},
    ],
)
def test_convolutions_with_activations(attributes: dict[str, Any]) -> None:
    assert_expands(one_node(MICROSOFT, "FusedConv", IMAGE, ["y"], **attributes), IMAGE)


def test_a_convolution_adds_what_was_fused_before_its_activation() -> None:
    operands = [*IMAGE, numbers(1, 4, 4, 4, seed=3)]
    model = assert_expands(
        one_node(MICROSOFT, "FusedConv", operands, ["y"], activation="Relu"), operands
    )
    assert [node.op_type for node in model.graph] == ["Conv", "Add", "Relu"]


def test_an_activation_that_onnxruntime_does_not_fuse_stays() -> None:
    proto = one_node(
        MICROSOFT, "FusedGemm", [numbers(2, 2), numbers(2, 2)], ["y"], activation="Mish"
    )
    model, notes = expanded(proto)
    assert [node.op_type for node in model.graph] == ["FusedGemm"]
    assert "com.microsoft::FusedGemm is not expanded: its activation Mish is none that" in " ".join(
        notes
    )


@pytest.mark.parametrize("op_type", ["LeakyRelu", "HardSigmoid", "HardSwish"])
def test_an_activation_without_parameters_has_those_of_its_operator(op_type: str) -> None:
    operands = [3 * numbers(3, 4), numbers(4, 5, seed=1)]
    fused = one_node(MICROSOFT, "FusedGemm", operands, ["y"], activation=op_type)
    (after,) = run_onnxruntime(ir.to_proto(expanded(fused)[0]).SerializeToString(), operands)
    apart = one_node("", "Gemm", operands, ["p"])
    apart.graph.node.append(onnx.helper.make_node(op_type, ["p"], ["y"]))
    apart.graph.output[0].name = "y"
    (wanted,) = run_onnxruntime(apart.SerializeToString(), operands)
    # the same float32 operations but for the order of HardSwish's
    np.testing.assert_allclose(after, wanted, rtol=1e-6, atol=1e-6)


def test_a_clip_without_bounds_stays() -> None:
    proto = one_node(
        MICROSOFT, "FusedConv", IMAGE, ["y"], activation="Clip", activation_params=[1.0]
    )
    assert refusal(proto) == "its activation Clip is none that onnxruntime fuses"
