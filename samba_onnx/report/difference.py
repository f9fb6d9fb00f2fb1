"""What ``samba-port diff`` says: in which figures, nodes and boundaries two reports differ, and why."""

from __future__ import annotations

from samba_onnx.pef.manifest import Direction
from samba_onnx.report.report_records import SCHEMA_VERSION, record


@record
class FigureChange:
    """One figure of both reports."""

    name: str
    """What it is, as ``bytes_per_run``."""
    unit: str
    """``nodes``, ``sections``, ``bytes``, ``s``, ``FLOP``, ..."""
    before: float
    """In the first report."""
    after: float
    """In the second report."""
    watched: bool
    """Whether a rise of it makes the second report worse."""
    worse: bool
    """Whether it is watched and rose by more than was allowed."""


@record
class OperatorChange:
    """One operator whose nodes are not the same number on both sides."""

    operator: str
    """``Op``, or ``domain::Op`` outside the default domain."""
    rdu_nodes_before: int
    """Nodes on the RDU in the first report."""
    rdu_nodes_after: int
    """Nodes on the RDU in the second report."""
    cpu_nodes_before: int
    """Nodes on the CPU in the first report."""
    cpu_nodes_after: int
    """Nodes on the CPU in the second report."""


@record
class FallbackChange:
    """A node that runs on the CPU in one report only, or in both for different reasons."""

    change: str
    """``new``, ``gone`` or ``reason``."""
    name: str
    """Name of the node after conversion."""
    operator: str
    """``Op``, or ``domain::Op`` outside the default domain."""
    reason_before: str
    """Why it ran on the CPU in the first report; empty where it did not."""
    reason_after: str
    """Why it runs on the CPU in the second report; empty where it does not."""
    instead: str
    """Where a node that is gone is now: ``on the RDU`` if as many more nodes of its operator run there,
    else ``rewritten``; where a new one was before: ``on the RDU`` or ``not there``."""
    location: str
    """``file.py:line`` of the user's own model; empty when the model does not carry it."""


@record
class BoundaryChange:
    """Boundaries at which the same values cross, as both reports have them."""

    graph: str
    """Graph that they belong to."""
    direction: Direction
    """Which way the values go."""
    symbols: tuple[str, ...]
    """Values that cross."""
    boundaries_before: int
    """How many there are in the first report."""
    boundaries_after: int
    """How many there are in the second report."""
    bytes_before: int
    """Bytes of one run over them in the first report."""
    bytes_after: int
    """Bytes of one run over them in the second report."""


@record
class SectionChange:
    """A section that only one report has, or that computes or moves something else in the other."""

    name: str
    """Name of the section."""
    graph: str
    """Graph that it belongs to."""
    nodes_before: int | None
    """Nodes in the first report; null where it does not have the section."""
    nodes_after: int | None
    """Nodes in the second report; null where it does not have the section."""
    seconds_before: float | None
    """Modelled time of one execution in the first report; null as above."""
    seconds_after: float | None
    """Modelled time of one execution in the second report; null as above."""


@record
class PassChange:
    """A pass that removes or adds another number of nodes in the other report."""

    name: str
    """Name of the pass."""
    nodes_before: int
    """Nodes that it adds in the first report, over all times that it runs; negative where it removes
    some."""
    nodes_after: int
    """The same of the second report."""


@record
class DifferenceReport:
    """What became better and worse from one report to another, and what may be the reason."""

    headline: str
    """The answer in one line."""
    worse: bool
    """Whether a watched figure rose by more than was allowed."""
    before: str
    """What the first report is of, as it was named."""
    after: str
    """What the second report is of, as it was named."""
    allowed_percent: float
    """By how much watched figures may rise."""
    circumstances: tuple[str, ...]
    """In which target, level, sizes and model the two differ, each as a sentence."""
    figures: tuple[FigureChange, ...]
    """All figures that were compared, changed or not."""
    fallbacks: tuple[FallbackChange, ...]
    """Nodes that moved between CPU and RDU, or whose reason changed: new ones first."""
    boundaries: tuple[BoundaryChange, ...]
    """Boundaries that differ: those that cost more first."""
    operators: tuple[OperatorChange, ...]
    """Operators that differ: those with more nodes on the CPU first."""
    sections: tuple[SectionChange, ...]
    """Sections that differ, in the order of the reports."""
    passes: tuple[PassChange, ...]
    """Passes that did something else, in the order in which they run."""
    schema_version: int = SCHEMA_VERSION
    """Version of this document's form."""
