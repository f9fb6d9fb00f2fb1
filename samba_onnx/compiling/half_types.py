"""In which types of a target a model is computed."""

from __future__ import annotations

from typing import Final

import onnx_ir as ir

from samba_onnx.errors import UsageError
from samba_onnx.facts.precisions import Precision, precision_of
from samba_onnx.passes.targets import Target

__all__ = ["CHOICES", "float16_type", "precision_for"]

_TYPES: Final = {"float32": ir.DataType.FLOAT, "bfloat16": ir.DataType.BFLOAT16}
"""In the order in which they are taken: float32 holds all numbers of float16, and rounds less; bfloat16
holds 8 of its 11 digits."""
_LEFT: Final = "cpu"
CHOICES: Final = (*_TYPES, _LEFT)
"""What users choose from."""


def float16_type(
    target: Target, choice: str | None = None, precision: Precision = Precision.FP32
) -> ir.DataType | None:
    """Return the type that takes the place of float16.

    Args:
        target: The device.
        choice: ``float32``, ``bfloat16``, or ``cpu`` to leave float16 to the host; None takes float32 if
            the target has it, else bfloat16.
        precision: In which types operators compute; where all compute in bfloat16, so does float16 by default:
            it would be float32 by conversions, which they keep.

    Returns:
        None where float16 stays: the target has it itself, or has neither of the others.

    Raises:
        UsageError: There is no such choice, or the target lacks the type.
    """
    if choice is None:
        if "float16" in target.dtypes:
            return None
        whole = precision in (Precision.BF16, Precision.BF16_THROUGHOUT)
        order = ("bfloat16", "float32") if whole else tuple(_TYPES)
        return next((_TYPES[name] for name in order if name in target.dtypes), None)
    if choice not in CHOICES:
        raise UsageError(f"float16 is {choice!r}: expected one of {', '.join(CHOICES)}")
    if choice == _LEFT:
        return None
    if choice not in target.dtypes:
        raise UsageError(
            f"float16 is {str(choice)!r}, but {target.name} computes with {', '.join(target.dtypes)} only"
        )
    return _TYPES[choice]


def precision_for(target: Target, choice: str | None) -> Precision:
    """Return the precision in which models are computed.

    Args:
        target: The device.
        choice: As users name it; None for the model's own types.

    Raises:
        UsageError: There is no such choice, or the target lacks bfloat16.
    """
    precision = precision_of(choice)
    if not precision.is_own and "bfloat16" not in target.dtypes:
        raise UsageError(
            f"precision is {str(choice)!r}, but {target.name} computes with {', '.join(target.dtypes)} only"
        )
    return precision
