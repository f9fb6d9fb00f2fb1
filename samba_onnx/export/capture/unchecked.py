"""Functions of torch that look at values, computed without a look.

They check that values are valid, or ask tensors for sizes that are known without. Torch cannot trace
that; what they compute does not depend on it.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, Final

import torch
from torch import Tensor
from torch.nn import functional
from torch.overrides import TorchFunctionMode

from samba_onnx.errors import UsageError
from samba_onnx.export.capture.alignments import ctc_loss


class Unchecked(TorchFunctionMode):
    """Within this context, functions that look at values do not."""

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        return _FUNCTIONS.get(func, func)(*args, **(kwargs or {}))


def gaussian_nll_loss(
    input: Tensor,
    target: Tensor,
    var: Tensor | float,
    full: bool = False,
    eps: float = 1e-6,
    reduction: str = "mean",
) -> Tensor:
    """Compute the negative logarithm of normal densities; names and meaning are torch's.

    Args:
        input: Expectations.
        target: Samples.
        var: Variances, of the size of ``input``, without its last axis, or with one of size 1.
            Negative ones are taken for ``eps``.
        full: Whether to add the constant term.
        eps: The least variance; below it, the gradient is that of this one.
        reduction: ``mean``, ``sum`` or ``none``.

    Raises:
        UsageError: Variances of another size.
    """
    # torch takes a number as well, which is the variance of all.
    variance = var if isinstance(var, Tensor) else torch.full_like(input, var)
    # One variance per row, without the last axis, as torch takes it.
    if variance.shape == input.shape[:-1] != input.shape:
        variance = variance.unsqueeze(-1)
    if variance.shape not in (input.shape, (*input.shape[:-1], 1)):
        raise UsageError(
            f"gaussian_nll_loss of {list(input.shape)} is given var of {list(variance.shape)}: "
            f"give one variance per number, or one per row"
        )
    # torch clamps under no_grad: the value is the limit and the gradient that of the variance.
    variance = torch.where(variance < eps, eps + (variance - variance.detach()), variance)
    loss = 0.5 * (variance.log() + (input - target).square() / variance)
    if full:
        loss = loss + 0.5 * math.log(2 * math.pi)
    return loss if reduction == "none" else loss.sum() if reduction == "sum" else loss.mean()


def covariance(
    value: Tensor,
    *,
    correction: int = 1,
    fweights: Tensor | None = None,
    aweights: Tensor | None = None,
) -> Tensor:
    """Compute the covariances of rows; names and meaning are torch's.

    Args:
        value: (variables, observations), or (observations).
        correction: Taken from the number of observations.
        fweights: How often each observation counts.
        aweights: How much each observation counts.
    """
    rows = value.reshape(1, -1) if value.dim() < 2 else value
    # Both kinds multiply; they differ in what is taken off for the correction.
    weights = _product(fweights, aweights)
    weighted = rows if weights is None else rows * weights
    # A tensor in either case, so that what follows has one form.
    total = torch.full((), rows.shape[1]) if weights is None else weights.sum()
    taken: Tensor | int = correction
    # Weights that are no counts take the correction in proportion, as torch's formula has it.
    if weights is not None and aweights is not None and correction:
        taken = correction * (weights * aweights).sum() / total
    centred = rows - (weighted.sum(1) / total).unsqueeze(1)
    products = centred @ (centred if weights is None else centred * weights).mT.conj()
    return (products / (total - taken).clamp_min(0)).squeeze()


def _product(one: Tensor | None, other: Tensor | None) -> Tensor | None:
    return other if one is None else one if other is None else one * other


def correlation(value: Tensor) -> Tensor:
    """Compute the correlations of rows; names and meaning are torch's.

    Args:
        value: (variables, observations), or (observations).
    """
    estimate = covariance(value)
    # One row correlates with itself; the division makes NaN of a variance of 0, as torch's does.
    if estimate.dim() == 0:
        return estimate / estimate
    deviations = estimate.diagonal().sqrt()
    # Rounding may lead just beyond 1.
    return (estimate / deviations.unsqueeze(1) / deviations).clamp(-1, 1)


def combinations(input: Tensor, r: int = 2, with_replacement: bool = False) -> Tensor:
    """Return all choices of some elements of a vector; names and meaning are torch's.

    Args:
        input: A vector.
        r: How many to choose.
        with_replacement: Whether an element can be chosen again.
    """
    if r == 0:
        return input.new_zeros(0)
    choose = itertools.combinations_with_replacement if with_replacement else itertools.combinations
    # Which places are chosen depends on the length alone: a constant.
    places = torch.tensor(list(choose(range(len(input)), r)), dtype=torch.int64).reshape(-1, r)
    return input[places]


def asserted(condition: Tensor | bool, message: str) -> None:
    """Check what is known, and leave the values of tensors unchecked; names are torch's.

    Args:
        condition: What should be true.
        message: What to say if it is not.

    Raises:
        AssertionError: It is known not to be true.
    """
    if not isinstance(condition, Tensor):
        torch._assert(condition, message)  # type: ignore[no-untyped-call]


def unasserted(*_arguments: object) -> None:
    """Leave the values of a tensor unchecked."""


# Functions and methods of one name are different objects to torch's mode.
_FUNCTIONS: Final[Mapping[Any, Callable[..., Any]]] = MappingProxyType(
    {
        functional.ctc_loss: ctc_loss,
        functional.gaussian_nll_loss: gaussian_nll_loss,
        torch._assert: asserted,
        torch._assert_async: unasserted,
        torch.combinations: combinations,
        torch.corrcoef: correlation,
        torch.Tensor.corrcoef: correlation,
        torch.cov: covariance,
        torch.ctc_loss: ctc_loss,
        torch.Tensor.cov: covariance,
    }
)
