"""Let onnxruntime infer what follows from operators that it knows and onnx does not."""

from __future__ import annotations

from collections.abc import Iterable, Set

import onnx
import onnx_ir as ir

from samba_onnx.errors import SambaError
from samba_onnx.facts.domains import (
    EARLY_OPERATORS,
    ONNX_DOMAINS,
    ONNXRUNTIME_DOMAINS,
    is_custom,
    qualified,
)
from samba_onnx.passes.rewrites.foreign import rule_of
from samba_onnx.passes.rewrites.infer_shapes import MADE_UP
from samba_onnx.passes.rewrites.interface import Dimension, dimensions
from samba_onnx.passes.rewrites.rewriting import SMALL
from samba_onnx.program.dataflow import each_node, subgraphs
from samba_onnx.safety.type_inference import OutputType, infer_output_types

_SHAPE_TYPES = (ir.DataType.INT64, ir.DataType.INT32)


class InferForeignTypesPass(ir.passes.InPlacePass):
    """Give types and shapes to the values behind operators such as ``com.microsoft::Gelu``.

    Without them everything behind such an operator would run on the CPU.

    1. A node is asked about when type or a dimension of one of its results is unknown, it is of onnx's or
       onnxruntime's domains, carries no subgraphs, and each operand has a type or comes from
       another such node. Nobody is asked unless one of them is of onnxruntime's domains, or an operator
       that onnxruntime has in earlier versions than onnx.
    2. onnxruntime sees these nodes only, in a child process; weights are declared, not read.
    3. What is known stays. Names of dimensions that the model's inputs do not have were made up by
       onnxruntime and are dropped. Names that onnx made up count as unknown, too: onnx inferred them for nodes
       between two such operators before the first one's result was known.
    4. An operator of any other domain is named in a note, since the emulator has to be given it, and so
       is a refusal of onnxruntime's.
    """

    def __init__(self) -> None:
        """Start without notes."""
        super().__init__()
        self.notes: list[str] = []

    def call(self, model: ir.Model) -> ir.passes.PassResult:
        """Ask onnxruntime about the nodes whose results onnx cannot tell, and take over the answers."""
        self._note_unknown_operators(model)
        known = {
            dim.value
            for value in model.graph.inputs
            for dim in value.shape or ()
            if not isinstance(dim, int)
        }
        region = _region(model.graph, known)
        # Case 1: without such an operator, onnx has said what it knows.
        asked = [node for node in region if _is_foreign(node)]
        # Nodes of several versions cannot be one model for onnxruntime.
        if not asked or any(node.version for node in region):
            return ir.passes.PassResult(model, modified=False)
        writer = _Writer(known)
        proto = writer.write(model.graph, region)
        try:
            # In a child process: native code may crash at a model of unknown origin.
            types = infer_output_types(proto)
        except SambaError as error:
            # What has a rule is expanded, whose results onnx infers, or has a note that says why not.
            open_ended = [node for node in asked if rule_of(node) is None]
            operators = {f"{node.domain}::{node.op_type}" for node in open_ended}
            if operators:
                names = ", ".join(sorted(operators))
                self.notes.append(f"no types are known behind {names}: {error}")
            return ir.passes.PassResult(model, modified=False)
        modified = False
        for name, value in writer.wanted.items():
            if name in types:
                modified |= _take(value, types[name], known)
        return ir.passes.PassResult(model, modified=modified)

    def _note_unknown_operators(self, model: ir.Model) -> None:
        unknown = {
            qualified(node.domain, node.op_type)
            for node in each_node(model.graph)
            if is_custom(node.domain)
        }
        if unknown:
            self.notes.append(
                f"the emulator cannot run {', '.join(sorted(unknown))} without a library of custom "
                "operators (--custom-ops): onnxruntime has no such operator, and the model brings no "
                "function body for it"
            )


def _region(graph: ir.Graph, known: Set[str | None]) -> list[ir.Node]:
    """Return the nodes that onnxruntime can be asked about, in topological order."""
    region: list[ir.Node] = []
    inside: set[ir.Value] = set()
    for node in graph:
        outputs = [value for value in node.outputs if _is_used(value)]
        if (
            any(_is_open(value, known) for value in outputs)
            and node.domain in ONNX_DOMAINS | ONNXRUNTIME_DOMAINS
            # A body may read values that are no part of the region.
            and not any(True for _ in subgraphs(node))
            and all(value is None or value in inside or _type(value) for value in node.inputs)
        ):
            region.append(node)
            inside.update(outputs)
    return region


def _is_foreign(node: ir.Node) -> bool:
    return node.domain in ONNXRUNTIME_DOMAINS or (
        node.domain == "" and node.op_type in EARLY_OPERATORS
    )


def _is_used(value: ir.Value) -> bool:
    return bool(value.name or value.uses() or value.is_graph_output())


def _is_open(value: ir.Value, known: Set[str | None]) -> bool:
    if value.type is None or not isinstance(value.type, ir.TensorType):
        return value.type is None
    shape = dimensions(value.shape)
    return shape is None or any(_is_unknown(dim, known) for dim in shape)


def _is_unknown(dim: Dimension, known: Set[str | None]) -> bool:
    """Return whether nobody knows a dimension: it has no name, or one that onnx made up.

    Models call dimensions of their inputs so, too, as tf2onnx does: these are known.
    """
    return dim is None or (isinstance(dim, str) and dim.startswith(MADE_UP) and dim not in known)


def _type(value: ir.Value) -> ir.TypeProtocol | None:
    if value.type is None and value.const_value is not None:
        return ir.TensorType(value.const_value.dtype)
    return value.type


class _Writer:
    """Writes nodes as a model of their own; between passes names need not be unique."""

    def __init__(self, known: Set[str | None]) -> None:
        self._known = known
        self.wanted: dict[str, ir.Value] = {}
        """The outputs of the written model, by their names there."""
        self._names: dict[ir.Value, str] = {}

    def write(self, graph: ir.Graph, nodes: Iterable[ir.Node]) -> onnx.ModelProto:
        """Return a model whose outputs are what the nodes compute and nobody knows."""
        proto = onnx.ModelProto(ir_version=8)
        for domain, version in graph.opset_imports.items():
            proto.opset_import.add(domain=domain, version=version)
        proto.graph.name = "region"
        for node in nodes:
            for value in node.inputs:
                if value is not None and value not in self._names:
                    self._declare(proto.graph, value)
            self._write_node(proto.graph, node)
        return proto

    def _name(self, value: ir.Value) -> str:
        return self._names.setdefault(value, f"v{len(self._names)}")

    def _declare(self, proto: onnx.GraphProto, value: ir.Value) -> None:
        tensor = None if value.is_graph_input() else value.const_value
        # Content of short integers decides shapes; all else is declared, so that no weight is
        # copied.
        if tensor is not None and tensor.size <= SMALL // 4 and tensor.dtype in _SHAPE_TYPES:
            ir.serde.serialize_tensor_into(proto.initializer.add(), tensor)
            proto.initializer[-1].name = self._name(value)
            return
        info = proto.input.add(name=self._name(value))
        kind, shape = _type(value), value.shape if tensor is None else tensor.shape
        if kind is not None:
            ir.serde.serialize_type_into(info.type, kind)
        if shape is not None:
            ir.serde.serialize_shape_into(info.type, shape)

    def _write_node(self, proto: onnx.GraphProto, node: ir.Node) -> None:
        written = proto.node.add(op_type=node.op_type, domain=node.domain)
        written.input.extend("" if v is None else self._name(v) for v in node.inputs)
        for value in node.outputs:
            written.output.append(self._name(value) if _is_used(value) else "")
            if _is_used(value) and _is_open(value, self._known):
                self.wanted[self._name(value)] = value
                proto.output.add(name=self._name(value))
            elif _is_used(value):
                info = proto.value_info.add()
                ir.serde.serialize_value_into(info, value)
                info.name = self._name(value)
        for attribute in node.attributes.values():
            if not attribute.is_ref():
                ir.serde.serialize_attribute_into(written.attribute.add(), attribute)


def _take(value: ir.Value, inferred: OutputType, known: set[str | None]) -> bool:
    """Take over the type and dimensions that a value lacks; return whether it lacked any."""
    kind = _parse(inferred.type)
    # A type that contradicts a known one would change the model: it stays.
    if kind is None or (value.type is not None and value.type != kind):
        return False
    modified = value.type is None
    value.type = kind
    old = dimensions(value.shape)
    # Dimensions of an output of the model keep their names (case 3).
    new = _merge(
        old, inferred.shape, set() if value.is_graph_output() and old is not None else known
    )
    if new != old:
        value.shape = None if new is None else ir.Shape(new)
    return modified or new != old


def _merge(
    old: tuple[Dimension, ...] | None,
    inferred: tuple[Dimension, ...] | None,
    known: Set[str | None],
) -> tuple[Dimension, ...] | None:
    """Return a shape with what was inferred in the place of what was not known."""
    if inferred is None or (old is not None and len(old) != len(inferred)):
        return old
    named = [dim if isinstance(dim, int) or dim in known else None for dim in inferred]
    pairs = zip(old or (None,) * len(named), named, strict=True)
    return tuple(
        after if after is not None and _is_unknown(before, known) else before
        for before, after in pairs
    )


def _parse(text: str) -> ir.TypeProtocol | None:
    """Return a type that onnxruntime wrote; None for one that the IR has no word for."""
    word, _, rest = text.partition("(")
    inner = rest.removesuffix(")")
    if word == "tensor":
        name = inner.upper()
        return ir.TensorType(ir.DataType[name]) if name in ir.DataType.__members__ else None
    kind = _parse(inner) if inner else None
    if kind is None:
        return None
    wrappers = {"seq": ir.SequenceType, "optional": ir.OptionalType}
    return wrappers[word](kind) if word in wrappers else None
