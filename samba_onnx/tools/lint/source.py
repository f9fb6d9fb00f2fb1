"""A program to be looked at: its tree, what encloses what, its functions and classes."""

from __future__ import annotations

import ast
import os
import re
import warnings
from collections.abc import Iterator
from typing import Final

from samba_onnx.errors import UsageError
from samba_onnx.safety.files import open_regular, printable
from samba_onnx.tools.lint.names import ImportedNames

Function = ast.FunctionDef | ast.AsyncFunctionDef
Loop = ast.For | ast.AsyncFor | ast.While

MOST_BYTES: Final = 4_000_000
"""The largest file that is read; programs that people write are far smaller."""

_IGNORED: Final = re.compile(r"#\s*samba-port:\s*ignore(?:\[([\w\s,-]*)\])?")


class SourceFile:
    """One Python file, parsed and never executed."""

    def __init__(self, path: str, content: bytes) -> None:
        """Parse a file.

        Args:
            path: Its name, for messages.
            content: Its bytes; a line may declare another encoding than UTF-8.

        Raises:
            UsageError: It is no Python.
        """
        self.path = path
        self.tree = _parsed(path, content)
        # By lines of the bytes: a comment that ignores a rule is ASCII in every encoding that
        # Python takes.
        self.lines = content.decode("utf-8", "replace").splitlines()
        self.names = ImportedNames(self.tree)
        # The standard library's tree knows no parents. One pass for the file is cheaper than a
        # search for each question.
        self._parents = {
            child: node for node in ast.walk(self.tree) for child in ast.iter_child_nodes(node)
        }
        self.functions: tuple[Function, ...] = tuple(
            node for node in ast.walk(self.tree) if isinstance(node, Function)
        )
        self.classes = {
            node.name: node for node in ast.walk(self.tree) if isinstance(node, ast.ClassDef)
        }
        # With their names, for nearly all checks ask for calls by name.
        self.calls: tuple[tuple[ast.Call, str], ...] = tuple(
            (node, self.names.dotted(node.func))
            for node in ast.walk(self.tree)
            if isinstance(node, ast.Call)
        )

    def ignores(self, line: int, rule: str) -> bool:
        """Whether a comment on a line asks for a rule to be left out there.

        Args:
            line: Number of the line, from 1.
            rule: Id of the rule; ``# samba-port: ignore`` without brackets means all of them.
        """
        text = self.lines[line - 1] if 0 < line <= len(self.lines) else ""
        match = _IGNORED.search(text)
        if match is None:
            return False
        return match[1] is None or rule in {word.strip() for word in match[1].split(",")}

    def enclosing(self, node: ast.AST) -> Iterator[ast.AST]:
        """Yield what encloses a node, the innermost first."""
        above = self._parents.get(node)
        while above is not None:
            yield above
            above = self._parents.get(above)

    def function_of(self, node: ast.AST) -> Function | None:
        """Return the innermost function that a node is in; None outside of functions."""
        return next((above for above in self.enclosing(node) if isinstance(above, Function)), None)

    def class_of(self, function: Function) -> ast.ClassDef | None:
        """Return the class that a function is a method of; None if it is of none."""
        above = self._parents.get(function)
        return above if isinstance(above, ast.ClassDef) else None

    def loop_of(self, node: ast.AST) -> Loop | None:
        """Return the innermost loop that executes a node in every iteration.

        What a ``for`` iterates over and an ``else`` are executed once, and belong to the loop around.
        """
        inner: ast.AST = node
        for above in self.enclosing(node):
            # What is defined in a loop is not executed by it.
            if isinstance(above, Function | ast.Lambda | ast.ClassDef):
                return None
            if isinstance(above, Loop) and _is_repeated(above, inner):
                return above
            inner = above
        return None

    def is_conditional(self, node: ast.AST) -> bool:
        """Whether a condition inside of the innermost loop or function decides if a node is executed."""
        for above in self.enclosing(node):
            # Conditions outside of the loop decide whether there are steps at all, and not in
            # which.
            if isinstance(above, Loop | Function | ast.Lambda):
                return False
            if isinstance(above, ast.If | ast.IfExp | ast.ExceptHandler | ast.Match):
                return True
        return False


def read_source(path: str) -> SourceFile:
    """Read and parse a file.

    Args:
        path: A Python file.

    Returns:
        The file; nothing of it was executed.

    Raises:
        UsageError: It cannot be read, is too large, or is no Python.
    """
    with open_regular(path, what="program", error=UsageError) as file:
        # One byte more than is allowed tells a larger file without reading it.
        content = file.read(MOST_BYTES + 1)
    if len(content) > MOST_BYTES:
        raise UsageError(
            f"{printable(path)}: the file is larger than {MOST_BYTES:,} bytes, expected a Python "
            "program that somebody wrote; give its own files",
            path=path,
        )
    return SourceFile(os.fspath(path), content)


def too_deep(path: str) -> UsageError:
    """Return the error for a file whose expressions are nested deeper than Python can follow."""
    return UsageError(
        f"{printable(path)}: its expressions are nested too deeply to be followed; expected a "
        "program that somebody wrote, break the expression up",
        path=path,
    )


def argument(call: ast.Call, name: str, position: int | None = None) -> ast.expr | None:
    """Return an argument of a call.

    Args:
        call: The call.
        name: Its keyword.
        position: Its place, counted from 0; None if it can only be given by keyword.

    Returns:
        The expression; None if the argument is left out, or hidden behind a ``*``.
    """
    for keyword in call.keywords:
        if keyword.arg == name:
            # A keyword counts before a position, which it may follow in any order.
            return keyword.value
    before = call.args[: position + 1] if position is not None else []
    if position is None or len(before) <= position:
        return None
    # Behind a star, positions are not known.
    return None if any(isinstance(item, ast.Starred) for item in before) else before[position]


def has_open_arguments(call: ast.Call) -> bool:
    """Whether a call passes on arguments by ``*`` or ``**``, which nobody sees in its text."""
    return any(isinstance(item, ast.Starred) for item in call.args) or any(
        keyword.arg is None for keyword in call.keywords
    )


def literal(node: ast.expr | None) -> object:
    """Return the value of an expression that is written out; None if it has to be computed."""
    if node is None:
        return None
    try:
        return ast.literal_eval(node)
    # All that literal_eval raises for what is not written out, or too deep.
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
        return None


def quoted(node: ast.AST) -> str:
    """Return the text of a node on one line, shortened, between backticks."""
    return f"`{printable(' '.join(ast.unparse(node).split()), 60)}`"


def _is_repeated(loop: Loop, part: ast.AST) -> bool:
    # The test of a `while` is asked in every iteration, what a `for` goes through only once.
    return part in loop.body or (isinstance(loop, ast.While) and part is loop.test)


def _parsed(path: str, content: bytes) -> ast.Module:
    name = printable(path)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of invalid escapes, which the program's owner sees
            return ast.parse(content)
    except (SyntaxError, ValueError) as error:
        line = getattr(error, "lineno", None)
        reason = getattr(error, "msg", str(error))
        place = f"{name}:{line}" if line else name
        raise UsageError(
            f"{place}: this is no Python that {_version()} understands: {reason}; mend it, or run "
            "samba-port with the Python of the program",
            path=path,
        ) from None
    except (RecursionError, MemoryError):
        raise too_deep(path) from None


def _version() -> str:
    import platform

    return f"Python {platform.python_version()}"
