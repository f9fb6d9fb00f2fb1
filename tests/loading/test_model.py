"""Models come in whole, checked and without a weight being read."""

from __future__ import annotations

import gc
import hashlib
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from onnx import TensorProto, helper

from samba_onnx.errors import InvalidModelError, ModelFileError, UsageError
from samba_onnx.loading import load_model
from samba_onnx.loading.lifting import LIFT_BYTES
from samba_onnx.passes.rewrites.interface import dimensions
from tests.backend_cases import BackendCase, all_cases, disk_cases
from tests.safety.hostile_external import external
from tests.safety.small_models import model, node, relu, value, weight, with_weight

RANDOM = np.random.default_rng(0)
LARGE = (LIFT_BYTES // 4) + 1


def _tensors(loaded: ir.Model) -> dict[str, np.ndarray]:
    """Return all initializers and tensors in attributes."""
    found: dict[str, np.ndarray] = {}
    outer = [loaded.graph, *(function.graph for function in loaded.functions.values())]
    for graph in [graph for each in outer for graph in (each, *each.subgraphs())]:
        for name, initializer in graph.initializers.items():
            assert initializer.const_value is not None
            found[name] = initializer.const_value.numpy()
        for each in graph:
            for key, attribute in each.attributes.items():
                if attribute.type == ir.AttributeType.TENSOR:
                    found[f"{each.name}.{key}"] = attribute.as_tensor().numpy()
    return found


def test_the_summary_says_where_it_came_from(tmp_path: Path) -> None:
    proto = relu()
    proto.producer_name, proto.producer_version = "maker", "1.2"
    onnx.save(proto, tmp_path / "small.onnx")
    loaded = load_model(str(tmp_path / "small.onnx"))
    assert loaded.path == tmp_path / "small.onnx"
    assert loaded.summary.name == "small.onnx"
    assert loaded.summary.producer == "maker 1.2"
    assert (loaded.summary.opset, loaded.summary.nodes) == (21, 1)


def test_digests_are_those_of_whole_files(tmp_path: Path) -> None:
    content_of_w = np.full((2, 3), 0.5, np.float32)
    proto = with_weight(onnx.numpy_helper.from_array(content_of_w, "w"))
    path = tmp_path / "m.onnx"
    onnx.save(proto, path, save_as_external_data=True, location="w.bin", size_threshold=0)
    loaded = load_model(path)
    contents = {name: (tmp_path / name).read_bytes() for name in ("m.onnx", "w.bin")}
    (tmp_path / "w.bin").unlink()  # what was opened counts, not what is there later
    files = loaded.digests()
    assert [(file.name, file.bytes, file.sha256) for file in files] == [
        (name, len(content), hashlib.sha256(content).hexdigest())
        for name, content in contents.items()
    ]
    assert load_model(with_weight(weight())).digests() == ()


def test_a_model_in_memory_is_loaded_and_not_changed() -> None:
    proto = with_weight(weight())
    before = proto.SerializeToString(deterministic=True)
    loaded = load_model(proto)
    assert loaded.path is None
    assert loaded.summary.name == "main"
    np.testing.assert_array_equal(_tensors(loaded.model)["w"], np.full((2, 3), 0.5))
    assert proto.SerializeToString(deterministic=True) == before


def test_large_weights_are_left_in_the_file_wherever_they_are(tmp_path: Path) -> None:
    arrays = {
        name: RANDOM.standard_normal(LARGE).astype(np.float32) for name in ("w", "c", "b", "f")
    }
    tensors = {name: onnx.numpy_helper.from_array(array, name) for name, array in arrays.items()}
    inner = helper.make_graph(
        [node("Add", ["x", "b"], ["t"])], "branch", [], [value("t", None)], [tensors["b"]]
    )
    body = helper.make_node("Constant", [], ["k"], value=tensors["f"], name="in_function")
    function = helper.make_function(
        "own",
        "F",
        ["i"],
        ["o"],
        [body, node("Add", ["i", "k"], ["o"])],
        [helper.make_opsetid("", 21)],
    )
    proto = model(
        [
            node("Constant", [], ["c"], value=tensors["c"], name="constant"),
            node("If", ["p"], ["d"], then_branch=inner, else_branch=inner),
            helper.make_node("F", ["d"], ["e"], domain="own"),
            node("Sum", ["e", "c", "w"], ["y"]),
        ],
        inputs=[value("x", [LARGE]), value("p", [], TensorProto.BOOL)],
        initializers=[tensors["w"]],
        functions=[function],
        domains=["own"],
    )
    onnx.save(proto, tmp_path / "m.onnx")
    loaded = load_model(tmp_path / "m.onnx").model
    found = _tensors(loaded)
    for name in ("w", "b"):
        np.testing.assert_array_equal(found[name], arrays[name])
        assert not found[name].flags.owndata
    np.testing.assert_array_equal(found["constant.value"], arrays["c"])
    np.testing.assert_array_equal(found["in_function.value"], arrays["f"])
    # What remains is the same model: only the places of the weights differ.
    written = ir.to_proto(loaded)
    assert [n.op_type for n in written.graph.node] == [n.op_type for n in proto.graph.node]


def test_every_data_type_survives_inside_and_outside_of_the_file(tmp_path: Path) -> None:
    kinds = sorted(set(TensorProto.DataType.values()) - {TensorProto.UNDEFINED, TensorProto.STRING})
    tensors = []
    for kind in kinds:
        values = RANDOM.integers(0, 2, 8 * LARGE).tolist()
        array = onnx.numpy_helper.to_array(helper.make_tensor("t", kind, [len(values)], values))
        tensors.append(onnx.numpy_helper.from_array(array, f"w{kind}"))
    nodes = [node("Identity", [t.name], [f"y{t.name}"]) for t in tensors]
    outputs = [value(f"y{t.name}", None, t.data_type) for t in tensors]
    opset = onnx.defs.onnx_opset_version()
    proto = model(nodes, inputs=[], outputs=outputs, initializers=tensors, opset=opset)
    expected = {t.name: onnx.numpy_helper.to_array(t) for t in tensors}
    onnx.save(proto, tmp_path / "inside.onnx")
    onnx.save(proto, tmp_path / "outside.onnx", save_as_external_data=True, location="w.bin")
    for name in ("inside.onnx", "outside.onnx"):
        found = _tensors(load_model(tmp_path / name).model)
        for key, array in expected.items():
            assert found[key].dtype == array.dtype
            np.testing.assert_array_equal(found[key], array)


def test_external_data_cannot_be_redirected_after_loading(tmp_path: Path) -> None:
    data = np.arange(6, dtype=np.float32)
    (tmp_path / "w.bin").write_bytes(data.tobytes())
    onnx.save(external("w.bin"), tmp_path / "m.onnx")
    loaded = load_model(tmp_path / "m.onnx").model
    (tmp_path / "w.bin").unlink()
    (tmp_path / "w.bin").symlink_to("/etc/passwd")
    np.testing.assert_array_equal(_tensors(loaded)["w"].reshape(-1), data)


def test_external_data_of_a_giant_model_is_not_read(tmp_path: Path) -> None:
    """Three gigabytes of holes: reading them would take seconds and memory, mapping takes none."""
    rows = 3 << 18
    with (tmp_path / "w.bin").open("wb") as file:
        file.truncate(rows * 4096)
    tensor = TensorProto(name="w", dims=[rows, 1024], data_type=TensorProto.FLOAT)
    tensor.data_location = TensorProto.EXTERNAL
    tensor.external_data.add(key="location", value="w.bin")
    proto = model(
        [node("MatMul", ["w", "x"], ["y"])], inputs=[value("x", [1024, 1])], initializers=[tensor]
    )
    onnx.save(proto, tmp_path / "m.onnx")
    before = _resident()
    weights = load_model(tmp_path / "m.onnx").model.graph.initializers["w"].const_value
    assert weights is not None
    assert weights.nbytes == 3 << 30
    assert _resident() - before < 50 << 20


def _resident() -> int:
    with open("/proc/self/statm", encoding="ascii") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def test_descriptors_are_closed(tmp_path: Path) -> None:
    (tmp_path / "w.bin").write_bytes(bytes(24))
    onnx.save(external("w.bin"), tmp_path / "m.onnx")
    gc.collect()
    before = set(os.listdir("/proc/self/fd"))
    loaded = load_model(tmp_path / "m.onnx")
    # A mapping keeps a descriptor of its own on some systems, one per file at most.
    assert len(set(os.listdir("/proc/self/fd")) - before) <= 2
    del loaded
    gc.collect()  # graphs and their values refer to each other
    assert set(os.listdir("/proc/self/fd")) == before


def test_nodes_come_out_sorted() -> None:
    late = [
        node("Relu", ["b"], ["y"], name="3"),
        node("Relu", ["a"], ["b"], name="2"),
        node("Relu", ["x"], ["a"], name="1"),
    ]
    assert [n.name for n in load_model(model(late)).model.graph] == ["1", "2", "3"]


def test_left_out_inputs_at_the_end_are_dropped_down_to_the_fewest() -> None:
    body = helper.make_graph(
        [node("Identity", ["k"], ["k2"]), node("Identity", ["i"], ["i2"])],
        "body",
        [value("i", [], TensorProto.INT64), value("k", [], TensorProto.BOOL)],
        [value("k2", [], TensorProto.BOOL), value("i2", [], TensorProto.INT64)],
    )
    proto = model(
        [
            node("DFT", ["x", "", ""], ["a"]),
            node("Clip", ["a", "", "x"], ["y"]),
            node("Loop", ["", ""], [], body=body),
        ]
    )
    proto.graph.node[2].output.append("z")
    counts = [len(n.inputs) for n in load_model(proto).model.graph]
    assert counts == [1, 3, 2]


def test_sparse_constants_become_dense() -> None:
    def sparse(name: str) -> onnx.SparseTensorProto:
        return helper.make_sparse_tensor(
            helper.make_tensor(name, TensorProto.FLOAT, [2], [5.0, 7.0]),
            helper.make_tensor("i", TensorProto.INT64, [2, 2], [0, 1, 1, 2]),
            [2, 3],
        )

    proto = model(
        [
            node("Constant", [], ["c"], sparse_value=sparse("v"), name="constant"),
            node("Sum", ["x", "w", "c"], ["y"]),
        ]
    )
    proto.graph.sparse_initializer.append(sparse("w"))
    before = proto.SerializeToString(deterministic=True)
    found = _tensors(load_model(proto).model)
    for name in ("w", "constant.value"):
        np.testing.assert_array_equal(found[name], [[0, 5, 0], [0, 0, 7]])
    assert proto.SerializeToString(deterministic=True) == before


def test_dimensions_of_minus_one_become_unknown() -> None:
    loaded = load_model(model([node("Relu", ["x"], ["y"])], inputs=[value("x", [-1, 3])])).model
    shape = loaded.graph.inputs[0].shape
    assert shape is not None
    assert not isinstance(shape[0], int)
    assert shape[1] == 3


@pytest.mark.parametrize(
    "sign", ["?", "", " ", "-1", "*", "...", "None", "null", "unknown", "NaN", "12"]
)
def test_a_placeholder_is_no_name(sign: str) -> None:
    """Two dimensions of one name are of one size; two that are not known need not be."""
    inputs = [value("x", [sign, sign]), value("z", [sign, 3])]
    proto = model([node("Relu", ["x"], ["y"])], inputs=inputs)
    before = proto.SerializeToString(deterministic=True)
    loaded = load_model(proto).model
    dims = [dim for each in loaded.graph.inputs for dim in dimensions(each.shape) or ()]
    assert dims == [None, None, None, 3]
    assert proto.SerializeToString(deterministic=True) == before


@pytest.mark.parametrize(
    "name", ["n", "batch_size", "unk__7", "2*s0", "dynamic", "größe", "s-1", "anything"]
)
def test_a_name_is_one(name: str) -> None:
    proto = model([node("Relu", ["x"], ["y"])], inputs=[value("x", [name, 3])])
    assert dimensions(load_model(proto).model.graph.inputs[0].shape) == (name, 3)


def test_what_the_ir_has_no_form_for_is_refused() -> None:
    proto = model([node("Relu", ["x"], ["y"])])
    proto.graph.value_info.add(name="y").type.sequence_type.SetInParent()
    with pytest.raises(InvalidModelError, match=r"its graph is malformed \(.+\)$"):
        load_model(proto)


@pytest.mark.parametrize("kind", ["sequence_type", "optional_type", "tensor_type", "opaque_type"])
def test_an_input_without_a_whole_type_is_refused(kind: str) -> None:
    proto = model([node("Relu", ["x"], ["y"])])
    declared = proto.graph.input[0].type
    if kind not in declared.DESCRIPTOR.fields_by_name:
        pytest.skip("the installed onnx does not have it")
    getattr(declared, kind).SetInParent()
    if kind == "tensor_type":
        declared.tensor_type.elem_type = 0
    with pytest.raises(InvalidModelError, match=r"input 'x' has no type"):
        load_model(proto)


def test_external_data_needs_a_path() -> None:
    with pytest.raises(ModelFileError, match="give the model's path"):
        load_model(external("w.bin"))


def test_maps_are_refused_with_the_remedy() -> None:
    proto = model([node("Relu", ["x"], ["y"])])
    proto.graph.output[0].type.map_type.key_type = TensorProto.INT64
    proto.graph.output[0].type.map_type.value_type.tensor_type.elem_type = TensorProto.FLOAT
    with pytest.raises(InvalidModelError, match="zipmap"):
        load_model(proto)


@pytest.mark.parametrize("source", [None, 3, b"model.onnx", ["model.onnx"]])
def test_only_paths_and_models_are_taken(source: object) -> None:
    with pytest.raises(UsageError, match="expected a path or an"):
        load_model(source)  # type: ignore[arg-type]


@pytest.mark.exhaustive
@pytest.mark.parametrize("cases", [disk_cases, all_cases])
def test_no_backend_case_is_refused(
    cases: Callable[[], Iterator[BackendCase]],
) -> None:
    """Every model of onnx's own suite loads, and the IR has as many nodes unless it is converted."""
    refused = []
    for case in cases():
        try:
            loaded = load_model(case.model)
        except InvalidModelError as error:
            refused.append((case.name, case.opset, str(error)))
        else:
            nodes = len(list(loaded.model.graph))
            assert loaded.summary.nodes == nodes or (case.is_old and nodes), case.name
    assert refused == []
