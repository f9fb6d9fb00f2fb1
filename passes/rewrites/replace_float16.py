"""Compute in a type that the target has what a model computes in float16, which no RDU has."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import onnx_ir as ir

from samba_onnx.facts.domains import is_custom, qualified
from samba_onnx.facts.dtypes import plain_name
from samba_onnx.facts.families import READING_BITS, TYPE_ATTRIBUTES
from samba_onnx.passes.rewrites.rewriting import converted, each_graph, inherit, is_operator
from samba_onnx.program.dataflow import each_node

__all__ = ["ReplaceFloat16Pass"]

_HALF: Final = ir.DataType.FLOAT16
_OLDEST: Final = 6
"""Version of the default operator set from which Cast names its type by a number."""


@dataclass(frozen=True)
class _Custom:
    """A node of a custom domain, with what was float16 around it."""

    node: ir.Node
    inputs: tuple[int, ...]
    """Their positions."""
    outputs: tuple[ir.Value, ...]


class ReplaceFloat16Pass(ir.passes.InPlacePass):
    """Give values, weights and attributes of float16 another type, and keep the model's interface.

    1. Inputs and outputs of the model keep float16: a Cast stands behind each input, and before each
       output.
    2. Weights are converted when they are written, one in memory at a time; one that several nodes
       read stays single.
    3. Values of subgraphs change as well, so that both sides of a branch or loop agree.
    4. Operators of custom domains keep their types, between Casts: their kernels are the user's own.
    5. A model stays as it is where the bits of its numbers are read, where its interface has sequences
       of float16, where nobody knows what a custom operator returns, and before operator set 6; a note
       says so.
    """

    def __init__(self, dtype: ir.DataType | None) -> None:
        """Take the type that float16 becomes.

        Args:
            dtype: float32 or bfloat16; None leaves every model as it is.
        """
        super().__init__()
        self.dtype = dtype
        self.notes: list[str] = []

    def call(self, model: ir.Model) -> ir.passes.PassResult:
        """Replace float16, if the model has any."""
        halves = [
            value for graph in each_graph(model) for value in _values(graph) if _is_half(value)
        ]
        if self.dtype is None or all(_is_cast_at_the_border(model, value) for value in halves):
            return ir.passes.PassResult(model, modified=False)
        # Case 5.
        obstacle = _obstacle(model)
        if obstacle:
            self.notes.append(f"float16 stays, and runs on the CPU: {obstacle}")
            return ir.passes.PassResult(model, modified=False)
        self.notes.append(_note(model, halves, self.dtype))
        customs = _customs(model)
        _Replacement(model, self.dtype).apply(halves, customs)
        return ir.passes.PassResult(model, modified=True)


@dataclass(frozen=True)
class _Replacement:
    """Replaces float16 in one model by another type."""

    model: ir.Model
    dtype: ir.DataType

    def apply(self, halves: list[ir.Value], customs: list[_Custom]) -> None:
        """Replace float16 in the values, weights and attributes of the model.

        Args:
            halves: All values of float16.
            customs: The nodes that keep their types.
        """
        inputs = [value for value in self.model.graph.inputs if _is_half(value)]
        outputs = [value for value in self.model.graph.outputs if _is_half(value)]
        for graph in each_graph(self.model):
            for node in graph:
                if not is_custom(node.domain):
                    self._replace_attributes(node)
        for value in halves:
            if value not in inputs:
                if value.const_value is not None:
                    value.const_value = converted(value.const_value, self.dtype)
                self._set_type(value)
        # Case 1.
        for value in inputs:
            self._cast_input(value)
        for value in dict.fromkeys(outputs):
            if value not in inputs:
                self._cast_output(value)
        # Case 4.
        for custom in customs:
            self._keep(custom)

    def _set_type(self, value: ir.Value) -> None:
        value.type = copy.deepcopy(value.type)  # types are shared between values
        value.dtype = self.dtype

    def _replace_attributes(self, node: ir.Node) -> None:
        for name, attribute in list(node.attributes.items()):
            if attribute.is_ref():
                continue
            if attribute.type == ir.AttributeType.INT and name in TYPE_ATTRIBUTES:
                if attribute.as_int() == _HALF:
                    node.attributes[name] = ir.AttrInt64(name, int(self.dtype))
            elif attribute.type == ir.AttributeType.TENSOR:
                tensor = attribute.as_tensor()
                if tensor.dtype == _HALF:
                    node.attributes[name] = ir.AttrTensor(name, converted(tensor, self.dtype))

    def _cast_input(self, value: ir.Value) -> None:
        graph = self.model.graph
        cast = self._cast(value, self.dtype)
        readers = list(value.consumers())
        if readers:
            inherit([cast], readers[0])
        wide = cast.outputs[0]
        # Readers only: an input that is an output, too, stays what the model returns.
        for reader, place in list(value.uses()):
            if reader is not cast:
                reader.replace_input_with(place, wide)
        for inner in graph.subgraphs():  # Case 3: a branch may return it as it is.
            for place, output in enumerate(inner.outputs):
                if output is value:
                    inner.outputs[place] = wide
        if len(graph):
            graph.insert_before(graph[0], cast)
        else:
            graph.append(cast)

    def _cast_output(self, value: ir.Value) -> None:
        graph, name, producer = self.model.graph, value.name, value.producer()
        cast = self._cast(value, _HALF)
        narrow = cast.outputs[0]
        if producer is not None:
            inherit([cast], producer)
        for place, output in enumerate(graph.outputs):
            if output is value:
                graph.outputs[place] = narrow
        narrow.doc_string = value.doc_string
        narrow.metadata_props.update(value.metadata_props)
        value.name = f"{name}_{_plain(self.dtype)}"
        narrow.name = name
        graph.append(cast)

    def _keep(self, custom: _Custom) -> None:
        node = custom.node
        graph = node.graph
        if graph is None:
            return
        for place in custom.inputs:
            operand = node.inputs[place]
            if operand is None or operand.dtype == _HALF:
                continue
            cast = self._cast(operand, _HALF)
            inherit([cast], node)
            graph.insert_before(node, cast)
            node.replace_input_with(place, cast.outputs[0])
        for output in custom.outputs:
            output.type = ir.TensorType(_HALF)
            cast = self._cast(output, self.dtype)
            inherit([cast], node)
            output.replace_all_uses_with(cast.outputs[0], replace_graph_outputs=True)
            cast.replace_input_with(0, output)
            graph.insert_after(node, cast)

    def _cast(self, value: ir.Value, dtype: ir.DataType) -> ir.Node:
        cast = ir.node("Cast", [value], {"to": int(dtype)})
        cast.outputs[0].name = f"{value.name}_{_plain(dtype)}"
        cast.outputs[0].type, cast.outputs[0].shape = ir.TensorType(dtype), value.shape
        return cast


def _values(graph: ir.Graph) -> Iterator[ir.Value]:
    """Yield each value of a graph once, without those of its subgraphs."""
    inputs = dict.fromkeys(graph.inputs)
    yield from inputs
    yield from (value for value in graph.initializers.values() if value not in inputs)
    for node in graph:
        yield from node.outputs


def _is_half(value: ir.Value) -> bool:
    return value.dtype == _HALF


def _is_cast_at_the_border(model: ir.Model, value: ir.Value) -> bool:
    """Return whether a value is an input that is only cast, or an output that comes from a Cast."""
    if value in model.graph.inputs:
        # One that is an output as well stays what it is there.
        return all(is_operator(node, "Cast") for node in value.consumers())
    return value.is_graph_output() and not value.uses() and is_operator(value.producer(), "Cast")


def _customs(model: ir.Model) -> list[_Custom]:
    """Return the nodes of custom domains that read or compute float16."""
    customs = []
    for graph in each_graph(model):
        for node in graph:
            if is_custom(node.domain):
                places = [
                    place
                    for place, value in enumerate(node.inputs)
                    if value is not None and _is_half(value)
                ]
                outputs = tuple(value for value in node.outputs if _is_half(value))
                customs.append(_Custom(node, tuple(places), outputs))
    return [custom for custom in customs if custom.inputs or custom.outputs]


def _obstacle(model: ir.Model) -> str:
    """Say why a model keeps float16, or nothing."""
    version = model.graph.opset_imports.get("", _OLDEST)
    if version < _OLDEST:
        return f"operator set {version} names types by texts"
    if model.functions:
        return "it calls functions that could not be inlined"
    for value in (*model.graph.inputs, *model.graph.outputs):
        if _is_half(value) and not isinstance(value.type, ir.TensorType):
            return f"{value.name!r} of its interface is no tensor"
    for node in each_node(model.graph):
        if node.op_type in READING_BITS:
            return f"{node.op_type} {node.name!r} reads the bits of numbers"
        unknown = any(value.uses() and value.type is None for value in node.outputs)
        if is_custom(node.domain) and unknown:
            name = qualified(node.domain, node.op_type)
            return f"nobody knows of what type the results of {name} {node.name!r} are"
    return ""


def _note(model: ir.Model, halves: list[ir.Value], dtype: ir.DataType) -> str:
    tensors = [value.const_value for value in halves if value.const_value is not None]
    size = sum(tensor.nbytes for tensor in tensors)
    wide = size * dtype.itemsize / _HALF.itemsize
    border = sum(map(_is_half, (*model.graph.inputs, *model.graph.outputs)))
    note = f"float16 runs as {_plain(dtype)}, which the target has"
    if size:
        note += f": its weights take {wide / 1e6:.4g} MB of the device for {size / 1e6:.4g} in the model"
    if border:
        note += f"; {border} of its inputs and outputs stay float16 and are converted on the host"
    return note


def _plain(dtype: ir.DataType) -> str:
    return plain_name(dtype.name)
