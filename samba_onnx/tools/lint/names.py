"""What names in a program stand for: ``F.relu`` is ``torch.nn.functional.relu`` by its import."""

from __future__ import annotations

import ast
from collections.abc import Mapping

PACKAGES = ("sambaflow.samba", "samba_onnx.sambaflow.samba", "samba_onnx")
"""Packages that all go by the name ``samba``, so that a rule is written once for both."""


def words(text: str) -> frozenset[str]:
    """Return the words of a text, as tables of names are written."""
    return frozenset(text.split())


class ImportedNames:
    """The imports of one file, and the dotted name of every expression that leads to one."""

    def __init__(self, tree: ast.Module) -> None:
        """Read the imports.

        Args:
            tree: The file. Imports inside of functions count for the whole of it.
        """
        self._names: dict[str, str] = {}
        # For the whole file: whoever reads a text cannot tell which function was called first.
        for node in ast.walk(tree):
            if isinstance(node, ast.Import):
                self._import(node)
            elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
                for alias in node.names:
                    self._names[alias.asname or alias.name] = f"{node.module}.{alias.name}"
        # After the imports, of which it may be any.
        for node in ast.walk(tree):
            if isinstance(node, ast.Assign) and isinstance(node.value, ast.Attribute):
                self._assign(node)

    @property
    def imported(self) -> Mapping[str, str]:
        """What each imported name stands for, by the name."""
        return self._names

    def dotted(self, node: ast.expr) -> str:
        """Return the full name of what an expression leads to.

        Args:
            node: A name, or attributes of one.

        Returns:
            The name with ``samba`` in place of SambaFlow's package; empty if the expression does not
            begin with an imported name.
        """
        return _canonical(self.full(node))

    def full(self, node: ast.expr) -> str:
        """Return the name of what an expression leads to, as the imports have it.

        Args:
            node: A name, or attributes of one.

        Returns:
            The name with the package's own name first; empty as for ``dotted``.
        """
        parts: list[str] = []
        while isinstance(node, ast.Attribute):
            parts.append(node.attr)
            node = node.value
        if not isinstance(node, ast.Name) or node.id not in self._names:
            return ""
        return ".".join([self._names[node.id], *reversed(parts)])

    def _import(self, node: ast.Import) -> None:
        """Keep ``import a.b`` as the name ``a``, and ``import a.b as c`` as the name ``c``."""
        for alias in node.names:
            first = alias.name.partition(".")[0]
            # `import a.b` binds `a`, through which everything below it is reached.
            self._names[alias.asname or first] = alias.name if alias.asname else first

    def _assign(self, node: ast.Assign) -> None:
        """Keep ``session = samba.session`` as one more name of it."""
        name = self.full(node.value)
        for target in node.targets:
            # An imported name keeps its meaning, though a function may assign to a variable of that
            # name.
            if name and isinstance(target, ast.Name) and target.id not in self._names:
                self._names[target.id] = name


def _canonical(name: str) -> str:
    """Return a dotted name with ``samba`` for every package that SambaFlow's API is in."""
    for package in PACKAGES:
        # The dot matters: `samba_onnx_tools` is another package.
        if name == package or name.startswith(f"{package}."):
            return f"samba{name[len(package) :]}"
    return name
