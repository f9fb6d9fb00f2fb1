"""Trained weights on their way back into an ONNX model, from the device where they are there."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from onnx import numpy_helper

import samba_onnx as samba
from samba_onnx.errors import UsageError
from samba_onnx.sessions.data_parallel import DataParallel
from samba_onnx.sessions.onnx_writer import OnnxWriter
from samba_onnx.sessions.run_arguments import RunArguments
from samba_onnx.sessions.runner import Runner
from samba_onnx.sessions.traced_state import TracedState
from tests.importing.building import ramp
from tests.sessions.conftest import Parts
from tests.sessions.test_onnx_training import batch, tiny


def test_the_host_has_the_weights_of_what_was_not_traced() -> None:
    writer, model = OnnxWriter(TracedState()), tiny()
    module = samba.from_onnx(model)
    assert writer.to_onnx(module) == model
    with pytest.raises(UsageError, match="was not traced with optimizers"):
        writer.to_onnx(model)


def test_the_device_has_the_weights_of_what_was_traced(parts: Parts, tmp_path: Path) -> None:
    model, (x, label) = tiny(), batch()
    module = samba.from_onnx(model, losses="cross_entropy")
    optimizer = samba.optim.SGD(module.parameters(), lr=0.5)
    path = samba.session.compile(model, (x, label), optimizer, output=tmp_path / "m.pef")
    parts.tracer.trace(model, (x, label), optimizer, pef=path)
    parallel = DataParallel(parts.program)
    runner = Runner(parts.program, parts.state, parts.profiler, parallel)
    runner.run(RunArguments({"x": x, "label": label}, ()))
    device = parts.program.required_device()
    device.write("b", -ramp(3))
    trained = OnnxWriter(parts.state).to_onnx(model)
    arrays = {one.name: numpy_helper.to_array(one) for one in trained.graph.initializer}
    np.testing.assert_array_equal(arrays["b"], -ramp(3))
    np.testing.assert_array_equal(arrays["w"], device.read("w"))
    assert np.abs(arrays["w"] - ramp(6, 3)).max() > 1e-3
