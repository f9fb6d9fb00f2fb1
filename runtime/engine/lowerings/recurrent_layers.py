"""Bodies that are steps of an LSTM, GRU or RNN, handed to onnxruntime's kernels of these.

A section repeats a body step by step, which onnxruntime does, too, with a dozen kernels a step: 1.4 to 14 times as long
as its own LSTM takes for all of it. Where a body is exactly a step of such a layer, and what it reads step by step is
the product of an input with weights, the layer computes the same from that input.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import onnx

from samba_onnx.runtime.engine.lowerings.graph_view import GraphView, is_operator, remove_unread
from samba_onnx.runtime.engine.lowerings.nodes import Nodes, default_version
from samba_onnx.runtime.engine.lowerings.step_expressions import (
    Bindings,
    Expression,
    any_value,
    body_expressions,
    matches,
    op,
    piece,
)

_OLDEST: Final = 13
"""Version from which sizes of Split and axes of Squeeze are operands."""

_HIDDEN: Final[Expression] = ("input", 0)
_CELL: Final[Expression] = ("input", 1)


@dataclass(frozen=True)
class _Layer:
    """A recurrent layer as a body of it is written."""

    operator: str
    gates: int
    states: tuple[Expression, ...]
    """What a step returns as its next states, hidden state first; what is not known of it is bound by name."""
    weights: tuple[str, ...]
    """Names of the weights of the recurrence in it, side by side in the order of the gates."""
    late_bias: bool = False
    """Whether the bias of the last gate's recurrence is added in the step."""
    attributes: Mapping[str, Any] = field(default_factory=dict)


def lower_recurrent_layers(model: onnx.ModelProto) -> dict[str, str]:
    """Hand repeated bodies that are steps of recurrent layers to kernels of these.

    1. A Scan of the main graph whose body returns the states of an LSTM, GRU or RNN with ONNX's own activations, and
       the hidden state of every step, if anything of all steps; in one direction for all that it reads and writes.
    2. It reads one value step by step, in float32: a product with weights, with or without a bias, or a piece of one.
    3. If another one, then whether the step is within each sequence, of lengths that are known at run time: states stay
       behind its end, and what a step adds to the value of all steps is zero there.

    Args:
        model: Is changed in place.

    Returns:
        Why Scans stay what they are, by the name of their first result.
    """
    reasons: dict[str, str] = {}
    graph = model.graph
    scans = [node for node in graph.node if is_operator(node, "Scan")]
    if not scans or default_version(model) < _OLDEST:
        return reasons
    view = GraphView(graph)
    replaced: dict[int, list[onnx.NodeProto]] = {}
    for node in scans:
        made = _lowered(node, view)
        if isinstance(made, str):
            reasons[node.output[0]] = made
        else:
            replaced[id(node)] = made
    if replaced:
        _replace(graph, replaced)
    return reasons


def _replace(graph: onnx.GraphProto, replaced: Mapping[int, Sequence[onnx.NodeProto]]) -> None:
    """Put layers in the place of Scans, and drop what only these read."""
    nodes: list[onnx.NodeProto] = []
    unread: list[str] = []
    for node in graph.node:
        made = replaced.get(id(node))
        nodes.extend([node] if made is None else made)
        unread.extend([] if made is None else node.input)
    del graph.node[:]
    graph.node.extend(nodes)
    remove_unread(graph, unread)


def _lowered(node: onnx.NodeProto, view: GraphView) -> list[onnx.NodeProto] | str:
    """Return the nodes that take the place of a Scan; why none do, in words."""
    attributes = {attribute.name: attribute for attribute in node.attribute}
    body = attributes["body"].g
    count = attributes["num_scan_inputs"].i
    states = len(node.input) - count
    # Case 1.
    if not 0 < count <= 2 or not 0 < states <= 2 or len(node.output) - states > 1:
        return "its steps read or write more than a recurrent layer does"
    ways = {way for name in _DIRECTIONS if name in attributes for way in attributes[name].ints}
    given = [name for name in _DIRECTIONS if name in attributes and attributes[name].ints]
    stacks = len(node.output) - states
    if len(ways) > 1 or (ways == {1} and len(given) < 1 + stacks):
        return "it reads and writes in different directions"
    if any(any(attributes[name].ints) for name in _AXES if name in attributes):
        return "it reads or writes along another axis than the first"
    shape = view.shapes.get(node.input[states], ())
    state = view.shapes.get(node.input[0], ())
    if len(shape) != 3 or len(state) != 2:
        return "shapes of what it reads are not known"
    found = _layer(body, view, states, state[1], shape[2])
    if found is None:
        return "its body is no step of a layer that onnxruntime has"
    # Case 2.
    source = _source(node.input[states], view)
    if source is None or view.types.get(node.input[states]) != onnx.TensorProto.FLOAT:
        return "what it reads step by step is no product with weights in float32"
    # Case 3.
    lengths = _lengths(node.input[-1], view, shape[0]) if count == 2 else ""
    if lengths is None:
        return "what its steps do not compute does not follow from lengths of sequences"
    sizes = (state[1], shape[2])
    return _written(node, *found, source, lengths, sizes=sizes, backwards=ways == {1})


_DIRECTIONS: Final = ("scan_input_directions", "scan_output_directions")
_AXES: Final = ("scan_input_axes", "scan_output_axes")


def _layer(
    body: onnx.GraphProto, view: GraphView, states: int, hidden: int, width: int
) -> tuple[_Layer, Bindings] | None:
    """Return the layer whose step a body is, with what it reads from outside."""
    outputs = body_expressions(body, view)
    if outputs is not None and len(body.input) > states + 1:
        outputs = _within_sequences(outputs, states)
    if outputs is None or any(value != outputs[0] for value in outputs[states:]):
        return None
    for layer in _layers(hidden):
        bound: Bindings | None = {}
        if len(layer.states) != states or layer.gates * hidden != width:
            continue
        for pattern, value in zip(layer.states, outputs[:states], strict=True):
            bound = None if bound is None else matches(pattern, value, bound)
        if bound is not None:
            return layer, bound
    return None


def _within_sequences(outputs: Sequence[Expression], states: int) -> list[Expression] | None:
    """Return what a step computes within a sequence; None where it does not keep to the ends of sequences (case 3)."""
    is_inside: Expression = ("input", states + 1)
    inner: list[Expression] = []
    for place, value in enumerate(outputs):
        behind: Expression = ("input", place) if place < states else ("number", 0.0)
        if value[0] != "Where" or value[1] != is_inside or value[3] != behind:
            return None
        inner.append(value[2])
    return inner


def _lengths(mask: str, view: GraphView, steps: int) -> str | None:
    """Return the lengths of sequences by which a mask says whether a step is within each."""
    comparison = view.maker(mask, "Greater")
    column = None if comparison is None else view.maker(comparison.input[0], "Unsqueeze")
    if comparison is None or column is None or view.integers(column.input[1]) != [1]:
        return None
    numbers = comparison.input[1]
    if view.shapes.get(numbers) != (steps, 1, 1) or view.integers(numbers) != list(range(steps)):
        return None
    is_vector = len(view.shapes.get(column.input[0], ())) == 1
    is_int32 = view.types.get(column.input[0]) == onnx.TensorProto.INT32
    return column.input[0] if is_vector and is_int32 else None


def _layers(hidden: int) -> list[_Layer]:
    """Return all layers of a size, as their steps are written."""
    return [_lstm(hidden), *_grus(hidden), _rnn("Tanh"), _rnn("Relu")]


def _rnn(activation: str) -> _Layer:
    total = op("Add", ("input", 1), op("MatMul", _HIDDEN, any_value("weights")))
    names = {"activations": [activation]}
    return _Layer("RNN", 1, (op(activation, total),), ("weights",), attributes=names)


def _lstm(hidden: int) -> _Layer:
    total = op("Add", ("input", 2), op("MatMul", _HIDDEN, any_value("weights")))
    three = (hidden,) * 3
    gates = op("Sigmoid", piece(total, 0, (3 * hidden, hidden)))
    taken, shown, kept = (piece(gates, place, three) for place in range(3))
    candidate = op("Tanh", piece(total, 1, (3 * hidden, hidden)))
    cell = op("Add", op("Mul", kept, _CELL), op("Mul", taken, candidate))
    return _Layer("LSTM", 4, (op("Mul", shown, op("Tanh", cell)), cell), ("weights",))


def _grus(hidden: int) -> list[_Layer]:
    """Return both GRUs: with the reset before the product, or after it, with and without a bias there."""
    parts, pair = (2 * hidden, hidden), (hidden, hidden)
    read: Expression = ("input", 1)
    recurrent = op("MatMul", _HIDDEN, any_value("gates"))
    gates = op("Sigmoid", op("Add", piece(read, 0, parts), recurrent))
    update, reset = piece(gates, 0, pair), piece(gates, 1, pair)
    plain = op("MatMul", _HIDDEN, any_value("candidate"))
    forms = [
        (op("MatMul", op("Mul", reset, _HIDDEN), any_value("candidate")), 0, False),
        (op("Mul", reset, plain), 1, False),
        (op("Mul", reset, op("Add", plain, any_value("bias"))), 1, True),
    ]
    layers = []
    for contribution, after, late in forms:
        candidate = op("Tanh", op("Add", piece(read, 1, parts), contribution))
        fresh = op("Mul", op("Sub", ("number", 1.0), update), candidate)
        state = op("Add", fresh, op("Mul", update, _HIDDEN))
        names = {"linear_before_reset": after}
        layers.append(_Layer("GRU", 3, (state,), ("gates", "candidate"), late, names))
    return layers


@dataclass(frozen=True)
class _Source:
    """What a value of all steps is the product of."""

    value: str
    weights: str
    bias: str
    """Empty where there is none."""
    columns: tuple[int, int] | None = None
    """Which columns of weights and bias it takes; None for all of them."""


def _source(name: str, view: GraphView) -> _Source | None:
    """Return the input, weights and bias that a value comes from."""
    columns = None
    split = view.maker(name, "Split")
    if split is not None:
        # Products of one input with several weights are one product.
        sizes = view.integers(split.input[1]) if len(split.input) > 1 else None
        axis = next((item.i for item in split.attribute if item.name == "axis"), 0)
        if sizes is None or axis not in (2, -1):
            return None
        place = list(split.output).index(name)
        columns = (sum(sizes[:place]), sum(sizes[: place + 1]))
        name = split.input[0]
    bias, addition = "", view.maker(name, "Add")
    if addition is not None:
        # The product is the operand of three dimensions.
        ranks = [len(view.shapes.get(operand, ())) for operand in addition.input]
        if sorted(ranks) != [1, 3]:
            return None
        name, bias = addition.input[ranks.index(3)], addition.input[ranks.index(1)]
    product = view.maker(name, "MatMul")
    if product is None:
        return None
    value, weights = product.input
    if len(view.shapes.get(value, ())) != 3 or len(view.shapes.get(weights, ())) != 2:
        return None
    return _Source(value, weights, bias, columns)


def _written(
    node: onnx.NodeProto,
    layer: _Layer,
    bound: Bindings,
    source: _Source,
    lengths: str,
    *,
    sizes: tuple[int, int],
    backwards: bool,
) -> list[onnx.NodeProto]:
    """Return a layer with what it reads and returns brought into the form of its operator.

    Args:
        node: The Scan.
        layer: What its body is a step of.
        bound: What the body reads from outside.
        source: What it reads step by step.
        lengths: The lengths of sequences; empty where all are as long as there are steps.
        sizes: Elements of the hidden state, and of all gates.
        backwards: Whether it begins at the end of the sequence.
    """
    build, (hidden, width) = Nodes(f"{node.output[0]}.layer"), sizes
    states = len(layer.states)
    names = [f"{node.output[0]}.layer.{name}" for name in ("all", "hidden", "cell")]
    first = build.integers(0)
    operands = _operands(build, layer, bound, source, hidden, width)
    # ONNX's layers have an axis of directions in front, which a Scan has not.
    begins = [build.make("Unsqueeze", [name, first]) for name in node.input[:states]]
    build.nodes.append(
        onnx.helper.make_node(
            layer.operator,
            [source.value, *operands, lengths, *begins],
            names[: 1 + states],
            name=f"{node.output[0]}.layer",
            hidden_size=hidden,
            direction="reverse" if backwards else "forward",
            **layer.attributes,
        )
    )
    _write_results(build, node, names, begins, lengths)
    return build.nodes


def _write_results(
    build: Nodes, node: onnx.NodeProto, names: Sequence[str], begins: Sequence[str], lengths: str
) -> None:
    """Bring what a layer returns into the form of a Scan's results: without an axis of directions."""
    first, states = build.integers(0), len(begins)
    for place, result in enumerate(node.output[:states]):
        if not result:
            continue
        last = names[1 + place]
        if (
            lengths
        ):  # of an empty sequence the kernel returns zeros, and steps the state that it begins with
            filled = build.make("Greater", [lengths, build.constant(np.array(0, np.int32))])
            filled = build.make("Unsqueeze", [filled, build.integers(1)])
            last = build.make("Where", [filled, last, begins[place]])
        build.make("Squeeze", [last, first], result=result)
    if len(node.output) > states and node.output[-1]:
        build.make("Squeeze", [names[0], build.integers(1)], result=node.output[-1])


def _operands(
    build: Nodes, layer: _Layer, bound: Bindings, source: _Source, hidden: int, width: int
) -> list[str]:
    """Write weights of input and recurrence, and biases, as a layer of one direction has them.

    All but what the model computes from its inputs is constant, and onnxruntime folds it when it makes a session.
    """
    first = build.integers(0)
    weights, bias = source.weights, source.bias
    if source.columns is not None:
        start, end = (build.integers(place) for place in source.columns)
        weights = build.make("Slice", [weights, start, end, build.integers(1)])
        bias = bias and build.make("Slice", [bias, start, end, first])
    recurrence = [bound[name] for name in layer.weights]
    if len(recurrence) > 1:
        recurrence = [build.make("Concat", recurrence, axis=1)]
    turned = [
        build.make("Unsqueeze", [build.make("Transpose", [value], perm=[1, 0]), first])
        for value in (weights, recurrence[0])
    ]
    bias = bias or build.constant(np.zeros(width, np.float32))
    # The bias of the recurrence is part of that of the input, but where a reset gate stands between them.
    late = [bound["bias"]] if layer.late_bias else []
    zeros = build.constant(np.zeros(width - len(late) * hidden, np.float32))
    biases = build.make("Concat", [bias, zeros, *late], axis=0)
    return [*turned, build.make("Unsqueeze", [biases, first])]
