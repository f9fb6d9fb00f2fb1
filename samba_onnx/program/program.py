"""What the compiler is given: ONNX graphs, and what each of their values is to the device."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final

import onnx_ir as ir

from samba_onnx.program.dataflow import name_of
from samba_onnx.program.index_demands import IndexDemand
from samba_onnx.program.kinds import SectionType, SymbolKind

DEFAULT_GRAPH: Final = "forward"
"""Name of the graph of a PEF that has only one."""


@dataclass(frozen=True)
class Part:
    """One stretch of a graph's schedule, whose sections are all of one type.

    Inputs and outputs of its ONNX graph are symbols. An input that an earlier part has as an output
    is that value; every other input is one of the program's inputs, argins or residents.
    """

    type: SectionType
    model: ir.Model
    """Plain ONNX. Sizes are static in the programs of torch modules; those of ONNX models may have
    dynamic ones, which the user's choice makes static."""
    has_weights: bool = False
    """Whether its initializers may be weights, which the PEF then carries. They are constants
    otherwise: weights are inputs, for their values are no part of the program."""


@dataclass(frozen=True)
class ArginSpec:
    """A scalar input whose value persists between runs."""

    name: str
    type: str
    """``tensor(float)``, ``tensor(uint32)``, ..."""
    default: float


@dataclass(frozen=True)
class Program:
    """One graph of a PEF: its parts in the order in which they run."""

    name: str
    parts: tuple[Part, ...]
    inputs: tuple[str, ...]
    """Values that a run is given by the host."""
    outputs: tuple[str, ...]
    """Values that a run gives to the host."""
    residents: Mapping[str, SymbolKind] = field(default_factory=lambda: MappingProxyType({}))
    """Values that stay in device memory between runs, and are copied on request only: weights,
    buffers, optimizer state and gradients of outputs among the inputs of parts; updates of these,
    gradients and losses among the outputs. An output of a part that is neither here nor in
    ``outputs`` is an activation for a later part."""
    regions: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    """Place in device memory by value, where it is not the value's own name. An update has the
    region of what it updates."""
    argins: tuple[ArginSpec, ...] = ()
    metadata: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    """Kept in the PEF, for the session that will run it."""
    notes: tuple[str, ...] = ()
    """Sentences that people should read: kept in the PEF, and shown in its report."""
    index_demands: tuple[IndexDemand, ...] = ()
    """What the program demands of the integers that a run gives it."""
    spatial_batches: int = 0
    """Mini-batches of a run, with all sections on the RDU at once; parts compute one of them. 0 for
    sections that are swapped in one after the other, and a run of one batch."""

    def changed(self) -> frozenset[str]:
        """Return the regions that a run may change: of inputs, and of what parts write."""
        names = {name_of(v) for part in self.parts for v in part.model.graph.outputs}
        names.update(self.inputs)
        return frozenset(self.regions.get(name, name) for name in names)
