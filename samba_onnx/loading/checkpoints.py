"""Weights in files of their own: what safetensors files and those of ``torch.save`` hold, and whose weights these are."""

from __future__ import annotations

import json
import math
import os
import struct
from collections.abc import Collection, Iterable
from pathlib import Path
from typing import Any, Final

import numpy.typing as npt

from samba_onnx.errors import ModelFileError, UsageError
from samba_onnx.facts.dtypes import SAFETENSORS_TYPES
from samba_onnx.facts.names import SEPARATOR
from samba_onnx.pef.weights import HEADER_LIMIT, StoredTensor, shape_is_fixed, tensor_array
from samba_onnx.safety.files import mapped, open_regular, printable
from samba_onnx.safety.torch_files import read_torch_file

Array = npt.NDArray[Any]

__all__ = ["SUFFIX", "by_symbol", "read_checkpoint", "read_safetensors", "require_all"]

SUFFIX: Final = ".safetensors"
_LENGTH: Final = struct.Struct("<Q")
"""What a file begins with: how many bytes the header after it has."""


def read_checkpoint(path: str | os.PathLike[str]) -> dict[str, Array]:
    """Read the tensors of a checkpoint; nothing is unpickled, and no weight is read before it is used.

    Args:
        path: A safetensors file, or a file of ``torch.save``: a ``state_dict``, or a dict that has
            one under ``model`` or ``state_dict``.

    Returns:
        Read-only arrays by name, mapped from the file.

    Raises:
        ModelFileError: The file cannot be read, or is none of either kind.
        ModelLimitError: It is compressed.
        UsageError: There is no ``state_dict`` in it.
    """
    # By the ending, since a safetensors file has no signature; all other files say what they are.
    if Path(path).suffix.lower() == SUFFIX:
        return read_safetensors(path)
    return read_torch_file(path)


def read_safetensors(path: str | os.PathLike[str]) -> dict[str, Array]:
    """Read every tensor of a safetensors file.

    Args:
        path: Path of the safetensors file.

    Returns:
        Read-only arrays by name, mapped from the file; bfloat16 and the smaller floats are those of
        ml_dtypes.

    Raises:
        ModelFileError: The file cannot be read, is none of the kind, or holds a type without a
            counterpart.
    """
    with open_regular(path, what="checkpoint", error=ModelFileError) as file:
        content = mapped(file)
    try:
        # Not the library's reader, which takes all of the file into memory, or opens a path again.
        return {each.name: tensor_array(content, each) for each in _listed(content)}
    # Whatever a header of other JSON may raise on the way to a tensor.
    except (
        struct.error,
        ValueError,
        LookupError,
        TypeError,
        AttributeError,
        RecursionError,
    ) as error:
        raise ModelFileError(
            f"{printable(path)}: is no safetensors file: {printable(error, 300)}", path=path
        ) from None


def _listed(content: memoryview) -> list[StoredTensor]:
    """Return what the header of a safetensors file lists, by the rules of the format.

    Raises:
        ValueError: A rule is broken: the file is exactly a header and tensors without holes.
    """
    (length,) = _LENGTH.unpack_from(content)
    start = _LENGTH.size + length
    # Both before the header is read, as the length comes from the file.
    if length > HEADER_LIMIT or start > len(content):
        raise ValueError(f"a header of {length} bytes in a file of {len(content)}")
    header = json.loads(
        bytes(content[_LENGTH.size : start]).decode(), object_pairs_hook=_without_repetitions
    )
    header.pop("__metadata__", None)
    tensors = [_entry(name, entry, start) for name, entry in header.items()]
    # By size as well, so that tensors without elements stand before the one that begins where they
    # do.
    tensors.sort(key=lambda each: (each.offset, each.bytes))
    position = start
    for tensor in tensors:
        # Neither holes nor overlaps: the format forbids both, and in them data could hide.
        if tensor.offset != position:
            raise ValueError(f"{tensor.name!r} begins at byte {tensor.offset}, not {position}")
        position += tensor.bytes
    if position != len(content):
        raise ValueError(f"its tensors end at byte {position} of {len(content)}")
    return tensors


def _entry(name: str, entry: dict[str, Any], start: int) -> StoredTensor:
    element = SAFETENSORS_TYPES.get(str(entry["dtype"]))
    if element is None:
        raise ValueError(f"type {entry['dtype']} has no counterpart here")
    shape, (begin, end) = tuple(entry["shape"]), entry["data_offsets"]
    # The rule for shapes serves places too: whole numbers, none negative, none beyond 64 bits.
    if not (shape_is_fixed(shape) and shape_is_fixed((begin, end)) and begin <= end):
        raise ValueError(f"{name!r}: shape or place is damaged")
    # In bits, as elements of 4 bits share bytes.
    if math.prod(shape) * element.bits != (end - begin) * 8:
        raise ValueError(
            f"{name!r}: {element.text} {list(shape)} does not take {end - begin} bytes"
        )
    return StoredTensor(name, element.text, shape, start + begin, end - begin)


def _without_repetitions(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    content = dict(pairs)
    # A dict would keep the last of two entries without a word, and other readers the first.
    if len(content) != len(pairs):
        raise ValueError("a name occurs twice in its header")
    return content


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
    # The root is not known: it is the name of a class. The one under which the most entries are
    # found is taken for all names, so that no name is split elsewhere by chance.
    best = max(roots, key=lambda root: roots[root], default="")
    entries = {}
    for name, tails in ends.items():
        # A key that is the symbol itself needs no root.
        entry = name if name in keys else paths.get(dict(tails).get(best, ""))
        if entry is not None:
            entries[name] = entry
    return entries


def _ends(name: str) -> list[tuple[str, str]]:
    """Every way to split a name into a root and a path."""
    # Every separator may be the one behind the root, because names of modules can have underscores.
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
    # Only the first few, for a model has hundreds of weights.
    missing = [name for name in wanted if name not in present]
    if missing:
        more = f" and {len(missing) - 3} more" if len(missing) > 3 else ""
        has = [printable(key) for key in list(keys)[:5]]
        raise UsageError(
            f"{printable(path)} lacks {', '.join(map(printable, missing[:3]))}{more}; it has "
            f"{', '.join(has) or 'nothing'}{', ...' if len(list(keys)) > 5 else ''}: give the "
            "state_dict of the model that was compiled"
        )
