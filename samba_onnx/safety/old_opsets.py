"""Convert models of the first operator sets, which onnxruntime does not promise to run, to a newer one.

onnx's version converter is native code that trusts its input: it runs in a child process, and sees small
tensors only.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import onnx

from samba_onnx.errors import ExecutionError, InvalidModelError
from samba_onnx.facts.domains import is_default
from samba_onnx.facts.versions import IR_VERSION, OLDEST_OPSET
from samba_onnx.safety.all_tensors import all_tensors, attribute_tensors
from samba_onnx.safety.files import printable
from samba_onnx.safety.leftovers import temporary_folder
from samba_onnx.safety.sandbox import run_child

__all__ = ["converted", "default_opset"]

TASK: Final = "samba_onnx.safety.old_opsets:convert_file"
"""What the child does."""
SMALL_BYTES: Final = 4096
"""Tensors up to this size go to the converter with their content: axes, scales and slopes."""
_SECONDS: Final = 120.0
_MEMORY: Final = 2 << 30
"""Bytes that the child may take: graphs without weights need far less."""


def default_opset(proto: onnx.ModelProto) -> int:
    """Return the version of the default operator set that a model imports; 0 for none."""
    versions = [entry.version for entry in proto.opset_import if is_default(entry.domain)]
    return max(versions, default=0)


def converted(proto: onnx.ModelProto) -> onnx.ModelProto:
    """Return a model at the oldest operator set that onnxruntime promises to run.

    Args:
        proto: A checked model of an older one. It is not changed; large tensors stay what they are,
            also as references to a file.

    Returns:
        The model with other nodes, whose initializers are no inputs any more.

    Raises:
        InvalidModelError: The converter cannot convert an operator.
        ModelLimitError: The conversion takes too much time or memory.
    """
    # Names of weights count before and after: the converter may drop and add small constants.
    made = _converted_without_weights(proto)
    small = list(made.graph.initializer)
    weights = {tensor.name for tensor in (*proto.graph.initializer, *small)}
    del made.graph.initializer[:]
    # The large ones go back in as they were, which the converter saw as inputs only.
    made.graph.initializer.extend(t for t in proto.graph.initializer if not _is_small(t))
    made.graph.initializer.extend(small)
    del made.graph.input[:]
    made.graph.input.extend(v for v in proto.graph.input if v.name not in weights)
    made.ir_version = max(proto.ir_version, IR_VERSION)  # initializers need not be inputs any more
    del made.opset_import[:]
    made.opset_import.add(domain="", version=OLDEST_OPSET)
    made.opset_import.extend(e for e in proto.opset_import if not is_default(e.domain))
    return made


def _converted_without_weights(proto: onnx.ModelProto) -> onnx.ModelProto:
    """Convert a model whose large tensors are inputs or empty, in a child process."""
    slim = onnx.ModelProto()
    slim.CopyFrom(proto)
    _declare_weights(slim)
    del slim.graph.initializer[:]
    # Small ones stay: the converter reads axes and scales to convert their operators.
    slim.graph.initializer.extend(t for t in proto.graph.initializer if _is_small(t))
    # Large ones of attributes cannot become inputs everywhere, as in subgraphs: they stay without content.
    contents = _take_contents(slim)
    with temporary_folder("opset") as folder:
        path = Path(folder) / "model.onnx"
        path.write_bytes(slim.SerializeToString())
        try:
            run_child(
                TASK,
                {"model": str(path)},
                seconds=_SECONDS,
                memory_bytes=_MEMORY,
                doing="converting its operator set",
            )
        # A refusal of the converter's is about the model and no failure of this program.
        except ExecutionError as error:
            raise InvalidModelError(
                f"it imports version {default_opset(proto)} of operator set ai.onnx, and onnx's "
                f"converter cannot bring it to version {OLDEST_OPSET} "
                f"({printable(str(error), 300)}): export it again, for opset {OLDEST_OPSET} or newer"
            ) from None
        made = onnx.load(path)
    for tensor in attribute_tensors(made):
        if tensor.name in contents:
            tensor.CopyFrom(contents[tensor.name])
    return made


def _take_contents(proto: onnx.ModelProto) -> dict[str, onnx.TensorProto]:
    """Empty the large tensors of attributes but for type and shape, and return what they were by their new names."""
    taken: dict[str, onnx.TensorProto] = {}
    known = {tensor.name for tensor in all_tensors(proto)}
    for tensor in attribute_tensors(proto):
        if _is_small(tensor):
            continue
        # The name is what the converter keeps of a tensor whatever it does with the node around it.
        name = f"content_{len(taken)}"
        while name in known:
            name += "_"
        taken[name] = onnx.TensorProto()
        taken[name].CopyFrom(tensor)
        empty = onnx.TensorProto(name=name, data_type=tensor.data_type, dims=tensor.dims)
        tensor.CopyFrom(empty)
    return taken


def convert_file(model: str) -> dict[str, Any]:
    """Convert a model in place; runs in a child process.

    Args:
        model: Path of the ONNX model; all of its initializers are inputs, too.

    Returns:
        Nothing: the file has the converted model.
    """
    from onnx import shape_inference, version_converter

    proto = onnx.load(model)
    # Shapes are inferred first: where an operand begins depends on the rank of the other one.
    _spread_operands(proto, _ranks(shape_inference.infer_shapes(proto).graph))
    onnx.save(version_converter.convert_version(proto, OLDEST_OPSET), model)
    return {}


def _spread_operands(proto: onnx.ModelProto, ranks: dict[str, int]) -> None:
    """Give second operands the axes that they are broadcast along from version 7 on.

    Before, ``axis`` said where an operand began among the axes of the other one, and a vector of
    PRelu was one slope per channel; now operands end where the others do. onnx's converter refuses
    the one, and only changes the stamp of the other.
    """
    nodes = list(proto.graph.node)
    del proto.graph.node[:]
    for number, node in enumerate(nodes):
        first, second = (ranks.get(name) for name in (*node.input, "", "")[:2])
        axis = _axis(node, first, second)
        if axis is not None and first is not None and second is not None:
            missing = first - axis - second
            if missing > 0:
                name = f"{node.input[1]}_spread_{number}"
                axes = list(range(second, second + missing))
                proto.graph.node.append(
                    onnx.helper.make_node("Unsqueeze", [node.input[1]], [name], axes=axes)
                )
                node.input[1] = name
        proto.graph.node.append(node)


def _axis(node: onnx.NodeProto, first: int | None, second: int | None) -> int | None:
    """Return where the second operand begins; remove what says so. None where it ends at the end."""
    if node.op_type == "PRelu":
        # A slope per channel of an image: later versions align it with the last axis.
        return 1 if first is not None and first > 2 and second == 1 else None
    if first is None or second is None or not _states_axis(node):
        return None
    places = [attribute for attribute in node.attribute if attribute.name == "axis"]
    for attribute in places:
        node.attribute.remove(attribute)
    return places[0].i % first if places and first else None


def _states_axis(node: onnx.NodeProto) -> bool:
    """Tell whether an operator has attributes that say where its second operand begins."""
    try:
        # The last version before the change states which operators had these attributes.
        known = onnx.defs.get_schema(node.op_type, OLDEST_OPSET - 1).attributes
    except onnx.defs.SchemaError:
        return False
    return "broadcast" in known and "axis" in known


def _ranks(graph: onnx.GraphProto) -> dict[str, int]:
    """Return the number of axes of every value of known shape."""
    ranks = {
        info.name: len(info.type.tensor_type.shape.dim)
        for info in (*graph.input, *graph.value_info, *graph.output)
        if info.type.tensor_type.HasField("shape")
    }
    # Initializers last, because their shapes are facts and others are declarations.
    return {**ranks, **{tensor.name: len(tensor.dims) for tensor in graph.initializer}}


def _declare_weights(proto: onnx.ModelProto) -> None:
    """Make every initializer an input, too, as the converter wants it, and models once had to."""
    known = {value.name for value in proto.graph.input}
    for tensor in proto.graph.initializer:
        if tensor.name not in known:
            proto.graph.input.append(
                onnx.helper.make_tensor_value_info(tensor.name, tensor.data_type, tensor.dims)
            )


def _is_small(tensor: onnx.TensorProto) -> bool:
    return tensor.data_location != onnx.TensorProto.EXTERNAL and tensor.ByteSize() <= SMALL_BYTES
