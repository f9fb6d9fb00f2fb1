"""The order of nodes that nothing reads: before and after, the numbers, and what stays."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
from onnx import parser

from samba_onnx.runtime.engine.lowerings.node_order import put_results_first

HEADER = '<ir_version: 10, opset_import: ["" : 20]>\n'
BACKWARD = """g (float[2, 2] x) => (float[2, 2] last, float[2, 2] middle, float[2, 2] first) {
    a = Exp(x)
    last = MatMul(a, x)
    b = Neg(a)
    middle = MatMul(b, x)
    first = MatMul(b, b)
}"""


def model(graph: str) -> onnx.ModelProto:
    return parser.parse_model(HEADER + graph)


def test_results_follow_what_they_need() -> None:
    before, after = model(BACKWARD), model(BACKWARD)
    put_results_first(after)
    onnx.checker.check_model(after, full_check=True)
    made = [node.output[0] for node in after.graph.node]
    assert made == ["a", "b", "first", "middle", "last"]
    feed = {"x": np.arange(4, dtype=np.float32).reshape(2, 2)}
    sessions = [
        ort.InferenceSession(proto.SerializeToString(), providers=["CPUExecutionProvider"])
        for proto in (before, after)
    ]
    for got, want in zip(sessions[1].run(None, feed), sessions[0].run(None, feed), strict=True):
        np.testing.assert_array_equal(got, want)


def test_onnxruntime_executes_them_in_that_order(tmp_path: Path) -> None:
    after = model(BACKWARD)
    put_results_first(after)
    assert _executed(model(BACKWARD), tmp_path) == ["a", "b", "first", "middle", "last"]
    assert _executed(after, tmp_path) == ["a", "last", "b", "middle", "first"]


def test_a_graph_whose_branches_read_values_stays() -> None:
    graph = """g (bool c, float[2] x) => (float[2] y, float[2] z) {
        a = Neg(x)
        y = If(c)<then_branch = t () => (float[2] p) { p = Exp(a) },
                  else_branch = e () => (float[2] q) { q = Neg(a) }>
        z = Exp(x)
    }"""
    before, after = model(graph), model(graph)
    put_results_first(after)
    assert after == before


def _executed(proto: onnx.ModelProto, folder: Path) -> list[str]:
    """Return the outputs of nodes in the order in which onnxruntime executes them."""
    for node in proto.graph.node:
        node.name = node.output[0]
    options = ort.SessionOptions()
    options.enable_profiling = True
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.profile_file_prefix = str(folder / "order")
    session = ort.InferenceSession(
        proto.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    session.run(None, {"x": np.zeros((2, 2), np.float32)})
    events = json.loads(Path(session.end_profiling()).read_text())
    names = [event["name"] for event in events if event.get("cat") == "Node"]
    return [name.removesuffix("_kernel_time") for name in names if name.endswith("_kernel_time")]
