"""What ``compile`` says of the outputs that it takes for losses, and that tracing keeps to it."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import samba_onnx as samba
from samba_onnx.compiling.torch.session_records import read_records
from samba_onnx.pef import load_pef
from samba_onnx.sessions import SambaSession

LOGGER = "samba_onnx.compiling.torch.torch_programs"


class Autoencoder(nn.Module):
    """Returns a loss and the reconstruction that it judges."""

    def __init__(self, combine: Callable[[Tensor, Tensor], Any]) -> None:
        super().__init__()
        self.encoder, self.decoder = nn.Linear(6, 2), nn.Linear(2, 6)
        self.criterion = nn.MSELoss()
        self.combine = combine

    def forward(self, x: Tensor) -> Any:
        reconstruction = self.decoder(torch.tanh(self.encoder(x)))
        return self.combine(self.criterion(reconstruction, x), reconstruction)


def hand_written(_loss: Tensor, reconstruction: Tensor) -> Any:
    return (reconstruction - 1).square().mean(), reconstruction


def compiled(
    session: SambaSession, tmp_path: Path, combine: Callable[[Tensor, Tensor], Any], **options: Any
) -> tuple[nn.Module, Any, torch.optim.Optimizer, str]:
    model = Autoencoder(combine).train()
    samba.from_torch_model_(model)
    optimizer = samba.optim.SGD(model.parameters(), lr=0.5)
    inputs = (samba.SambaTensor(torch.randn(4, 6), name="x"),)
    path = session.compile(model, inputs, optimizer, output=tmp_path / "m.pef", **options)
    return model, inputs, optimizer, path


def said(caplog: pytest.LogCaptureFixture) -> list[tuple[int, str]]:
    return [(level, text) for name, level, text in caplog.record_tuples if name == LOGGER]


def notes_of_losses(path: str) -> list[str]:
    with load_pef(path) as pef:
        return [note for note in pef.manifest.notes if "starts from" in note]


def test_losses_that_were_recognised_are_logged(
    session: SambaSession, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "samba_onnx")
    model, inputs, optimizer, path = compiled(session, tmp_path, lambda loss, o: (o, loss))
    sentence = (
        "Training starts from output 1 'autoencoder__criterion__mse_loss__outputs__0' (MSELoss): a "
        "loss returned it, or what it was scaled, added or selected of. Name others in loss_indices, "
        "or by --loss-index."
    )
    assert said(caplog) == [(logging.INFO, f"Autoencoder: {sentence}")]
    assert notes_of_losses(path) == [sentence]
    # Tracing is told what was guessed; it does not guess, and says nothing.
    with load_pef(path) as pef:
        (record,) = read_records(pef).values()
    assert record.loss_indices == [1]
    samba.utils.trace_graph(model, inputs, optimizer, pef=path)
    assert len(said(caplog)) == 1


def test_the_gradients_are_those_of_the_loss(session: SambaSession, tmp_path: Path) -> None:
    model, inputs, optimizer, path = compiled(session, tmp_path, lambda loss, o: (loss, o))
    outputs = samba.utils.trace_graph(model, inputs, optimizer, pef=path)
    session.run(inputs, outputs, section_types=["FWD", "BCKWD"])
    loss, _ = Autoencoder.forward(model, samba.to_torch(inputs[0]))  # type: ignore[arg-type]
    samba.to_torch(loss).backward()
    for parameter in model.parameters():
        torch.testing.assert_close(
            samba.to_torch(parameter.sn_grad),  # type: ignore[attr-defined]
            samba.to_torch(parameter.grad),
            rtol=1e-5,
            atol=1e-7,
        )


@pytest.mark.parametrize(
    ("combine", "level", "start"),
    [
        (lambda loss, o: o, logging.WARNING, "Training starts from output 0 '"),
        (lambda loss, o: (o - 1).square().mean(), logging.INFO, "Training starts from output 0 '"),
        (
            lambda loss, o: {"loss": (o - 1).square().mean(), "o": o},
            logging.INFO,
            "Training starts",
        ),
        (lambda loss, o: (loss.sqrt(), o), logging.INFO, "Training starts from output 0 '"),
    ],
)
def test_outputs_that_nobody_called_losses_are_a_warning(
    combine: Callable[[Tensor, Tensor], Any],
    level: int,
    start: str,
    session: SambaSession,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, "samba_onnx")
    _, _, _, path = compiled(session, tmp_path, combine)
    ((logged, text),) = said(caplog)
    assert logged == level
    assert text.startswith(f"Autoencoder: {start}")
    assert text.endswith("Name others in loss_indices, or by --loss-index.")
    assert len(notes_of_losses(path)) == 1


def test_nothing_is_said_of_losses_that_were_named(
    session: SambaSession, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "samba_onnx")
    _, _, _, path = compiled(session, tmp_path, hand_written, loss_indices=[0])
    assert said(caplog) == []
    assert notes_of_losses(path) == []
