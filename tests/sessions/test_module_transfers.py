"""Whole modules go to the device and come back."""

from __future__ import annotations

import pytest
import torch

import samba_onnx as samba
from samba_onnx.errors import NoDeviceError
from samba_onnx.sessions.module_transfers import (
    fetch_buffers,
    fetch_module,
    send_buffers,
    send_module,
)
from tests.sessions.conftest import Compiled, Parts


def test_parameters_are_sent_and_fetched(parts: Parts, compiled: Compiled) -> None:
    for copy in (fetch_module, send_module, fetch_buffers, send_buffers):
        with pytest.raises(NoDeviceError, match="no program is loaded"):
            copy(compiled.model)
    parts.tracer.trace(compiled.model, compiled.inputs, pef=compiled.path)
    device = parts.program.required_device()
    bias = compiled.model.outer.bias
    before = bias.data.clone()
    place = bias.data_ptr()
    device.write("classifier__outer__bias", (2 * before).numpy())
    fetch_module(compiled.model, inplace=True)
    torch.testing.assert_close(samba.to_torch(bias.data), samba.to_torch(2 * before))
    assert bias.data_ptr() == place
    with torch.no_grad():
        bias.copy_(before)
    send_module(compiled.model)
    assert device.read("classifier__outer__bias").tolist() == before.tolist()
    # It has no buffers, so that there is nothing to do.
    count = len(device.ledger.transfers)
    fetch_buffers(compiled.model)
    send_buffers(compiled.model)
    assert len(device.ledger.transfers) == count
