"""Weights in files of their own: what safetensors files hold, and whose weights these are."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import safetensors

from samba_onnx.errors import ModelFileError, UsageError
from samba_onnx.facts.dtypes import SAFETENSORS_TYPES
from samba_onnx.facts.names import SEPARATOR
from samba_onnx.safety.files import open_regular, printable

Array = npt.NDArray[Any]

SUFFIX = ".safetensors"


def read_safetensors(path: str | os.PathLike[str]) -> dict[str, Array]:
    """Read every tensor of a safetensors file.

    Args:
        path: Path of the safetensors file.

    Returns:
        Arrays by name; bfloat16 and the smaller floats are those of ml_dtypes.

    Raises:
        ModelFileError: The file cannot be read, is none of the kind, or holds a type without a
            counterpart.
    """
    with open_regular(path, what="checkpoint", error=ModelFileError) as file:
        content = file.read()
    try:
        entries = safetensors.deserialize(content)  # type: ignore[no-untyped-call]
        return {name: _array(entry) for name, entry in entries}
    except (safetensors.SafetensorError, ValueError, KeyError) as error:
        raise ModelFileError(f"{printable(path)}: is no safetensors file: {error}") from None


def _array(entry: Mapping[str, Any]) -> Array:
    element = SAFETENSORS_TYPES.get(str(entry["dtype"]))
    if element is None:
        raise ValueError(f"type {entry['dtype']} has no counterpart here")
    return np.frombuffer(bytes(entry["data"]), element.numpy).reshape(entry["shape"])


def by_symbol(names: Collection[str], keys: Iterable[str]) -> dict[str, str]:
    """Find the entries of a ``state_dict`` that belong to symbols of a PEF.

    Args:
        names: Symbols of weights and buffers: the path through the module tree, joined by ``__``
            and led by the name of the root.
        keys: Keys of the ``state_dict``: the same paths joined by dots, without the root; or the
            symbols themselves.

    Returns:
        Keys by the names that have one.
    """
    keys = list(keys)
    paths = {key.replace(".", SEPARATOR): key for key in keys}
    ends = {name: _ends(name) for name in names}
    roots: dict[str, int] = {}
    for tails in ends.values():
        for root, tail in tails:
            roots[root] = roots.get(root, 0) + (tail in paths)
    best = max(roots, key=lambda root: roots[root], default="")
    entries = {}
    for name, tails in ends.items():
        entry = name if name in keys else paths.get(dict(tails).get(best, ""))
        if entry is not None:
            entries[name] = entry
    return entries


def _ends(name: str) -> list[tuple[str, str]]:
    """Every way to split a name into a root and a path."""
    places = [place for place in range(1, len(name) - 2) if name.startswith(SEPARATOR, place)]
    return [(name[:place], name[place + 2 :]) for place in places]


def require_all(path: str, wanted: Iterable[str], present: Collection[str], keys: Any) -> None:
    """Refuse a checkpoint that lacks weights.

    Args:
        path: Path of the checkpoint, for the message.
        wanted: Names that must be there.
        present: Names that are.
        keys: What the checkpoint has, for the message.

    Raises:
        UsageError: Some are missing.
    """
    missing = [name for name in wanted if name not in present]
    if missing:
        more = f" and {len(missing) - 3} more" if len(missing) > 3 else ""
        has = [printable(key) for key in list(keys)[:5]]
        raise UsageError(
            f"{printable(path)} lacks {', '.join(map(printable, missing[:3]))}{more}; it has "
            f"{', '.join(has) or 'nothing'}{', ...' if len(list(keys)) > 5 else ''}: give the "
            "state_dict of the model that was compiled"
        )
