"""Recurrent layers: ONNX's own operators forward, a Scan for what runs step by step backward.

The operators are those of :mod:`samba_onnx.export.decomposition.recurrence`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import onnx_ir as ir

from samba_onnx.export.operators.recurrent import GRU_GATES, LSTM_GATES, reordered
from samba_onnx.export.operators.registry import Context, translates
from samba_onnx.export.translation.builder import GraphBuilder, element, sizes
from samba_onnx.facts.names import joined

_MANY_STEPS = 32
"""From so many steps on, a recurrence is cut into pieces: about twice the square root of the steps wait
for each other instead of all of them, for twice the arithmetic. It is an algorithm for whatever
computes many numbers at once, no matter which engine; below, too few steps are saved for a graph
three times as long."""


@translates("samba::lstm_layer")
def lstm_layer(
    context: Context,
    value: ir.Value,
    hidden: ir.Value,
    cell: ir.Value,
    w_ih: ir.Value,
    w_hh: ir.Value,
    b_ih: ir.Value | None,
    b_hh: ir.Value | None,
    reverse: bool,
) -> list[ir.Value | None]:
    """Write one direction of one layer as LSTM."""
    build = context.build
    operands = _operands(build, value, (w_ih, w_hh), (b_ih, b_hh), LSTM_GATES)
    states, final = _layer(build, "LSTM", operands, (hidden, cell), reverse)
    return [states, final]


@translates("samba::gru_layer")
def gru_layer(
    context: Context,
    value: ir.Value,
    hidden: ir.Value,
    w_ih: ir.Value,
    w_hh: ir.Value,
    b_ih: ir.Value | None,
    b_hh: ir.Value | None,
    reverse: bool,
) -> ir.Value:
    """Write one direction of one layer as GRU; torch applies the reset gate after its product."""
    build = context.build
    operands = _operands(build, value, (w_ih, w_hh), (b_ih, b_hh), GRU_GATES)
    return _layer(build, "GRU", operands, (hidden,), reverse, linear_before_reset=1)[0]


@translates("samba::rnn_layer")
def rnn_layer(
    context: Context,
    value: ir.Value,
    hidden: ir.Value,
    w_ih: ir.Value,
    w_hh: ir.Value,
    b_ih: ir.Value | None,
    b_hh: ir.Value | None,
    activation: str,
    reverse: bool,
) -> ir.Value:
    """Write one direction of one layer as RNN."""
    build = context.build
    operands = _operands(build, value, (w_ih, w_hh), (b_ih, b_hh), (0,))
    name = [activation.capitalize()]
    return _layer(build, "RNN", operands, (hidden,), reverse, activations=name)[0]


@translates("samba::linear_recurrence")
def linear_recurrence(
    context: Context, decay: ir.Value, increment: ir.Value, initial: ir.Value, reverse: bool
) -> ir.Value:
    """Write ``s[t] = decay[t] * s[before] + increment[t]``.

    Many steps are cut into pieces, which are gone through side by side. Where each piece begins is
    then known from what the ones before do to a state: multiply it and add to it.
    """
    build = context.build
    steps = sizes(increment)[0]
    if steps < _MANY_STEPS:
        return _stepwise(build, decay, increment, initial, reverse)
    length = math.isqrt(steps)
    pieces = -(-steps // length)
    decays = _in_pieces(build, decay, pieces, length, 1)
    increments = _in_pieces(build, increment, pieces, length, 0)
    sums, products, added, multiplied = _piecewise(build, decays, increments, reverse)
    starts = _starts(build, multiplied, added, initial, reverse)
    states = build.add(sums, build.multiply(products, starts))
    states = build.transpose(states, [1, 0, 2, 3])
    states = build.reshape(states, (pieces * length, *sizes(initial)))
    return build.slice(states, 0, 0, steps)


def _stepwise(
    build: GraphBuilder, decay: ir.Value, increment: ir.Value, initial: ir.Value, reverse: bool
) -> ir.Value:
    scan = _Scan(build, "linear_recurrence", reverse)
    state = scan.state(initial)
    next_state = scan.body.add(scan.body.multiply(scan.step(decay), state), scan.step(increment))
    return scan.run([next_state], [next_state])[1]


def _in_pieces(
    build: GraphBuilder, value: ir.Value, pieces: int, length: int, rest: int
) -> ir.Value:
    """Return (steps, ...) as (steps of a piece, pieces, ...), filled up with a number."""
    steps, *shape = sizes(value)
    nothing = [0] * len(shape)
    value = build.pad(value, [0, *nothing], [pieces * length - steps, *nothing], rest)
    return build.transpose(build.reshape(value, (pieces, length, *shape)), [1, 0, 2, 3])


def _piecewise(
    build: GraphBuilder, decays: ir.Value, increments: ir.Value, reverse: bool
) -> list[ir.Value]:
    """Return what each step adds and multiplies since its piece began, and what whole pieces do.

    Each is (steps of a piece, pieces, ...), those of whole pieces (pieces, ...).
    """
    dtype, shape = element(decays), sizes(decays)[1:]
    scan = _Scan(build, "pieces", reverse)
    total = scan.state(build.full(shape, 0, dtype))
    factor = scan.state(build.full(shape, 1, dtype))
    decay = scan.step(decays)
    total = scan.body.add(scan.body.multiply(decay, total), scan.step(increments))
    factor = scan.body.multiply(decay, factor)
    added, multiplied, sums, products = scan.run([total, factor], [total, factor])
    return [sums, products, added, multiplied]


def _starts(
    build: GraphBuilder,
    multiplied: ir.Value,
    added: ir.Value,
    initial: ir.Value,
    reverse: bool,
) -> ir.Value:
    """Return the states that pieces begin with, (pieces, ...)."""
    scan = _Scan(build, "starts", reverse)
    state = scan.state(initial)
    after = scan.body.add(scan.body.multiply(scan.step(multiplied), state), scan.step(added))
    return scan.run([after], [state])[1]


@translates("samba::gate_recurrence")
def gate_recurrence(
    context: Context,
    gradient: ir.Value,
    carry: ir.Value,
    factors: ir.Value,
    weight: ir.Value,
    reverse: bool,
) -> list[ir.Value | None]:
    """Write the gradients of the states of a layer without memory cells."""
    build = context.build
    steps, gates, batch, hidden = sizes(factors)
    # The gates of one step side by side, as the product wants them.
    flat = build.reshape(build.transpose(factors, [0, 2, 1, 3]), [steps, batch, gates * hidden])
    scan = _Scan(build, "gate_recurrence", not reverse)
    state = scan.state(build.full((batch, hidden), 0, element(gradient)))
    body = scan.body
    total = body.add(scan.step(gradient), state)
    product = body.matmul(body.multiply(body.concat([total] * gates, -1), scan.step(flat)), weight)
    before = body.add(body.multiply(total, scan.step(carry)), product)
    last, totals = scan.run([before], [total])
    return [totals, last]


@translates("samba::cell_recurrence")
def cell_recurrence(
    context: Context,
    gradient: ir.Value,
    final: ir.Value,
    exposed: ir.Value,
    forget: ir.Value,
    factors: ir.Value,
    weight: ir.Value,
    reverse: bool,
) -> list[ir.Value | None]:
    """Write the gradients of the gates of a layer with memory cells."""
    build = context.build
    scan = _Scan(build, "cell_recurrence", not reverse)
    body = scan.body
    hidden = scan.state(build.full(sizes(final), 0, element(final)))
    cell = scan.state(final)
    total = body.add(scan.step(gradient), hidden)
    inner = body.add(cell, body.multiply(total, scan.step(exposed)))
    gates = body.multiply(body.concat([inner, inner, inner, total], -1), scan.step(factors))
    next_states = [body.matmul(gates, weight), body.multiply(inner, scan.step(forget))]
    d_hidden, d_cell, gate_gradients = scan.run(next_states, [gates])
    return [gate_gradients, d_hidden, d_cell]


def _operands(
    build: GraphBuilder,
    value: ir.Value,
    weights: Sequence[ir.Value],
    biases: Sequence[ir.Value | None],
    order: Sequence[int],
) -> list[ir.Value | None]:
    """Return input, weights and biases as ONNX's operators take them, for one direction."""
    matrices = [_with_direction(build, reordered(build, weight, order)) for weight in weights]
    present = [bias for bias in biases if bias is not None]
    if not present:
        return [value, *matrices, None, None]
    ordered = [reordered(build, bias, order) for bias in present]
    return [value, *matrices, _with_direction(build, build.concat(ordered, 0)), None]


def _with_direction(build: GraphBuilder, value: ir.Value) -> ir.Value:
    return build.reshape(value, (1, *sizes(value)))


def _layer(
    build: GraphBuilder,
    op_type: str,
    operands: Sequence[ir.Value | None],
    initial: Sequence[ir.Value],
    reverse: bool,
    **attributes: Any,
) -> list[ir.Value]:
    """Return all hidden states, and the final cell state where there is one."""
    value, states = operands[0], sizes(initial[0])
    assert value is not None
    steps, dtype = sizes(value)[0], element(value)
    outputs: list[tuple[ir.DataType, Sequence[int]] | None] = [(dtype, (steps, 1, *states))]
    if len(initial) > 1:
        outputs += [None, (dtype, (1, *states))]
    layer_outputs = build.emit_several(
        op_type,
        [*operands, *(_with_direction(build, state) for state in initial)],
        outputs,
        hidden_size=states[-1],
        direction="reverse" if reverse else None,
        **attributes,
    )
    results = [build.reshape(layer_outputs[0], (steps, *states))]
    return results + [build.reshape(final, states) for final in layer_outputs[2:]]


@dataclass
class _Operand:
    outer: ir.Value
    inner: ir.Value


class _Scan:
    """A Scan over the first axis, built from the inside; the body may read values of the outside."""

    def __init__(self, build: GraphBuilder, name: str, reverse: bool) -> None:
        self._build = build
        self._name = build.unique(joined(build.scope, name))
        self._reverse = reverse
        self._states: list[_Operand] = []
        self._steps: list[_Operand] = []
        self.body = GraphBuilder(self._name)
        self.body.metadata = build.metadata

    def state(self, initial: ir.Value) -> ir.Value:
        """Return what the step before left, inside the body."""
        name = joined(self._name, f"state_{len(self._states)}")
        inner = _typed(name, element(initial), sizes(initial))
        self._states.append(_Operand(initial, inner))
        return inner

    def step(self, sequence: ir.Value) -> ir.Value:
        """Return this step's element of a sequence, inside the body."""
        name = joined(self._name, f"step_{len(self._steps)}")
        inner = _typed(name, element(sequence), sizes(sequence)[1:])
        self._steps.append(_Operand(sequence, inner))
        return inner

    def run(self, states: Sequence[ir.Value], elements: Sequence[ir.Value]) -> list[ir.Value]:
        """Return the final states, then the sequences.

        Args:
            states: What each step leaves for the next, in the order of the states.
            elements: What each step adds to a sequence.
        """
        operands = [*self._states, *self._steps]
        graph = self.body.graph
        graph.inputs.extend(operand.inner for operand in operands)
        # An output of its own for each, also where one value is both state and element.
        for number, value in enumerate((*states, *elements)):
            self.body.output(value, joined(self._name, f"result_{number}"))
        steps = sizes(self._steps[0].outer)[0]
        backwards = int(self._reverse)
        return self._build.emit_several(
            "Scan",
            [operand.outer for operand in operands],
            [(element(value), sizes(value)) for value in states]
            + [(element(value), (steps, *sizes(value))) for value in elements],
            body=graph,
            num_scan_inputs=len(self._steps),
            scan_input_directions=[backwards] * len(self._steps),
            scan_output_directions=[backwards] * len(elements),
        )


def _typed(name: str, dtype: ir.DataType, shape: Sequence[int]) -> ir.Value:
    return ir.Value(name=name, type=ir.TensorType(dtype), shape=ir.Shape(shape))
