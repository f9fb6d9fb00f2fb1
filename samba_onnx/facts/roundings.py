"""Where a device rounds to bfloat16 at random: what SambaFlow's flags and this product's options name."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from enum import StrEnum
from types import MappingProxyType
from typing import Any, Final

from samba_onnx.errors import UsageError

__all__ = [
    "ROUNDING",
    "SETTINGS",
    "Rounding",
    "describe_rounding",
    "roundings_of",
    "stated_roundings",
    "write_rounding",
]


ROUNDING: Final = "samba.rounding"
"""Key of a PEF's metadata: how many values are rounded at random, by what they are."""


class Rounding(StrEnum):
    """Values that a training program may round to bfloat16 at random; all others it rounds to nearest."""

    STEPS = "steps"
    """What optimizers store in bfloat16: weights that have no float32 copy, and states."""
    GRADIENTS = "gradients"
    """Sums that make gradients of weights: products, convolutions and sums over batches."""
    CONVOLUTIONS = "convolution-gradients"
    """Convolutions among these sums."""
    BIASES = "bias-gradients"
    """Sums over batches among these sums, as of biases."""


SETTINGS: Final = MappingProxyType(
    {
        ("enable_stochastic_rounding", True): Rounding.STEPS,
        ("enable_safe_stochastic_rounding", True): Rounding.STEPS,
        ("weight_grad_reduce", "bf16sr"): Rounding.GRADIENTS,
    }
)
"""What SambaFlow's settings ask for, by name and value. Its documents say of ``bf16sr`` that it is bfloat16
with stochastic rounding, and nothing of the flags; the vendor's paper on training in bfloat16
(arXiv 2010.06192) rounds at random where weights are updated."""

_MEANINGS: Final = MappingProxyType(
    {
        Rounding.STEPS: "values that optimizers store in bfloat16",
        Rounding.GRADIENTS: "sums that make gradients of weights",
        Rounding.CONVOLUTIONS: "convolutions that make gradients of weights",
        Rounding.BIASES: "sums over batches that make gradients of weights",
    }
)


def roundings_of(choice: str | Iterable[str] | None) -> frozenset[Rounding]:
    """Return what is rounded at random, by its names.

    Args:
        choice: One name, several with commas and maybe spaces between them, or several names; None for nothing.

    Raises:
        UsageError: A name is unknown.
    """
    names = [n.strip() for n in choice.split(",")] if isinstance(choice, str) else [*(choice or ())]
    # A list, since `in` of an enumeration's class refuses texts before Python 3.12.
    unknown = [name for name in names if name not in list(Rounding)]
    if unknown:
        raise UsageError(
            f"stochastic_rounding names {unknown[0]!r}: expected some of {', '.join(Rounding)}"
        )
    return frozenset(map(Rounding, names))


def stated_roundings(settings: Mapping[str, Any]) -> frozenset[Rounding]:
    """Return what settings of SambaFlow's ask to round at random.

    Args:
        settings: By name; a truth value may be a text, as files of settings have it.
    """
    return frozenset(
        rounding
        for (name, value), rounding in SETTINGS.items()
        # As texts without case: a file of settings has `true` where a program has True.
        if str(settings.get(name, "")).lower() == str(value).lower()
    )


def write_rounding(counts: Mapping[Rounding, int]) -> dict[str, str]:
    """Return what a PEF says of its stochastic rounding, as metadata.

    Args:
        counts: How many values are rounded at random, by what was asked for; nothing where nothing was.
    """
    return {ROUNDING: json.dumps(dict(counts))} if counts else {}


def describe_rounding(metadata: Mapping[str, str]) -> tuple[str, ...]:
    """Return sentences about the stochastic rounding of a PEF; none where none was asked for.

    Args:
        metadata: The PEF's. A text under the key that is not ours stands for nothing.
    """
    # A count that is no number, or a key that is the user's own, must not keep a PEF from being
    # inspected.
    try:
        counts = {
            Rounding(name): int(count)
            for name, count in json.loads(metadata.get(ROUNDING, "{}")).items()
        }
    except (ValueError, TypeError, AttributeError):
        return ()
    rounded = [f"{_MEANINGS[one]} ({count:,})" for one, count in counts.items() if count]
    nothing = [one for one, count in counts.items() if not count]
    # What was asked for without effect is said too, or a user would believe that it rounds.
    sentences = [f"Stochastic rounding to bfloat16: {', '.join(rounded)}."] if rounded else []
    if nothing:
        sentences.append(
            f"Stochastic rounding of {', '.join(nothing)} was asked for, where nothing is rounded to "
            "bfloat16: what is float32 needs none."
        )
    return tuple(sentences)
