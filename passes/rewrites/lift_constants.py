"""Turn Constant nodes and the initializers of subgraphs into initializers of the main graph."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from samba_onnx.facts.dtypes import ELEMENT_TYPES
from samba_onnx.passes.rewrites.refusals import ReasonedPass, Refusal
from samba_onnx.passes.rewrites.rewriting import (
    WEIGHT,
    add_initializer,
    each_graph,
    is_operator,
    replace_node,
)

LARGE = 1024
"""Elements from which a Constant node is taken for one of the user's weights."""


class LiftConstantsPass(ReasonedPass):
    """Leave no Constant node, and no initializer outside the main graph.

    1. A Constant becomes an initializer of the main graph under its own name or a free one.
    2. A Constant that is a graph's output becomes an Identity of the initializer, so that the
       output keeps its name and a subgraph never returns a value from outside.
    3. Initializers of subgraphs move to the main graph; those that are also inputs stay.
    4. A Constant without a dense tensor (``sparse_value``) or with a reference stays.
    5. An initializer of strings that is an output of the main graph becomes an Identity of it: only
       in a node's company does a PEF have a place for strings.
    """

    def call(self, model: ir.Model) -> ir.passes.PassResult:
        """Lift constants out of nodes and subgraphs."""
        modified = False
        for graph in list(each_graph(model)):
            modified |= _lift_initializers(model, graph)
            lifted: list[ir.Node] = []
            for node in graph:
                if is_operator(node, "Constant"):
                    modified |= self.refusals.applied(node, _lift(model, node, lifted))
            graph.remove(lifted, safe=True)  # at once: each call looks through all outputs
        return ir.passes.PassResult(model, modified=modified)


def _lift(model: ir.Model, node: ir.Node, lifted: list[ir.Node]) -> Refusal | None:
    """Replace a Constant; it goes to the lifted ones, for the caller to remove, if it still stands."""
    # Case 4: what is no dense tensor has no place among initializers.
    tensor = constant_tensor(node)
    if tensor is None:
        return Refusal("it holds a sparse tensor, or a parameter of a function")
    if node.graph is None:
        return Refusal("it is in no graph any more")
    # Cases 1 and 2: the name stays with the graph's output, where it is one.
    output = node.outputs[0]
    name = output.name or node.name or "constant"
    if output.is_graph_output():
        name = f"{name}_value"
    constant = add_initializer(model, name, tensor, weight=tensor.size > LARGE)
    constant.metadata_props.update(output.metadata_props)
    if output.is_graph_output():
        identity = ir.node("Identity", [constant])
        replace_node(node, identity, identity.outputs)
    else:
        output.replace_all_uses_with(constant)
        lifted.append(node)
    return None


def constant_tensor(node: ir.Node) -> ir.TensorProtocol | None:
    """Return the tensor that a Constant node makes, None when it is sparse or a reference."""
    # A Constant has exactly one attribute; anything else is left to the checker.
    if len(node.attributes) != 1:
        return None
    name, attribute = next(iter(node.attributes.items()))
    if attribute.is_ref():
        return None
    if name == "value":
        return attribute.as_tensor()
    if name in ("value_int", "value_ints"):
        return ir.Tensor(np.array(attribute.value, np.int64))
    if name in ("value_float", "value_floats"):
        return ir.Tensor(np.array(attribute.value, np.float32))
    if name in ("value_string", "value_strings"):
        texts = [attribute.value] if name == "value_string" else list(attribute.value)
        data = [text.encode() for text in texts]
        shape = ir.Shape(() if name == "value_string" else (len(data),))
        return ir.StringTensor(data, shape=shape)
    return None


def _lift_initializers(model: ir.Model, graph: ir.Graph) -> bool:
    modified = False
    for name, value in list(graph.initializers.items()):
        tensor = value.const_value
        # Case 3: the default of an input of a body belongs to the body.
        if value.is_graph_input() or tensor is None:
            continue
        # Case 5.
        if graph is model.graph and not (
            value.is_graph_output() and tensor.dtype.name.lower() not in ELEMENT_TYPES
        ):
            continue
        free = f"{name}_value" if value.is_graph_output() else name
        lifted = add_initializer(model, free, tensor, weight=bool(value.meta.get(WEIGHT)))
        if value.is_graph_output():
            identity = ir.node("Identity", [lifted], name=f"{name}_output")
            identity.outputs[0].type, identity.outputs[0].shape = value.type, value.shape
            # The value is an output, whose place the Identity's result takes under the same name.
            value.replace_all_uses_with(identity.outputs[0], replace_graph_outputs=True)
            del graph.initializers[name]
            identity.outputs[0].name = name
            first = next(iter(graph), None)
            graph.append(identity) if first is None else graph.insert_before(first, identity)
        else:
            value.replace_all_uses_with(lifted)
            del graph.initializers[name]
        modified = True
    return modified
