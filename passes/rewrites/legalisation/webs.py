"""Webs of values of one type, and how they are computed in a narrower one, with Casts at their borders.

A node's operands and results of one type variable change their type together, or not at all. A web is made of such
groups of places, joined by the values that stand there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final

import onnx
import onnx_ir as ir

from samba_onnx.facts.dtypes import tensor_text
from samba_onnx.passes.rewrites.refusals import Refusal
from samba_onnx.passes.rewrites.rewriting import (
    WEIGHT,
    add_constant,
    add_initializer,
    constant,
    inherit,
)
from samba_onnx.program.dataflow import subgraphs
from samba_onnx.program.intervals import Interval

_TYPED: Final = {"Cast": "to", "ConstantOfShape": "value", "EyeLike": "dtype"}
"""Operators that state the type of their result, and by what."""
_KEPT: Final = frozenset({"OneHot"})
"""Operators of which runtimes have kernels for some combinations of types only."""
_LIKE: Final = frozenset({"Bernoulli", "EyeLike", "RandomNormalLike", "RandomUniformLike"})
"""Operators whose result has the type of their operand, unless they state one."""
_STATEMENTS: Final = frozenset({"dtype", "output_datatype", "output_dtype", "to", "value"})


@dataclass(frozen=True)
class Narrowing:
    """A type that values have, and the one that they are to have."""

    wide: ir.DataType
    narrow: ir.DataType
    fits: Callable[[ir.Value], bool]
    """Whether all elements of a value are numbers of the narrow type, or are rounded to it anyway."""
    reason: Callable[[ir.Value], str]
    """Why a value does not fit."""
    legal: Mapping[ir.Value, Interval] = field(default_factory=lambda: MappingProxyType({}))
    """Inputs that fit since a node would stop with an error otherwise."""


@dataclass(frozen=True)
class WebEnd:
    """One operand or result of a node, by its position."""

    node: ir.Node
    position: int
    is_output: bool

    @property
    def value(self) -> ir.Value:
        """The value of the operand or result."""
        value = (self.node.outputs if self.is_output else self.node.inputs)[self.position]
        assert value is not None, "places without values are no ends"
        return value


@dataclass(frozen=True)
class Web:
    """Places where values become narrow."""

    narrowing: Narrowing
    ends: tuple[WebEnd, ...]

    @property
    def nodes(self) -> tuple[ir.Node, ...]:
        """The nodes that have such places, each once."""
        return tuple(dict.fromkeys(end.node for end in self.ends))

    @property
    def computed(self) -> tuple[ir.Value, ...]:
        """The values that become narrow where they are computed, each once."""
        return tuple(dict.fromkeys(end.value for end in self.ends if end.is_output))

    @property
    def entering(self) -> tuple[ir.Value, ...]:
        """The values that nodes read narrow and that are computed wide, or constants, each once."""
        own = set(self.computed)
        read = (end.value for end in self.ends if not end.is_output)
        return tuple(dict.fromkeys(value for value in read if value not in own))

    def outside(self, value: ir.Value) -> list[tuple[ir.Node, int]]:
        """Return the readers of a value, with the position of their operand, that read it wide."""
        own = {(end.node, end.position) for end in self.ends if not end.is_output}
        return [(node, position) for node, position in value.uses() if (node, position) not in own]

    @property
    def has_border(self) -> bool:
        """Whether it takes a Cast to enter or to leave it."""
        leaves = (v.is_graph_output() or self.outside(v) for v in self.computed)
        return any(leaves) or any(constant(value) is None for value in self.entering)


def groups(node: ir.Node, kinds: Narrowing, version: int) -> Iterator[tuple[WebEnd, ...]]:
    """Yield the places at a node whose types change together.

    Args:
        node: A node of the default domain.
        kinds: Only places of values of its wide type are looked at, where the operator takes its narrow one.
        version: Version of the default operator set.

    Yields:
        Places of one type variable each.
    """
    # A body may use a value in any way, which would have to be narrow, too.
    if node.domain or node.op_type in _KEPT or next(subgraphs(node), None) is not None:
        return
    try:
        schema = onnx.defs.get_schema(node.op_type, node.version or version)
    except onnx.defs.SchemaError:
        return
    type_name = tensor_text(kinds.narrow.name)
    # Type variables that the narrow type is allowed for: others keep their values wide, at the same
    # node.
    variables = {
        constraint.type_param_str
        for constraint in schema.type_constraints
        if type_name in constraint.allowed_type_strs
    }
    # The result takes its type from the operand unasked, so that a narrow operand would change it
    # behind a web's back.
    if node.op_type in _LIKE and "dtype" not in node.attributes:
        return
    if not _STATEMENTS.isdisjoint(node.attributes) and node.op_type not in _TYPED:
        return  # it states a type by an attribute that nobody knows here
    together: dict[str, list[WebEnd]] = {}
    for is_output, values, formal in (
        (False, node.inputs, schema.inputs),
        (True, node.outputs, schema.outputs),
    ):
        for position, value in enumerate(values):
            # The last formal operand stands for all further ones of a variadic operator.
            kind = formal[min(position, len(formal) - 1)].type_str
            if value is not None and value.dtype is kinds.wide and kind in variables:
                together.setdefault(kind, []).append(WebEnd(node, position, is_output))
    yield from map(tuple, together.values())


def webs(graph: ir.Graph, narrowing: Narrowing) -> tuple[Web, ...]:
    """Return the webs of a graph whose values fit into the narrow type.

    Args:
        graph: The main graph, with types.
        narrowing: The types, and which values fit.

    Returns:
        In the order of their first nodes.
    """
    version = graph.opset_imports.get("", 0)
    narrow = [
        ends
        for node in graph
        for ends in groups(node, narrowing, version)
        if all(narrowing.fits(end.value) for end in ends)
    ]
    if not narrow:
        return ()
    # Only where something is narrowed, for it takes a while to load.
    import networkx

    # Groups and values are the two sides of a graph, whose connected parts are webs. Constants join
    # none: each web may have a copy in its own type.
    joined: networkx.Graph[object] = networkx.Graph()
    joined.add_nodes_from(range(len(narrow)))
    for number, ends in enumerate(narrow):
        joined.add_edges_from((number, s.value) for s in ends if constant(s.value) is None)
    parts = [
        sorted(item for item in part if isinstance(item, int))
        for part in networkx.connected_components(joined)
    ]
    # Sorted by the first group, so that the same model always gives the same webs in the same
    # order.
    return tuple(
        Web(narrowing, tuple(end for number in part for end in narrow[number]))
        for part in sorted(parts)
    )


def misfit(node: ir.Node, narrowing: Narrowing, version: int) -> Refusal | None:
    """Return why a node keeps the wide type; None if nothing keeps it from the narrow one."""
    for ends in groups(node, narrowing, version):
        for end in ends:
            if not narrowing.fits(end.value):
                return Refusal(narrowing.reason(end.value))
    return None


def narrow(model: ir.Model, web: Web) -> None:
    """Let a web compute in the narrow type.

    Args:
        model: The model; its interface stays what it is.
        web: One of its main graph.
    """
    kinds, computed = web.narrowing, web.computed
    # Readers are remembered before any operand is replaced, when uses still say who reads what.
    outside = {value: web.outside(value) for value in computed}
    inside = [end for end in web.ends if not end.is_output]
    twins = {value: _entered(model, value, kinds) for value in web.entering}
    for end in inside:
        if end.value in twins:
            end.node.replace_input_with(end.position, twins[end.value])
    for value in computed:
        value.type = ir.TensorType(kinds.narrow)
        _state(value, kinds.narrow)
        if outside[value] or value.is_graph_output():
            _leave(model.graph, value, outside[value], kinds.wide)


def _state(value: ir.Value, dtype: ir.DataType) -> None:
    """Let the node that computes a value state its type, if it states one."""
    node = value.producer()
    name = None if node is None else _TYPED.get(node.op_type)
    if node is None or name is None or name not in node.attributes:
        return
    if name == "value":
        array = node.attributes[name].as_tensor().numpy()
        node.attributes[name] = ir.AttrTensor(name, ir.tensor(array.astype(dtype.numpy())))
    else:
        node.attributes[name] = ir.AttrInt64(name, int(dtype))


def _entered(model: ir.Model, value: ir.Value, kinds: Narrowing) -> ir.Value:
    """Return a value in the narrow type, by a constant or a Cast behind it."""
    tensor = constant(value)
    if tensor is not None:
        array = tensor.numpy().astype(kinds.narrow.numpy())
        weight = bool(value.meta.get(WEIGHT))
        name = f"{value.name}_{kinds.narrow.name.lower()}"
        # A narrow copy of a weight is a weight: training and reports look for the mark.
        return add_initializer(model, name, ir.tensor(array), weight=weight)
    source, nodes = value, []
    if value in kinds.legal:
        nodes = _guard(model, value, kinds.legal[value])
        source = nodes[-1].outputs[0]
    nodes.append(_cast(source, kinds.narrow))
    nodes[-1].outputs[0].shape = value.shape
    producer = value.producer()
    if producer is None:
        # An input of the graph is there before the first node.
        model.graph.insert_before(model.graph[0], nodes)
    else:
        inherit(nodes, producer)
        model.graph.insert_after(producer, nodes)
    return nodes[-1].outputs[0]


def _guard(model: ir.Model, value: ir.Value, legal: Interval) -> list[ir.Node]:
    """Write nodes that put one illegal number in the place of all illegal ones, which the narrow type may lack.

    A model that would have stopped with an error must stop, and not go on with the low bits of a number.
    """
    assert value.dtype is not None
    kind, name = value.dtype.numpy(), value.name
    ends = [
        add_constant(model, f"{name}_{what}", kind.type(number))
        # One beyond the last legal number is illegal in the narrow type, too.
        for what, number in (("least", legal.low), ("most", legal.high), ("beyond", legal.high + 1))
    ]
    least, most, beyond = ends
    above = ir.node("GreaterOrEqual", [value, least])
    below = ir.node("LessOrEqual", [value, most])
    both = ir.node("And", [above.outputs[0], below.outputs[0]])
    chosen = ir.node("Where", [both.outputs[0], value, beyond])
    for node in (above, below, both):
        node.outputs[0].type = ir.TensorType(ir.DataType.BOOL)
        node.outputs[0].shape = value.shape
    chosen.outputs[0].type, chosen.outputs[0].shape = value.type, value.shape
    return [above, below, both, chosen]


def _leave(
    graph: ir.Graph, value: ir.Value, readers: list[tuple[ir.Node, int]], wide: ir.DataType
) -> None:
    """Write the Cast by which readers outside of a web, and the graph's outputs, have a value in the wide type."""
    node = _cast(value, wide)
    result = node.outputs[0]
    result.shape = value.shape
    for reader, position in readers:
        reader.replace_input_with(position, result)
    if value.is_graph_output():
        # The interface keeps its names: the wide value behind the Cast is the output now.
        result.name, value.name = value.name, f"{value.name}_narrow"
        for position, output in enumerate(graph.outputs):
            if output is value:
                graph.outputs[position] = result
    producer = value.producer()
    assert producer is not None, "a web computes what it leaves"
    inherit([node], producer)
    graph.insert_after(producer, [node])


def _cast(value: ir.Value, dtype: ir.DataType) -> ir.Node:
    node = ir.node("Cast", [value], {"to": int(dtype)})
    node.outputs[0].type = ir.TensorType(dtype)
    return node
