"""What changes in a program: kept by node while it is planned, and made by one transformer at the end."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import libcst as cst

from samba_onnx.tools.adapt.source import ProgramFile
from samba_onnx.tools.adapt.source_file import ProgramModule

Rewrite = Callable[[cst.BaseExpression], cst.BaseExpression]
"""Makes a new expression of one whose parts were rewritten already."""
_LONGEST = 160


@dataclass(frozen=True)
class ProgramChange:
    """One place of a program that was adapted."""

    path: str
    """The file."""
    line: int
    """Number of its line in the original, from 1."""
    code: str
    """What stood there, shortened to one line."""
    pattern: str
    """Name of the pattern, stable for machines."""
    what: str
    """What was done to it."""


class Edits:
    """Collects changes of a program."""

    def __init__(self, source: ProgramFile) -> None:
        self.source = source
        self.changes: list[ProgramChange] = []
        self.before: dict[cst.CSTNode, list[str]] = defaultdict(list)
        self.after: dict[cst.CSTNode, list[str]] = defaultdict(list)
        self.instead: dict[cst.CSTNode, list[str]] = {}
        self.opened: set[cst.CSTNode] = set()
        self.lifted: dict[cst.CSTNode, cst.IndentedBlock] = {}
        self.expressions: dict[cst.CSTNode, list[Rewrite]] = defaultdict(list)
        self.parameters: dict[cst.CSTNode, cst.Parameters] = {}

    def note(self, node: cst.CSTNode, pattern: str, what: str) -> None:
        """Record what was done at a place."""
        code = " ".join(self.source.code(node).split())[:_LONGEST]
        path = self.source.file(node).path
        self.changes.append(ProgramChange(path, self.source.line(node), code, pattern, what))

    def changes_in(self, file: ProgramModule) -> bool:
        """Whether anything was planned for a file."""
        return any(change.path == file.path for change in self.changes)

    def remove(self, statement: cst.BaseStatement, pattern: str, what: str) -> None:
        """Take a statement out."""
        self.replace(statement, [], pattern, what)

    def replace(
        self, statement: cst.BaseStatement, code: list[str], pattern: str, what: str
    ) -> None:
        """Put statements in the place of one."""
        # The first plan wins: who removed a statement knows more of it than who would change it later.
        if statement not in self.instead:
            self.instead[statement] = code
            self.note(statement, pattern, what)

    def insert_before(
        self, statement: cst.BaseStatement, code: str, pattern: str, what: str
    ) -> None:
        """Put statements before one."""
        # Several models of one optimizer ask for the same line.
        if code not in self.before[statement]:
            self.before[statement].append(code)
            self.note(statement, pattern, what)

    def insert_after(
        self, statement: cst.BaseStatement, code: str, pattern: str, what: str
    ) -> None:
        """Put statements behind one."""
        if code not in self.after[statement]:
            self.after[statement].append(code)
            self.note(statement, pattern, what)

    def open(self, statement: cst.With, pattern: str, what: str) -> None:
        """Put the statements of a block in the place of the ``with`` around them."""
        self.opened.add(statement)
        self.note(statement, pattern, what)

    def lift(self, statement: cst.If, block: cst.IndentedBlock, pattern: str, what: str) -> None:
        """Put the statements of one branch in the place of a choice."""
        self.lifted[statement] = block
        self.note(statement, pattern, what)

    def rewrite(self, node: cst.BaseExpression, rewrite: Rewrite, pattern: str, what: str) -> None:
        """Make another expression of one."""
        self.expressions[node].append(rewrite)
        self.note(node, pattern, what)

    def is_gone(self, node: cst.CSTNode) -> bool:
        """Whether a node is in a statement that something else replaces."""
        # Inside of a replaced statement, nothing of the original is left to be changed.
        around = (node, *self.source.enclosing(node))
        return any(
            one in self.instead
            or (one in self.lifted and not self.source.contains(self.lifted[one], node))
            for one in around
        )

    def apply(self, file: ProgramModule) -> cst.Module:
        """Return a file of the program with all changes made."""
        return file.module.visit(_Writer(self, file))


class _Writer(cst.CSTTransformer):
    """Makes the changes, from the innermost node outwards."""

    def __init__(self, edits: Edits, file: ProgramModule) -> None:
        super().__init__()
        self._edits = edits
        self._file = file
        self._config = file.module.config_for_parsing
        self._emptied: set[cst.CSTNode] = set()

    def on_leave(  # type: ignore[override]  # one method for nodes of all types
        self, original_node: cst.CSTNode, updated_node: cst.CSTNode
    ) -> cst.CSTNode | cst.RemovalSentinel | cst.FlattenSentinel[cst.BaseStatement]:
        for rewrite in self._edits.expressions.get(original_node, ()):
            assert isinstance(updated_node, cst.BaseExpression)
            updated_node = rewrite(updated_node)
        if isinstance(updated_node, cst.IndentedBlock) and not updated_node.body:
            self._emptied.add(original_node)
            return updated_node.with_changes(body=[cst.parse_statement("pass")])
        if original_node in self._edits.parameters:
            updated_node = updated_node.with_changes(params=self._edits.parameters[original_node])
        if isinstance(original_node, cst.BaseStatement):
            return self._statement(original_node, updated_node)
        return updated_node

    def _statement(
        self, original: cst.BaseStatement, updated: cst.CSTNode
    ) -> cst.CSTNode | cst.RemovalSentinel | cst.FlattenSentinel[cst.BaseStatement]:
        # Replacement, then what was put around it: an insertion stays where its statement was.
        assert isinstance(updated, cst.BaseStatement)
        own: list[cst.BaseStatement] = [updated]
        if original in self._edits.instead:
            own = self._replacement(original, self._edits.instead[original])
        elif original in self._edits.opened and isinstance(updated, cst.With):
            own = _opened(updated)
        elif original in self._edits.lifted:
            changed = self._edits.lifted[original].visit(_Writer(self._edits, self._file))
            assert isinstance(changed, cst.IndentedBlock)
            own = [one for one in changed.body if isinstance(one, cst.BaseStatement)]
        elif self._is_empty(original):
            own = []
        before = self._parsed(self._edits.before.get(original, ()))
        after = self._parsed(self._edits.after.get(original, ()))
        if not before and not after:
            if not own:
                return cst.RemoveFromParent()
            if len(own) == 1:
                return own[0]
        return cst.FlattenSentinel([*before, *own, *after])

    def _replacement(
        self, original: cst.BaseStatement, code: Sequence[str]
    ) -> list[cst.BaseStatement]:
        new = self._parsed(code)
        lines = getattr(original, "leading_lines", ())
        if new and lines:
            # What the author wrote above a statement is said of what takes its place, too.
            new[0] = new[0].with_changes(leading_lines=lines)
        return new

    def _parsed(self, code: Sequence[str]) -> list[cst.BaseStatement]:
        # The program's own indentation and line ends, not ours.
        parsed: list[cst.BaseStatement] = []
        for text in code:
            module = cst.parse_module(text + "\n", self._config)
            first, *others = [*module.body]
            header = [*module.header, *getattr(first, "leading_lines", ())]
            parsed += [first.with_changes(leading_lines=header), *others]
        return parsed

    def _is_empty(self, original: cst.BaseStatement) -> bool:
        """Whether nothing is left of an ``if`` or loop but its head."""
        # `if use_cuda:` with nothing but device calls in it; an else keeps the condition.
        if (
            not isinstance(original, cst.If | cst.For | cst.With)
            or original.body not in self._emptied
        ):
            return False
        return isinstance(original, cst.With) or original.orelse is None


def _opened(statement: cst.With) -> list[cst.BaseStatement]:
    # The comment above a with is about what is in it.
    body = [one for one in statement.body.body if isinstance(one, cst.BaseStatement)]
    if body and statement.leading_lines:
        lines = [*statement.leading_lines, *getattr(body[0], "leading_lines", ())]
        body[0] = body[0].with_changes(leading_lines=lines)
    return body


def drop_arguments(node: cst.Call, names: frozenset[str]) -> cst.Call:
    """Return a call without some of its keyword arguments."""
    kept = [
        argument
        for argument in node.args
        if argument.keyword is None or argument.keyword.value not in names
    ]
    if kept and len(kept) < len(node.args) and node.args[-1] not in kept:
        # The last argument may have had no comma behind it, or a line of its own.
        kept[-1] = kept[-1].with_changes(comma=node.args[-1].comma)
    return node.with_changes(args=kept)


def add_arguments(node: cst.Call, **values: str) -> cst.Call:
    """Return a call with more keyword arguments, given as code."""
    # A call that has one argument on each line gets the new ones so, too.
    args = list(node.args)
    trailing = args[-1].comma if args else cst.MaybeSentinel.DEFAULT
    if args:
        args[-1] = args[-1].with_changes(comma=_comma_of(args))
    for name, code in values.items():
        args.append(
            cst.Arg(
                cst.parse_expression(code),
                keyword=cst.Name(name),
                equal=cst.AssignEqual(cst.SimpleWhitespace(""), cst.SimpleWhitespace("")),
                comma=cst.Comma(whitespace_after=cst.SimpleWhitespace(" ")),
            )
        )
    args[-1] = args[-1].with_changes(comma=trailing)
    return node.with_changes(args=args)


def _comma_of(args: list[cst.Arg]) -> cst.Comma:
    """Return the comma with which the author separates arguments: on one line, or one on each."""
    for argument in args[:-1]:
        if isinstance(argument.comma, cst.Comma):
            return argument.comma
    return cst.Comma(whitespace_after=cst.SimpleWhitespace(" "))
