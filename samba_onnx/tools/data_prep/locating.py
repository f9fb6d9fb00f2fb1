"""Where in the input a line of a split file comes from."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from pathlib import Path

from samba_onnx.errors import DataError
from samba_onnx.tools.data_prep.splitting import input_blocks


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
        line = next(itertools.islice(split, error.line - 1, None), b"").rstrip(b"\n")
    for path in files:
        # By the same rules for the ends of lines as those by which they were shared out.
        lines = itertools.chain.from_iterable(map(bytes.splitlines, input_blocks([path])))
        for number, candidate in enumerate(lines, 1):
            if candidate == line:
                reason = str(error).removeprefix(f"{error.path}:{error.line}: ")
                return DataError(f"{path}:{number}: {reason}", path=path, line=number)
    return error
