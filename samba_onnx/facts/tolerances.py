"""How far numbers may be from what they should be, per data type, and why just so far.

Data types are named as numpy and ml_dtypes name them: ``float32``, ``bfloat16``. Integers, booleans
and texts must be equal.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

__all__ = [
    "GRADIENT_OF_LARGEST",
    "NEGLIGIBLE_GRADIENT",
    "OUTPUT",
    "TIMES_OWN_ERROR",
    "TIMES_TORCHS_ERROR",
    "UPDATE_ROUNDINGS",
    "Tolerance",
    "of_largest",
    "output_roundings",
    "rounding_unit",
]


@dataclass(frozen=True)
class Tolerance:
    """An element passes within ``absolute * scale + relative * |expected|``.

    ``scale`` is the largest finite magnitude of the whole tensor that is expected.
    """

    relative: float
    """Error that is allowed as a fraction of the element's own magnitude."""
    absolute: float
    """Error that is allowed as a fraction of the tensor's largest magnitude: what
    cancellation leaves of an element's digits."""


OUTPUT: Final = Tolerance(1e-4, 1e-5)
"""Outputs of the emulator against the original model: a float32 keeps 7 digits, and reassociated
sums of a few thousand terms lose 3 of them."""

_SIGNIFICANDS: Final[Mapping[str, int]] = MappingProxyType({"float16": 11, "bfloat16": 8})
"""Bits of the significands of types whose outputs are judged in roundings of their own."""
_LAST_ROUNDINGS: Final = 4.0
"""Roundings of an output's own magnitude that are allowed whatever came before it: the last operator
on both sides, and the answer that is compared with."""
TIMES_OWN_ERROR: Final = 12.0
"""How many times the error that the original model itself makes in its 16-bit type, against its
float32 answer, a PEF may make at an element. Both round about as often, at random: among a million
elements the largest error is five times the root mean square, and an engine that fuses operators in one
of the two graphs only makes up to twice the other's (measured: 1.5 times for an encoder of Whisper in
float16)."""

_OF_LARGEST: Final[Mapping[str, float]] = MappingProxyType(
    {
        "float64": 1e-6,
        "float32": 1e-4,
        "float16": 2e-2,
        "bfloat16": 8e-2,
        "complex64": 1e-4,
        "complex128": 1e-6,
    }
)

GRADIENT_OF_LARGEST: Final = 2e-3
"""Gradients of float32 against torch's, as a fraction of the largest number of a tensor: they are
sums of many more terms than outputs, of both signs."""
TIMES_TORCHS_ERROR: Final = 10.0
"""How many times torch's own error against float64 the error of a gradient may be that is beyond
the tolerance, and that of an optimizer's step."""
UPDATE_ROUNDINGS: Final = 16.0
"""How many roundings of the largest number of a tensor a step of an optimizer may be off besides: it
has about ten operations, and torch rounds its scalars at other places."""
NEGLIGIBLE_GRADIENT: Final = 1e-3
"""Part of the largest gradient of all below which a parameter's gradient may be noise: behind a
normalisation, that of a bias is zero but for rounding."""


def rounding_unit(dtype: str) -> float | None:
    """Return the largest relative error of rounding one number to a 16-bit type.

    Args:
        dtype: Name of an output's data type.

    Returns:
        Half of the distance between 1 and the next number: 2**-11 for float16, 2**-8 for bfloat16;
        None for types whose outputs are judged by ``OUTPUT`` or must be equal.
    """
    bits = _SIGNIFICANDS.get(dtype)
    return None if bits is None else 2.0**-bits


def output_roundings(depth: int) -> float:
    """Return how many roundings of its own magnitude an element of a 16-bit output may be off.

    Products accumulate in float32, so that each operator rounds once, whatever the length of its
    sums. The roundings of a chain of operators are independent of each other and of random signs:
    they add up like the root of their number.

    Args:
        depth: Operators that round, on the longest way from an input to an output.
    """
    return _LAST_ROUNDINGS + math.sqrt(depth)


def of_largest(dtype: str) -> float:
    """Return how far an exported graph may be from eager torch.

    Args:
        dtype: Name of the tensor's data type.

    Returns:
        The largest error, as a fraction of the largest number of the tensor: a hundred times what a
        deep network loses by summing in another order. 0 for types that must be equal.
    """
    return _OF_LARGEST.get(dtype, 0.0)
