"""What a report says of the program itself: nodes, edges, and the edges between stages.

Each is a line of the JSON document, since a large model has tens of thousands.
"""

from __future__ import annotations

from dataclasses import field

from samba_onnx.pef.target_summary import Tier
from samba_onnx.report.report_records import record, row

__all__ = [
    "DeviceReport",
    "EdgeReport",
    "NodeReport",
    "ProducerReport",
    "ProgramReport",
    "StageEdgeReport",
    "TaskReport",
]


@record
class ProducerReport:
    """What made the report, and of what."""

    name: str
    """``samba-onnx``."""
    version: str
    """Its version."""
    command: str = ""
    """A command that converts the model with the options that are not at their defaults; empty in a report of an
    older version."""
    digests: dict[str, str] = field(default_factory=dict)
    """SHA-256 of the model's files by name, in hexadecimal; empty for an analysis, which reads no weights."""

    @property
    def text(self) -> str:
        """Name and version; empty where they are not known."""
        return f"{self.name} {self.version}".strip()


@record
class DeviceReport:
    """The figures of the device that times are modelled with."""

    peak_flops: dict[str, float]
    """Peak rate in operations per second by data type."""
    link_bytes_per_second: float
    """Bandwidth of the link between host and device."""
    tiers: tuple[Tier, ...]
    """Levels of memory, the fastest first."""


@row
class NodeReport:
    """A node of the converted model."""

    id: int
    """Counts from 0 over all graphs, in the order of execution."""
    name: str
    """Its name after conversion."""
    operator: str
    """``Op``, or ``domain::Op`` outside the default domain."""
    stage: int
    """Id of the section or fallback that executes it."""
    home: str
    """``rdu`` or ``cpu``."""
    reason: str
    """Why it runs on the CPU; empty on the RDU."""
    location: str
    """``file.py:line`` of the user's own model; empty when the model does not carry it."""
    module: str
    """The module that it comes from, as ``layers.3.attention``; empty for the outermost one, and when the model does not
    say."""
    flops: int
    """Floating-point operations of one execution, as far as shapes are known."""
    weight_bytes: int
    """Bytes of the weights and constants that it reads."""
    modelled_seconds: float
    """One execution on the CPU; of a node on the RDU its share of its section's time, by its operations where computing
    takes the longest, else by its bytes. 0 where it is not modelled."""


@row
class EdgeReport:
    """A value between nodes."""

    value: str
    """Its name."""
    graph: str
    """Graph that it belongs to."""
    type: str
    """ONNX's text form, as ``tensor(float)``."""
    shape: tuple[int | str | None, ...] | None
    """Integers where known, names where dynamic, null where nameless; null if the rank is unknown or the value is no
    tensor."""
    bytes: int | None
    """Size; null when dynamic or no fixed-size tensor."""
    source: int | None
    """Id of the node that writes it; null for an input of the graph."""
    targets: tuple[int, ...]
    """Ids of the nodes that read it, in the order of execution."""
    crosses: bool
    """Whether it is written on one side, RDU or CPU, and read on the other."""


@row
class StageEdgeReport:
    """What passes from one section or fallback to another."""

    source: int | None
    """Stage id of the writer; null for inputs of the graph."""
    target: int | None
    """Stage id of the reader; null for outputs of the graph."""
    values: int
    """How many values."""
    bytes: int
    """Bytes of those whose size is known."""
    crosses: bool
    """Whether it passes between RDU and CPU."""


@row
class TaskReport:
    """When a call or a copy of a run is modelled to begin and to end."""

    graph: str
    """Graph that is run."""
    resource: str
    """What executes it: ``rdu``, ``cpu``, ``host_to_rdu`` or ``rdu_to_host``."""
    call: int
    """The call in whose turn it is."""
    stage: int
    """Id of the section or fallback that is called, or that the copy is made for."""
    symbol: str
    """What is copied; empty for a call."""
    begin_seconds: float
    """From the begin of the run."""
    end_seconds: float
    """From the begin of the run."""


@record
class ProgramReport:
    """The program after conversion."""

    nodes: tuple[NodeReport, ...]
    """In the order of execution, by id."""
    edges: tuple[EdgeReport, ...]
    """Values that nodes write or read, without weights and constants: in the order in which they come about."""
    stage_edges: tuple[StageEdgeReport, ...]
    """The same between sections and fallbacks, which ``graphs`` lists in their ``schedule``."""
    tasks: tuple[TaskReport, ...] = ()
    """When each call and copy of a run begins and ends, as far as the target lets them go on at once; none for graphs in
    spatial mapping, which execute their schedule for every mini-batch."""
