"""What around this program is to blame for an error: a version, a missing package, the platform."""

from __future__ import annotations

import sys
from types import ModuleType

from samba_onnx.version import outdated


def blame(error: Exception) -> str:
    """Return what is wrong around this program, in one sentence.

    Args:
        error: What nobody expected.

    Returns:
        Which package is older than the oldest that this version works with, which is missing, or what
        of Python this platform lacks; empty where none of these explains the error.
    """
    lacking = _lacking(error)
    if lacking:
        return f"Python on {sys.platform} has no {lacking}, which is needed here"
    old = outdated()
    if old:  # whatever the error is: nobody has tried that
        return f"{'; '.join(old)}: upgrade with pip install --upgrade samba-onnx"
    if isinstance(error, ModuleNotFoundError) and not str(error.name).startswith("samba_onnx"):
        return (
            f"the Python package {error.name!r} is missing: install samba-onnx with what it needs"
        )
    return ""


def _lacking(error: Exception) -> str:
    """Return the name of Python's own that this platform does not have; empty for anything else."""
    if isinstance(error, ModuleNotFoundError) and error.name in sys.stdlib_module_names:
        return str(error.name)
    if isinstance(error, AttributeError) and isinstance(error.obj, ModuleType):
        module = error.obj.__name__
        return f"{module}.{error.name}" if module in sys.stdlib_module_names else ""
    return ""
