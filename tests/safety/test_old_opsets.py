"""Models of operator sets 1 to 6 compute what these said, and what cannot be converted says so."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest

import samba_onnx
from samba_onnx.errors import InvalidModelError
from samba_onnx.facts.versions import OLDEST_OPSET
from samba_onnx.loading import load_model
from samba_onnx.safety.old_opsets import convert_file, converted, default_opset
from tests.rows import others_slow
from tests.versions import is_older

X = np.linspace(-2, 3, 24, dtype=np.float32).reshape(2, 3, 4)
S = np.array([1, 2, 4], np.float32)
W = np.linspace(-1, 1, 2 * 3 * 9, dtype=np.float32).reshape(2, 3, 3, 3)
CASES: dict[str, tuple[int, str, dict[str, Any], Any]] = {
    "Add along an axis": (6, "y = Add<axis=1,broadcast=1>(x, s)", {"s": S}, X + S[:, None]),
    "Sub along two axes": (
        *(6, "y = Sub<axis=0,broadcast=1>(x, s)", {"s": X[:, :, 0]}),
        X - X[:, :, :1],
    ),
    "Div along a negative axis": (
        *(6, "y = Div<axis=-2,broadcast=1>(x, s)", {"s": S}),
        X / S[:, None],
    ),
    "Mul along the last axes": (
        *(6, "y = Mul<broadcast=1>(x, s)", {"s": np.arange(4, dtype=np.float32)}),
        X * np.arange(4, dtype=np.float32),
    ),
    "PRelu per channel": (6, "y = PRelu(x, s)", {"s": S}, np.where(X < 0, S[:, None] * X, X)),
    "PRelu with one slope": (
        *(6, "y = PRelu(x, s)", {"s": S[1:2]}),
        np.where(X < 0, 2 * X, X),
    ),
    "Dropout that is off": (6, "y = Dropout<is_test=1,ratio=0.5>(x)", {}, X),
    "Reshape by an attribute": (1, "y = Reshape<shape=[6,4]>(x)", {}, X.reshape(6, 4)),
    "Concat along axis 1": (1, "y = Concat(x, x)", {}, np.concatenate([X, X], 1)),
    "Relu of version 1": (1, "y = Relu<consumed_inputs=[0]>(x)", {}, np.maximum(X, 0)),
    "Sum of version 1": (1, "y = Sum(x, x, x)", {}, 3 * X),
    "Max of version 6": (6, "y = Max(x, x)", {}, X),
    "Softmax of version 1": (
        *(1, "y = Softmax<axis=2>(x)", {}),
        np.exp(X) / np.exp(X).sum(2, keepdims=True),
    ),
}
"""Opset, nodes, weights, and what numpy makes of ``X``."""
QUICK = ("Add along an axis", "Reshape by an attribute", "Softmax of version 1")
"""Each row starts three processes."""


def model(
    opset: int, body: str, weights: dict[str, Any], shape: Any = (2, 3, 4)
) -> onnx.ModelProto:
    """Return a model as it was written then: of IR version 3, with weights among its inputs."""
    sizes = ",".join(map(str, shape))
    made = onnx.parser.parse_model(
        f'<ir_version: 3, opset_import: ["": {opset}]> g (float[{sizes}] x) => (y) {{ {body} }}'
    )
    made.graph.output[0].type.tensor_type.elem_type = onnx.TensorProto.FLOAT
    for name, array in weights.items():
        made.graph.initializer.append(onnx.numpy_helper.from_array(array, name))
        made.graph.input.append(
            onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, array.shape)
        )
    return made


@pytest.mark.parametrize("name", others_slow(CASES, QUICK))
def test_old_models_compute_what_they_said(name: str, tmp_path: Path) -> None:
    opset, body, weights, expected = CASES[name]
    if "Reshape" in name and is_older("onnx", "1.21"):
        pytest.skip("the converter of onnx before 1.21 writes a Constant of a wrong shape")
    given = model(opset, body, weights)
    before = given.SerializeToString()
    with samba_onnx.convert(given, tmp_path / "m.pef") as pef:
        assert pef.manifest.source.opset == opset
        assert pef.manifest.graphs[0].inputs == ("x",)
        with samba_onnx.Device(pef, threads=1) as device:
            # Exponentials of float32, summed in another order.
            np.testing.assert_allclose(device.run({"x": X})["y"], expected, rtol=1e-6, atol=1e-7)
        assert samba_onnx.self_test(pef).passed
        assert samba_onnx.verify(given, pef).passed
    assert given.SerializeToString() == before


def test_large_weights_stay_in_their_file(tmp_path: Path) -> None:
    weight = np.random.default_rng(0).standard_normal((64, 3, 9, 9)).astype(np.float32)
    given = model(6, "y = Conv(x, w)", {"w": weight}, (1, 3, 9, 9))
    onnx.save(given, tmp_path / "m.onnx")
    loaded = load_model(tmp_path / "m.onnx")
    (stored,) = loaded.model.graph.initializers.values()
    assert hasattr(stored.const_value, "region")
    source = loaded.source(tmp_path / "m.onnx")
    assert isinstance(source, onnx.ModelProto)
    assert default_opset(source) == OLDEST_OPSET
    np.testing.assert_array_equal(onnx.numpy_helper.to_array(source.graph.initializer[0]), weight)
    with samba_onnx.convert(tmp_path / "m.onnx") as pef:
        assert samba_onnx.verify(tmp_path / "m.onnx", pef).passed


LARGE = np.random.default_rng(1).standard_normal((24, 512)).astype(np.float32)
"""48 KB: more than stays inline in a file that is loaded, and than the converter sees."""


def _constant(inside: str) -> onnx.ModelProto:
    """Return a model of operator set 6 with a large tensor in an attribute."""
    stored = onnx.helper.make_node(
        "Constant", [], ["w"], value=onnx.numpy_helper.from_array(LARGE, inside and "content_0")
    )
    product = onnx.helper.make_node("MatMul", ["flat", "w"], ["p"])
    added = onnx.helper.make_node("Add", ["p", "s"], ["y"], axis=1, broadcast=1)
    given = model(6, "y = Reshape(x, s)", {"s": LARGE[0]})
    shape = onnx.helper.make_node(
        "Constant", [], ["shape"], value=onnx.numpy_helper.from_array(np.array([1, 24]), "shape")
    )
    flat = onnx.helper.make_node("Reshape", ["x", "shape"], ["flat"])
    nodes = [stored, product, added]
    if inside == "branch":
        branch = onnx.helper.make_graph(
            nodes[:2], "b", [], [onnx.helper.make_tensor_value_info("p", onnx.TensorProto.FLOAT, [1, 512])]
        )  # fmt: skip
        condition = onnx.helper.make_node(
            "Constant", [], ["c"], value=onnx.numpy_helper.from_array(np.array(True), "c")
        )
        choice = onnx.helper.make_node("If", ["c"], ["p"], then_branch=branch, else_branch=branch)
        nodes = [condition, choice, added]
    del given.graph.node[:]
    given.graph.node.extend([shape, flat, *nodes])
    return given


@pytest.mark.parametrize("inside", ["", "graph", "branch"])
@pytest.mark.parametrize("from_file", [False, True], ids=["memory", "file"])
def test_large_constants_keep_their_content(inside: str, from_file: bool, tmp_path: Path) -> None:
    given = _constant(inside)
    before = given.SerializeToString()
    path = tmp_path / "m.onnx"
    onnx.save(given, path)
    loaded = load_model(path if from_file else given)
    source = loaded.source(path if from_file else given)
    assert isinstance(source, onnx.ModelProto)
    session = onnxruntime.InferenceSession(source.SerializeToString())
    expected = X.reshape(1, 24) @ LARGE + LARGE[0]
    # Sums of 24 products of numbers of order one, in another order.
    np.testing.assert_allclose(session.run(None, {"x": X})[0], expected, rtol=1e-5, atol=1e-5)
    with samba_onnx.convert(path if from_file else given, tmp_path / "m.pef") as pef:
        assert samba_onnx.verify(path if from_file else given, pef).passed
    assert given.SerializeToString() == before


def test_what_cannot_be_converted_names_the_version_and_the_remedy() -> None:
    given = model(6, "y = Add<broadcast=1>(x, s)", {"s": S})  # three along an axis of four
    with pytest.raises(InvalidModelError, match=r"version 6 of .*ai\.onnx.*for opset 7 or newer"):
        converted(given)


def test_the_child_writes_the_converted_model(tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    onnx.save(model(6, "y = PRelu(x, s)", {"s": S}), path)
    assert convert_file(str(path)) == {}
    made = onnx.load(path)
    assert default_opset(made) == OLDEST_OPSET
    assert [node.op_type for node in made.graph.node] == ["Unsqueeze", "PRelu"]
