"""Give every value the type and shape that onnx can infer."""

from __future__ import annotations

from collections.abc import Iterator, Set
from typing import Final

import onnx
import onnx_ir as ir

from samba_onnx.passes.rewrites.inference_limits import ARITHMETIC, unsafe_nodes
from samba_onnx.passes.rewrites.interface import dimensions
from samba_onnx.passes.rewrites.pool_shapes import POOLS, floor_attributes
from samba_onnx.passes.rewrites.rewriting import SMALL, constant, is_operator
from samba_onnx.program.dataflow import each_node

Shape = tuple[int | str | None, ...]
ROUNDS = 3
"""Rounds of inference at most: each lets content through nodes that the round before found to be small.
The pipeline runs the pass several times."""
MADE_UP = "unk__"
"""How the names begin that onnx gives to dimensions which it does not know."""
_SHAPE_TYPES = (ir.DataType.INT64, ir.DataType.INT32)
_MOST_SCALES = 8
"""Elements up to which floats may be the scales of a Resize, from which its result's shape is computed."""
_ELEMENT_TYPES: Final = frozenset(int(dtype) for dtype in ir.DataType)
_LIKE_FIRST_OPERAND: Final = frozenset({"GroupNormalization"})
"""Operators of which onnx infers nothing; their result has type and shape of their first operand."""


class InferShapesPass(ir.passes.InPlacePass):
    """Run onnx's shape inference on the graph without its weights, and take over what is new.

    1. Initializers of more than a few elements are declared as inputs, so the size of the model
       does not matter; metadata is left out too.
    2. A dimension that is known stays; one that is not takes the inferred size or name.
    3. A node that onnx cannot infer leaves its outputs unknown and the others unharmed. When the
       inference fails as a whole, a note says so.
    4. The content of short integer vectors is propagated, since shapes are computed from it. Nodes
       at which vectors could be long are inferred without their content (``inference_limits``).
    """

    def __init__(self) -> None:
        """Start without notes."""
        super().__init__()
        self.notes: list[str] = []

    def call(self, model: ir.Model) -> ir.passes.PassResult:
        """Run the inference until content that a round finds lets no further node through."""
        # onnx infers a model of one version only; after the conversion no node has one of its own.
        if any(node.version for node in each_node(model.graph)):
            return ir.passes.PassResult(model, modified=False)
        modified = False
        for _ in range(ROUNDS):
            unsafe = unsafe_nodes(model)
            # Arithmetic is written as a silent twin, so that it hides nothing: only what is left
            # out makes a round more.
            hidden = {node for node in unsafe if node.op_type not in ARITHMETIC}
            changed = bool(hidden) and self._infer(model, frozenset(), content=False)
            if changed:
                unsafe = unsafe_nodes(model)
            # Content of vectors is not propagated through functions, whose bodies no limit looked
            # into.
            changed |= self._infer(model, unsafe, content=not model.functions)
            modified |= changed
            if not (hidden and changed):
                break
        return ir.passes.PassResult(model, modified=modified)

    def _infer(self, model: ir.Model, unsafe: Set[ir.Node], *, content: bool) -> bool:
        """Run onnx's inference once, with or without the content of vectors."""
        from onnx import shape_inference

        writer = ShapeWriter(unsafe)
        proto = writer.write(model)
        try:
            inferred = shape_inference.infer_shapes(proto, data_prop=content)
        # What onnx raises has no class of its own in every version.
        except Exception as error:
            reason = (str(error) or repr(error)).splitlines()[0]
            self.notes = [f"shapes could not be inferred: {reason}"]
            return False
        modified = False
        for name, kind in _inferred_types(inferred.graph):
            if name in writer.values:
                modified |= _merge(writer.values[name], kind, keep_made_up=content)
        return modified


class ShapeWriter:
    """Writes graphs as far as inference looks at them, under names of its own.

    Between passes the names of a model need not be unique. Nodes that onnx must not see are left
    out, so that their results are what is declared, or written as an operator that infers alike.
    """

    def __init__(self, unsafe: Set[ir.Node], *, stated: bool = True) -> None:
        """Begin without names.

        Args:
            unsafe: Nodes that onnx must not see as they are.
            stated: Whether to write what the model says of computed values; otherwise only the types
                of outputs, and of what operators of other domains compute.
        """
        self._unsafe = unsafe
        self._stated = stated
        self.values: dict[str, ir.Value] = {}
        self._names: dict[ir.Value, str] = {}
        self._main: ir.Graph | None = None
        self._brought: dict[tuple[ir.Graph, ir.Value], str] = {}
        """Names of constants within a body."""

    def write(self, model: ir.Model) -> onnx.ModelProto:
        """Return the model without metadata and without the content of large initializers."""
        proto = onnx.ModelProto(ir_version=max(model.ir_version, 8))
        for domain, version in model.graph.opset_imports.items():
            proto.opset_import.add(domain=domain, version=version)
        self._main = model.graph
        self._fill(proto.graph, model.graph)
        for function in model.functions.values():
            ir.serde.serialize_function_into(proto.functions.add(), function)
        return proto

    def _name(self, value: ir.Value | None) -> str:
        # A name would make an output that is left out one that is there.
        if value is None or not (value.name or value.uses() or value.is_graph_output()):
            return ""
        name = self._names.get(value)
        if name is None:
            name = self._names[value] = f"v{len(self._names)}"
            self.values[name] = value
        return name

    def _fill(self, proto: onnx.GraphProto, graph: ir.Graph) -> None:
        proto.name = "graph"
        declared = set(graph.inputs)
        for value in graph.inputs:
            self._declare(proto.input.add(), value)
        for value in graph.initializers.values():
            tensor = value.const_value
            # An initializer that is an input may be replaced by the caller, so that its content
            # says nothing.
            if tensor is None or value in declared:
                continue
            if _decides_shapes(tensor):
                ir.serde.serialize_tensor_into(proto.initializer.add(), tensor)
                proto.initializer[-1].name = self._name(value)
            else:
                self._declare(proto.input.add(), value)
        for value in graph.outputs:
            self._declare(proto.output.add(), value, shape=self._stated)
        if graph is not self._main:
            self._bring_in(proto, graph)
        for node in graph:
            if node not in self._unsafe or node.op_type in ARITHMETIC:
                self._write_node(proto.node.add(), node)
            for value in node.outputs:
                # What a model states may be wrong; what no inference knows must come from there.
                told = self._stated or node.domain != "" or node in self._unsafe
                if not told or value.type is None or value.is_graph_output():
                    continue
                if self._name(value):
                    self._declare(proto.value_info.add(), value, shape=self._stated)

    def _bring_in(self, proto: onnx.GraphProto, body: ir.Graph) -> None:
        """Write constants from outside of a body into it, under further names: onnx knows none of these by content."""
        for value in dict.fromkeys(value for node in body for value in node.inputs):
            tensor = None if value is None else constant(value)
            if value is None or tensor is None or not _decides_shapes(tensor):
                continue
            ir.serde.serialize_tensor_into(proto.initializer.add(), tensor)
            name = f"{self._name(value)}.{len(self._brought)}"
            proto.initializer[-1].name = self._brought[body, value] = name

    def _operand(self, node: ir.Node, value: ir.Value | None) -> str:
        """Return the name by which a node reads a value."""
        if isinstance(node.graph, ir.Graph) and value is not None:
            brought = self._brought.get((node.graph, value))
            if brought is not None:
                return brought
        return self._name(value)

    def _write_node(self, proto: onnx.NodeProto, node: ir.Node) -> None:
        proto.op_type, proto.domain, proto.overload = node.op_type, node.domain, node.overload
        # Div has the types, shapes and arity of the arithmetic, and propagates no content.
        if node in self._unsafe:
            proto.op_type = "Div"
        if _is_like_first_operand(node):
            proto.op_type = "Identity"
            proto.input.append(self._name(node.inputs[0]))
            proto.output.append(self._name(node.outputs[0]))
            return
        proto.input.extend(self._operand(node, value) for value in node.inputs)
        proto.output.extend(self._name(value) for value in node.outputs)
        # onnx and onnxruntime round sizes of pools differently (pool_shapes).
        changed = floor_attributes(node) if is_operator(node, *POOLS) else None
        hidden = () if changed is None else ("auto_pad", "ceil_mode", *changed)
        for name, integers in (changed or {}).items():
            proto.attribute.append(onnx.helper.make_attribute(name, integers))
        for attribute in node.attributes.values():
            if attribute.is_ref() or attribute.name in hidden:
                continue
            if attribute.type == ir.AttributeType.GRAPH:
                written = proto.attribute.add(name=attribute.name, type=onnx.AttributeProto.GRAPH)
                self._fill(written.g, attribute.as_graph())
            else:
                ir.serde.serialize_attribute_into(proto.attribute.add(), attribute)

    def _declare(self, proto: onnx.ValueInfoProto, value: ir.Value, *, shape: bool = True) -> None:
        proto.name = self._name(value)
        if value.type is not None:
            ir.serde.serialize_type_into(proto.type, value.type)
            if shape and value.shape is not None:
                ir.serde.serialize_shape_into(proto.type, value.shape)


def _decides_shapes(tensor: ir.TensorProtocol) -> bool:
    """Return whether a constant may be a size, an axis or a scale, of which inference needs the content."""
    if tensor.dtype == ir.DataType.FLOAT and tensor.size <= _MOST_SCALES:
        return True
    return tensor.size <= SMALL // 4 and tensor.dtype in _SHAPE_TYPES


def _is_like_first_operand(node: ir.Node) -> bool:
    """Return whether a result has the type and shape of the first operand, which onnx does not tell."""
    # Words that it leaves out make a vector shorter.
    whole = node.op_type == "StringNormalizer" and "stopwords" not in node.attributes
    return node.domain == "" and (whole or node.op_type in _LIKE_FIRST_OPERAND)


def _inferred_types(graph: onnx.GraphProto) -> Iterator[tuple[str, onnx.TypeProto]]:
    for info in (*graph.value_info, *graph.output):
        yield info.name, info.type
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.HasField("g"):
                # A Scan tells its body what a step is given; operands of other bodies are declared or unknown.
                yield from ((info.name, info.type) for info in attribute.g.input)
                yield from _inferred_types(attribute.g)


def _merge(value: ir.Value, inferred: onnx.TypeProto, *, keep_made_up: bool) -> bool:
    """Take over type and dimensions that ``value`` lacks.

    Names that inference makes up are left out before all content is known: they would stay, where
    the content then gives the model's own. They are left out of sequences and what comes
    from them, too: a name would be that of all of its tensors, which need not have one size.
    """
    if inferred.WhichOneof("value") is None or not is_known_type(inferred):
        return False
    modified = False
    if value.type is None:
        value.type = ir.serde.deserialize_type_proto_for_type(inferred)
        modified = value.type is not None
    new = dimensions(ir.serde.deserialize_type_proto_for_shape(inferred))
    if new is None:
        return modified
    # Inference passes on sizes below 0: -1 of a Split, or what a Reshape or a scale of NaN makes.
    new = tuple(None if isinstance(dim, int) and dim < 0 else dim for dim in new)
    old = dimensions(value.shape)
    if not keep_made_up or _is_from_sequence(value):
        new = tuple(None if str(dim).startswith(MADE_UP) else dim for dim in new)
    if value.is_graph_output() and old is not None:
        # a nameless dimension of the interface gets no name that inference made up
        new = tuple(dim if isinstance(dim, int) else None for dim in new)
    merged = _merge_dimensions(old, new)
    if merged != old:
        value.shape = ir.Shape(merged)
        return True
    return modified


def is_known_type(inferred: onnx.TypeProto) -> bool:
    """Return whether a type is of elements that ONNX has: inference passes on what attributes say, unchecked."""
    kind = inferred.WhichOneof("value")
    if kind in ("sequence_type", "optional_type"):
        return is_known_type(getattr(inferred, kind or "").elem_type)
    return kind not in ("tensor_type", "sparse_tensor_type") or (
        getattr(inferred, kind or "").elem_type in _ELEMENT_TYPES
    )


def _is_from_sequence(value: ir.Value) -> bool:
    """Return whether a value is a sequence of tensors, or computed from one."""
    node = value.producer()
    operands = () if node is None else node.inputs
    return any(
        isinstance(one.type, ir.SequenceType) for one in (value, *operands) if one is not None
    )


def _merge_dimensions(old: Shape | None, new: Shape) -> Shape:
    if old is None or len(old) != len(new):
        return new if old is None else old
    return tuple(
        # A number is better than a name, and a name better than nothing.
        before
        if isinstance(before, int) or (isinstance(before, str) and not isinstance(after, int))
        else after
        for before, after in zip(old, new, strict=True)
    )
