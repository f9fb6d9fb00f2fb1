"""Programs that would train nothing, or not what they mean, are refused or told so."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import samba_onnx as samba
from samba_onnx.errors import UsageError
from samba_onnx.sessions import SambaSession

LOGGER = "samba_onnx.sessions.gradient_overwrites"


class Classified(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 3)

    def forward(self, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        logits = self.layer(x)
        return nn.functional.cross_entropy(logits, y), logits


def parts() -> tuple[nn.Module, tuple[Any, ...], torch.optim.Optimizer]:
    model = Classified()
    samba.from_torch_model_(model)
    optimizer = samba.optim.SGD(model.parameters(), lr=0.1)
    return model, (samba.randn(5, 4, name="x"), samba.randint(3, (5,), name="y")), optimizer


@pytest.mark.filterwarnings("ignore::FutureWarning")  # torch's exporter of torch's export
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("way", ["without optimizer", "inference", "converted"])
def test_a_pef_that_only_runs_forward_is_not_traced_with_an_optimizer(
    way: str, session: SambaSession, tmp_path: Path
) -> None:
    model, inputs, optimizer = parts()
    path = tmp_path / "m.pef"
    if way == "without optimizer":
        session.compile(model, inputs, output=path)
    elif way == "inference":
        session.compile(model, inputs, optimizer, inference=True, output=path)
    else:
        sizes = tuple(torch.empty(t.shape, dtype=t.dtype) for t in inputs)
        onnx_path = tmp_path / "m.onnx"
        torch.onnx.export(Classified().eval(), sizes, onnx_path, dynamo=True, verbose=False)
        samba.convert(onnx_path, path).close()
    with pytest.raises(UsageError) as caught:
        samba.utils.trace_graph(model, inputs, optimizer, pef=str(path))
    assert f"{path} was compiled for inference and has no backward pass" in str(caught.value)
    assert (
        "was given SGD: to train, compile with samba.session.compile(model, inputs, optim"
        in str(caught.value)
    )
    other = samba.optim.AdamW(model.parameters())
    with pytest.raises(UsageError, match="given SGD, AdamW"):
        samba.utils.trace_graph(model, inputs, [optimizer, other], pef=str(path))


def traced(session: SambaSession, folder: Path, **options: Any) -> tuple[Any, Any]:
    model, inputs, optimizer = parts()
    path = session.compile(model, inputs, optimizer, output=folder / "m.pef", **options)
    return inputs, samba.utils.trace_graph(model, inputs, optimizer, pef=path)


def said(caplog: pytest.LogCaptureFixture) -> list[tuple[int, str]]:
    return [(level, text) for name, level, text in caplog.record_tuples if name == LOGGER]


@pytest.mark.parametrize(
    "runs",
    [
        (["FWD", "BCKWD"], ["FWD", "BCKWD"]),
        (["FWD", "BCKWD"], ["FWD"], ["BCKWD"], ["OPT"]),
        (["FWD", "BCKWD"], []),
        ([], ["FWD", "BCKWD"], ["FWD", "BCKWD"], ["FWD", "BCKWD"], ["OPT"]),
    ],
)
def test_gradients_that_nobody_used_are_spoken_of_once(
    runs: tuple[list[str], ...],
    session: SambaSession,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    inputs, outputs = traced(session, tmp_path)
    for types in (*runs, *runs):
        session.run(inputs, outputs if "FWD" in types else [], section_types=types)
    ((level, text),) = said(caplog)
    assert level == logging.WARNING
    assert "gradient_accumulation=True" in text


@pytest.mark.parametrize(
    "runs",
    [
        ([], []),
        (["FWD", "BCKWD"], ["OPT"], ["FWD", "BCKWD"], ["FWD"], ["OPT"], []),
        (["FWD"], ["FWD"], ["FWD", "BCKWD", "OPT"], ["FWD", "BCKWD", "OPT"]),
    ],
)
def test_nothing_is_said_of_gradients_that_count(
    runs: tuple[list[str], ...],
    session: SambaSession,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    inputs, outputs = traced(session, tmp_path)
    for types in runs:
        session.run(inputs, outputs if "FWD" in types else [], section_types=types)
    assert said(caplog) == []


def test_nothing_is_said_where_gradients_accumulate(
    session: SambaSession, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    inputs, outputs = traced(session, tmp_path, gradient_accumulation=True)
    session.run(section_types=["ZEROGRAD"])
    for _ in range(3):
        session.run(inputs, outputs, section_types=["FWD", "BCKWD"])
    assert said(caplog) == []
