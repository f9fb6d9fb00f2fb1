"""Lets onnxruntime's CPU kernels, which lack bfloat16, compute what a bfloat16 device computes.

Every bfloat16 value becomes a float32 value that holds numbers of bfloat16 only: operators run in
float32, and what they return is rounded to bfloat16, to nearest even. So a MatMul accumulates in
float32 and rounds once, as the device does, and an elementwise operator gives the correctly rounded
result. Graph inputs, outputs and initializers keep their bfloat16 type, and so does a graph input of which
only some elements are overwritten to give a graph output: that may then happen where it lies.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

import numpy as np
import onnx
from onnx import numpy_helper

from samba_onnx.errors import ExecutionError
from samba_onnx.facts.domains import is_default
from samba_onnx.facts.families import READING_BITS, TYPE_ATTRIBUTES
from samba_onnx.facts.operators import InPlace, operators
from samba_onnx.runtime.engine.lowerings.stage_model import StageModel

_BFLOAT16 = onnx.TensorProto.BFLOAT16
_FLOAT = onnx.TensorProto.FLOAT
_WIDE, _UNROUNDED = ".float32", ".unrounded"
"""Endings of the names of values that stand for one of bfloat16, after and before it is rounded."""

_EXACT = operators(exact_in_bfloat16=True)
_SCATTERS = operators(in_place=[InPlace.OVERWRITTEN])
"""Operators that overwrite elements, for which onnxruntime has bfloat16 kernels."""


def uses_bfloat16(model: onnx.ModelProto) -> bool:
    """Return whether any value of the model is a bfloat16 tensor.

    Args:
        model: A model; only its main graph's values and all graphs' attributes are looked at.
    """
    return _uses(model.graph)


def lower_stage_bfloat16(stage: StageModel) -> None:
    """Rewrite a stage that uses bfloat16, unless the engine's own kernels are tried first.

    Args:
        stage: Is changed in place.

    Raises:
        ExecutionError: Types cannot be inferred.
    """
    if not stage.keeps_bfloat16 and uses_bfloat16(stage.model):
        lower_bfloat16(stage.model)


def lower_bfloat16(model: onnx.ModelProto) -> None:
    """Rewrite a model so that its bfloat16 arithmetic runs on float32 kernels.

    Args:
        model: Is changed in place. Functions must have been inlined.

    Raises:
        ExecutionError: Types cannot be inferred.
    """
    try:
        typed = onnx.shape_inference.infer_shapes(model)
    except (onnx.shape_inference.InferenceError, RuntimeError, ValueError) as error:
        reason = str(error).splitlines()[0]
        raise ExecutionError(
            f"{model.graph.name}: types for bfloat16 arithmetic are unknown: {reason}"
        ) from None
    declared = {value.name: value.type.tensor_type for value in model.graph.value_info}
    declared |= {value.name: value.type.tensor_type for value in model.graph.output}
    _Lowering(typed.graph).lower(outer=frozenset())
    typed.graph.value_info.extend(_declarations(typed.graph, declared))
    model.graph.CopyFrom(typed.graph)


def _declarations(
    graph: onnx.GraphProto, declared: Mapping[str, onnx.TypeProto.Tensor]
) -> Iterator[onnx.ValueInfoProto]:
    """Yield the shapes that were declared for values, of which those of bfloat16 are float32 now.

    Of some pools onnxruntime infers another shape than it computes, unless it is told; and later
    lowerings read them.
    """
    outputs = {value.name for value in graph.output}
    for name in (name for node in graph.node for name in node.output):
        kind = declared.get(name.removesuffix(_WIDE).removesuffix(_UNROUNDED))
        if name in outputs or kind is None or not kind.HasField("shape"):
            continue
        value = onnx.ValueInfoProto(name=name)
        value.type.tensor_type.CopyFrom(kind)
        if name.endswith((_WIDE, _UNROUNDED)):
            value.type.tensor_type.elem_type = _FLOAT
        yield value


def _uses(graph: onnx.GraphProto) -> bool:
    values = (*graph.input, *graph.output, *graph.value_info)
    return (
        any(_is_bfloat16(value.type) for value in values)
        or any(tensor.data_type == _BFLOAT16 for tensor in graph.initializer)
        or any(_attribute_uses(node) for node in graph.node)
    )


def _attribute_uses(node: onnx.NodeProto) -> bool:
    return any(
        (attribute.t.data_type == _BFLOAT16)
        or (attribute.name in TYPE_ATTRIBUTES and attribute.i == _BFLOAT16)
        or any(_uses(graph) for graph in _graphs(attribute))
        for attribute in node.attribute
    )


def _graphs(attribute: onnx.AttributeProto) -> Iterator[onnx.GraphProto]:
    if attribute.type == onnx.AttributeProto.GRAPH:
        yield attribute.g
    elif attribute.type == onnx.AttributeProto.GRAPHS:
        yield from attribute.graphs


def _is_bfloat16(kind: onnx.TypeProto) -> bool:
    return kind.tensor_type.elem_type == _BFLOAT16


def _wide(name: str) -> str:
    """Return the name of the float32 value that stands for a bfloat16 one."""
    return f"{name}{_WIDE}"


class _Lowering:
    """The rewriting of one graph; subgraphs have their own, with the outer one's values known."""

    def __init__(self, graph: onnx.GraphProto) -> None:
        self._graph = graph
        self._nodes: list[onnx.NodeProto] = []
        values = (*graph.input, *graph.output, *graph.value_info)
        self._narrow = {value.name for value in values if _is_bfloat16(value.type)}
        self._narrow |= {item.name for item in graph.initializer if item.data_type == _BFLOAT16}
        self._outer: frozenset[str] = frozenset()
        self._narrow_inputs: frozenset[str] = frozenset()

    def lower(self, outer: frozenset[str]) -> None:
        """Rewrite the main graph: its interface and initializers keep their types."""
        self._outer = outer
        self._narrow_inputs = frozenset(value.name for value in self._graph.input) & self._narrow
        for value in self._graph.input:
            self._widen_if_narrow(value.name)
        for tensor in self._graph.initializer:
            self._widen_if_narrow(tensor.name)
        narrow_outputs = {value.name for value in self._graph.output} & self._narrow
        self._lower_nodes(narrow_outputs)
        # Everything narrow was widened above, whether something reads it in float32 or not.
        used = {value.name for value in self._graph.output} | _read_names(self._nodes)
        self._nodes = [node for node in self._nodes if not used.isdisjoint(node.output)]
        self._finish()

    def lower_subgraph(self, outer: frozenset[str]) -> None:
        """Rewrite a subgraph: its interface becomes float32."""
        self._outer = outer
        for tensor in self._graph.initializer:
            self._widen_if_narrow(tensor.name)
        for value in (*self._graph.input, *self._graph.output):
            if value.name in self._narrow:
                value.name = _wide(value.name)
                value.type.tensor_type.elem_type = _FLOAT
        self._lower_nodes(frozenset())
        self._finish()

    def _finish(self) -> None:
        del self._graph.node[:]
        self._graph.node.extend(self._nodes)
        # The names of values that changed type are gone; the rest is inferred again.
        del self._graph.value_info[:]

    def _widen_if_narrow(self, name: str) -> None:
        if name in self._narrow:
            self._cast(name, _wide(name), _FLOAT)

    def _cast(self, source: str, result: str, to: int) -> None:
        node = onnx.helper.make_node("Cast", [source], [result], name=f"{result}.cast", to=to)
        self._nodes.append(node)

    def _lower_nodes(self, narrow_outputs: Iterable[str]) -> None:
        narrow_names = frozenset(narrow_outputs)
        for node in self._graph.node:
            self._lower_node(node, narrow_names)

    def _overwrite(self, node: onnx.NodeProto) -> None:
        """Keep a node that overwrites elements, and its result, in bfloat16."""
        result = node.output[0]
        updates = f"{result}.updates"
        self._cast(_wide(node.input[2]), updates, _BFLOAT16)
        node.input[2] = updates
        self._nodes.append(node)
        self._cast(result, _wide(result), _FLOAT)

    def _lower_node(self, node: onnx.NodeProto, narrow_outputs: frozenset[str]) -> None:
        known = self._outer | self._narrow
        scatters = node.op_type in _SCATTERS and _is_exact(node)
        # Widened, all of the input would be copied for the few elements that are overwritten.
        if scatters and node.input[0] in self._narrow_inputs and node.output[0] in narrow_outputs:
            self._overwrite(node)
            return
        for index, name in enumerate(node.input):
            if name in known:
                node.input[index] = _wide(name)
        for attribute in node.attribute:
            for graph in _graphs(attribute):
                _Lowering(graph).lower_subgraph(frozenset(known))
        results = [name for name in node.output if name in self._narrow]
        _widen_attributes(node)
        # What only moves or chooses among numbers of bfloat16 returns such numbers: to round them
        # once more changes nothing, and costs two casts.
        exact = _is_exact(node)
        for index, name in enumerate(node.output):
            if name in self._narrow:
                node.output[index] = _wide(name) if exact else f"{name}{_UNROUNDED}"
        self._nodes.append(node)
        for name in results:
            if not exact:
                self._cast(f"{name}{_UNROUNDED}", name, _BFLOAT16)
                self._cast(name, _wide(name), _FLOAT)
            elif name in narrow_outputs:
                self._cast(_wide(name), name, _BFLOAT16)


def _read_names(nodes: Iterable[onnx.NodeProto]) -> set[str]:
    """Return all names that nodes read, those in their subgraphs included."""
    names: set[str] = set()
    for node in nodes:
        names.update(node.input)
        for attribute in node.attribute:
            for graph in _graphs(attribute):
                names |= _read_names(graph.node) | {value.name for value in graph.output}
    return names


def _is_exact(node: onnx.NodeProto) -> bool:
    reduces = any(item.name == "reduction" and item.s != b"none" for item in node.attribute)
    return is_default(node.domain) and node.op_type in _EXACT and not reduces


def _widen_attributes(node: onnx.NodeProto) -> None:
    """Make a node that would create bfloat16 values create float32 ones."""
    for attribute in node.attribute:
        if attribute.t.data_type == _BFLOAT16:
            wide = numpy_helper.to_array(attribute.t).astype(np.float32)
            attribute.t.CopyFrom(numpy_helper.from_array(wide, attribute.t.name))
        # BitCast keeps its type: it would read other bits than there are.
        creates = attribute.name in TYPE_ATTRIBUTES and node.op_type not in READING_BITS
        if creates and attribute.i == _BFLOAT16:
            attribute.i = _FLOAT
