"""Tensors that depend on nothing but numbers have values while a module is traced."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_leaves as leaves

from samba_onnx.comparing.eager.inference import compare_with_eager
from samba_onnx.errors import BranchWarning, ModelError
from samba_onnx.export.capture.branches import Values
from samba_onnx.export.capture.known_values import KnownValues
from samba_onnx.export.programs.inference import export_inference
from tests.export.training_models import prepared

OWN = torch.arange(4.0)
"""A tensor that a function below reads without having registered it."""


def item(x: Tensor) -> Any:
    return x * torch.tensor(6.0).sqrt().item()


def branch(x: Tensor) -> Any:
    return x * 2 if torch.arange(4).sum() > 3 else x


def number(x: Tensor) -> Any:
    return x * int(torch.linspace(1, 3, 3)[-1]) + float(torch.ones(3).max())


def listed(x: Tensor) -> Any:
    return x + torch.tensor([[1, 2], [3, 4]]).tolist()[1][0]


def sizes(x: Tensor) -> Any:
    return x.split(torch.tensor([1, 3]).tolist(), dim=1)


def from_numpy(x: Tensor) -> Any:
    return x + torch.from_numpy(np.arange(4, dtype=np.float32))


def to_numpy(x: Tensor) -> Any:
    return x * torch.from_numpy(torch.arange(4.0).numpy() * 2)


def nonzero(x: Tensor) -> Any:
    return x[:, (torch.arange(4) % 2 == 0).nonzero()[:, 0]]


def mask(x: Tensor) -> Any:
    return x[:, torch.arange(4) % 2 == 0], x[torch.ones(3, 4) > 0]


def written_where_a_mask_is_true(x: Tensor) -> Any:
    rows, result = torch.arange(3) % 2 == 0, torch.zeros_like(x)
    result[rows] = x[rows].tanh()  # two rows
    result[torch.arange(3) > 2] = x[torch.arange(3) > 2].exp()  # none
    result[rows, 1:] *= 2
    result.index_put_(indices=(rows,), values=x[rows])
    return result.index_put((~rows,), x[~rows].sin())


def unique(x: Tensor) -> Any:
    return x[:, torch.unique(torch.tensor([1, 1, 2]))]


def written_by_slices(x: Tensor) -> Any:
    areas = torch.zeros(4, 4)
    for number, rows in enumerate((slice(0, 2), slice(2, None))):
        areas[rows, :] = number
    assert areas.view(-1)[8].item() == 1  # a view of what was written
    return x @ areas


def own_tensor(x: Tensor) -> Any:
    return x * OWN.max().item() + OWN[1:3].sum().item()


def sized(x: Tensor) -> Any:
    """Let tensors be sizes, which torch takes out without asking as Python does."""
    three, rows = torch.tensor([3, 0]).max(), torch.arange(3).max() + 1
    padded = nn.functional.pad(x, (0, three)).narrow(1, three - 2, rows)
    return (
        x.repeat(1, three),
        x.unsqueeze(0).expand(rows, -1, -1),
        padded,
        torch.full((rows,), three),
    )


def ranged(x: Tensor) -> Any:
    start = torch.ones(1, dtype=torch.int64).sum()
    return x + torch.arange(start, start + 4), x.reshape(start + 3, -1), x.new_zeros(start) + x


WORKING: list[Callable[[Tensor], Any]] = [
    *(item, branch, number, listed, sizes, from_numpy, to_numpy, nonzero, mask, unique),
    *(written_by_slices, own_tensor, written_where_a_mask_is_true, sized, ranged),
]


class Applied(nn.Module):
    """Applies a function behind a layer."""

    def __init__(self, function: Callable[[Tensor], Any]) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layer, self.function = nn.Linear(4, 4), function

    def forward(self, x: Tensor) -> Any:
        return self.function(self.layer(x))


@pytest.mark.parametrize("function", WORKING)
def test_values_of_constants(function: Callable[[Tensor], Any]) -> None:
    module, inputs = Applied(function).eval(), (torch.randn(3, 4),)
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # no branch depends on what the module is given
        exported = export_inference(module, inputs)
    assert compare_with_eager(module, inputs, exported).errors


@pytest.mark.parametrize("function", [mask, nonzero, unique, written_where_a_mask_is_true])
def test_gradients_through_what_constants_select(function: Callable[[Tensor], Any]) -> None:
    def loss(x: Tensor) -> Tensor:
        return sum((leaf.pow(2).mean() for leaf in leaves(function(x))), x.new_zeros(()))

    module, inputs = Applied(loss), (torch.randn(3, 4),)
    machine = prepared(module, inputs)
    machine.run()
    module(*inputs).backward()
    for resident, path in machine.exported.members.items():
        gradient = module.get_parameter(path).grad
        torch.testing.assert_close(machine[f"{resident}__grad"], gradient, rtol=1e-5, atol=1e-6)


def test_operators_that_take_masks_themselves_are_refused_in_training() -> None:
    """They are not among the functions whose masks of constants have known places."""

    def loss(x: Tensor) -> Tensor:
        none, result = torch.arange(3) > 2, torch.zeros_like(x)
        selected = torch.ops.aten.index.Tensor(x, [none])
        return (torch.ops.aten.index_put_.default(result, [none], selected) + x).mean()

    with pytest.raises(ModelError, match=r"test_known_values.py:\d+ returns sizes that depend"):
        prepared(Applied(loss), (torch.randn(3, 4),))


def test_values_of_constants_need_no_inputs_with_values() -> None:
    module = Applied(item).to("meta").eval()
    assert export_inference(module, (torch.empty(3, 4, device="meta"),)).outputs


def mixed(x: Tensor) -> Any:
    x = x * torch.tensor(2.0).item()
    if x.sum() > -1e9:
        x = x + torch.tensor([1, 2]).tolist()[1]
    return x * torch.tensor(3.0).item() + (x.isnan().any().item() * 1)


def test_values_of_both_kinds() -> None:
    module, inputs = Applied(mixed).eval(), (torch.randn(3, 4),)
    with pytest.warns(BranchWarning) as caught:
        exported = export_inference(module, inputs)
    assert len(caught) == 2, "only lines that ask for values of inputs are warned of"
    assert compare_with_eager(module, inputs, exported).errors


def unknown_in_place(x: Tensor) -> Any:
    buffer = torch.zeros(3, 4)
    row = buffer[0]
    row.copy_(x[0])
    return x * buffer.sum().item()


def unknown_by_method(x: Tensor) -> Any:
    buffer = torch.zeros(3, 4)
    buffer[:, 1] = x[:, 1]
    return x * buffer.view(-1)[1].item()


@pytest.mark.parametrize("function", [unknown_in_place, unknown_by_method])
def test_constants_that_inputs_are_written_into(function: Callable[[Tensor], Any]) -> None:
    module, inputs = Applied(function).eval(), (torch.randn(3, 4),)
    with pytest.raises(ModelError, match="takes a number out of input 'x'"):
        export_inference(module, inputs)


def drawn(x: Tensor) -> Any:
    return x * torch.rand(1).item()


def test_random_numbers_are_no_constants() -> None:
    with pytest.raises(ModelError, match="no values"):
        export_inference(Applied(drawn).to("meta"), (torch.empty(3, 4, device="meta"),))


def test_own_tensors_stay_as_they_are() -> None:
    class Counting(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.count = torch.zeros(2)

        def forward(self, x: Tensor) -> Tensor:
            self.count[0] += 1
            return x * self.count[0].item()

    module = Counting()
    with pytest.raises(ModelError, match=r"takes a number out of 'count', which runs change"):
        export_inference(module, (torch.randn(2),))
    assert module.count.tolist() == [0, 0]


class _Seeing(TorchFunctionMode):
    def __init__(self) -> None:
        super().__init__()
        self.functions: list[Any] = []

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.functions.append(func)
        return func(*args, **(kwargs or {}))


def test_questions_that_need_no_value_are_answered_past_all_other_contexts() -> None:
    parameter = nn.Parameter(torch.ones(2, 3))
    with _Seeing() as seeing, KnownValues(Values()):
        properties = parameter.shape, parameter.dtype, parameter.stride(), parameter.requires_grad
        total = parameter.sum()
    assert properties == ((2, 3), torch.float32, (3, 1), True)
    assert total.item() == 6
    assert seeing.functions == [torch.Tensor.sum]


_WRITES: dict[str, Callable[[Tensor, Tensor], object]] = {
    "a number added": lambda own, x: own.add_(1),
    "copied": lambda own, x: own.copy_(x),
    "an element": lambda own, x: own.__setitem__(0, x[0]),
    "its data": lambda own, x: own.data.add_(1),
    "given as out": lambda own, x: torch.add(x, 1, out=own),
}


class _Writing(nn.Module):
    def __init__(self, write: Callable[[Tensor, Tensor], object]) -> None:
        super().__init__()
        self.own = torch.zeros(2)
        self.write = write

    def forward(self, x: Tensor) -> Tensor:
        self.write(self.own, x)
        return x + self.own


@pytest.mark.parametrize("write", _WRITES.values(), ids=_WRITES)
def test_writes_into_a_tensor_that_is_no_member_make_it_state(
    write: Callable[[Tensor, Tensor], object],
) -> None:
    module, x = _Writing(write), torch.randn(2)
    if write is _WRITES["its data"]:  # of which torch keeps no version
        with pytest.raises(ModelError, match=r"keeps as 'own'.*: register it with register_buffer"):
            export_inference(module, (x,))
    else:
        assert export_inference(module, (x,)).captured.updates == ("own",)
    assert module.own.tolist() == [0, 0]
