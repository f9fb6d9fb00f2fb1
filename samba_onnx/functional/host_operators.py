"""What was computed on the host because the functional interface does not have it."""

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


@dataclass(frozen=True)
class HostOperator:
    """One operator without a row in the dispatch table."""

    name: str
    """The operator's name."""
    calls: int
    """How often it was called on a SambaTensor."""
    location: str
    """File and line of the first call in code that is neither torch's nor this package's."""


class HostOperators:
    """The record: warns once per operator, counts all calls."""

    def __init__(self) -> None:
        self._entries: dict[str, HostOperator] = {}
        self._lock = threading.Lock()
        self._paused = 0

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Neither count nor warn inside, where this package computes for itself."""
        self._paused += 1
        try:
            yield
        finally:
            self._paused -= 1

    def enter(self, name: str) -> None:
        """Count one call of an operator; warn when it is the first.

        Args:
            name: The operator's name.

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
    """The innermost frame of the user's own code, and its distance for ``warnings.warn``."""
    depth = 2
    frame = sys._getframe(2)
    while frame.f_back is not None and frame.f_code.co_filename.startswith(_LIBRARIES):
        frame, depth = frame.f_back, depth + 1
    return f"{frame.f_code.co_filename}:{frame.f_lineno}", depth


HOST_OPERATORS: Final = HostOperators()
"""The record of this process."""
