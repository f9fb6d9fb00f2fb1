"""``sambaflow.logging``: where SambaFlow and its programs log."""

from __future__ import annotations

import logging
import sys
from collections import Counter
from typing import Any, Final

__all__ = ["SambaLogger", "samba_logger"]


class SambaLogger(logging.LoggerAdapter[logging.Logger]):
    """A logger whose messages can be limited in number."""

    def __init__(self, logger: logging.Logger) -> None:
        """Log to a logger.

        Args:
            logger: Handles what is logged.
        """
        super().__init__(logger, {})
        self._counts: Counter[tuple[int, str]] = Counter()

    def log(self, level: int, msg: object, *args: object, **kwargs: Any) -> None:
        """Log a message, unless it was logged often enough.

        ``debug``, ``info``, ``warning``, ``error`` and ``critical`` take the same arguments, without
        the level.

        Args:
            level: Level of the message, as ``logging.INFO``.
            msg: The message, before its arguments are filled in; messages are counted by it.
            *args: What is filled in.
            **kwargs: ``log_limit``, how many times the message is logged at most, None for always;
                and those of ``logging.Logger.log``.
        """
        log_limit = kwargs.pop("log_limit", None)
        if log_limit is not None:
            self._counts[level, str(msg)] += 1
            if self._counts[level, str(msg)] > log_limit:
                return
        kwargs["stacklevel"] = kwargs.get("stacklevel", 1) + 1  # the caller, not this method
        super().log(level, msg, *args, **kwargs)


class ConsoleHandler(logging.Handler):
    """Writes to what standard error is at that time, in the form of SambaFlow's console lines."""

    def emit(self, record: logging.LogRecord) -> None:
        try:
            sys.stderr.write(f"[{record.levelname.lower()}] [samba]: {self.format(record)}\n")
        except (OSError, ValueError):  # nobody reads it any more
            self.handleError(record)


def _console_logger() -> logging.Logger:
    logger = logging.getLogger("sambaflow")
    if not logger.handlers:
        logger.addHandler(ConsoleHandler())
    logger.setLevel(logging.INFO)
    logger.propagate = False  # a program that sets up logging would show each line twice
    return logger


samba_logger: Final = SambaLogger(_console_logger())
"""The logger of SambaFlow and its programs: ``samba_logger.warning(message, log_limit=1)``."""
