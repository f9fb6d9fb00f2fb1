"""Models of operator sets 1 to 6 compute what these said, and what cannot be converted says so."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
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


@pytest.mark.quick(every=3)
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


@pytest.mark.slow
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
