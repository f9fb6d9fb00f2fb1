"""What a machine says of processes that really live, stop and die."""

from __future__ import annotations

import dataclasses
import os
import signal
import subprocess
import time

import pytest

from samba_onnx.safety.processes import Life, ProcessIdentity, _status

if not os.path.exists("/proc/self/stat"):
    pytest.skip("this system tells nothing of processes", allow_module_level=True)


def identity(pid: int) -> ProcessIdentity:
    return dataclasses.replace(ProcessIdentity.own(), pid=pid, started=_status(pid)[1])


def until(process: ProcessIdentity, life: Life) -> bool:
    ends = time.monotonic() + 300
    while process.life() is not life and time.monotonic() < ends:
        time.sleep(0.01)
    return process.life() is life


def test_a_process_lives_stops_and_dies() -> None:
    own = ProcessIdentity.own()
    assert (own.pid, own.life()) == (os.getpid(), Life.RUNNING)
    with subprocess.Popen(["sleep", "600"]) as child:
        other = identity(child.pid)
        other.end_if_stopped()
        assert other.life() is Life.RUNNING
        child.send_signal(signal.SIGSTOP)
        assert until(other, Life.STOPPED)
        other.end_if_stopped()
        # Nobody has asked yet how it ended: its entry is still there.
        assert until(other, Life.GONE)
        assert child.wait() == -signal.SIGTERM
    assert other.life() is Life.GONE


def test_an_id_that_is_used_again_is_another_process() -> None:
    own = ProcessIdentity.own()
    assert dataclasses.replace(own, started="1").life() is Life.GONE
    assert dataclasses.replace(own, realm="elsewhere").life() is Life.UNKNOWN
    assert dataclasses.replace(own, started="").life() is Life.UNKNOWN
