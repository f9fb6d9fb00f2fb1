"""Every operator that onnxruntime brings along: expanded, or whole on the CPU with a reason."""

from __future__ import annotations

from typing import Any

import onnx
import onnx_ir as ir
import pytest
from onnxruntime.capi import onnxruntime_pybind11_state

from samba_onnx.errors import InternalError, SambaError
from samba_onnx.facts.domains import (
    BLOCKED_DOMAIN,
    CHANNELS_LAST_DOMAIN,
    ML_DOMAIN,
    ONNXRUNTIME_DOMAIN,
    qualified,
)
from samba_onnx.passes.pipeline import run_pipeline
from samba_onnx.passes.planning.placement import place
from samba_onnx.passes.rewrites import expand_blocked_layouts
from samba_onnx.passes.rewrites.foreign.rules import operators_with_rules
from samba_onnx.passes.rewrites.foreign.whole import operators_that_stay, reason_of
from samba_onnx.passes.targets.target import load_target
from tests.versions import needs

SCHEMAS: dict[str, Any] = {
    schema.name: schema
    for schema in onnxruntime_pybind11_state.get_all_operator_schema()
    if schema.domain == ONNXRUNTIME_DOMAIN
}
OTHERS: dict[str, Any] = {
    qualified(schema.domain, schema.name): schema
    for schema in onnxruntime_pybind11_state.get_all_operator_schema()
    if schema.domain in (BLOCKED_DOMAIN, CHANNELS_LAST_DOMAIN)
    or (
        schema.domain != ONNXRUNTIME_DOMAIN
        and qualified(schema.domain, schema.name) in operators_with_rules()
    )
}
"""Operators of other domains that have a rule, or layouts of their own."""
PREFERRED = ("tensor(float)", "tensor(int64)", "tensor(int32)", "tensor(uint8)", "tensor(float16)")


@needs("onnxruntime", "1.31")  # whose operators the tables have
def test_every_operator_is_expanded_or_has_a_reason() -> None:
    names = {f"{ONNXRUNTIME_DOMAIN}::{name}" for name in SCHEMAS}
    rules, reasons = set(operators_with_rules()), set(operators_that_stay())
    assert names - rules - reasons == set()
    assert rules & reasons == set()
    assert reasons <= names


def _type(schema: Any, formal: Any) -> int:
    """Return an element type that the schema allows, floats first."""
    names = sorted(formal.types)
    name = next((name for name in PREFERRED if name in names), names[0])
    return int(onnx.TensorProto.DataType.Value(name.split("(")[-1].rstrip(")").upper()))


def _model(schema: Any, rank: int, constants: bool) -> onnx.ModelProto | None:
    """Return a model of one node with every operand, of ones of size 2; None where they are no tensors."""
    formals = [*schema.inputs, *schema.outputs]
    if not all(kind.startswith("tensor") for formal in formals for kind in formal.types):
        return None
    inputs, weights = [], []
    for number, formal in enumerate(schema.inputs):
        kind = _type(schema, formal)
        if constants and number and kind != onnx.TensorProto.STRING:
            tensor = onnx.helper.make_tensor(f"x{number}", kind, [2] * rank, [1] * 2**rank)
            weights.append(tensor)
        else:
            inputs.append(onnx.helper.make_tensor_value_info(f"x{number}", kind, [2] * rank))
    outputs = [f"y{number}" for number in range(len(schema.outputs))]
    node = onnx.helper.make_node(
        schema.name, [f"x{number}" for number in range(len(schema.inputs))], outputs,
        domain=schema.domain, name="node",
    )  # fmt: skip
    kinds = [onnx.ValueInfoProto(name=output) for output in outputs]
    graph = onnx.helper.make_graph([node], "g", inputs, kinds, weights)
    versions = {"": 21, ONNXRUNTIME_DOMAIN: 1, BLOCKED_DOMAIN: 1, CHANNELS_LAST_DOMAIN: 21}
    versions |= {ML_DOMAIN: 3}
    imports = [onnx.helper.make_opsetid(*pair) for pair in versions.items()]
    return onnx.helper.make_model(graph, opset_imports=imports, ir_version=10)


def _reasons(proto: onnx.ModelProto) -> list[str]:
    """Return why nodes of onnxruntime's domain stay; a model that is refused has none."""
    target = load_target("sn40l")
    try:
        model = run_pipeline(ir.from_proto(proto), target).model
    except InternalError:
        raise
    except SambaError:
        return []
    placement = place(model, target)
    return [
        placement.reasons[node].message for node in model.graph if node.domain == ONNXRUNTIME_DOMAIN
    ]


def _hold_reasons(name: str, rank: int, *, constants: bool) -> None:
    proto = _model(SCHEMAS[name], rank, constants)
    for reason in [] if proto is None else _reasons(proto):
        assert reason.startswith(
            f"com.microsoft::{name} is no operator of the table of sn40l, and it"
        )
        assert "\n" not in reason
        assert not reason.endswith((": ", "."))


@pytest.mark.parametrize("name", sorted(SCHEMAS))
def test_operands_that_no_model_has_are_a_reason_and_no_failure(name: str) -> None:
    _hold_reasons(name, 2, constants=True)


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(SCHEMAS))
@pytest.mark.parametrize("rank", [0, 1, 2, 3, 4])
@pytest.mark.parametrize("constants", [True, False])
def test_operands_of_every_rank_are_a_reason_and_no_failure(
    name: str, rank: int, constants: bool
) -> None:
    _hold_reasons(name, rank, constants=constants)


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(OTHERS))
@pytest.mark.parametrize("constants", [True, False])
def test_operands_of_other_operators_are_no_failure(
    name: str, constants: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(expand_blocked_layouts, "channel_block", lambda: 2)
    for rank in range(5):
        proto = _model(OTHERS[name], rank, constants)
        if proto is not None:
            _reasons(proto)


def test_the_reason_of_a_node_is_that_of_its_placement() -> None:
    protos = {name: _model(SCHEMAS[name], 2, True) for name in ("Unique", "MatMulNBits")}
    reasons = {name: _reasons(proto) for name, proto in protos.items() if proto is not None}
    assert reasons["Unique"] == [
        "com.microsoft::Unique is no operator of the table of sn40l, and it is not expanded: its "
        "output shape depends on the data, and the graph is static"
    ]
    assert reasons["MatMulNBits"] == [
        "com.microsoft::MatMulNBits is no operator of the table of sn40l, and it is not expanded: "
        "its input 4 has no counterpart in the expansion"
    ]


def test_a_reason_is_of_an_operator_of_its_domain() -> None:
    nodes = [ir.node("Unique", [], domain=domain) for domain in (ONNXRUNTIME_DOMAIN, ML_DOMAIN)]
    assert [reason_of(node) for node in nodes] == [
        operators_that_stay()["com.microsoft::Unique"],
        "there is no rule for ai.onnx.ml::Unique",
    ]
