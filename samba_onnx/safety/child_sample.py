"""In the child: run an ONNX model once with onnxruntime and write its outputs."""

from __future__ import annotations

import ctypes
import math
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt
import onnxruntime as ort

from samba_onnx.safety.exchange import read_arrays, write_arrays

__all__ = ["sample"]

_FOREIGN: dict[str, tuple[int, Any]] = {
    "tensor(bfloat16)": (16, ml_dtypes.bfloat16),
    "tensor(float8e4m3fn)": (17, ml_dtypes.float8_e4m3fn),
    "tensor(float8e4m3fnuz)": (18, ml_dtypes.float8_e4m3fnuz),
    "tensor(float8e5m2)": (19, ml_dtypes.float8_e5m2),
    "tensor(float8e5m2fnuz)": (20, ml_dtypes.float8_e5m2fnuz),
}
"""Types that onnxruntime takes and returns by address only, with ONNX's number for each."""
_PACKED = ("int4", "uint4", "int2", "uint2", "float4", "float6")
_FATAL_ONLY = 4
_UNABLE = (
    "is not a registered function/op",
    "NOT_IMPLEMENTED",
    "Unsupported model IR version",
    "only *guarantees* support for models stamped with official released onnx opset versions",
    "is under development",
    "is not currently registered or supported",
    "Could not find an implementation",
)
"""Signs that onnxruntime lacks something, not that the model is wrong."""


def sample(
    model: str,
    inputs: str,
    records: list[dict[str, Any]],
    outputs: str,
    names: list[str] | None,
    threads: int | None,
) -> dict[str, Any]:
    """Run a model once.

    Args:
        model: Path of the ONNX model.
        inputs: Path of the input arrays, as ``exchange.write_arrays`` left it.
        records: What it said about them.
        outputs: Where the output arrays shall go.
        names: The outputs wanted; None for all.
        threads: Threads of one operator; None for onnxruntime's choice.

    Returns:
        Either ``records`` of the outputs, or ``not_sampled`` with the reason.
    """
    try:
        session = _session(model, threads)
    except Exception as error:
        if any(sign in str(error) for sign in _UNABLE):
            return {"not_sampled": f"onnxruntime cannot run it: {_first_line(error)}"}
        raise
    arguments = [*session.get_inputs(), *session.get_outputs()]
    for argument in arguments:
        kind = argument.type
        if not kind.startswith("tensor(") or kind[7:].startswith(_PACKED):
            return {"not_sampled": f"value {argument.name!r} is of type {kind}"}
    wanted = names or [argument.name for argument in session.get_outputs()]
    feed = read_arrays(Path(inputs), records)
    try:
        if any(argument.type in _FOREIGN for argument in arguments):
            results = _run_by_address(session, feed, wanted)
        else:
            results = dict(zip(wanted, session.run(wanted, feed), strict=True))
    except Exception as error:
        if not feed or "alloc" in str(error).lower():
            raise  # without inputs, it cannot be those that are at fault
        return {"not_sampled": f"onnxruntime failed on sample inputs: {_first_line(error)}"}
    return {"records": write_arrays(Path(outputs), results)}


def _session(model: str, threads: int | None) -> ort.InferenceSession:
    options = ort.SessionOptions()
    options.log_severity_level = _FATAL_ONLY
    # The plainest reading of the model, and for a single run the quickest: nothing is rewritten,
    # and weights stay in their file.
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.add_session_config_entry("session.disable_prepacking", "1")
    if threads is not None:
        options.intra_op_num_threads = threads
    return ort.InferenceSession(model, options, providers=["CPUExecutionProvider"])


def _run_by_address(
    session: ort.InferenceSession, feed: dict[str, npt.NDArray[Any]], wanted: list[str]
) -> dict[str, npt.NDArray[Any]]:
    """Run with values that numpy cannot hold for onnxruntime."""
    kinds = {argument.name: argument.type for argument in session.get_inputs()}
    values = {name: _to_value(array, kinds[name]) for name, array in feed.items()}
    results = session.run_with_ort_values(wanted, values)
    return {name: _to_array(value) for name, value in zip(wanted, results, strict=True)}


def _to_value(array: npt.NDArray[Any], kind: str) -> ort.OrtValue:
    array = np.asarray(array, order="C")
    if kind not in _FOREIGN:
        return ort.OrtValue.ortvalue_from_numpy(array)
    items = array.view(np.uint16 if array.dtype.itemsize == 2 else np.uint8)
    return ort.OrtValue.ortvalue_from_numpy_with_onnx_type(items, _FOREIGN[kind][0])


def _to_array(value: ort.OrtValue) -> npt.NDArray[Any]:
    kind = value.data_type()
    if kind not in _FOREIGN:
        return np.asarray(value.numpy())
    dtype = np.dtype(_FOREIGN[kind][1])
    shape = value.shape()
    content = ctypes.string_at(value.data_ptr(), math.prod(shape) * dtype.itemsize)
    return np.frombuffer(content, dtype).reshape(shape)


def _first_line(error: BaseException) -> str:
    return str(error).splitlines()[0][:400] if str(error) else type(error).__name__
