"""The record of operators that were computed on the host: the functional interface lacks them."""

from __future__ import annotations

import os
import sys
import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import torch

from samba_onnx.errors import HostOperatorWarning

_LIBRARIES: Final = tuple(
    f"{folder}{os.sep}" for folder in (Path(torch.__file__).parent, Path(__file__).parent.parent)
)
"""Folders of torch and of this package: a call in a file below them is not the user's own."""


@dataclass(frozen=True)
class HostOperator:
    """One operator without a row in the dispatch table."""

    name: str
    """Name of the operator, whichever way it was spelled."""
    calls: int
    """How often it was called on a SambaTensor."""
    location: str
    """File and line of the first call in code that is neither torch's nor this package's."""


class HostOperators:
    """The operators of one process that were computed on the host, each with its number of calls.

    The first call of each warns, so that a loop does not warn a thousand times.
    """

    def __init__(self) -> None:
        self._entries: dict[str, HostOperator] = {}
        self._lock = threading.Lock()
        self._paused = 0
        if hasattr(os, "register_at_fork"):
            # Another thread may have it while this one forks; in the child nobody lets it go.
            os.register_at_fork(after_in_child=self._renew_lock)

    def _renew_lock(self) -> None:
        self._lock = threading.Lock()

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Within it, calls are neither counted nor warned of: this package computes for itself."""
        self._paused += 1
        try:
            yield
        finally:
            self._paused -= 1

    def enter(self, name: str) -> None:
        """Count one call of an operator, and warn when it is the first.

        Args:
            name: Name of the operator, whichever way it was spelled.

        Warns:
            HostOperatorWarning: The first call of this operator since the last ``clear``.
        """
        if self._paused:
            return
        with self._lock:
            entry = self._entries.get(name)
            if entry is not None:
                self._entries[name] = replace(entry, calls=entry.calls + 1)
                return
            location, depth = _first_caller()
            self._entries[name] = HostOperator(name, 1, location)
        # When the lock is open again: whoever shows warnings may call operators, too.
        warnings.warn(
            f"{name} is not an operator of samba_onnx.functional: it is computed on the host",
            HostOperatorWarning,
            stacklevel=depth,
        )

    def clear(self) -> None:
        """Forget everything: the next call of each operator warns again."""
        with self._lock:
            self._entries.clear()

    @property
    def entries(self) -> tuple[HostOperator, ...]:
        """The operators computed on the host so far, in the order of their first call."""
        with self._lock:
            return tuple(self._entries.values())


def _first_caller() -> tuple[str, int]:
    """Return file and line of the innermost frame of the user's own code, and its depth.

    The depth is what ``warnings.warn`` takes as ``stacklevel`` when the caller of this warns.
    """
    depth = 2
    frame = sys._getframe(2)
    while frame.f_back is not None and frame.f_code.co_filename.startswith(_LIBRARIES):
        frame, depth = frame.f_back, depth + 1
    return f"{frame.f_code.co_filename}:{frame.f_lineno}", depth


HOST_OPERATORS: Final = HostOperators()
"""The record of this process."""
