"""Values of every element type go into onnxruntime and come back."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import onnx
import onnxruntime as ort
import pytest

from samba_onnx.comparing import verification
from samba_onnx.runtime.engine.onnxruntime.values import HostSession
from tests.versions import needs


def _model(given: int, returned: int) -> onnx.ModelProto:
    node = onnx.helper.make_node("Cast", ["x"], ["y"], to=returned)
    graph = onnx.helper.make_graph(
        [node],
        "cast",
        [onnx.helper.make_tensor_value_info("x", given, [3])],
        [onnx.helper.make_tensor_value_info("y", returned, [3])],
    )
    opsets = [onnx.helper.make_opsetid("", 25)]
    return onnx.helper.make_model(graph, opset_imports=opsets, ir_version=13)


FOREIGN: tuple[Any, ...] = (
    ("BFLOAT16", ml_dtypes.bfloat16),
    ("FLOAT8E4M3FN", ml_dtypes.float8_e4m3fn),
    ("FLOAT8E5M2", ml_dtypes.float8_e5m2),
    ("INT4", ml_dtypes.int4),
    ("UINT4", ml_dtypes.uint4),
    pytest.param("INT2", ml_dtypes.int2, marks=needs("onnx", "1.20")),
)


@pytest.mark.parametrize(("name", "dtype"), FOREIGN)
def test_there_and_back(name: str, dtype: Any) -> None:
    kind = onnx.TensorProto.DataType.Value(name)
    numbers = np.array([1, 0, 1], np.float32)
    out = verification.run_original(_model(onnx.TensorProto.FLOAT, kind), {"x": numbers})["y"]
    assert out.dtype == np.dtype(dtype)
    np.testing.assert_array_equal(out.astype(np.float32), numbers)
    back = verification.run_original(_model(kind, onnx.TensorProto.FLOAT), {"x": out})["y"]
    np.testing.assert_array_equal(back, numbers)


def test_outputs_share_no_memory_with_the_session() -> None:
    model = _model(onnx.TensorProto.FLOAT, onnx.TensorProto.BFLOAT16).SerializeToString()
    runner = HostSession(ort.InferenceSession(model, providers=["CPUExecutionProvider"]))
    first = runner.run({"x": np.ones(3, np.float32)})[0]
    runner.run({"x": np.zeros(3, np.float32)})
    np.testing.assert_array_equal(first.astype(np.float32), np.ones(3))
