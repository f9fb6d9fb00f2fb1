"""One file of a program, parsed with all its spaces and comments, and what it imports and defines."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property

import libcst as cst
from libcst.metadata import (
    MetadataWrapper,
    ParentNodeProvider,
    PositionProvider,
    QualifiedNameProvider,
)

from samba_onnx.errors import UsageError
from samba_onnx.safety.files import printable
from samba_onnx.tools.adapt.name_units import target_units, walk

_STEP_WORDS = (".zero_grad(", ".backward(", ".step(")


class ProgramModule:
    """A file of Python with its tree."""

    def __init__(self, path: str, text: str, name: str = "", is_package: bool = False) -> None:
        """Parse a file.

        Args:
            path: Its name, for messages.
            text: Its content.
            name: The name by which the program imports it; empty for the one that is executed.
            is_package: Whether it is the ``__init__.py`` of its package.

        Raises:
            UsageError: It is no Python.
        """
        self.path = path
        self.text = text
        self.name = name
        self.is_package = is_package
        try:
            wrapper = MetadataWrapper(cst.parse_module(text).visit(_StepLines()))
        except cst.ParserSyntaxError as error:
            raise UsageError(
                f"{printable(path)}:{error.raw_line}: this is no Python: {error.message}; mend it first",
                path=path,
            ) from None
        self.module = wrapper.module
        self.parents = wrapper.resolve(ParentNodeProvider)
        self.places = wrapper.resolve(PositionProvider)
        self.names = wrapper.resolve(QualifiedNameProvider)

    @cached_property
    def nodes(self) -> tuple[cst.CSTNode, ...]:
        """All nodes that are executed when this is a part of a program, in the order of the text."""
        # What a file does when it is started itself is no part of a program that imports it.
        if not self.name:
            return tuple(walk(self.module))
        body = [one for one in self.module.body if not _is_own_start(one)]
        return (self.module, *(node for one in body for node in walk(one)))

    @cached_property
    def definitions(self) -> dict[str, cst.FunctionDef | cst.ClassDef]:
        """Functions and classes that are no methods, by name; classes first."""
        found: dict[str, cst.FunctionDef | cst.ClassDef] = {}
        for node in self.nodes:
            if isinstance(node, cst.ClassDef):
                found[node.name.value] = node
        for node in self.nodes:
            if isinstance(node, cst.FunctionDef) and not self._is_method(node):
                found.setdefault(node.name.value, node)
        return found

    def _is_method(self, function: cst.FunctionDef) -> bool:
        block = self.parents.get(function)
        return isinstance(self.parents.get(block) if block is not None else None, cst.ClassDef)

    @cached_property
    def own(self) -> frozenset[str]:
        """Names that the file gives a meaning of its own at the level of the module."""
        found: set[str] = set()
        for one in self.module.body:
            if isinstance(one, cst.FunctionDef | cst.ClassDef):
                found.add(one.name.value)
            else:
                found.update(_assigned(one))
        return frozenset(found)

    @cached_property
    def imports(self) -> dict[str, str]:
        """What each imported name stands for, as a dotted name without leading dots."""
        found: dict[str, str] = {}
        for node in self.nodes:
            if isinstance(node, cst.Import):
                for one in node.names:
                    alias = one.evaluated_alias
                    first = one.evaluated_name.partition(".")[0]
                    found[alias or first] = one.evaluated_name if alias else first
            elif isinstance(node, cst.ImportFrom) and not isinstance(node.names, cst.ImportStar):
                parent = self.parent_of(node)
                for one in node.names:
                    name = one.evaluated_name
                    found[one.evaluated_alias or name] = f"{parent}.{name}" if parent else name
        return found

    @cached_property
    def stars(self) -> tuple[str, ...]:
        """The modules of which the file imports all names."""
        return tuple(
            self.parent_of(node)
            for node in self.nodes
            if isinstance(node, cst.ImportFrom) and isinstance(node.names, cst.ImportStar)
        )

    def parent_of(self, node: cst.ImportFrom) -> str:
        """Return the module from which names are imported, without leading dots."""
        name = self.module.code_for_node(node.module) if node.module else ""
        return self.absolute("." * len(node.relative) + name)

    def absolute(self, name: str) -> str:
        """Return a dotted name without leading dots, which count from this file's own package."""
        rest = name.lstrip(".")
        dots = len(name) - len(rest)
        if not dots:
            return name
        parts = self.name.split(".") if self.name else [""]
        package = parts if self.is_package else parts[:-1]
        above = package[: len(package) - (dots - 1)]
        return ".".join(part for part in [*above, rest] if part)


def _assigned(statement: cst.CSTNode) -> Iterator[str]:
    """Yield the names that a statement of a module assigns, in its own blocks too."""
    if isinstance(statement, cst.FunctionDef | cst.ClassDef):
        return
    if isinstance(statement, cst.AssignTarget | cst.AnnAssign | cst.For):
        yield from target_units(statement.target)
    for child in statement.children:
        yield from _assigned(child)


def _is_own_start(statement: cst.CSTNode) -> bool:
    """Whether a statement is ``if __name__ == "__main__":``."""
    test = statement.test if isinstance(statement, cst.If) else None
    left = test.left if isinstance(test, cst.Comparison) else None
    return isinstance(left, cst.Name) and left.value == "__name__"


class _StepLines(cst.CSTTransformer):
    """Gives the statements of a training step lines of their own, where several stand on one."""

    def leave_SimpleStatementLine(
        self, original_node: cst.SimpleStatementLine, updated_node: cst.SimpleStatementLine
    ) -> cst.SimpleStatementLine | cst.FlattenSentinel[cst.SimpleStatementLine]:
        # Each statement of a step is replaced by itself; a line of several would have to go as a whole.
        text = cst.Module(body=[original_node]).code
        if len(original_node.body) < 2 or not any(word in text for word in _STEP_WORDS):
            return updated_node
        lines = [
            cst.SimpleStatementLine([one.with_changes(semicolon=cst.MaybeSentinel.DEFAULT)])
            for one in updated_node.body
        ]
        lines[0] = lines[0].with_changes(leading_lines=updated_node.leading_lines)
        lines[-1] = lines[-1].with_changes(trailing_whitespace=updated_node.trailing_whitespace)
        return cst.FlattenSentinel(lines)
