"""Shapes that a model states wrongly: onnxruntime warns and computes what there is, and so does a PEF."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
import pytest

import samba_onnx
from samba_onnx.passes.rewrites.correct_shapes import CorrectShapesPass
from samba_onnx.passes.rewrites.infer_shapes import InferShapesPass
from samba_onnx.passes.rewrites.interface import dimensions
from tests.backend_cases import run_onnxruntime
from tests.passes.rewrites.applying import numbers, parse

HEADER = '<ir_version: 8, opset_import: ["": 17]>\n'

WRONG: dict[str, tuple[str, tuple[int, ...]]] = {
    "size": ("(float[2,3] x) => (float[2,4] y) { y = Relu(x) }", (2, 3)),
    "rank": ("(float[2,3] x) => (float[6] y) { y = Relu(x) }", (2, 3)),
    "inner size": ("(float[2,3] x) => (float[a,b] y) <float[7,3] i> { i = Neg(x)\n y = Relu(i) }", (2, 3)),
    "both": ("(float[2,3] x) => (float[9,9] y) <float[7,3] i> { i = Neg(x)\n y = Relu(i) }", (2, 3)),
    "known late": ("(float[2,3] x) => (float[6] y) <int64[1] one = {1}> { s = Shape(x)\n t = Mul(s, one)\n z = NonZero(x)\n y = Reshape(x, t) }", (2, 3)),
    "one of two": ("(float[2,3] x) => (float[3,b] y) <float[2,4] i> { i = Neg(x)\n y = Transpose(i) }", (3, 2)),
}  # fmt: skip


@pytest.mark.parametrize("name", WRONG)
def test_a_pef_computes_what_onnxruntime_does(name: str, tmp_path: Path) -> None:
    text, shape = WRONG[name]
    model, x = onnx.parser.parse_model(f"{HEADER}g {text}"), numbers(2, 3)
    (expected,) = run_onnxruntime(model.SerializeToString(), [x])
    assert expected.shape == shape
    with (
        samba_onnx.convert(model, tmp_path / "m.pef") as pef,
        samba_onnx.Device(pef, threads=1) as device,
    ):
        (actual,) = device.run({"x": x}).values()
        notes = [note for note in pef.manifest.notes if "is declared as" in note]
        assert pef.manifest.reference is not None
    np.testing.assert_array_equal(actual, expected)
    assert notes or name == "one of two"
    assert all("output 'y'" in note and "as in onnxruntime" in note for note in notes)


def corrected(text: str) -> tuple[ir.Model, CorrectShapesPass, bool]:
    """Infer and correct."""
    model = parse(f"g {text}")
    InferShapesPass()(model)
    rewrite = CorrectShapesPass()
    return model, rewrite, rewrite(model).modified


@pytest.mark.parametrize(
    "text",
    [
        "(float[2,3] x) => (float[2,3] y) { y = Relu(x) }",
        "(float[2,3] x) => (float[m,n] y) { y = Relu(x) }",
        "(float[m,3] x) => (float[4,3] y) { y = Relu(x) }",  # what is not known may be so
        "(float[2,3] x) => (int64[2,5] y) { y = NonZero(x) }",
    ],
)
def test_what_does_not_contradict_stays(text: str) -> None:
    model, rewrite, modified = corrected(text)
    stated = dimensions(model.graph.outputs[0].shape)
    assert not modified
    assert not rewrite.notes
    assert stated == dimensions(parse(f"g {text}").graph.outputs[0].shape) or "m" in text


def test_names_stay_beside_corrected_sizes() -> None:
    model, rewrite, modified = corrected("(float[m,3] x) => (float[m,4] y) { y = Relu(x) }")
    assert modified
    assert dimensions(model.graph.outputs[0].shape) == ("m", 3)
    assert rewrite.notes == [
        "output 'y' is declared as [m, 4], but the model computes [m, 3], which it has in the PEF, as in onnxruntime"
    ]


def test_inner_values_are_corrected_without_a_word() -> None:
    text = "(float[2,3] x) => (float[2,3] y) <float[5,5] i> { i = Neg(x)\n y = Relu(i) }"
    model, rewrite, modified = corrected(text)
    assert modified
    assert dimensions(model.graph[0].outputs[0].shape) == (2, 3)
    assert not rewrite.notes
