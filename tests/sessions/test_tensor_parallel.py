"""Programs of SambaFlow with ``--tensor-parallel`` and ``--n-chips``: trained on several RDUs as on one.

Sums are added in another order: weights of magnitude 0.3 differ by rounding of float32, 1e-6 behind three steps.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import samba_onnx as samba
from samba_onnx.pef.manifest import Cause
from samba_onnx.sessions import SESSION


class Perceptron(nn.Module):
    """Two linear layers with a loss."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.up, self.down = nn.Linear(6, 8), nn.Linear(8, 4)

    def forward(self, x: torch.Tensor, labels: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        scores = self.down(self.up(x).relu())
        return nn.functional.cross_entropy(scores, labels), scores


def trained(folder: Path, **settings: Any) -> tuple[list[float], np.ndarray, list[np.ndarray]]:
    """Return losses, the last scores, and weights on the host behind three steps."""
    model = Perceptron()
    samba.from_torch_model_(model)
    torch.manual_seed(1)
    x = samba.from_torch_tensor(torch.randn(8, 6), name="x")
    labels = samba.from_torch_tensor(torch.randint(0, 4, (8,)), name="labels")
    optimizer = samba.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    settings |= {"output_folder": str(folder), "pef_name": "m"}
    path = samba.session.compile(model, (x, labels), optimizer, config_dict=settings)
    outputs = samba.utils.trace_graph(model, (x, labels), optimizer, pef=path)
    losses = []
    for _ in range(3):
        loss, scores = samba.session.run(
            (x, labels), outputs, section_types=["FWD", "BCKWD", "OPT"]
        )
        losses.append(float(loss.mean()))
    samba.session.to_cpu(model)
    return losses, scores.detach().numpy(), [p.detach().numpy().copy() for p in model.parameters()]


@pytest.mark.parametrize(("mode", "chips"), [("weight", 2), ("weight", 4), ("batch", 4)])
def test_steps_are_those_of_one_rdu(mode: str, chips: int, tmp_path: Path) -> None:
    losses, scores, weights = trained(tmp_path / "one")
    SESSION.reset()
    cut = trained(tmp_path / "several", tensor_parallel=mode, n_chips=chips)
    assert losses[2] < losses[0]
    np.testing.assert_allclose(cut[0], losses, rtol=1e-6)
    np.testing.assert_allclose(cut[1], scores, rtol=0, atol=1e-6)
    for value, wanted in zip(cut[2], weights, strict=True):
        np.testing.assert_allclose(value, wanted, rtol=0, atol=1e-6)
    sent = [total for total in samba.session.transfers.totals() if total.cause is Cause.COLLECTIVE]
    assert sent
