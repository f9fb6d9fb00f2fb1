"""Give every node and value a name of its own, over the graph and all its subgraphs."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeVar

import onnx_ir as ir

from samba_onnx.facts.names import FreeNames
from samba_onnx.passes.rewrites.rewriting import each_graph

Named = TypeVar("Named", ir.Value, ir.Node)


class FixNamesPass(ir.passes.InPlacePass):
    """Make names unique and non-empty, changing as few as possible.

    1. Inputs and outputs of the main graph keep their names; then the first to have a name does.
    2. Names are unique over the whole model, not only where scopes meet, so that any set of nodes
       can be cut out.
    3. An optional output that is left out has no name and gets none: a name would make
       onnxruntime compute it.
    """

    def call(self, model: ir.Model) -> ir.passes.PassResult:
        """Rename values and nodes without a name, or with the name of another."""
        graphs = list(each_graph(model))
        # By identity: values of equal names are just what is looked for.
        fixed = {id(value) for value in (*model.graph.inputs, *model.graph.outputs)}
        public = FreeNames(
            value.name for value in (*model.graph.inputs, *model.graph.outputs) if value.name
        )
        modified = _rename(_values(graphs, fixed), public, _value_stem)
        # Nodes have names of their own, apart from those of values.
        nodes = [node for graph in graphs for node in graph]
        modified |= _rename(nodes, FreeNames(), lambda node: node.op_type)
        return ir.passes.PassResult(model, modified=modified)


def _values(graphs: Iterable[ir.Graph], fixed: set[int]) -> list[ir.Value]:
    """Return every value that must have a name, in order, without the main graph's own."""
    values: dict[int, ir.Value] = {}
    for graph in graphs:
        present = [*graph.inputs, *graph.initializers.values()]
        for node in graph:
            present += [
                value
                for value in node.outputs
                # Case 3.
                if value.name or value.uses() or value.is_graph_output()
            ]
        values.update((id(value), value) for value in present if id(value) not in fixed)
    return list(values.values())


def _value_stem(value: ir.Value) -> str:
    producer = value.producer()
    return "value" if producer is None else f"{producer.op_type}_output"


def _rename(items: Iterable[Named], names: FreeNames, stem: Callable[[Named], str]) -> bool:
    modified = False
    # Those without a good name wait until all good ones are taken, which none of them may take
    # then.
    late: list[Named] = []
    for item in items:
        if item.name and item.name not in names:
            names.reserve([item.name])
        else:
            late.append(item)
    for item in late:
        item.name = names.take(item.name or stem(item))
        modified = True
    return modified
