"""The cluster that Ray is connected to, for whatever works on many machines."""

from __future__ import annotations

import os
from typing import Any, Final

_STORE_BYTES: Final = 128 << 20
"""Memory that a cluster on this machine keeps for what its processes share. Ray would take a third of the
machine's, of which containers often have little (/dev/shm)."""


def connect(ray: Any) -> None:
    """Connect to the cluster of ``RAY_ADDRESS`` if that is set, else start one here: small, and without a word.

    A program that is connected already stays so.

    Args:
        ray: The module.
    """
    if ray.is_initialized():
        return
    quiet = {"logging_level": "error", "log_to_driver": False}
    # Ray would report its use to its makers.
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    if os.environ.get("RAY_ADDRESS"):
        ray.init(**quiet)
    else:
        ray.init(include_dashboard=False, object_store_memory=_STORE_BYTES, **quiet)
