"""In which types a device computes: what SambaFlow's presets and this product's options name."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from enum import StrEnum
from types import MappingProxyType
from typing import Final

from samba_onnx.errors import UsageError

__all__ = [
    "CONTROL",
    "CONVERSION",
    "CUSTOM",
    "INTEGERS",
    "NO_FORM",
    "NO_PRODUCT",
    "PRECISION",
    "PRESETS",
    "STATISTICS",
    "SWITCHED_OFF",
    "Precision",
    "describe_precision",
    "precision_of",
    "preset_precision",
    "stored_precision",
    "write_precision",
]


PRECISION: Final = "samba.precision"
"""Key of a PEF's metadata: the precision, and what computes in float32 in spite of it."""


CONVERSION: Final = "conversions by the model"
CONTROL: Final = "graphs inside of them"
CUSTOM: Final = "their custom domain"
NO_FORM: Final = "no form in bfloat16 in ONNX"
INTEGERS: Final = "results that are integers"
NO_PRODUCT: Final = "no matrix product in them"
STATISTICS: Final = "running statistics"
SWITCHED_OFF: Final = "disable_graphamp"
"""Reasons why operators compute in float32 in spite of a precision."""


class Precision(StrEnum):
    """In which types the operators of a model compute that states float32."""

    FP32 = "fp32"
    """In the types that the model states."""
    MIXED = "mixed"
    """Matrix products and convolutions in bfloat16, all others in float32."""
    BF16 = "bf16"
    """All in bfloat16, but for what the model itself converts to float32."""
    BF16_THROUGHOUT = "bf16-throughout"
    """All in bfloat16, whatever the model converts."""

    @property
    def is_own(self) -> bool:
        """Whether a model keeps the types that it states."""
        return self is Precision.FP32


PRESETS: Final = MappingProxyType(
    # Only what documents state: a preset that is announced without a meaning is refused by
    # `preset_precision`.
    {
        "mp0": Precision.FP32,
        "mp1": Precision.MIXED,
        "mp4": Precision.BF16_THROUGHOUT,
        "default": Precision.BF16,
    }
)
"""Precisions by the value of ``--graphamp-preset``, as SambaFlow 1.18 documents them; its documents
announce mp2 and mp3, and do not say what they do."""


_MEANINGS: Final = MappingProxyType(
    {
        Precision.MIXED: "matrix products and convolutions take and return bfloat16",
        Precision.BF16: "values between operators are bfloat16, up to conversions by the model",
        Precision.BF16_THROUGHOUT: "values between operators are bfloat16",
    }
)


def precision_of(choice: str | None) -> Precision:
    """Return a precision by its name.

    Args:
        choice: A name; None for the model's own types.

    Raises:
        UsageError: There is no such precision.
    """
    if choice is None:
        return Precision.FP32
    try:
        return Precision(choice)
    except ValueError:
        raise UsageError(
            f"precision is {choice!r}: expected one of {', '.join(Precision)}"
        ) from None


def write_precision(
    precision: Precision, wide: Mapping[str, Counter[str]], *, idle: bool = False
) -> dict[str, str]:
    """Return what a PEF says of the types in which it computes, as metadata.

    Args:
        precision: As the user chose it.
        wide: How often each operator computes in float32 in spite of it, by the reason.
        idle: Whether no operator computes in bfloat16 because of it.
    """
    # The most frequent first, as people read lists from the front; the order is part of the PEF's
    # bytes.
    counts = {reason: dict(names.most_common()) for reason, names in wide.items()}
    # Left out where it is false: a PEF without the word means the same.
    content = {"precision": precision, "float32": counts} | ({"idle": True} if idle else {})
    return {PRECISION: json.dumps(content)}


def stored_precision(metadata: Mapping[str, str]) -> Precision:
    """Return the precision in which a PEF was compiled.

    Args:
        metadata: The PEF's. A text under the key that is not ours stands for the model's own types.
    """
    # Metadata may hold a text of the user's under this key.
    try:
        return Precision(json.loads(metadata.get(PRECISION, "{}"))["precision"])
    except (ValueError, LookupError, TypeError):
        return Precision.FP32


def describe_precision(metadata: Mapping[str, str]) -> tuple[str, ...]:
    """Return sentences about the precision of a PEF; none where it computes in the model's own types.

    Args:
        metadata: The PEF's.
    """
    precision = stored_precision(metadata)
    if precision.is_own:
        return ()
    content = json.loads(metadata[PRECISION])
    counts = content.get("float32") or {}
    sentences = [f"Precision {precision}: {_MEANINGS[precision]}."]
    # A precision that changed nothing is said in its own sentence; the usual one would be wrong.
    if content.get("idle"):
        sentences = [
            f"Precision {precision} changes nothing: the model has no operator on float32 that it would "
            "compute in bfloat16."
        ]
    for reason, names in counts.items():
        listed = ", ".join(f"{name} ({count})" for name, count in names.items())
        sentences.append(f"In float32 because of {reason}: {listed}.")
    return tuple(sentences)


def preset_precision(preset: str) -> Precision:
    """Return the precision that a preset of SambaFlow's stands for.

    Args:
        preset: As ``--graphamp-preset`` takes it.

    Raises:
        UsageError: SambaFlow's documents do not say what it does.
    """
    # A preset that is guessed would change a model's numbers without a word.
    if preset not in PRESETS:
        raise UsageError(
            f"graphamp_preset is {preset!r}: expected one of {', '.join(PRESETS)}; SambaFlow's "
            "documents do not say what others do"
        )
    return PRESETS[preset]
