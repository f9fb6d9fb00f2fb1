"""Refuse a model with a node that no values could make work."""

from __future__ import annotations

import re
from typing import Final

import onnx
import onnx_ir as ir

from samba_onnx.errors import InvalidModelError
from samba_onnx.passes.rewrites.bind_dimensions import ASSUMED, BOUND, taken_text
from samba_onnx.passes.rewrites.impossible_shapes import OperandShapes, Sizes, contradiction
from samba_onnx.passes.rewrites.infer_shapes import ShapeWriter
from samba_onnx.passes.rewrites.inference_limits import ARITHMETIC, unsafe_nodes
from samba_onnx.passes.rewrites.interface import dimensions
from samba_onnx.program.source_location import source_location
from samba_onnx.program.value_types import type_text
from samba_onnx.safety.files import printable

_FAULT: Final = re.compile(
    r"\(op_type:[^,()]*, node name: (\d+)\): \[ShapeInferenceError\] ([^\n]*)"
)


class RefuseImpossiblePass(ir.passes.InPlacePass):
    """Find the first node whose shapes contradict each other.

    1. Shapes are inferred from those of inputs and initializers alone: what a model states of the
       values between is often wrong, and onnxruntime does not mind.
    2. A node that onnx's inference refuses for its shapes, or a rule of ``impossible_shapes``.
    3. Only nodes of the main graph: an impossible branch may be one that is never taken.
    4. Again behind folding, by the rules alone: sizes of a padding that follow from those of inputs are numbers by
       then. Only of a model whose dynamic dimensions were given sizes here: others run somewhere as they are.
    """

    def __init__(self, *, folded: bool = False) -> None:
        """Say when it runs.

        Args:
            folded: Whether constants are folded by now.
        """
        super().__init__()
        self.folded = folded

    def call(self, model: ir.Model) -> ir.passes.PassResult:
        """Refuse the first node that is impossible.

        Raises:
            InvalidModelError: A node is impossible; the message names it, and the sizes that nobody
                stated, if there are any.
        """
        unchanged = ir.passes.PassResult(model, modified=False)
        if self.folded:
            if model.meta.get(BOUND) or model.meta.get(ASSUMED):
                _refuse_by_rules(model)
            return unchanged
        nodes = list(model.graph)
        # onnx infers a model of one version only.
        if any(node.version for node in nodes):
            return unchanged
        unsafe = unsafe_nodes(model)
        # Nodes are named by their place, since those of the model may have no names, or equal ones.
        writer = ShapeWriter(unsafe, stated=False)
        proto = writer.write(model)
        written = [node for node in nodes if node not in unsafe or node.op_type in ARITHMETIC]
        for place, each in enumerate(proto.graph.node):
            each.name = str(place)
        content = not model.functions
        fault = _first_fault(proto, content=content)
        known = _known_shapes(model, writer, proto, content=content)
        for place, node in enumerate(written):
            inputs = tuple(None if value is None else known.get(value) for value in node.inputs)
            output = known.get(node.outputs[0]) if node.outputs else None
            shapes = OperandShapes(node, inputs, output)
            reason = contradiction(shapes) if node.domain == "" else None
            # A rule's own words say more than onnx's, where both find a fault.
            if fault is not None and fault[0] == place:
                reason = reason or fault[1]
            if reason:
                raise impossible(model, shapes, reason)
        return unchanged


def _refuse_by_rules(model: ir.Model) -> None:
    known = shapes_from_inputs(model)
    for node in model.graph:
        inputs = tuple(None if value is None else known.get(value) for value in node.inputs)
        shapes = OperandShapes(node, inputs, known.get(node.outputs[0]) if node.outputs else None)
        reason = contradiction(shapes) if node.domain == "" else None
        if reason:
            raise impossible(model, shapes, reason)


def _first_fault(proto: onnx.ModelProto, *, content: bool) -> tuple[int, str] | None:
    """Return the first node that onnx's inference refuses for its shapes, with the reason."""
    from onnx import shape_inference

    try:
        shape_inference.infer_shapes(proto, strict_mode=True, data_prop=content)
    except Exception as error:  # has no class of its own in every version of onnx
        for match in _FAULT.finditer(str(error)):
            text = match[2].strip().rstrip(".")
            # An operator's own body is onnx's, and what is wrong in it no fault of the model's.
            if not text.startswith("Inference error"):
                return int(match[1]), f"{text[:1].lower()}{text[1:]}"
    return None


def _known_shapes(
    model: ir.Model, writer: ShapeWriter, proto: onnx.ModelProto, *, content: bool
) -> dict[ir.Value, Sizes]:
    """Return the shapes that follow from inputs and initializers."""
    from onnx import shape_inference

    known: dict[ir.Value, Sizes] = {}
    try:
        inferred = shape_inference.infer_shapes(proto, data_prop=content)
    except Exception:  # it fails as a whole; inference for the model itself says so in a note
        return known
    graph = inferred.graph
    for info in (*graph.input, *graph.value_info, *graph.output):
        shape = dimensions(ir.serde.deserialize_type_proto_for_shape(info.type))
        if shape is not None and info.name in writer.values:
            # A size below zero is what inference makes of -1 and of NaN: nothing is known of it.
            sizes = tuple(size if isinstance(size, int) and size >= 0 else None for size in shape)
            known[writer.values[info.name]] = sizes
    for value in model.graph.initializers.values():
        if value.const_value is not None:
            known[value] = tuple(value.const_value.shape.numpy())
    return known


def shapes_from_inputs(model: ir.Model) -> dict[ir.Value, Sizes]:
    """Return the shapes that follow from inputs and initializers, whatever the model states of other values.

    Args:
        model: A model whose nodes are all of its own operator set.
    """
    writer = ShapeWriter(unsafe_nodes(model), stated=False)
    proto = writer.write(model)
    return _known_shapes(model, writer, proto, content=not model.functions)


def impossible(model: ir.Model, shapes: OperandShapes, reason: str) -> InvalidModelError:
    """Return the error for a node that no values could make work, with what the user can do.

    Args:
        model: The model of the node; may know which sizes nobody stated.
        shapes: The node with its shapes.
        reason: A sentence's end after "cannot be computed:".
    """
    node = shapes.node
    place = source_location(node)
    operands = ", ".join(_operand(value, shapes.shape(i)) for i, value in enumerate(node.inputs))
    text = (
        f"{_title(node)} ({printable(node.op_type)}{f' at {place}' if place else ''}) cannot be computed: {reason}; its inputs are "
        f"{printable(operands, 300)}: correct the model"
    )
    assumed = model.meta.get(ASSUMED)
    if assumed:
        text += (
            f"; or state the sizes of its dynamic dimensions, of which {taken_text(assumed)}: --dim "
            "NAME=SIZE, --input-shape INPUT=SIZES or --sample-input INPUT=FILE, or --keep-dynamic"
        )
    return InvalidModelError(text, node=node.name, operator=node.op_type)


def _title(node: ir.Node) -> str:
    """Name a node, or what it computes."""
    if node.name:
        return f"node {printable(node.name)!r}"
    return f"the node that makes {printable(node.outputs[0].name or '')!r}"


def _operand(value: ir.Value | None, shape: Sizes | None) -> str:
    if value is None:
        return "none"
    sizes = "" if shape is None else f"[{', '.join('?' if d is None else str(d) for d in shape)}]"
    return f"{value.name} {type_text(value)}{sizes}"
