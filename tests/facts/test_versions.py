"""The versions in the table are those that onnxruntime takes, not older ones out of caution."""

from __future__ import annotations

import onnx
import onnxruntime
import pytest

from samba_onnx.facts.versions import (
    IR_VERSION,
    NEWEST_IR_VERSION,
    NEWEST_OPSET,
    OLDEST_OPSET,
    OPSET,
)


def accepted(opset: int, ir_version: int) -> bool:
    """Return whether onnxruntime reads a model of these versions."""
    model = onnx.parser.parse_model(
        f'<ir_version: {ir_version}, opset_import: ["": {opset}]>'
        "g (float[2] x) => (float[2] y) { y = Relu(x) }"
    )
    try:
        onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    except onnxruntime.capi.onnxruntime_pybind11_state.Fail:
        return False
    return True


@pytest.mark.parametrize(
    ("opset", "ir_version"),
    [
        (OPSET, IR_VERSION),
        (OLDEST_OPSET, IR_VERSION),
        (NEWEST_OPSET, IR_VERSION),
        (OPSET, NEWEST_IR_VERSION),
    ],
)
def test_onnxruntime_takes_what_is_written(opset: int, ir_version: int) -> None:
    assert accepted(opset, ir_version)


def test_versions_that_nobody_wrote_are_not_accepted() -> None:
    assert not accepted(OPSET, 1000)
    assert not accepted(1000, IR_VERSION)


def test_graphs_are_written_in_a_version_that_runs() -> None:
    assert OLDEST_OPSET <= OPSET <= NEWEST_OPSET
    assert IR_VERSION <= NEWEST_IR_VERSION
