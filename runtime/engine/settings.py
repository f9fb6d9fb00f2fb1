"""What users say of an engine, checked before one is made."""

from __future__ import annotations

import os
from collections.abc import Sequence

from samba_onnx.errors import UsageError
from samba_onnx.facts.names import in_a_list
from samba_onnx.runtime.engine.protocol import EngineSettings
from samba_onnx.safety.files import printable

__all__ = ["engine_settings", "library_paths"]


def engine_settings(
    threads: int | None,
    *,
    prepack: bool = True,
    custom_ops: str | os.PathLike[str] | Sequence[str | os.PathLike[str]] = (),
) -> EngineSettings:
    """Return an engine's settings as users give them.

    Args:
        threads: Threads within an operator; one per core when None.
        prepack: Whether weights are copied into the layout that kernels like best.
        custom_ops: Paths of libraries with custom operators.

    Raises:
        UsageError: ``threads`` is less than 1, or a library is no file.
    """
    if threads is not None and threads < 1:
        raise UsageError(f"threads is {threads}; give 1 or more, or None for one per core")
    return EngineSettings(threads, prepack, custom_ops=library_paths(custom_ops))


def library_paths(
    libraries: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
) -> tuple[str, ...]:
    """Return the paths of libraries with custom operators, as a loader wants them.

    A loader looks for a name without a folder elsewhere than in the working folder, so they become
    absolute; each is there once.

    Args:
        libraries: The path of a shared library, or several, that exports ``RegisterCustomOps``.

    Raises:
        UsageError: One is no file.
    """
    listed = in_a_list(libraries)
    for library in listed:
        if not os.path.isfile(library):
            shown = printable(os.fspath(library))
            raise UsageError(
                f"custom-ops library {shown!r} is no file: give the path of a shared library that "
                "exports RegisterCustomOps"
            )
    return tuple(dict.fromkeys(os.path.abspath(library) for library in listed))
