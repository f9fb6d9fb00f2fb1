"""Programs of several emulated RDUs: numbers, plan and ledger, and what happens when one of them fails.

Sums are added in another order than on one RDU: float32 results differ by rounding only (2e-5, as in
``tests/passes/sharding/test_sharded_programs.py``).
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import helper, numpy_helper

from samba_onnx.compiling.compiler import convert
from samba_onnx.errors import DeviceError, InputError, UsageError
from samba_onnx.pef import Pef
from samba_onnx.pef.manifest import Cause, Direction
from samba_onnx.pef.sharding import CollectiveKind
from samba_onnx.runtime.accounting import check_plan
from samba_onnx.runtime.device import Device
from samba_onnx.runtime.parallel_device import ParallelDevice, open_device
from tests.passes.sharding.models import LENGTH, WORDS, gpt2, llama

ROWS = [
    (llama(2, 8, 4), 2, "weight"), (llama(2, 8, 4), 4, "weight"), (llama(2, 16, 2, 2), 16, "weight"),
    (gpt2(4, 6), 3, "weight"), (llama(8, 4, 2), 8, "batch"), (gpt2(4, 6), 4, "batch"),
]  # fmt: skip


def pef_of(proto: onnx.ModelProto, folder: Path, rdus: int, mode: str = "weight") -> Pef:
    return convert(
        proto, folder / "m.pef", n_chips=rdus, tensor_parallel=mode, sample=False, trial=False
    )


def words(proto: onnx.ModelProto) -> np.ndarray:
    batch = proto.graph.input[0].type.tensor_type.shape.dim[0].dim_value
    return np.random.default_rng(5).integers(0, WORDS, (batch, LENGTH))


@pytest.mark.parametrize(("proto", "rdus", "mode"), ROWS, ids=[f"{n}{m}" for _, n, m in ROWS])
def test_numbers_and_copies(proto: onnx.ModelProto, rdus: int, mode: str, tmp_path: Path) -> None:
    given = {"x": words(proto)}
    (expected,) = onnxruntime.InferenceSession(proto.SerializeToString()).run(None, given)
    with pef_of(proto, tmp_path, rdus, mode) as pef, open_device(pef, threads=1) as device:
        assert isinstance(device, ParallelDevice)
        for _ in range(3):  # the last one is replayed
            (result,) = device.run(given).values()
            np.testing.assert_allclose(result, expected, rtol=2e-5, atol=2e-5)
        for one in device.devices:
            check_plan(one.ledger, pef.manifest.graphs[0])
            assert one.ledger.runs == 3
        sent = [t for t in device.ledger.run() if t.cause is Cause.COLLECTIVE]
        assert {t.direction for t in sent} <= {Direction.RDU_TO_RDU}
        assert bool(sent) is (mode == "weight")


def test_a_sum_that_goes_round_a_ring_is_in_the_ledger_as_planned(tmp_path: Path) -> None:
    # Latencies of no weight: a ring sends less.
    (tmp_path / "ring.toml").write_text(
        'extends = "sn40l"\nname = "ring"\n[hardware.rdu_link_latency_seconds]\n'
        'value = 1e-12\nevidence = "assumed"\nnote = "of a test"\n'
    )
    given = {"x": words(proto := llama(2, 8, 4))}
    (expected,) = onnxruntime.InferenceSession(proto.SerializeToString()).run(None, given)
    target = str(tmp_path / "ring.toml")
    pef = convert(proto, tmp_path / "m.pef", n_chips=4, target=target, sample=False, trial=False)
    with pef, open_device(pef, threads=1) as device:
        assert isinstance(device, ParallelDevice)
        sums = [s.collective for s in pef.manifest.sections if s.collective]
        assert {one.steps for one in sums if one.kind is CollectiveKind.ALL_REDUCE} == {6}
        (result,) = device.run(given).values()
        np.testing.assert_allclose(result, expected, rtol=2e-5, atol=2e-5)
        planned = pef.manifest.graphs[0].run_transfers
        for one in device.devices:
            check_plan(one.ledger, pef.manifest.graphs[0])
            assert [t.seconds for t in one.ledger.run()] == [t.seconds for t in planned]


@pytest.fixture
def linear() -> onnx.ModelProto:
    random = np.random.default_rng(0)
    weights = {"a": (3, 8), "b": (8, 3)}
    nodes = [
        helper.make_node("MatMul", ["x", "a"], ["h"]),
        helper.make_node("Tanh", ["h"], ["t"]),
        helper.make_node("MatMul", ["t", "b"], ["y"]),
    ]
    ends = [helper.make_tensor_value_info(n, onnx.TensorProto.FLOAT, (4, 3)) for n in "xy"]
    tensors = [
        numpy_helper.from_array(random.standard_normal(shape).astype(np.float32), name)
        for name, shape in weights.items()
    ]
    graph = helper.make_graph(nodes, "mlp", ends[:1], ends[1:], tensors)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)


@pytest.fixture
def pef(linear: onnx.ModelProto, tmp_path: Path) -> Iterator[Pef]:
    with pef_of(linear, tmp_path, 4) as opened:
        yield opened


def test_weights_are_read_and_loaded_whole(pef: Pef, linear: onnx.ModelProto) -> None:
    x = np.ones((4, 3), np.float32)
    a, b = (numpy_helper.to_array(tensor) for tensor in linear.graph.initializer)
    names = [s.name for s in pef.manifest.symbols if s.sharded and s.kind == "weight"]
    with ParallelDevice(pef, threads=1) as device:
        for name, whole in zip(sorted(names), (a, b), strict=True):
            np.testing.assert_array_equal(device.read(name), whole)
        device.load({sorted(names)[0]: 2 * a})
        (result,) = device.run({"x": x}).values()
        np.testing.assert_allclose(result, np.tanh(x @ (2 * a)) @ b, rtol=1e-5, atol=1e-6)
        device.write(sorted(names)[1], 3 * b)
        (result,) = device.run({"x": x}).values()
        np.testing.assert_allclose(result, np.tanh(x @ (2 * a)) @ (3 * b), rtol=1e-5, atol=1e-6)
        assert device.memory.usage()[1].used == sum(r.bytes for r in pef.manifest.regions)
        assert device.occupancy() == device.devices[0].occupancy()


def test_one_device_refuses_a_program_of_several(pef: Pef) -> None:
    with pytest.raises(UsageError, match="compiled for 4 RDUs"):
        Device(pef)


def test_what_fails_on_all_fails_once_and_leaves_them_usable(pef: Pef) -> None:
    with ParallelDevice(pef, threads=1) as device:
        with pytest.raises(InputError, match=r"shape \[4, 4\]"):
            device.run({"x": np.ones((4, 4), np.float32)})
        assert device.run({"x": np.ones((4, 3), np.float32)})


def test_an_rdu_that_fails_does_not_leave_the_others_waiting(pef: Pef) -> None:
    with ParallelDevice(pef, threads=1) as device:
        device.devices[2].close()
        with pytest.raises(DeviceError, match="closed"):
            device.run({"x": np.ones((4, 3), np.float32)})
