"""One program, parsed with all its spaces and comments, and questions about where its nodes stand."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property
from pathlib import Path

import libcst as cst
from libcst.metadata import (
    MetadataWrapper,
    ParentNodeProvider,
    PositionProvider,
    QualifiedName,
    QualifiedNameProvider,
    QualifiedNameSource,
)

from samba_onnx.errors import UsageError
from samba_onnx.safety.files import open_regular, printable

Statement = cst.BaseStatement | cst.BaseSmallStatement
Frame = cst.FunctionDef | None
"""Where names live: a function, or the module itself."""
Block = Sequence[cst.BaseStatement] | Sequence[cst.BaseSmallStatement]

MOST_BYTES = 1 << 20
_STEP_WORDS = (".zero_grad(", ".backward(", ".step(")


class ProgramFile:
    """A file of Python with its tree."""

    def __init__(self, path: str, text: str) -> None:
        """Parse a program.

        Args:
            path: Its name, for messages.
            text: Its content.

        Raises:
            UsageError: It is no Python.
        """
        self.path = path
        try:
            wrapper = MetadataWrapper(cst.parse_module(text).visit(_StepLines()))
        except cst.ParserSyntaxError as error:
            raise UsageError(
                f"{printable(path)}:{error.raw_line}: this is no Python: {error.message}; mend it first",
                path=path,
            ) from None
        self.module = wrapper.module
        self.text = text
        self._parents = wrapper.resolve(ParentNodeProvider)
        self._places = wrapper.resolve(PositionProvider)
        self._names = wrapper.resolve(QualifiedNameProvider)

    def code(self, node: cst.CSTNode) -> str:
        """Return the text of a node, as it was written."""
        # A node's own text ends with the spaces before its comma or newline.
        return self.module.code_for_node(node).strip()

    def line(self, node: cst.CSTNode) -> int:
        """Return the number of a node's first line, from 1."""
        return int(self._places[node].start.line)

    def column(self, node: cst.CSTNode) -> int:
        """Return the number of a node's first column, from 0."""
        return int(self._places[node].start.column)

    def parent(self, node: cst.CSTNode) -> cst.CSTNode | None:
        """Return what a node is a part of; None for the module."""
        return self._parents.get(node)

    def enclosing(self, node: cst.CSTNode) -> Iterator[cst.CSTNode]:
        """Yield what encloses a node, the innermost first."""
        above = self.parent(node)
        while above is not None:
            yield above
            above = self.parent(above)

    def imported(self, node: cst.CSTNode) -> str:
        """Return the dotted name under which a node was imported, as ``torch.nn.Linear``; else an empty text."""
        inner = node
        while isinstance(inner, cst.Attribute):
            inner = inner.value
        if not isinstance(inner, cst.Name):
            return ""  # a method of what a call returns, which LibCST names after the function
        # Aliases, `from` imports and attributes of modules all lead to one name by which tables are kept.
        found = self._names.get(node, ())
        names: list[QualifiedName] = list(found() if callable(found) else found)
        ours = [one.name for one in names if one.source is QualifiedNameSource.IMPORT]
        return ours[0] if ours else ""

    def frame(self, node: cst.CSTNode) -> Frame:
        """Return the function that a node is in; None at the level of the module."""
        for above in self.enclosing(node):
            if isinstance(above, cst.FunctionDef):
                return above
        return None

    def class_of(self, function: Frame) -> cst.ClassDef | None:
        """Return the class whose method a function is; None if it is of none."""
        # A method's parent is the block of its class, not the class.
        if function is None:
            return None
        block = self.parent(function)
        above = self.parent(block) if block is not None else None
        return above if isinstance(above, cst.ClassDef) else None

    def statement(self, node: cst.CSTNode) -> cst.BaseStatement:
        """Return the innermost whole statement that a node is in, or is."""
        # Expressions, small statements and arguments have the line that holds them.
        for one in (node, *self.enclosing(node)):
            if isinstance(one, cst.BaseStatement):
                return one
        raise AssertionError("every node but the module is in a statement")

    def block(self, statement: cst.BaseStatement) -> Sequence[cst.BaseStatement]:
        """Return the statements among which one stands."""
        # A suite on the line of its head has small statements only, and is left alone as a whole.
        above = self.parent(statement)
        if isinstance(above, cst.Module | cst.IndentedBlock):
            return above.body
        return (statement,)

    def preceding(self, statement: cst.BaseStatement) -> Sequence[cst.BaseStatement]:
        """Return what stands before a statement in its block."""
        block = self.block(statement)
        return block[: list(block).index(statement)]

    def around(self, statement: cst.BaseStatement) -> cst.BaseStatement | None:
        """Return the compound statement in whose block one stands; None for the module and functions."""
        # Functions and classes execute their blocks at another time than the line where they stand.
        for above in self.enclosing(statement):
            if isinstance(above, cst.FunctionDef | cst.ClassDef | cst.Module):
                return None
            if isinstance(above, cst.BaseStatement):
                return above
        return None

    def top(self, node: cst.CSTNode) -> cst.BaseStatement:
        """Return the statement of the module that a node is in."""
        last = self.statement(node)
        for above in self.enclosing(node):
            if isinstance(above, cst.BaseStatement):
                last = above
        return last

    def contains(self, outer: cst.CSTNode, inner: cst.CSTNode) -> bool:
        """Whether a node is another one, or in it."""
        return outer is inner or any(one is outer for one in self.enclosing(inner))

    @cached_property
    def nodes(self) -> tuple[cst.CSTNode, ...]:
        """All nodes, in the order of the text."""
        return tuple(walk(self.module))

    @cached_property
    def calls(self) -> tuple[cst.Call, ...]:
        """All calls, in the order of the text."""
        return tuple(node for node in self.nodes if isinstance(node, cst.Call))

    @cached_property
    def functions(self) -> tuple[cst.FunctionDef, ...]:
        """All functions and methods."""
        return tuple(node for node in self.nodes if isinstance(node, cst.FunctionDef))

    @cached_property
    def classes(self) -> dict[str, cst.ClassDef]:
        """Classes by name."""
        return {node.name.value: node for node in self.nodes if isinstance(node, cst.ClassDef)}

    def is_module(self, owner: cst.ClassDef | None) -> bool:
        """Whether a class is derived from ``torch.nn.Module``, as far as this file tells."""
        # Bases in other files are not followed: their classes are found by what is done with objects.
        if owner is None:
            return False
        for base in owner.bases:
            name = self.imported(base.value)
            if name.startswith("torch.nn."):
                return True
            local = base.value.value if isinstance(base.value, cst.Name) else ""
            if local != owner.name.value and self.is_module(self.classes.get(local)):
                return True
        return False


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


def walk(node: cst.CSTNode) -> Iterator[cst.CSTNode]:
    """Yield a node and all in it, in the order of the text."""
    # libcst.matchers finds nodes, too, but not in the order of the text.
    yield node
    for child in node.children:
        yield from walk(child)


def read_source(path: str) -> ProgramFile:
    """Read and parse a program; nothing of it is executed.

    Args:
        path: A Python file.

    Raises:
        UsageError: It cannot be read, is too large, or is no Python.
    """
    with open_regular(path, what="program", error=UsageError) as file:
        content = file.read(MOST_BYTES + 1)
    if len(content) > MOST_BYTES:
        raise UsageError(
            f"{printable(path)}: the file is larger than {MOST_BYTES:,} bytes", path=path
        )
    try:
        return ProgramFile(str(Path(path)), content.decode("utf-8"))
    except UnicodeDecodeError:
        raise UsageError(f"{printable(path)}: expected a program in UTF-8", path=path) from None
