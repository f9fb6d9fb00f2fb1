"""Where a program rounds at random: what optimizers store, and sums that make gradients."""

from __future__ import annotations

from collections import Counter
from types import MappingProxyType

import numpy as np
import onnx_ir as ir
import pytest
from onnx import parser

from samba_onnx.export.programs.optimizers import optimizer_parts
from samba_onnx.export.programs.stochastic_rounding import round_stochastically
from samba_onnx.facts.names import GRADIENT_ROUNDING_SEED
from samba_onnx.facts.roundings import ROUNDING, Rounding
from samba_onnx.optim.records import GroupRecord, OptimizerKind, OptimizerRecord
from samba_onnx.program.kinds import SectionType, SymbolKind
from samba_onnx.program.program import ArginSpec, Part, Program
from samba_onnx.runtime.engine.reference.stochastic_round import stochastic_round

HEADER = '<ir_version: 10, opset_import: ["" : 21]>\n'
WIDE, NARROW = ir.DataType.FLOAT, ir.DataType.BFLOAT16


def steps(fp32_params: bool, **types: ir.DataType) -> Program:
    """Return a program with a step of Adam for parameters of some types."""
    values = dict.fromkeys(("lr", "beta1", "beta2", "eps", "weight_decay"), 0.1)
    group = GroupRecord("optimizer0__group0", tuple(types), MappingProxyType(values))
    record = OptimizerRecord(OptimizerKind.ADAM, "optimizer0", (group,), fp32_params=fp32_params)
    parts = optimizer_parts([record], {name: (dtype, (4, 3)) for name, dtype in types.items()})
    return Program("g", parts.update, (), (), parts.residents, parts.regions, parts.argins)


def backward(text: str, *gradients: str) -> Program:
    """Return a program whose backward is an ONNX graph with gradients among its outputs."""
    model = ir.from_proto(parser.parse_model(HEADER + text))
    for node in model.graph:
        for value in node.outputs:
            if value.type is None:
                value.type = ir.TensorType(NARROW)
    residents = dict.fromkeys(gradients, SymbolKind.GRADIENT)
    return Program("g", (Part(SectionType.BCKWD, model),), (), (), residents)


def operators(program: Program) -> Counter[str]:
    return Counter(node.op_type for part in program.parts for node in part.model.graph)


def counts(program: Program) -> str:
    return program.metadata[ROUNDING]


def test_of_nothing_the_program_stays_as_it_is() -> None:
    program = steps(False, w=NARROW)
    assert round_stochastically(program, frozenset()) is program


def test_weights_and_states_of_bfloat16_are_rounded_each_by_a_stream_of_its_own() -> None:
    before = steps(False, w=NARROW, wide=WIDE, v=NARROW)
    stored = [value.name for value in before.parts[0].model.graph.outputs]
    program = round_stochastically(before, {Rounding.STEPS})
    graph = program.parts[0].model.graph
    rounds = [node for node in graph if node.op_type == "StochasticRound"]
    streams = [node.attributes["stream"].as_int() for node in rounds]
    assert sorted(streams) == list(range(6))  # weight and two states of two parameters
    assert [value.name for value in graph.outputs] == stored
    assert all(node.outputs[0].is_graph_output() for node in rounds)
    assert [one for one in program.argins if "rounding" in one.name] == [
        ArginSpec("optimizer0__rounding_seed", "tensor(int32)", 0.0)
    ]
    assert counts(program) == '{"steps": 6}'
    assert graph.opset_imports["samba"] == 1


def test_weights_with_float32_copies_are_rounded_to_nearest() -> None:
    program = round_stochastically(steps(True, w=NARROW), {Rounding.STEPS})
    assert "StochasticRound" not in operators(program)
    assert counts(program) == '{"steps": 0}'


@pytest.mark.parametrize("dtype", [ir.DataType.FLOAT16, WIDE])
def test_weights_of_other_types_are_stored_as_they_were(dtype: ir.DataType) -> None:
    before = operators(steps(False, w=dtype))
    program = round_stochastically(steps(False, w=dtype), {Rounding.STEPS})
    assert operators(program) == before
    assert counts(program) == '{"steps": 0}'


LAYER = """g (bfloat16[8, 3] x, bfloat16[8, 4] d, bfloat16[2, 4, 3] e) => (float[4, 3] w__grad, bfloat16[4] b__grad, bfloat16[8, 3] x__grad) {
    t = Transpose<perm = [1, 0]>(d) m = MatMul(t, x)
    a = Constant<value_ints = [0]>() s = ReduceSum<keepdims = 0>(e, a)
    sum = Add(m, s) w__grad = Cast<to = 1>(sum)
    b__grad = ReduceSum<keepdims = 0>(d, a)
    x__grad = MatMul(d, sum) }"""


@pytest.mark.parametrize(
    ("rounding", "count"),
    [(Rounding.GRADIENTS, 1), (Rounding.BIASES, 1), (Rounding.CONVOLUTIONS, 0)],
)
def test_sums_that_make_gradients_of_weights_are_rounded(rounding: Rounding, count: int) -> None:
    """What other nodes read as well, and what makes gradients of activations, is rounded to nearest."""
    program = round_stochastically(backward(LAYER, "w__grad", "b__grad"), {rounding})
    assert operators(program)["StochasticRound"] == count
    assert counts(program) == f'{{"{rounding}": {count}}}'


def test_a_sum_of_several_is_rounded_after_each() -> None:
    text = LAYER.replace("x__grad = MatMul(d, sum)", "x__grad = MatMul(d, p)")
    text = text.replace("bfloat16[2, 4, 3] e", "bfloat16[2, 4, 3] e, bfloat16[4, 3] p")
    program = round_stochastically(backward(text, "w__grad", "b__grad"), {Rounding.GRADIENTS})
    nodes = {node.outputs[0].name: node for node in program.parts[0].model.graph}
    rounded = [name for name, node in nodes.items() if node.op_type == "StochasticRound"]
    assert sorted(rounded) == ["b__grad", "m", "s", "sum"]
    product = nodes["m__float32"]
    assert product.op_type == "MatMul"
    assert [v.dtype for v in (*product.inputs, *product.outputs)] == [WIDE] * 3
    assert [one.name for one in program.argins] == [GRADIENT_ROUNDING_SEED]
    assert counts(program) == '{"gradients": 4}'


def test_a_summand_that_something_else_reads_is_rounded_to_nearest() -> None:
    text = LAYER.replace("x__grad = MatMul(d, sum)", "x__grad = MatMul(d, m)")
    program = round_stochastically(backward(text, "w__grad", "b__grad"), {Rounding.GRADIENTS})
    nodes = program.parts[0].model.graph
    rounded = [one.outputs[0].name for one in nodes if one.op_type == "StochasticRound"]
    assert sorted(map(str, rounded)) == ["b__grad", "s", "sum"]


def test_a_rounded_product_is_its_float32_rounded() -> None:
    text = """g (float[16, 40] u, float[16, 30] v) => (bfloat16[40, 30] w__grad) {
        x = Cast<to = 16>(u) y = Cast<to = 16>(v) t = Transpose<perm = [1, 0]>(x) w__grad = MatMul(t, y) }"""
    program = round_stochastically(backward(text, "w__grad"), {Rounding.GRADIENTS})
    from samba_onnx.comparing.eager.running import run_part

    generator = np.random.default_rng(0)
    u, v = (
        generator.integers(-64, 64, size).astype(np.float32) / 8 for size in ((16, 40), (16, 30))
    )
    feed = {"u": u, "v": v, GRADIENT_ROUNDING_SEED: np.array(5, np.int32)}
    (result,) = run_part(program.parts[0], feed).values()
    # Sums of such numbers are exact in float32, whatever their order.
    expected = stochastic_round(u.T @ v, 5, 0)
    np.testing.assert_array_equal(result.astype(np.float32), expected)
    assert (expected != (u.T @ v)).mean() > 0.3
