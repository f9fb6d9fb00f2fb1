"""Ending a program at once, whatever other processes and threads are doing."""

from __future__ import annotations

import atexit
import os
import sys
from collections.abc import Callable
from typing import Any, Final

_HANDLERS: Final[list[Callable[[], Any]]] = []
"""Exit handlers in the order of registration."""


def atexit_register(func: Callable[..., Any], *args: Any, **kwargs: Any) -> None:
    """Register a function that is called when the program ends, with ``use_abexit`` or not.

    Args:
        func: What to call.
        *args: With what.
        **kwargs: With which keywords.
    """
    # Python's atexit and run_handlers both may come to it: whoever is first calls it.
    called = False

    def once() -> None:
        nonlocal called
        if not called:
            called = True
            func(*args, **kwargs)

    _HANDLERS.append(once)
    # A program that ends without use_abexit has only Python's own handlers.
    atexit.register(once)


def use_abexit(func: Callable[..., Any], *args: Any, **kwargs: Any) -> None:
    """Run a program, and end the process when it returns or raises, whatever else goes on.

    Exit handlers of ``atexit_register`` are called, those of Python's ``atexit`` are not.

    Args:
        func: The program.
        *args: With what.
        **kwargs: With which keywords.
    """
    # With 0, the status of a SystemExit, or 1 after any other exception, whose traceback is shown.
    status = _status(func, *args, **kwargs)
    status = run_handlers() or status
    # os._exit writes out nothing that is still buffered.
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    os._exit(status)


def run_handlers() -> int:
    """Call the functions of ``atexit_register`` that were not called yet, last one first.

    Returns:
        0, or the status with which the last one that raised would end the process.
    """
    status = 0
    for handler in reversed(_HANDLERS):
        status = _status(handler) or status
    return status


def _status(function: Callable[..., Any], *args: Any, **kwargs: Any) -> int:
    try:
        function(*args, **kwargs)
    except SystemExit as leaving:
        if leaving.code is None or isinstance(leaving.code, int):
            return leaving.code or 0
        # As Python does with a SystemExit of text: it is a message, and the status is 1.
        sys.stderr.write(f"{leaving.code}\n")
        return 1
    except BaseException:  # Whatever it is, the process must end.
        # As Python ends with it: whoever is to hear of uncaught exceptions hears of this one.
        sys.excepthook(*sys.exc_info())
        return 1
    return 0
