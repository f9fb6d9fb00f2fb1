"""Parts of an ONNX model as models of their own: some of its nodes, fed with what the others computed."""

from __future__ import annotations

import graphlib
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import onnx

from samba_onnx.errors import UsageError
from samba_onnx.runtime.engine.lowerings.graph_view import names_read


class ModelPieces:
    """A model of which parts are taken; it is not changed."""

    def __init__(self, model: onnx.ModelProto) -> None:
        """Look at the main graph.

        Args:
            model: Nodes may be in any order; initializers may be in files beside the model.
        """
        self.model = model
        graph = model.graph
        self.nodes: list[onnx.NodeProto] = _sorted(graph.node)
        """The nodes of the main graph in topological order."""
        self.makers = {
            name: place for place, node in enumerate(self.nodes) for name in node.output if name
        }
        """The place of the node that computes a value, by its name."""
        self.initializers = {tensor.name: tensor for tensor in graph.initializer}
        self.sparse = {tensor.values.name: tensor for tensor in graph.sparse_initializer}
        declared = (*graph.input, *graph.output, *graph.value_info)
        self._types: dict[str, onnx.ValueInfoProto] = {
            value.name: value for value in declared if value.type.WhichOneof("value")
        }
        self.inputs = [value.name for value in graph.input]
        outer = {*self.makers, *self.inputs, *self.initializers, *self.sparse}
        self.reads = [
            tuple(name for name in dict.fromkeys(names_read(node)) if name in outer)
            for node in self.nodes
        ]
        """What each node and its subgraphs read of the main graph's values."""

    def needed(self, names: Iterable[str], known: Collection[int] = ()) -> list[int]:
        """Return the places of the nodes that values depend on.

        Args:
            names: Values of the main graph.
            known: Places of nodes whose values there are already; nothing before them is needed.

        Returns:
            The places in topological order.
        """
        found: set[int] = set()
        pending = [self.makers[name] for name in names if name in self.makers]
        while pending:
            place = pending.pop()
            if place not in found and place not in known:
                found.add(place)
                pending += [self.makers[n] for n in self.reads[place] if n in self.makers]
        return sorted(found)

    def border(self, places: Collection[int]) -> list[str]:
        """Return the values that some nodes read and do not compute, initializers left out.

        Args:
            places: Places of the nodes.
        """
        # In the order of the model, whatever the collection's, so that
        # inputs are in one order always.
        names = dict.fromkeys(name for place in sorted(places) for name in self.reads[place])
        return [
            name
            for name in names
            if self.makers.get(name, -1) not in places
            and (name in self.makers or name in self.inputs)
        ]

    def piece(
        self, places: Sequence[int], feeds: Mapping[str, Any], outputs: Iterable[str]
    ) -> onnx.ModelProto:
        """Return some nodes as a model.

        Args:
            places: Places of the nodes, in topological order.
            feeds: Values by name, at least those that the nodes read and do not compute; other values
                are not looked at. An input with a default need not be there.
            outputs: Values that the model gives to the outside.

        Returns:
            A model of the same operator sets. Inputs have the shapes of the values; those of others, and
            types that the whole does not declare, are left to whoever runs it.

        Raises:
            UsageError: A value is of a type that no input of a model can have.
        """
        read = {name for place in places for name in self.reads[place]} | set(outputs)
        graph = onnx.GraphProto(name=self.model.graph.name or "piece")
        graph.node.extend(self.nodes[place] for place in places)
        inside = {name for place in places for name in self.nodes[place].output}
        for name in feeds:
            if name in read and name not in inside:
                graph.input.append(self._fed(name, feeds[name]))
        kept = read.difference(feeds, inside)
        graph.initializer.extend(
            self.initializers[name] for name in kept & self.initializers.keys()
        )
        graph.sparse_initializer.extend(self.sparse[name] for name in kept & self.sparse.keys())
        graph.value_info.extend(
            _without_shape(self._types[name])
            for name in sorted(inside.difference(outputs) & self._types.keys())
            # The order of a set of names differs from process to process.
        )
        for name in outputs:
            known = self._types.get(name)
            graph.output.append(_without_shape(known) if known else onnx.ValueInfoProto(name=name))
        return onnx.ModelProto(
            # Before version 4, initializers had to be inputs as well.
            ir_version=max(self.model.ir_version, 4),
            opset_import=self.model.opset_import,
            functions=self.model.functions,
            graph=graph,
        )

    def _fed(self, name: str, value: Any) -> onnx.ValueInfoProto:
        """Return an input for a value; of what is no array, as the whole model declares it."""
        known = self._types.get(name)
        if known is not None and not isinstance(value, np.ndarray):
            return known
        return _value_info(name, value)


def with_open_sizes(model: onnx.ModelProto) -> onnx.ModelProto:
    """Return a piece as the whole runs: with inputs of any size, where it has branches or bodies.

    An engine refuses a branch that does not fit the sizes of its inputs, also if it is never taken.

    Args:
        model: A piece, whose inputs have the shapes of values; is left as it is.
    """
    if not any(
        attribute.HasField("g") for node in model.graph.node for attribute in node.attribute
    ):
        return model
    opened = onnx.ModelProto()
    opened.CopyFrom(model)
    for value in opened.graph.input:
        for dimension in value.type.tensor_type.shape.dim:
            dimension.Clear()
    return opened


def _without_shape(value: onnx.ValueInfoProto) -> onnx.ValueInfoProto:
    """Return what a model says of a value without its shape, which may be that of other sizes."""
    known = onnx.ValueInfoProto()
    known.CopyFrom(value)
    if known.type.WhichOneof("value") == "tensor_type":
        known.type.tensor_type.ClearField("shape")
    return known


def _sorted(nodes: Sequence[onnx.NodeProto]) -> list[onnx.NodeProto]:
    """Return nodes in topological order; one that is in order already stays as it is."""
    makers = {name: place for place, node in enumerate(nodes) for name in node.output if name}
    before = {
        place: [makers[name] for name in names_read(node) if makers.get(name, place) != place]
        for place, node in enumerate(nodes)
    }
    if all(other < place for place, others in before.items() for other in others):
        return list(nodes)
    return [nodes[place] for place in graphlib.TopologicalSorter(before).static_order()]


def _value_info(name: str, value: Any) -> onnx.ValueInfoProto:
    """Return what an input is that takes a value.

    Raises:
        UsageError: The value is nothing that has a type.
    """
    if isinstance(value, list):
        if value and all(isinstance(item, np.ndarray) for item in value):
            kind = onnx.helper.make_tensor_type_proto(_number(value[0]), None)
            return onnx.helper.make_value_info(name, onnx.helper.make_sequence_type_proto(kind))
    elif value is not None:
        array = np.asarray(value)
        return onnx.helper.make_tensor_value_info(name, _number(array), array.shape)
    raise UsageError(
        f"value {name!r} of the model is an empty sequence or optional of unknown type"
    )


def _number(array: np.ndarray[Any, Any]) -> int:
    """Return the element type of an array as ONNX numbers it."""
    if array.dtype.kind in "OUST":
        return int(onnx.TensorProto.STRING)
    return int(onnx.helper.np_dtype_to_tensor_dtype(array.dtype))
