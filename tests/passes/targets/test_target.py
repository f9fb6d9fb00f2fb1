"""Which nodes the built-in targets take, and what they say about those that they refuse."""

from __future__ import annotations

import onnx
import onnx_ir as ir
import pytest

from samba_onnx.passes.reasons import Reason, ReasonCode
from samba_onnx.passes.targets import Status, Target, available_targets, load_target
from tests.passes.targets.samples import last_node, parse

X = "float[2,3] x"
Y = "float[2,3] y"

# inputs, outputs, body, constants
SUPPORTED = {
    "add": ("float[2,3] x, float[3] z", Y, "y = Add(x, z)", ""),
    "add int64": ("int64[2] x, int64[2] z", "int64[2] y", "y = Add(x, z)", ""),
    "variadic": ("float[2,3] x, float[2,1] z", "float[2,4] y", "y = Concat<axis=1>(x, z)", ""),
    "reshape": (X, "float[6] y", "y = Reshape(x, s)", "int64[1] s = {6}"),
    "reshape to scalar": ("float[1] x", "float y", "y = Reshape(x, s)", "int64[0] s = {}"),
    "gemm with weights": (X, "float[2,1] y", "y = Gemm(x, w)", "float[3,1] w = {1, 2, 3}"),
    "clip, lower only": (X, Y, "y = Clip(x, low)", "float low = {0}"),
    "clip, upper only": (X, Y, "y = Clip(x, , high)", "float high = {6}"),
    "constant node": (X, "float[6] y", "s = Constant<value_ints=[6]>() y = Reshape(x, s)", ""),
    "comparison": (X, "bool[2,3] y", "y = Less(x, z)", "float z = {0}"),
    "selection": ("bool[2] c, float[2] x", "float[2] y", "y = Where(c, x, z)", "float z = {0}"),
    "embedding": ("int64[2,5] i", "float[2,5,4] y", "y = Gather(w, i)", "float[1,4] w = {1,2,3,4}"),
    "power": (X, Y, "y = Pow(x, two)", "int64 two = {2}"),
    "cast": (X, "int64[2,3] y", "y = Cast<to=7>(x)", ""),
    "argmax": (X, "int64[2,1] y", "y = ArgMax<axis=1>(x)", ""),
    "conv 1d": ("float[1,1,8] x", "float[1,1,8] y", "y = Conv(x, w)", "float[1,1,1] w = {1}"),
    "conv 3d": (
        "float[1,1,2,2,2] x",
        "float[1,1,2,2,2] y",
        "y = Conv(x, w)",
        "float[1,1,1,1,1] w = {1}",
    ),
    "max pool": ("float[1,1,4,4] x", "float[1,1,2,2] y", "y = MaxPool<kernel_shape=[3,3]>(x)", ""),
    "unused indices": (
        "float[1,1,4,4] x",
        "float[1,1,2,2] y",
        "y, unused = MaxPool<kernel_shape=[3,3]>(x)",
        "",
    ),
    "slice": (
        X,
        "float[2,1] y",
        "y = Slice(x, a, b, c)",
        "int64[1] a={0}, int64[1] b={1}, int64[1] c={1}",
    ),
    "pad": (X, "float[2,4] y", "y = Pad(x, p)", "int64[4] p = {0, 0, 0, 1}"),
    "topk of one row": (
        "float[1,9] x",
        "float[1,3] y, int64[1,3] i",
        "y, i = TopK(x, k)",
        "int64[1] k = {3}",
    ),
    "dropout": (X, Y, "y = Dropout(x)", ""),
    "dropout, flags": (X, Y, "y = Dropout(x, r, t)", "float r = {0.5}, bool t = {0}"),
    "reduce all": (X, "float y", "y = ReduceSum<keepdims=0>(x)", ""),
    "scatter add": (
        "float[4] x, float[2] u",
        "float[4] y",
        'y = ScatterND<reduction="add">(x, i, u)',
        "int64[2,1] i = {0, 1}",
    ),
    "bfloat16": ("bfloat16[2,3] x", "bfloat16[2,3] y", "y = Gelu(x)", ""),
    "hard swish": (X, Y, "y = HardSwish(x)", ""),
    "sine": (X, Y, "y = Sin(x)", ""),
}

# inputs, outputs, body, constants, code, part of the message, hint
REFUSED = {
    "lstm": (
        "float[4,1,3] x, float[1,8,3] w, float[1,8,2] r",
        "float[4,1,1,2] y",
        "y = LSTM<hidden_size=2>(x, w, r)",
        "",
        ReasonCode.OPERATOR,
        "no document or program shows a recurrent layer",
        "",
    ),
    "resize": (
        "float[1,1,2,2] x",
        "float[1,1,4,4] y",
        "y = Resize(x, , s)",
        "float[4] s = {1, 1, 2, 2}",
        ReasonCode.OPERATOR,
        "ConvTranspose",
        "",
    ),
    "nonzero": (
        X,
        "int64[2,n] y",
        "y = NonZero(x)",
        "",
        ReasonCode.DYNAMIC_SHAPE,
        "depends on the data",
        "",
    ),
    "einsum": (X, Y, 'y = Einsum<equation="ij->ij">(x)', "", ReasonCode.OPERATOR, "host", ""),
    "unknown operator": (
        X,
        Y,
        "y = NoSuchThing(x)",
        "",
        ReasonCode.OPERATOR,
        "not in the operator table",
        "",
    ),
    "custom domain": (
        X,
        Y,
        "y = com.example.Thing(x)",
        "",
        ReasonCode.DOMAIN,
        "custom domain",
        "state a row for it in a target file of your own (docs/targets.md)",
    ),
    "if": (
        "bool c",
        "float y",
        "y = If(c)<then_branch = g () => (float a) { a = Constant<value_float=1.0>() },"
        " else_branch = g () => (float b) { b = Constant<value_float=2.0>() }>",
        "",
        ReasonCode.CONTROL_FLOW,
        "static graphs",
        "",
    ),
    "float64": (
        "double[2] x",
        "double[2] y",
        "y = Relu(x)",
        "",
        ReasonCode.DTYPE,
        "Relu: input X is float64; sn40l supports bfloat16, float32",
        "export the model in float32 or bfloat16",
    ),
    "float16": (
        "float16[2] x",
        "float16[2] y",
        "y = Relu(x)",
        "",
        ReasonCode.DTYPE,
        "float16",
        "export the model in float32 or bfloat16",
    ),
    "unsigned": (
        "uint8[2] x",
        "uint8[2] y",
        "y = Identity(x)",
        "",
        ReasonCode.DTYPE,
        "uint8",
        "cast it to int32 or int64 in the model",
    ),
    "integer division": (
        "int64[2] x",
        "int64[2] y",
        "y = Div(x, x)",
        "",
        ReasonCode.DTYPE,
        "int64",
        "",
    ),
    "string": ("string[2] x", "string[2] y", "y = Identity(x)", "", ReasonCode.DTYPE, "string", ""),
    "cast to float64": (
        X,
        "double[2,3] y",
        "y = Cast<to=11>(x)",
        "",
        ReasonCode.DTYPE,
        "output output is float64",
        "export the model in float32 or bfloat16",
    ),
    "float indices": (
        "float[4] x",
        "float[2] y",
        "y = Gather(x, i)",
        "uint8[2] i = {0, 1}",
        ReasonCode.DTYPE,
        "input indices is uint8; sn40l supports int64, int32",
        "cast it to int32 or int64 in the model",
    ),
    "sequence": (
        "seq(float[2]) x",
        "seq(float[2]) y",
        "y = Identity(x)",
        "",
        ReasonCode.VALUE_KIND,
        "input input is a sequence",
        "",
    ),
    "sequence operator": (
        "seq(float[2]) x",
        "int64 y",
        "y = SequenceLength(x)",
        "",
        ReasonCode.VALUE_KIND,
        "sequences",
        "",
    ),
    "untyped": (X, Y, "a = NoSuchThing(x) y = Relu(a)", "", ReasonCode.UNKNOWN_TYPE, "input X", ""),
    "named dimension": (
        "float[batch,3] x",
        "float[batch,3] y",
        "y = Relu(x)",
        "",
        ReasonCode.DYNAMIC_SHAPE,
        "input X has the dynamic shape [batch,3]",
        "--dim batch=8",
    ),
    "nameless dimension": (
        "float[?,3] x",
        "float[?,3] y",
        "y = Relu(x)",
        "",
        ReasonCode.DYNAMIC_SHAPE,
        "dynamic shape",
        "--input-shape x=8,3",
    ),
    "derived dimension": (
        "float[batch,seq] x",
        "float[batch,seq] z",
        "z = Relu(x) y = Reshape(x, s)",
        "int64[1] s = {-1}",
        ReasonCode.DYNAMIC_SHAPE,
        "",
        "--dim batch=8",
    ),
    "empty": (
        "float[0,3] x",
        "float[0,3] y",
        "y = Relu(x)",
        "",
        ReasonCode.EMPTY,
        "no elements",
        "",
    ),
    "empty output": (
        X,
        "float[0,3] y",
        "y = Slice(x, a, a)",
        "int64[1] a = {0}",
        ReasonCode.EMPTY,
        "output output",
        "",
    ),
    "run-time shape": (
        "float[6] x, int64[2] s",
        Y,
        "y = Reshape(x, s)",
        "",
        ReasonCode.STATIC_INPUT,
        "input shape is computed at run time",
        "",
    ),
    "run-time bound": (
        "float[2] x, float low",
        "float[2] y",
        "y = Clip(x, low)",
        "",
        ReasonCode.STATIC_INPUT,
        "input min",
        "",
    ),
    "reflection": (
        X,
        "float[2,4] y",
        'y = Pad<mode="reflect">(x, p)',
        "int64[4] p = {0, 0, 0, 1}",
        ReasonCode.ATTRIBUTE,
        "attribute mode is reflect; sn40l supports constant",
        "",
    ),
    "dilated pool": (
        "float[1,1,8,8] x",
        "float[1,1,4,4] y",
        "y = MaxPool<kernel_shape=[3,3], dilations=[2,2]>(x)",
        "",
        ReasonCode.ATTRIBUTE,
        "dilations is [2, 2]",
        "",
    ),
    "scatter mul": (
        "float[4] x, float[2] u",
        "float[4] y",
        'y = ScatterND<reduction="mul">(x, i, u)',
        "int64[2,1] i = {0, 1}",
        ReasonCode.ATTRIBUTE,
        "none or add",
        "",
    ),
    "reverse cumsum": (
        X,
        Y,
        "y = CumSum<reverse=1>(x, a)",
        "int64 a = {0}",
        ReasonCode.ATTRIBUTE,
        "reverse is 1",
        "",
    ),
    "pool indices": (
        "float[1,1,4,4] x",
        "float[1,1,2,2] y, int64[1,1,2,2] i",
        "y, i = MaxPool<kernel_shape=[3,3]>(x)",
        "",
        ReasonCode.LIMIT,
        "output Indices",
        "",
    ),
    "pool 3d": (
        "float[1,1,4,4,4] x",
        "float[1,1,2,2,2] y",
        "y = MaxPool<kernel_shape=[3,3,3]>(x)",
        "",
        ReasonCode.RANK,
        "input X has 5 dimensions; sn40l supports 3 to 4",
        "",
    ),
    "transposed 1d": (
        "float[1,1,4] x",
        "float[1,1,4] y",
        "y = ConvTranspose(x, w)",
        "float[1,1,1] w = {1}",
        ReasonCode.RANK,
        "supports 4",
        "",
    ),
    "backward slice": (
        X,
        Y,
        "y = Slice(x, a, b, c, d)",
        "int64[1] a={-1}, int64[1] b={-9}, int64[1] c={1}, int64[1] d={-1}",
        ReasonCode.LIMIT,
        "walks backwards",
        "",
    ),
    "topk of rows": (
        "float[2,9] x",
        "float[2,3] y, int64[2,3] i",
        "y, i = TopK(x, k)",
        "int64[1] k = {3}",
        ReasonCode.LIMIT,
        "searches 2 rows",
        "",
    ),
    "topk of columns": (
        "float[1,9] x",
        "float[1,9] y, int64[1,9] i",
        "y, i = TopK<axis=0>(x, k)",
        "int64[1] k = {1}",
        ReasonCode.LIMIT,
        "searches 9 rows",
        "",
    ),
    "training dropout": (
        X,
        Y,
        "y = Dropout(x, r, t)",
        "float r = {0.5}, bool t = {1}",
        ReasonCode.LIMIT,
        "random numbers",
        "",
    ),
}


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

    assert reason(target, node).hint == "--dim batch=8 --dim seq=8"


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
    assert row.with_status(Status.FULL) == ("bfloat16",)
    assert row.with_status(Status.ASSUMED) == ("float32",)
