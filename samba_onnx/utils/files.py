"""Finding files beside a program."""

from __future__ import annotations

import os


def get_file_dir(path: str | os.PathLike[str]) -> str:
    """Return the folder of a file.

    Args:
        path: Path of the file, usually a program's ``__file__``.

    Returns:
        The absolute path of its folder.
    """
    return os.path.dirname(os.path.abspath(path))
