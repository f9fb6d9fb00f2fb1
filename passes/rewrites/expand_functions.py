"""Write operators that the target lacks by the function bodies that ONNX defines for them."""

from __future__ import annotations

from typing import Any, Protocol

import onnx
import onnx_ir as ir
from onnx_ir.passes.common import InlinePass

from samba_onnx.facts.domains import is_default
from samba_onnx.facts.families import VANISHING
from samba_onnx.passes.rewrites.opset_adapters import ADAPTERS, ALWAYS_POSSIBLE
from samba_onnx.passes.rewrites.refusals import ReasonedPass, Refusal
from samba_onnx.passes.rewrites.rewriting import integer_attribute, integers
from samba_onnx.program.dataflow import each_node

DEEPEST = 4
"""Levels of function bodies within function bodies that are looked into."""

Body = tuple[onnx.FunctionProto, int]
"""A body and the version of the default operator set that it is written for."""


class Knows(Protocol):
    """A target, as far as passes ask it."""

    @property
    def repeats_bodies(self) -> bool:
        """Whether a section repeats the body of a Scan, so that its steps need not stand one behind the other."""

    def knows(self, domain: str, op_type: str) -> bool:
        """Return whether the target's table has the operator."""

    def runs(self, node: ir.Node) -> bool:
        """Return whether the target runs a node as it is, with its types, shapes and attributes."""


class ExpandFunctionsPass(ReasonedPass):
    """Replace a node by its ONNX function body, with ``onnx_ir``'s inliner.

    1. The target does not know the operator, and onnx defines a body for this version, possibly
       one that depends on the node's attributes and types.
    2. All of the body can run on the target: it knows every operator, or that one has itself a
       body of which it does; constants do not count. Otherwise the node stays whole for the CPU.
    3. Nodes of subgraphs stay: they run on the CPU as they are.

    One run expands one level, so that the types of what it made can be inferred before the next.
    Nodes of a body written for another version carry that version; ConvertOpsetPass brings them
    to the model's.
    """

    def __init__(self, target: Knows) -> None:
        """Keep the target that decides."""
        super().__init__()
        self.target = target

    def call(self, model: ir.Model) -> ir.passes.PassResult:
        """Expand one level of the operators that the target lacks."""
        default = model.graph.opset_imports.get("", 0)
        bodies: dict[ir.OperatorIdentifier, ir.Function] = {}
        # Case 3: only the main graph.
        for number, node in enumerate(model.graph):
            if node.domain != "" or self.target.knows(node.domain, node.op_type):
                continue
            body = self._expansion(node, default)
            if isinstance(body, Refusal):
                self.refusals.applied(node, body)
                continue
            # Every node gets a function of its own, since bodies depend on attributes and types.
            node.overload = f"samba_onnx_{number}"
            bodies[node.op_identifier()] = _as_function(node, body, default)
        if not bodies:
            return ir.passes.PassResult(model, modified=False)
        # The inliner would inline all functions of the model: those of the user are put aside.
        others = dict(model.functions)
        model.functions.clear()
        model.functions.update(bodies)
        InlinePass()(model)
        model.functions.clear()
        model.functions.update(others)
        return ir.passes.PassResult(model, modified=True)

    def _expansion(self, node: ir.Node, version: int) -> Body | Refusal:
        """Return the body that takes the place of a node that the target lacks, or why none does.

        The version is that of the default operator set that the model imports.
        """
        # Case 1: onnx defines a body.
        body = _body(node, node.version or version)
        if body is None:
            return Refusal("onnx defines no body for it, its version and its types")
        # Case 2: all of it can run on the target; in parts it would only cost boundaries.
        if not self._is_worthwhile(body[0], version, DEEPEST):
            return Refusal("its body needs operators that the target lacks too")
        if not _returns_all(node, body[0]):
            return Refusal("its body returns less than the node does")
        return body

    def _is_known(self, domain: str, op_type: str) -> bool:
        """Return whether a body may use it: some vanish, CastLike becomes Cast once types are known."""
        if is_default(domain) and op_type in VANISHING:
            return True
        return self.target.knows(domain, "Cast" if op_type == "CastLike" else op_type)

    def _is_worthwhile(self, body: onnx.FunctionProto, version: int, depth: int) -> bool:
        for inner in body.node:
            if self._is_known(inner.domain, inner.op_type):
                continue
            # A body of a body has no types yet, which is why its operators only are looked at.
            if depth == 0 or not is_default(inner.domain):
                return False
            nested = _body_of(inner, [onnx.TypeProto()] * len(inner.input), version)
            if nested is None or not self._is_worthwhile(nested[0], version, depth - 1):
                return False
        return True


def _schema(op_type: str, version: int) -> Any:
    """Return the operator's ``OpSchema``; onnx's stubs lack what it says about functions."""
    try:
        return onnx.defs.get_schema(op_type, version)
    except onnx.defs.SchemaError:
        return None


def _body(node: ir.Node, version: int) -> Body | None:
    """Return the body for one node, its types considered; None where it computes something else."""
    if _strays(node):
        return None
    types = []
    for value in node.inputs:
        proto = onnx.TypeProto()
        if value is not None and value.type is not None:
            ir.serde.serialize_type_into(proto, value.type)
            if value.shape is not None:
                ir.serde.serialize_shape_into(proto, value.shape)
        types.append(proto)
    return _body_of(ir.serde.serialize_node(node), types, version)


def _strays(node: ir.Node) -> bool:
    """Return whether onnx's body of a node computes other numbers than runtimes do.

    1. AffineGrid with aligned corners divides by one less than each size, so that a size of 1 makes NaN.
    2. Shrink casts its attributes to the type of its operand, which cuts off fractions of integers.
    """
    if node.domain != "":
        return False
    if node.op_type == "AffineGrid" and integer_attribute(node, "align_corners", 0):
        sizes = integers(node.inputs[1])
        return sizes is None or 1 in sizes[2:]
    if node.op_type == "Shrink":
        dtype = node.inputs[0].dtype if node.inputs[0] is not None else None
        numbers = (node.attributes.get("bias"), node.attributes.get("lambd"))
        stated = [0.0 if item is None else item.as_float() for item in numbers]
        stated[1] = 0.5 if numbers[1] is None else stated[1]
        return dtype is not None and dtype.is_integer() and not all(n.is_integer() for n in stated)
    return False


def _body_of(node: onnx.NodeProto, types: list[onnx.TypeProto], version: int) -> Body | None:
    schema = _schema(node.op_type, version)
    if schema is None:
        return None
    body = onnx.FunctionProto()
    if schema.has_function:
        body.CopyFrom(schema.function_body)
    elif schema.has_context_dependent_function:
        # A builder of bodies exists for some versions; the newest one that is not newer than the
        # model counts.
        known = [v for v in schema.context_dependent_function_opset_versions if v <= version]
        try:
            data = schema.get_context_dependent_function_with_opset_version(
                max(known),
                node.SerializeToString(),
                [item.SerializeToString() for item in types],
            )
        except (RuntimeError, ValueError, onnx.onnx_cpp2py_export.checker.ValidationError):
            return None  # the builder needs types that are not known here
        body.ParseFromString(data)
    if not body.node:
        return None
    imported = [item.version for item in body.opset_import if is_default(item.domain)]
    written_for = max(imported)
    return (body, written_for) if fits(body, written_for, version) else None


def fits(body: onnx.FunctionProto, written_for: int, version: int) -> bool:
    """Return whether a body can be brought to the model's version whatever its types are.

    Args:
        body: Nodes of the default operator set.
        written_for: Version of the default operator set of the body.
        version: The default operator set of the model.
    """
    # An older body can be adapted to a newer version; a newer one may use what the model's version
    # lacks.
    if written_for > version:
        return False
    for inner in body.node:
        entry = ADAPTERS.get(inner.op_type)
        changed = entry is not None and written_for < entry.until <= version
        # An adapter that may refuse would leave a model of two versions.
        if changed and inner.op_type not in ALWAYS_POSSIBLE:
            return False
    return True


def function_of(node: ir.Node, version: int) -> ir.Function | None:
    """Return ONNX's definition of a node's operator for its types, if there is one.

    Args:
        node: A node of the default domain with inferred types.
        version: Version of the default operator set that the model imports.
    """
    body = _body(node, node.version or version)
    if body is None or not _returns_all(node, body[0]):
        return None
    return _as_function(node, body, version)


def _returns_all(node: ir.Node, body: onnx.FunctionProto) -> bool:
    """Return whether a body computes all outputs that a node has; the body loses the others."""
    del body.output[len(node.outputs) :]
    return {name for inner in body.node for name in inner.output}.issuperset(body.output)


def _as_function(node: ir.Node, body: Body, default: int) -> ir.Function:
    """Return the body as a function that this node alone calls."""
    proto, version = body
    proto.domain, proto.name, proto.overload = node.domain, node.op_type, node.overload
    del proto.opset_import[:]
    proto.opset_import.add(version=default)
    schema = _schema(node.op_type, node.version or default)
    # A default that the body refers to would be missing, since the node does not state it.
    for name, attribute in schema.attributes.items():
        if name in proto.attribute and attribute.default_value.name:
            proto.attribute.remove(name)
            proto.attribute_proto.add().CopyFrom(attribute.default_value)
    function = ir.serde.deserialize_function(proto)
    if version != default:
        for inner in each_node(function):
            inner.version = version
    return function
