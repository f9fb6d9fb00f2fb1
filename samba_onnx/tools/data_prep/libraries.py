"""The optional libraries of this room, each loaded on first use, with a word on how to get them."""

from __future__ import annotations

import importlib
from typing import Any

from samba_onnx.errors import MissingLibraryError


def library(name: str, extra: str = "data") -> Any:
    """Import a library that is not among samba-onnx's own requirements.

    Args:
        name: The module, as ``h5py``.
        extra: The extra of samba-onnx that installs it.

    Returns:
        The module.

    Raises:
        MissingLibraryError: It is not installed; the message says how to install it.
    """
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name != name.partition(".")[0]:
            raise  # the library is there, but lacks one of its own
        raise MissingLibraryError(
            f"data preparation needs {error.name}, which is not installed: "
            f"pip install 'samba-onnx[{extra}]'"
        ) from None
