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
    "COARSER",
    "FLOOR_ROUNDINGS",
    "LOSS_OF_A_STEP",
    "NEGLIGIBLE_GRADIENT",
    "OUTPUT",
    "ROUNDED_OPERANDS",
    "TIMES_ALLOWED",
    "TIMES_AS_MANY",
    "TIMES_OWN_DISTANCE",
    "TIMES_OWN_ERROR",
    "TIMES_TORCHS_ERROR",
    "TIMES_TORCHS_JUMPS",
    "TRAINED_WEIGHTS",
    "TYPICAL_PART",
    "UPDATE_ROUNDINGS",
    "Tolerance",
    "near_torch",
    "output_roundings",
    "rounding_unit",
    "spacing",
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

LOSS_OF_A_STEP: Final = 1e-4
"""A loss of the first tens of steps of two programs that should be one, as a part of itself: both compute in float32 and
sum in another order, 6e-8 of a number in each operation, which some tens of steps make a few hundred times larger."""
TRAINED_WEIGHTS: Final = 1e-3
"""A weight behind them, as a part of its tensor's largest: a wrong gradient or rate is off by more than a hundredth."""

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

TIMES_OWN_DISTANCE: Final = 5.0
"""How many times as far as the original is from itself, when it adds up in another order or its inputs move by
a unit of the last place, a PEF in float32 or float64 may be from it. Both are distances of two right answers;
over 100 networks those of ours and torch's were half as large to twice as large, rarely three times."""
TIMES_AS_MANY: Final = 3
"""How many times as many elements may be so far off: where one number on an edge jumps in the original, two or
three may jump in the PEF."""
COARSER: Final = 8.0
"""How many times larger a rounding of bfloat16 is than one of float16."""
ROUNDED_OPERANDS: Final = 3
"""Roundings of an operator in bfloat16 whose original computes in float32: those of its result, of its weight
and of its input (measured: at most 2.2 times those of the results alone, for GPT-2 with products only in
bfloat16)."""

_SPACINGS: Final[Mapping[str, float]] = MappingProxyType(
    {
        "float64": 2.0**-52,
        "float32": 2.0**-23,
        "float16": 2.0**-10,
        "bfloat16": 2.0**-7,
        "complex64": 2.0**-23,
        "complex128": 2.0**-52,
    }
)

_NEAR_TORCH: Final[Mapping[str, float]] = MappingProxyType(
    {
        "float64": 1e-6,
        "float32": 64 * _SPACINGS["float32"],
        "float16": 4 * _SPACINGS["float16"],
        "bfloat16": 4 * _SPACINGS["bfloat16"],
        "complex64": 64 * _SPACINGS["complex64"],
        "complex128": 1e-6,
    }
)
"""float32 sums hundreds of numbers per result, in another order than torch; of the short types only
the results are rounded, and the sums are float32. Of the long ones the device has no arithmetic, and
parts of them may be computed in float32."""

TYPICAL_PART: Final = 0.5
"""What is near torch by its largest error must be so by the root of the mean square of its errors,
too, by this part of what the largest may be: few errors are as large as the largest."""
NEGLIGIBLE_GRADIENT: Final = 1e-3
"""Part of the largest gradient of all below which a parameter's gradient may be noise: behind a
normalisation, that of a bias is zero but for rounding."""

TIMES_TORCHS_ERROR: Final = 5.0
"""How many times torch's own error against float64 an error of ours may be. Over 100 networks it is
half as large to twice as large, rarely three times: errors of the same size from other sums."""
TIMES_TORCHS_JUMPS: Final = 3.0
"""How many times the largest jump of torch an error of ours may be: where one number on the edge of
a ReLU flips in torch when it is perturbed, two or three may have flipped here."""
TIMES_ALLOWED: Final = 10.0
"""How many times what is allowed an error may be after all, if each operator by itself computes what
torch does, and the graph of them all in float64 what the module does: torch may have been lucky."""
FLOOR_ROUNDINGS: Final = 16.0
"""Roundings of a tensor's largest number that are never too many, besides: torch's own error may be
0 by chance, as in a tensor of a single number."""
UPDATE_ROUNDINGS: Final = 16.0
"""How many roundings of the largest number of a tensor a step of an optimizer may be off besides: it
has about ten operations, and torch rounds its scalars at other places."""


def rounding_unit(dtype: str) -> float | None:
    """Return the largest relative error of rounding one number to a 16-bit type.

    Args:
        dtype: Name of an output's data type.

    Returns:
        Half of the distance between 1 and the next number: 2**-11 for float16, 2**-8 for bfloat16;
        None for types whose outputs are judged by ``OUTPUT`` or must be equal.
    """
    bits = _SIGNIFICANDS.get(dtype)
    # Half a unit of the last place, as 1 has one digit in front of the binary point.
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


def spacing(dtype: str) -> float:
    """Return the distance of 1 and the next number of a type.

    Args:
        dtype: Name of the data type.

    Returns:
        Of complex numbers that of their parts; 0 for types that are not rounded.
    """
    # What is not rounded must be equal: 0 makes every difference too large.
    return _SPACINGS.get(dtype, 0.0)


def near_torch(dtype: str) -> float:
    """Return how far a result may be from eager torch's without a look at torch's own error.

    Args:
        dtype: Name of the tensor's data type.

    Returns:
        The largest error, as a fraction of the largest number of the tensor. 0 for types that must
        be equal.
    """
    return _NEAR_TORCH.get(dtype, 0.0)
