"""A forked process is refused the device of its parent in one line, and makes one of its own."""

from __future__ import annotations

import multiprocessing
import os
import select
import threading
import weakref
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from samba_onnx.errors import DeviceError
from samba_onnx.pef import Pef, load_pef, reader
from samba_onnx.runtime import locking
from samba_onnx.runtime.device import Device
from samba_onnx.runtime.locking import DeviceLock, RenewedMutex
from tests.runtime.building import build
from tests.runtime.test_threads import X, mixed, small

pytestmark = [
    pytest.mark.skipif(not hasattr(os, "fork"), reason="the system has no fork"),
    pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning"),
]
PATIENCE = 300
"""Seconds after which a child is taken to hang; it answers in milliseconds."""


def in_child(work: Callable[[], Any]) -> str:
    """Fork, and return what the child says: its result, or its exception."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            answer = str(work())
        except BaseException as error:
            answer = f"{type(error).__name__}: {error}"
        os.write(writing, answer.encode())
        os._exit(0)
    os.close(writing)
    try:
        ready, _, _ = select.select([reading], [], [], PATIENCE)
        assert ready, "the child hangs"
        return os.read(reading, 1 << 16).decode()
    finally:
        os.kill(child, 9)
        os.waitpid(child, 0)
        os.close(reading)


def refusal(parent: int) -> str:
    return f"DeviceError: the device belongs to process {parent}, and this is process "


USES: dict[str, Callable[[Device], Any]] = {
    "run": lambda device: device.run({"x": X}),
    "sections": lambda device: device.run({"x": X}, section_ids=[0]),
    "read": lambda device: device.read("x"),
    "write": lambda device: device.write("x", X),
    "load": lambda device: device.load({}),
    "ledger": lambda device: device.ledger.totals(),
    "reset": lambda device: device.ledger.reset(),
    "profile": lambda device: device.profile.calls("main"),
}


@pytest.mark.parametrize("use", USES)
def test_every_use_is_refused_in_one_line(tmp_path: Path, use: str) -> None:
    with build(tmp_path, mixed()) as pef, Device(pef, threads=1) as device:
        expected = device.run({"x": X})["y"]
        answer = in_child(lambda: USES[use](device))
        assert answer.startswith(refusal(os.getpid()))
        assert "'spawn'" in answer
        assert "new Device" in answer
        assert "\n" not in answer
        np.testing.assert_array_equal(device.run({"x": X})["y"], expected)


def test_replays_are_refused_too(tmp_path: Path) -> None:
    with build(tmp_path, small()) as pef, Device(pef, threads=1) as device:
        for _ in range(3):
            device.run({"x": X})
        assert in_child(lambda: device.run({"x": X})).startswith(refusal(os.getpid()))


def test_a_child_makes_a_device_of_its_own_and_lets_the_parents_go(tmp_path: Path) -> None:
    with build(tmp_path, mixed()) as pef, Device(pef, threads=1) as device:
        device.run({"x": X})

        def work() -> Any:
            device.close()
            with Device(pef, threads=1) as own:
                first = own.run({"x": 3 * X})["y"].tolist()
            with load_pef(pef.path) as again, Device(again, threads=2) as own:
                grandchild = in_child(lambda: own.run({"x": X}))
                assert grandchild.startswith(refusal(os.getpid())), grandchild
                return first, own.run({"x": X})["y"].tolist()

        assert in_child(work) == str(((6 * X).tolist(), (2 * X).tolist()))
        np.testing.assert_array_equal(device.run({"x": X})["y"], 2 * X)


def test_nothing_waits_for_a_turn_that_was_taken_while_forking(tmp_path: Path) -> None:
    with build(tmp_path, mixed()) as pef, Device(pef, threads=1) as device:
        entered, leave = threading.Event(), threading.Event()

        def hold() -> None:
            with device.lock.mutex:
                entered.set()
                leave.wait()

        holder = threading.Thread(target=hold)
        holder.start()
        entered.wait()
        try:
            answer = in_child(lambda: device.run({"x": X}))
        finally:
            leave.set()
            holder.join()
        assert answer.startswith(refusal(os.getpid()))


def test_forks_while_threads_run(tmp_path: Path) -> None:
    with build(tmp_path, small()) as pef, Device(pef, threads=1) as device:
        stop = threading.Event()

        def run() -> None:
            while not stop.is_set():
                np.testing.assert_array_equal(device.run({"x": X})["y"], X)

        threads = [threading.Thread(target=run) for _ in range(3)]
        for thread in threads:
            thread.start()
        try:
            for _ in range(5):
                assert in_child(lambda: device.run({"x": X})).startswith(refusal(os.getpid()))
        finally:
            stop.set()
            for thread in threads:
                thread.join()


def test_a_fork_within_a_turn_leaves_it_in_both_processes(tmp_path: Path) -> None:
    with build(tmp_path, small()) as pef, Device(pef, threads=1) as device:

        def forking() -> str:
            with device.lock.mutex:
                return in_child(lambda: device.run({"x": X}))

        assert forking().startswith(refusal(os.getpid()))
        np.testing.assert_array_equal(device.run({"x": X})["y"], X)


def test_a_verification_that_runs_in_the_parent_is_begun_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its thread is not in the child, which must not wait for it."""
    begun, leave = threading.Event(), threading.Event()

    def slow(_pef: Pef, future: Future[None]) -> None:
        begun.set()
        leave.wait()
        future.set_result(None)

    monkeypatch.setattr(reader, "EAGER_LIMIT", 0)
    with build(tmp_path, small()) as pef:
        with monkeypatch.context() as patch:
            patch.setattr(Pef, "_fulfil", slow)
            pef.start_verification()
            begun.wait()

        def work() -> Any:
            with Device(pef, threads=1) as own:
                own.run({"x": X})
            pef.close()
            return "done"

        try:
            assert in_child(work) == "done"
            assert not pef.start_verification().done()
        finally:
            leave.set()


def _run(device: Device, answers: Any) -> None:
    try:
        answers.put(device.run({"x": X}))
    except DeviceError as error:
        answers.put(str(error))


def test_processes_of_multiprocessing(tmp_path: Path) -> None:
    with build(tmp_path, small()) as pef, Device(pef, threads=1) as device:
        context = multiprocessing.get_context("fork")
        answers = context.SimpleQueue()
        child = context.Process(target=_run, args=(device, answers))
        child.start()
        child.join(PATIENCE)
        assert child.exitcode == 0
        assert "'spawn'" in answers.get()


def test_locks_after_a_fork() -> None:
    lock = DeviceLock()
    assert not lock.is_foreign
    lock.refuse()
    lock.refuse()
    assert lock.is_foreign
    with pytest.raises(DeviceError, match="forked from it: start"), lock.mutex:
        pass


def test_a_mutex_of_the_whole_process_is_a_new_one_in_a_child() -> None:
    renewed = RenewedMutex()
    before = renewed.mutex
    assert in_child(lambda: (renewed.mutex is before, renewed.mutex.__enter__())) == "(False, True)"
    assert renewed.mutex is before
    renewed.renew()
    assert renewed.mutex is not before
    with renewed.mutex, renewed.mutex, before:
        pass


@dataclass(eq=False)
class Parent:
    """A device of the parent, as the child finds it."""

    lock: DeviceLock


def test_a_child_refuses_and_keeps_every_device_of_its_parent(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """To let one go would be to wait for threads that are in the parent only."""
    in_use: weakref.WeakSet[locking.Locked] = weakref.WeakSet()
    abandoned: list[locking.Locked] = []
    monkeypatch.setattr(locking, "_IN_USE", in_use)
    monkeypatch.setattr(locking, "_ABANDONED", abandoned)
    devices = [Parent(DeviceLock()), Parent(DeviceLock())]
    for device in devices:
        locking.refuse_in_children(device)
    locking._abandon()
    assert all(device.lock.is_foreign for device in devices)
    assert {id(device) for device in abandoned} == {id(device) for device in devices}
