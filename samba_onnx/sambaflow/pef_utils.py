"""``sambaflow.samba.utils.pef_utils``: what a program keeps in its PEF for the process that runs it."""

from __future__ import annotations

import os
from argparse import Namespace
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from torch import nn

from samba_onnx.errors import UsageError
from samba_onnx.pef import load_pef
from samba_onnx.pef.user_metadata import read_value

__all__ = ["PefInfoStruct", "get_pef_info", "get_pefmeta", "get_pefmeta_dict"]


@dataclass(frozen=True)
class PefInfoStruct:
    """What a field of a PEF's metadata is where there is no PEF to read."""

    mock_value: Any = None
    """Not looked at: there always is a PEF."""


def get_pefmeta(args: Namespace, model: nn.Module) -> dict[str, Any]:
    """Return what ``samba.session.compile(pef_metadata=...)`` is to keep of a command line.

    Args:
        args: The command line, as it was parsed.
        model: The module that is compiled.

    Returns:
        The arguments by name. Values that JSON does not have are kept as their texts.
    """
    return get_pefmeta_dict(vars(args), model)


def get_pefmeta_dict(args: Mapping[str, Any], model: nn.Module) -> dict[str, Any]:
    """Return what ``samba.session.compile(pef_metadata=...)`` is to keep of settings.

    Args:
        args: The settings by name.
        model: The module that is compiled; the PEF knows it anyway.

    Returns:
        The settings, in a dict of their own.
    """
    del model
    return dict(args)


def get_pef_info(
    pef: str | os.PathLike[str], fields: Mapping[str, PefInfoStruct]
) -> dict[str, Any]:
    """Return fields of the metadata that a PEF was compiled with.

    Args:
        pef: Path of the PEF.
        fields: The names of the fields; what they map to is not looked at.

    Returns:
        The values by name, of the types that they had; tuples are lists, and what JSON does not
        have is its text.

    Raises:
        UsageError: The PEF has no such field; a ``ValueError``, for which published programs wait.
        PefError: The PEF cannot be used.
    """
    with load_pef(pef) as opened:
        metadata = opened.manifest.metadata
        missing = sorted(set(fields) - metadata.keys())
        if missing:
            raise UsageError(
                f"{opened.path.name} was compiled without {', '.join(missing)} in its metadata; "
                "compile(pef_metadata=...) keeps values there",
                path=opened.path,
            )
        return {name: read_value(metadata[name]) for name in fields}
