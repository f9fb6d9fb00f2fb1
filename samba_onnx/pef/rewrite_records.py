"""What a manifest says about how the compiler rewrote a model."""

from __future__ import annotations

from dataclasses import dataclass, field

from samba_onnx.pef.decoding import UNWRITTEN, reported_as


@dataclass(frozen=True)
class PassSummary:
    """What one pass did."""

    name: str
    """The pass."""
    modified: bool
    """Whether it changed anything."""
    nodes_before: int
    """Nodes of the graph before it."""
    nodes_after: int
    """Nodes of the graph after it."""
    seconds: float | None = field(default=None, compare=False, metadata=UNWRITTEN)
    """Wall-clock time that it took; None when it was read from a file. No part of a PEF, whose
    bytes follow from its input alone."""


@dataclass(frozen=True)
class LegalisedRule:
    """What one rule of legalisation brought to a part of a graph.

    What it brought is the difference between the plan with the rule and the one without, all other rules
    applied: of two nodes that are of use together only, each counts for both.
    """

    rule: str
    """The rule."""
    graph: str
    """The graph."""
    nodes: tuple[str, ...]
    """Nodes that it wrote with operators of the target."""
    operators: dict[str, int]
    """How many of them there were, by operator."""
    left: tuple[str, ...]
    """Nodes that it could have written, which would have made no run shorter."""
    transfers: int = field(metadata=reported_as("transfers_saved"))
    """Transfers in a run that are not made."""
    bytes: int = field(metadata=reported_as("bytes_saved"))
    """Bytes that are not copied."""
    seconds: float = field(metadata=reported_as("seconds_saved"))
    """Modelled seconds by which a run is shorter; negative where a rule was asked for at any price."""
    refused: dict[str, str] = field(default_factory=dict)
    """Nodes of its operators that it cannot write, with the reason, read after the node's name."""


@dataclass(frozen=True)
class FusionRuleSummary:
    """A rule of fusion that sections were made by, or could have been."""

    name: str
    """The rule, as sections name it."""
    source: str
    """The file that it is from, without folder."""
    priority: float
    """Which rule wins where several match the same operators: the one with the greatest."""
    heuristic: str = ""
    """The way to lay sections out that it names, with parameters; it changes nothing here."""
