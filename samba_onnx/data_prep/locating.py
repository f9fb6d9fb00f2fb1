"""Where in the input a line of a split file comes from."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from pathlib import Path

from samba_onnx.errors import DataError


def located(error: DataError, files: Sequence[Path]) -> DataError:
    """Return an error about a line of a split file as one about the line of the input.

    Args:
        error: With the split file and the number of the line in it; other errors stay as they are.
        files: The input.

    Returns:
        An error with the first line of the input that is the same, if there is one.
    """
    if error.path is None or error.line is None:
        return error
    with open(error.path, "rb") as split:
        line = next(islice(split, error.line - 1, None), b"").rstrip(b"\r\n")
    for path in files:
        with open(path, "rb") as file:
            for number, candidate in enumerate(file, 1):
                if candidate.rstrip(b"\r\n") == line:
                    reason = str(error).removeprefix(f"{error.path}:{error.line}: ")
                    return DataError(f"{path}:{number}: {reason}", path=path, line=number)
    return error
