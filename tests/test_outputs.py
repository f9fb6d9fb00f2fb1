"""Outputs that no node computes: initializers of any type, inputs, and what both may be."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import TensorProto, helper

import samba_onnx
from samba_onnx.errors import InvalidModelError

X = np.array([[-1, 0, 2], [3, -4, 5]], np.float32)


def model(outputs: str, nodes: str, *initializers: onnx.TensorProto) -> onnx.ModelProto:
    """Return a model with the input x and initializers of any type."""
    made = onnx.parser.parse_model(
        f'<ir_version: 10, opset_import: ["": 21]> g (float[2,3] x) => ({outputs}) {{ {nodes} }}'
    )
    made.graph.initializer.extend(initializers)
    return made


def converted(given: onnx.ModelProto, folder: Path) -> tuple[dict[str, Any], samba_onnx.Pef]:
    """Run a model as a PEF, twice, and compare the ledger with the plan."""
    pef = samba_onnx.convert(given, folder / "m.pef", sample=False, trial=False)
    graph = pef.manifest.graphs[0]
    with pef, samba_onnx.Device(pef, threads=1) as device:
        for run in range(2):
            answer = device.run({"x": X})
            assert tuple(device.ledger.transfers) == (
                graph.load_transfers + graph.run_transfers * (run + 1)
            )
    return answer, pef


WORDS = helper.make_tensor("s", TensorProto.STRING, [2], [b"one", "zw\u00f6lf".encode()])
NUMBERS = helper.make_tensor("w", TensorProto.FLOAT, [3], [1, 2, 3])
LONG = helper.make_tensor("w", TensorProto.INT64, [2000], range(2000))
HALF = helper.make_tensor("w", TensorProto.FLOAT16, [2], [0.5, -2])
TRUTH = helper.make_tensor("w", TensorProto.BOOL, [], [True])
NOTHING = helper.make_tensor("w", TensorProto.FLOAT, [0, 3], [])


@pytest.mark.parametrize(
    ("outputs", "nodes", "initializers"),
    [
        ("string[2] s", "", [WORDS]),
        ("float[2,3] y, string[2] s", "y = Relu(x)", [WORDS]),
        ("string[2] s, string[4] t", "t = Concat<axis=0>(s, s)", [WORDS]),
        ("float[2,3] y, float[3] w", "y = Relu(x)", [NUMBERS]),
        ("float[2,3] y, float[3] w", "y = Add(x, w)", [NUMBERS]),
        ("float[2,3] y, float[3] w", "c = Hardmax(x) y = Add(c, w)", [NUMBERS]),
        ("float[3] w, string[2] s, float[2,3] x", "", [NUMBERS, WORDS]),
        ("int64[2000] w", "", [LONG]),
        ("float16[2] w", "", [HALF]),
        ("bool w", "", [TRUTH]),
        ("float[0,3] w", "", [NOTHING]),
        ("float[2,3] x", "", []),
        ("float[2,3] y, float[2,3] x", "y = Relu(x)", []),
        ("float[2,3] y", "y = Identity(x)", []),
        ("float[2,3] y, float[2,3] z", "y = Relu(x) z = Identity(y)", []),
        ("string[2] s", 's = Constant<value_strings=["a", "b"]>()', []),
    ],
)
def test_outputs_are_those_of_onnxruntime(
    outputs: str, nodes: str, initializers: list[onnx.TensorProto], tmp_path: Path
) -> None:
    given = model(outputs, nodes, *initializers)
    session = ort.InferenceSession(given.SerializeToString())
    names = [output.name for output in session.get_outputs()]
    expected = session.run(names, {"x": X})

    answer, pef = converted(given, tmp_path)

    assert list(answer) == list(pef.manifest.graphs[0].outputs) == names
    for name, value in zip(names, expected, strict=True):
        assert answer[name].dtype == value.dtype
        np.testing.assert_array_equal(answer[name], value)


def test_an_output_that_nothing_computes_is_not_copied(tmp_path: Path) -> None:
    given = model("float[2,3] x, float[3] w, string[2] s", "", NUMBERS, WORDS)
    _, pef = converted(given, tmp_path)
    assert not pef.manifest.sections
    assert not pef.manifest.graphs[0].run_transfers
    assert not pef.manifest.graphs[0].load_transfers


def test_an_output_listed_twice_is_refused(tmp_path: Path) -> None:
    # Outputs are told apart by name, here as in the answer of a run.
    given = model("float[2,3] y, float[2,3] y", "y = Relu(x)")
    with pytest.raises(InvalidModelError, match="output 'y' occurs twice"):
        samba_onnx.convert(given, tmp_path / "m.pef")
