from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import pytest
import torch

from tests.backend_cases import run_onnxruntime
from tests.passes.rewrites.applying import numbers
from tests.passes.rewrites.foreign.expanding import (
    MICROSOFT,
    assert_computes,
    assert_expands,
    expanded,
    one_node,
)

MATRIX = [numbers(2, 3, 4), numbers(2, 4, 5, seed=1)]
SWAPPED = [numbers(2, 4, 3), numbers(2, 5, 4, seed=1)]


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
        {"activation": "HardSigmoid", "activation_alpha": 0.3, "activation_beta": 0.4},
    ],
)
def test_general_products_with_activations(attributes: dict[str, Any]) -> None:
    left = numbers(4, 3) if attributes.get("transA") else numbers(3, 4)
    right = numbers(5, 4, seed=1) if attributes.get("transB") else numbers(4, 5, seed=1)
    operands = [left, right, numbers(5, seed=2)]
    assert_expands(one_node(MICROSOFT, "FusedGemm", operands, ["y"], **attributes), operands)


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


def _matrices() -> list[Any]:
    return [numbers(3, 4), numbers(4, 5, seed=1)]


@pytest.mark.parametrize(
    ("attributes", "function"),
    [
        ({"alpha": 0.5}, lambda x: x),
        ({"activation": "Relu", "alpha": 0.5}, torch.relu),
        ({"activation": "Softmax", "activation_axis": 0, "alpha": 0.5}, lambda x: x.softmax(0)),
        ({"activation": "LeakyRelu", "activation_alpha": 0.3, "alpha": 0.5},
         lambda x: torch.nn.functional.leaky_relu(x, 0.3)),
    ],
)  # fmt: skip
def test_products_with_activations(attributes: dict[str, Any], function: Any) -> None:
    operands = _matrices()
    expected = function(torch.from_numpy(0.5 * operands[0] @ operands[1])).numpy()
    proto = one_node(MICROSOFT, "FusedMatMulActivation", operands, ["y"], **attributes)
    assert_computes(proto, operands, expected)


@pytest.mark.parametrize("bias", [None, numbers(5, seed=2)])
def test_products_with_a_gelu(bias: Any) -> None:
    operands = [*_matrices(), *([] if bias is None else [bias])]
    total = operands[0] @ operands[1] + (np.float32(0) if bias is None else bias)
    expected = torch.nn.functional.gelu(torch.from_numpy(total), approximate="tanh").numpy()
    assert_computes(one_node(MICROSOFT, "GemmFastGelu", operands, ["y"]), operands, expected)
