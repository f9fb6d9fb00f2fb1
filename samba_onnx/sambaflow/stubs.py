"""What editors and type checkers read of SambaFlow's modules, which are no files: stubs of the same table.

A build writes them beside the package's files, an editable one into the checkout, where git ignores
them; ``python -m samba_onnx.sambaflow.stubs`` writes them anew after the table has changed.
"""

from __future__ import annotations

import ast
import importlib.util
from pathlib import Path, PurePosixPath
from typing import Final

from samba_onnx.facts.sambaflow_names import MODULES, submodules

_HOME: Final = "samba_onnx"
_DYNAMIC: Final = "def __getattr__(name: str) -> Any: ..."


def stubs() -> dict[PurePosixPath, str]:
    """Return the text of each stub by its path below the folder of ``samba_onnx``."""
    texts = {}
    for name, row in MODULES.items():
        if row.code != f"{_HOME}.{name}":  # which is a file with types of its own
            path = PurePosixPath(*name.split("."))
            texts[path / "__init__.pyi" if submodules(name) else path.with_suffix(".pyi")] = stub(
                name
            )
    return texts


def stub(name: str) -> str:
    """Return the stub of a module.

    Args:
        name: Its dotted name, as programs import it.
    """
    row = MODULES[name]
    objects = {theirs: (home, ours) for theirs, home, ours in row.sources()}
    # A name of the row's wins over the module below it, and both over what another module has.
    found = {last: (f"{_HOME}.{name}", last) for last in submodules(name)} | objects
    others = {last: (row.others, last) for last in _listed(row.others)} if row.others else {}
    imports = [
        f"from {home} import {ours} as {theirs}"
        for theirs, (home, ours) in (others | found).items()
    ]
    lines = [f'"""``{name}``{": " if row.about else ""}{row.about}"""', ""]
    # In a stub an import is public if it is of everything, or if its name is in __all__.
    lines += [f"from {row.code} import *"] if row.code else [*imports, "from typing import Any"]
    if not row.code:
        public = sorted({*others, *found, *row.refused.split()})
        lines += ["", f"__all__ = {public!r}"]
    # Any can be called and be a base class, as what stands for these names can.
    lines += [f"{refused}: Any" for refused in row.refused.split()]
    # Operators and torch's modules are looked up when they are asked for, at run time as here.
    lines += [_DYNAMIC] * bool(row.others)
    return "\n".join(lines) + "\n"


def _listed(module: str) -> list[str]:
    """Return the names that a module of ours lists as public, without importing it.

    A build has no torch. What the module adds to the list later, editors do not see there either.
    """
    spec = importlib.util.find_spec(module)
    assert spec is not None
    assert spec.origin is not None
    tree = ast.parse(Path(spec.origin).read_text(encoding="utf-8"))
    values = (
        node.value
        for node in tree.body
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__"
    )
    names: list[str] = ast.literal_eval(next(values))
    return names


def write_stubs(folder: Path) -> None:
    """Write the stubs of all modules.

    Args:
        folder: The folder of the package ``samba_onnx``, a checkout's or a build's.
    """
    for path, text in stubs().items():
        file = folder / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    write_stubs(Path(__file__).parents[1])
