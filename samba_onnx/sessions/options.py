"""Where a compiled program goes and for which device: from command lines and settings objects."""

from __future__ import annotations

import json
import os
from argparse import Namespace
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import onnx
from pydantic import BaseModel
from torch import nn

from samba_onnx.errors import UsageError
from samba_onnx.workflows.compiler import DEFAULT_TARGET

OUTPUT_FOLDER: Final = "out"
"""Where programs go when nobody says where."""

_TARGETS: Final = {
    "sn10": "sn10",
    "sn20": "sn10",
    "sn30": "sn30",
    "sn40": "sn40l",
    "sn40l": "sn40l",
}
"""Target by what SambaFlow calls an architecture; SN20 has the chips of SN10."""

Model = nn.Module | onnx.ModelProto | str | os.PathLike[str]
"""What can be compiled: a torch module, an ONNX model, or the path to one."""


def flat_options(given: BaseModel | Mapping[str, Any] | Namespace | None) -> dict[str, Any]:
    """Return settings by name.

    Args:
        given: A pydantic model, a mapping or a parsed command line; groups of settings inside are
            opened. None for no settings.

    Returns:
        Every setting that has a value.

    Raises:
        UsageError: It is something else.
    """
    if given is None:
        return {}
    if isinstance(given, BaseModel):
        given = given.model_dump()
    elif isinstance(given, Namespace):
        given = vars(given)
    if not isinstance(given, Mapping):
        raise UsageError(
            f"settings are {type(given).__name__}; give a pydantic model, a dict or a Namespace"
        )
    flat: dict[str, Any] = {}
    for key, value in given.items():
        if isinstance(value, (BaseModel, Mapping)):
            flat |= flat_options(value)
        if value is not None:
            flat[str(key)] = value
    return flat


def output_path(
    options: Mapping[str, Any], model: Model | None, output: str | os.PathLike[str] | None
) -> Path:
    """Return where a program is written.

    Args:
        options: Settings; ``output_folder`` and ``pef_name`` count.
        model: What is compiled; its class or graph names the PEF unless ``pef_name`` does.
        output: A path that overrides both.

    Returns:
        ``<output_folder>/<pef_name>/<pef_name>.pef``, or ``output``. Its folder may be missing.

    Raises:
        UsageError: The name of the PEF is not a file name.
    """
    if output is not None:
        path = Path(output)
    else:
        name = str(options.get("pef_name") or "") or default_name(model)
        name = name.removesuffix(".pef")
        if not name or name in (".", "..") or "/" in name or "\0" in name:
            raise UsageError(f"pef_name is {name!r}; give a file name without folders")
        path = Path(str(options.get("output_folder") or OUTPUT_FOLDER), name, f"{name}.pef")
    return path


def default_name(model: Model | None) -> str:
    """Return the name of a PEF that was given none.

    Args:
        model: What is compiled; None for several graphs.
    """
    if isinstance(model, nn.Module):
        return type(model).__name__.lower()
    if isinstance(model, onnx.ModelProto):
        name = "".join(c if c.isalnum() or c in "-_." else "_" for c in model.graph.name)
        return name.strip(".") or "model"
    return "model" if model is None else Path(model).stem


def target_of(options: Mapping[str, Any], target: str | os.PathLike[str] | None) -> Any:
    """Return the device to compile for.

    Args:
        options: Settings; ``arch`` counts.
        target: Overrides them.
    """
    if target is not None:
        return target
    return _TARGETS.get(str(options.get("arch", "")).lower(), DEFAULT_TARGET)


def level_of(options: Mapping[str, Any], level: str | None) -> str:
    """Return the optimization level to compile at.

    Args:
        options: Settings; ``o0`` and ``optim_level`` count.
        level: Overrides them.
    """
    if level is not None:
        return level
    wanted = str(options.get("optim_level", "")).lower()
    return "o0" if options.get("o0") is True or wanted in ("o0", "0") else "o3"


def metadata_of(*given: Any) -> dict[str, str]:
    """Return the user's metadata as a PEF keeps it.

    Args:
        *given: Mappings or objects with attributes, later ones first; None is skipped.

    Returns:
        Texts by key: JSON for what is no text; ``str`` of what is not JSON either.
    """
    texts: dict[str, str] = {}
    for source in given:
        if source is None:
            continue
        items = source if isinstance(source, Mapping) else vars(source)
        for key, value in items.items():
            texts[str(key)] = value if isinstance(value, str) else _json(value)
    return texts


def _json(value: Any) -> str:
    try:
        return json.dumps(value)
    except (TypeError, ValueError):
        return str(value)
