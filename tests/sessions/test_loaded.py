"""The loaded program: a PEF first, then its device; both go together."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from samba_onnx.errors import NotTracedError, PefError, UsageError
from samba_onnx.sessions.profiler import INIT_RUNTIME, SET_PEF
from samba_onnx.sessions.turns import TURN
from samba_onnx.tensor import DEVICE
from tests.sessions.conftest import Compiled, Parts


def test_a_program_is_loaded_and_then_opened(
    parts: Parts, compiled: Compiled, caplog: pytest.LogCaptureFixture
) -> None:
    program = parts.program
    assert program.only_graph == ""
    for what in (lambda: program.manifest, lambda: program.graph(None), program.required_pef):
        with pytest.raises(NotTracedError, match="has no PEF"):
            what()
    with pytest.raises(NotTracedError, match="has no PEF: call"):
        program.required_device()
    assert (program.ledger, program.profile()) == (None, (None, ()))
    parts.profiler.start_profile()
    pef = program.load(compiled.path)
    assert program.required_pef() is pef
    assert program.only_graph == "forward"
    with pytest.raises(NotTracedError, match="has a PEF that was not traced: call"):
        program.required_device()
    with caplog.at_level(logging.INFO, "samba_onnx.sessions.loaded"):
        device = program.open_device()
    assert caplog.messages == [f"sn_create_session: PEF File: {compiled.path}"]
    assert program.required_device() is device
    # Turns of the session and of the device are the same ones.
    assert device.lock.mutex is TURN.mutex
    assert DEVICE.has("features")
    assert program.ledger is device.ledger
    assert program.profile() == (device.profile, ("forward",))
    assert parts.profiler.names() == (SET_PEF, INIT_RUNTIME)


def test_graphs_and_their_inputs(parts: Parts, compiled: Compiled) -> None:
    program = parts.program
    program.load(compiled.path)
    assert program.graph(None) is program.graph("") is program.graph("forward")
    assert list(program.inputs("forward")) == ["features", "shift"]
    with pytest.raises(UsageError, match="'backward' does not exist; the PEF has forward"):
        program.graph("backward")


def test_what_cannot_be_loaded_changes_nothing(
    parts: Parts, compiled: Compiled, tmp_path: Path
) -> None:
    program = parts.program
    program.load(compiled.path)
    device = program.open_device()
    (tmp_path / "broken.pef").write_bytes(b"no PEF")
    with pytest.raises(PefError):
        program.load(tmp_path / "broken.pef")
    assert program.required_device() is device
    assert DEVICE.attached
    program.close()
    assert (program.pef, program.device, program.only_graph) == (None, None, "")
    assert not DEVICE.attached
