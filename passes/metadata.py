"""What nodes that a pass has made inherit: source traces and other metadata of what they replace."""

from __future__ import annotations

import onnx_ir as ir

from samba_onnx.passes.rewrites.rewriting import inherit
from samba_onnx.program.dataflow import each_node, name_of


def origins_of(model: ir.Model) -> tuple[set[int], dict[str, ir.Node]]:
    """Return the nodes that a model has, and the maker of every named value."""
    nodes = list(each_node(model.graph))
    makers = {value.name: node for node in nodes for value in node.outputs if value.name}
    return {id(node) for node in nodes}, makers


def inherit_metadata(model: ir.Model, origins: tuple[set[int], dict[str, ir.Node]]) -> None:
    """Give new nodes without metadata that of the node that made, reads or feeds their values."""
    present, makers = origins
    for node in each_node(model.graph):
        if id(node) in present or node.metadata_props:
            continue
        kin = [makers.get(name_of(value)) for value in node.outputs]
        kin += [user for value in node.outputs for user in value.consumers()]
        kin += [value.producer() for value in node.inputs if value is not None]
        for other in kin:
            if other is not None and other.metadata_props:
                inherit([node], other)
                break
