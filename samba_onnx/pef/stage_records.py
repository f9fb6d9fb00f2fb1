"""What a manifest says of sections and fallbacks, the pieces that calls execute."""

from __future__ import annotations

import dataclasses
import enum
from dataclasses import dataclass

from samba_onnx.pef.decoding import MAY_BE_MISSING
from samba_onnx.pef.sharding import Collective
from samba_onnx.program.kinds import SectionType


@dataclass(frozen=True)
class FallbackNode:
    """A node that runs on the CPU, and the reason."""

    name: str
    """Its name in the model."""
    op_type: str
    """Its operator."""
    domain: str
    """The operator's domain; empty for ONNX's own."""
    code: str
    """Short name of the reason, stable for machines, as ``operator`` or ``dynamic_shape``."""
    reason: str
    """One sentence for people."""
    hint: str = ""
    """What the user can do about it; may be empty."""
    location: str = ""
    """``file.py:line`` of the user's own model, when the model carries it."""
    supported: bool = False
    """Whether the target could run it, and a run takes less time with it on the CPU."""
    at_load: bool = False
    """Whether it computes from weights only: once, when they are loaded, and not in every run. All that
    it reads are initializers of the fallback, residents that no run changes, and results of such nodes
    of the same fallback."""
    seconds: float = 0.0
    """Modelled time of one execution; 0 for a node that is computed at load, and where the time is not
    modelled."""


@dataclass(frozen=True)
class Stage:
    """A piece of a graph that one call executes; the common part of Section and Fallback."""

    id: int
    """Unique over sections and fallbacks of the whole PEF."""
    name: str
    """What reports call it."""
    graph: str
    """The graph that it belongs to."""
    member: str
    """The PEF member that holds it as an ONNX model."""
    inputs: tuple[str, ...]
    """Symbols read, other than ``weights``, in the order of the ONNX model's inputs."""
    outputs: tuple[str, ...]
    """Symbols written, in the order of the ONNX model's outputs."""
    weights: tuple[str, ...]
    """Weight and constant symbols that are initializers of the ONNX model."""
    operators: dict[str, int]
    """Number of nodes by operator, ``domain::Op`` outside the default domain."""
    operator_flops: dict[str, int] = dataclasses.field(default_factory=dict)
    """Floating-point operations of one execution by operator (the keys of ``operators``), as far
    as shapes are known; an operator without any may be missing."""

    @property
    def nodes(self) -> int:
        """Number of nodes."""
        return sum(self.operators.values())


@dataclass(frozen=True)
class RepeatedBody:
    """A node whose body a section executes step by step, each step with the states of the one before."""

    node: str
    """Its name in the section's model, where it is a Scan."""
    steps: int
    """How often one execution of the section executes the body."""
    operators: dict[str, int]
    """Number of nodes of the body by operator; bodies within it are counted once, too."""


class Term(enum.StrEnum):
    """A part of a section's time."""

    LAUNCH = "launch"
    COMPUTE = "compute"
    ON_CHIP = "on-chip traffic"
    OFF_CHIP = "off-chip traffic"
    FILL = "fill"


@dataclass(frozen=True)
class SectionTime:
    """The parts of what one call of a section is modelled to take, in seconds."""

    launch: float = 0.0
    """Load of its program and arguments; 0 where a call before has done it."""
    compute: float = 0.0
    """Arithmetic, by data type and kind of operator."""
    on_chip: float = 0.0
    """Operands and results of its operators through on-chip memory."""
    off_chip: float = 0.0
    """Inputs, weights and outputs from and to off-chip memory."""
    fill: float = 0.0
    """Seconds until the first result has passed all operators on its longest path."""

    @property
    def seconds(self) -> float:
        """Launch, the longest of the parts that go on at the same time, and fill."""
        return self.launch + self.overlapped + self.fill

    @property
    def overlapped(self) -> float:
        """The longest of the parts that go on at the same time."""
        return max(self.compute, self.on_chip, self.off_chip)

    @property
    def bound(self) -> Term:
        """The longest of the parts that go on at the same time; of equal ones the first."""
        parts = {
            Term.COMPUTE: self.compute,
            Term.ON_CHIP: self.on_chip,
            Term.OFF_CHIP: self.off_chip,
        }
        return max(parts, key=lambda term: parts[term])

    @property
    def dominant(self) -> Term:
        """The part that takes the longest; of equal ones the first."""
        parts = {Term.LAUNCH: self.launch, self.bound: self.overlapped, Term.FILL: self.fill}
        return max(parts, key=lambda term: parts[term])


@dataclass(frozen=True)
class Streaming:
    """What a section can compute while the exchange just before it still brings rows."""

    seconds: float
    """The time of the operators that take rows in their order, and of those that do not read them."""
    tiles: int
    """Pieces in which the rows arrive: nothing begins before the first one is there."""


@dataclass(frozen=True)
class Section(Stage):
    """A piece of a graph that runs on the RDU in one go."""

    type: SectionType = SectionType.FWD
    """Which part of a step it is."""
    flops: int = 0
    """Floating-point operations of one execution."""
    bytes: int = 0
    """Bytes read and written in off-chip device memory by one execution."""
    seconds: float = 0.0
    """Modelled time of one call: ``time.seconds``."""
    sram_bytes: int = 0
    """Weights and the largest set of live activations, as planned for on-chip memory."""
    collective: Collective | None = dataclasses.field(default=None, metadata=MAY_BE_MISSING)
    """What RDUs exchange in it, which is all that it does; None for a section of one RDU."""
    rule: str = dataclasses.field(default="", metadata=MAY_BE_MISSING)
    """The rule of fusion that it is one section for; empty where none is."""
    time: SectionTime | None = dataclasses.field(default=None, metadata=MAY_BE_MISSING)
    """The parts of ``seconds``; None in a PEF of a version that did not know them."""
    streaming: Streaming | None = dataclasses.field(default=None, metadata=MAY_BE_MISSING)
    """The part of ``time`` that goes on while the exchange between RDUs just before it, of the same program, still brings
    values; None where nothing does."""
    repeated: tuple[RepeatedBody, ...] = dataclasses.field(default=(), metadata=MAY_BE_MISSING)
    """The bodies that it repeats, in the order of its model's nodes; ``flops`` and ``time`` are of all steps."""


@dataclass(frozen=True)
class Fallback(Stage):
    """A group of nodes that runs on the host CPU."""

    type: SectionType = SectionType.FWD
    """Which part of a step it is."""
    reasons: tuple[FallbackNode, ...] = ()
    """Its nodes, and why each is here."""
    seconds: float = 0.0
    """Modelled time of one execution on the CPU, without the nodes that are computed at load and those
    whose time is not modelled."""
    unmodelled: int = 0
    """Nodes whose time is not modelled: a size is not known, or what they do with it."""
