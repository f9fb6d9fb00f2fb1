"""What a rule is, and what it finds."""

from __future__ import annotations

import ast
import enum
from collections.abc import Iterator
from dataclasses import dataclass, field

from samba_onnx.pef.decoding import NOT_REPORTED, reported_as


class Severity(enum.StrEnum):
    """How bad it is to leave a finding as it is."""

    ERROR = "error"
    """The program is refused, or computes something else than was written."""
    WARNING = "warning"
    """The program does not do all that it says, or loses speed that it need not lose."""
    NOTE = "note"
    """The program works; on an RDU there is a better way."""

    @property
    def rank(self) -> int:
        """The place in the order of severities: 0 for errors, larger for what matters less."""
        # In the order of the definition, which is from worst to least.
        return list(Severity).index(self)


@dataclass(frozen=True)
class LintRule:
    """A way of writing programs that hurts on an RDU."""

    id: str = field(metadata=reported_as("rule"))
    """The name of the rule, for comments in programs and for machines; it never changes."""
    severity: Severity
    """``error``, ``warning`` or ``note``."""
    title: str
    """What the rule finds, in a few words."""
    why: str
    """What happens on an RDU, and here if that differs."""
    instead: str
    """What to write."""
    source: str
    """Where it is documented or was observed."""
    example: str = field(metadata=NOT_REPORTED)
    """A program in which the rule finds something, and no other rule does."""
    better: str = field(metadata=NOT_REPORTED)
    """The same program, written so that no rule finds anything."""
    target: str = field(default="", metadata=NOT_REPORTED)
    """The only target that the rule is about; empty if it is about all of them."""


@dataclass(frozen=True)
class Finding:
    """A place of a program that a rule speaks of."""

    path: str
    """The file, as it was given."""
    line: int
    """Number of the line, from 1."""
    column: int
    """Number of the column, from 1."""
    rule: str
    """Id of the rule, stable for machines."""
    severity: Severity
    """How bad the rule is, which is how bad this place is: ``error``, ``warning`` or ``note``."""
    message: str
    """What stands there, in one sentence."""


@dataclass(frozen=True)
class Remark:
    """What a check says of a node, before it has its place in a file."""

    rule: str
    """Id of the rule."""
    node: ast.AST
    message: str


Remarks = Iterator[Remark]
