"""How nodes of older operator sets are written in newer ones, operator by operator.

Every entry of ``ADAPTERS`` says: a node of this operator from before version ``until`` means
something else when it is stamped with a newer version, and this is how to say the same. Operators
that are not listed only grew: new types, new attributes with neutral defaults, new inputs at the
end. onnx's own converter is not used, because it is silently wrong where it matters (Resize 10 loses
its coordinate mode, Hardmax 12 its meaning of ``axis``), drops the source traces of every node and
needs the whole graph serialised; onnxscript's begins at version 18 and skips nodes in silence.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from samba_onnx.passes.rewrites.refusals import Refusal
from samba_onnx.passes.rewrites.rewriting import (
    add_constant,
    add_integers,
    inherit,
    integer_attribute,
    replace_node,
    replace_node_output,
    small_array,
)

Apply = Callable[[], None]
Adapter = Callable[[ir.Model, ir.Node], "Apply | Refusal | None"]
"""Returns how to rewrite the node, None when it means the same already, or why it cannot be rewritten."""


@dataclass(frozen=True)
class OpsetAdapter:
    """One operator's adapter."""

    until: int
    """First version with the new meaning; nodes of older versions need the adapter."""
    adapt: Adapter


def _attributes_to_inputs(model: ir.Model, node: ir.Node, *names: str) -> Apply | None:
    """Attributes, in this order, become the inputs after the first."""
    if not any(name in node.attributes for name in names):
        return None

    def apply() -> None:
        for position, name in enumerate(names, start=1):
            _to_input(model, node, name, position)

    return apply


def _to_input(model: ir.Model, node: ir.Node, name: str, position: int) -> None:
    """Move one attribute to an input; integers become int64, numbers the type of input 0."""
    attribute = node.attributes.pop(name, None)
    if attribute is None:
        return
    if attribute.type in (ir.AttributeType.INT, ir.AttributeType.INTS):
        array = np.array(attribute.value, np.int64)
    else:
        first = node.inputs[0]
        dtype = first.dtype if first is not None and first.dtype else ir.DataType.FLOAT
        array = np.array(attribute.value, np.float64).astype(dtype.numpy())
    if len(node.inputs) <= position:
        node.resize_inputs(position + 1)
    node.replace_input_with(position, add_constant(model, f"{node.outputs[0].name}_{name}", array))


def _clip(model: ir.Model, node: ir.Node) -> Apply | Refusal | None:
    return _attributes_to_inputs(model, node, "min", "max")


def _pad(model: ir.Model, node: ir.Node) -> Apply | Refusal | None:
    return _attributes_to_inputs(model, node, "pads", "value")


def _slice(model: ir.Model, node: ir.Node) -> Apply | Refusal | None:
    return _attributes_to_inputs(model, node, "starts", "ends", "axes")


def _top_k(model: ir.Model, node: ir.Node) -> Apply | Refusal | None:
    def apply() -> None:
        node.attributes.add(ir.AttrInt64s("k", [node.attributes["k"].as_int()]))
        _to_input(model, node, "k", 1)

    return apply


def _split(model: ir.Model, node: ir.Node) -> Apply | Refusal | None:
    if len(node.inputs) > 1 and node.inputs[1] is not None:
        return None
    if "split" in node.attributes:
        return _attributes_to_inputs(model, node, "split")

    def apply() -> None:
        node.attributes.add(ir.AttrInt64("num_outputs", len(node.outputs)))

    return apply


def _dropout(model: ir.Model, node: ir.Node) -> Apply | Refusal | None:
    del model
    if len(node.outputs) > 1 and (node.outputs[1].uses() or node.outputs[1].is_graph_output()):
        return Refusal("its mask is read and had another type")

    def apply() -> None:
        node.attributes.pop("ratio", None)
        node.resize_outputs(1)

    return apply


def _flattened(model: ir.Model, node: ir.Node) -> Apply | Refusal | None:
    """Softmax and its kin: over all dimensions from ``axis`` on, taken as one."""
    source = node.inputs[0]
    axis = integer_attribute(node, "axis", 1)
    rank = None if source is None or source.shape is None else len(source.shape)
    if axis == -1 or (rank is not None and axis == rank - 1):
        return None
    if rank is None or source is None:
        return Refusal("the rank of its input is not known")

    def apply() -> None:
        shape = ir.node("Shape", [source])
        flat = ir.node("Flatten", [source], {"axis": axis})
        inner = ir.node(node.op_type, [flat.outputs[0]])  # over the last axis
        back = ir.node("Reshape", [inner.outputs[0], shape.outputs[0]])
        for new in (shape, flat, inner):
            new.outputs[0].name = f"{node.outputs[0].name}_{new.op_type}"
        replace_node(node, [shape, flat, inner, back], back.outputs)

    return apply


def _batch_normalization(model: ir.Model, node: ir.Node) -> Apply | Refusal | None:
    del model
    if integer_attribute(node, "spatial", 1) != 1:
        return Refusal("spatial=0 has no successor")
    if any(output.uses() or output.is_graph_output() for output in node.outputs[1:]):
        return Refusal("it is in training mode, which changed its outputs")

    def apply() -> None:
        node.attributes.pop("spatial", None)
        node.resize_outputs(1)

    return apply


def _upsample(model: ir.Model, node: ir.Node) -> Apply | Refusal | None:
    scales = node.attributes.get("scales")
    if scales is None:
        return _resize(model, node)
    return _to_resize(model, node, np.array(scales.as_floats(), np.float32))


def _resize(model: ir.Model, node: ir.Node) -> Apply | Refusal | None:
    scales = small_array(node.inputs[1])
    if scales is None:
        return Refusal("its scales are computed at run time")
    return _to_resize(model, node, scales)


def _to_resize(model: ir.Model, node: ir.Node, scales: np.ndarray) -> Apply | Refusal | None:
    """Write Upsample, and Resize of version 10, as today's Resize.

    Both map coordinates as x / scale; nearest takes the floor when enlarging and, in
    onnxruntime, the ceiling when shrinking.
    """
    shrinks, grows = bool((scales < 1).any()), bool((scales > 1).any())
    mode = node.attributes["mode"].as_string() if "mode" in node.attributes else "nearest"
    if mode == "nearest" and shrinks and grows:
        return Refusal("it enlarges and shrinks at once")

    def apply() -> None:
        attributes = {
            "mode": mode,
            "coordinate_transformation_mode": "asymmetric",
            "nearest_mode": "ceil" if shrinks else "floor",
        }
        constant = add_constant(model, f"{node.outputs[0].name}_scales", scales)
        resize = ir.node("Resize", [node.inputs[0], None, constant], attributes)
        replace_node_output(node, resize)

    return apply


def _resize_11(model: ir.Model, node: ir.Node) -> Apply | Refusal | None:
    """Resize of any version before 18."""
    version = node.version or model.graph.opset_imports[""]
    if version < 11:
        return _resize(model, node)
    mode = node.attributes.get("coordinate_transformation_mode")
    if mode is not None and mode.as_string() == "tf_half_pixel_for_nn":
        return Refusal("coordinate mode tf_half_pixel_for_nn was removed")
    return None


def _scatter(model: ir.Model, node: ir.Node) -> Apply | Refusal | None:
    del model

    def apply() -> None:
        node.op_type = "ScatterElements"

    return apply


def _scan(model: ir.Model, node: ir.Node) -> Apply | Refusal | None:
    del model, node
    return Refusal("its batch dimension was removed")


def _roi_align(model: ir.Model, node: ir.Node) -> Apply | Refusal | None:
    del model

    def apply() -> None:
        mode = ir.AttrString("coordinate_transformation_mode", "output_half_pixel")
        node.attributes.add(mode)

    return apply


def _dft(model: ir.Model, node: ir.Node) -> Apply | Refusal | None:
    def apply() -> None:
        node.attributes.add(ir.AttrInt64("axis", integer_attribute(node, "axis", 1)))
        _to_input(model, node, "axis", 2)

    return apply


def _grid_sample(model: ir.Model, node: ir.Node) -> Apply | Refusal | None:
    del model
    names = {"bilinear": "linear", "bicubic": "cubic"}
    mode = node.attributes.get("mode")
    if mode is None or mode.as_string() not in names:
        return None
    return lambda: node.attributes.add(ir.AttrString("mode", names[mode.as_string()]))


def _group_normalization(model: ir.Model, node: ir.Node) -> Apply | Refusal | None:
    """Scale and bias per group become scale and bias per channel."""
    source = node.inputs[0]
    shape = None if source is None else source.shape
    channels = shape[1] if shape is not None and len(shape) > 1 else None
    groups = node.attributes["num_groups"].as_int()
    if not isinstance(channels, int):
        return Refusal("the number of channels is not known")
    if channels == groups:
        return None

    def apply() -> None:
        nodes = []
        for position in (1, 2):
            name = f"{node.outputs[0].name}_{position}"
            column = ir.node(
                "Reshape",
                [node.inputs[position], add_integers(model, f"{name}_column", [groups, 1])],
            )
            size = add_integers(model, f"{name}_size", [groups, channels // groups])
            wide = ir.node("Expand", [column.outputs[0], size])
            flat = ir.node(
                "Reshape",
                [wide.outputs[0], add_integers(model, f"{name}_flat", [channels])],
            )
            nodes += [column, wide, flat]
            node.replace_input_with(position, flat.outputs[0])
        inherit(nodes, node)
        if node.graph is not None:
            node.graph.insert_before(node, nodes)

    return apply


def _axes(model: ir.Model, node: ir.Node) -> Apply | Refusal | None:
    return _attributes_to_inputs(model, node, "axes")


ADAPTERS: dict[str, OpsetAdapter] = {
    "BatchNormalization": OpsetAdapter(14, _batch_normalization),
    "Clip": OpsetAdapter(11, _clip),
    "DFT": OpsetAdapter(20, _dft),
    "Dropout": OpsetAdapter(12, _dropout),
    "GridSample": OpsetAdapter(20, _grid_sample),
    "GroupNormalization": OpsetAdapter(21, _group_normalization),
    "Hardmax": OpsetAdapter(13, _flattened),
    "LogSoftmax": OpsetAdapter(13, _flattened),
    "Pad": OpsetAdapter(11, _pad),
    "ReduceL1": OpsetAdapter(18, _axes),
    "ReduceL2": OpsetAdapter(18, _axes),
    "ReduceLogSum": OpsetAdapter(18, _axes),
    "ReduceLogSumExp": OpsetAdapter(18, _axes),
    "ReduceMax": OpsetAdapter(18, _axes),
    "ReduceMean": OpsetAdapter(18, _axes),
    "ReduceMin": OpsetAdapter(18, _axes),
    "ReduceProd": OpsetAdapter(18, _axes),
    "ReduceSum": OpsetAdapter(13, _axes),
    "ReduceSumSquare": OpsetAdapter(18, _axes),
    "Resize": OpsetAdapter(13, _resize_11),
    "RoiAlign": OpsetAdapter(16, _roi_align),
    "Scan": OpsetAdapter(9, _scan),
    "Scatter": OpsetAdapter(11, _scatter),
    "Slice": OpsetAdapter(10, _slice),
    "Softmax": OpsetAdapter(13, _flattened),
    "Split": OpsetAdapter(18, _split),
    "Squeeze": OpsetAdapter(13, _axes),
    "TopK": OpsetAdapter(10, _top_k),
    "Unsqueeze": OpsetAdapter(13, _axes),
    "Upsample": OpsetAdapter(10, _upsample),
}

ALWAYS_POSSIBLE = frozenset({"Clip", "Pad", "Slice", "Split", "TopK"}) | frozenset(
    name for name in ADAPTERS if name.startswith("Reduce") or name.endswith("queeze")
)
"""Operators whose adapters never refuse, whatever is known of the model."""
