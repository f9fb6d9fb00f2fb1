"""What ``sambaflow.samba`` has beside the names of ``samba_onnx``."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["is_internal", "patched_torch"]


def is_internal() -> bool:
    """Return whether this is an installation of the vendor's own, which it never is."""
    return False


@contextmanager
def patched_torch() -> Iterator[None]:
    """Let functions of torch be those of ``samba.functional``, inside.

    Given a SambaTensor they are that everywhere, so the context changes nothing.
    """
    yield
