"""What the checks must accept, and where exactly they draw the line."""

from __future__ import annotations

import sys

import onnx
import pytest
from onnx import TensorProto, helper

from samba_onnx.errors import InvalidModelError, ModelLimitError
from samba_onnx.safety.graph_checks import check_model
from samba_onnx.safety.limits import Limits
from tests.safety.hostile_external import external
from tests.safety.small_models import (
    FLOAT,
    INT64,
    branch,
    integers,
    model,
    node,
    relu,
    value,
    weight,
    with_weight,
)


def test_every_operator_set_and_ir_version_in_range_is_accepted() -> None:
    limits = Limits()
    for opset in range(limits.oldest_opset, onnx.defs.onnx_opset_version() + 1):
        proto = relu()
        proto.opset_import[0].version = opset
        check_model(proto)
    for version in range(limits.oldest_ir_version, int(onnx.IR_VERSION) + 1):
        proto = relu()
        proto.ir_version = version
        check_model(proto)


def test_unsorted_nodes_are_accepted() -> None:
    check_model(model([node("Relu", ["a"], ["y"]), node("Relu", ["x"], ["a"])]))


def test_a_branch_may_read_a_value_that_a_later_node_defines() -> None:
    inner = branch([node("Relu", ["late"], ["t"])], "t")
    choice = node("If", ["c"], ["y"], then_branch=inner, else_branch=inner)
    late = node("Relu", ["x"], ["late"])
    condition = value("c", [], TensorProto.BOOL)
    check_model(model([choice, late], inputs=[value("x"), condition]))


def test_names_may_repeat_in_branches() -> None:
    inner = branch([node("Relu", ["x"], ["t"])], "t")
    choice = node("If", ["c"], ["t"], then_branch=inner, else_branch=inner)
    condition = value("c", [], TensorProto.BOOL)
    check_model(model([choice, node("Relu", ["t"], ["y"])], inputs=[value("x"), condition]))


def test_custom_and_retired_operators_are_accepted() -> None:
    check_model(model([helper.make_node("Foo", ["x"], ["y"], domain="a.b", n=0)], domains=["a.b"]))
    check_model(model([node("Affine", ["x"], ["y"], alpha=1.0)]))


def test_a_name_of_the_default_domain_is_as_good_as_none() -> None:
    proto = relu()
    proto.graph.node[0].domain = "ai.onnx"
    check_model(proto)
    proto.opset_import[0].domain = "ai.onnx"
    check_model(proto)


def test_optional_inputs_and_outputs_may_be_left_out() -> None:
    check_model(
        model(
            [node("Clip", ["x", "", "m"], ["y"])],
            initializers=[helper.make_tensor("m", FLOAT, [], [1.0])],
        )
    )


def test_an_initializer_may_be_the_default_of_an_input() -> None:
    inputs = [value("x"), value("w", ["rows", 3])]
    check_model(model([node("Add", ["x", "w"], ["y"])], inputs=inputs, initializers=[weight()]))


def test_dimensions_of_minus_one_are_unknown() -> None:
    check_model(model([node("Relu", ["x"], ["y"])], inputs=[value("x", [-1, 3])]))


def test_harmless_integers_are_accepted() -> None:
    halves = [node("Div", ["x", "two"], ["y"])]
    inputs = [value("x", [2], INT64)]
    check_model(model(halves, inputs=inputs, initializers=[integers("two", [2, -1])]))
    fmod = [node("Mod", ["x", "zero"], ["y"], fmod=1)]
    check_model(model(fmod, inputs=inputs, initializers=[integers("zero", [0])]))
    minus = [node("Div", ["a", "b"], ["y"])]
    constants = [integers("a", [1 - (1 << 63)]), integers("b", [-1])]
    check_model(model(minus, inputs=[], initializers=constants))


def test_a_zero_of_the_graph_around_may_be_shadowed() -> None:
    inner = helper.make_graph(
        [node("Div", ["v", "b"], ["v2"]), node("Identity", ["k"], ["k2"])],
        "body",
        [
            value("i", [], INT64),
            value("k", [], TensorProto.BOOL),
            value("v", [1], INT64),
            value("b", [1], INT64),
        ],
        [value("k2", [], TensorProto.BOOL), value("v2", [1], INT64), value("b", [1], INT64)],
    )
    loop = node("Loop", ["", "c", "v0", "x"], ["v1", "y"], body=inner)
    zero = [integers("b", [0]), integers("v0", [1])]
    inputs = [value("c", [], TensorProto.BOOL), value("x", [1], INT64)]
    check_model(model([loop], inputs=inputs, initializers=zero))


@pytest.mark.parametrize(
    ("kind", "number", "fits"),
    [
        (TensorProto.FLOAT16, 65535, True),
        (TensorProto.FLOAT16, 65536, False),
        (TensorProto.BFLOAT16, -1, False),
        (TensorProto.FLOAT8E4M3FN, 255, True),
        (TensorProto.FLOAT8E4M3FN, 256, False),
        (TensorProto.INT4, 256, False),
        (TensorProto.BOOL, -1, True),
        (TensorProto.BOOL, 256, False),
        (TensorProto.INT8, 300, True),  # wraps around, as in onnxruntime
        (TensorProto.INT32, -(1 << 31), True),
    ],
)
def test_entries_are_the_bits_of_an_element(kind: int, number: int, fits: bool) -> None:
    tensor = TensorProto(name="w", data_type=kind, dims=[1], int32_data=[number])
    proto = model([node("Identity", ["w"], ["y"])], inputs=[], initializers=[tensor])
    if fits:
        check_model(proto)
        return
    with pytest.raises(
        InvalidModelError, match=f"an entry of its int32_data is {number}, expected"
    ):
        check_model(proto)


@pytest.mark.parametrize(
    ("outputs", "attributes", "sizes", "fits"),
    [
        (2, {"num_outputs": 2}, None, True),
        (3, {"num_outputs": 2}, None, False),
        (2, {}, [1, 2], True),
        (3, {}, [1, 2], False),
    ],
)
def test_a_split_has_an_output_for_every_part(
    outputs: int, attributes: dict[str, int], sizes: list[int] | None, fits: bool
) -> None:
    operands = ["x"] if sizes is None else ["x", "s"]
    split = node("Split", operands, [f"y{i}" if i else "y" for i in range(outputs)], **attributes)
    constants = [] if sizes is None else [integers("s", sizes)]
    proto = model([split], initializers=constants)
    proto.opset_import[0].version = 18
    if fits:
        check_model(proto)
        return
    with pytest.raises(InvalidModelError, match="3 outputs for 2 parts"):
        check_model(proto)


def test_all_ways_to_store_a_tensor() -> None:
    for kind in sorted(set(TensorProto.DataType.values()) - {TensorProto.UNDEFINED}):
        values = [b"a"] * 6 if kind == TensorProto.STRING else [0] * 6
        typed = helper.make_tensor("w", kind, [2, 3], values)
        check_model(model([node("Identity", ["w"], ["y"])], inputs=[], initializers=[typed]))
        if kind != TensorProto.STRING:
            array = onnx.numpy_helper.to_array(typed)
            raw = onnx.numpy_helper.from_array(array, "w")
            assert raw.HasField("raw_data")
            check_model(model([node("Identity", ["w"], ["y"])], inputs=[], initializers=[raw]))


def test_an_empty_tensor_needs_no_data() -> None:
    empty = TensorProto(name="w", dims=[0, 3], data_type=FLOAT)
    check_model(model([node("Identity", ["w"], ["y"])], inputs=[], initializers=[empty]))


def test_external_data_is_measured_by_the_callers_files() -> None:
    proto = external("w.bin", offset="8", length="24")
    asked: list[str] = []

    def size(location: str) -> int:
        asked.append(location)
        return 32

    check_model(proto, external_size=size)
    assert asked == ["w.bin"]
    with pytest.raises(InvalidModelError, match=r"ends at byte 32 of 'w.bin', which has 31"):
        check_model(proto, external_size=lambda _: 31)
    with pytest.raises(InvalidModelError, match="cannot be found from here"):
        check_model(proto)


def test_messages_name_the_file_and_the_place() -> None:
    with pytest.raises(InvalidModelError) as caught:
        check_model(model([node("Add", ["x", "z"], ["y"], name="sum")]), name="m.onnx")
    assert str(caught.value) == (
        "m.onnx: node 'sum' (Add) uses value 'z', which nothing in the graph defines"
    )


def test_limits_are_the_callers() -> None:
    wide = with_weight(weight((2, 3)))
    check_model(wide, limits=Limits(tensor_bytes=24))
    with pytest.raises(ModelLimitError, match="takes 24 bytes, at most 23 are safe"):
        check_model(wide, limits=Limits(tensor_bytes=23))
    old = relu()
    old.opset_import[0].version = 6
    check_model(old, limits=Limits(oldest_opset=1))


def test_the_model_is_not_changed() -> None:
    proto = with_weight(weight())
    before = proto.SerializeToString(deterministic=True)
    check_model(proto)
    assert proto.SerializeToString(deterministic=True) == before


def test_work_grows_with_the_size_not_with_its_square() -> None:
    """Ten times the nodes take ten times as many calls; a quadratic step would take a hundred."""

    def calls(count: int) -> int:
        nodes = [node("Relu", [f"v{n}" if n else "x"], [f"v{n + 1}"]) for n in range(count)]
        nodes.reverse()
        proto = model([*nodes, node("Relu", [f"v{count}"], ["y"])])
        made = 0

        def notice(*_: object) -> None:
            nonlocal made
            made += 1

        before = sys.getprofile()
        sys.setprofile(notice)
        try:
            check_model(proto)
        finally:
            sys.setprofile(before)
        return made

    assert calls(5_000) < 12 * calls(500)
