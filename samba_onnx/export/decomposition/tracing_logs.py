"""What torch logs while it traces, besides raising it."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator
from typing import Final

_TRACING_LOGGER: Final = "torch._subclasses.fake_tensor"
"""Logs, besides raising it, every error of an operator that is traced."""


@contextlib.contextmanager
def without_tracebacks() -> Iterator[None]:
    """Keep torch from logging the traceback of an error that it raises as well."""
    logger = logging.getLogger(_TRACING_LOGGER)

    def drop(_record: logging.LogRecord) -> bool:
        return False

    logger.addFilter(drop)
    try:
        yield
    finally:
        logger.removeFilter(drop)
