"""Recurrent layers whole: LSTM, GRU and the plain recurrent network, of any number of layers.

torch lists the parameters layer by layer, forward before backward direction: weights of the input
and of the state, then the biases of both, if there are any. Their rows are gates one after the
other, in another order than ONNX's.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import onnx_ir as ir

from samba_onnx.errors import ModelError
from samba_onnx.export.operators.registry import Context, translates
from samba_onnx.export.translation.builder import GraphBuilder, element, sizes

LSTM_GATES = (0, 3, 1, 2)
"""ONNX's input, output, forget and cell gates among torch's input, forget, cell, output."""
GRU_GATES = (1, 0, 2)
"""ONNX's update, reset and hidden gates among torch's reset, update, new."""


@dataclass(frozen=True)
class _Cell:
    """A kind of recurrent cell."""

    op_type: str
    gates: tuple[int, ...]
    """For each of ONNX's gates in order, its place among torch's."""
    activation: str | None = None


_LSTM = _Cell("LSTM", LSTM_GATES)
_GRU = _Cell("GRU", GRU_GATES)


@dataclass(frozen=True)
class _Stack:
    """How layers are put together."""

    cell: _Cell
    biased: bool
    layers: int
    directions: int
    batch_first: bool


@translates("lstm.input")
def lstm(
    context: Context,
    value: ir.Value,
    states: Sequence[ir.Value],
    parameters: Sequence[ir.Value],
    biased: bool,
    layers: int,
    dropout: float,
    training: bool,
    bidirectional: bool,
    batch_first: bool,
) -> list[ir.Value | None]:
    """Write LSTM layers; returns outputs, last hidden state and last cell state."""
    _refuse_dropout(context, dropout, layers, training=training)
    stack = _Stack(_LSTM, biased, layers, 1 + bidirectional, batch_first)
    if len(parameters) != layers * stack.directions * (4 if biased else 2):
        raise ModelError(
            f"{context.operator} has projections (proj_size), which ONNX's LSTM has not: "
            "use proj_size=0 and a Linear behind the LSTM"
        )
    return _run(context.build, value, states, parameters, stack)


@translates("gru.input")
def gru(
    context: Context,
    value: ir.Value,
    state: ir.Value,
    parameters: Sequence[ir.Value],
    biased: bool,
    layers: int,
    dropout: float,
    training: bool,
    bidirectional: bool,
    batch_first: bool,
) -> list[ir.Value | None]:
    """Write GRU layers; returns outputs and last hidden state."""
    _refuse_dropout(context, dropout, layers, training=training)
    stack = _Stack(_GRU, biased, layers, 1 + bidirectional, batch_first)
    return _run(context.build, value, [state], parameters, stack)


@translates("rnn_tanh.input", "rnn_relu.input")
def rnn(
    context: Context,
    value: ir.Value,
    state: ir.Value,
    parameters: Sequence[ir.Value],
    biased: bool,
    layers: int,
    dropout: float,
    training: bool,
    bidirectional: bool,
    batch_first: bool,
) -> list[ir.Value | None]:
    """Write plain recurrent layers; returns outputs and last hidden state."""
    _refuse_dropout(context, dropout, layers, training=training)
    cell = _Cell("RNN", (0,), "Relu" if "relu" in context.operator else "Tanh")
    stack = _Stack(cell, biased, layers, 1 + bidirectional, batch_first)
    return _run(context.build, value, [state], parameters, stack)


def _refuse_dropout(context: Context, dropout: float, layers: int, *, training: bool) -> None:
    if training and dropout and layers > 1:
        raise ModelError(
            f"{context.operator} has a dropout of {dropout} between its layers in training mode: "
            "take it apart into layers before it is translated"
        )


def _run(
    build: GraphBuilder,
    value: ir.Value,
    states: Sequence[ir.Value],
    parameters: Sequence[ir.Value],
    stack: _Stack,
) -> list[ir.Value | None]:
    """Run the layers one after the other.

    Args:
        build: The graph.
        value: The sequences, of shape (time, batch, features), or (batch, time, features).
        states: Initial states of all layers, of shape (layers * directions, batch, hidden).
        parameters: All layers' parameters.
        stack: How the layers are put together.

    Returns:
        Outputs and last states, in the shapes of torch.
    """
    if stack.batch_first:
        value = build.transpose(value, [1, 0, 2])
    split = [build.split(state, [stack.directions] * stack.layers, 0) for state in states]
    each = (4 if stack.biased else 2) * stack.directions
    last: list[list[ir.Value]] = [[] for _ in states]
    for layer in range(stack.layers):
        mine = parameters[layer * each : (layer + 1) * each]
        initial = [parts[layer] for parts in split]
        value, *final = _layer(build, value, initial, mine, stack)
        for layer_states, state in zip(last, final, strict=True):
            layer_states.append(state)
    if stack.batch_first:
        value = build.transpose(value, [1, 0, 2])
    return [value, *(build.concat(layer_states, 0) for layer_states in last)]


def _layer(
    build: GraphBuilder,
    value: ir.Value,
    initial: Sequence[ir.Value],
    parameters: Sequence[ir.Value],
    stack: _Stack,
) -> list[ir.Value]:
    """Append one layer; returns its outputs, directions side by side, and its last states."""
    time, batch, _ = sizes(value)
    hidden, dtype = sizes(initial[0])[2], element(value)
    state = (dtype, [stack.directions, batch, hidden])
    outputs, *final = build.emit_several(
        stack.cell.op_type,
        [value, *_operands(build, parameters, stack), None, *initial],
        [(dtype, [time, stack.directions, batch, hidden]), *(state for _ in initial)],
        hidden_size=hidden,
        direction="bidirectional" if stack.directions == 2 else "forward",
        activations=[stack.cell.activation] * stack.directions if stack.cell.activation else None,
        linear_before_reset=1 if stack.cell.op_type == "GRU" else None,
    )
    beside = build.transpose(outputs, [0, 2, 1, 3]) if stack.directions == 2 else outputs
    return [build.reshape(beside, [time, batch, stack.directions * hidden]), *final]


def _operands(
    build: GraphBuilder, parameters: Sequence[ir.Value], stack: _Stack
) -> list[ir.Value | None]:
    """Return ONNX's operands W, R and B: a plane per direction, gates in ONNX's order."""
    each = len(parameters) // stack.directions
    ordered = [reordered(build, item, stack.cell.gates) for item in parameters]
    planes = [ordered[start : start + each] for start in range(0, len(parameters), each)]
    if stack.biased:
        planes = [[plane[0], plane[1], build.concat(plane[2:], 0)] for plane in planes]
    stacked: list[ir.Value | None] = [
        build.concat([build.reshape(item, [1, *sizes(item)]) for item in items], 0)
        for items in zip(*planes, strict=True)
    ]
    return stacked if stack.biased else [*stacked, None]


def reordered(build: GraphBuilder, value: ir.Value, gates: Sequence[int]) -> ir.Value:
    """Return the rows of a parameter with its gates in another order.

    Args:
        build: The graph.
        value: The parameter, of shape (gates * hidden, ...).
        gates: Place of each gate among those that there are.
    """
    if len(gates) == 1:
        return value
    parts = build.split(value, [sizes(value)[0] // len(gates)] * len(gates), 0)
    return build.concat([parts[gate] for gate in gates], 0)
