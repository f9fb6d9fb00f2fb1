"""What a person has to look at: where, what stands there, why, and what to write."""

from __future__ import annotations

from dataclasses import dataclass, field

import libcst as cst

from samba_onnx.tools.adapt.source import ProgramFile

_LONGEST = 160


@dataclass(frozen=True)
class OpenPoint:
    """A place of a program that was not adapted, or that computes something else on an RDU."""

    path: str
    """The file."""
    line: int
    """Number of its line, from 1."""
    code: str
    """What stands there, shortened to one line."""
    pattern: str
    """Name of the pattern, stable for machines."""
    why: str
    """Why it was not adapted."""
    instead: str
    """What a person should write."""
    blocks: bool
    """Whether the program cannot run, or would compute something else, before it is changed."""


@dataclass
class OpenPoints:
    """Collects the open points of one program."""

    source: ProgramFile
    found: list[OpenPoint] = field(default_factory=list)

    def add(
        self, node: cst.CSTNode, pattern: str, why: str, *, instead: str, blocks: bool = True
    ) -> None:
        """Note a place.

        Args:
            node: What stands there.
            pattern: Name of the pattern.
            why: Why it was not adapted.
            instead: What to write.
            blocks: Whether the program cannot run, or computes something else, as it is.
        """
        # The same place may be found from several statements of a step.
        is_module = isinstance(node, cst.Module)
        line = 1 if is_module else self.source.line(node)
        # Comments above a statement are its own in the tree, and say nothing of what stands there.
        shown = node.with_changes(leading_lines=()) if hasattr(node, "leading_lines") else node
        code = "" if is_module else " ".join(self.source.code(shown).split())[:_LONGEST]
        point = OpenPoint(
            path=self.source.file(node).path,
            line=line,
            code=code,
            pattern=pattern,
            why=why,
            instead=instead,
            blocks=blocks,
        )
        if point not in self.found:
            self.found.append(point)

    @property
    def blocking(self) -> tuple[OpenPoint, ...]:
        """The points that keep the program from running."""
        return tuple(point for point in self.found if point.blocks)
