"""Whether a node fits its operator's definition: domain, arity, attributes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import onnx

from samba_onnx.errors import InvalidModelError, ModelLimitError
from samba_onnx.facts.domains import (
    EARLY_OPERATORS,
    MISDEFINED_OPERATORS,
    ML_DOMAIN,
    normal_domain,
)
from samba_onnx.safety.body_checks import check_bodies
from samba_onnx.safety.files import printable
from samba_onnx.safety.limits import Limits
from samba_onnx.safety.operators import Operator, is_retired, operator
from samba_onnx.safety.tensor_checks import (
    ExternalSize,
    check_sparse_tensor,
    check_tensor,
    check_type,
)
from samba_onnx.safety.text_checks import check_pairs, check_text

__all__ = ["FunctionKey", "check_nesting", "check_node", "function_key", "label", "subgraphs"]

FunctionKey = tuple[str, str, str]
"""Domain, name and overload of a model-local function."""

_A = onnx.AttributeProto

_FIELDS: dict[int, str] = {
    _A.FLOAT: "f",
    _A.INT: "i",
    _A.STRING: "s",
    _A.TENSOR: "t",
    _A.GRAPH: "g",
    _A.SPARSE_TENSOR: "sparse_tensor",
    _A.TYPE_PROTO: "tp",
    _A.FLOATS: "floats",
    _A.INTS: "ints",
    _A.STRINGS: "strings",
    _A.TENSORS: "tensors",
    _A.GRAPHS: "graphs",
    _A.SPARSE_TENSORS: "sparse_tensors",
    _A.TYPE_PROTOS: "type_protos",
}
_ALL_FIELDS = frozenset(_FIELDS.values())
# Types of attributes without further structure, of which most attributes are.
_PLAIN = frozenset({_A.FLOAT, _A.INT, _A.STRING, _A.FLOATS, _A.INTS, _A.STRINGS})


def label(node: onnx.NodeProto, index: int, where: str) -> str:
    """Return how messages name a node: by its name, or by its place if it has none."""
    kind = printable(node.op_type, 60)
    inside = "" if where == "graph" else f"{where}, "
    if node.name:
        return f"{inside}node {printable(node.name)!r} ({kind})"
    return f"{inside}node number {index} ({kind})"


def function_key(node: onnx.NodeProto) -> FunctionKey:
    """Return the key of the model-local function that ``node`` would call."""
    return (normal_domain(node.domain), node.op_type, node.overload)


def subgraphs(node: onnx.NodeProto) -> Iterator[tuple[str, onnx.GraphProto]]:
    """Yield the subgraphs of a node, each with the name of its attribute."""
    for attribute in node.attribute:
        if attribute.type == _A.GRAPH:
            yield attribute.name, attribute.g
        elif attribute.type == _A.GRAPHS:
            for graph in attribute.graphs:
                yield attribute.name, graph


def check_nesting(depth: int, where: str, limits: Limits) -> None:
    """Refuse subgraphs inside subgraphs beyond the limit.

    Raises:
        ModelLimitError: ``depth`` is beyond the limit.
    """
    if depth > limits.nesting:
        raise ModelLimitError(
            f"{where[-120:]}: subgraphs nested more than {limits.nesting} deep are not safe"
        )


def check_node(
    node: onnx.NodeProto,
    opsets: Mapping[str, int],
    functions: Mapping[FunctionKey, onnx.FunctionProto],
    limits: Limits,
    external_size: ExternalSize | None,
    *,
    in_function: bool,
) -> None:
    """Check a node against its operator's definition; its subgraphs are checked elsewhere.

    Args:
        node: The node.
        opsets: The imported version of each domain.
        functions: The model's own functions.
        limits: Bounds on tensors in attributes.
        external_size: Sizes of external files, for tensors in attributes.
        in_function: Whether attributes may refer to those of a function.

    Raises:
        InvalidModelError: The node does not fit the definition.
        ModelLimitError: A tensor in an attribute is beyond ``limits``.
    """
    check_text((node.name, node.op_type, node.domain, node.overload, node.doc_string), "itself")
    check_text(node.input, "an input")
    check_pairs(node.metadata_props, "its metadata")
    if not node.op_type:
        raise InvalidModelError("it names no operator")
    domain = normal_domain(node.domain)
    names = [attribute.name for attribute in node.attribute]
    check_text(names, "an attribute")
    if len(set(names)) < len(names) or "" in names:
        raise InvalidModelError("two of its attributes have one name, or one has none")
    definition = None
    function = functions.get(function_key(node))
    if function is not None:
        _check_call(node, function)
    else:
        definition = _definition(node, domain, opsets)
    if definition is not None:
        _check_arity(node, definition)
    for attribute in node.attribute:
        _check_attribute(attribute, definition, in_function)
        if attribute.type not in _PLAIN:
            _check_content(attribute, limits, external_size)
    if definition is not None and not definition.required.issubset(names):
        missing = sorted(definition.required.difference(names))
        raise InvalidModelError(f"it lacks attribute {missing[0]!r}")
    if definition is not None and domain == "":
        check_bodies(node, opsets[""])


def _definition(node: onnx.NodeProto, domain: str, opsets: Mapping[str, int]) -> Operator | None:
    """Return the operator's definition; None where onnx can have none."""
    if domain not in opsets:
        raise InvalidModelError(
            f"the model does not import operator set {printable(domain or 'ai.onnx')!r}"
        )
    definition = operator(node.op_type, domain, opsets[domain])
    if definition is None:
        # Operators that onnxruntime runs although this version of ONNX lacks or retired them.
        early = domain == "" and node.op_type in EARLY_OPERATORS
        if domain in {"", ML_DOMAIN} and not early and not is_retired(node.op_type, domain):
            raise InvalidModelError(
                f"version {opsets[domain]} of operator set {domain or 'ai.onnx'} has no operator "
                f"{printable(node.op_type, 60)!r}"
            )
    elif definition.deprecated and node.op_type not in MISDEFINED_OPERATORS:
        raise InvalidModelError(
            f"the operator is no longer part of version {opsets[domain]} of its operator set"
        )
    return definition


def _check_call(node: onnx.NodeProto, function: onnx.FunctionProto) -> None:
    if len(node.input) > len(function.input) or len(node.output) > len(function.output):
        raise InvalidModelError(
            f"it has {len(node.input)} inputs and {len(node.output)} outputs, but the function "
            f"has {len(function.input)} and {len(function.output)}"
        )


def _check_arity(node: onnx.NodeProto, definition: Operator) -> None:
    for word, number, (fewest, most) in (
        ("inputs", len(node.input), definition.inputs),
        ("outputs", len(node.output), definition.outputs),
    ):
        if not fewest <= number <= most:
            expected = f"{fewest}" if fewest == most else f"{fewest} to {most}"
            raise InvalidModelError(f"it has {number} {word}, the operator takes {expected}")
    for position, (name, needed) in enumerate(zip(node.input, definition.needed, strict=False)):
        if needed and not name:
            raise InvalidModelError(f"input {position} is left out, but the operator needs it")


def _check_attribute(
    attribute: onnx.AttributeProto, definition: Operator | None, in_function: bool
) -> None:
    """Check that an attribute is known, has the right type, and holds that type's field only."""
    name = attribute.name
    kind = attribute.type
    if definition is not None:
        expected = definition.attributes.get(name)
        if expected is None:
            raise InvalidModelError(f"the operator has no attribute {printable(name, 60)!r}")
        if kind != expected:
            raise InvalidModelError(
                f"attribute {name!r} has type {kind}, the operator takes {expected}"
            )
    check_text((attribute.ref_attr_name, attribute.doc_string), f"attribute {name!r}")
    field = _FIELDS.get(kind)
    if field is None:
        raise InvalidModelError(f"attribute {printable(name, 60)!r} has no known type")
    if attribute.ref_attr_name and not in_function:
        raise InvalidModelError(
            f"attribute {printable(name, 60)!r} refers to a function's, outside of a function"
        )
    # Protobuf can hold several fields at once, and readers differ in which one they take.
    filled = {entry[0].name for entry in attribute.ListFields()} & _ALL_FIELDS
    if filled - {field}:
        raise InvalidModelError(
            f"attribute {printable(name, 60)!r} holds {sorted(filled)}, expected {field!r} only"
        )
    # A number may be zero and look empty; these have no such value.
    structured = kind in {_A.GRAPH, _A.TENSOR, _A.SPARSE_TENSOR}
    if structured and not filled and not attribute.ref_attr_name:
        raise InvalidModelError(f"attribute {printable(name, 60)!r} is empty")


def _check_content(
    attribute: onnx.AttributeProto, limits: Limits, external_size: ExternalSize | None
) -> None:
    """Check tensors and types inside an attribute."""
    where = f"attribute {printable(attribute.name, 60)!r}"
    if attribute.type in {_A.TENSOR, _A.TENSORS}:
        tensors = [attribute.t] if attribute.type == _A.TENSOR else attribute.tensors
        if not attribute.ref_attr_name:
            for tensor in tensors:
                check_tensor(tensor, where, limits, external_size)
    elif attribute.type in {_A.SPARSE_TENSOR, _A.SPARSE_TENSORS}:
        several = attribute.type == _A.SPARSE_TENSORS
        for sparse in attribute.sparse_tensors if several else [attribute.sparse_tensor]:
            check_sparse_tensor(sparse, where, limits)
    elif attribute.type in {_A.TYPE_PROTO, _A.TYPE_PROTOS}:
        several = attribute.type == _A.TYPE_PROTOS
        for declared in attribute.type_protos if several else [attribute.tp]:
            check_type(declared, where, limits)
