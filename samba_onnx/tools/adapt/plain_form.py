"""A program written anew in plain PyTorch before it is adapted, and where each line of it came from."""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import libcst as cst

from samba_onnx.tools.adapt.open_points import OpenPoint, OpenPoints
from samba_onnx.tools.adapt.source import ProgramFile
from samba_onnx.tools.adapt.source_file import ProgramModule

Lines = Mapping[str, list[int]]
"""By file: for each line of the new text, from 1, the line of the original that it stands for."""


@dataclass
class PlainForm:
    """A program in the form that the planners of changes know."""

    source: ProgramFile
    original: Mapping[str, str] = field(default_factory=dict)
    """The text of each file as its author wrote it."""
    compared: Mapping[str, str] = field(default_factory=dict)
    """The text of each file with which ``--check`` compares."""

    points: list[OpenPoint] = field(default_factory=list)
    """Why parts of it could not be brought into this form."""

    @classmethod
    def of(cls, source: ProgramFile) -> PlainForm:
        """Return a program as it is."""
        texts = {file.path: file.text for file in source.files}
        return cls(source, texts, texts)

    def rewritten(self, texts: Mapping[str, str]) -> PlainForm:
        """Return the program with other texts that compute the same.

        Args:
            texts: The new text of each file that is another one.
        """
        if not texts:
            return self
        return PlainForm(with_texts(self.source, texts), self.original, self.compared, self.points)

    def shortened(self, texts: Mapping[str, str]) -> PlainForm:
        """Return the program with other texts, with which the adapted program is compared.

        Args:
            texts: The new text of each file that is another one.
        """
        changed = self.rewritten(texts)
        return PlainForm(changed.source, self.original, {**self.compared, **texts}, self.points)

    def comparing(self, texts: Mapping[str, str]) -> PlainForm:
        """Return the program, which ``--check`` compares with other texts than its author's.

        Args:
            texts: The text of each file that is another one.
        """
        return PlainForm(self.source, self.original, {**self.compared, **texts}, self.points)

    def refuse(
        self, node: cst.CSTNode, pattern: str, why: str, *, instead: str, blocks: bool = True
    ) -> None:
        """Note a place that a person has to look at; see ``OpenPoints.add``."""
        found = OpenPoints(self.source)
        found.add(node, pattern, why, instead=instead, blocks=blocks)
        lines = self.lines()
        self.points += [replace(one, line=lines[one.path][one.line]) for one in found.found]

    def lines(self, since: Mapping[str, str] | None = None) -> Lines:
        """Return where each line came from.

        Args:
            since: The texts that are asked for; those of the author by default.
        """
        before = self.original if since is None else since
        # The tree has lines of its own, too, where statements of one line were taken apart.
        return {
            file.path: _lines(before[file.path], file.module.code) for file in self.source.files
        }


def with_texts(source: ProgramFile, texts: Mapping[str, str]) -> ProgramFile:
    """Return a program with other texts of some files.

    Args:
        source: The program.
        texts: The new texts, by path.
    """
    first, *others = source.files
    changed = [
        ProgramModule(other.path, texts[other.path], other.name, other.is_package)
        if other.path in texts
        else other
        for other in others
    ]
    return ProgramFile(first.path, texts.get(first.path, first.text), changed)


def _lines(before: str, after: str) -> list[int]:
    # New lines stand for the one that they took the place of, or that they follow.
    old, new = before.split("\n"), after.split("\n")
    found = [0, *range(1, len(new) + 1)]
    if before == after:
        return found
    matcher = difflib.SequenceMatcher(None, old, new, autojunk=False)
    for kind, start, end, first, last in matcher.get_opcodes():
        for place in range(first, last):
            offset = (
                place - first if kind == "equal" else min(place - first, max(end - start - 1, 0))
            )
            found[place + 1] = max(1, min(start + offset + 1, len(old)))
    return found


def behind_imports(body: Sequence[cst.BaseStatement]) -> int:
    """Return the place behind the first imports of a module.

    Args:
        body: Its statements.
    """
    place = 0
    for index, one in enumerate(body):
        small = one.body[0] if isinstance(one, cst.SimpleStatementLine) else None
        if isinstance(small, cst.Import | cst.ImportFrom):
            place = index + 1
        elif not isinstance(small, cst.Expr):
            break
    return place
