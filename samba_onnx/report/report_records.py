"""What a report says, as frozen records: the JSON document has exactly these fields.

Sizes are bytes, times modelled seconds, ``flops`` operations of one run; docstrings are the schema's descriptions.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TypeVar, dataclass_transform

from samba_onnx.pef.manifest import Cause, Direction, Transfer
from samba_onnx.pef.stage_records import RepeatedBody

SCHEMA_VERSION = 1
"""Version of a JSON document. A new field keeps it; a renamed or removed one raises it."""
REPORT_VERSION = 2
"""Version of the JSON document of a report: the second one has the program."""

T = TypeVar("T")


@dataclass_transform(frozen_default=True, field_specifiers=(field,))
def record(cls: type[T]) -> type[T]:
    """Make a frozen dataclass whose JSON schema carries its field docstrings."""
    cls.__pydantic_config__ = {  # type: ignore[attr-defined]
        "use_attribute_docstrings": True,
        "extra": "forbid",
    }
    return dataclass(frozen=True)(cls)


@dataclass_transform(frozen_default=True, field_specifiers=(field,))
def row(cls: type[T]) -> type[T]:
    """Make a record that a JSON document has in one line, since there are many of them."""
    cls.__one_line__ = True  # type: ignore[attr-defined]
    return record(cls)


@record
class OperatorCoverage:
    """Where the nodes of one operator run."""

    operator: str
    """``Op``, or ``domain::Op`` outside the default domain."""
    rdu_nodes: int
    """Nodes on the RDU."""
    cpu_nodes: int
    """Nodes on the CPU."""
    rdu_flops: int
    """Floating-point operations on the RDU."""
    cpu_flops: int
    """Floating-point operations on the CPU, as far as shapes are known."""


@record
class Coverage:
    """How much of the converted model runs on the RDU."""

    rdu_nodes: int
    """Nodes on the RDU."""
    cpu_nodes: int
    """Nodes on the CPU."""
    rdu_flops: int
    """Floating-point operations on the RDU."""
    cpu_flops: int
    """Floating-point operations on the CPU, as far as shapes are known."""
    cpu_places: int
    """Fallbacks: connected groups of CPU nodes in the schedule."""
    cpu_supported_nodes: int
    """Nodes on the CPU that the target could run, and with which there a run takes less time."""
    cpu_load_nodes: int
    """Nodes on the CPU that are computed once, when weights are loaded, and not in every run."""
    operators: tuple[OperatorCoverage, ...]
    """By operator: those with CPU nodes first, then by operations and nodes."""

    @property
    def nodes(self) -> int:
        """Nodes on either side."""
        return self.rdu_nodes + self.cpu_nodes


@record
class SectionReport:
    """One section."""

    id: int
    """Stage id, unique in the PEF."""
    name: str
    """Name of the section."""
    graph: str
    """Graph that it belongs to."""
    type: str
    """``FWD``, ``BCKWD``, ``OPT``, ``ZEROGRAD``, ``REDUCE`` or ``GRADNORM``."""
    nodes: int
    """Number of nodes."""
    flops: int
    """Floating-point operations of one execution."""
    off_chip_bytes: int
    """Bytes read and written in off-chip device memory by one execution."""
    sram_bytes: int
    """Weights and the largest set of live activations, planned for on-chip memory."""
    modelled_seconds: float
    """Launch, the longest of compute and traffic, and the filling of its pipeline."""
    operators: dict[str, int]
    """Nodes by operator."""
    dominant: str = ""
    """The part of ``time_parts`` that takes the longest; empty where there is none or the PEF does not know it."""
    time_parts: dict[str, float] = field(default_factory=dict)
    """Seconds by part; compute and both kinds of traffic go on at the same time."""
    rule: str = ""
    """The rule of fusion that it is one section for; empty where none is."""
    repeated: tuple[RepeatedBody, ...] = ()
    """The bodies that it repeats; its operations and its time are of all steps."""


@record
class FallbackNodeReport:
    """One node that runs on the CPU."""

    name: str
    """Name of the node after conversion."""
    operator: str
    """``Op``, or ``domain::Op`` outside the default domain."""
    reason: str
    """Why, in one sentence."""
    stage: int
    """Id of the fallback that executes it."""
    location: str
    """``file.py:line`` of the user's own model; empty when the model does not carry it."""
    supported: bool
    """Whether the target could run it, and a run takes less time with it on the CPU."""
    at_load: bool
    """Whether it is computed once, when weights are loaded, and not in every run."""
    modelled_seconds: float = 0.0
    """One execution on the CPU; 0 for a node that is computed at load, and where the time is not modelled."""


@record
class FallbackReport:
    """Nodes that run on the CPU for one kind of reason, and that the same hint would help."""

    code: str
    """Short name of the reason, stable for machines."""
    reasons: tuple[str, ...]
    """The sentences of its nodes, each once."""
    hint: str
    """What the user can do about it; may be empty."""
    operators: dict[str, int]
    """Nodes by operator."""
    nodes: tuple[FallbackNodeReport, ...]
    """In the order of the schedule."""


@record
class BoundaryReport:
    """Where the schedule passes between RDU and CPU."""

    graph: str
    """Graph that it belongs to."""
    direction: Direction
    """Which way the values go."""
    before: int
    """Stage id of the producer."""
    after: int
    """Stage id of the consumer."""
    symbols: tuple[str, ...]
    """Values that cross."""
    bytes: int
    """Bytes of one run."""
    modelled_seconds: float
    """Time of the transfers of one run."""


@record
class MemoryReport:
    """How full one tier of device memory is."""

    tier: str
    """``sram``, ``hbm`` or ``ddr``."""
    capacity_bytes: int
    """Size of the tier."""
    used_bytes: int
    """Bytes of all regions in it; for ``sram`` with the needs of the largest section."""
    regions: int
    """Number of regions in it."""


@record
class TransferTotal:
    """Transfers with one cause in one direction, added up."""

    cause: Cause
    """Why they happen."""
    direction: Direction
    """Which way they go."""
    transfers: int
    """How many."""
    bytes: int
    """Bytes of all of them."""
    modelled_seconds: float
    """Time of all of them."""


@record
class FixedInputReport:
    """An input of the model that was fixed as a constant."""

    name: str
    """Its name in the model."""
    type: str
    """ONNX's text form, as ``tensor(int64)``."""
    shape: tuple[int, ...]
    """Sizes of the constant."""
    value: str
    """The number, or the first numbers of many."""


@record
class UndocumentedSupport:
    """Nodes placed on the RDU although the vendor does not document plain support for them."""

    operator: str
    """``Op``, or ``domain::Op`` outside the default domain."""
    evidence: str
    """``experimental``, ``observed`` or ``assumed``."""
    nodes: int
    """Number of nodes."""


@record
class ValueReport:
    """An input or output of a graph."""

    name: str
    """Its name."""
    type: str
    """ONNX's text form, as ``tensor(float)``."""
    shape: tuple[int | str | None, ...] | None
    """Integers where known, names where dynamic, null where nameless; null if the rank is unknown
    or the value is no tensor."""
    bytes: int | None
    """Size; null when dynamic or no fixed-size tensor."""


@record
class CallReport:
    """One step of a schedule."""

    id: int
    """Counts from 0 in each graph."""
    stage: int
    """Id of the section or fallback."""
    name: str
    """Name of the section or fallback."""
    home: str
    """``rdu`` or ``cpu``."""
    type: str
    """Section type."""


@record
class GraphReport:
    """One graph: interface, schedule and transfer plan."""

    name: str
    """Name of the graph."""
    inputs: tuple[ValueReport, ...]
    """In graph order."""
    outputs: tuple[ValueReport, ...]
    """In graph order."""
    schedule: tuple[CallReport, ...]
    """In the order of execution."""
    load_transfers: tuple[Transfer, ...]
    """Made once, when the PEF is loaded."""
    run_transfers: tuple[Transfer, ...]
    """Made by every run, in the order of execution."""
    model_names: dict[str, str]
    """The model's own names of inputs and outputs, by symbol, where graphs for several sizes need a
    symbol each."""
    spatial_batches: int = 0
    """Mini-batches for each of which a run executes the schedule, in spatial mapping; 0 in section
    mapping."""


@record
class RegionReport:
    """A place in device memory."""

    name: str
    """Name of the region."""
    tier: str
    """Tier that it lies in."""
    bytes: int
    """Its size."""
    mutable: bool
    """Whether a section writes it."""
    symbols: tuple[str, ...]
    """Values that share it."""
