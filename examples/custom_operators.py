"""A network with an operator of its own, trained on the RDU.

The operator and its translations are in ``rms_norm.py``. ``network`` and ``training`` are for
``samba-port convert`` and the like; the program itself trains, and compares what it has learned with torch.
"""

from __future__ import annotations

import copy

import torch
from rms_norm import rms_norm
from torch import Tensor, nn

import samba_onnx as samba

STEPS, BATCH, FEATURES, CLASSES = 20, 16, 8, 3


class Network(nn.Module):
    """Two layers with a normalisation between them; returns the loss and the logits."""

    def __init__(self) -> None:
        """Make the layers."""
        super().__init__()
        self.inner = nn.Linear(FEATURES, 2 * FEATURES)
        self.weight = nn.Parameter(torch.ones(2 * FEATURES))
        self.outer = nn.Linear(2 * FEATURES, CLASSES)

    def forward(self, rows: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        """Map rows (batch, FEATURES) and labels (batch,) to a loss and logits (batch, CLASSES)."""
        normalised, _ = rms_norm(self.inner(rows), self.weight, 1e-6)
        logits = self.outer(torch.relu(normalised))
        return nn.functional.cross_entropy(logits, labels), logits


def batch(seed: int) -> tuple[Tensor, Tensor]:
    """Return rows with labels that can be learned: which of the first features is the largest."""
    rows = torch.randn(BATCH, FEATURES, generator=torch.Generator().manual_seed(seed))
    return rows, rows[:, :CLASSES].argmax(1)


def network() -> tuple[Network, tuple[Tensor, Tensor]]:
    """Return a network and its inputs, for the command line."""
    torch.manual_seed(0)  # so that whoever compares a PEF with it gets the same parameters
    return Network(), batch(0)


def training() -> tuple[Network, tuple[Tensor, Tensor], torch.optim.Optimizer]:
    """Return the same with an optimizer, to be trained."""
    model = Network()
    return model, batch(0), torch.optim.AdamW(model.parameters(), lr=0.01)


def main() -> None:
    """Train on the device and in eager torch, and compare."""
    samba.utils.set_seed(0)
    model = Network()
    reference = copy.deepcopy(model)
    samba.from_torch_model_(model)
    optimizer = samba.optim.AdamW(model.parameters(), lr=0.01)
    inputs = samba.from_named_dict(dict(zip(("rows", "labels"), batch(0), strict=True)))
    pef = samba.session.compile(model, inputs, optimizer, name="network")
    outputs = samba.utils.trace_graph(model, inputs, optimizer, pef=pef)
    # SambaFlow's defaults of AdamW are not those of torch.
    plain = torch.optim.AdamW(reference.parameters(), lr=0.01, betas=(0.9, 0.997), weight_decay=0)
    losses = []
    for step in range(STEPS):
        rows, labels = batch(step)
        named = samba.from_named_dict({"rows": rows, "labels": labels})
        losses.append(samba.to_torch(samba.session.run(named, outputs)[0]).item())
        plain.zero_grad()
        reference(rows, labels)[0].backward()
        plain.step()
    samba.session.to_cpu(model)
    for name, parameter in reference.named_parameters():
        samba.utils.assert_close(parameter, model.get_parameter(name), name, threshold=1e-4)
    print(f"Loss: {losses[0]:.3f} before, {losses[-1]:.3f} after {STEPS} steps; as in torch")


if __name__ == "__main__":
    main()
