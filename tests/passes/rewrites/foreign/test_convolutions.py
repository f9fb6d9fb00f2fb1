from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from samba_onnx.facts.domains import CHANNELS_LAST_DOMAIN
from tests.passes.rewrites.applying import numbers
from tests.passes.rewrites.foreign.expanding import (
    MICROSOFT,
    assert_computes,
    assert_expands,
    assert_stays,
    one_node,
    refusal,
)
from tests.versions import needs

IMAGE = [numbers(1, 3, 6, 6), numbers(4, 3, 3, 3, seed=1), numbers(4, seed=2)]


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


def _channels_last(array: Any) -> Any:
    return np.ascontiguousarray(np.moveaxis(array, 1, -1))


def _expected(**arguments: Any) -> torch.Tensor:
    return torch.nn.functional.conv2d(*(torch.from_numpy(array) for array in IMAGE), **arguments)


def test_channels_may_come_last_in_data_and_weight() -> None:
    operands = [_channels_last(IMAGE[0]), _channels_last(IMAGE[1]), IMAGE[2]]
    proto = one_node(
        MICROSOFT, "NhwcConv", operands, ["y"], pads=[1, 1, 1, 1], strides=[2, 2], group=1
    )
    expected = _channels_last(_expected(padding=1, stride=2).numpy())
    assert_computes(proto, operands, expected)


def test_channels_may_come_last_in_data_only_with_an_addend_and_an_activation() -> None:
    addend = numbers(1, 4, 4, 4, seed=3)
    operands = [_channels_last(IMAGE[0]), IMAGE[1], IMAGE[2], _channels_last(addend)]
    proto = one_node(MICROSOFT, "NhwcFusedConv", operands, ["y"], activation="Relu")
    expected = torch.relu(_expected() + torch.from_numpy(addend)).numpy()
    assert_computes(proto, operands, _channels_last(expected))


def test_transposed_convolutions_with_padding_that_is_an_operand() -> None:
    padding = np.array([1, 1, 0, 1])
    operands = [numbers(1, 3, 4, 4), numbers(3, 2, 3, 3, seed=1), padding, numbers(2, seed=2)]
    proto = one_node(
        MICROSOFT, "ConvTransposeWithDynamicPads", operands, ["y"], constants=(2,), strides=[2, 2]
    )
    assert_expands(proto, operands)
    proto = one_node(MICROSOFT, "ConvTransposeWithDynamicPads", operands, ["y"])
    assert_stays(proto, "its padding 'x2' is not constant")


@needs("onnxruntime", "1.30")  # older ones lack the operator, or its dilation
@pytest.mark.parametrize("state", [False, True])
@pytest.mark.parametrize("attributes", [{"activation": "silu"}, {"dilation": 2}])
def test_convolutions_over_earlier_positions(state: bool, attributes: dict[str, Any]) -> None:
    earlier = 2 * attributes.get("dilation", 1)
    operands = [numbers(2, 4, 7), numbers(4, 1, 3, seed=1), numbers(4, seed=2)]
    operands += [numbers(2, 4, earlier, seed=3)] if state else []
    proto = one_node(MICROSOFT, "CausalConvWithState", operands, ["y", "present"], **attributes)
    assert_expands(proto, operands)


def test_convolutions_over_earlier_positions_of_several_axes_stay() -> None:
    operands = [numbers(2, 4, 3, 7), numbers(4, 1, 3, 3)]
    proto = one_node(MICROSOFT, "CausalConvWithState", operands, ["y", "present"], ndim=2)
    assert_stays(proto, "its attribute ndim is 2, not 1")


@pytest.mark.parametrize(
    ("operator", "attributes", "function"),
    [
        ("MaxPool", {"kernel_shape": [2, 3], "strides": [2, 1]},
         lambda x: torch.nn.functional.max_pool2d(x, (2, 3), (2, 1))),
        ("AveragePool", {"kernel_shape": [3, 3]}, lambda x: torch.nn.functional.avg_pool2d(x, 3, 1)),
        ("GlobalAveragePool", {}, lambda x: x.mean((2, 3), keepdim=True)),
        ("SpaceToDepth", {"blocksize": 2},
         lambda x: x.reshape(1, 3, 3, 2, 3, 2).permute(0, 3, 5, 1, 2, 4).reshape(1, 12, 3, 3)),
    ],
)  # fmt: skip
def test_operators_for_other_processors_have_channels_last(
    operator: str, attributes: dict[str, Any], function: Any
) -> None:
    operands = [_channels_last(IMAGE[0])]
    proto = one_node(CHANNELS_LAST_DOMAIN, operator, operands, ["y"], **attributes)
    proto.opset_import.add(domain=CHANNELS_LAST_DOMAIN, version=21)
    expected = _channels_last(function(torch.from_numpy(IMAGE[0])).numpy())
    assert_computes(proto, operands, expected)


def test_convolutions_for_other_processors_have_channels_last_in_data_only() -> None:
    operands = [_channels_last(IMAGE[0]), *IMAGE[1:]]
    proto = one_node(CHANNELS_LAST_DOMAIN, "Conv", operands, ["y"], pads=[1, 1, 1, 1])
    proto.opset_import.add(domain=CHANNELS_LAST_DOMAIN, version=21)
    assert_computes(proto, operands, _channels_last(_expected(padding=1).numpy()))


def test_a_clip_without_bounds_stays() -> None:
    proto = one_node(
        MICROSOFT, "FusedConv", IMAGE, ["y"], activation="Clip", activation_params=[1.0]
    )
    assert refusal(proto) == "its activation Clip is none that onnxruntime fuses"
