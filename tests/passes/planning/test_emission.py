"""Stages as models of their own: what stands inside, what is external, and that onnxruntime runs them."""

from __future__ import annotations

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from onnx.external_data_helper import ExternalDataInfo

from samba_onnx.errors import InternalError
from samba_onnx.facts.versions import NEWEST_IR_VERSION
from samba_onnx.passes.planning.emission import (
    INLINE_LIMIT,
    WEIGHTS_MEMBER,
    emit_stage,
    index_values,
    is_stored,
)
from samba_onnx.pef.manifest import Section, Stored

BIG = np.arange(300, dtype=np.float32).reshape(2, 150)
SMALL = np.array([2, 3], np.int64)


def model() -> ir.Model:
    nodes = [
        onnx.helper.make_node("Add", ["x", "big"], ["s"], "add"),
        onnx.helper.make_node("Relu", ["s"], ["y"], "relu"),
    ]
    graph = onnx.helper.make_graph(
        nodes,
        "whole",
        [onnx.helper.make_tensor_value_info("x", 1, [2, 150])],
        [onnx.helper.make_tensor_value_info("y", 1, [2, 150])],
        [onnx.numpy_helper.from_array(BIG, "big"), onnx.numpy_helper.from_array(SMALL, "small")],
        value_info=[onnx.helper.make_tensor_value_info("s", 1, [2, 150])],
    )
    opsets = [onnx.helper.make_opsetid("", 21), onnx.helper.make_opsetid("com.example", 2)]
    proto = onnx.helper.make_model(graph, opset_imports=opsets, ir_version=NEWEST_IR_VERSION + 1)
    return ir.from_proto(proto)


def stage(**fields: object) -> Section:
    base = {
        "id": 3, "name": "sec", "graph": "whole", "member": "stages/003_FWD.onnx",
        "inputs": ("x",), "outputs": ("y",), "weights": ("big", "small"), "operators": {},
    }  # fmt: skip
    return Section(**{**base, **fields})  # type: ignore[arg-type]


def emitted(stored: dict[str, Stored], **fields: object) -> onnx.ModelProto:
    whole = model()
    return emit_stage(whole, index_values(whole.graph), list(whole.graph), stage(**fields), stored)


def test_a_stage_is_a_model_with_its_interface_and_types() -> None:
    proto = emitted({})
    graph = proto.graph
    assert graph.name == "sec"
    assert [i.name for i in graph.input] == ["x"]
    assert [o.name for o in graph.output] == ["y"]
    assert [node.name for node in graph.node] == ["add", "relu"]
    assert [info.name for info in graph.value_info] == ["s"]
    assert [d.dim_value for d in graph.value_info[0].type.tensor_type.shape.dim] == [2, 150]
    assert [(o.domain, o.version) for o in proto.opset_import] == [("", 21), ("com.example", 2)]
    assert proto.ir_version == NEWEST_IR_VERSION
    assert proto.producer_name == "samba-onnx"


def test_inline_initializers_hold_their_values_under_their_own_names() -> None:
    tensors = {tensor.name: tensor for tensor in emitted({}).graph.initializer}
    assert np.array_equal(onnx.numpy_helper.to_array(tensors["big"]), BIG)
    assert np.array_equal(onnx.numpy_helper.to_array(tensors["small"]), SMALL)
    assert tensors["small"].data_type == onnx.TensorProto.INT64


def test_a_stored_initializer_is_external_data_of_the_weights_member() -> None:
    tensors = {t.name: t for t in emitted({"big": Stored(64, 1200)}).graph.initializer}
    big = tensors["big"]
    assert big.data_location == onnx.TensorProto.EXTERNAL
    assert (big.data_type, tuple(big.dims)) == (onnx.TensorProto.FLOAT, (2, 150))
    assert not big.raw_data
    info = ExternalDataInfo(big)
    assert (info.location, info.offset, info.length) == (WEIGHTS_MEMBER, 64, 1200)
    assert {entry.key for entry in big.external_data} == {"location", "offset", "length"}
    assert tensors["small"].data_location != onnx.TensorProto.EXTERNAL


def test_inline_values_do_not_refer_to_the_file_of_the_original(tmp_path: object) -> None:
    path = f"{tmp_path}/m.onnx"
    whole = ir.to_proto(model())
    onnx.save_model(whole, path, save_as_external_data=True, location="m.data", size_threshold=0)
    loaded = ir.load(path)
    proto = emit_stage(loaded, index_values(loaded.graph), list(loaded.graph), stage(), {})
    for tensor in proto.graph.initializer:
        assert tensor.data_location != onnx.TensorProto.EXTERNAL
        assert not tensor.external_data


@pytest.mark.parametrize("dtype", [onnx.TensorProto.BFLOAT16, onnx.TensorProto.FLOAT8E4M3FN])
def test_types_that_numpy_lacks_stay_what_they_are(dtype: int) -> None:
    whole = model()
    narrow = onnx.helper.make_tensor("narrow", dtype, [2], [1.0, 2.0])
    value = ir.Value(name="narrow", const_value=ir.from_proto(narrow))
    whole.graph.register_initializer(value)
    record = stage(weights=("narrow",))
    proto = emit_stage(whole, index_values(whole.graph), list(whole.graph), record, {})
    assert proto.graph.initializer[0].data_type == dtype


def test_strings_are_written_inline() -> None:
    whole = model()
    tensor = ir.StringTensor(np.array([b"ab", b"c"], object), name="words")
    whole.graph.register_initializer(ir.Value(name="words", const_value=tensor))
    record = stage(weights=("words",))
    proto = emit_stage(whole, index_values(whole.graph), list(whole.graph), record, {})
    assert list(proto.graph.initializer[0].string_data) == [b"ab", b"c"]


@pytest.mark.parametrize(
    ("tensor", "stored"),
    [
        (ir.tensor(np.zeros(INLINE_LIMIT, np.uint8)), False),
        (ir.tensor(np.zeros(INLINE_LIMIT + 1, np.uint8)), True),
        (ir.StringTensor(np.array([b"x"] * 4 * INLINE_LIMIT, object)), False),
    ],
    ids=["at the limit", "beyond it", "strings"],
)
def test_only_what_is_larger_than_the_limit_is_stored(
    tensor: ir.TensorProtocol, stored: bool
) -> None:
    assert is_stored(tensor) is stored


@pytest.mark.parametrize("field", ["inputs", "outputs", "weights"])
def test_a_stage_that_names_what_the_graph_lacks_is_an_internal_error(field: str) -> None:
    with pytest.raises(InternalError, match="'nobody'"):
        emitted({}, **{field: ("nobody",)})


def test_an_initializer_without_content_is_an_internal_error() -> None:
    with pytest.raises(InternalError, match="'x' has no content"):
        emitted({}, weights=("x",))
