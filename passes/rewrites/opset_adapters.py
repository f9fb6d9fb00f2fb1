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
from typing import Any

import numpy as np
import onnx_ir as ir
from numpy.typing import NDArray

from samba_onnx.passes.rewrites.refusals import Refusal
from samba_onnx.passes.rewrites.rewriting import (
    add_constant,
    add_integers,
    inherit,
    integer_attribute,
    replace_node,
    small_array,
)

Apply = Callable[[], None]
"""Rewrites a node. It runs when every node of the model has been asked, and those before it are rewritten:
it reads the node's operands then, and remembers none."""
Adapter = Callable[[ir.Model, ir.Node], "Apply | Refusal | None"]
"""Returns how to rewrite the node, None when it means the same already, or why it cannot be rewritten."""


@dataclass(frozen=True)
class OpsetAdapter:
    """How nodes of one operator are written in newer versions."""

    until: int
    """First version with the new meaning; nodes of older versions need the adapter."""
    adapt: Adapter
    asks_for_rank: bool = False
    """Whether it writes less where the rank of the first operand is known."""


def _attributes_to_inputs(model: ir.Model, node: ir.Node, *names: str) -> Apply | None:
    """Return how attributes become inputs behind the first, in the order of their names here."""
    # Without the attribute the operator takes its default in both versions.
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
    # Inputs in between that are left out become empty.
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
        # As a list, since ONNX's k is a vector of one.
        node.attributes.add(ir.AttrInt64s("k", [node.attributes["k"].as_int()]))
        _to_input(model, node, "k", 1)

    return apply


def _split(model: ir.Model, node: ir.Node) -> Apply | Refusal | None:
    # Sizes that are an operand already are those of version 13 on.
    if len(node.inputs) > 1 and node.inputs[1] is not None:
        return None
    if "split" in node.attributes:
        return _attributes_to_inputs(model, node, "split")

    def apply() -> None:
        node.attributes.add(ir.AttrInt64("num_outputs", len(node.outputs)))

    return apply


def _dropout(model: ir.Model, node: ir.Node) -> Apply | Refusal | None:
    mask = node.outputs[1] if len(node.outputs) > 1 else None
    if mask is not None and (mask.uses() or mask.is_graph_output()):
        return _dropout_with_mask(model, node)

    def apply() -> None:
        node.attributes.pop("ratio", None)
        node.resize_outputs(1)

    return apply


def _dropout_with_mask(model: ir.Model, node: ir.Node) -> Apply | Refusal:
    """Write the mask of a Dropout that drops nothing: what was dropped before version 12, what stays since then."""
    version = node.version or model.graph.opset_imports[""]
    operand = node.inputs[0]
    # Before version 10 a mask was of the data's type.
    dtype = ir.DataType.BOOL if version >= 10 else None if operand is None else operand.dtype
    if dtype is None:
        return Refusal("its mask is read, and the type of that is not known")

    def apply() -> None:
        source = node.inputs[0]
        copy, shape = ir.node("Dropout", [source]), ir.node("Shape", [source])
        # onnxruntime marked nothing as dropped, with zeros, where version 12 marks everything as kept: the
        # version alone would turn the mask around.
        zero = ir.Tensor(np.zeros(1, dtype.numpy()), dtype)
        mask = ir.node("ConstantOfShape", [shape.outputs[0]], {"value": zero})
        shape.outputs[0].name = f"{node.outputs[0].name}_shape"
        results = (copy.outputs[0], mask.outputs[0])
        replace_node(node, [shape, mask, copy], results)

    return apply


def _flattened(model: ir.Model, node: ir.Node) -> Apply | Refusal | None:
    """Softmax and its kin: over all dimensions from ``axis`` on, taken as one."""
    operand = node.inputs[0]
    axis = integer_attribute(node, "axis", 1)
    rank = None if operand is None or operand.shape is None else len(operand.shape)
    # Over the last axis only, both meanings are the same.
    if axis == -1 or (rank is not None and axis == rank - 1):
        return None

    def apply() -> None:
        source = node.inputs[0]  # the adapter of its producer may have replaced the one from before
        shape = ir.node("Shape", [source])
        flat = ir.node("Flatten", [source], {"axis": axis})
        inner = ir.node(node.op_type, [flat.outputs[0]])  # over the last axis
        back = ir.node("Reshape", [inner.outputs[0], shape.outputs[0]])
        for new in (shape, flat, inner):
            new.outputs[0].name = f"{node.outputs[0].name}_{new.op_type}"
        replace_node(node, [shape, flat, inner, back], back.outputs)

    return apply


def _batch_normalization(model: ir.Model, node: ir.Node) -> Apply | Refusal | None:
    # Since version 14 there are other outputs in training mode.
    if any(output.uses() or output.is_graph_output() for output in node.outputs[1:]):
        return Refusal("it is in training mode, which changed its outputs")
    if integer_attribute(node, "spatial", 1) != 1:
        return lambda: _normalize_each(model, node)

    def apply() -> None:
        node.attributes.pop("spatial", None)
        node.resize_outputs(1)

    return apply


def _normalize_each(model: ir.Model, node: ir.Node) -> None:
    """Write a BatchNormalization with statistics of each element, which has no successor, step by step."""
    source, scale, bias, mean, variance = node.inputs
    dtype = variance.dtype if variance is not None and variance.dtype else ir.DataType.FLOAT
    epsilon = node.attributes["epsilon"].as_float() if "epsilon" in node.attributes else 1e-5
    name = str(node.outputs[0].name)
    small = add_constant(model, f"{name}_epsilon", np.array(epsilon, dtype.numpy()))
    nodes: list[ir.Node] = []

    def step(operator: str, *operands: ir.Value | None) -> ir.Value:
        nodes.append(ir.node(operator, list(operands)))
        nodes[-1].outputs[0].name = f"{name}_{len(nodes)}"
        return nodes[-1].outputs[0]

    deviation = step("Sqrt", step("Add", variance, small))
    step("Add", step("Mul", step("Div", step("Sub", source, mean), deviation), scale), bias)
    node.resize_outputs(1)
    replace_node(node, nodes, nodes[-1].outputs)


def _upsample(model: ir.Model, node: ir.Node) -> Apply | Refusal | None:
    scales = node.attributes.get("scales")
    if scales is None:
        return _resize(model, node)
    numbers = np.array(scales.as_floats(), np.float32)
    return lambda: _to_resizes(model, node, numbers)


def _resize(model: ir.Model, node: ir.Node) -> Apply | Refusal | None:
    return lambda: _to_resizes(model, node, small_array(node.inputs[1]))


def _to_resizes(model: ir.Model, node: ir.Node, scales: NDArray[Any] | None) -> None:
    """Write Upsample, and Resize of version 10, as one or two of today's Resize.

    Both map coordinates as x / scale; nearest takes the floor when enlarging and, in onnxruntime,
    the ceiling when shrinking: an axis that does the one and another that does the other have a
    Resize each.

    Args:
        model: The model, for constants.
        node: Is replaced; its second operand are the scales, where no attribute has them.
        scales: Their numbers; None where they are computed at run time, and where an Upsample, which
            only enlarges, is one Resize all the same.
    """
    mode = node.attributes["mode"].as_string() if "mode" in node.attributes else "nearest"
    known = scales is not None
    shrinks = bool((scales < 1).any()) if scales is not None else node.op_type == "Resize"
    grows = bool((scales > 1).any()) if scales is not None else True
    name = str(node.outputs[0].name)
    computed = None if known else node.inputs[1]
    nodes: list[ir.Node] = []
    source = node.inputs[0]

    def resized(operand: ir.Value | None, factors: ir.Value | None, nearest: str) -> ir.Value:
        attributes = {
            "mode": mode,
            "coordinate_transformation_mode": "asymmetric",
            "nearest_mode": nearest,
        }
        nodes.append(ir.node("Resize", [operand, None, factors], attributes))
        return nodes[-1].outputs[0]

    def bounded(operator: str, what: str) -> ir.Value:
        """Return the scales with 1 in place of those on one side of it."""
        if scales is not None:
            one = np.maximum if operator == "Max" else np.minimum
            return add_constant(model, f"{name}_{what}", one(scales, np.float32(1)))
        unit = add_constant(model, f"{name}_unit", np.array(1, np.float32))
        nodes.append(ir.node(operator, [computed, unit]))
        nodes[-1].outputs[0].name = f"{name}_{what}"
        return nodes[-1].outputs[0]

    if mode == "nearest" and shrinks and grows:
        source = resized(source, bounded("Max", "enlarging"), "floor")
        source.name = f"{name}_enlarged"
        resized(source, bounded("Min", "shrinking"), "ceil")
    else:
        whole = computed if scales is None else add_constant(model, f"{name}_scales", scales)
        resized(source, whole, "ceil" if shrinks and known else "floor")
    replace_node(node, nodes, nodes[-1].outputs)


def _resize_11(model: ir.Model, node: ir.Node) -> Apply | Refusal | None:
    """Return how a Resize of any version before 18 is rewritten."""
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
        # Version 16 made half_pixel the default; before, all did what output_half_pixel does.
        mode = ir.AttrString("coordinate_transformation_mode", "output_half_pixel")
        node.attributes.add(mode)

    return apply


def _dft(model: ir.Model, node: ir.Node) -> Apply | Refusal | None:
    def apply() -> None:
        # The default became the last axis of the signal; before, it was the first one behind the
        # batch.
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
    # Reshape and Expand need its number.
    if not isinstance(channels, int):
        return Refusal("the number of channels is not known")
    # A group of one channel: both meanings are the same.
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
    "Hardmax": OpsetAdapter(13, _flattened, asks_for_rank=True),
    "LogSoftmax": OpsetAdapter(13, _flattened, asks_for_rank=True),
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
    "Softmax": OpsetAdapter(13, _flattened, asks_for_rank=True),
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
