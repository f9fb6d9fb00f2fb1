"""``--constant``: inputs of an ONNX model that are fixed when it is converted."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Annotated, Any, Final

import typer

from samba_onnx.cli.options import SHAPES
from samba_onnx.errors import UsageError
from samba_onnx.safety.files import printable

ConstantOption = Annotated[
    list[str] | None,
    typer.Option(
        "--constant",
        metavar="INPUT=VALUE",
        help="Fix an input as a constant, as sr=16000, flag=true, sizes=[1,2] or table=table.npy; runs are not "
        "given it; repeatable.",
        rich_help_panel=SHAPES,
    ),
]

_EXPECTED: Final = "expected INPUT=VALUE, where VALUE is a number, true or false, a list of these as [1,2], or a file in .npy"


def parse_constants(texts: Sequence[str] | None) -> dict[str, Any]:
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
        from samba_onnx.cli.arrays import read_array

        return read_array(text)
    try:
        # Truth values as Python writes them are understood, too.
        value = json.loads(text.lower() if text.lower() in ("true", "false") else text)
    except (ValueError, RecursionError):
        raise UsageError(f"--constant {printable(option)}: {_EXPECTED}") from None
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
