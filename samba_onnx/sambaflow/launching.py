"""Running a program that was written for SambaFlow, as ``python program.py`` would."""

from __future__ import annotations

import os
import runpy
import sys
from collections.abc import Sequence
from pathlib import Path

from samba_onnx.errors import UsageError
from samba_onnx.sambaflow.console import show_messages
from samba_onnx.sambaflow.finder import install


def require_program(path: str) -> None:
    """Refuse a path at which there is no program.

    Args:
        path: The program, a file of Python.

    Raises:
        UsageError: There is no such file.
    """
    if not Path(path).is_file():
        raise UsageError(f"{path}: no such file; name a Python program", path=path)


def run_program(path: str, arguments: Sequence[str]) -> None:
    """Run a program in this process, with ``sambaflow`` installed for it and for processes it starts.

    ``sys.argv`` and the first entry of ``sys.path`` become the program's, and stay so: the process
    is the program's from here on. Whatever the program raises passes, ``SystemExit`` included.

    Args:
        path: The program, an existing file of Python.
        arguments: Its command line, without its name.
    """
    # A SambaFlow that is really installed wins, and says itself what it has to say.
    if install(children=True):
        show_messages()
    sys.argv = [path, *arguments]
    if not sys.flags.safe_path:  # with which Python looks beside no program
        sys.path[0] = os.path.dirname(os.path.realpath(path))
    runpy.run_path(path, run_name="__main__")
