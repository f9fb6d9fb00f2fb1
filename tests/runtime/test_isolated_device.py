"""A device in another process: the same results, and an error where a device would take this process with it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import onnx.parser
import pytest
import torch

import samba_onnx
from samba_onnx import IsolatedDevice
from samba_onnx.errors import (
    DeviceError,
    ExecutionError,
    InputError,
    ModelLimitError,
    PefFormatError,
    UsageError,
)
from samba_onnx.pef import load_pef
from samba_onnx.runtime.host_values import packed, unpacked
from samba_onnx.safety.conversation import Conversation
from tests.pef.forging import dissect, forge

LEAST = np.iinfo(np.int64).min
HEADER = '<ir_version: 10, opset_import: ["": 21]> '


def converted(folder: Path, text: str) -> Path:
    path = folder / "m.pef"
    samba_onnx.convert(onnx.parser.parse_model(HEADER + text), path, sample=False).close()
    return path


@pytest.fixture(scope="module")
def remainder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    text = "g (int64[4] x, int64[4] d) => (int64[4] y) { y = Mod(x, d) }"
    return converted(tmp_path_factory.mktemp("remainder"), text)


@pytest.fixture(scope="module")
def product(tmp_path_factory: pytest.TempPathFactory) -> Path:
    text = (
        "g (float[2, 3] x) => (float[2, 2] y, float[2, 2] z) "
        "<float[3, 2] w = {1, 2, 3, 4, 5, 6}> { y = MatMul(x, w) z = Relu(y) }"
    )
    return converted(tmp_path_factory.mktemp("product"), text)


def forged(path: Path) -> Path:
    """Another graph of the same interface in a stage, with every checksum right, that computes what is deadly."""
    anatomy = dissect(path)
    (name,) = [name for name in anatomy.members if name.endswith(".onnx")]
    stage = onnx.load_from_string(anatomy.members[name])
    output = stage.graph.output[0].name
    del stage.graph.node[:]
    for constant, value in (("half", LEAST // 2), ("b", -1)):
        tensor = onnx.numpy_helper.from_array(np.full(4, value, np.int64), constant)
        stage.graph.node.append(onnx.helper.make_node("Constant", [], [constant], value=tensor))
    stage.graph.node.append(onnx.helper.make_node("Add", ["half", "half"], ["a"]))
    stage.graph.node.append(onnx.helper.make_node("Mod", ["a", "b"], [output]))
    target = path.with_name("forged.pef")
    content = stage.SerializeToString()
    target.write_bytes(
        forge(anatomy, change_members=lambda members: members.update({name: content}))
    )
    return target


def test_results_and_ledger_are_those_of_a_device(product: Path) -> None:
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    with load_pef(product) as pef, samba_onnx.Device(pef) as here, IsolatedDevice(pef) as there:
        for _ in range(3):
            ours, others = here.run({"x": x}), there.run({"x": x})
            assert list(ours) == list(others)
            for name, value in ours.items():
                np.testing.assert_array_equal(others[name], value, strict=True)
        assert list(there.run({"x": x}, "z", section_types={"fwd"})) == ["z"]
        here.run({"x": x}, "z", section_types={"fwd"})
        assert there.ledger.transfers == here.ledger.transfers
        assert there.ledger.totals() == here.ledger.totals()
        assert there.ledger.runs == here.ledger.runs == 4


def test_errors_are_those_of_a_device_and_do_no_harm(product: Path, remainder: Path) -> None:
    x = np.ones((2, 3), np.float32)
    with IsolatedDevice(product) as device:
        with pytest.raises(InputError, match="input 'x' has shape"):
            device.run({"x": x[:1]})
        with pytest.raises(UsageError, match="output 'q' does not exist"):
            device.run({"x": x}, "q")
        with pytest.raises(TypeError, match="other"):
            device.run({"x": x}, other=3)
        assert device.run({"x": x})["y"].tolist() == [[9, 12], [9, 12]]
    with IsolatedDevice(remainder) as device, pytest.raises(ExecutionError, match="by zero"):
        device.run({"x": np.ones(4, np.int64), "d": np.zeros(4, np.int64)})
    with pytest.raises(PefFormatError, match="no such file"):
        IsolatedDevice(product.with_name("none.pef"))


KILLER = """
import sys, numpy as np, samba_onnx
with samba_onnx.load_pef(sys.argv[1]) as pef, samba_onnx.Device(pef) as device:
    device.run({"x": np.full(4, np.iinfo(np.int64).min), "d": np.full(4, -1)})
"""


CRASH = (
    r"\.pef: running it in a child process: native code crashed .* \(SIGFPE: an integer division"
)


def test_data_that_kill_are_an_error_that_says_so(remainder: Path) -> None:
    values = {"x": np.full(4, LEAST), "d": np.full(4, -1)}
    with IsolatedDevice(remainder) as device:
        folder = device._conversation.folder
        with pytest.raises(ExecutionError, match=CRASH):
            device.run(values)
        for again in (lambda: device.run(values), lambda: device.read("y")):
            with pytest.raises(
                ExecutionError, match=r"died of it before \(SIGFPE\); load the same"
            ):
                again()
        assert not folder.exists()
        assert not device.ledger.runs


def test_a_graph_that_kills_while_it_is_loaded_is_one_too(remainder: Path) -> None:
    """The engine computes what is constant when it takes a graph."""
    path = forged(remainder)
    with load_pef(path, verify=True):  # nothing is wrong with the file
        pass
    with pytest.raises(ExecutionError, match=CRASH):
        IsolatedDevice(path)


def test_a_device_takes_its_process_with_it(remainder: Path) -> None:
    """What an isolated one is for: where it is no longer so, it has no use."""
    for path in (remainder, forged(remainder)):
        command = [sys.executable, "-c", KILLER, path]
        answer = subprocess.run(command, capture_output=True, check=False)
        assert answer.returncode == -signal.SIGFPE


def test_a_run_without_end_and_one_without_memory(tmp_path: Path) -> None:
    body = "b (int64 i, bool c, float[2] h) => (bool more, float[2] out) { more = Identity(c) out = Add(h, h) }"  # fmt: skip
    text = (
        "g (float[2] x, int64 n, bool go) => (float[2] y) { y = Loop <body = "
        + body
        + "> (n, go, x) }"
    )
    path = converted(tmp_path, text)
    values = {"x": np.ones(2, np.float32), "n": np.asarray(1 << 62), "go": np.asarray(True)}
    with IsolatedDevice(path, seconds=8) as device:
        device.run(values | {"n": np.asarray(3)})
        with pytest.raises(ModelLimitError, match="it took longer than 8 s and was stopped"):
            device.run(values)
    grown = converted(tmp_path, "g (int64[1] n) => (float[k] y) { y = ConstantOfShape(n) }")
    with IsolatedDevice(grown, memory_bytes=2 << 30) as device, pytest.raises((ModelLimitError, ExecutionError)):  # fmt: skip
        device.run({"n": np.asarray([1 << 40])})


def test_nothing_stays_when_it_is_closed_or_this_process_is_interrupted(product: Path) -> None:
    x = np.ones((2, 3), np.float32)
    device = IsolatedDevice(product)
    child, folder = device._conversation._child, device._conversation.folder
    device.close()
    device.close()
    assert child.returncode is not None
    assert not folder.exists()
    with pytest.raises(ExecutionError, match="was closed; load the same anew"):
        device.run({"x": x})


def test_threads_take_turns(product: Path) -> None:
    with IsolatedDevice(product) as device:
        results: dict[int, float] = {}

        def work(number: int) -> None:
            for _ in range(5):
                results[number] = float(device.run({"x": np.full((2, 3), number, np.float32)})["y"][0, 0])  # fmt: skip

        threads = [threading.Thread(target=work, args=(number,)) for number in range(1, 5)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert results == {number: 9.0 * number for number in range(1, 5)}
        assert device.ledger.runs == 20


def test_what_belongs_to_this_process_is_no_option_of_another(product: Path) -> None:
    with pytest.raises(DeviceError, match="a lock belongs to this process"):
        IsolatedDevice(product, mutex=threading.Lock())


VALUES: list[Any] = [
    None, 3, 2.5, float("inf"), "text", True, [1, [2.5]], ({"a": 1}, (2,)), np.arange(6).reshape(2, 3).T, np.asarray(2.5),
    {"a": np.ones(2, ml_dtypes.bfloat16), 3: [np.zeros((0, 2)), None]}, np.asarray(["a", "ö"], object), frozenset({1, 2}),
]  # fmt: skip


@pytest.mark.parametrize("value", VALUES, ids=repr)
def test_values_survive_the_way_there_and_back(value: Any, tmp_path: Path) -> None:
    back = unpacked(packed(value, tmp_path / "a.safetensors"), tmp_path / "a.safetensors")
    for one, other in zip(leaves(back), leaves(value), strict=True):
        assert type(one) is type(other)
        np.testing.assert_array_equal(one, other)


def leaves(value: Any) -> Iterator[Any]:
    if isinstance(value, dict):
        for key, item in value.items():
            yield from (key, *leaves(item))
    elif isinstance(value, list | tuple):
        for item in (type(value).__name__, *value):
            yield from leaves(item)
    else:
        yield value


def test_tensors_of_torch_are_arrays(tmp_path: Path) -> None:
    back = unpacked(packed([torch.ones(2)], tmp_path / "a"), tmp_path / "a")
    np.testing.assert_array_equal(back[0], np.ones(2, np.float32), strict=True)


def noisy(folder: Path) -> Any:
    """What a child does that prints, and dies when it is told to."""

    def answer(question: dict[str, Any]) -> dict[str, Any]:
        os.write(1, b"{}\nnoise of a library\n")
        if question.get("die"):
            os._exit(3)
        return {"folder": str(folder), **question}

    return answer


def test_what_a_child_prints_is_no_answer() -> None:
    conversation = Conversation("tests.runtime.test_isolated_device:noisy", {}, doing="trying it")
    try:
        assert conversation.ask({"a": 1}) == {"folder": str(conversation.folder), "a": 1}
        with pytest.raises(ExecutionError, match="trying it: the child process failed: noise of a"):
            conversation.ask({"die": True})
    finally:
        conversation.close()
