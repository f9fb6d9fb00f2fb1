"""Checks of the names that a program takes from SambaFlow: whether they are here, and can be called."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from samba_onnx.facts.sambaflow_names import MODULES, ROOT, known_names, missing
from samba_onnx.tools.lint.context import Check, LintContext
from samba_onnx.tools.lint.findings import Remark, Remarks
from samba_onnx.tools.lint.source import SourceFile


def imports(source: SourceFile, context: LintContext) -> Remarks:
    """Find imports of what neither samba-onnx nor SambaFlow's documents have."""
    for node in ast.walk(source.tree):
        # A program that catches the failure of an import is written for places without the name.
        if isinstance(node, ast.Import | ast.ImportFrom) and not _is_guarded(source, node):
            for name in _imported(node):
                if message := _unknown(name):
                    yield Remark("unknown-name", node, message)
                    # One remark per statement, as all its names stand on one line.
                    break


def attributes(source: SourceFile, context: LintContext) -> Remarks:
    """Find attributes of SambaFlow's modules that they do not have."""
    for node in ast.walk(source.tree):
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load):
            message = _unknown(source.names.full(node))
            if message and not _is_guarded(source, node):
                yield Remark("unknown-name", node, message)


def calls(source: SourceFile, context: LintContext) -> Remarks:
    """Find calls of what can be imported, and does nothing but raise."""
    # Also by its full name, so that `import sambaflow.samba as samba` is understood.
    for call, _ in source.calls:
        name = source.names.full(call.func)
        reason = missing(name) if name.partition(".")[0] == ROOT else None
        if reason and not _is_guarded(source, call):
            yield Remark("missing-name", call, reason)


def _imported(node: ast.Import | ast.ImportFrom) -> Iterator[str]:
    """Yield the dotted names that a statement needs to be there."""
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names)
    # Relative imports are of the program's own files.
    elif node.module and not node.level:
        # A name of the module may itself be a module; the module is asked for as well.
        yield from (f"{node.module}.{alias.name}" for alias in node.names if alias.name != "*")
        yield node.module


def _unknown(name: str) -> str:
    """Return what to say of a name that is not there; nothing for any other one.

    What follows a name that a module has is a member of some object, which the text does not show.
    """
    if name.partition(".")[0] != ROOT or missing(name):
        return ""
    parts = name.split(".")
    # From the longest on, so that the innermost module is asked for the name.
    ends = (end for end in range(len(parts), 0, -1) if ".".join(parts[:end]) in MODULES)
    end = next(ends)  # the package itself is always one
    module = ".".join(parts[:end])
    # Every module has names like `__file__`.
    if end == len(parts) or parts[end] in known_names()[module] or parts[end].startswith("__"):
        return ""
    return f"`{module}` has no `{parts[end]}`, here or in SambaFlow's documents"


def _is_guarded(source: SourceFile, node: ast.AST) -> bool:
    """Return whether a ``try`` with handlers encloses a node."""
    return any(isinstance(above, ast.Try) and above.handlers for above in source.enclosing(node))


NAME_CHECKS: tuple[Check, ...] = (imports, attributes, calls)
