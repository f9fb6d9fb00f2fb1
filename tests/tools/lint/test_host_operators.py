"""What is said to run on the CPU is what targets say, and what the compiler does."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from samba_onnx.passes.targets import available_targets, load_target
from samba_onnx.tools.lint.host_operators import FOURIER, FUNCTIONS, LAYERS
from samba_onnx.tools.lint.linter import lint_files
from samba_onnx.tools.lint.source import SourceFile


@pytest.mark.parametrize("target", available_targets())
def test_every_operator_has_a_reason_in_every_target(target: str) -> None:
    refused = {row.name for row in load_target(target).unsupported}
    assert {*FUNCTIONS.values(), *LAYERS.values(), FOURIER} <= refused


@pytest.mark.parametrize("name", FUNCTIONS)
def test_every_function_is_one_of_torch(name: str) -> None:
    homes = (torch, torch.nn.functional, torch.Tensor)
    assert any(hasattr(home, name) for home in homes)


@pytest.mark.parametrize("name", LAYERS)
def test_every_layer_is_one_of_torch(name: str) -> None:
    assert issubclass(getattr(torch.nn, name), torch.nn.Module)


@pytest.mark.parametrize(
    ("text", "operators"),
    [
        ("return torch.atan(x)", ["Atan"]),
        ("return x.atan()", ["Atan"]),
        ("return round(2.5) * x", []),
        ("return torch.fft.fft(x)", ["DFT"]),
        ("return torch.relu(x).cumprod(0)", ["CumProd"]),
        ("return self.inner.atan(x)", []),
    ],
)
def test_functions_and_methods(text: str, operators: list[str]) -> None:
    program = f"import torch\nclass A:\n  def forward(self, x: torch.Tensor):\n    {text}\n"
    findings = lint_files([SourceFile("a.py", program.encode())])
    assert [finding.message.split("ONNX's ")[1].split(",")[0] for finding in findings] == operators


def test_a_target_of_ones_own_may_run_it(tmp_path: Path) -> None:
    text = 'extends = "sn40l"\n\n[operators.Atan]\nassumed = ["float32"]\nsource = "ours"\n'
    (tmp_path / "mine.toml").write_text(text)
    program = (
        b"import torch\nclass A:\n  def forward(self, x: torch.Tensor):\n    return x.atan()\n"
    )
    source = SourceFile("a.py", program)
    assert lint_files([source])
    assert lint_files([source], str(tmp_path / "mine.toml")) == ()
