"""What the rules about programs call an error is one when the program runs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch

import samba_onnx as samba
from samba_onnx.errors import SambaError
from samba_onnx.sambaflow import samba as sambaflow_samba
from samba_onnx.tools.lint.findings import Severity
from samba_onnx.tools.lint.program_rules import PROGRAM_RULES
from samba_onnx.tools.lint.rule_table import RULES


@dataclass(frozen=True)
class Traced:
    """A model that was compiled and traced for batches of four."""

    model: torch.nn.Module
    inputs: tuple[torch.Tensor, ...]
    outputs: Any


@pytest.fixture
def traced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Traced]:
    monkeypatch.chdir(tmp_path)
    model = torch.nn.Linear(4, 3).eval()
    samba.from_torch_model_(model)
    inputs = (samba.randn(4, 4, name="image"),)
    pef = samba.session.compile(model, inputs)
    yield Traced(model, inputs, samba.utils.trace_graph(model, inputs, pef=pef))
    samba.session.reset()


def unnamed_run_input(traced: Traced) -> None:
    samba.session.run([samba.from_torch_tensor(torch.zeros(4, 4))], traced.outputs)


def sections_twice(traced: Traced) -> None:
    samba.session.run(traced.inputs, traced.outputs, section_types=["FWD"], section_ids=[0])


def optimizer(traced: Traced) -> None:
    other = torch.optim.RMSprop(traced.model.parameters())
    samba.session.compile(traced.model, traced.inputs, other)


def optimizer_before_conversion(traced: Traced) -> None:
    model = torch.nn.Linear(4, 3)
    early = samba.optim.SGD(model.parameters(), lr=0.1)
    samba.from_torch_model_(model)
    samba.session.compile(model, traced.inputs, early)


def refused_hook(traced: Traced) -> None:
    traced.model.register_backward_hook(lambda *_: None)
    sgd = samba.optim.SGD(traced.model.parameters(), lr=0.1)
    samba.session.compile(traced.model.train(), traced.inputs, sgd)


def run_before_trace(traced: Traced) -> None:
    samba.session.reset()
    samba.session.run(traced.inputs, traced.outputs)


def smaller_last_batch(traced: Traced) -> None:
    rest = samba.from_torch_tensor(torch.zeros(3, 4), name="image")
    samba.session.run([rest], traced.outputs)


def missing_name(traced: Traced) -> None:
    sambaflow_samba.groupby(traced.inputs[0])


def unknown_name(traced: Traced) -> None:
    sambaflow_samba.session.execute(traced.inputs)  # type: ignore[attr-defined]


REFUSED = {
    "unnamed-run-input": unnamed_run_input,
    "sections-twice": sections_twice,
    "optimizer": optimizer,
    "optimizer-before-conversion": optimizer_before_conversion,
    "refused-hook": refused_hook,
    "run-before-trace": run_before_trace,
    "smaller-last-batch": smaller_last_batch,
    "missing-name": missing_name,
    "unknown-name": unknown_name,
}
ON_DEVICES_ONLY = {"odd-batch"}
"""Errors of one device, which the emulator does not have."""


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_called_an_error_is_refused_in_one_line(name: str, traced: Traced) -> None:
    # Python's own error for a name that nobody has.
    with pytest.raises(AttributeError if name == "unknown-name" else SambaError) as caught:
        REFUSED[name](traced)
    assert "\n" not in str(caught.value)


def test_every_error_of_programs_is_tried() -> None:
    errors = {rule.id for rule in PROGRAM_RULES if rule.severity is Severity.ERROR}
    assert errors - ON_DEVICES_ONLY == REFUSED.keys() - {"smaller-last-batch"}
    assert RULES.keys() >= REFUSED.keys()
