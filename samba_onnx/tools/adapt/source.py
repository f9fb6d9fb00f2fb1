"""One program, of one file or several, and questions about where its nodes stand."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property

import libcst as cst
from libcst.metadata import QualifiedName, QualifiedNameSource

from samba_onnx.tools.adapt.source_file import ProgramModule

Statement = cst.BaseStatement | cst.BaseSmallStatement
Frame = cst.FunctionDef | cst.Module | None
"""Where names live: a function, another file of the program, or the file that is executed."""
Block = Sequence[cst.BaseStatement] | Sequence[cst.BaseSmallStatement]
_LONGEST_CHAIN = 8
"""Files through which a name is handed on."""


class ProgramFile:
    """A program: the file that is executed, and those that it imports of its own."""

    def __init__(self, path: str, text: str, others: Sequence[ProgramModule] = ()) -> None:
        """Parse a program.

        Args:
            path: The name of the file that is executed, for messages.
            text: Its content.
            others: The files of the program that it imports.

        Raises:
            UsageError: It is no Python.
        """
        self.path = path
        self.text = text
        self.files = (ProgramModule(path, text), *others)
        self.module = self.files[0].module
        self._by_module = {file.module: file for file in self.files}
        self._by_name = {other.name: other for other in others}
        self._parents = {node: above for file in self.files for node, above in file.parents.items()}
        self._places = {node: place for file in self.files for node, place in file.places.items()}
        self._names = {node: names for file in self.files for node, names in file.names.items()}
        self._imported: dict[cst.CSTNode, str] = {}

    def file(self, node: cst.CSTNode | None) -> ProgramModule:
        """Return the file that a node is in; the one that is executed for None."""
        if node is None:
            return self.files[0]
        *_, last = (node, *self.enclosing(node))
        return self._by_module[last] if isinstance(last, cst.Module) else self.files[0]

    def level(self, file: ProgramModule) -> Frame:
        """Return the frame of a file's own level."""
        return None if file is self.files[0] else file.module

    def statements(self, frame: Frame) -> Sequence[cst.BaseStatement | cst.BaseSmallStatement]:
        """Return the statements of a frame's own block."""
        if isinstance(frame, cst.FunctionDef):
            return frame.body.body
        return (frame or self.module).body

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
        # Names of the program's own files are no imports: they are followed to what stands there.
        if node not in self._imported:
            file, name = self._followed(node)
            self._imported[node] = name if file is None else ""
        return self._imported[node]

    def _followed(self, node: cst.CSTNode) -> tuple[ProgramModule | None, str]:
        """Return the library or file that a node's name comes from, and its name there."""
        # Aliases, `from` imports and attributes of modules all lead to one name by which tables are kept.
        inner = node
        while isinstance(inner, cst.Attribute):
            inner = inner.value
        if not isinstance(inner, cst.Name):
            return (
                None,
                "",
            )  # a method of what a call returns, which LibCST names after the function
        found = self._names.get(node, ())
        names: list[QualifiedName] = list(found() if callable(found) else found)
        ours = [name.name for name in names if name.source is QualifiedNameSource.IMPORT]
        if ours:
            file = self.file(node) if ours[0].startswith(".") or self._by_name else self.files[0]
            return self.follow(file.absolute(ours[0]))
        if not names and self._by_name and self.file(node).stars:
            return self._of_stars(self.file(node), self.code(node).split("."), 0) or (None, "")
        return None, ""

    def follow(self, dotted: str, depth: int = 0) -> tuple[ProgramModule | None, str]:
        """Return the file of the program that a dotted name leads to, and its name there.

        Args:
            dotted: The name, as ``models.net.Net``.
            depth: Through how many files it was handed on.

        Returns:
            The file, or None and the dotted name for what is of no file of the program.
        """
        # The longest name of a module first: models.net before models.
        parts = dotted.split(".")
        for count in range(len(parts), 0, -1):
            file = self._by_name.get(".".join(parts[:count]))
            if file is not None:
                return self._member(file, parts[count:], depth)
        return None, dotted

    def _member(
        self, file: ProgramModule, names: list[str], depth: int
    ) -> tuple[ProgramModule | None, str]:
        if not names or names[0] in file.own or depth > _LONGEST_CHAIN:
            return file, ".".join(names)
        if names[0] in file.imports:
            return self.follow(".".join([file.imports[names[0]], *names[1:]]), depth + 1)
        return self._of_stars(file, names, depth) or (file, ".".join(names))

    def _of_stars(
        self, file: ProgramModule, names: list[str], depth: int
    ) -> tuple[ProgramModule | None, str] | None:
        """Return what a name is that a file imports with all others of a file of the program."""
        for star in file.stars:
            other = self._by_name.get(star)
            if other is None or depth > _LONGEST_CHAIN:
                continue
            if names[0] in other.own or names[0] in other.imports:
                return self._member(other, names, depth + 1)
            found = self._of_stars(other, names, depth + 1)
            if found is not None:
                return found
        return None

    def linked(self, level: Frame, name: str) -> tuple[ProgramModule, str] | None:
        """Return the file of the program and the name there that a name of another file stands for."""
        file = self.file(level)
        if not self._by_name or name in file.own:
            return None
        other, found = self._member(file, [name], 0)
        return (other, found) if other is not None and other is not file else None

    def definition(self, node: cst.CSTNode) -> cst.FunctionDef | cst.ClassDef | None:
        """Return the function or class of the program that a name, or one of a module, stands for."""
        file, name = self._followed(node)
        if file is not None:
            return file.definitions.get(name)
        if name or not isinstance(node, cst.Name):
            return None
        return self.file(node).definitions.get(node.value)

    def frame(self, node: cst.CSTNode) -> Frame:
        """Return the function that a node is in; at the level of a file, that of the file."""
        above: cst.CSTNode | None = None
        for above in self.enclosing(node):
            if isinstance(above, cst.FunctionDef):
                return above
        return above if isinstance(above, cst.Module) and above is not self.module else None

    def class_of(self, function: Frame) -> cst.ClassDef | None:
        """Return the class whose method a function is; None if it is of none."""
        # A method's parent is the block of its class, not the class.
        if not isinstance(function, cst.FunctionDef):
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
        return tuple(node for file in self.files for node in file.nodes)

    @cached_property
    def calls(self) -> tuple[cst.Call, ...]:
        """All calls, in the order of the text."""
        return tuple(node for node in self.nodes if isinstance(node, cst.Call))

    @cached_property
    def functions(self) -> tuple[cst.FunctionDef, ...]:
        """All functions and methods."""
        return tuple(node for node in self.nodes if isinstance(node, cst.FunctionDef))

    def is_module(self, owner: cst.ClassDef | None) -> bool:
        """Whether a class is derived from ``torch.nn.Module``, as far as the program tells."""
        # Bases of libraries are not followed: their classes are found by what is done with objects.
        if owner is None:
            return False
        for base in owner.bases:
            name = self.imported(base.value)
            if name.startswith("torch.nn."):
                return True
            local = self.definition(base.value)
            if local is not owner and isinstance(local, cst.ClassDef) and self.is_module(local):
                return True
        return False
