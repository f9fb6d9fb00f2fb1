"""The tuple of lowerings: each has a name, a reason and a test, and one function runs them."""

from __future__ import annotations

import importlib
from pathlib import Path

import numpy as np
import onnxruntime as ort
from onnx import parser

from samba_onnx.runtime.engine.lowerings.pipeline import LOWERINGS, Lowering, lower
from samba_onnx.runtime.engine.lowerings.stage_model import StageModel
from samba_onnx.runtime.memory import DeviceMemory

HEADER = '<ir_version: 10, opset_import: ["" : 20, "samba" : 1]>\n'


def test_every_lowering_has_a_name_a_reason_a_file_and_a_test() -> None:
    assert len({lowering.name for lowering in LOWERINGS}) == len(LOWERINGS)
    for lowering in LOWERINGS:
        name = lowering.name.replace(" ", "_")
        importlib.import_module(f"samba_onnx.runtime.engine.lowerings.{name}")
        assert (Path(__file__).parent / f"test_{name}.py").exists(), name
        assert lowering.reason.endswith("."), name


def test_they_run_in_their_order_and_some_on_the_device_only() -> None:
    order: list[str] = []

    def entry(name: str, *, device_only: bool = False) -> Lowering:
        return Lowering(name, "For the test.", lambda _: order.append(name), device_only)

    model = parser.parse_model(HEADER + "g (float[2] x) => (float[2] y) { y = Abs(x) }")
    lowerings = (entry("b"), entry("c", device_only=True), entry("a"))
    lower(StageModel(model), lowerings)
    assert order == ["b", "a"]
    lower(StageModel(model, memory=DeviceMemory((), ())), lowerings)
    assert order == ["b", "a", "b", "c", "a"]


def test_bfloat16_is_kept_where_the_engine_shall_try_its_own_kernels() -> None:
    text = "g (bfloat16[2] x) => (bfloat16[2] y) { y = Sin(x) }"
    kept = StageModel(parser.parse_model(HEADER + text), keeps_bfloat16=True)
    lower(kept)
    assert [node.op_type for node in kept.model.graph.node] == ["Sin"]
    lowered = StageModel(parser.parse_model(HEADER + text))
    lower(lowered)
    assert [node.op_type for node in lowered.model.graph.node] == ["Cast", "Sin", "Cast"]


def test_a_host_stage_runs_with_what_onnxruntime_lacks_or_does_wrong() -> None:
    stage = StageModel(
        parser.parse_model(
            HEADER + "g (float[1,1,4] x, float rate, int32 seed) => (float[1,1,4] y) "
            "{ p = Constant<value_ints=[0,0,1,0,0,1]>() a = Pad(x, p) "
            "b = MaxPool<kernel_shape=[3]>(a) "
            "m = samba.DropoutMask<shape=[1,1,4], stream=1>(rate, seed) y = Where(m, b, x) }"
        )
    )
    lower(stage)
    assert stage.disabled_optimizers == ("Pad_Fusion", "NoopElimination")
    session = ort.InferenceSession(
        stage.model.SerializeToString(), disabled_optimizers=list(stage.disabled_optimizers)
    )
    x = np.full((1, 1, 4), -1, np.float32)
    feed = {"x": x, "rate": np.array(0, np.float32), "seed": np.array(0, np.int32)}
    assert session.run(None, feed)[0].tolist() == [[[0, -1, -1, 0]]]
