"""What a PEF says about itself: frozen records, one manifest per file.

The words are those of the design: a *graph* is run by *calls*; a call executes a *section* on the
RDU or a *fallback* on the host; *symbols* are named tensors that live in *regions* of device
memory; *transfers* are the host↔RDU copies that a run will make. Sizes are bytes, times are
modelled seconds, rates are per second.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass, field, replace

from samba_onnx.pef.boundary import Boundary
from samba_onnx.pef.changes import Bound, Change
from samba_onnx.pef.decoding import MAY_BE_MISSING, NOT_REPORTED, UNWRITTEN, reported_as
from samba_onnx.pef.dimensions import BoundDimension, DynamicDimension
from samba_onnx.pef.fixed_inputs import FixedInput
from samba_onnx.pef.host_summary import HostSummary
from samba_onnx.pef.original_files import OriginalFile
from samba_onnx.pef.rewrite_records import FusionRuleSummary, LegalisedRule, PassSummary
from samba_onnx.pef.sharding import Parallelism, Sharded
from samba_onnx.pef.stage_graphs import StageGraphs
from samba_onnx.pef.stage_records import Fallback, FallbackNode, Section, Stage
from samba_onnx.pef.target_summary import TargetSummary
from samba_onnx.program.index_demands import IndexDemand
from samba_onnx.program.kinds import LOADED_KINDS, RESIDENT_KINDS, SymbolKind
from samba_onnx.safety.notebook import notebook_table

__all__ = [
    "FORMAT_VERSION", "Argin", "Boundary", "Call", "Cause", "Direction", "Fallback", "FallbackNode", "Graph",
    "Manifest", "Member", "Producer", "ReferenceSample", "Region", "Section", "SourceModel", "Stage", "Stored",
    "Symbol", "Transfer",
]  # fmt: skip

FORMAT_VERSION = 1
"""Version of the PEF layout and manifest that this package writes and the newest that it reads."""


class Direction(enum.StrEnum):
    """Which way a transfer goes."""

    HOST_TO_RDU = "host_to_rdu"
    RDU_TO_HOST = "rdu_to_host"
    RDU_TO_RDU = "rdu_to_rdu"
    """From one RDU to the next one: in an exchange of a program of several RDUs, or between replicas, of which
    only the ledger of a run knows."""


class Cause(enum.StrEnum):
    """Why a transfer happens."""

    INPUT = "input"
    OUTPUT = "output"
    WEIGHT = "weight"
    CONSTANT = "constant"
    FALLBACK = "fallback"
    EXPLICIT = "explicit"
    COLLECTIVE = "collective"
    """RDUs that execute one program together exchange a value."""
    REDUCE = "reduce"
    """Gradients of several replicas are combined; how many there are only a run knows."""


@dataclass(frozen=True)
class Producer:
    """The program that wrote the PEF."""

    name: str
    """``samba-onnx``."""
    version: str
    """Its version."""


@dataclass(frozen=True)
class SourceModel:
    """Where the PEF came from."""

    name: str
    """File name without folder, or the graph's name."""
    producer: str
    """``producer_name producer_version`` of the model, may be empty."""
    opset: int
    """Version of the default operator set before conversion."""
    nodes: int
    """Nodes in the graph as it was given, subgraphs and functions not counted."""
    files: tuple[OriginalFile, ...] = field(default=(), metadata=MAY_BE_MISSING | NOT_REPORTED)
    """The model's file, and behind it the files beside it that hold external data of it, by location;
    none for a model that was in memory, and for one of torch."""


@dataclass(frozen=True)
class Region:
    """A place in device memory; symbols that name the same region share it."""

    name: str
    """Its name, unique in the PEF."""
    bytes: int
    """Its size."""
    tier: str
    """The level of device memory that it is in, by the name that the target has for it."""
    mutable: bool = False
    """Whether a section writes it; weights of an inference PEF are read-only."""


@dataclass(frozen=True)
class Stored:
    """Where the content of a weight or constant lies inside the PEF."""

    offset: int
    """Bytes from the start of member ``weights.safetensors``."""
    bytes: int
    """Length."""


@dataclass(frozen=True)
class Symbol:
    """A named value known to the PEF."""

    name: str
    """Its name, unique in the PEF."""
    kind: SymbolKind
    """What it is to the program."""
    type: str
    """ONNX's text form: ``tensor(float)``, ``tensor(bfloat16)``, ``seq(tensor(int64))``, ..."""
    shape: tuple[int | str | None, ...] | None
    """Integers where known, the dimension's name where dynamic, None where nameless; None in the
    whole where even the rank is unknown or the value is no tensor."""
    region: str = ""
    """Empty for a value that lives on the host only."""
    stored: Stored | None = None
    """Set for weights and constants kept in ``weights.safetensors``, and for the default of an
    input; unset for weights and constants that are small and kept inside the stage's own ONNX
    file."""
    baked: bool = False
    """A constant operand that becomes part of the section's configuration (a Reshape's shape, a
    Slice's bounds), and is therefore never transferred."""
    bytes: int | None = None
    """Size in bytes; None when dynamic or no fixed-size tensor."""
    batch_shape: tuple[int, ...] | None = None
    """Shape of one of the mini-batches that a value of a spatially mapped graph holds along the first
    dimension of ``shape``, of which sections see one at a time; None for a value that is no batch."""
    sharded: Sharded | None = field(default=None, metadata=MAY_BE_MISSING)
    """The whole of which ``shape`` is the part that each of several RDUs holds; None for a value that is
    whole on each."""

    @property
    def whole_shape(self) -> tuple[int | str | None, ...] | None:
        """Shape in which the host sees the value, of which RDUs may have shards."""
        return self.shape if self.sharded is None else self.sharded.shape

    def whole(self) -> Symbol:
        """Return the symbol as the host sees it: itself, or what the RDUs have shards of."""
        return replace(self, shape=self.whole_shape, sharded=None) if self.sharded else self

    @property
    def stage_shape(self) -> tuple[int | str | None, ...] | None:
        """Shape in which sections and fallbacks see the value: of one mini-batch, if it has several."""
        return self.shape if self.batch_shape is None else self.batch_shape


@dataclass(frozen=True)
class Call:
    """One step of a graph's schedule."""

    id: int
    """Counts from 0 in each graph."""
    stage: int
    """Id of the section or fallback to execute."""


@dataclass(frozen=True)
class Transfer:
    """One copy between host and RDU, or between RDUs, planned or recorded by the runtime."""

    symbol: str
    """What is copied."""
    bytes: int
    """How much."""
    direction: Direction
    """Which way."""
    cause: Cause
    """Why."""
    seconds: float = field(metadata=reported_as("modelled_seconds"))
    """Modelled: latency + bytes / bandwidth of the link."""
    call: int | None = None
    """The call of the run before (host→RDU) or after (RDU→host) which the copy is made; None for
    copies made when the PEF is loaded or on request."""


@dataclass(frozen=True)
class Graph:
    """A whole graph: its interface, its schedule and the transfers that it will make."""

    name: str
    """Its name, unique in the PEF."""
    inputs: tuple[str, ...]
    """Symbols that a run is given, in the order of the model."""
    outputs: tuple[str, ...]
    """Symbols that a run returns, in the order of the model."""
    calls: tuple[Call, ...]
    """The schedule, in the order of execution."""
    load_transfers: tuple[Transfer, ...]
    """Made once: weights and constants when the PEF is loaded, residents when they are given values."""
    run_transfers: tuple[Transfer, ...]
    """Made by every run that is given all inputs and asked for all outputs."""
    boundaries: tuple[Boundary, ...] = ()
    """Where the schedule passes between RDU and CPU."""
    spatial_batches: int = 0
    """Mini-batches for each of which a run executes the whole schedule, with all sections on the
    RDU at once (``--mapping spatial``); 0 for sections that are swapped in one after the other."""
    model_names: dict[str, str] = field(default_factory=dict)
    """The model's names of inputs and outputs, by symbol, where graphs for several sizes need a symbol
    each; a name that is missing here is the symbol's own."""

    index_demands: tuple[IndexDemand, ...] = field(default=(), metadata=MAY_BE_MISSING)
    """What runs check of the integers that they are given; none for an ONNX model."""

    def model_name(self, symbol: str) -> str:
        """Return the model's own name of an input or output."""
        return self.model_names.get(symbol, symbol)


@dataclass(frozen=True)
class Argin:
    """A scalar that the user may change at run time: a graph input with a value that persists.

    It is a register of the device, which is set without a transfer.
    """

    name: str
    """The symbol."""
    type: str
    """ONNX's text form, as ``tensor(float)``."""
    default: float
    """The value until another one is set."""
    stages: tuple[int, ...]
    """Ids of the stages that read it."""


@dataclass(frozen=True)
class ReferenceSample:
    """Seeded inputs with the outputs of the original model, for self-tests.

    The arrays are in member ``reference.safetensors`` as ``<run>.input.<n>``, ``<run>.output.<n>``
    and ``<run>.wide.<n>``, in the order of ``inputs``, ``outputs`` and ``wide``.
    """

    graph: str
    """The graph that was run."""
    seed: int
    """Seed of the first run's inputs; the others have the next ones. 0 where the user chose them."""
    runs: int
    """How many runs there are."""
    inputs: tuple[str, ...]
    """Symbols of the inputs."""
    outputs: tuple[str, ...]
    """Symbols of the outputs."""
    wide: tuple[str, ...]
    """Outputs of 16 bits, or behind quantised numbers, of which there is what the original model answers
    in float32 and without rounding, too."""
    depth: int
    """Operators that round, on the longest way through the original model."""
    rtol: float
    """Relative tolerance of floats."""
    atol: float
    """Absolute tolerance, per unit of the output's largest magnitude."""


@dataclass(frozen=True)
class Member:
    """A file inside the PEF."""

    name: str
    """Its name in the archive."""
    bytes: int
    """Its size."""
    sha256: str
    """SHA-256 of its content, in hexadecimal."""


@dataclass(frozen=True)
class Manifest:
    """All that a PEF says about itself."""

    producer: Producer
    """What wrote the PEF."""
    target: TargetSummary
    """The device that it was compiled for."""
    source: SourceModel
    """The model that it was made of."""
    level: str
    """Optimization level: ``o0``, ``o1`` or ``o3``."""
    graphs: tuple[Graph, ...]
    """The graphs; a run executes one."""
    sections: tuple[Section, ...]
    """What runs on the RDU."""
    fallbacks: tuple[Fallback, ...]
    """What runs on the CPU."""
    symbols: tuple[Symbol, ...]
    """All values that stages exchange, and their weights."""
    regions: tuple[Region, ...]
    """All places in device memory."""
    argins: tuple[Argin, ...] = ()
    """Scalars that keep their values from run to run."""
    passes: tuple[PassSummary, ...] = ()
    """What the passes of the compiler did, in their order."""
    legalised: tuple[LegalisedRule, ...] = ()
    """What each rule of legalisation brought, by graph and rule."""
    fusion_rules: tuple[FusionRuleSummary, ...] = field(default=(), metadata=MAY_BE_MISSING)
    """The rules of fusion of level ``o1``, in the order in which they were tried; sections say which of
    them they are one for."""
    changes: tuple[Change, ...] = ()
    """What a run would save if the target ran what it refuses, by graph, the most first."""
    bounds: tuple[Bound, ...] = ()
    """What runs of graphs with fallbacks would cost without them."""
    dynamic_dimensions: tuple[DynamicDimension, ...] = ()
    """Dimensions that have no size."""
    bound_dimensions: tuple[BoundDimension, ...] = ()
    """Dimensions that are dynamic in the model, and have a size here."""
    fixed_inputs: tuple[FixedInput, ...] = field(default=(), metadata=MAY_BE_MISSING)
    """Inputs of the model that are constants here: no graph has them, and the original is given their values."""
    experimental: dict[str, int] = field(default_factory=dict)
    """Nodes on the RDU whose support is experimental or not documented, by ``operator: evidence``."""
    notes: tuple[str, ...] = ()
    """Sentences for the report that belong nowhere else."""
    reference: ReferenceSample | None = None
    """A sample to test the PEF with; None without one."""
    metadata: dict[str, str] = field(default_factory=dict)
    """Key-value pairs of the user (``pef_metadata`` in SambaFlow)."""
    members: tuple[Member, ...] = ()
    """Every other member of the file; filled in by the writer."""
    host: HostSummary | None = None
    """The CPU that fallbacks' times are modelled for; None for a PEF without fallbacks."""
    parallel: Parallelism | None = field(default=None, metadata=MAY_BE_MISSING)
    """How the program was cut for several RDUs; None for one."""
    options: dict[str, str] = field(default_factory=dict, metadata=MAY_BE_MISSING)
    """The options of the compilation that were not at their defaults, by name, as texts."""
    format_version: int = FORMAT_VERSION
    """Version of the layout and of these records."""
    stage_graphs: StageGraphs | None = field(default=None, compare=False, metadata=UNWRITTEN)
    """The nodes of stages, where they are at hand: of what was planned, or of an open PEF."""

    def __repr__(self) -> str:
        """Return one line; the fields are thousands."""
        return f"Manifest({self.source.name!r} for {self.target.name} at {self.level})"

    def _repr_html_(self) -> str:
        """Return the graphs as a table for a notebook."""
        rows = [(g.name, ", ".join(g.inputs), ", ".join(g.outputs)) for g in self.graphs]
        return notebook_table(repr(self), rows, ("graph", "inputs", "outputs"))

    def stages(self) -> dict[int, Section | Fallback]:
        """Return sections and fallbacks by id."""
        stages: tuple[Section | Fallback, ...] = (*self.sections, *self.fallbacks)
        return {stage.id: stage for stage in stages}

    def whole(self) -> Manifest:
        """Return the manifest with symbols as the host sees them: itself for a program of one RDU."""
        symbols = map(Symbol.whole, self.symbols)
        return self if self.parallel is None else replace(self, symbols=tuple(symbols))

    def residents(self) -> frozenset[str]:
        """Return the symbols that stay in device memory between runs, and are no initializers.

        Sections read and write them where they are; the host copies them on request only. Unless
        it is stored, a resident has no value before it is loaded, written or computed.
        """
        others = {name for stage in self.stages().values() for name in stage.weights}
        others |= {name for graph in self.graphs for name in graph.inputs}
        return frozenset(
            symbol.name
            for symbol in self.symbols
            if symbol.kind in RESIDENT_KINDS and symbol.region and symbol.name not in others
        )

    def fixed_residents(self) -> frozenset[str]:
        """Return the residents that nothing but loading and explicit writes changes.

        The host knows their values: a fallback that reads one needs no copy from the device.
        """
        regions = {symbol.name: symbol.region for symbol in self.symbols}
        changed = {name for stage in self.stages().values() for name in stage.outputs}
        changed |= {name for graph in self.graphs for name in graph.inputs}
        places = {regions[name] for name in changed}
        loaded = {symbol.name for symbol in self.symbols if symbol.kind in LOADED_KINDS}
        return frozenset(name for name in self.residents() & loaded if regions[name] not in places)
