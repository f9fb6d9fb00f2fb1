"""Options as people write them on command lines and in files of settings, read into values."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, Final

from samba_onnx.errors import UsageError
from samba_onnx.facts.precisions import Precision, precision_of, preset_precision
from samba_onnx.safety.files import printable

__all__ = [
    "is_size",
    "read_constants",
    "read_dims",
    "read_precision",
    "read_shapes",
    "read_sizes",
]

_EXPECTED: Final = "expected INPUT=VALUE, where VALUE is a number, true or false, a list of these as [1,2], or a file in .npy"


def read_dims(texts: Sequence[str] | None) -> dict[str, int]:
    """Read ``--dim`` options of one size each.

    Args:
        texts: As ``batch=8``.

    Returns:
        Sizes by dimension.

    Raises:
        UsageError: One is malformed, or names a dimension again with another size.
    """
    sizes: dict[str, int] = {}
    for text, name, choices in _named_sizes(texts):
        if len(choices) > 1:
            raise UsageError(f"--dim {text}: expected one size, as --dim {name}={choices[0]}")
        sizes[name] = choices[0]
    return sizes


def read_sizes(texts: Sequence[str] | None) -> dict[str, int | tuple[int, ...]]:
    """Read ``--dim`` options, of which each may have several sizes.

    Args:
        texts: As ``batch=8`` or ``batch=1,8,32``.

    Returns:
        The size, or the sizes, by dimension.

    Raises:
        UsageError: One is malformed, or names a dimension again with other sizes.
    """
    return {
        name: choices if len(choices) > 1 else choices[0]
        for _, name, choices in _named_sizes(texts)
    }


def _named_sizes(texts: Sequence[str] | None) -> list[tuple[str, str, tuple[int, ...]]]:
    """Return each option with its name and sizes."""
    known: dict[str, tuple[int, ...]] = {}
    options = []
    for text in texts or ():
        name, _, sizes = text.rpartition("=")
        parts = sizes.split(",")
        if not name or not all(is_size(part) for part in parts):
            raise UsageError(f"--dim {text}: expected NAME=SIZE, as --dim batch=8")
        choices = tuple(map(int, parts))
        # The same size twice contradicts nothing.
        if known.setdefault(name, choices) != choices:
            before = ",".join(map(str, known[name]))
            raise UsageError(f"--dim {text}: {name} is also set to {before}")
        options.append((text, name, choices))
    return options


def _input_shapes(texts: Sequence[str] | None) -> dict[str, tuple[int | str | None, ...]]:
    """Read ``--input-shape`` options.

    Args:
        texts: As ``x=1,3,224,224``; ``?`` leaves a dimension as it is, a word names it.

    Returns:
        Shapes by input.

    Raises:
        UsageError: One is malformed, or names an input again.
    """
    shapes: dict[str, tuple[int | str | None, ...]] = {}
    for text in texts or ():
        # At the last one, as of constants: names of inputs may hold others.
        name, equals, sizes = text.rpartition("=")
        parts = [part.strip() for part in sizes.split(",")] if sizes.strip() else []
        if not equals or not name or not all(_is_dimension(part) for part in parts):
            raise UsageError(
                f"--input-shape {text}: expected INPUT=SIZES, as --input-shape x=1,3,224,224"
            )
        if name in shapes:
            raise UsageError(f"--input-shape {text}: the shape of {name} is given twice")
        shapes[name] = tuple(_dimension(part) for part in parts)
    return shapes


def read_shapes(
    texts: list[str] | None, files: list[str] | None = None
) -> dict[str, tuple[int | str | None, ...]]:
    """Return the shapes of inputs that options and sample inputs state.

    Args:
        texts: As ``x=1,3,224,224``, each.
        files: Arrays, as ``--sample-input`` takes them.

    Raises:
        UsageError: One is malformed, or two contradict each other.
    """
    shapes = _input_shapes(texts)
    if files:
        # Imported where it is needed: most command lines name no array.
        from samba_onnx.safety.array_files import sample_shapes

        # What is left open in a shape is filled in from the file; what is stated must agree.
        for name, shape in sample_shapes(files).items():
            stated = shapes.get(name, shape)
            if len(stated) != len(shape) or any(
                isinstance(size, int) and size != length
                for size, length in zip(stated, shape, strict=True)
            ):
                raise UsageError(
                    f"--sample-input: {name!r} has shape {list(shape)} there, and "
                    f"{','.join('?' if size is None else str(size) for size in stated)} in "
                    "--input-shape"
                )
            shapes[name] = shape
    return shapes


def read_constants(texts: Sequence[str] | None) -> dict[str, Any]:
    """Read ``--constant`` options.

    Args:
        texts: As ``sr=16000``, each.

    Returns:
        Values by name of input: numbers, truth values, nested lists of them, and arrays.

    Raises:
        UsageError: One is malformed, a file cannot be used, or an input is given twice.
    """
    constants: dict[str, Any] = {}
    for text in texts or ():
        # At the last one: names of inputs may hold others.
        name, equals, value = text.rpartition("=")
        if not equals or not name or not value.strip():
            raise UsageError(f"--constant {printable(text)}: {_EXPECTED}")
        if name in constants:
            raise UsageError(f"--constant {printable(text)}: {printable(name)!r} is given twice")
        constants[name] = _value(value.strip(), text)
    return constants


def _value(text: str, option: str) -> Any:
    if text.lower().endswith(".npy"):
        from samba_onnx.safety.array_files import read_array

        return read_array(text)
    try:
        # Truth values as Python writes them are understood, too.
        value = json.loads(text.lower() if text.lower() in ("true", "false") else text)
    except (ValueError, RecursionError):
        raise UsageError(f"--constant {printable(option)}: {_EXPECTED}") from None
    # JSON also has texts, null and objects, which no tensor holds.
    if not _is_numeric(value):
        raise UsageError(f"--constant {printable(option)}: {_EXPECTED}")
    return value


def _is_numeric(value: Any) -> bool:
    """Return whether all that JSON text holds is numbers and truth values."""
    leaves = [value]
    while leaves:  # a list may be nested deeper than Python calls
        leaf = leaves.pop()
        if isinstance(leaf, list):
            leaves += leaf
        elif not isinstance(leaf, bool | int | float):
            return False
    return True


def is_size(text: str) -> bool:
    """Return whether a text is a size that fits into 64 bits, in ASCII digits.

    Args:
        text: Anything that was typed.
    """
    # int() takes digits of all scripts, and any number of them: 18 fit into 64 bits.
    return text.isascii() and text.isdecimal() and 0 < len(text) < 19


def _is_dimension(text: str) -> bool:
    # A word must be an identifier: a size with a typing error in it is no name.
    return text == "?" or is_size(text) or text.isidentifier()


def _dimension(text: str) -> int | str | None:
    if text == "?":
        return None
    return int(text) if is_size(text) else text


def read_precision(precision: str | None, preset: str | None = None) -> Precision:
    """Return the precision that one of two options names.

    Args:
        precision: Its name.
        preset: SambaFlow's name for it.

    Raises:
        UsageError: There is no such precision or preset, or both are stated.
    """
    if preset is None:
        return precision_of(precision)
    # Refused even where both mean the same: neither could be changed without the other.
    if precision is not None:
        raise UsageError("--precision and --graphamp-preset say the same: give one of them")
    return preset_precision(preset)
