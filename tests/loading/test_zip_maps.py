"""Classifiers whose scores are maps have tensors of the same scores."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import helper

import samba_onnx
from samba_onnx.comparing.verification import verify
from samba_onnx.errors import InvalidModelError
from samba_onnx.loading import load_model
from samba_onnx.runtime.device import Device
from samba_onnx.safety.all_tensors import all_tensors

X = np.random.default_rng(0).normal(size=(3, 2)).astype(np.float32)


def classifier(**labels: Any) -> onnx.ModelProto:
    """Return a classifier of three classes as skl2onnx writes it."""
    integers = helper.make_node(
        "LinearClassifier",
        ["x"],
        ["label", "scores"],
        domain="ai.onnx.ml",
        coefficients=[0.1, -0.4, 0.9, 0.3, -0.7, 0.2],
        intercepts=[0.0, 0.1, -0.1],
        classlabels_ints=[4, 5, 6],
        post_transform="SOFTMAX",
    )
    maps = helper.make_node(
        "ZipMap", ["scores"], ["output_probability"], domain="ai.onnx.ml", **labels
    )
    key = onnx.TensorProto.INT64 if "classlabels_int64s" in labels else onnx.TensorProto.STRING
    number = helper.make_tensor_type_proto(onnx.TensorProto.FLOAT, [])
    kind = helper.make_sequence_type_proto(helper.make_map_type_proto(key, number))
    graph = helper.make_graph(
        [integers, maps],
        "g",
        [helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, [3, 2])],
        [
            helper.make_tensor_value_info("label", onnx.TensorProto.INT64, [3]),
            helper.make_value_info("output_probability", kind),
        ],
    )
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("ai.onnx.ml", 3)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10)


@pytest.mark.parametrize(
    "labels",
    [{"classlabels_int64s": [4, 5, 6]}, {"classlabels_strings": ["ant", "bee", "cat"]}],
)
def test_columns_are_the_numbers_of_the_maps(labels: dict[str, list[Any]], tmp_path: Path) -> None:
    model = classifier(**labels)
    session = onnxruntime.InferenceSession(model.SerializeToString())
    expected_label, maps = session.run(None, {"x": X})
    path = tmp_path / "m.onnx"
    onnx.save(model, path)
    with samba_onnx.convert(path) as pef, Device(pef) as device:
        outputs = device.run({"x": X})
        assert verify(path, pef).passed
        assert pef.manifest.reference is not None
        (note,) = pef.manifest.notes
    (classes,) = labels.values()
    assert f"classes {', '.join(map(str, classes))}" in note
    expected = [[row[name] for name in classes] for row in maps]
    np.testing.assert_allclose(outputs["output_probability"], expected, rtol=1e-6)
    np.testing.assert_array_equal(outputs["label"], expected_label)


@pytest.mark.parametrize("place", ["constant", "branch", "branch's initializer", "initializer"])
def test_large_tensors_are_inside_of_what_an_engine_runs(place: str, tmp_path: Path) -> None:
    """A model from a file has their content there, wherever it stores them."""
    numbers = np.random.default_rng(1).normal(size=(4096, 2)).astype(np.float32)
    model = classifier(classlabels_int64s=[4, 5, 6])
    stored = onnx.numpy_helper.from_array(numbers, "w")
    constant = helper.make_node("Constant", [], ["w"], value=stored)
    reduce = helper.make_node("ReduceMax", ["w"], ["m"], keepdims=0)
    added = helper.make_node("Add", ["x", "m"], ["moved"])
    nodes, weights = [reduce], [stored]
    if place in ("constant", "branch"):
        nodes, weights = [constant, reduce], []
    if place.startswith("branch"):
        scalar = helper.make_tensor_value_info("m", onnx.TensorProto.FLOAT, [])
        branch = helper.make_graph(nodes, "b", [], [scalar], weights)
        condition = helper.make_node(
            "Constant", [], ["c"], value=onnx.numpy_helper.from_array(np.array(True), "c")
        )
        choice = helper.make_node("If", ["c"], ["m"], then_branch=branch, else_branch=branch)
        nodes, weights = [condition, choice], []
    model.graph.initializer.extend(weights)
    model.graph.node[0].input[0] = "moved"
    rest = list(model.graph.node)
    del model.graph.node[:]
    model.graph.node.extend([*nodes, added, *rest])
    path = tmp_path / "m.onnx"
    onnx.save(model, path)
    source = load_model(path).source(path)
    assert isinstance(source, onnx.ModelProto)
    assert not any(t.external_data for t in all_tensors(source))
    original = onnxruntime.InferenceSession(model.SerializeToString())
    expected_label, maps = original.run(None, {"x": X})
    label, scores = onnxruntime.InferenceSession(source.SerializeToString()).run(None, {"x": X})
    np.testing.assert_array_equal(label, expected_label)
    np.testing.assert_array_equal(scores, [[row[name] for name in (4, 5, 6)] for row in maps])


def test_the_model_of_the_user_stays_as_it_is() -> None:
    model = classifier(classlabels_int64s=[4, 5, 6])
    before = model.SerializeToString(deterministic=True)
    load_model(model)
    assert model.SerializeToString(deterministic=True) == before


def test_a_map_that_something_else_makes_or_reads_is_refused() -> None:
    model = classifier(classlabels_int64s=[4, 5, 6])
    model.graph.node[1].output[0] = "maps"
    copied = helper.make_node("Identity", ["maps"], ["output_probability"])
    model.graph.node.append(copied)
    with pytest.raises(InvalidModelError, match="zipmap"):
        load_model(model)
