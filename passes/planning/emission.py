"""Writes a stage's nodes as an ONNX model of their own.

Big initializers become external data in the PEF's weights member, so that a stage file stays small
and its weights are mapped, never copied.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import onnx
import onnx_ir as ir

from samba_onnx.errors import InternalError
from samba_onnx.facts.versions import NEWEST_IR_VERSION
from samba_onnx.pef.manifest import Fallback, Section, Stored

WEIGHTS_MEMBER = "weights.safetensors"
"""Name of the PEF member that holds weights and constants."""
INLINE_LIMIT = 1024
"""Bytes up to which an initializer stays inside the stage's ONNX file: shapes, axes and scalars,
which an engine wants to read while it plans."""


def is_stored(tensor: ir.TensorProtocol) -> bool:
    """Return whether a tensor belongs into the weights member rather than into a stage's file.

    Args:
        tensor: An initializer's content, of any data type.

    Returns:
        False for strings and for tensors of at most ``INLINE_LIMIT`` bytes.
    """
    # ONNX has no external data of strings.
    return tensor.dtype != ir.DataType.STRING and tensor.nbytes > INLINE_LIMIT


def emit_stage(
    model: ir.Model,
    values: Mapping[str, ir.Value],
    nodes: Sequence[ir.Node],
    stage: Section | Fallback,
    stored: Mapping[str, Stored],
) -> onnx.ModelProto:
    """Return a stage as an ONNX model.

    Args:
        model: The model that the nodes belong to; it is not modified.
        values: The values of its graph by name, from :func:`index_values`.
        nodes: The stage's nodes in topological order.
        stage: The stage's interface: inputs, outputs and weights by name.
        stored: Where weights lie inside the weights member; the others are written inline.

    Returns:
        A model whose graph has the stage's name, inputs and outputs, the opsets of ``model``, and
        typed values throughout, as the emulator's lowering of bfloat16 needs them.

    Raises:
        InternalError: The stage names a value that the model does not have.
    """
    graph = onnx.GraphProto(name=stage.name)
    graph.input.extend(_value_info(values, name) for name in stage.inputs)
    graph.output.extend(_value_info(values, name) for name in stage.outputs)
    graph.initializer.extend(_initializer(values, name, stored.get(name)) for name in stage.weights)
    graph.node.extend(ir.serde.serialize_node(node) for node in nodes)
    interface = {*stage.inputs, *stage.outputs}
    for node in nodes:
        for value in node.outputs:
            if value.name and value.name not in interface and value.type is not None:
                graph.value_info.append(ir.serde.serialize_value(value))
    opsets = [
        onnx.helper.make_opsetid(domain, version)
        # Sorted: one model makes one PEF, byte for byte, in whichever order its operator sets were added.
        for domain, version in sorted(model.opset_imports.items())
    ]
    return onnx.helper.make_model(
        graph,
        opset_imports=opsets,
        # onnxruntime refuses a file of a newer format than it knows, though no node of it may need that.
        ir_version=min(model.ir_version, NEWEST_IR_VERSION),
        producer_name="samba-onnx",
    )


def index_values(graph: ir.Graph) -> dict[str, ir.Value]:
    """Return the values of a graph by name; those of subgraphs are not included.

    Args:
        graph: The graph whose stages will be written.

    Returns:
        Inputs, initializers and node outputs.
    """
    named = [*graph.inputs, *graph.initializers.values()]
    named += [output for node in graph for output in node.outputs]
    return {value.name: value for value in named if value.name}


def _find(values: Mapping[str, ir.Value], name: str) -> ir.Value:
    try:
        return values[name]
    except KeyError:
        raise InternalError(
            f"a planned stage reads {name!r}, which the graph does not have: please report this"
        ) from None


def _value_info(values: Mapping[str, ir.Value], name: str) -> onnx.ValueInfoProto:
    # Not ir.to_proto, which asks a value for every protocol that it may fulfil: a fifth of writing a PEF.
    return ir.serde.serialize_value(_find(values, name))


def _initializer(
    values: Mapping[str, ir.Value], name: str, stored: Stored | None
) -> onnx.TensorProto:
    tensor = _find(values, name).const_value
    if tensor is None:
        raise InternalError(f"initializer {name!r} has no content: please report this")
    if stored is None:
        inline = ir.serde.serialize_tensor(_in_memory(tensor))
        # Initializers may share a tensor, which has the name of one of them.
        inline.name = name
        return inline
    proto = onnx.TensorProto(
        name=name,
        data_type=int(tensor.dtype),
        dims=tensor.shape.numpy(),
        data_location=onnx.TensorProto.EXTERNAL,
    )
    entries = {"location": WEIGHTS_MEMBER, "offset": stored.offset, "length": stored.bytes}
    for key, value in entries.items():
        proto.external_data.add(key=key, value=str(value))
    return proto


def _in_memory(tensor: ir.TensorProtocol) -> ir.TensorProtocol:
    """Return a tensor that does not refer to the original model's external data."""
    # Strings are never external: they are in the model itself.
    if tensor.dtype == ir.DataType.STRING:
        return tensor
    return ir.Tensor(tensor.numpy())
