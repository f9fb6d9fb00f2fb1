"""Recurrent layers step by step, against onnxruntime's own: rounded in another order in every step."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import pytest

from samba_onnx.passes.rewrites.fix_names import FixNamesPass
from samba_onnx.passes.rewrites.foreign.drafting import Draft
from samba_onnx.passes.rewrites.infer_shapes import InferShapesPass
from samba_onnx.passes.rewrites.legalisation.legalise import LegalisePass
from samba_onnx.passes.rewrites.legalisation.recurrent_activations import Activations
from tests.passes.rewrites.applying import numbers, run
from tests.passes.rewrites.legalisation.legalising import (
    TARGET,
    UNROLLING,
    Everything,
    legalised,
    prepared,
    refusal,
)
from tests.versions import needs

ROUNDINGS = 2e-6
"""Largest difference after five steps of numbers below one; each step adds about two units of float32."""
STEPS, BATCH, INPUTS, HIDDEN = 5, 3, 4, 2
GATES = {"RNN": 1, "GRU": 3, "LSTM": 4}


def layer(
    operator: str,
    *,
    without: tuple[str, ...] = (),
    lengths: tuple[int, ...] = (5, 2, 4),
    **attributes: Any,
) -> tuple[onnx.ModelProto, list[np.ndarray]]:
    """Return a layer with all its operands, but for those that are left out."""
    ways = 2 if attributes.get("direction") == "bidirectional" else 1
    gates, first = GATES[operator], bool(attributes.get("layout"))
    state = (BATCH, ways, HIDDEN) if first else (ways, BATCH, HIDDEN)
    operands: dict[str, np.ndarray] = {
        "x": numbers(BATCH, STEPS, INPUTS) if first else numbers(STEPS, BATCH, INPUTS),
        "w": numbers(ways, gates * HIDDEN, INPUTS, seed=1),
        "r": numbers(ways, gates * HIDDEN, HIDDEN, seed=2),
        "b": numbers(ways, 2 * gates * HIDDEN, seed=3),
        "lengths": np.array(lengths, np.int32),
        "h": numbers(*state, seed=4),
    }
    outputs = ["y", "y_h"]
    if operator == "LSTM":
        operands |= {"c": numbers(*state, seed=5), "p": numbers(ways, 3 * HIDDEN, seed=6)}
        outputs.append("y_c")
    names = ["" if name in without else name for name in operands]
    node = onnx.helper.make_node(operator, names, outputs, hidden_size=HIDDEN, **attributes)
    kept = {name: array for name, array in operands.items() if name not in without}
    graph = onnx.helper.make_graph(
        [node],
        "g",
        [
            onnx.helper.make_tensor_value_info(
                name, onnx.helper.np_dtype_to_tensor_dtype(array.dtype), array.shape
            )
            for name, array in kept.items()
        ],
        [onnx.helper.make_tensor_value_info(name, 1, None) for name in outputs],
    )
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 21)])
    model.ir_version = 10
    return model, list(kept.values())


def check(
    operator: str,
    *,
    without: tuple[str, ...] = (),
    lengths: tuple[int, ...] = (5, 2, 4),
    **attributes: Any,
) -> None:
    """Hold a layer against onnxruntime's, with its body repeated and with its steps one behind the other.

    onnxruntime does no layout, so that is done around it.
    """
    proto, inputs = layer(operator, without=without, lengths=lengths, **attributes)
    before = None
    for target, is_repeated in ((TARGET, True), (UNROLLING, False)):
        model = ir.from_proto(proto)
        InferShapesPass()(model)
        if before is None:
            before = _by_onnx(proto, inputs) if attributes.get("layout") else run(model, inputs)
        rewrite = LegalisePass(Everything(target))
        assert rewrite(model).modified, rewrite.refusals.lines()
        InferShapesPass()(model)
        FixNamesPass()(model)
        assert not any(target.support(node).reason for node in model.graph)
        assert any(node.op_type == "Scan" for node in model.graph) == is_repeated
        for old, new in zip(before, run(model, inputs), strict=True):
            np.testing.assert_allclose(new, old, rtol=0, atol=ROUNDINGS)


def _by_onnx(proto: onnx.ModelProto, inputs: list[np.ndarray]) -> list[np.ndarray]:
    """Return what onnxruntime computes with the batch second, the batch brought first again."""
    plain = onnx.ModelProto()
    plain.CopyFrom(proto)
    node = plain.graph.node[0]
    node.attribute.remove(next(item for item in node.attribute if item.name == "layout"))
    moved = {"x", "h", "c"}
    arrays = []
    for value, array in zip(plain.graph.input, inputs, strict=True):
        turned = array.swapaxes(0, 1) if value.name in moved else array
        for dim, size in zip(value.type.tensor_type.shape.dim, turned.shape, strict=True):
            dim.dim_value = size
        arrays.append(np.ascontiguousarray(turned))
    y, *states = run(ir.from_proto(plain), arrays)
    return [y.transpose(2, 0, 1, 3), *(state.swapaxes(0, 1) for state in states)]


@pytest.mark.parametrize("operator", ["RNN", "GRU", "LSTM"])
@pytest.mark.parametrize("direction", ["forward", "reverse", "bidirectional"])
def test_every_direction_with_all_operands(operator: str, direction: str) -> None:
    check(operator, direction=direction)


@pytest.mark.parametrize(
    "operator",
    # Older ones return what was in memory.
    [pytest.param("RNN", marks=needs("onnxruntime", "1.26")), "GRU", "LSTM"],
)
def test_empty_sequences_end_in_zeros(operator: str) -> None:
    check(operator, direction="bidirectional", lengths=(0, 5, 1))


@pytest.mark.parametrize("operator", ["RNN", "GRU", "LSTM"])
@pytest.mark.parametrize(
    "without", [("h", "c"), ("b",), ("lengths",), ("b", "lengths", "h", "c", "p")]
)
def test_operands_that_are_left_out(operator: str, without: tuple[str, ...]) -> None:
    check(operator, without=without)


@pytest.mark.parametrize("operator", ["RNN", "GRU", "LSTM"])
def test_the_batch_may_come_first(operator: str) -> None:
    check(operator, layout=1, direction="bidirectional", without=("lengths",))


@pytest.mark.parametrize("without", [(), ("b", "h")])
def test_a_reset_after_the_product(without: tuple[str, ...]) -> None:
    check("GRU", linear_before_reset=1, without=without)


def test_a_forget_gate_that_follows_the_input_gate() -> None:
    check("LSTM", input_forget=1, without=("p",))


@pytest.mark.parametrize("operator", ["RNN", "GRU", "LSTM"])
def test_gates_within_bounds(operator: str) -> None:
    check(operator, clip=0.3, without=("p",))


@pytest.mark.parametrize(
    "names",
    [
        ["Relu", "Softsign", "Softplus"],
        ["HardSigmoid", "ScaledTanh", "Elu"],
        ["LeakyRelu", "ThresholdedRelu", "Affine"],
    ],
)
def test_other_activations(names: list[str]) -> None:
    check(
        "LSTM",
        activations=names,
        activation_alpha=[0.3, 0.7, 0.9],
        activation_beta=[0.4, 0.6],
        without=("p",),
    )


@needs("onnxruntime", "1.29")  # older ones take zeros instead
@pytest.mark.parametrize("name", ["LeakyRelu", "Elu", "HardSigmoid"])
def test_defaults_of_activations(name: str) -> None:
    check("RNN", activations=[name])


@pytest.mark.parametrize("name", ["ThresholdedRelu", "Affine", "ScaledTanh"])
def test_activations_without_agreed_defaults_stay(name: str) -> None:
    proto, _ = layer("RNN", activations=[name])
    model = ir.from_proto(proto)
    InferShapesPass()(model)
    rewrite = LegalisePass(Everything())
    assert not rewrite(model).modified
    assert rewrite.refusals.lines() == (
        f"RNN 'y': its activation {name!r} has no parameters, and no defaults",
    )


LONG = """g (float[2000,1,2] x, float[1,3,2] w, float[1,3,3] r) => (float[2000,1,1,3] y)
{ y = RNN<hidden_size=3>(x, w, r) }"""


def test_long_sequences_stay_where_no_body_is_repeated() -> None:
    reason = "RNN 'y': its 2,000 steps have more than 4,096 nodes"
    assert refusal(LONG, target=UNROLLING) == reason


def test_long_sequences_are_one_body() -> None:
    weights = {"w": numbers(1, 3, 2), "r": numbers(1, 3, 3, seed=1)}
    made = legalised(LONG, [numbers(2000, 1, 2)], weights, atol=ROUNDINGS)
    assert sorted(made) == ["MatMul", "Scan", "Unsqueeze"]


def test_nothing_is_added_where_an_activation_adds_nothing() -> None:
    (node,) = prepared(
        """g (float[1,1,2] x, float[1,2,2] w, float[1,2,2] r) => (y)
        { y = RNN<hidden_size=2, activations=["Affine", "Affine"], activation_alpha=[2.0, 3.0], activation_beta=[0.0, 0.5]>(x, w, r) }"""
    ).graph
    draft = Draft(node)
    ((plain,), (shifted,)) = Activations(draft).all(("Tanh",), 2)
    plain(draft.operand(0))
    assert [made.op_type for made in draft.nodes if made.op_type != "Constant"] == ["Mul"]
    shifted(draft.operand(0))
    assert [made.op_type for made in draft.nodes if made.op_type != "Constant"] == [
        "Mul",
        "Mul",
        "Add",
    ]


def test_layers_of_which_other_results_are_read() -> None:
    graph = """g (float[2,1,3] x, float[1,2,3] w, float[1,2,2] r) => (float[2,1,1,2] y, float[1,1,2] z) {
      a, b = RNN<hidden_size=2>(x, w, r)
      y = Abs(a)
      c, d = RNN<hidden_size=2>(x, w, r)
      z = Abs(d)
    }"""
    weights = {"w": numbers(1, 2, 3), "r": numbers(1, 2, 2, seed=1)}
    legalised(graph, [numbers(2, 1, 3)], weights, atol=ROUNDINGS)
