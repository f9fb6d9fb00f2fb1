"""One model, run once: what the check against torch and verification ask of an engine."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx import parser

from samba_onnx.errors import ExecutionError, UsageError
from samba_onnx.runtime.engine.evaluation import (
    evaluate,
    evaluate_original,
    refuse_unless_runnable,
)
from samba_onnx.runtime.engine.onnxruntime.sessions import make_session
from samba_onnx.runtime.engine.protocol import Computation, EngineSettings
from samba_onnx.runtime.engine.registry import ENGINES, make_engine
from tests.runtime.building import HEADER
from tests.versions import needs

X = np.arange(4, dtype=np.float32)


def model(text: str, header: str = HEADER) -> onnx.ModelProto:
    return parser.parse_model(header + text)


@pytest.mark.parametrize("engine", ENGINES)
def test_outputs_by_name_in_order_and_other_feeds_are_not_looked_at(engine: str) -> None:
    proto = model("g (float[4] x) => (float[4] b, float[4] a) { a = Neg(x) b = Abs(a) }")
    outputs = evaluate(proto, {"x": X, "other": X}, engine=engine)
    assert list(outputs) == ["b", "a"]
    np.testing.assert_array_equal(outputs["a"], -X)


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("run", [evaluate, evaluate_original])
def test_an_operator_that_does_not_exist_is_named(
    engine: str, run: Callable[..., dict[str, Any]]
) -> None:
    proto = model(
        "g (float[4] x) => (float[4] y) { y = com.example.Swirl(x) }",
        '<ir_version: 10, opset_import: ["" : 21, "com.example" : 1]>',
    )
    with pytest.raises(ExecutionError, match=r"cannot be prepared: .*Swirl") as caught:
        run(proto, {"x": X}, engine=engine)
    assert "Swirl" in caught.value.reason
    assert not caught.value.reason.startswith("graph")
    with pytest.raises(ExecutionError, match="Swirl"):
        refuse_unless_runnable(proto, engine=engine)


@pytest.mark.parametrize("engine", ENGINES)
def test_an_operator_that_fails_is_named(engine: str) -> None:
    proto = model("g (float[4] x, int64[1] i) => (float[1] y) { y = Gather(x, i) }")
    refuse_unless_runnable(proto, engine=engine)
    feeds = {"x": X, "i": np.array([9])}
    with pytest.raises(ExecutionError, match=r"graph 'g' failed: Gather node") as caught:
        evaluate(proto, feeds, engine=engine)
    assert caught.value.reason.startswith("Gather node")
    with pytest.raises(ExecutionError, match="the original model failed: Gather node"):
        evaluate_original(proto, feeds, engine=engine)


@pytest.mark.parametrize("engine", ENGINES)
def test_a_missing_input_is_one_error(engine: str) -> None:
    proto = model("g (float[4] x, float[4] z) => (float[4] y) { y = Add(x, z) }")
    with pytest.raises(ExecutionError, match=r"\bz\b"):
        evaluate(proto, {"x": X}, engine=engine)


@needs("onnxruntime", "1.31")  # older ones have no such kernel
def test_bfloat16_is_computed_as_on_the_device_also_where_onnxruntime_has_a_kernel(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As it has one for LayerNormalization, which a fallback then uses."""
    sessions: list[set[str]] = []

    def noted(source: bytes, *args: Any, **options: Any) -> Any:
        nodes = onnx.load_model_from_string(source).graph.node
        sessions.append({node.op_type for node in nodes})
        return make_session(source, *args, **options)

    monkeypatch.setattr("samba_onnx.runtime.engine.onnxruntime.engine.make_session", noted)
    text = (
        "g (bfloat16[2,4] x, bfloat16[4] w) => (bfloat16[2,4] y) { y = LayerNormalization(x, w) }"
    )
    x = np.arange(8).reshape(2, 4).astype(ml_dtypes.bfloat16)
    evaluate(model(text), {"x": x, "w": np.ones(4, ml_dtypes.bfloat16)})
    make_engine("onnxruntime", EngineSettings()).prepare(Computation(model(text), "a fallback"))
    assert sessions == [{"Cast", "LayerNormalization"}, {"LayerNormalization"}]


def test_a_file_that_is_no_model(tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    path.write_bytes(b"no model")
    for engine in ENGINES:
        with pytest.raises(ExecutionError, match="the original model cannot be prepared"):
            evaluate_original(path, {}, engine=engine)


def test_an_engine_that_does_not_exist() -> None:
    proto = model("g (float[4] x) => (float[4] y) { y = Abs(x) }")
    with pytest.raises(UsageError, match="engine 'tpu'"):
        evaluate(proto, {"x": X}, engine="tpu")
