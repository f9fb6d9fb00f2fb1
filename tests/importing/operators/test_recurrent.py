"""Activations of imported recurrent layers against onnxruntime: all of them, in any order, in either direction."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
import pytest
import torch

from samba_onnx.importing import module_from_onnx
from tests.backend_cases import run_onnxruntime
from tests.importing.building import ramp
from tests.versions import needs

STEPS, BATCH, INPUTS, HIDDEN = 4, 2, 3, 2
GATES = {"RNN": 1, "GRU": 3, "LSTM": 4}
COUNT = {"RNN": 1, "GRU": 2, "LSTM": 3}
"""Activations of one direction."""
TAKEN = {
    "Affine": "ab", "Elu": "a", "HardSigmoid": "ab", "LeakyRelu": "a", "Relu": "", "ScaledTanh": "ab",
    "Sigmoid": "", "Softplus": "", "Softsign": "", "Tanh": "", "ThresholdedRelu": "a",
}  # fmt: skip
"""Every activation that ONNX lists for these layers, and which of alpha and beta it takes."""
DEFAULTS = ("Elu", "HardSigmoid", "LeakyRelu")
"""Those whose parameters ONNX and onnxruntime agree upon where none are stated."""
ROUNDINGS = 2e-6
"""Four steps of sums of a few products of numbers of order one, in another order of summation."""


def layer(
    operator: str, direction: str, names: Sequence[str], alphas: list[float], betas: list[float]
) -> onnx.ModelProto:
    """Return a layer whose activations have the parameters of two lists."""
    ways = 2 if direction == "bidirectional" else 1
    parameters: dict[str, Any] = {"activation_alpha": alphas, "activation_beta": betas}
    node = onnx.helper.make_node(
        operator,
        ["x", "w", "r", "b"],
        ["y"],
        hidden_size=HIDDEN,
        direction=direction,
        activations=list(names),
        **{key: numbers for key, numbers in parameters.items() if numbers},
    )
    gates = GATES[operator] * HIDDEN
    weights = {
        "w": ramp(ways, gates, INPUTS) / 2,
        "r": ramp(ways, gates, HIDDEN) / 4,
        "b": ramp(ways, 2 * gates) / 4,
    }
    graph = onnx.helper.make_graph(
        [node],
        "layer",
        [onnx.helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, [STEPS, BATCH, INPUTS])],
        [onnx.helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, [None] * 4)],
        [onnx.numpy_helper.from_array(array, name) for name, array in weights.items()],
    )
    opsets = [onnx.helper.make_opsetid("", 21)]
    return onnx.helper.make_model(graph, opset_imports=opsets, ir_version=10)


def check(model: onnx.ModelProto) -> None:
    value = ramp(STEPS, BATCH, INPUTS)
    (expected,) = run_onnxruntime(model.SerializeToString(), [value])
    actual = module_from_onnx(model)(torch.from_numpy(value)).detach().numpy()
    # Affine and its like let numbers grow from step to step: roundings are relative to the largest.
    scale = max(1.0, float(np.abs(expected).max()))
    names = str(model.graph.node[0].attribute)
    np.testing.assert_allclose(actual, expected, 0, ROUNDINGS * scale, err_msg=names)


@pytest.mark.parametrize("direction", ["forward", "reverse", "bidirectional"])
@pytest.mark.parametrize("operator", COUNT)
def test_parameters_belong_to_the_activations_that_take_one(operator: str, direction: str) -> None:
    draw = random.Random(f"{operator} {direction}")
    count = COUNT[operator] * (2 if direction == "bidirectional" else 1)
    for first in TAKEN:
        for _ in range(6):
            # Every activation begins some lists; those behind it come in any order.
            names = [first, *draw.choices(list(TAKEN), k=count - 1)]
            names = names if draw.random() < 0.5 else names[::-1]
            # Different numbers, so that one that goes to another activation shows.
            alphas, betas = (
                [round(draw.uniform(0.2, 0.9), 2) for name in names if key in TAKEN[name]]
                for key in "ab"
            )
            check(layer(operator, direction, names, alphas, betas))


@needs("onnxruntime", "1.29")  # older ones take zeros instead
@pytest.mark.parametrize("operator", COUNT)
def test_where_the_lists_end_defaults_follow(operator: str) -> None:
    count = 2 * COUNT[operator]
    for first, stated in ((name, stated) for name in DEFAULTS for stated in range(count)):
        names = [DEFAULTS[(DEFAULTS.index(first) + step) % 3] for step in range(count)]
        betas = [0.4] if stated and "HardSigmoid" in names[:stated] else []
        check(
            layer(operator, "bidirectional", names, [0.3 + 0.1 * n for n in range(stated)], betas)
        )


def test_the_layer_that_was_wrong() -> None:
    check(layer("LSTM", "forward", ["Sigmoid", "LeakyRelu", "Tanh"], [0.3], []))
