from __future__ import annotations

import numpy as np
import onnx
import pytest

from samba_onnx.passes.rewrites.foreign.activation_functions import activate
from samba_onnx.passes.rewrites.foreign.drafting import Draft
from tests.passes.rewrites.applying import numbers, parse
from tests.passes.rewrites.foreign.expanding import MICROSOFT, assert_expands, one_node

VALUE = 3 * numbers(2, 3, 4)


@pytest.mark.parametrize("op_type", ["Gelu", "FastGelu", "QuickGelu"])
def test_activations(op_type: str) -> None:
    assert_expands(one_node(MICROSOFT, op_type, [VALUE], ["y"]), [VALUE])


def test_the_factor_of_quick_gelu_is_an_attribute() -> None:
    model = assert_expands(one_node(MICROSOFT, "QuickGelu", [VALUE], ["y"], alpha=1.0), [VALUE])
    assert [node.op_type for node in model.graph] == ["Sigmoid", "Mul"]
    assert_expands(one_node(MICROSOFT, "QuickGelu", [VALUE], ["y"], alpha=-0.5), [VALUE])


@pytest.mark.parametrize("op_type", ["BiasGelu", "FastGelu"])
def test_activations_of_sums(op_type: str) -> None:
    operands = [VALUE, numbers(4, seed=1)]
    assert_expands(one_node(MICROSOFT, op_type, operands, ["y"]), operands)


def test_half_precision_keeps_its_type() -> None:
    half = VALUE.astype(np.float16)
    proto = one_node(MICROSOFT, "FastGelu", [half], ["y"])
    # float16 has 11 bits: both sides round to them, at different places
    assert_expands(proto, [half], rtol=2e-3, atol=1e-3)


def test_what_a_fused_activation_does_not_state_is_onnxs_default() -> None:
    (node,) = parse("g (float[2] x) => (float[2] y) { y = Neg(x) }").graph
    for name in ("LeakyRelu", "HardSigmoid"):
        draft = Draft(node)
        activate(draft, draft.operand(0), name, {})
        defaults = {
            key: attribute.default_value.f
            for key, attribute in onnx.defs.get_schema(name).attributes.items()
        }
        stated = {key: item.as_float() for key, item in draft.nodes[-1].attributes.items()}
        assert stated == pytest.approx(defaults, rel=1e-6)
