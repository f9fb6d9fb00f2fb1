"""Helpers of the tests of rules for foreign operators: one node, before and after."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from numpy.typing import NDArray
from onnxruntime.capi import onnxruntime_pybind11_state

from samba_onnx.facts.domains import is_default
from samba_onnx.passes.pipeline import run_pipeline
from samba_onnx.passes.rewrites.foreign import rule_of
from samba_onnx.passes.rewrites.foreign.drafting import CannotExpandError, Draft
from samba_onnx.passes.targets.target import load_target
from tests.backend_cases import run_onnxruntime
from tests.passes.rewrites.foreign.quantities import in_integers, is_integer_product
from tests.versions import is_older

MICROSOFT = "com.microsoft"
LEARNING = "ai.onnx.ml"

Operand = NDArray[Any] | None


def one_node(
    domain: str,
    op_type: str,
    operands: Sequence[Operand],
    outputs: Sequence[str],
    constants: Sequence[int] = (),
    opset: int = 21,
    **attributes: Any,
) -> onnx.ModelProto:
    """Return a model of one node.

    Args:
        domain: Domain of its operator.
        op_type: Its operator.
        operands: Its inputs as arrays; None for one that is left out.
        outputs: Names of its outputs, empty for one that nobody asks for.
        constants: Positions of inputs that are initializers.
        opset: Version of the default operator set.
        **attributes: Its attributes.
    """
    names = ["" if array is None else f"x{position}" for position, array in enumerate(operands)]
    node = onnx.helper.make_node(op_type, names, outputs, domain=domain, name="node", **attributes)
    graph = onnx.helper.make_graph(
        [node], "g", [], [onnx.ValueInfoProto(name=name) for name in outputs if name]
    )
    for position, array in enumerate(operands):
        if array is None:
            continue
        tensor = onnx.numpy_helper.from_array(array, names[position])
        if position in constants:
            graph.initializer.append(tensor)
        else:
            kind = onnx.helper.make_tensor_value_info(
                names[position], tensor.data_type, array.shape
            )
            graph.input.append(kind)
    imports = [onnx.helper.make_opsetid("", opset), onnx.helper.make_opsetid(MICROSOFT, 1),
               onnx.helper.make_opsetid(LEARNING, 3)]  # fmt: skip
    return onnx.helper.make_model(graph, opset_imports=imports, ir_version=10)


def expanded(proto: onnx.ModelProto) -> tuple[ir.Model, tuple[str, ...]]:
    """Return a model after all passes for the default target, and the notes that they left."""
    result = run_pipeline(ir.from_proto(proto), load_target("sn40l"))
    return result.model, result.notes


def refusal(proto: onnx.ModelProto) -> str:
    """Return why the rule for the only node of a model gives up."""
    (node,) = ir.from_proto(proto).graph
    rule = rule_of(node)
    assert rule is not None
    with pytest.raises(CannotExpandError) as caught:
        rule(Draft(node))
    return str(caught.value)


def _skip_what_older_ones_lack(proto: onnx.ModelProto) -> None:
    """Skip a test whose operator came to onnxruntime with the newest version that is tested, or shortly before."""
    names = {schema.name for schema in onnxruntime_pybind11_state.get_all_operator_schema()}
    missing = sorted({node.op_type for node in proto.graph.node} - names)
    if missing and is_older("onnxruntime", "1.31"):
        pytest.skip(f"onnxruntime is older than 1.31 and has no {missing[0]}")


def assert_expands(
    proto: onnx.ModelProto,
    operands: Sequence[Operand],
    *,
    rtol: float = 1e-5,
    atol: float = 1e-5,
    valid: Mapping[int, tuple[slice, ...]] | None = None,
) -> ir.Model:
    """Hold the expansion of a model against onnxruntime's own kernel for the node.

    Args:
        proto: A model of one foreign node.
        operands: Its inputs, those that are initializers included.
        rtol: Tolerance relative to each number; both sides compute in float32, in another order.
        atol: Tolerance for numbers near zero.
        valid: By output: the part that the operator defines.

    Returns:
        The model without foreign operators.
    """
    _skip_what_older_ones_lack(proto)
    before = run_onnxruntime(proto.SerializeToString(), _inputs(proto, operands))
    if is_integer_product(proto):
        np.testing.assert_array_equal(before[0], in_integers(proto, operands))
    model, after = _run_expanded(proto, operands)
    for position, (old, new) in enumerate(zip(before, after, strict=True)):
        part = (valid or {}).get(position, ())
        assert (old.dtype, old.shape) == (new.dtype, new.shape)
        np.testing.assert_allclose(new[part], old[part], rtol=rtol, atol=atol)
    return model


def assert_computes(
    proto: onnx.ModelProto,
    operands: Sequence[Operand],
    *expected: NDArray[Any],
    rtol: float = 1e-5,
    atol: float = 1e-5,
) -> ir.Model:
    """Hold the expansion of an operator that onnxruntime has no kernel for against other results.

    Args:
        proto: A model of one foreign node.
        operands: Its inputs, those that are initializers included.
        *expected: What its outputs must be.
        rtol: Tolerance relative to each number; both sides compute in float32, in another order.
        atol: Tolerance for numbers near zero.

    Returns:
        The model without foreign operators.
    """
    for output, array in zip(proto.graph.output, expected, strict=True):
        kind = onnx.helper.np_dtype_to_tensor_dtype(array.dtype)
        output.CopyFrom(onnx.helper.make_tensor_value_info(output.name, kind, array.shape))
    model, results = _run_expanded(proto, operands)
    for result, array in zip(results, expected, strict=True):
        assert (result.dtype, result.shape) == (array.dtype, array.shape)
        np.testing.assert_allclose(result, array, rtol=rtol, atol=atol)
    return model


def assert_stays(proto: onnx.ModelProto, reason: str) -> None:
    """Hold that the node of a model stays whole, with a note that has a reason in it."""
    operator = proto.graph.node[0].op_type
    model, notes = expanded(proto)
    assert operator in [node.op_type for node in model.graph]
    assert reason in " ".join(notes)


def _inputs(proto: onnx.ModelProto, operands: Sequence[Operand]) -> list[Operand]:
    declared = {value.name for value in proto.graph.input}
    return [array for position, array in enumerate(operands) if f"x{position}" in declared]


def _run_expanded(
    proto: onnx.ModelProto, operands: Sequence[Operand]
) -> tuple[ir.Model, list[Any]]:
    """Return a model without foreign operators, all of which the target has, and what it computes."""
    model, notes = expanded(proto)
    foreign = [node.op_type for node in model.graph if not is_default(node.domain)]
    assert not foreign, (foreign, notes)
    target = load_target("sn40l")
    assert all(target.knows(node.domain, node.op_type) for node in model.graph)
    return model, run_onnxruntime(ir.to_proto(model).SerializeToString(), _inputs(proto, operands))
