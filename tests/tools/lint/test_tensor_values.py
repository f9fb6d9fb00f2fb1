"""What is a value of a tensor in a forward, and what is the same in every run."""

from __future__ import annotations

import pytest

from samba_onnx.tools.lint.linter import lint_files
from samba_onnx.tools.lint.source import SourceFile

HEAD = """\
import torch
import torch.nn as nn
import torch.nn.functional as F
from typing import Optional
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 4)
        self.weight = nn.Parameter(torch.zeros(4))
        self.register_buffer("count", torch.zeros(()))
        self.limit = 3
    def forward({parameters}):
{body}
    def helper(self, a, b):
        return a if a > b else b
    def pair(self, a, n):
        return a, n
    def early(self, a):
        return self.late(a.sum())
    def late(self, a):
        return self.later(a)
    def later(self, a):
        return 1 if a > 0 else 2
    def twice(self, a):
        if a:
            return 2
        return 1
def chosen(a, b=None):
    while a > 0:
        a = a - 1
    return a
"""


def branches(body: str, parameters: str = "self, x: torch.Tensor, n: int = 1") -> int:
    """Return how many branches by values are found in a forward."""
    lines = "\n".join(f"        {line}" for line in body.splitlines())
    source = SourceFile("a.py", HEAD.format(parameters=parameters, body=lines).encode())
    findings = lint_files([source])
    return sum(finding.rule == "branch-on-values" for finding in findings)


@pytest.mark.parametrize(
    "body",
    [
        "if x.sum() > 0: pass",
        "while (x > 1).all(): x = x / 2",
        "y = 1 if torch.any(x) else 2",
        "assert x.min() >= 0",
        "if n > 1 and x[0] > 0: pass",
        "if not bool(x.max()): pass",
        "if self.layer(x).mean() > 0: pass",
        "if self.weight.sum() > 0: pass",
        "if self.count > 3: pass",
        "y = x * 2\nz = y.view(-1)\nif z[0] > z[1]: pass",
        "a, b = x.chunk(2)\nif b.sum(): pass",
        "total = 0\nfor row in x:\n    if total > 1: pass\n    total = total + row.sum()",
        "y = [part for part in x if part.sum() > 0]",
        "y = self.helper(x[0], x[1])",
        "y = chosen(x.sum())",
        "y = chosen(b=1, a=x.sum())",
        "y = self.late(n)\nz = self.late(x.sum())",
        "y = self.late(x.sum())\nz = self.late(n)",
        "y = self.early(x)\nz = self.late(n)",
        "if (y := x.sum()) > 0: pass",
        "y = 0\ny += x.sum()\nif y: pass",
        "match x.sum():\n    case 0: pass",
        "if F.relu(x).sum().item() > 0: pass",
        "if max(x.sum(), 1) > 2: pass",
        "for i, row in enumerate(x):\n    if row.sum() > 0: pass",
        "for k, v in {'a': x}.items():\n    if v.sum() > 0: pass",
        "y, z = self.pair(x, n)\nif y.sum() > 0: pass",
        "y, (a, b) = self.layer(x)\nif b.sum() > 0: pass",
        "def inner():\n    if x.sum() > 0: pass",
    ],
)
def test_branches_on_values(body: str) -> None:
    assert branches(body) == 1


@pytest.mark.parametrize(
    "body",
    [
        "if x.shape[0] > 1: pass",
        "if x.size(0) == x.dim(): pass",
        "if len(x) > 1: pass",
        "if x is None or x is not None: pass",
        "if self.training and n > 2: pass",
        "if isinstance(x, torch.Tensor): pass",
        "if x.dtype == torch.float32 and x.device.type == 'cpu': pass",
        "b, c = x.shape\nif b > c: pass",
        "if torch.is_tensor(x): pass",
        "parts = [x, x]\nif len(parts) > 1: pass",
        "parts = x.chunk(2)\nif n in (1, 2): pass",
        "for i, row in enumerate(x):\n    if i > 0: pass",
        "x = x.shape[0]\nif x > 1: pass",
        "mask = torch.zeros_like(x)\nif mask.sum() > 0: pass",
        "steps = torch.arange(x.shape[0])\nif steps.sum() > 3: pass",
        "if self.limit > 3: pass",
        "y = self.twice(n)",
        "y = chosen(n)",
        "y = torch.where(x > 0, x, 0)",
        "y = f'{x}'\nif y: pass",
        "if x.is_nested or x.is_contiguous() or torch.is_inference(x): pass",
        "y, size = self.pair(x, n)\nif size > 0: pass",
        "if hasattr(x, 'foo') or torch.is_grad_enabled(): pass",
    ],
)
def test_what_is_the_same_in_every_run_is_no_value(body: str) -> None:
    assert branches(body) == 0


@pytest.mark.parametrize(
    ("parameters", "count"),
    [
        ("self, x: torch.Tensor", 1),
        ("self, x: 'torch.Tensor'", 1),
        ("self, x: Optional[torch.LongTensor] = None", 1),
        ("self, x: torch.Tensor | None = None", 1),
        ("self, x: int", 0),
        ("self, x: bool = False", 0),
        ("self, x", 0),
        ("self, x=1", 0),
        ("self, *, x: torch.Tensor", 1),
        ("self, y, /, x: torch.Tensor", 1),
        ("self, y=None, *x", 0),
        ("self, y=None, *, x=None, **z", 0),
    ],
)
def test_parameters_by_their_annotation(parameters: str, count: int) -> None:
    assert branches("if x > 0: pass", parameters) == count


@pytest.mark.parametrize(
    ("use", "count"),
    [
        ("y = x.view(-1)", 1),
        ("y = x.shape", 1),
        ("y = self.layer(x)", 1),
        ("y = torch.relu(x)", 1),
        ("y = self.layer(1, x)", 0),
        ("y = print(x)", 0),
        ("y = x + 1", 0),
    ],
)
def test_parameters_by_what_is_done_with_them(use: str, count: int) -> None:
    assert branches(f"{use}\nif x > 0: pass", "self, x") == count


@pytest.mark.parametrize(
    "text",
    [
        "class A(torch.autograd.Function):\n  @staticmethod\n  def forward(ctx, x: torch.Tensor):\n",
        "class A:\n  def other(self, x: torch.Tensor):\n",
        "def forward(x: torch.Tensor):\n",
    ],
)
def test_what_is_no_forward_of_a_module_is_not_traced(text: str) -> None:
    program = f"import torch\n{text}    if x.sum() > 0: return x\n"
    assert lint_files([SourceFile("a.py", program.encode())]) == ()


def test_a_method_of_a_base_is_followed() -> None:
    program = (
        "class Base:\n  def choose(self, y):\n    if y > 0: return 1\n"
        "class Net(Base):\n  def forward(self, x: Tensor):\n    return self.choose(x)\n"
    )
    (finding,) = lint_files([SourceFile("a.py", program.encode())])
    assert (finding.line, finding.rule) == (3, "branch-on-values")


def test_functions_that_call_each_other_end() -> None:
    program = (
        "class Net:\n  def forward(self, x: Tensor):\n    return self.a(x)\n"
        "  def a(self, y):\n    return self.b(y)\n  def b(self, z):\n    if z > 0: return self.a(z)\n"
    )
    (finding,) = lint_files([SourceFile("a.py", program.encode())])
    assert finding.line == 7
