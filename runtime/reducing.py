"""How a device combines gradients with those of other replicas: what it asks for, and of whom.

The runtime knows no network. Somebody hands it a :class:`GradientReducer`, which takes means of arrays over
all replicas; the arrays are gradients where they lie in device memory, or copies on the host.
"""

from __future__ import annotations

import enum
from typing import NamedTuple, Protocol

from samba_onnx.runtime.elements import Array


class ReductionMode(enum.StrEnum):
    """When gradients are reduced, and who waits for them (SambaFlow's ``data_parallel_mode``)."""

    NORMAL = "normal"
    """Between BCKWD and what reads gradients; nothing else happens meanwhile."""
    INORDER = "inorder"
    """While the rest of BCKWD runs; sections run in the order of the schedule."""
    OPTIMAL = "optimal"
    """Like INORDER, and sections of type GRADNORM and OPT begin as soon as the gradients that they
    read are reduced, in whatever order that is."""


class GradientReduction(NamedTuple):
    """How a run combines gradients with those of other replicas."""

    mode: ReductionMode
    replicas: int
    """How many there are, at least 2."""
    on_rdu: bool
    """Whether devices reduce among themselves; otherwise their hosts do."""


class PendingReduction(Protocol):
    """Means that are being taken."""

    def wait(self) -> None:
        """Return when the array holds the means.

        Raises:
            Exception: A replica is lost, or the network fails; whatever the reducer raises.
        """


class GradientReducer(Protocol):
    """Takes means over all replicas, which ask for the same ones in the same order."""

    def start(self, values: Array, name: str) -> PendingReduction:
        """Begin to replace every number by its mean over all replicas.

        Args:
            values: One dimension, without gaps, of a floating-point type, with
                :mod:`ml_dtypes` where numpy has none. Nobody else touches it until the reduction
                was waited for. It then has the same bits on all replicas.
            name: What they are, for people; the same on all replicas.
        """

    def agree(self, value: bytes) -> bool:
        """Return whether all replicas, which all ask, give the same value.

        Args:
            value: What this one has.
        """
