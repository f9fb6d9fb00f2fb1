"""The page of the options of a compilation: ``python -m docs.generators.options`` writes it anew."""

from __future__ import annotations

import dataclasses
from enum import Enum
from pathlib import Path
from typing import Any

from samba_onnx.compiling.option import Front, Option, default_of, option_of, text_of
from samba_onnx.compiling.options import CompileOptions

PAGE = Path(__file__).parents[1] / "options.md"

_HEADER = """\
# Options of a compilation

One record, `samba_onnx.compiling.options.CompileOptions`, states every option once. Each can be given in four ways; what stands
further up counts before what follows:

1. as a flag of `samba-port convert`, `analyze` or `survey`, or as a keyword of `samba_onnx.convert` and its like;
2. as a variable: `SAMBA_PORT_LEVEL=o1` is `--level o1`;
3. in the nearest `samba-port.toml`, or the table `[tool.samba-port]` of a `pyproject.toml`, of the working folder or one above it,
   by the names of the flags: `level = "o1"`, `dim = ["batch=8"]`. A path may start from the folder of the file. Commands say
   what they took from it, `SAMBA_PORT_SETTINGS=none` turns it off, and what executes code cannot be stated there;
4. by default.

Files and variables are for the command line; Python's functions and SambaFlow programs take what they are given. A PEF lists the
options that were not at their defaults, as `options` in its manifest.

`python -m docs.generators.options` writes this page.
"""
_FOR = {frozenset({Front.ONNX}): "ONNX", frozenset({Front.TORCH}): "PyTorch"}


def options_page() -> str:
    """Return the page."""
    text = _HEADER
    for part in dataclasses.fields(CompileOptions):
        record: Any = part.default_factory
        text += f"\n## {record.__doc__.rstrip('.')}\n\n"
        text += "| flag | Python | SambaFlow | for | default | what it does |\n|---|---|---|---|---|---|\n"
        text += "".join(_row(field) for field in dataclasses.fields(record))
    return text


def _row(field: dataclasses.Field[Any]) -> str:
    stated = option_of(field)
    cells = [
        ", ".join(f"`{flag.spelled}`" for flag in stated.flags),
        f"`{field.name}`" if stated.python is not None else "",
        ", ".join(f"`{row.name}`" for row in stated.settings),
        _FOR.get(stated.fronts, "both"),
        _default(field),
        _help(stated),
    ]
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |\n"


def _default(field: dataclasses.Field[Any]) -> str:
    value = default_of(field)
    if value is None or (not isinstance(value, (Enum, str)) and value in ({}, (), frozenset())):
        return ""
    return f"`{text_of(value)}`"


def _help(stated: Option) -> str:
    alone = [flag.help for flag in stated.flags if flag.help != stated.help]
    return " ".join([stated.help, *alone, stated.python or ""]).strip()


if __name__ == "__main__":
    PAGE.write_text(options_page())
