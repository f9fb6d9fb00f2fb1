"""The figures of the host's CPU that ``--host`` names: assumed, measured on this machine, or a file's."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

import typer

from samba_onnx.errors import UsageError

MEASURED: Final = "measured"
"""What ``--host`` calls the profile that was measured on this machine."""


def measured_path() -> Path:
    """Return where ``calibrate`` writes without being told: into the user's own settings."""
    return Path(typer.get_app_dir("samba-port")) / "host.toml"


def host_profile(host: str) -> str:
    """Return the profile that ``--host`` names.

    Args:
        host: ``default``, ``measured``, or the path of a file.

    Returns:
        ``default`` or a path.

    Raises:
        UsageError: Nothing was measured yet.
    """
    # A file of that name in the working folder is what the user means.
    if host != MEASURED or os.path.lexists(host):
        return host
    path = measured_path()
    if not path.is_file():
        raise UsageError(
            f"--host measured: {path} does not exist; write it with samba-port calibrate"
        )
    return str(path)
