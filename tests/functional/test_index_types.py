"""Indices of every integer type: on SambaTensors, and in compiled graphs, as int64 in torch."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.testing._internal.common_methods_invocations import op_db
from torch.utils import _pytree as pytree

import samba_onnx as samba
from samba_onnx.comparing.eager.inference import compare_with_eager
from samba_onnx.comparing.outcome import Comparison
from samba_onnx.export.capture.samba_calls import samba_calls
from samba_onnx.export.programs.inference import export_inference
from samba_onnx.functional import HOST_OPERATORS
from samba_onnx.functional.index_types import INDEX_ARGUMENTS, WideIndices
from tests.export.exporting import outputs_of

Operation = Callable[[Tensor, Tensor], Tensor]

TYPES = (torch.int8, torch.uint8, torch.int16, torch.int32, torch.uint16)
OPERATIONS: dict[str, Operation] = {
    "cross_entropy": lambda t, i: functional.cross_entropy(t, i),
    "embedding": lambda t, i: functional.embedding(i, t),
    "embedding_bag": lambda t, i: functional.embedding_bag(i.reshape(1, -1), t, mode="sum"),
    "embedding_bag with offsets": lambda t, i: functional.embedding_bag(i, t, i[1:2], mode="sum"),
    "gather": lambda t, i: torch.gather(t, 0, i.reshape(-1, 1)),
    "gather by keyword": lambda t, i: t.gather(dim=1, index=i.reshape(-1, 1)),
    "index_add": lambda t, i: t.index_add(0, i, torch.ones(4, 4)),
    "index_copy": lambda t, i: t.index_copy(0, i, torch.ones(4, 4)),
    "index_fill": lambda t, i: t.index_fill(0, i, 7.0),
    "index_select": lambda t, i: torch.index_select(t, 1, i),
    "multi_margin_loss": lambda t, i: functional.multi_margin_loss(t, i),
    "nll_loss": lambda t, i: functional.nll_loss(t.log_softmax(1), i),
    "one_hot": lambda t, i: functional.one_hot(i, 4) @ t.long(),
    "scatter": lambda t, i: t.scatter(0, i.reshape(-1, 1), 1.0),
    "scatter in place": lambda t, i: t.clone().scatter_(0, i.reshape(-1, 1), 1.0),
    "scatter_add": lambda t, i: t.scatter_add(0, i.reshape(-1, 1), torch.ones(4, 1)),
    "take": lambda t, i: torch.take(t, i),
    "take_along_dim": lambda t, i: torch.take_along_dim(t, i.reshape(-1, 1), 0),
}
SUBSCRIPTS: dict[str, Operation] = {
    "rows": lambda t, i: t[i],
    "columns": lambda t, i: t[:, i],
    "both": lambda t, i: t[i, i],
    "write": lambda t, i: _written(t, i),
    "index_put": lambda t, i: t.index_put((i,), torch.ones(4, 4)),
}
CASES = [
    *((name, dtype) for name in OPERATIONS for dtype in TYPES),
    *((name, dtype) for name in SUBSCRIPTS for dtype in TYPES if dtype is not torch.uint8),
]


def _written(table: Tensor, index: Tensor) -> Tensor:
    table = table.clone()
    table[index] = 3.0
    return table


class Model(nn.Module):
    def __init__(self, operation: Operation) -> None:
        super().__init__()
        self.operation = operation

    def forward(self, table: Tensor, index: Tensor) -> Tensor:
        return self.operation(table, index)


def operands() -> tuple[Tensor, Tensor]:
    return torch.linspace(-2, 3, 16).reshape(4, 4).sin(), torch.tensor([2, 0, 3, 1])


@pytest.mark.parametrize(("name", "dtype"), CASES)
def test_eager(name: str, dtype: torch.dtype) -> None:
    operation = {**OPERATIONS, **SUBSCRIPTS}[name]
    table, index = operands()
    with HOST_OPERATORS.paused():
        result = operation(samba.SambaTensor(table), samba.SambaTensor(index.to(dtype)))
    torch.testing.assert_close(samba.to_torch(result), operation(table, index))


@pytest.mark.parametrize(
    ("name", "dtype"),
    [
        pytest.param(*case, marks=() if case[1] is torch.int16 else pytest.mark.slow)
        for case in CASES
    ],
)
def test_compiled(name: str, dtype: torch.dtype) -> None:
    operation = {**OPERATIONS, **SUBSCRIPTS}[name]
    table, index = operands()
    inputs = (table, index.to(dtype))
    exported = export_inference(Model(operation), inputs)
    (result,) = outputs_of(exported, Model(operation), inputs).values()
    torch.testing.assert_close(result, operation(table, index))


@pytest.mark.parametrize("name", ["cross_entropy", "embedding", "take", "columns"])
def test_check_compares_them(name: str) -> None:
    operation = {**OPERATIONS, **SUBSCRIPTS}[name]
    table, index = operands()
    inputs = (table, index.short())
    model = Model(operation)
    comparison: Comparison = compare_with_eager(model, inputs, export_inference(model, inputs))
    assert not comparison.notes


def test_bytes_between_brackets_are_a_mask_as_in_torch() -> None:
    table = torch.arange(4.0)
    mask = torch.tensor([1, 0, 0, 1], dtype=torch.uint8)
    chosen = samba.SambaTensor(table)[samba.SambaTensor(mask)]
    assert samba.to_torch(chosen).tolist() == [0.0, 3.0]
    model = Model(lambda t, i: t.index_put((i,), torch.tensor(9.0)))
    inputs = (table, mask)
    (result,) = outputs_of(export_inference(model, inputs), model, inputs).values()
    assert result.tolist() == [9.0, 1.0, 2.0, 9.0]


def test_gradients_flow_past_narrow_indices() -> None:
    table, index = operands()
    expected = torch.zeros_like(table).index_add(0, index, torch.ones(4, 4))
    weight = samba.SambaTensor(table).requires_grad_()
    functional.embedding(samba.SambaTensor(index.short()), weight).sum().backward()
    assert torch.equal(weight.grad, expected)


def test_plain_tensors_are_torchs_own_outside() -> None:
    table, index = operands()
    with pytest.raises(RuntimeError, match="int32"):
        torch.gather(table, 0, index.short().reshape(-1, 1))
    with samba_calls():
        assert table.torch() is table  # type: ignore[attr-defined]
    assert not hasattr(table, "torch")


def test_what_torch_takes_is_left_alone() -> None:
    index = torch.tensor([1, 0], dtype=torch.int32)
    table = torch.eye(2)
    for function, arguments in INDEX_ARGUMENTS.items():
        for argument in arguments:
            narrowed = argument.widened(index)
            assert narrowed is index or not argument.takes_int32, function
            assert argument.widened(index.long()).dtype == torch.int64
            assert argument.widened(table) is table


SMALL = [op for op in op_db if torch.float32 in op.dtypes]
UNTOUCHED = {"_unsafe_masked_index", "_unsafe_masked_index_put_accumulate"}
"""torch's own decompositions of others; programs do not call them."""


def _samples(op: Any) -> Iterator[Any]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            yield from op.sample_inputs("cpu", torch.float32)
        except (RuntimeError, NotImplementedError):
            return


@pytest.mark.parametrize("shard", range(6))
def test_no_function_of_torch_is_missing(shard: int) -> None:
    """Every int64 operand of torch's own samples may be int16."""
    refused: dict[str, str] = {}
    seen = 0
    for op in SMALL[shard::6]:
        for sample in _samples(op):
            leaves, spec = pytree.tree_flatten((sample.input, sample.args, sample.kwargs))
            integers = [isinstance(x, Tensor) and x.dtype == torch.int64 for x in leaves]
            if not any(integers) or op.name in UNTOUCHED:
                continue
            seen += 1
            narrow = [
                x.to(torch.int16) if is_integer else x
                for x, is_integer in zip(leaves, integers, strict=True)
            ]
            first, args, keywords = pytree.tree_unflatten(narrow, spec)
            try:
                with WideIndices():
                    op.op(first, *args, **keywords)
            except (RuntimeError, IndexError) as error:
                refused[op.name] = str(error)
    assert not refused
    assert seen > 30
