"""How far numbers may be from what they should be, per data type, and why just so far.

Data types are named as numpy and ml_dtypes name them: ``float32``, ``bfloat16``. Integers, booleans
and texts must be equal.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

__all__ = [
    "GRADIENT_OF_LARGEST",
    "NEGLIGIBLE_GRADIENT",
    "OUTPUT",
    "TIMES_TORCHS_ERROR",
    "UPDATE_ROUNDINGS",
    "Tolerance",
    "of_largest",
    "output_tolerance",
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

_COARSE_OUTPUTS: Final[Mapping[str, Tolerance]] = MappingProxyType(
    {"float16": Tolerance(2e-2, 2e-2), "bfloat16": Tolerance(4e-2, 4e-2)}
)
"""Significands of 11 and of 8 bits: about five roundings of each."""

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


def output_tolerance(dtype: str) -> Tolerance:
    """Return how far an output may be from the original model's.

    Args:
        dtype: Name of the output's data type, a floating-point or complex one.
    """
    return _COARSE_OUTPUTS.get(dtype, OUTPUT)


def of_largest(dtype: str) -> float:
    """Return how far an exported graph may be from eager torch.

    Args:
        dtype: Name of the tensor's data type.

    Returns:
        The largest error, as a fraction of the largest number of the tensor: a hundred times what a
        deep network loses by summing in another order. 0 for types that must be equal.
    """
    return _OF_LARGEST.get(dtype, 0.0)
