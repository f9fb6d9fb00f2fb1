"""torch with more precision than a module asks for, and with roundings that it would not make.

The first tells how large torch's own error is. The second is Monte Carlo arithmetic (Parker, 1997):
every result moves by about one rounding, in both directions, and how far the results of the whole
move is what rounding can do to them: smoothly, or by a jump where a ReLU, a maximum or a sort was
decided by the last bit.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any, Final

import numpy as np
import torch
from torch import Tensor
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

_WIDE: Final[Mapping[torch.dtype, torch.dtype]] = MappingProxyType(
    {
        torch.float16: torch.float64,
        torch.bfloat16: torch.float64,
        torch.float32: torch.float64,
        torch.complex32: torch.complex128,
        torch.complex64: torch.complex128,
    }
)
_COPYING: Final = frozenset(
    {
        "_reshape_alias",
        "_to_copy",
        "_unsafe_view",
        "clone",
        "copy",
        "copy_",
        "fill",
        "fill_",
        "lift_fresh",
        "lift_fresh_copy",
        "zero_",
    }
)
"""Operators that compute nothing; views, which say so themselves, are not among them."""


@contextlib.contextmanager
def widened() -> Iterator[None]:
    """Let torch compute in float64 within the context, whatever types a module asks for."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        with _Widened():  # type: ignore[no-untyped-call]  # torch annotates nothing here
            yield
    finally:
        torch.set_default_dtype(before)


def wide(tensor: Tensor) -> Tensor:
    """Return a tensor of floating-point or complex numbers in twice float32's precision.

    Args:
        tensor: Any; one of other numbers is returned as it is.
    """
    return tensor.to(_WIDE.get(tensor.dtype, tensor.dtype))


class Roundings(TorchDispatchMode):  # type: ignore[no-untyped-call]  # torch annotates nothing here
    """Moves the results of all operators by random amounts of about a rounding."""

    def __init__(self, unit: float, seed: int) -> None:
        """Begin a series of random amounts.

        Args:
            unit: Largest amount, as a part of the number that moves.
            seed: Seed of the amounts.
        """
        super().__init__()  # type: ignore[no-untyped-call]
        self._unit = unit
        # numpy's: another mode may be there to notice whether torch draws random numbers.
        self._generator = np.random.default_rng(seed)

    def moved(self, tensor: Tensor) -> Tensor:
        """Return a tensor whose numbers have moved.

        Whole numbers stay: they are indices, masks and sizes more often than results that were
        rounded, and a program may ask whether they are equal to others.

        Args:
            tensor: Stays as it is.
        """
        if not tensor.numel() or not (tensor.is_floating_point() or tensor.is_complex()):
            return tensor
        return self._moved(tensor.detach().clone())

    def _moved(self, tensor: Tensor) -> Tensor:
        """Move the numbers of a tensor in place."""
        real = tensor.real if tensor.is_complex() else tensor
        drawn = self._generator.random(tuple(real.shape), np.float32)
        amounts = torch.from_numpy(np.asarray(2.0 * drawn - 1.0)).to(real.dtype)
        if real.dtype != torch.float64:  # less than a whole rounding would be rounded off again
            amounts = amounts.sign()
        amounts = (amounts * self._unit).masked_fill(real == real.round(), 0.0)
        return tensor.mul_(1.0 + amounts)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        results = func(*args, **(kwargs or {}))
        if func.is_view or func._schema.name.partition("::")[2] in _COPYING:
            return results
        with torch.no_grad():
            for leaf in pytree.tree_leaves(results):
                if isinstance(leaf, Tensor) and leaf.numel() and leaf.dtype in _MOVING:
                    self._moved(leaf)
        return results


_MOVING: Final = frozenset({*_WIDE, *_WIDE.values()})


class _Widened(TorchDispatchMode):  # type: ignore[no-untyped-call]  # torch annotates nothing here
    """Answers whoever asks for less than float64 with float64."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        named = dict(kwargs or {})
        if func is torch.ops.aten._assert_tensor_metadata.default:
            return None  # torch's exporter writes down which type there was before a conversion
        if named.get("dtype") in _WIDE:
            named["dtype"] = _WIDE[named["dtype"]]
        try:
            return func(*args, **named)
        except RuntimeError:  # constants that the module keeps by itself are still of its own type
            if func._schema.is_mutable:
                raise
            return func(*pytree.tree_map(_wide_leaf, args), **pytree.tree_map(_wide_leaf, named))


def _wide_leaf(leaf: Any) -> Any:
    return wide(leaf) if isinstance(leaf, Tensor) else leaf
