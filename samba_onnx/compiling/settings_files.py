"""Options of compilations that a project states for all its models: ``samba-port.toml``, or a table of ``pyproject.toml``.

The nearest folder with one of them counts, from the working folder upwards; in one folder the first of the two. The
command line overrides variables ``SAMBA_PORT_*``, which override the file: the parser's own order.
"""

from __future__ import annotations

import difflib
import os
import sys
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from samba_onnx.compiling.option import CommandFlag, Option, option_of
from samba_onnx.compiling.options import option_fields
from samba_onnx.errors import UsageError
from samba_onnx.safety.files import printable

__all__ = ["SETTINGS_VARIABLE", "file_defaults"]

SETTINGS_VARIABLE: Final = "SAMBA_PORT_SETTINGS"
_OWN: Final = "samba-port.toml"
_PROJECT: Final = "pyproject.toml"
_TABLE: Final = "samba-port"
_MOST_BYTES: Final = 1_000_000
"""A file of settings is smaller; what is larger is something else."""


def file_defaults(folder: Path) -> dict[str, Any]:
    """Return what the nearest file of settings states, by the parameters of commands.

    Args:
        folder: Where the search begins. The variable ``SAMBA_PORT_SETTINGS`` turns it off where it is ``none``.

    Raises:
        UsageError: A file is malformed, or states something that is no option, or that executes code.
    """
    if os.environ.get(SETTINGS_VARIABLE) == "none":
        return {}
    for place in (folder, *folder.parents):
        for path, table in _tables(place):
            stated = dict(_stated(path, table))
            if stated and sys.stderr is not None:
                # What nobody typed must not surprise whoever reads the answer.
                shown = ", ".join(f"{name}={value}" for name, value in stated.items())
                sys.stderr.write(f"samba-port: {printable(path)} says {printable(shown)}\n")
            return stated
    return {}


def _tables(folder: Path) -> Iterator[tuple[Path, Mapping[str, Any]]]:
    """Return the tables of a folder's files of settings."""
    own, project = folder / _OWN, folder / _PROJECT
    if own.is_file():
        yield own, _read(own)
    if project.is_file():
        tools = _read(project).get("tool", {})
        if isinstance(tools, dict) and _TABLE in tools:
            if not isinstance(tools[_TABLE], dict):
                raise UsageError(f"{printable(project)}: tool.{_TABLE} is no table of options")
            yield project, tools[_TABLE]


def _read(path: Path) -> dict[str, Any]:
    try:
        if path.stat().st_size > _MOST_BYTES:
            raise UsageError(f"{printable(path)}: larger than a file of settings")
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise UsageError(f"{printable(path)}: not usable as settings: {error}") from None


def _stated(path: Path, table: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    flags = {
        flag.spelled.partition("/")[0].removeprefix("--"): (flag, stated)
        for stated in map(option_of, option_fields().values())
        for flag in stated.flags
    }
    for key, value in table.items():
        if key not in flags:
            near = difflib.get_close_matches(key, flags, 1)
            hint = (
                f"; did you mean {near[0]}?"
                if near
                else ": its names are those of the flags of convert"
            )
            raise UsageError(f"{printable(path)}: {printable(key)} is no option{hint}")
        flag, stated = flags[key]
        if stated.runs_code:
            # Whoever converts a model in a folder of somebody else's must not execute that folder's code.
            raise UsageError(
                f"{printable(path)}: {key} names code that is executed: give it on the command line"
            )
        yield flag.name, _value(path, key, value, flag, stated)


def _value(path: Path, key: str, value: Any, flag: CommandFlag, stated: Option) -> Any:
    """Return a value as the parser takes it."""
    if flag.is_repeatable:
        values = value if isinstance(value, list) else [value]
        return [str(each) for each in values]
    # Truth values are whole numbers to Python, and none to people.
    fits = isinstance(value, bool) == (flag.kind is bool) and isinstance(value, (str, int, float))
    if not fits:
        raise UsageError(
            f"{printable(path)}: {key} is {value!r}: expected {flag.metavar or 'true or false'}"
        )
    if stated.is_path and (path.parent / str(value)).is_file():
        return str(path.parent / str(value))
    return value
