"""What a SambaFlow program shows on its console of what samba-onnx logs."""

from __future__ import annotations

import logging
from typing import Final

from samba_onnx.sambaflow.logging import ConsoleHandler

_LOGGERS: Final = ("samba_onnx", "sambaflow")
_LIBRARIES: Final = ("onnx_ir", "onnxscript", "torch.onnx")
"""Libraries below samba-onnx that log every step; a program that sets up logging would show them."""


class _Once(logging.Filter):
    """Lets every message pass once: programs loop, and SambaFlow says a thing when it traces."""

    def __init__(self) -> None:
        super().__init__()
        self._seen: set[tuple[int, str]] = set()

    def filter(self, record: logging.LogRecord) -> bool:
        message = (record.levelno, record.getMessage())
        is_new = message not in self._seen
        self._seen.add(message)
        return is_new


def show_messages() -> None:
    """Print what samba-onnx logs to standard error, in SambaFlow's form and each message once.

    Without it, samba-onnx is a library, and what it logs goes where the process says.
    """
    logger = logging.getLogger("samba_onnx")
    if not any(isinstance(handler, ConsoleHandler) for handler in logger.handlers):
        handler = ConsoleHandler()
        handler.addFilter(_Once())
        logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    logger.propagate = False  # a program that sets up logging would show each line twice
    for name in _LIBRARIES:
        logging.getLogger(name).setLevel(logging.WARNING)


def set_level(level: str) -> None:
    """Set the least level of what is printed.

    Args:
        level: Name of a level of ``logging``, in any case.
    """
    for name in _LOGGERS:
        logging.getLogger(name).setLevel(level.upper())
