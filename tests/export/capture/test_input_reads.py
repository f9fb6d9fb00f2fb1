"""Numbers out of inputs are refused, with the user's line; decisions, and what shapes tell, are not."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from samba_onnx.errors import BranchWarning, ModelError
from samba_onnx.export.capture.captured_modules import capture
from samba_onnx.export.programs.training import export_training


class Applied(nn.Module):
    """Does something with two inputs and a weight."""

    def __init__(self, use: Callable[[Applied, Tensor, Tensor], Any]) -> None:
        super().__init__()
        self.use = use
        self.weight = nn.Parameter(torch.ones(3))
        self.register_buffer("table", torch.ones(3))

    def forward(self, x: Tensor, mask: Tensor) -> Any:
        return self.use(self, x * self.weight, mask)


def given() -> tuple[Tensor, Tensor]:
    return torch.arange(6.0).reshape(2, 3), torch.tensor([1, 1, 0])


def in_place(module: Applied, x: Tensor, mask: Tensor) -> Tensor:
    kept = torch.zeros(2, 3)
    kept[0].copy_(x[0])
    return x * kept.view(-1)[1].item()


def in_a_list(module: Applied, x: Tensor, mask: Tensor) -> Tensor:
    return torch.stack([x[0, :number].sum() for number in mask.tolist()])


NUMBERS: dict[str, tuple[str, Callable[[Applied, Tensor, Tensor], Any]]] = {
    "float": ("x", lambda m, x, mask: x * float(x.max())),
    "item": ("x", lambda m, x, mask: x / x.norm().item()),
    "int": ("mask", lambda m, x, mask: x[:, : int(mask.sum())]),
    "an index": ("mask", lambda m, x, mask: x[:, range(3)[mask[0]]]),
    "complex": ("x", lambda m, x, mask: x * complex(x.max()).real),
    "a list": ("mask", in_a_list),
    "format": ("x", lambda m, x, mask: x * float(f"{x.max().item():.1f}")),
    "in place": ("x", in_place),
    "of both": ("mask", lambda m, x, mask: x * (m.table * mask).sum().item()),
    "a comparison of numbers": ("x", lambda m, x, mask: x if x.max().item() > 0 else -x),
}


@pytest.mark.parametrize(("name", "use"), NUMBERS.values(), ids=NUMBERS.keys())
@pytest.mark.parametrize("trains", [False, True])
def test_a_number_out_of_an_input_is_refused(
    trains: bool, name: str, use: Callable[[Applied, Tensor, Tensor], Any]
) -> None:
    make = export_training if trains else capture
    with pytest.raises(ModelError) as caught:
        make(Applied(use), given())
    message = str(caught.value)
    assert message.startswith("test_input_reads.py:")
    assert f"Applied takes a number out of input {name!r}" in message
    assert "torch.where" in message


OTHERS: dict[str, Callable[[Applied, Tensor, Tensor], Any]] = {
    "a branch": lambda m, x, mask: x if mask.sum() > 0 else -x,
    "a truth value": lambda m, x, mask: x if (mask > 0).any().item() else -x,
    "a count of those": lambda m, x, mask: x * int(mask.bool().any()),
    "a comparison": lambda m, x, mask: x if torch.equal(mask, mask) else -x,
    "of the shape": lambda m, x, mask: x * torch.ones_like(x).sum().item(),
    "of a buffer": lambda m, x, mask: x * m.table.sum().item(),
}


@pytest.mark.parametrize("use", OTHERS.values(), ids=OTHERS.keys())
def test_decisions_and_what_inputs_do_not_change_are_warned_of(
    use: Callable[[Applied, Tensor, Tensor], Any],
) -> None:
    with pytest.warns(BranchWarning, match=r"test_input_reads\.py:\d+.*all runs will do that"):
        capture(Applied(use), given())


def test_numbers_of_sizes_are_nobodys_business() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        capture(Applied(lambda m, x, mask: x / x.shape[0] * len(mask) * x.dim()), given())


def test_a_number_out_of_a_weight_is_refused_where_it_is_trained() -> None:
    module = Applied(lambda m, x, mask: x / float(m.weight.norm()))
    with pytest.warns(BranchWarning):
        capture(module, given())
    with pytest.raises(ModelError, match="a number out of parameter 'weight', which is trained"):
        export_training(module, given())
    frozen = Applied(lambda m, x, mask: x / float(m.table.norm()))
    with pytest.warns(BranchWarning):
        export_training(frozen, given())
