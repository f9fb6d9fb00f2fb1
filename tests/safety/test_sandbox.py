"""Whatever happens to the child becomes one clear error, and nothing of it stays."""

from __future__ import annotations

import contextlib
import importlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from samba_onnx.errors import ExecutionError, InternalError, ModelLimitError
from samba_onnx.safety import sampling, sandbox, type_inference
from samba_onnx.safety.exchange import read_arrays, write_arrays
from samba_onnx.safety.sampling import run_sample
from tests.safety.hostile_runs import only_at_run_time
from tests.safety.small_models import INT64, model, node, value

HOSTILE = {name: proto for name, _, proto in only_at_run_time()}
X = np.arange(6, dtype=np.float32).reshape(2, 3)


def _children() -> set[str]:
    """Return the ids of this process's children, dead ones not waited for included."""
    task = f"/proc/self/task/{os.getpid()}/children"
    return set(Path(task).read_text(encoding="ascii").split())


def test_arrays_of_every_kind_survive_the_exchange(tmp_path: Path) -> None:
    arrays = {
        "float": X,
        "scalar": np.asarray(2.5),
        "empty": np.empty((0, 3), np.int64),
        "bfloat16": np.asarray([1.5, -2.0], ml_dtypes.bfloat16),
        "int4": np.asarray([1, -8], ml_dtypes.int4),
        "bool": np.asarray([True, False]),
        "strings": np.asarray([["a", "ö"], ["", "d"]], dtype=object),
        "transposed": X.T,
        "": np.asarray([1]),
    }
    records = write_arrays(tmp_path / "a.safetensors", arrays)
    back = read_arrays(tmp_path / "a.safetensors", records)
    assert list(back) == list(arrays)
    for name, array in arrays.items():
        assert back[name].dtype == array.dtype
        np.testing.assert_array_equal(back[name], array)


def test_a_sample_gives_the_models_outputs() -> None:
    proto = model(
        [node("Add", ["x", "x"], ["double"]), node("Shape", ["x"], ["shape"])],
        outputs=[value("double", None), value("shape", None, INT64)],
    )
    result = run_sample(proto, [{"x": X}], threads=1)
    assert result.not_sampled == ""
    (outputs,) = result.outputs
    assert list(outputs) == ["double", "shape"]
    np.testing.assert_array_equal(outputs["double"], X + X)
    np.testing.assert_array_equal(outputs["shape"], [2, 3])


def test_a_sample_carries_strings_and_bfloat16(tmp_path: Path) -> None:
    bfloat16 = TensorProto.BFLOAT16
    kinds = {"s": TensorProto.STRING, "b": bfloat16}
    arrays = {
        "s": np.asarray(["a", "b"], dtype=object),
        "b": np.asarray([1.5, -2.0], ml_dtypes.bfloat16),
    }
    for name, kind in kinds.items():
        proto = model(
            [node("Identity", [name], ["y"])],
            inputs=[value(name, [2], kind)],
            outputs=[value("y", [2], kind)],
        )
        path = tmp_path / f"{name}.onnx"
        onnx.save(proto, path)
        result = run_sample(path, [{name: arrays[name]}])
        np.testing.assert_array_equal(result.outputs[0]["y"], arrays[name])


def test_what_cannot_be_sampled_has_a_reason() -> None:
    sequence = onnx.parser.parse_model(
        '<ir_version: 10, opset_import: ["": 21]>'
        "g (float[2] x) => (seq(float[2]) y) { y = SequenceConstruct(x) }"
    )
    result = run_sample(sequence, [{"x": np.zeros(2, np.float32)}])
    assert result.not_sampled == "value 'y' is of type seq(tensor(float))"
    custom = model([helper.make_node("Foo", ["x"], ["y"], domain="a.b")], domains=["a.b"])
    assert "is not a registered function/op" in run_sample(custom, [{"x": X}]).not_sampled
    gather = model([node("Gather", ["x", "i"], ["y"])], inputs=[value("x"), value("i", [1], INT64)])
    result = run_sample(gather, [{"x": X, "i": np.asarray([99])}])
    assert result.not_sampled.startswith("onnxruntime failed on sample inputs: ")


def test_a_loop_without_end_is_stopped_and_leaves_nothing() -> None:
    before = _children()
    started = time.monotonic()
    with pytest.raises(ModelLimitError, match=r"main: running it .* longer than 2 s .* never end"):
        run_sample(HOSTILE["endless_loop"], [{"x": X}], seconds=2)
    assert time.monotonic() - started < 8
    assert _children() == before


def test_a_doubling_chain_runs_into_the_limit_on_memory() -> None:
    with pytest.raises(ModelLimitError, match="more memory than there is"):
        run_sample(HOSTILE["doubling_concat"], [{"x": X}], memory_bytes=1 << 30, threads=1)


def test_a_division_that_traps_is_one_error() -> None:
    with pytest.raises(ExecutionError, match="died of SIGFPE"):
        run_sample(HOSTILE["division_overflows_computed"], [{}])


def test_a_model_that_onnxruntime_refuses_is_one_line() -> None:
    with pytest.raises(ExecutionError) as caught:
        run_sample(HOSTILE["types_mixed"], [{"x": X}])
    assert str(caught.value).isprintable()


def test_an_interrupt_kills_the_child(monkeypatch: pytest.MonkeyPatch) -> None:
    before = _children()

    def interrupt(self: subprocess.Popen[bytes], timeout: float | None = None) -> int:
        if timeout is not None:
            raise KeyboardInterrupt
        return original(self)

    original = subprocess.Popen.wait
    monkeypatch.setattr(subprocess.Popen, "wait", interrupt)
    with pytest.raises(KeyboardInterrupt):
        run_sample(HOSTILE["endless_loop"], [{"x": X}], seconds=600)
    assert _children() == before


def _is_alive(process: int) -> bool:
    """Return whether a process runs; one that is dead and not waited for does not."""
    try:
        state = Path(f"/proc/{process}/stat").read_text(encoding="ascii").rpartition(")")[2]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state.split()[0] != "Z"


@pytest.mark.skipif(sys.platform != "linux", reason="asks the kernel of Linux to end the child")
@pytest.mark.parametrize("killed", ["while it runs", "before it begins"])
def test_a_child_does_not_outlive_a_parent_that_is_killed(killed: str, tmp_path: Path) -> None:
    """Nobody can clean up after SIGKILL: the kernel, or the child itself, must end the endless loop."""
    path = tmp_path / "m.onnx"
    onnx.save(HOSTILE["endless_loop"], path)
    program = (
        "import numpy as np, sys\n"
        "from samba_onnx.safety.sampling import run_sample\n"
        f"run_sample({str(path)!r}, [{{'x': np.ones((2, 3), np.float32)}}], seconds=600)\n"
    )
    parent = subprocess.Popen([sys.executable, "-c", program], start_new_session=True)
    try:
        while not (children := Path(f"/proc/{parent.pid}/task/{parent.pid}/children").read_text()):
            assert parent.poll() is None
            time.sleep(0.005)
        child = int(children.split()[0])
        if killed == "while it runs":
            while "onnxruntime" not in Path(f"/proc/{child}/maps").read_text():
                assert _is_alive(child)
                time.sleep(0.02)
    finally:
        parent.kill()
        parent.wait()
    try:
        deadline = time.monotonic() + 300  # of an endless loop; the kernel takes no time at all
        while _is_alive(child) and time.monotonic() < deadline:
            time.sleep(0.02)
        assert not _is_alive(child)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.kill(child, signal.SIGKILL)


def test_a_module_in_the_users_folder_is_not_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "json.py").write_text("raise SystemExit('taken over')")
    monkeypatch.chdir(tmp_path)
    assert not run_sample(model([node("Relu", ["x"], ["y"])]), [{"x": X}]).not_sampled


@pytest.mark.parametrize("task", ["nothing", "os.path:join", "samba_onnx.errors"])
def test_an_unknown_task_is_our_fault(task: str) -> None:
    with pytest.raises(InternalError):
        sandbox.run_child(task, {}, seconds=1, doing="test")


@pytest.mark.parametrize("task", [sampling.TASK, type_inference.TASK])
def test_tasks_are_functions_that_exist(task: str) -> None:
    module, _, function = task.partition(":")
    assert callable(getattr(importlib.import_module(module), function))
