"""The decisions that all models of one program share while they are cut."""

from __future__ import annotations

from dataclasses import dataclass, field

import onnx_ir as ir

from samba_onnx.passes.sharding.layouts import Sharding
from samba_onnx.program.dataflow import each_node, name_of
from samba_onnx.program.kinds import SymbolKind

__all__ = ["Cut", "names_in"]


@dataclass
class Cut:
    """The decisions that several parts and graphs of a program share: a region lies in one way in all of them."""

    rdus: int
    mode: str
    regions: dict[str, Sharding] = field(default_factory=dict)
    """How what is kept on the device lies there, by region; and values between parts, by name."""
    contents: dict[str, ir.TensorProtocol] = field(default_factory=dict)
    """Whole content of what were initializers and became residents, by name."""
    kinds: dict[str, SymbolKind] = field(default_factory=dict)
    """Kinds of these."""
    reasons: dict[str, int] = field(default_factory=dict)
    """Why nodes are computed whole by every RDU, with their number."""


def names_in(graph: ir.Graph) -> set[str]:
    """Return the names of all values of a graph and of those inside of it."""
    names = {name_of(value) for value in (*graph.inputs, *graph.initializers.values())}
    names.update(name_of(value) for node in each_node(graph) for value in node.outputs)
    return names
