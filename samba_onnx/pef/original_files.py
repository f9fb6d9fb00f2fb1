"""Which bytes a PEF was made of: the files of a model, with their digests."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["OriginalFile"]


@dataclass(frozen=True)
class OriginalFile:
    """A file of the model that a PEF was made of."""

    name: str
    """File name of the model; of external data the location that the model states."""
    bytes: int
    """Its size."""
    sha256: str
    """SHA-256 of the whole file in hexadecimal, as ``sha256sum`` prints it."""
