"""The optional library by which programs are rewritten."""

from __future__ import annotations

from importlib.util import find_spec

from samba_onnx.errors import MissingLibraryError


def require_libcst() -> None:
    """Ask for LibCST where it is not installed.

    Raises:
        MissingLibraryError: It is not; the message says how to install it.
    """
    if find_spec("libcst") is None:
        raise MissingLibraryError(
            "adapting programs needs libcst, which is not installed: pip install 'samba-onnx[adapt]'"
        )
