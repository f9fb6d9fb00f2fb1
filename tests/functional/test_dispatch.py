"""One table says what a call means; what it lacks is computed on the host, warned of and recorded."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
import torch.nn.functional as F  # noqa: N812  torch's own name for it

import samba_onnx as samba
from samba_onnx import SambaTensor, functional
from samba_onnx.errors import HostOperatorWarning, InternalError, UsageError
from samba_onnx.functional import HOST_OPERATORS, TABLE, FunctionKind
from samba_onnx.functional.table import is_in_place
from samba_onnx.operator_names import FUNCTIONAL


@pytest.fixture(autouse=True)
def _fresh_record() -> Iterator[None]:
    HOST_OPERATORS.clear()
    yield
    HOST_OPERATORS.clear()


SPELLINGS: dict[str, list[Callable[..., Any]]] = {
    "add": [torch.add, torch.Tensor.add_, torch.Tensor.__iadd__, torch.Tensor.__radd__],
    "sub": [torch.sub, torch.Tensor.__rsub__, torch.subtract, torch.rsub],
    "div": [torch.true_divide, torch.Tensor.__truediv__, torch.Tensor.__rtruediv__, torch.divide],
    "bitwise_and": [torch.Tensor.__and__, torch.Tensor.__iand__, torch.bitwise_and],
    "bitwise_not": [torch.Tensor.__invert__],
    "relu": [torch.relu, F.relu, torch.Tensor.relu_],
    "index": [torch.Tensor.__getitem__, torch.Tensor.__setitem__, torch.Tensor.index_put_],
    "matmul": [torch.Tensor.__matmul__, torch.Tensor.__rmatmul__, torch.matmul],
    "mT": [torch.Tensor.mT.__get__],  # type: ignore[attr-defined]
}


@pytest.mark.parametrize("name", SPELLINGS)
def test_all_spellings_of_an_operator_lead_to_one_row(name: str) -> None:
    assert {TABLE.find(function).name for function in SPELLINGS[name]} == {name}


def test_every_operator_of_the_interface_has_a_row_and_a_function() -> None:
    for name in FUNCTIONAL:
        assert TABLE.rows[name].kind is FunctionKind.OPERATOR
        assert callable(getattr(functional, name))
        assert getattr(samba, name) is getattr(functional, name)
    assert set(FUNCTIONAL) <= set(dir(functional))
    with pytest.raises(AttributeError, match="no attribute 'fft'"):
        functional.fft  # noqa: B018  the access is the test


@pytest.mark.parametrize(
    ("function", "in_place"),
    [
        (torch.add, False),
        (torch.Tensor.add_, True),
        (torch.Tensor.__iadd__, True),
        (torch.Tensor.__setitem__, True),
        (torch.Tensor.__invert__, False),
        (torch.Tensor.__int__, False),
    ],
)
def test_writing_in_place_shows_in_the_name(function: Callable[..., Any], in_place: bool) -> None:
    assert is_in_place(function) is in_place


def test_on_plain_tensors_torch_is_called() -> None:
    assert type(samba.add(torch.ones(1), 1)) is torch.Tensor
    assert isinstance(samba.add(samba.ones(1), 1), SambaTensor)
    assert functional.cat is torch.cat


def test_the_host_computes_what_the_table_lacks_with_one_warning() -> None:
    tensor = samba.randn(4)
    with pytest.warns(HostOperatorWarning, match="fft_fft is not an operator") as caught:
        first = torch.fft.fft(tensor)
    assert caught[0].filename == __file__
    assert isinstance(first, SambaTensor)
    assert torch.equal(first.torch(), torch.fft.fft(tensor.torch()))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        torch.fft.fft(tensor)
        tensor.add(1).relu().sum().item()
    (entry,) = HOST_OPERATORS.entries
    assert (entry.name, entry.calls) == ("fft_fft", 2)
    assert entry.location.startswith(f"{__file__}:")


def test_a_call_from_within_torch_names_the_user_s_line() -> None:
    model = torch.nn.GRU(2, 2)
    with pytest.warns(HostOperatorWarning, match="gru") as caught:
        model(samba.ones(1, 1, 2))
    assert caught[0].filename == __file__


def test_asking_about_a_tensor_is_no_operator() -> None:
    tensor = samba.ones(2, 2, requires_grad=True)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for ask in (tensor.size, tensor.is_contiguous, tensor.untyped_storage, tensor.tolist):
            ask()
        assert bool(tensor.detach().sum() > 1)
        assert len(tensor) == 2
        assert torch.is_tensor(tensor)
        assert torch.equal(tensor, tensor)
        assert tensor.grad_fn is None
    assert HOST_OPERATORS.entries == ()


@pytest.mark.parametrize(
    "call",
    [
        lambda x: samba.abs(x, out=torch.empty(2)),
        lambda x: torch.add(x, 1, alpha=2),
        lambda x: samba.addmm(x, torch.ones(1, 2), torch.ones(2, 2), out=torch.empty(1, 2)),
    ],
)
def test_keywords_that_the_rdu_lacks_are_refused_in_a_graph_for_it(
    call: Callable[[torch.Tensor], torch.Tensor],
) -> None:
    tensor = samba.ones(2)
    call(tensor)
    with functional.device_limits(), pytest.raises(UsageError, match="works on the host only"):
        call(tensor)
    call(tensor)


def test_an_operator_has_one_implementation() -> None:
    with pytest.raises(InternalError, match="implementation already"):
        TABLE.implement("addmm", samba.addmm)
    with pytest.raises(InternalError, match="has no row"):
        TABLE.implement("nonsense", samba.addmm)


def test_tensors_of_foreign_classes_decide_for_themselves() -> None:
    class Foreign(torch.Tensor):
        @classmethod
        def __torch_function__(
            cls, func: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> str:
            return "foreign"

    foreign: Any = torch.ones(1).as_subclass(Foreign)
    assert torch.add(samba.ones(1), foreign) == "foreign"
