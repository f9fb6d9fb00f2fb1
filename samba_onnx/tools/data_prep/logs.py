"""The log of a run, in a file."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator
from pathlib import Path

from samba_onnx.errors import OutputError

LOGGER = logging.getLogger("samba_onnx.data_prep")


@contextlib.contextmanager
def log_to(path: Path) -> Iterator[None]:
    """Append what is logged meanwhile to a file, with the error that ends it, if one does.

    Args:
        path: The file; its folder is made.

    Raises:
        OutputError: It cannot be written.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handler = _FileHandler(path, encoding="utf-8")
    except OSError as error:
        raise OutputError(f"{path}: cannot write the log: {error.strerror}", path=path) from None
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s"))
    level, propagates = LOGGER.level, LOGGER.propagate
    LOGGER.setLevel(logging.INFO)
    LOGGER.propagate = False  # the command line says what users must see
    LOGGER.addHandler(handler)
    try:
        yield
    except BaseException as error:
        LOGGER.error("ended by %s: %s", type(error).__name__, error)  # noqa: TRY400  # the answer, not the code
        raise
    finally:
        LOGGER.removeHandler(handler)
        LOGGER.setLevel(level)
        LOGGER.propagate = propagates
        with contextlib.suppress(OSError):  # what it could not write it cannot write now
            handler.close()


class _FileHandler(logging.FileHandler):
    """Keeps silent of what it cannot write: a full disk ends the run itself, in words."""

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802  logging calls it so
        """Print no traceback."""
