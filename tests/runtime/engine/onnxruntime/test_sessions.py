"""The one place that makes sessions: what its settings are to onnxruntime, and what its errors say."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime as ort
import pytest
from onnx import parser

from samba_onnx.runtime.engine.onnxruntime.sessions import make_session, reason_of
from samba_onnx.runtime.engine.protocol import EngineSettings, Rewriting
from tests.runtime.building import HEADER

ROOT = Path(__file__).parents[4]
MODEL = parser.parse_model(
    HEADER + "g (float[4] x) => (float[4] y) { a = Abs(x) y = Neg(a) }"
).SerializeToString()


def test_no_other_place_makes_a_session() -> None:
    makers = {
        path.relative_to(ROOT).as_posix()
        for room in ("samba_onnx", "passes", "runtime")
        for path in (ROOT / room).rglob("*.py")
        if re.search(r"\.InferenceSession\(", path.read_text())
    }
    assert makers == {"runtime/engine/onnxruntime/sessions.py"}


def options(settings: EngineSettings, **more: object) -> ort.SessionOptions:
    return make_session(MODEL, settings, **more).get_session_options()  # type: ignore[arg-type]


def test_settings_reach_onnxruntime() -> None:
    plain = options(EngineSettings())
    assert plain.graph_optimization_level == ort.GraphOptimizationLevel.ORT_ENABLE_ALL
    assert plain.use_deterministic_compute
    assert plain.enable_mem_pattern
    one = options(EngineSettings(1, rewriting=Rewriting.NONE, trains=True))
    assert one.graph_optimization_level == ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    assert one.intra_op_num_threads == 1
    assert not one.enable_mem_pattern
    exact = options(EngineSettings(rewriting=Rewriting.EXACT), threads=3)
    assert exact.graph_optimization_level == ort.GraphOptimizationLevel.ORT_ENABLE_BASIC
    assert exact.intra_op_num_threads == 3


@pytest.mark.parametrize(
    ("settings", "entry"),
    [
        (EngineSettings(prepack=False), "session.disable_prepacking"),
        (EngineSettings(several=True), "session.force_spinning_stop"),
    ],
)
def test_settings_that_are_entries(settings: EngineSettings, entry: str) -> None:
    assert options(settings).get_session_config_entry(entry) == "1"
    with pytest.raises(RuntimeError):
        options(EngineSettings()).get_session_config_entry(entry)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            "[ONNXRuntimeError] : 1 : FAIL : Non-zero status code returned while running Reshape "
            "node. Name:'r' Status Message: /src/core/reshape_helper.h:91 onnxruntime::Reshape("
            "const onnxruntime::TensorShape&, bool) input_shape_size == requested_shape_size was "
            "false. The input tensor cannot be reshaped.\n",
            "Reshape node 'r': The input tensor cannot be reshaped.",
        ),
        (
            "[ONNXRuntimeError] : 9 : NOT_IMPLEMENTED : Could not find an implementation for "
            "Add(14) node with name ''",
            "Could not find an implementation for Add(14) node with name ''",
        ),
        ("/onnxruntime_src/a/b.cc:12 broken", "broken"),
        (
            "Exception during initialization: /onnxruntime_src/onnxruntime/core/providers/cpu/text/"
            "string_normalizer.cc:235 onnxruntime::StringNormalizer::Locale::Locale(const "
            "std::string&)::<lambda()> Failed to construct locale with name:xx_YY",
            "Failed to construct locale with name:xx_YY",
        ),
        (
            "[ONNXRuntimeError] : 1 : FAIL : Non-zero status code returned while running Concat node. "
            "Name:'' Status Message: concatbase.h:133 PrepareForComputeImpl Non concat axis dimensions "
            "must match: Axis 1 has mismatched dimensions of 3 and 2",
            "Concat node '': Non concat axis dimensions must match: Axis 1 has mismatched dimensions "
            "of 3 and 2",
        ),
        (
            "while running MatMul node. Name:'m' Status Message: matmul_helper.h:59 Compute MatMul "
            "dimension mismatch",
            "MatMul node 'm': MatMul dimension mismatch",
        ),
        (
            "while running Squeeze node. Name:'s' Status Message: /onnxruntime_src/core/squeeze.h:53 "
            "static onnxruntime::TensorShapeVector onnxruntime::SqueezeBase::ComputeOutputShape("
            "const onnxruntime::TensorShape&, const onnxruntime::TensorShapeVector&) input_shape[i] "
            "== 1 was false. Dimension of input 0 must be 1 instead of 4. shape={4}",
            "Squeeze node 's': Dimension of input 0 must be 1 instead of 4. shape={4}",
        ),
        ("x" * 400, "x" * 297 + "..."),
    ],
)
def test_reasons_are_one_short_line(text: str, expected: str) -> None:
    assert reason_of(RuntimeError(text)) == expected


TWICE = (
    HEADER
    + """g (float[2,3,4] x) => (float[2,3,4] y)
    <float[4,4] w = {1,2,3,4,5,6,7,8,1,2,3,4,5,6,7,8}, float[4] b = {1,2,3,4}, float[4] gemm_input_shape = {2,3,4,5}> {
        a = Mul(x, gemm_input_shape)
        c = MatMul(a, w)
        y = Add(c, b)
    }"""
)


def test_a_name_that_a_fusion_of_onnxruntime_makes_again() -> None:
    model = parser.parse_model(TWICE).SerializeToString()
    settings = ort.SessionOptions()
    settings.log_severity_level = 4
    with pytest.raises(Exception, match="Attempt to replace the existing tensor"):
        ort.InferenceSession(model, settings)
    value = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
    weight = np.arange(1, 9, dtype=np.float32).reshape(2, 4)
    expected = value * [2, 3, 4, 5] @ np.concatenate([weight, weight]) + [1, 2, 3, 4]
    for rewriting in Rewriting:
        session = make_session(model, EngineSettings(rewriting=rewriting))
        np.testing.assert_array_equal(session.run(None, {"x": value})[0], expected)


def test_an_optimizer_whose_node_is_refused_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """As by onnxruntime 1.25, which has no kernel for what it makes of this model."""
    model = parser.parse_model(
        HEADER + "g (double[3,4] w, double[3,5] x) => (double[4,5] y) "
        "{ t = Transpose<perm=[1,0]>(w) y = MatMul(t, x) }"
    ).SerializeToString()
    refusal = "Failed to find kernel (node:'/MatmulTransposeFusion/' ep:'CPUExecutionProvider')"
    original, attempts = ort.InferenceSession, []

    def refuse(*arguments: Any, disabled_optimizers: list[str], **options: Any) -> Any:
        attempts.append(list(disabled_optimizers))
        if "MatmulTransposeFusion" not in disabled_optimizers:
            raise ort.capi.onnxruntime_pybind11_state.NotImplemented(refusal)
        return original(*arguments, disabled_optimizers=disabled_optimizers, **options)

    monkeypatch.setattr(ort, "InferenceSession", refuse)
    session = make_session(model, EngineSettings(), disabled_optimizers=["Pad_Fusion"])
    assert attempts == [["Pad_Fusion"], ["Pad_Fusion", "MatmulTransposeFusion"]]
    w, x = np.arange(12.0).reshape(3, 4), np.arange(15.0).reshape(3, 5)
    np.testing.assert_array_equal(session.run(None, {"w": w, "x": x})[0], w.T @ x)


def test_a_product_of_two_int8_that_is_written_as_quantised_can_be_prepared() -> None:
    """The optimizer moves its weight to uint8, and then has no kernel: it is told to leave it alone."""
    model = parser.parse_model(
        """<ir_version: 8, opset_import: ["" : 17]>  g (int8[3, 4] a) => (int8[3, 5] y)
        <float one = {1.0}, float step = {64.0}, int8 zero = {0}, int8[4, 5] b = {
          -128, 127, 3, -7, 100, 90, -90, 12, 5, -128, 127, 127, -1, 0, 44, 8, 9, -100, 60, -60 }>
        { y = QLinearMatMul(a, one, zero, b, one, zero, step, zero) }"""
    )
    a = np.arange(12, dtype=np.int8).reshape(3, 4) * 10 - 60
    (result,) = make_session(model.SerializeToString(), EngineSettings()).run(None, {"a": a})
    b = np.array(model.graph.initializer[3].int32_data, np.int64).reshape(4, 5)
    expected = np.clip(np.rint(a.astype(np.int64) @ b / 64), -128, 127)
    np.testing.assert_array_equal(result, expected.astype(np.int8))
