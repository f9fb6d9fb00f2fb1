"""What around this program is to blame for an error: a version, a missing package, the platform."""

from __future__ import annotations

import importlib.metadata
import re
import sys
from types import ModuleType

_NEEDED = re.compile(r"([A-Za-z0-9_.-]+)>=([0-9.]+)$")
"""A requirement of the package itself, without extras or markers."""


def blame(error: Exception) -> str:
    """Return what is wrong around this program, in one sentence.

    Args:
        error: What nobody expected.

    Returns:
        Which package is older than the oldest that this version works with, which is missing, or what
        of Python this platform lacks; empty where none of these explains the error.
    """
    if not isinstance(error, ImportError | AttributeError | TypeError):
        return ""
    lacking = _lacking(error)
    if lacking:
        return f"Python on {sys.platform} has no {lacking}, which is needed here"
    old = outdated()
    if old:
        return f"{'; '.join(old)}: upgrade with pip install --upgrade samba-onnx"
    if isinstance(error, ModuleNotFoundError) and not str(error.name).startswith("samba_onnx"):
        return (
            f"the Python package {error.name!r} is missing: install samba-onnx with what it needs"
        )
    return ""


def outdated() -> tuple[str, ...]:
    """Return the installed packages that are too old, as ``onnx 1.19.0 is installed, 1.23 is needed``."""
    try:
        requirements = importlib.metadata.requires("samba-onnx") or []
    except importlib.metadata.PackageNotFoundError:
        return ()  # a bare checkout states nothing
    texts = []
    for match in filter(None, map(_NEEDED.match, requirements)):
        name, needed = match.groups()
        try:
            version = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
        if _release(version) < _release(needed):
            texts.append(f"{name} {version} is installed, {needed} or newer is needed")
    return tuple(texts)


def _release(version: str) -> tuple[int, ...]:
    """Return the numbers at the start of a version, without zeros at the end."""
    match = re.match(r"\d+(?:\.\d+)*", version)
    numbers = [int(part) for part in match[0].split(".")] if match else []
    while numbers and not numbers[-1]:
        numbers.pop()
    return tuple(numbers)


def _lacking(error: Exception) -> str:
    """Return the name of Python's own that this platform does not have; empty for anything else."""
    if isinstance(error, ModuleNotFoundError) and error.name in sys.stdlib_module_names:
        return str(error.name)
    if isinstance(error, AttributeError) and isinstance(error.obj, ModuleType):
        module = error.obj.__name__
        return f"{module}.{error.name}" if module in sys.stdlib_module_names else ""
    return ""
