"""SambaFlow's own functions against loops over their definitions."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import pytest
import torch

import samba_onnx as samba
from samba_onnx import SambaTensor, SNType
from samba_onnx.errors import UsageError

Reference = Callable[..., torch.Tensor]


def _gather(
    table: torch.Tensor, starts: torch.Tensor, dims: list[int], lengths: list[int], batched: int = 0
) -> torch.Tensor:
    """One slice at a time."""
    slices = []
    for position in itertools.product(*map(range, starts.shape[:-1])):
        part = table[position[:batched]]
        for dim, length, start in zip(dims, lengths, starts[position].tolist(), strict=True):
            part = part.narrow(dim, start, length)
        slices.append(part)
    return torch.stack(slices).reshape(*starts.shape[:-1], *slices[0].shape)


def _scatter(
    table: torch.Tensor,
    update: torch.Tensor,
    starts: torch.Tensor,
    dims: list[int],
    rmw_op: str,
    batched: int = 0,
) -> torch.Tensor:
    """One slice at a time; none that leaves the table."""
    result = table.clone()
    for position in itertools.product(*map(range, starts.shape[:-1])):
        part, piece = result[position[:batched]], update[position]
        inside = True
        for dim, start in zip(dims, starts[position].tolist(), strict=True):
            inside = inside and 0 <= start <= part.shape[dim] - piece.shape[dim]
            part = part.narrow(dim, start, piece.shape[dim]) if inside else part
        if inside:
            part.copy_(piece) if rmw_op == "kUpdate" else part.add_(piece)
    return result


GATHERS: dict[str, tuple[Any, ...]] = {
    "documented": (
        torch.arange(25).reshape(5, 5),
        torch.tensor([[0, 0], [1, 1], [3, 2]]),
        [0, 1],
        [2, 3],
        0,
    ),
    "rows": (torch.randn(4, 3), torch.tensor([[1], [0]]), [0], [1], 0),
    "last dimension": (torch.randn(4, 3), torch.tensor([[[1]], [[0]]]), [1], [2], 0),
    "batched": (torch.randn(2, 5), torch.tensor([[[4], [0]], [[2], [2]]]), [0], [1], 1),
    "batched twice": (torch.randn(2, 3, 5, 2), torch.randint(4, (2, 3, 2, 1)), [0], [2], 2),
    "crossed": (torch.randn(3, 4, 5), torch.tensor([[1, 2]], dtype=torch.int32), [2, 0], [3, 1], 0),
}


@pytest.mark.parametrize("case", GATHERS)
def test_gather_takes_the_slices(case: str) -> None:
    table, starts, dims, lengths, batched = GATHERS[case]
    expected = _gather(table, starts, dims, lengths, batched)
    assert torch.equal(samba.sn_gather(table, starts, dims, lengths, batched), expected)
    ours = samba.sn_gather(SambaTensor(table), starts, dims, lengths, batched_dims=batched)
    assert isinstance(ours, SambaTensor)
    assert torch.equal(ours.torch(), expected)


def test_gather_moves_a_slice_that_would_leave_the_table() -> None:
    table = torch.arange(5)
    taken = samba.sn_gather(table, torch.tensor([[4], [-3]]), [0], [2])
    assert taken.tolist() == [[3, 4], [0, 1]]


SCATTERS: dict[str, tuple[Any, ...]] = {
    "rows": (torch.zeros(4, 3), torch.randn(2, 1, 3), torch.tensor([[3], [1]]), [0], 0),
    "elements": (
        torch.randn(3, 4),
        torch.full((3, 1, 1), -1.0),
        torch.tensor([[0, 3], [1, 0], [2, 2]]),
        [0, 1],
        0,
    ),
    "batched": (
        torch.zeros(2, 5),
        torch.ones(2, 3, 1),
        torch.tensor([[[4], [0], [1]], [[2], [3], [0]]]),
        [0],
        1,
    ),
    "outside": (torch.zeros(5), torch.ones(3, 1), torch.tensor([[5], [-1], [2]]), [0], 0),
}


@pytest.mark.parametrize("case", SCATTERS)
@pytest.mark.parametrize("rmw_op", ["kUpdate", "kAdd"])
def test_scatter_writes_the_slices(case: str, rmw_op: str) -> None:
    table, update, starts, dims, batched = SCATTERS[case]
    before = table.clone()
    expected = _scatter(table, update, starts, dims, rmw_op, batched)
    plain = samba.sn_scatter(table, update, starts, dims, rmw_op, batched_dims=batched)
    assert torch.equal(plain, expected)
    assert torch.equal(table, before)
    ours = samba.sn_scatter(
        SambaTensor(table), update, starts, dims, rmw_op=rmw_op, batched_dims=batched
    )
    assert isinstance(ours, SambaTensor)
    assert torch.equal(ours.torch(), expected)


def test_scatter_adds_up_slices_that_overlap() -> None:
    starts = torch.tensor([[1], [1], [2]])
    added = samba.sn_scatter(torch.zeros(4), torch.ones(3, 2), starts, [0], "kAdd")
    assert added.tolist() == [0.0, 2.0, 3.0, 1.0]


def test_gradients_flow_through_gather_and_scatter() -> None:
    table = samba.zeros(4, requires_grad=True)
    update = samba.ones(2, 1, requires_grad=True)
    starts = torch.tensor([[0], [3]])
    samba.sn_scatter(table, update * 2, starts, [0]).sum().backward()
    assert table.grad is not None
    assert update.grad is not None
    assert table.grad.tolist() == [0.0, 1.0, 1.0, 0.0]
    assert update.grad.tolist() == [[2.0], [2.0]]
    table.grad = None
    samba.sn_gather(table, torch.tensor([[1], [1]]), [0], [2]).sum().backward()
    assert table.grad.tolist() == [0.0, 2.0, 2.0, 0.0]


REFUSED: dict[str, tuple[Callable[[], object], str]] = {
    "length": (
        lambda: samba.sn_gather(torch.ones(2), torch.tensor([[0]]), [0], [3]),
        "its size is 2",
    ),
    "lengths": (
        lambda: samba.sn_gather(torch.ones(2), torch.tensor([[0]]), [0], [1, 1]),
        "2 gather lengths for 1",
    ),
    "float": (lambda: samba.sn_gather(torch.ones(2), torch.ones(1, 1), [0], [1]), "give integers"),
    "twice": (
        lambda: samba.sn_gather(torch.ones(2, 2), torch.tensor([[0, 0]]), [0, 0], [1, 1]),
        "give distinct ones",
    ),
    "batch": (
        lambda: samba.sn_gather(
            torch.ones(2, 2), torch.zeros(3, 1, 1, dtype=torch.int64), [0], [1], 1
        ),
        "they are batched",
    ),
    "all batched": (
        lambda: samba.sn_gather(torch.ones(2), torch.tensor([[0]]), [0], [1], 1),
        "1 batched dimensions",
    ),
    "update": (
        lambda: samba.sn_scatter(torch.ones(2, 2), torch.ones(1, 1, 1), torch.tensor([[0]]), [0]),
        "does not fit",
    ),
    "number of updates": (
        lambda: samba.sn_scatter(torch.ones(2, 2), torch.ones(3, 1, 2), torch.tensor([[0]]), [0]),
        "does not fit",
    ),
    "dimensions of an update": (
        lambda: samba.sn_scatter(torch.ones(2, 2), torch.ones(1, 1), torch.tensor([[0]]), [0]),
        "does not fit",
    ),
    "rmw_op": (
        lambda: samba.sn_scatter(torch.ones(2), torch.ones(1, 1), torch.tensor([[0]]), [0], "kMul"),
        "give one of kUpdate, kAdd",
    ),
    "reduction": (
        lambda: samba.sn_reduce(torch.ones(2), 0, "MEDIAN"),
        "'MEDIAN' is not a reduction",
    ),
    "multinomial": (lambda: samba.sn_multinomial(torch.ones(2, 2), torch.ones(2)), "it takes"),
    "triu": (lambda: samba.triu_fill(torch.ones(2, 3), 0.0), "must be equal"),
    "iteridx": (lambda: samba.sn_iteridx({}, 0), "within the function"),
    "no inputs": (lambda: samba.sn_zipmapreduce(lambda attrs: None, []), "no inputs"),
    "no dim": (
        lambda: samba.sn_zipmapreduce(lambda attrs, x: x, [torch.ones(1)], "SUM"),
        "or neither",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_does_not_fit_is_refused(case: str) -> None:
    call, message = REFUSED[case]
    with pytest.raises(UsageError, match=message):
        call()


@pytest.mark.parametrize("fn", ["SUM", "max", "Min", "MEAN", "PROD"])
@pytest.mark.parametrize("dims", [0, (1,), (0, -1)])
def test_reductions_keep_dimensions(fn: str, dims: int | tuple[int, ...]) -> None:
    x = torch.randn(3, 4, 2)
    reduce = {
        "SUM": torch.sum,
        "MAX": torch.amax,
        "MIN": torch.amin,
        "MEAN": torch.mean,
    }.get(fn.upper())
    expected = x
    for dim in (dims,) if isinstance(dims, int) else dims:
        expected = (reduce or torch.prod)(expected, dim, keepdim=True)  # type: ignore[operator]
    torch.testing.assert_close(samba.sn_reduce(x, dims, fn), expected)


def test_multinomial_inverts_the_cumulative_distribution() -> None:
    probs = torch.tensor([[0.25, 0.25, 0.5]]).repeat(5, 1)
    randoms = torch.tensor([[0.0], [0.2499], [0.25], [0.9999], [1.0]])
    assert samba.sn_multinomial(probs, randoms).tolist() == [0, 0, 1, 2, 2]
    ours = samba.sn_multinomial(SambaTensor(probs), SambaTensor(randoms))
    assert isinstance(ours, SambaTensor)
    assert ours.shape == (5,)


def test_elementwise_programs_know_their_index() -> None:
    """The causal mask that programs build this way."""

    def fill(attrs: dict[str, Any], x: torch.Tensor) -> torch.Tensor:
        row = samba.sn_iteridx(attrs=attrs, dim=0, dtype=SNType.UINT16)
        column = samba.sn_iteridx(attrs=attrs, dim=-1)
        return samba.sn_select(torch.ge(row, column), x, samba.sn_imm(-9.0, torch.float32))

    x = samba.randn(4, 4)
    filled = samba.sn_zipmapreduce(fill, [x])
    assert isinstance(filled, SambaTensor)
    assert torch.equal(filled.torch(), samba.to_torch(samba.triu_fill(x, -9.0)))
    assert torch.equal(samba.sn_zipmapreduce(fill, [x.torch()]), filled.torch())


def test_elementwise_programs_broadcast_and_reduce() -> None:
    a, b = torch.randn(3, 1), torch.randn(1, 4)
    product = samba.sn_zipmapreduce(lambda attrs, x, y: x * y, [a, b], "MIN", 1)
    assert torch.equal(product, (a * b).amin(1, keepdim=True))
    constant = samba.sn_zipmapreduce(lambda attrs, x: samba.sn_imm(1, SNType.INT32), [a])
    assert (constant.shape, constant.dtype) == (a.shape, torch.int32)


def test_programs_are_differentiable() -> None:
    x = samba.ones(2, 3, requires_grad=True)
    samba.sn_zipmapreduce(lambda attrs, y: samba.sn_fma(y, y, y), [x], "SUM", (0, 1)).backward()
    assert x.grad is not None
    assert x.grad.unique().tolist() == [3.0]


def test_fma_does_not_round_the_product() -> None:
    x = torch.tensor(1 + 2**-7, dtype=torch.bfloat16)
    fused = samba.sn_fma(x, x, -x)
    assert fused.dtype == torch.bfloat16
    assert fused.item() == torch.tensor((1 + 2**-7) * 2**-7).bfloat16().item()
    assert samba.sn_fma(torch.tensor(3), torch.tensor(2), torch.tensor(1)).item() == 7


@pytest.mark.parametrize("bias", [(4,), (2, 3, 4), ()])
@pytest.mark.parametrize("transposed", [False, True])
def test_addmm_takes_more_dimensions_and_a_transposed_weight(
    bias: tuple[int, ...], transposed: bool
) -> None:
    b, x, w = torch.randn(bias), torch.randn(2, 3, 5), torch.randn(5, 4)
    weight = w.t().contiguous() if transposed else w
    expected = 0.5 * b + 2 * (x @ w)
    for wrap in (SambaTensor, torch.Tensor.clone):
        got = samba.addmm(wrap(b), x, weight, beta=0.5, alpha=2, is_transposed=transposed)
        assert isinstance(got, SambaTensor) is (wrap is SambaTensor)
        torch.testing.assert_close(samba.to_torch(got), expected)
    out = torch.empty(2, 3, 4)
    assert samba.addmm(b, x, weight, beta=0.5, alpha=2, is_transposed=transposed, out=out) is out
    torch.testing.assert_close(out, expected)


def test_addmm_of_two_dimensions_is_torch_s() -> None:
    b, x, w = torch.randn(4), torch.randn(3, 5), torch.randn(5, 4)
    assert torch.equal(samba.to_torch(torch.addmm(SambaTensor(b), x, w)), torch.addmm(b, x, w))
    nan = torch.full((4,), float("nan"))
    torch.testing.assert_close(samba.addmm(nan, x.expand(2, 3, 5), w, beta=0)[0], x @ w)
    target = samba.zeros(3, 4)
    assert target.addmm_(x, w) is target
    torch.testing.assert_close(target.torch(), x @ w)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int64])
def test_triu_fill_fills_above_the_diagonal(dtype: torch.dtype) -> None:
    x = torch.ones(2, 3, 3, dtype=dtype)
    filled = samba.triu_fill(SambaTensor(x), -7)
    assert filled.dtype == dtype
    assert filled[1].tolist() == [[1, -7, -7], [1, 1, -7], [1, 1, 1]]


def test_element_types_have_a_torch_type_to_compute_with() -> None:
    types = {kind: SNType.to_torch_reference_type(kind) for kind in SNType}
    assert types[SNType.BF16] is torch.bfloat16
    assert types[SNType.UINT16] is torch.int32
    assert SNType.to_torch_reference_type(torch.float16) is torch.float16
