"""Scattering onto an output in place: the graph before and after, the numbers, and what stays."""

from __future__ import annotations

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import parser

from samba_onnx.runtime.engine.lowerings.final_scatters import scatter_in_place

HEADER = '<ir_version: 10, opset_import: ["" : 20]>\n'
SCATTER = 'y = ScatterND<reduction="add">(a, i, u)'
INPUTS = "float[4, 3] x, int64[2, 1] i, float[2, 3] u"


def model(outputs: str, body: str, known: str = "<float[4, 3] a>") -> onnx.ModelProto:
    return parser.parse_model(f"{HEADER} g ({INPUTS}) => ({outputs}) {known} {{ {body} }}")


def test_both_values_in_one_memory_are_the_sum() -> None:
    before = model("float[4, 3] y", f"a = Neg(x)\n{SCATTER}")
    after = onnx.ModelProto.FromString(before.SerializeToString())
    assert scatter_in_place(after, ()) == {"a": "y"}
    assert [value.name for value in after.graph.output] == ["y", "a"]
    onnx.checker.check_model(after, full_check=True)
    feed = {
        "x": np.arange(12, dtype=np.float32).reshape(4, 3),
        "i": np.array([[1], [1]]),
        "u": np.full((2, 3), 100, np.float32),
    }
    session = ort.InferenceSession(before.SerializeToString(), providers=["CPUExecutionProvider"])
    (expected,) = session.run(None, feed)
    shared = np.full((4, 3), np.nan, np.float32)
    session = ort.InferenceSession(after.SerializeToString(), providers=["CPUExecutionProvider"])
    binding = session.io_binding()
    for name, array in feed.items():
        binding.bind_cpu_input(name, array)
    for name in ("y", "a"):
        binding.bind_output(name, "cpu", 0, np.float32, shared.shape, shared.ctypes.data)
    for _ in range(2):
        session.run_with_iobinding(binding)
        np.testing.assert_array_equal(shared, expected)


KEPT = {
    "of an input": model("float[4, 3] y", 'y = ScatterND<reduction="add">(x, i, u)'),
    "read again": model("float[4, 3] y, float[4, 3] z", f"a = Neg(x)\n{SCATTER}\nz = Exp(a)"),
    "wanted": model("float[4, 3] y, float[4, 3] a", f"a = Neg(x)\n{SCATTER}"),
    "no output": model("float[4, 3] z", f"a = Neg(x)\n{SCATTER}\nz = Exp(y)"),
    "of unknown size": model("float[4, 3] y", f"a = Neg(x)\n{SCATTER}", ""),
}


@pytest.mark.parametrize("name", KEPT)
def test_other_scatters_stay(name: str) -> None:
    proto = onnx.ModelProto.FromString(KEPT[name].SerializeToString())
    assert scatter_in_place(proto, ()) == {}
    assert proto == KEPT[name]


def test_an_output_that_is_read_until_the_end_stays() -> None:
    assert scatter_in_place(model("float[4, 3] y", f"a = Neg(x)\n{SCATTER}"), {"y"}) == {}
