"""The files of a program: the one that is executed, and all of its own that it imports."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

import libcst as cst

from samba_onnx.errors import UsageError
from samba_onnx.safety.files import open_regular, printable
from samba_onnx.tools.adapt.source import ProgramFile
from samba_onnx.tools.adapt.source_file import ProgramModule

MOST_BYTES: Final = 1 << 20
MOST_FILES: Final = 300


def read_source(path: str, folder: str | None = None) -> ProgramFile:
    """Read and parse a program with its own files that it imports; nothing of it is executed.

    Args:
        path: The file that is executed.
        folder: A folder that is searched for modules, too; Python itself searches that of the file.

    Raises:
        UsageError: A file cannot be read, is too large, or is no Python.
    """
    start = Path(path)
    text = _content(path)
    first = ProgramModule(str(start), text)
    roots = [start.parent, *([Path(folder)] if folder else [])]
    found: dict[str, ProgramModule] = {}
    waiting = [first]
    while waiting:
        file = waiting.pop()
        for name, node in _wanted(file):
            place = _place(roots, name) if name not in found else None
            if place is None:
                continue
            if place.resolve() == start.resolve():
                raise UsageError(
                    f"{printable(file.path)}:{file.places[node].start.line}: it imports {printable(path)}, which is "
                    "executed, and so exists twice: move what both need into a file of its own",
                    path=file.path,
                )
            if len(found) >= MOST_FILES:
                raise UsageError(
                    f"{printable(path)}: it has more than {MOST_FILES} files of its own"
                )
            is_package = place.name == "__init__.py"
            found[name] = ProgramModule(str(place), _content(str(place)), name, is_package)
            waiting.append(found[name])
    return ProgramFile(str(start), text, list(found.values()))


def _wanted(file: ProgramModule) -> Iterator[tuple[str, cst.CSTNode]]:
    """Yield the dotted names that a file imports, packages before what is in them."""
    for node in file.nodes:
        names: Sequence[str] = ()
        if isinstance(node, cst.Import):
            names = [one.evaluated_name for one in node.names]
        elif isinstance(node, cst.ImportFrom):
            parent = file.parent_of(node)
            inner = [] if isinstance(node.names, cst.ImportStar) else node.names
            names = [parent, *(f"{parent}.{one.evaluated_name}".strip(".") for one in inner)]
        for name in names:
            parts = name.split(".")
            for count in range(1, len(parts) + 1):
                if parts[0]:
                    yield ".".join(parts[:count]), node


def _place(roots: Sequence[Path], name: str) -> Path | None:
    """Return the file of a module of the program's own; None for a library."""
    # A package before a module of the same name, as Python has it.
    for root in roots:
        path = root.joinpath(*name.split("."))
        for place in (path / "__init__.py", path.with_suffix(".py")):
            if place.is_file():
                return place
    return None


def _content(path: str) -> str:
    with open_regular(path, what="program", error=UsageError) as file:
        content = file.read(MOST_BYTES + 1)
    if len(content) > MOST_BYTES:
        raise UsageError(
            f"{printable(path)}: the file is larger than {MOST_BYTES:,} bytes", path=path
        )
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError:
        raise UsageError(f"{printable(path)}: expected a program in UTF-8", path=path) from None
