"""Names of modules as a program imports them, names that are free, and imports that its files lack."""

from __future__ import annotations

import builtins
import re
from collections import defaultdict

import libcst as cst

from samba_onnx.tools.adapt.edits import Edits
from samba_onnx.tools.adapt.name_units import own_writes
from samba_onnx.tools.adapt.source import ProgramFile
from samba_onnx.tools.adapt.source_file import ProgramModule

_OURS = (
    ("samba", "import sambaflow.samba as samba"),
    ("utils", "import sambaflow.samba.utils as utils"),
    ("parse_app_args", "from sambaflow.samba.utils.argparser import parse_app_args"),
    ("get_pefmeta", "from sambaflow.samba.utils.pef_utils import get_pefmeta"),
)
"""What adapted programs import, by the name that they use."""
_WHAT = "SambaFlow is imported"


class Names:
    """Imports and free names of one program."""

    def __init__(self, source: ProgramFile) -> None:
        self.source = source
        self._bound = {file: _bound(file) for file in source.files}
        self.taken = {node.value for node in source.nodes if isinstance(node, cst.Name)}
        self.after_imports: dict[ProgramModule, list[str]] = defaultdict(list)
        """Statements that belong behind the imports."""
        self._needed: dict[ProgramModule, list[str]] = defaultdict(list)

    def fresh(self, name: str) -> str:
        """Return a name, with a number behind it if the program has it for something else."""
        # Numbered from 2, as people do.
        candidate, count = name, 1
        while candidate in self.taken:
            count += 1
            candidate = f"{name}_{count}"
        self.taken.add(candidate)
        return candidate

    def utils(self, file: ProgramModule) -> str:
        """Return the name that SambaFlow's utilities have in a file, which may have its own ``utils``."""
        return "samba_utils" if "utils" in self._bound[file] else "utils"

    def module(self, name: str, file: ProgramModule) -> str:
        """Return how a file names a module, which is imported where it does not.

        Args:
            name: The module, as ``sys`` or ``torch``.
            file: The file.
        """
        # As the file itself imports it, under whatever name.
        known = self._known(name, file)
        if not known:
            self.need(file, f"import {name}")
        return known or name

    def _known(self, name: str, file: ProgramModule) -> str:
        return next((one for one, other in file.imports.items() if other == name), "")

    def need(self, file: ProgramModule, line: str) -> None:
        """Import something more in a file.

        Args:
            file: The file.
            line: The import.
        """
        if line not in self._needed[file]:
            self._needed[file].append(line)

    def base(self, file: ProgramModule) -> str:
        """Return ``nn.Module`` as a file writes it."""
        own = self._known("torch.nn", file)
        return f"{own}.Module" if own else f"{self.module('torch', file)}.nn.Module"

    def borrow(self, name: str, owner: ProgramModule, file: ProgramModule) -> bool:
        """Let a file know what another one calls by a name; return whether it can.

        Args:
            name: The name.
            owner: The file that knows it.
            file: The file that needs it.
        """
        # The same import, or one of the other file's own: not if that one imports this one.
        if hasattr(builtins, name) or file is owner:
            return True
        known = name in owner.imports or name in owner.own
        if not known:
            return True  # of a function, or imported with all others
        meant = owner.imports.get(name, f"{owner.name}.{name}")
        if name in owner.own:
            meant = f"{owner.name}.{name}"
        if file.imports.get(name) == meant:
            return True
        if name in self._bound[file] or not self.can_import(owner, file):
            return False
        parent, _, last = meant.rpartition(".")
        alias = f" as {name}" if last != name else ""
        self.need(
            file, f"from {parent} import {last}{alias}" if parent else f"import {last}{alias}"
        )
        return True

    def can_import(self, owner: ProgramModule, file: ProgramModule) -> bool:
        """Whether a file can import another one, which must not import it in turn."""
        seen: set[ProgramModule] = set()
        waiting = [owner]
        while waiting:
            one = waiting.pop()
            if one is file or one is self.source.files[0]:
                return False
            if one not in seen:
                seen.add(one)
                dotted = (*one.imports.values(), *one.stars)
                found = (self.source.follow(name)[0] for name in dotted)
                waiting += [other for other in found if other is not None and other is not one]
        return True

    def add_imports(self, edits: Edits) -> None:
        """Import what each file needs, behind its own first imports.

        Args:
            edits: All other changes.
        """
        for file in self.source.files:
            ours = self._ours(file, edits)
            lines = [*self._needed[file], *ours]
            if self.after_imports[file]:
                lines += ["", *self.after_imports[file]]
            if not lines:
                continue
            place = self._last_import(file)
            text = "\n".join(lines)
            if place is None:
                edits.insert_before(file.module.body[0], text, "imports", _WHAT)
            else:
                edits.insert_after(place, text, "imports", _WHAT)

    def _ours(self, file: ProgramModule, edits: Edits) -> list[str]:
        """Return the imports of SambaFlow that what was planned for a file needs."""
        if not edits.changes_in(file) and not self.after_imports[file]:
            return []
        extra = " ".join(self.after_imports[file])
        used = set(re.findall(r"\w+", edits.apply(file).code))
        lines = []
        for name, line in _OURS:
            own = self.utils(file) if name == "utils" else name
            if (own in used and own not in self._bound[file]) or own in extra:
                lines.append(
                    line.removesuffix(f" as {name}") + f" as {own}" if own != name else line
                )
        return lines

    def _last_import(self, file: ProgramModule) -> cst.BaseStatement | None:
        """Return the last import, or text about the file, before anything else of it is executed."""
        # Imports further down may depend on what was executed before.
        last = None
        for place, statement in enumerate(file.module.body):
            small = statement.body[0] if isinstance(statement, cst.SimpleStatementLine) else None
            if isinstance(small, cst.Import | cst.ImportFrom):
                last = statement
            elif not isinstance(small, cst.Expr):
                break
            elif place == 0 and isinstance(small.value, cst.SimpleString):
                last = statement
        return last if isinstance(last, cst.BaseStatement) else None


def _bound(file: ProgramModule) -> set[str]:
    """Return the names that a file gives a meaning anywhere, in functions too."""
    # Names behind a dot are nobody's: torch.utils takes no `utils`.
    found = {*file.imports, *file.own}
    for node in file.nodes:
        if isinstance(node, cst.FunctionDef | cst.ClassDef | cst.Param):
            found.add(node.name.value)
        else:
            found.update(unit for unit in own_writes(node) if "." not in unit)
    return found
