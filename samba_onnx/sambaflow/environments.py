"""``import sambaflow`` for every program of a Python environment, by one file in its site-packages.

Python adds the folders that a ``.pth`` file names to where it looks for modules, behind site-packages.
The file names the folder in which a ``sambaflow`` lies that installs samba-onnx in its place. A
SambaFlow that is really installed is found before it, whenever it comes, and nothing is executed
when an interpreter starts.
"""

from __future__ import annotations

import sysconfig
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from samba_onnx.errors import OutputError
from samba_onnx.safety.files import atomic_output
from samba_onnx.sambaflow.finder import CHILDREN, real_installation

# Python reads these files by name, and looks in the folders of later ones later: whatever else puts
# a sambaflow on the path comes before this one.
NAME: Final = "zz_samba_onnx_sambaflow.pth"
"""The file's name."""


@dataclass(frozen=True)
class EnvironmentChange:
    """What became of ``import sambaflow`` in a Python environment."""

    path: Path
    """The file in site-packages."""
    changed: bool
    """Whether it was written or removed."""
    real: str | None
    """Where a SambaFlow lies that is really installed; None without."""


def add_to_environment() -> EnvironmentChange:
    """Let every program of this interpreter's environment find samba-onnx as ``sambaflow``.

    Where SambaFlow itself is installed, nothing is written.

    Raises:
        OutputError: The environment's site-packages cannot be written.
    """
    path = _file()
    real = real_installation()
    content = f"{CHILDREN}\n".encode()
    changed = real is None and not (path.is_file() and path.read_bytes() == content)
    if changed:
        with atomic_output(path) as file:
            file.write(content)
    return EnvironmentChange(path, changed, real)


def remove_from_environment() -> EnvironmentChange:
    """Undo ``add_to_environment``.

    Raises:
        OutputError: The file cannot be removed.
    """
    path = _file()
    try:
        path.unlink()
    except FileNotFoundError:
        return EnvironmentChange(path, False, real_installation())
    except OSError as error:
        raise OutputError(f"{path} cannot be removed: {error.strerror}") from None
    return EnvironmentChange(path, True, real_installation())


def _file() -> Path:
    return Path(sysconfig.get_path("purelib"), NAME)
