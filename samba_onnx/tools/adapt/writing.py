"""An adapted program on the disk: one file, a folder, or a patch."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from samba_onnx.cli.display import write_file
from samba_onnx.errors import UsageError
from samba_onnx.safety.files import printable

if TYPE_CHECKING:
    from samba_onnx.tools.adapt.adapting import Adapted


def write_adapted(
    adapted: Adapted, folder: str | None, output: str | None, patch: str | None
) -> str:
    """Write an adapted program.

    Args:
        adapted: The program.
        folder: The folder that it was read from, if one was given.
        output: A file, or a folder for several.
        patch: A file for the differences.

    Returns:
        What was written; empty if nothing was.

    Raises:
        UsageError: Several files changed, and ``output`` is one.
    """
    written = []
    if output is not None:
        if folder is None and not Path(output).is_dir() and output.endswith(".py"):
            _write_one(adapted, output)
        else:
            _write_folder(adapted, folder, Path(output))
        written.append(output)
    if patch is not None:
        write_file(patch, adapted.diff.encode())
        written.append(patch)
    return ", ".join(written)


def _write_one(adapted: Adapted, output: str) -> None:
    # The files beside it stay as they are: one file is enough only where no other changes.
    others = [one.path for one in adapted.changed if one.path != adapted.path]
    if others:
        raise UsageError(
            f"{printable(', '.join(others))} changes, too: give a folder to --output, or write a patch by --patch"
        )
    write_file(output, adapted.text.encode())


def _write_folder(adapted: Adapted, folder: str | None, output: Path) -> None:
    # Modules lie as they did, so that imports find them; data and configuration stay where they are.
    root = root_of(adapted, folder).resolve()
    if output.resolve() == root:
        raise UsageError(
            f"{printable(output)} is the folder of the program itself, which stays as it is: give another one, or "
            "write a patch by --patch"
        )
    for file in adapted.files:
        place = output / Path(file.path).resolve().relative_to(root)
        place.parent.mkdir(parents=True, exist_ok=True)
        write_file(str(place), file.text.encode())


def root_of(adapted: Adapted, folder: str | None = None) -> Path:
    """Return the folder in which all files of a program lie.

    Args:
        adapted: The program.
        folder: The folder that it was read from, if one was given.
    """
    return Path(folder) if folder else Path(adapted.path).parent
