"""Element-wise programs: one function applied to every element of broadcast tensors.

Inside the function, ordinary operators and torch functions work, and four more: ``sn_imm``,
``sn_iteridx``, ``sn_select`` and ``sn_fma``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

import torch

from samba_onnx.errors import UsageError
from samba_onnx.functional.overriding import overridable
from samba_onnx.functional.patterns import reduction
from samba_onnx.functional.sn_types import SNType

_SHAPE: Final = "shape"
_DEVICE: Final = "device"


@overridable
def sn_zipmapreduce(
    func: Callable[..., torch.Tensor],
    inputs: Sequence[torch.Tensor],
    reduce_func: str | None = None,
    reduce_dim: int | Iterable[int] | None = None,
    stoc_accum: bool = False,
) -> torch.Tensor:
    """Apply a function to every element of broadcast tensors, and reduce the result if asked to.

    Args:
        func: The function. It is called once as ``func(attrs, *elements)`` with the broadcast
            inputs; ``attrs`` is for ``sn_iteridx``. It returns a tensor that broadcasts to them.
        inputs: One tensor or more; their shapes broadcast against each other.
        reduce_func: ``SUM``, ``MAX``, ``MIN``, ``MEAN`` or ``PROD``; None reduces nothing.
        reduce_dim: Dimension or dimensions of the broadcast shape to reduce; given exactly when
            ``reduce_func`` is.
        stoc_accum: Whether to accumulate with stochastic rounding on the RDU; without effect on
            the host.

    Returns:
        A tensor of the broadcast shape, with size 1 where it was reduced, and of the dtype that
        ``func`` returns.

    Raises:
        UsageError: There are no inputs, only one of ``reduce_func`` and ``reduce_dim`` is given,
            or there is no such reduction.
    """
    del stoc_accum
    if not inputs:
        raise UsageError("sn_zipmapreduce was given no inputs; give at least one tensor")
    if (reduce_func is None) != (reduce_dim is None):
        raise UsageError("give reduce_func and reduce_dim together, or neither")
    elements = torch.broadcast_tensors(*inputs)  # type: ignore[no-untyped-call]
    shape = elements[0].shape
    mapped = func({_SHAPE: shape, _DEVICE: inputs[0].device}, *elements)
    # The function may have returned a constant, or have read only some of its inputs.
    mapped = mapped.expand(shape)
    if reduce_func is None or reduce_dim is None:
        return mapped
    dims = (reduce_dim,) if isinstance(reduce_dim, int) else tuple(reduce_dim)
    return reduction(reduce_func)(mapped, dims)


def sn_imm(input: float, dtype: torch.dtype | SNType) -> torch.Tensor:
    """A constant within the function of ``sn_zipmapreduce``.

    Args:
        input: Value of the constant.
        dtype: Type of the constant.

    Returns:
        A tensor of shape ``()`` and that type.
    """
    return torch.tensor(input, dtype=SNType.to_torch_reference_type(dtype))


def sn_iteridx(
    attrs: Mapping[str, Any], dim: int, dtype: torch.dtype | SNType | None = None
) -> torch.Tensor:
    """The index of every element along one dimension of the broadcast output.

    Args:
        attrs: The first argument of the function that ``sn_zipmapreduce`` calls.
        dim: The dimension; a negative one counts from the last.
        dtype: Integer type of the index; int32 when None.

    Returns:
        A tensor of the output's shape, a view of one counter.

    Raises:
        UsageError: ``attrs`` does not come from ``sn_zipmapreduce``, or there is no such dimension.
    """
    shape = attrs.get(_SHAPE)
    if not isinstance(shape, torch.Size):
        raise UsageError("sn_iteridx works within the function of sn_zipmapreduce: pass its attrs")
    if not -len(shape) <= dim < len(shape):
        raise UsageError(f"sn_iteridx of dimension {dim}; the output has {len(shape)} dimensions")
    kind = torch.int32 if dtype is None else SNType.to_torch_reference_type(dtype)
    axis = dim % len(shape)
    counter = torch.arange(shape[axis], dtype=kind, device=attrs[_DEVICE])
    return counter.reshape([-1 if at == axis else 1 for at in range(len(shape))]).expand(shape)


@overridable
def sn_select(cond: torch.Tensor, true_val: torch.Tensor, false_val: torch.Tensor) -> torch.Tensor:
    """One of two values, element by element.

    Args:
        cond: The condition, of any shape that broadcasts; another dtype than bool is true where it
            is not zero.
        true_val: Values where the condition is true.
        false_val: Values where the condition is false.

    Returns:
        A tensor of the broadcast shape, of the dtype that torch promotes both values to.
    """
    return torch.where(cond if cond.dtype == torch.bool else cond != 0, true_val, false_val)


@overridable
def sn_fma(a: torch.Tensor, b: torch.Tensor, c: torch.Tensor) -> torch.Tensor:
    """``a * b + c``, with the product unrounded.

    Args:
        a: The first factor.
        b: The second factor, of a shape that broadcasts.
        c: The summand, of a shape that broadcasts.

    Returns:
        A tensor of the broadcast shape, of the dtype that torch promotes the three to. It is rounded
        once for floating point of up to 32 bits; other dtypes are computed as torch does.
    """
    dtype = torch.promote_types(torch.promote_types(a.dtype, b.dtype), c.dtype)
    if dtype not in {torch.bfloat16, torch.float16, torch.float32}:
        return a * b + c
    # The product of two of these is exact in float64.
    return (a.double() * b.double() + c.double()).to(dtype)
