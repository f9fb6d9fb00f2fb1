"""From exceptions to one line on standard error and an exit status."""

from __future__ import annotations

import contextlib
import errno
import os
import sys
import traceback
from collections.abc import Callable, Sequence

from samba_onnx.cli.signals import Interrupted, interruption
from samba_onnx.errors import InternalError, PassMismatchError, SambaError
from samba_onnx.safety.files import printable
from samba_onnx.surroundings import blame
from samba_onnx.tools import find_tools

EXIT_YES = 0
EXIT_NO = 1
"""The command ran, but the answer is no."""
EXIT_USAGE = 2
"""Bad input or usage."""
EXIT_PIPE = 141
"""Whoever read the output went away, as shells report SIGPIPE."""

DEBUG_VARIABLE = "SAMBA_ONNX_DEBUG"
_LONGEST = 600


class OutputClosedError(Exception):
    """Whoever read standard output went away.

    Not a ``BrokenPipeError``: the parser of the command line ends the process at that one.
    """


def answer_or_complain(action: Callable[[], int], arguments: Sequence[str]) -> int:
    """Run a command; turn whatever it raises into one line and an exit status.

    Args:
        action: Returns an exit status.
        arguments: The words of the command line, in which the command's name and ``-vv`` are looked
            for.

    Returns:
        The exit status.
    """
    name = "samba-port"
    # Only a command's own name: a mistyped word must not look like one.
    if arguments and arguments[0] in find_tools():
        name += f" {arguments[0]}"
    try:
        status = action()
        flush_output()
    except Exception as error:  # the last stop before the user
        with contextlib.suppress(OSError):
            flush_output()  # an output that is full still has what it did not take
        number = interruption()
        if number is not None:  # which native code turned into an error of its own
            complain(name, "interrupted")
            return 128 + number
        if _wants_traceback(arguments):
            traceback.print_exc()
        return _explain(error, name)
    except Interrupted as interrupted:
        interruption()
        complain(name, "interrupted")
        return 128 + interrupted.number
    except KeyboardInterrupt:
        complain(name, "interrupted")
        # 128 and SIGINT, as shells report it.
        return 130
    except (
        SystemExit
    ) as end:  # the parser's, after it completed; or when the output's reader is gone
        return EXIT_PIPE if end.code else EXIT_YES
    return status


def complain(name: str, message: str) -> None:
    """Write one line on standard error.

    Args:
        name: The command.
        message: Line breaks and control characters in it are replaced; what is longer than a few
            lines of a terminal is cut.
    """
    # Nothing is imported here: what was interrupted may be the import of it.
    line = printable(" ".join(message.split()), limit=_LONGEST + 1)
    if sys.stderr is not None:
        with contextlib.suppress(OSError, ValueError):
            sys.stderr.write(f"{name}: {line}\n")
            sys.stderr.flush()


def flush_output() -> None:
    """Write out what is buffered, so that a full disk or a closed pipe is noticed here.

    Raises:
        OSError: Standard output cannot be written.
    """
    if sys.stdout is None:
        return
    try:
        sys.stdout.flush()
    except OSError:
        # The interpreter would try again when it ends, and complain in its own way.
        with contextlib.suppress(OSError, ValueError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise


def _explain(error: Exception, name: str) -> int:
    """Write the line for an exception, and return the exit status."""
    # No message: whoever closed the pipe, as `head` does, has all that it wanted.
    if isinstance(error, BrokenPipeError | OutputClosedError):
        return EXIT_PIPE
    if isinstance(error, PassMismatchError):
        complain(name, f"error: {error}")
        return EXIT_NO  # it was asked whether there is one
    if isinstance(error, InternalError):
        reason = blame(error)
        complain(name, f"error: {reason} ({error})" if reason else f"internal error: {error}")
    elif isinstance(error, SambaError):
        complain(name, f"error: {error}")
    elif isinstance(error, MemoryError):
        complain(name, "error: memory ran out")
    elif isinstance(error, OSError):
        complain(name, f"error: {_file_message(error)}")
    elif hasattr(error, "format_message"):  # of typer's own parser, whatever it is built on
        message = error.format_message().rstrip(".")
        complain(name, f"error: {message} (see {name} --help)")
    elif reason := blame(error):
        complain(name, f"error: {reason} ({type(error).__name__}: {error})")
    else:
        complain(
            name,
            f"internal error: {type(error).__name__}: {error}; please report it "
            f"({DEBUG_VARIABLE}=1 shows where it happened)",
        )
    return EXIT_USAGE


def _file_message(error: OSError) -> str:
    """Return file and cause of an error of the system."""
    cause = error.strerror or str(error)
    if error.errno == errno.ENOSPC and error.filename is None:
        cause = "no space is left for the output"
    return f"{os.fsdecode(error.filename)}: {cause}" if error.filename is not None else cause


def _wants_traceback(arguments: Sequence[str]) -> bool:
    return "-vv" in arguments or bool(os.environ.get(DEBUG_VARIABLE))
