"""Which nodes the built-in targets take, and what they say about those that they refuse."""

from __future__ import annotations

import onnx
import onnx_ir as ir
import pytest

from samba_onnx.passes.targets import Status, Target, available_targets, load_target
from samba_onnx.passes.targets.reasons import Reason, ReasonCode
from tests.passes.targets.node_tables import REFUSED, SUPPORTED, X, Y
from tests.passes.targets.samples import last_node, parse
from tests.passes.targets.statuses import with_status


@pytest.fixture(scope="module")
def target() -> Target:
    return load_target("sn40l")


def reason(target: Target, node: ir.Node) -> Reason:
    """Return the reason against a node that must be refused."""
    support = target.support(node)
    assert support.reason is not None
    assert support.evidence is None
    assert not support.experimental
    return support.reason


@pytest.mark.parametrize("sample", SUPPORTED.values(), ids=SUPPORTED)
@pytest.mark.parametrize("name", available_targets())
def test_supported(name: str, sample: tuple[str, str, str, str]) -> None:
    support = load_target(name).support(last_node(*sample))

    assert support.reason is None
    assert support.evidence in ("documented", "observed", "assumed")


@pytest.mark.parametrize("sample", REFUSED.values(), ids=REFUSED)
def test_refused(target: Target, sample: tuple[str, str, str, str, ReasonCode, str, str]) -> None:
    *model, code, part, hint = sample

    found = reason(target, last_node(*model, imports=', "com.example": 1'))

    assert (found.code, found.hint) == (code, hint)
    assert part in found.message
    assert "\n" not in found.message


@pytest.mark.parametrize(
    ("body", "evidence", "experimental"),
    [
        ("float[2] x | y = Add(x, x)", "documented", False),
        ("int32[2] x | y = Add(x, x)", "documented", True),
        ("int8[2] x | y = Add(x, x)", "assumed", True),
        ("bfloat16[2] x | y = Gelu(x)", "documented", False),
        ("float[2] x | y = Gelu(x)", "assumed", True),
        ("float[2] x | y = Relu(x)", "observed", True),
        ("float[2] x | y = Cos(x)", "assumed", True),
    ],
)
def test_evidence_is_that_of_the_data_type(
    target: Target, body: str, evidence: str, experimental: bool
) -> None:
    inputs, nodes = body.split(" | ")

    support = target.support(last_node(inputs, inputs.replace(" x", " y"), nodes))

    assert (support.reason, support.evidence, support.experimental) == (
        None,
        evidence,
        experimental,
    )


def test_least_known_operand_decides(target: Target) -> None:
    documented = last_node("float[4] x, int64[2] i", "float[2] y", "y = Gather(x, i)")
    by_int32 = last_node("float[4] x, int32[2] i", "float[2] y", "y = Gather(x, i)")

    assert not target.support(documented).experimental
    assert target.support(by_int32).experimental


def test_int8_is_for_the_sn40l_alone() -> None:
    node = last_node("int8[2] x", "int8[1,2] y", "y = Unsqueeze(x, a)", "int64[1] a = {0}")

    assert load_target("sn40l").support(node).reason is None
    assert reason(load_target("sn10"), node).code is ReasonCode.DTYPE
    assert reason(load_target("sn30"), node).code is ReasonCode.DTYPE


def test_unknown_rank_is_refused(target: Target) -> None:
    node = last_node(X, Y, "y = Relu(x)")
    assert node.inputs[0] is not None
    node.inputs[0].shape = None

    assert reason(target, node).code is ReasonCode.UNKNOWN_RANK


def test_overridable_initializer_is_no_constant(target: Target) -> None:
    model = parse("float[6] x, int64[2] s", Y, "y = Reshape(x, s)")
    shape = model.graph.inputs[1]
    shape.const_value = ir.tensor([2, 3], name="s")
    model.graph.register_initializer(shape)

    assert reason(target, model.graph.node(0)).code is ReasonCode.STATIC_INPUT


def test_initializer_without_type_takes_that_of_its_tensor(target: Target) -> None:
    node = last_node(X, Y, "y = Add(x, w)", "float[3] w = {1, 2, 3}")
    weight = node.inputs[1]
    assert weight is not None
    weight.type = None
    weight.shape = None

    assert target.support(node).reason is None


def test_weights_are_not_read(target: Target) -> None:
    node = last_node(X, "float[2,1] y", "y = MatMul(x, w)", "float[3,1] w = {1, 2, 3}")
    weight = node.inputs[1]
    assert weight is not None
    weight.const_value = ir.ExternalTensor(
        "missing.bin", 0, 12, ir.DataType.FLOAT, shape=ir.Shape([3, 1]), name="w", base_dir="/none"
    )

    assert target.support(node).reason is None


def test_hint_names_every_dimension_when_one_follows_from_others(target: Target) -> None:
    node = last_node("float[batch,seq] x", "float[1,n] y", "f = Flatten<axis=0>(x) y = Relu(f)")
    flat = node.inputs[0]
    assert flat is not None
    flat.type = ir.TensorType(ir.DataType.FLOAT)
    flat.shape = ir.Shape([1, "batch*seq"])

    assert reason(target, node).hint == "--dim batch=1 --dim seq=1"


def test_no_hint_when_the_dimension_depends_on_the_data(target: Target) -> None:
    node = last_node(X, "float[n] y", "y = Flatten(x)")

    assert reason(target, node).hint == ""


@pytest.mark.parametrize(
    ("opset", "body", "message"),
    [
        (6, "y = Relu(x)", "operator set 6"),
        (17, "y = Gelu(x)", "operator set 17 has no Gelu"),
        (18, "y = GroupNormalization<num_groups=1>(x, x, x)", "describes 21 to 28"),
    ],
)
def test_version_outside_of_the_row(target: Target, opset: int, body: str, message: str) -> None:
    found = reason(target, last_node(X, Y, body, opset=opset))

    assert found.code is ReasonCode.VERSION
    assert message in found.message


def test_more_operands_than_the_operator_has(target: Target) -> None:
    node = last_node(X, Y, "y = Relu(x, x)")

    assert reason(target, node).code is ReasonCode.VERSION


def test_node_outside_of_any_graph(target: Target) -> None:
    value = ir.Value(name="x", type=ir.TensorType(ir.DataType.FLOAT), shape=ir.Shape(["n"]))

    found = reason(target, ir.Node("", "Relu", [value], num_outputs=1))

    assert (found.code, found.hint) == (ReasonCode.DYNAMIC_SHAPE, "")


def test_unresolved_attribute_reference(target: Target) -> None:
    node = last_node(X, Y, "y = CumSum(x, a)", "int64 a = {0}")
    node.attributes["reverse"] = ir.RefAttr("reverse", "r", ir.AttributeType.INT)

    assert reason(target, node).code is ReasonCode.ATTRIBUTE


def test_static_inputs_are_positions(target: Target) -> None:
    clip = last_node(X, Y, "y = Clip(x, , high)", "float high = {6}")
    loop = last_node(X, Y, "y = Einsum(x)")

    assert target.static_inputs(clip) == {2}
    assert target.static_inputs(loop) == frozenset()


def test_onnx_domain_by_its_long_name(target: Target) -> None:
    node = last_node(X, Y, "y = Relu(x)")
    node.domain = "ai.onnx"

    assert target.support(node).reason is None
    assert target.knows("ai.onnx", "Relu")
    assert not target.knows("com.example", "Relu")
    assert not target.knows("", "Resize")


def test_every_operator_of_onnx_is_decided(target: Target) -> None:
    newest = min(onnx.defs.onnx_opset_version(), target.opsets[1])
    names = {
        schema.name
        for schema in onnx.defs.get_all_schemas_with_history()
        if schema.domain == "" and schema.since_version <= newest
    }
    decided = {row.op_type for row in (*target.rows, *target.unsupported)}

    assert names - decided == set()
    assert len(target.rows) + len(target.unsupported) == len(decided)


def test_every_supported_row_says_where_it_comes_from(target: Target) -> None:
    assert [row.name for row in target.rows if not row.source] == []


def test_row_reads_its_own_status(target: Target) -> None:
    row = target.row("", "Gelu")

    assert row is not None
    assert row.evidence == "documented"
    assert with_status(row, Status.FULL) == ("bfloat16",)
    assert with_status(row, Status.ASSUMED) == ("float32",)
