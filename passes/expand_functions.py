"""Write operators that the target lacks by the function bodies that ONNX defines for them."""

from __future__ import annotations

from typing import Protocol

import onnx
import onnx_ir as ir
from onnx_ir.passes.common import InlinePass

DEEPEST = 4
"""Levels of function bodies within function bodies that are looked into."""


class Knows(Protocol):
    """What this pass asks of a target."""

    def knows(self, domain: str, op_type: str) -> bool:
        """Return whether the target's table has the operator."""


class ExpandFunctionsPass(ir.passes.InPlacePass):
    """Replace a node by its ONNX function body, with ``onnx_ir``'s inliner.

    1. The target does not know the operator, and onnx defines a body for this version, possibly
       one that depends on the node's attributes and types.
    2. All of the body can run on the target: it knows every operator, or that one has itself a
       body of which it does; constants do not count. Otherwise the node stays whole for the CPU.
    3. Nodes of subgraphs stay: they run on the CPU as they are.
    """

    def __init__(self, target: Knows) -> None:
        """Keep the target that decides."""
        super().__init__()
        self.target = target

    def call(self, model: ir.Model) -> ir.passes.PassResult:
        """Expand."""
        modified = False
        for _ in range(DEEPEST):
            if not self._expand_once(model):
                break
            modified = True
        return ir.passes.PassResult(model, modified=modified)

    def _expand_once(self, model: ir.Model) -> bool:
        version = model.graph.opset_imports.get("", 0)
        bodies: dict[ir.OperatorIdentifier, ir.Function] = {}
        for number, node in enumerate(model.graph):
            if node.domain != "" or self.target.knows(node.domain, node.op_type):
                continue
            body = _body(node, version)
            if body is None or not self._is_worthwhile(body, version, DEEPEST):
                continue
            node.overload = f"samba_onnx_{number}"
            function = _as_function(node, body, version)
            bodies[node.op_identifier()] = function
        if not bodies:
            return False
        others = dict(model.functions)
        model.functions.clear()
        model.functions.update(bodies)
        InlinePass()(model)
        model.functions.clear()
        model.functions.update(others)
        return True

    def _is_worthwhile(self, body: onnx.FunctionProto, version: int, depth: int) -> bool:
        for inner in body.node:
            if inner.op_type == "Constant" or self.target.knows(inner.domain, inner.op_type):
                continue
            if depth == 0 or inner.domain not in ("", "ai.onnx"):
                return False
            nested = _fixed_body(inner.op_type, version)
            if nested is None or not self._is_worthwhile(nested, version, depth - 1):
                return False
        return True


def _schema(op_type: str, version: int) -> onnx.defs.OpSchema | None:
    try:
        return onnx.defs.get_schema(op_type, version, "")
    except onnx.defs.SchemaError:
        return None


def _fixed_body(op_type: str, version: int) -> onnx.FunctionProto | None:
    """Return a body that does not depend on the node."""
    schema = _schema(op_type, version)
    if schema is None or not schema.has_function:
        return None
    return schema.function_body


def _body(node: ir.Node, version: int) -> onnx.FunctionProto | None:
    """Return the body for one node, its types considered, in the model's operator set."""
    schema = _schema(node.op_type, version)
    if schema is None:
        return None
    body: onnx.FunctionProto | None = None
    if schema.has_function:
        body = schema.function_body
    elif schema.has_context_dependent_function:
        body = _context_body(node, schema, version)
    if body is None or not body.node:
        return None
    needed = [item.version for item in body.opset_import if item.domain in ("", "ai.onnx")]
    return body if _fits(body, max(needed, default=version), version) else None


def _context_body(
    node: ir.Node, schema: onnx.defs.OpSchema, version: int
) -> onnx.FunctionProto | None:
    types = []
    for value in node.inputs:
        proto = onnx.TypeProto()
        if value is not None:
            if value.type is None:
                return None
            ir.serde.serialize_type_into(proto, value.type)
            if value.shape is not None:
                ir.serde.serialize_shape_into(proto, value.shape)
        types.append(proto.SerializeToString())
    wanted = [
        known for known in schema.context_dependent_function_opset_versions if known <= version
    ]
    if not wanted:
        return None
    data = schema.get_context_dependent_function_with_opset_version(
        max(wanted), ir.serde.serialize_node(node).SerializeToString(), types
    )
    body = onnx.FunctionProto()
    body.ParseFromString(data)
    return body


def _fits(body: onnx.FunctionProto, written_for: int, version: int) -> bool:
    """Return whether every operator of the body is the same in the model's operator set."""
    for inner in body.node:
        if inner.domain not in ("", "ai.onnx"):
            continue
        old, new = _schema(inner.op_type, written_for), _schema(inner.op_type, version)
        if old is None or new is None:
            return False
        if old.since_version != new.since_version and inner.op_type not in _ONLY_GREW:
            return False
    return True


_ONLY_GREW = frozenset(
    [
        "Abs",
        "Add",
        "And",
        "Cast",
        "CastLike",
        "Ceil",
        "Clip",
        "Concat",
        "Constant",
        "ConstantOfShape",
        "Div",
        "Equal",
        "Erf",
        "Exp",
        "Expand",
        "Flatten",
        "Floor",
        "Gather",
        "Gemm",
        "Greater",
        "GreaterOrEqual",
        "HardSigmoid",
        "Identity",
        "Less",
        "LessOrEqual",
        "Log",
        "MatMul",
        "Max",
        "Min",
        "Mul",
        "Neg",
        "Not",
        "Or",
        "Pow",
        "Range",
        "Reciprocal",
        "Relu",
        "Reshape",
        "Shape",
        "Sigmoid",
        "Size",
        "Slice",
        "Softplus",
        "Sqrt",
        "Sub",
        "Sum",
        "Tanh",
        "Transpose",
        "Where",
    ]
)
"""Operators used by bodies that only grew types since opset 7, for inputs that bodies give them."""


def _as_function(node: ir.Node, body: onnx.FunctionProto, version: int) -> ir.Function:
    """Return the body as a function that this node alone calls."""
    proto = onnx.FunctionProto()
    proto.CopyFrom(body)
    proto.domain, proto.name, proto.overload = node.domain, node.op_type, node.overload
    del proto.opset_import[:]
    proto.opset_import.add(domain="", version=version)
    schema = _schema(node.op_type, version)
    names = [item.name for item in proto.attribute_proto]
    if schema is not None:
        for name, attribute in schema.attributes.items():
            default = attribute.default_value
            if name in names or name not in proto.attribute or not default.name:
                continue
            proto.attribute.remove(name)
            proto.attribute_proto.add().CopyFrom(default)
    return ir.serde.deserialize_function(proto)
