"""The second engine's Scan, against onnxruntime's, in every direction and along every axis."""

from __future__ import annotations

import itertools

import numpy as np
import onnx
import pytest
from onnx import parser

from samba_onnx.errors import ExecutionError
from samba_onnx.runtime.engine.reference.graph import ReferenceGraph
from tests.backend_cases import run_onnxruntime

TEXT = """<ir_version: 10, opset_import: ["" : 21]>
g (float[2,3] s, IN x, float[3] w) => (float[2,3] last, OUT all) {
  last, all = Scan<num_scan_inputs = 1, scan_input_axes = [AXIS_IN], scan_output_axes = [AXIS_OUT],
    scan_input_directions = [WAY_IN], scan_output_directions = [WAY_OUT],
    body = b (float[2,3] h, float[2,3] e) => (float[2,3] t, float[2,3] o) {
      m = Mul(h, w)
      t = Add(m, e)
      o = Neg(t)
    }>(s, x)
}"""
SHAPES = {0: "float[4,2,3]", 1: "float[2,4,3]", 2: "float[2,3,4]", -1: "float[2,3,4]"}


@pytest.mark.parametrize(
    ("axis_in", "axis_out", "way_in", "way_out"),
    list(itertools.product((0, 1, -1), (0, 2, -1), (0, 1), (0, 1))),
)
def test_values_are_read_and_written_as_onnxruntime_does(
    axis_in: int, axis_out: int, way_in: int, way_out: int
) -> None:
    text = TEXT.replace("IN x", f"{SHAPES[axis_in]} x").replace(
        "OUT all", f"{SHAPES[axis_out]} all"
    )
    text = text.replace("AXIS_IN", str(axis_in)).replace("AXIS_OUT", str(axis_out))
    model = parser.parse_model(text.replace("WAY_IN", str(way_in)).replace("WAY_OUT", str(way_out)))
    random = np.random.default_rng(0)
    sizes = [[size.dim_value for size in v.type.tensor_type.shape.dim] for v in model.graph.input]
    inputs = [random.standard_normal(shape).astype(np.float32) for shape in sizes]
    expected = run_onnxruntime(model.SerializeToString(), inputs)
    feed = {value.name: array for value, array in zip(model.graph.input, inputs, strict=True)}
    for old, new in zip(expected, ReferenceGraph(model).run(feed), strict=True):
        # A product and a sum, which the other may compute without rounding in between.
        np.testing.assert_allclose(new, old, rtol=1e-6, atol=1e-6)


def test_no_step_has_no_tensor_of_all_steps() -> None:
    body = "body = b (float[1] h, float[1] e) => (float[1] t, float[1] o) { t = Add(h, e)\n o = Neg(t) }"
    model = onnx.parser.parse_model(
        '<ir_version: 10, opset_import: ["" : 21]>\n'
        f"g (float[1] s, float[n,1] x) => (float[1] y, float[n,1] z) {{ y, z = Scan<num_scan_inputs = 1, {body}>(s, x) }}"
    )
    feed = {"s": np.zeros(1, np.float32), "x": np.zeros((0, 1), np.float32)}
    with pytest.raises(ExecutionError, match="without steps"):
        ReferenceGraph(model).run(feed)
