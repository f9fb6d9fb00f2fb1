"""Names of modules as a program imports them, names that are free, and imports that it lacks."""

from __future__ import annotations

import libcst as cst

from samba_onnx.tools.adapt.edits import Edits
from samba_onnx.tools.adapt.source import ProgramFile

_OURS = (
    ("samba", "import sambaflow.samba as samba"),
    ("utils", "import sambaflow.samba.utils as utils"),
    ("parse_app_args", "from sambaflow.samba.utils.argparser import parse_app_args"),
    ("get_pefmeta", "from sambaflow.samba.utils.pef_utils import get_pefmeta"),
)
"""What every adapted program imports, by the name that it uses."""


class Names:
    """Imports and free names of one program."""

    def __init__(self, source: ProgramFile) -> None:
        self.source = source
        self.taken = {node.value for node in source.nodes if isinstance(node, cst.Name)}
        self.after_imports = ""
        """A statement that belongs behind the imports."""
        self._needed: list[str] = []

    def fresh(self, name: str) -> str:
        """Return a name, with a number behind it if the program has it for something else."""
        # Numbered from 2, as people do.
        candidate, count = name, 1
        while candidate in self.taken:
            count += 1
            candidate = f"{name}_{count}"
        self.taken.add(candidate)
        return candidate

    def module(self, name: str) -> str:
        """Return how the program names a module, which is imported where it does not.

        Args:
            name: The module, as ``sys`` or ``torch``.
        """
        # As the program itself imports it, under whatever name.
        for node in self.source.nodes:
            if isinstance(node, cst.Import):
                for one in node.names:
                    if one.evaluated_name == name:
                        return one.evaluated_alias or name
            elif isinstance(node, cst.ImportFrom) and isinstance(node.names, tuple | list):
                parent = self.source.module.code_for_node(node.module) if node.module else ""
                for one in node.names:
                    if f"{parent}.{one.evaluated_name}" == name:
                        return str(one.evaluated_alias or one.evaluated_name)
        if f"import {name}" not in self._needed:
            self._needed.append(f"import {name}")
        return name

    def base(self) -> str:
        """Return ``nn.Module`` as the program writes it."""
        own = self._existing("torch.nn")
        return f"{own}.Module" if own else f"{self.module('torch')}.nn.Module"

    def _existing(self, name: str) -> str:
        before = list(self._needed)
        found = self.module(name)
        self._needed = before
        return "" if found == name else found

    def conflicts(self) -> tuple[str, ...]:
        """Return names of SambaFlow's that the program has for something else."""
        return tuple(name for name, _ in _OURS if name in self.taken)

    def add_imports(self, edits: Edits) -> None:
        """Import what the adapted program needs, behind its own first imports."""
        lines = [*self._needed, *(line for _, line in _OURS)]
        place = self._last_import()
        if self.after_imports:
            lines += ["", self.after_imports]
        text = "\n".join(lines)
        if place is None:
            edits.insert_before(
                self.source.module.body[0], text, "imports", "SambaFlow is imported"
            )
        else:
            edits.insert_after(place, text, "imports", "SambaFlow is imported")

    def _last_import(self) -> cst.BaseStatement | None:
        """Return the last import before anything else of the module is executed."""
        # Imports further down may depend on what was executed before.
        last = None
        for statement in self.source.module.body:
            small = statement.body[0] if isinstance(statement, cst.SimpleStatementLine) else None
            if isinstance(small, cst.Import | cst.ImportFrom):
                last = statement
            elif not isinstance(small, cst.Expr):
                break
        return last
