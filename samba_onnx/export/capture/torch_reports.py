"""What torch writes to the standard error before it raises: graphs of hundreds of lines, tracebacks."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator
from typing import Final

__all__ = ["without_reports"]

_LOGGERS: Final = tuple(
    map(
        logging.getLogger,
        (
            # Warns that it does not find the user's line, which the error that follows names.
            "torch.fx.experimental.symbolic_shapes",
            # Tells of a file that cannot be read with a traceback, before it tries an older format.
            "torch.export",
            "torch.export.pt2_archive._package",
            "torch._export.serde.serialize",
        ),
    )
)


@contextlib.contextmanager
def without_reports() -> Iterator[list[BaseException]]:
    """Keep torch's own reports of a failure to itself within the context; errors are raised as ever.

    Yields:
        The errors that it would have told of, as far as they come to pass.
    """
    # Half of what a session imports is behind this module, which only a capture needs.
    from torch.export import _trace

    scope, kept = vars(_trace), _Kept()
    # Its file has no switch for it: there, the name of the builtin stands for another function.
    scope["print"] = _discard
    for logger in _LOGGERS:
        logger.addFilter(kept)
    try:
        yield kept.errors
    finally:
        del scope["print"]
        for logger in _LOGGERS:
            logger.removeFilter(kept)


class _Kept(logging.Filter):
    """Keeps what loggers would tell of."""

    def __init__(self) -> None:
        super().__init__()
        self.errors: list[BaseException] = []

    def filter(self, record: logging.LogRecord) -> bool:
        """Let nothing through."""
        if record.exc_info and record.exc_info[1] is not None:
            self.errors.append(record.exc_info[1])
        return False


def _discard(*_values: object, **_options: object) -> None:
    """Take the arguments of ``print``, and print nothing."""
