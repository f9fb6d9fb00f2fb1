"""Operators that onnxruntime has no kernel for, computed by the body that ONNX defines for them.

onnxruntime takes such a body itself, but only in a model of just the operator set that the body is written for,
18 for most: a stage is of another one. Which types it has kernels for it says nowhere, so it is a table.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Final

import numpy as np
import onnx

from samba_onnx.facts.domains import is_default
from samba_onnx.runtime.engine.lowerings.graph_view import element_types
from samba_onnx.runtime.engine.lowerings.nodes import Nodes, all_nodes, default_version

_T: Final = onnx.TensorProto
_DOUBLE: Final = frozenset({_T.DOUBLE})
_ALL_FLOATS: Final = frozenset({_T.FLOAT, _T.DOUBLE, _T.FLOAT16, _T.BFLOAT16})
_OLDEST: Final = 18
"""Operator set of the oldest bodies; their nodes mean the same in all newer ones."""

BODIES: Final[Mapping[str, frozenset[int]]] = MappingProxyType(
    {
        **dict.fromkeys(
            (
                "Elu",
                "HardSigmoid",
                "HardSwish",
                "LeakyRelu",
                "Mish",
                "PRelu",
                "Selu",
                "Softplus",
                "Softsign",
                "ThresholdedRelu",
            ),
            _DOUBLE,
        ),
        "Swish": _ALL_FLOATS,
        "SwiGLU": _ALL_FLOATS,
    }
)
"""By operator the types for which onnxruntime 1.31 lacks a kernel. Not here are those whose body needs an
operator that it lacks for the type, too, as Gelu in double needs Erf."""
REMAINDER: Final = "Mod"
"""It has no body, and in onnxruntime none of the sign of the divisor for floats, which ONNX has from version 28 on."""


def expand_function_bodies(model: onnx.ModelProto) -> dict[str, str]:
    """Write nodes as the bodies of their operators.

    1. It is a node of the default domain in the table, in the main graph or in a subgraph.
    2. The type of its operand is declared, and one of those that its row names.
    3. The model is of an operator set that the bodies can be written in.
    4. A Mod of floats that has the sign of the divisor is one with the sign of the dividend, corrected.

    Args:
        model: Is changed in place.

    Returns:
        Why nodes of the table's operators stay what they are though their kernel may be missing, by
        the name of their result.
    """
    reasons: dict[str, str] = {}
    version = default_version(model)
    known = {*BODIES, REMAINDER}
    if any(node.op_type in known for node in all_nodes(model.graph)):
        _expand(model.graph, {}, version, reasons)
    return reasons


def _expand(
    graph: onnx.GraphProto, outer: Mapping[str, int], version: int, reasons: dict[str, str]
) -> None:
    types = {**outer, **element_types(graph)}
    nodes: list[onnx.NodeProto] = []
    for node in graph.node:
        for attribute in node.attribute:
            for inner in (attribute.g, *attribute.graphs):
                if inner.node:
                    _expand(inner, types, version, reasons)
        nodes += _written(node, types, version, reasons)
    del graph.node[:]
    graph.node.extend(nodes)


def _written(
    node: onnx.NodeProto, types: Mapping[str, int], version: int, reasons: dict[str, str]
) -> Iterator[onnx.NodeProto]:
    """Yield the nodes that take the place of one; itself, where none do."""
    if not is_default(node.domain) or node.op_type not in {*BODIES, REMAINDER}:
        yield node
        return
    dtype = types.get(node.input[0], 0)
    # Case 4.
    if node.op_type == REMAINDER:
        if dtype in _ALL_FLOATS and not any(a.name == "fmod" and a.i for a in node.attribute):
            yield from _remainder(node, dtype)
        else:
            yield node
        return
    # Case 2.
    if not dtype:
        reasons[node.output[0]] = "the type of its operand is not declared"
    if dtype not in BODIES[node.op_type]:
        yield node
        return
    # Case 3.
    if version < _OLDEST:
        reasons[node.output[0]] = f"the model is of operator set {version}, its body of {_OLDEST}"
        yield node
        return
    for inner in _body(node, dtype, version):
        # A body may use another operator of the table.
        yield from _written(inner, {**types, **dict.fromkeys(inner.input, dtype)}, version, reasons)


def _body(node: onnx.NodeProto, dtype: int, version: int) -> Iterator[onnx.NodeProto]:
    """Yield the nodes of an operator's body with the names and attributes of one node."""
    schema = onnx.defs.get_schema(node.op_type, version)
    body = schema.function_body
    result = node.output[0]
    names = {**dict(zip(body.input, node.input, strict=False)), **dict(zip(body.output, node.output, strict=False))}  # fmt: skip
    stated = {attribute.name: attribute for attribute in node.attribute}
    for attribute_name, attribute in schema.attributes.items():
        if attribute.default_value.name:
            stated.setdefault(attribute_name, attribute.default_value)
    for inner in body.node:
        copy = onnx.NodeProto()
        copy.CopyFrom(inner)
        for place, name in enumerate(inner.input):
            copy.input[place] = names.get(name, f"{result}.{name}")
        for place, name in enumerate(inner.output):
            copy.output[place] = names.get(name, f"{result}.{name}")
        copy.name = copy.output[0]
        del copy.attribute[:]
        for attribute in inner.attribute:
            value = stated.get(attribute.ref_attr_name) if attribute.ref_attr_name else attribute
            if value is not None:
                copy.attribute.add().CopyFrom(value)
                copy.attribute[-1].name = attribute.name
        if copy.op_type == "CastLike":  # everything that a body casts to is of the operand's type
            copy.op_type = "Cast"
            del copy.input[1:]
            copy.attribute.append(onnx.helper.make_attribute("to", dtype))
        yield copy


def _remainder(node: onnx.NodeProto, dtype: int) -> Iterator[onnx.NodeProto]:
    """Yield Mod with the sign of the divisor, as numpy's ``mod`` has it, zeros included."""
    dividend, divisor = node.input
    build = Nodes(node.output[0])
    zero = build.constant(np.zeros((), np.float32))
    zero = build.make("Cast", [zero], to=dtype)
    rest = build.make("Mod", [dividend, divisor], fmod=1)
    is_below = build.make("Less", [divisor, zero])
    remains = build.make("Not", [build.make("Equal", [rest, zero])])
    differs = build.make("Xor", [build.make("Less", [rest, zero]), is_below])
    differs = build.make("And", [differs, remains])
    corrected = build.make("Where", [differs, build.make("Add", [rest, divisor]), rest])
    # onnxruntime's Where adds its two sides up, in which a negative zero is lost.
    one = build.make("Cast", [build.constant(np.ones((), np.float32))], to=dtype)
    sign = build.make("Where", [is_below, build.make("Neg", [one]), one])
    build.make("Mul", [build.make("Abs", [corrected]), sign], result=node.output[0])
    yield from build.nodes
