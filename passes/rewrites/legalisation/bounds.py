"""How large the constants that a rule writes may be: models are of unknown origin, and state any size."""

from __future__ import annotations

from typing import Final

from samba_onnx.passes.rewrites.foreign.drafting import CannotExpandError

MOST: Final = 1 << 22
"""Elements of a constant that a rule writes at most: 16 MiB of float32."""


def refuse_large(*sizes: int) -> None:
    """Give up before a constant is made that would take too much space.

    Args:
        *sizes: Elements of constants.

    Raises:
        CannotExpandError: One of them has more than there may be.
    """
    # Sizes are compared before an array is made: a model may state a size that no memory holds.
    if max(sizes) > MOST:
        raise CannotExpandError(
            f"it would need a constant of {max(sizes):,} elements, more than {MOST:,}"
        )
