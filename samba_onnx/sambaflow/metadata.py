"""``sambaflow.mac.metadata``: how a compilation is to cut convolutions into tiles.

Programs hand these to ``samba.session.compile(metadata={...})``. The emulator computes convolutions
whole, so they change no number; the PEF keeps them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

__all__ = ["ConvTilingMetadata", "TilingMetadata"]


@dataclass(frozen=True)
class ConvTilingMetadata:
    """The size of what is convolved in tiles."""

    key: ClassVar[str] = "conv_tiling"
    """Under which it stands in the mapping that is given to ``compile``."""

    original_size: Sequence[int]
    """Sizes of the whole input, as ``[batch, channels, height, width]``."""


@dataclass(frozen=True)
class TilingMetadata:
    """The size of what is computed in tiles, and how many there are."""

    key: ClassVar[str] = "tiling"
    """Under which it stands in the mapping that is given to ``compile``."""

    original_size: Sequence[int]
    """Sizes of the whole input, as ``[batch, channels, height, width]``."""

    num_tiles: Sequence[int] = ()
    """Tiles along batch, height and width."""
