"""What in a forward is found, and what is left alone, besides branches."""

from __future__ import annotations

import pytest

from samba_onnx.tools.lint.linter import lint_files
from samba_onnx.tools.lint.source import SourceFile

HEAD = """\
import torch
import logging
import torch.utils.checkpoint
logger = logging.getLogger(__name__)
class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("count", torch.zeros(()))
    def forward(self, x: torch.Tensor, n: int = 2):
"""


def rules(body: str) -> list[str]:
    """Return the rules that find something in a forward."""
    lines = "".join(f"        {line}\n" for line in body.splitlines())
    findings = lint_files([SourceFile("a.py", f"{HEAD}{lines}".encode())])
    return [finding.rule for finding in findings]


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("return x.item()", ["host-read-in-forward"]),
        ("return x.sum().tolist()", ["host-read-in-forward"]),
        ("return x.detach().cpu().numpy()", ["host-read-in-forward"]),
        ("return float(x.sum())", ["host-read-in-forward"]),
        ("return x * int(n)", []),
        ("return x.reshape(int(x.shape[0] / 2), -1)", []),
        ("return torch.zeros(3).max().item() * x", []),
    ],
)
def test_values_that_are_read(body: str, expected: list[str]) -> None:
    assert rules(body) == expected


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("return x[x > 0]", ["size-by-values"]),
        ("return x.nonzero()", ["size-by-values"]),
        ("return torch.masked_select(x, x > 0)", ["size-by-values"]),
        ("return torch.where(x > 0)", ["size-by-values"]),
        ("return torch.where(x > 0, x, 0)", []),
        ("x[x > 0] = 0", []),
        ("return x[n > 1]", []),
        ("return x[:, 0]", []),
    ],
)
def test_sizes(body: str, expected: list[str]) -> None:
    assert rules(body) == expected


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("return x + torch.randn(2)", ["random-in-forward"]),
        ("return torch.bernoulli(x)", ["random-in-forward"]),
        ("return x.normal_()", ["random-in-forward"]),
        ("return torch.nn.functional.dropout(x, 0.1)", []),
        ("return self.normal_()", []),
    ],
)
def test_random_numbers(body: str, expected: list[str]) -> None:
    assert rules(body) == expected


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("return x.to(torch.float16)", ["data-type"]),
        ("return x.half()", ["data-type"]),
        ("return x.to(torch.bfloat16)", []),
        ("return x if x.dtype == torch.float16 else -x", []),
        ("return x if x.dtype in (torch.float16, torch.float64) else -x", []),
        ("return x + torch.finfo(torch.float16).min", []),
    ],
)
def test_data_types(body: str, expected: list[str]) -> None:
    assert rules(body) == expected


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("self.last = x", ["state-in-attribute"]),
        ("self.all = [x]", ["state-in-attribute"]),
        ("self.size = x.shape[0]", []),
        ("self.count += x.sum()", []),
        ("self.count = self.count + 1", []),
    ],
)
def test_what_stays_in_the_module(body: str, expected: list[str]) -> None:
    assert rules(body) == expected


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("logger.info('x')", ["print-in-forward"]),
        ("print(1)", ["print-in-forward"]),
        ("x.log()", []),
        ("x.sum().backward()", ["cannot-be-traced"]),
        ("return torch.cond(x.sum() > 0, f, g, (x,))", ["cannot-be-traced"]),
    ],
)
def test_output_and_what_is_refused(body: str, expected: list[str]) -> None:
    assert rules(body) == expected


def test_a_place_is_found_once() -> None:
    text = f"{HEAD}        return self.a(x) + self.a(x)\n    def a(self, y):\n        return y.item()\n"
    (finding,) = lint_files([SourceFile("a.py", text.encode())])
    assert (finding.line, finding.column) == (12, 16)
