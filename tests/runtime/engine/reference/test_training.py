"""A whole step of training on both engines: the same loss, gradients, masks and updates."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import safetensors.torch
import torch

import samba_onnx as samba
from samba_onnx.comparing.residents import read_residents, set_gradients
from samba_onnx.pef import load_pef
from samba_onnx.runtime.device import Device
from samba_onnx.runtime.engine.registry import ENGINES
from tests.runtime.engine.test_independence import Small


def stepped(pef_path: Path, weights: Path, inputs: dict[str, Any], engine: str) -> dict[str, Any]:
    """Return the loss and all residents after two steps."""
    with load_pef(pef_path) as pef, Device(pef, engine=engine, threads=1) as device:
        device.load(read_residents(pef, str(weights)))
        set_gradients(device, pef.manifest, list(pef.manifest.stages().values()))
        values: dict[str, Any] = {}
        for step in range(2):
            outputs = device.run(inputs)
            values |= {f"{name} of step {step}": array for name, array in outputs.items()}
        return values | {name: device.read(name) for name in pef.manifest.residents()}


def test_two_steps_with_dropout(tmp_path: Path) -> None:
    torch.manual_seed(0)
    module = Small().train()
    samba.from_torch_model_(module)
    optimizer = samba.optim.AdamW(module.parameters(), lr=0.01)
    x, labels = torch.randn(4, 3, 8, 8), torch.tensor([0, 1, 2, 3])
    inputs = (
        samba.from_torch_tensor(x, name="x"),
        samba.from_torch_tensor(labels, name="labels"),
    )
    path = samba.session.compile(module, inputs, optimizer, output=tmp_path / "m.pef")
    weights = tmp_path / "m.safetensors"
    state = dict(module.state_dict())
    safetensors.torch.save_file(state, weights)
    feed = {"x": x.numpy(), "labels": labels.numpy()}
    one, other = (stepped(Path(path), weights, feed, engine) for engine in ENGINES)
    assert one.keys() == other.keys()
    assert any("linear" in name for name in one), sorted(one)
    for name, value in one.items():
        # Two steps add up float32 sums of a few hundred terms in other orders.
        np.testing.assert_allclose(value, other[name], rtol=1e-4, atol=1e-5, err_msg=name)
