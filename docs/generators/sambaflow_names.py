"""The table of SambaFlow's names: ``python -m docs.generators.sambaflow_names`` writes it anew."""

from __future__ import annotations

import importlib
import json
from pathlib import Path
from typing import Final

from samba_onnx.facts import sambaflow_names
from samba_onnx.facts.sambaflow_names import MODULES, ROOT
from samba_onnx.sambaflow.module_rows import HOME
from samba_onnx.sessions import SESSION

FILE: Final = Path(sambaflow_names.__file__).with_suffix(".json")
_SESSION: Final = f"{ROOT}.samba.session"


def names_table() -> str:
    """Return the content of the file: the public names of every module that can be imported."""
    table = {module: sorted(_names(module)) for module in sorted(MODULES)}
    # One line for each module, so that a change shows which one it is about.
    rows = ",\n".join(f"{json.dumps(module)}: {json.dumps(table[module])}" for module in table)
    return f"{{\n{rows}\n}}\n"


def _names(name: str) -> set[str]:
    module = importlib.import_module(HOME + name.removeprefix(ROOT))
    # A module that looks up names when they are asked for says which by dir(); what another one only
    # imports for itself is not in its __all__.
    stated = dir(module) if MODULES[name].others else module.__all__
    names = {entry for entry in stated if not entry.startswith("_")}
    if name == _SESSION:
        names.update(entry for entry in dir(SESSION) if not entry.startswith("_"))
    inside = (other.rpartition(".") for other in MODULES)
    return names | {last for home, _, last in inside if home == name}


if __name__ == "__main__":
    FILE.write_text(names_table(), encoding="utf-8")
