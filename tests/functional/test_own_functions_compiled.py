"""SambaFlow's own functions in compiled graphs, forward and backward, against themselves in torch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import samba_onnx as samba
from samba_onnx import SNType
from samba_onnx.comparing.eager.inference import compare_with_eager
from samba_onnx.comparing.eager.training import compare_training
from samba_onnx.export.programs.inference import export_inference
from samba_onnx.export.programs.training import export_training
from samba_onnx.functional import sn_fma, sn_imm, sn_iteridx, sn_select
from samba_onnx.operator_names import OWN_FUNCTIONS

TABLE = torch.linspace(-2.0, 3.0, 25).reshape(5, 5).sin()
ROW = torch.tensor([0.3, -1.0, 2.0, 0.7, -0.2])
CORNERS = torch.tensor([[0, 0], [3, 1], [4, 4], [-1, 2]])
"""The last two leave the table."""
OVERLAPPING = torch.tensor([[0, 0], [1, 1], [2, 0]])
ROWS = torch.tensor([[1], [4], [6], [-1]])
BATCHED = torch.tensor([[[1], [4], [5]], [[0], [2], [3]], [[-1], [1], [4]]])
UPDATES = torch.linspace(1.0, 2.0, 24).reshape(4, 2, 3)

Function = Callable[..., Tensor]


def _programmed(attrs: Any, a: Tensor, b: Tensor) -> Tensor:
    position = sn_iteridx(attrs=attrs, dim=1, dtype=SNType.UINT16)
    return sn_select(position < sn_imm(3, SNType.UINT16), sn_fma(a, b, a), sn_imm(2.0, SNType.FP32))


CASES: dict[str, tuple[Function, tuple[Tensor, ...]]] = {
    "addmm": (lambda w, x: samba.addmm(ROW, w * x, TABLE, beta=0.5, alpha=2), (UPDATES[:, :, :1] + ROW,)),
    "addmm transposed": (
        lambda w, x: samba.addmm(ROW, w * x, TABLE, is_transposed=True),
        (UPDATES[:, :, :1] + ROW,),
    ),
    "sn_gather": (lambda w, t, s: samba.sn_gather(w * t, s, [0, 1], [2, 3]), (TABLE, CORNERS)),
    "sn_gather batched": (
        lambda w, t, s: samba.sn_gather(w * t, s, [0], [1], batched_dims=1),
        (TABLE[:3], BATCHED),
    ),
    "sn_multinomial": (
        lambda w, p, r: samba.sn_multinomial(p, r) * w,
        (TABLE.softmax(1), torch.tensor([[0.1], [0.99999], [0.4], [0.0], [0.7]])),
    ),
    "sn_reduce": (lambda w, t: samba.sn_reduce(w * t, (1,), "MAX"), (TABLE,)),
    "sn_reduce product": (lambda w, t: samba.sn_reduce(w * t, (0, 1), "PROD"), (TABLE,)),
    "sn_scatter": (
        lambda w, t, u, s: samba.sn_scatter(w * t, w * u, s, [0, 1]),
        (TABLE, UPDATES, CORNERS),
    ),
    "sn_scatter added": (
        lambda w, t, u, s: samba.sn_scatter(w * t, w * u, s, [0, 1], "kAdd"),
        (TABLE, UPDATES[:3], OVERLAPPING),
    ),
    "sn_scatter batched": (
        lambda w, t, u, s: samba.sn_scatter(w * t, w * u, s, [0], batched_dims=1),
        (TABLE[:3], UPDATES[0, 0].expand(3, 3).unsqueeze(-1), BATCHED),
    ),
    "sn_scatter of int16": (
        lambda w, t, u, s: samba.sn_scatter(w * t, w * u, s, [0], "kAdd"),
        (TABLE, UPDATES[0, :1, :1] * ROW.expand(4, 1, 5), ROWS.short()),
    ),
    "sn_zipmapreduce": (
        lambda w, t, r: samba.sn_zipmapreduce(_programmed, [w * t, r]),
        (TABLE, ROW),
    ),
    "sn_zipmapreduce reduced": (
        lambda w, t, r: samba.sn_zipmapreduce(_programmed, [w * t, r], "SUM", 1),
        (TABLE, ROW),
    ),
    "triu_fill": (lambda w, t: samba.triu_fill(w * t, -9.0), (TABLE,)),
}  # fmt: skip


class Model(nn.Module):
    def __init__(self, function: Function) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.tensor(1.5))
        self.function = function

    def forward(self, *operands: Tensor) -> Tensor:
        return self.function(self.weight, *operands)


@pytest.mark.parametrize("name", CASES)
def test_forward(name: str) -> None:
    function, operands = CASES[name]
    model = Model(function).eval()
    comparison = compare_with_eager(model, operands, export_inference(model, operands))
    assert not comparison.notes


@pytest.mark.parametrize("name", CASES)
def test_backward(name: str) -> None:
    function, operands = CASES[name]
    model = Model(function)
    comparison = compare_training(model, operands, export_training(model, operands))
    assert not comparison.notes


def test_every_function_is_here() -> None:
    inside = {"sn_fma", "sn_imm", "sn_iteridx", "sn_select"}
    assert {*inside, *(name.split()[0] for name in CASES)} >= {*OWN_FUNCTIONS, "addmm"}
