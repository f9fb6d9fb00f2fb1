"""``--check-passes`` of ``samba-port convert``: what is written when a pass is guilty."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

from samba_onnx.errors import PassMismatchError


@contextlib.contextmanager
def writing_the_guilty_part(destination: str) -> Iterator[None]:
    """Write the part of the model that a guilty pass spoils, and say where it is.

    Args:
        destination: The PEF that is to be written.

    Raises:
        PassMismatchError: A pass is guilty; the message names the files.
    """
    try:
        yield
    except PassMismatchError as error:
        if error.reduction is None:
            raise
        model, inputs = error.reduction.write(Path(destination).with_suffix(".failing"))
        raise PassMismatchError(
            f"{error}; wrote {model} and {inputs}", passes=error.passes, reduction=error.reduction
        ) from error
