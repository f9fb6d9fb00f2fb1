"""Which tiles of the device a process uses, as the vendor's runtime is told."""

from __future__ import annotations

import os
from typing import Final

from samba_onnx.utils.processes import get_rank

AFFINITY: Final = "SF_RNT_TILE_AFFINITY"
"""Variable of the environment: a mask of 32 bits, four tiles for each of eight RDUs."""

_RDUS: Final = 8
_TILES: Final = 0xF


def fix_rdu_affinity() -> None:
    """Give every process of a group an RDU of its own, by its rank.

    It sets ``SF_RNT_TILE_AFFINITY`` in the environment of this process. The emulator gives every
    process a device of its own, whatever it says.
    """
    # Beyond eight processes there is no RDU left: the ninth has that of the first.
    os.environ[AFFINITY] = f"0x{_TILES << (4 * (get_rank() % _RDUS)):08x}"
