"""What torch's exporter writes to the standard error before it raises: graphs of hundreds of lines."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator
from typing import Final

__all__ = ["without_reports"]

_LOGGER: Final = logging.getLogger("torch.fx.experimental.symbolic_shapes")
"""Warns that it does not find the user's line, which the error that follows names."""


@contextlib.contextmanager
def without_reports() -> Iterator[None]:
    """Keep torch's own reports of a failure to itself within the context; errors are raised as ever."""
    # Half of what a session imports is behind this module, which only a capture needs.
    from torch.export import _trace

    scope, before = vars(_trace), _LOGGER.disabled
    # Its file has no switch for it: there, the name of the builtin stands for another function.
    scope["print"] = _discard
    _LOGGER.disabled = True
    try:
        yield
    finally:
        del scope["print"]
        _LOGGER.disabled = before


def _discard(*_values: object, **_options: object) -> None:
    """Take the arguments of ``print``, and print nothing."""
