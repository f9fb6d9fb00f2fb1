"""Recurrent layers of known length, as a Scan whose body is one step.

Evidence: no document shows a recurrent layer on the RDU, but its steps are MatMul, Add, Sigmoid, Tanh and Mul, which
all are in the vendor's table or in programs. What the input contributes is one product for all steps in front of the
Scan, as in onnxruntime; sums are rounded in another order there. Whether a section repeats the body, or all steps
stand one behind the other, is decided for every Scan alike (:mod:`samba_onnx.passes.rewrites.legalisation.forms`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from samba_onnx.passes.rewrites.foreign.drafting import CannotExpandError, Draft
from samba_onnx.passes.rewrites.legalisation.bounds import refuse_large
from samba_onnx.passes.rewrites.legalisation.recurrent_activations import Activation, Activations
from samba_onnx.passes.rewrites.legalisation.rules import legalises

States = tuple[ir.Value, ...]
"""Hidden state, and cell state where the layer has one."""
Step = Callable[[ir.Value, States], States]
"""From what the input contributes to all gates, and the states, to the new states."""
_LIMITS = "static length and batch size; as `scan` where the target repeats no bodies"
_NUMBERS = "within a few roundings of float32 for each step"


@dataclass(frozen=True)
class _Direction:
    """The operands of one direction of a layer."""

    draft: Draft
    number: int
    size: int
    """Elements of the hidden state."""
    activations: Sequence[Activation]

    def part(self, position: int) -> ir.Value | None:
        """Return what this direction has of an operand; None if the operand is left out."""
        whole = self.draft.optional(position)
        return None if whole is None else self._of(whole)

    def _of(self, whole: ir.Value) -> ir.Value:
        # Weights of both directions lie in one operand, along its first axis.
        number = self.draft.constant(np.array(self.number, np.int64))
        return self.draft.op("Gather", whole, number, axis=0)

    def biases(self, gates: int) -> list[ir.Value] | None:
        """Return the biases of the input and of the recurrence, for all gates each."""
        both = self.part(3)
        if both is None:
            return None
        return self.pieces(both, [gates * self.size] * 2, axis=0)

    def recurrence(self) -> ir.Value:
        """Return the weights of the recurrence, transposed."""
        weights = self.part(2)
        if weights is None:
            raise CannotExpandError("its input 2 is left out")
        return self.draft.op("Transpose", weights, perm=[1, 0])

    def input_product(self, value: ir.Value, bias: ir.Value | None) -> ir.Value:
        """Return what the input contributes to all gates in all steps."""
        weights = self.part(1)
        if weights is None:
            raise CannotExpandError("its input 1 is left out")
        # One product for all steps is a large one that fills the RDU; a product in each step would
        # be a small one many times.
        product = self.draft.op("MatMul", value, self.draft.op("Transpose", weights, perm=[1, 0]))
        return product if bias is None else self.draft.op("Add", product, bias)

    def pieces(self, value: ir.Value, sizes: Sequence[int], axis: int = 1) -> list[ir.Value]:
        """Return pieces of a value, of some sizes along an axis."""
        if len(sizes) == 1:
            return [value]
        parts = self.draft.integers(*sizes)
        return list(self.draft.several("Split", len(sizes), value, parts, axis=axis))

    def clipped(self, value: ir.Value) -> ir.Value:
        """Return a value that an activation reads, within the bounds of the attribute ``clip``."""
        # ONNX states no default; a bound of 0 would leave nothing, so that it can stand for none.
        bound = self.draft.number("clip", 0.0)
        if not bound:
            return value
        like = self.draft.operand(0)
        low, high = self.draft.scalar(-bound, like), self.draft.scalar(bound, like)
        return self.draft.op("Clip", value, low, high)

    def one_minus(self, value: ir.Value) -> ir.Value:
        """Return 1 minus a gate, which is what the gate leaves of another value."""
        return self.draft.op("Sub", self.draft.scalar(1, self.draft.operand(0)), value)

    def plus_product(self, value: ir.Value, state: ir.Value, weights: ir.Value) -> ir.Value:
        """Return a value and what a state contributes to it."""
        return self.draft.op("Add", value, self.draft.op("MatMul", state, weights))


@legalises(
    "RNN",
    name="rnn",
    makes="a product for all steps, and a Scan of MatMul, Add and activation",
    needs=_LIMITS,
    numbers=_NUMBERS,
)
def rnn(draft: Draft) -> list[ir.Value | None]:
    """Write an RNN."""

    def begin(own: _Direction, value: ir.Value) -> tuple[ir.Value, Step]:
        biases = own.biases(1)
        # Both biases are added to the same sum, so that one addition in front of all steps does.
        bias = None if biases is None else draft.op("Add", *biases)
        weights = own.recurrence()

        def step(contribution: ir.Value, states: States) -> States:
            total = own.clipped(own.plus_product(contribution, states[0], weights))
            return (own.activations[0](total),)

        return own.input_product(value, bias), step

    return _layer(draft, ("Tanh",), begin, states=1)


@legalises(
    "GRU",
    name="gru",
    makes="a product for all steps, and a Scan of MatMul, Add, gates and a mixture",
    needs=_LIMITS,
    numbers=_NUMBERS,
)
def gru(draft: Draft) -> list[ir.Value | None]:
    """Write a GRU."""

    def begin(own: _Direction, value: ir.Value) -> tuple[ir.Value, Step]:
        size, after = own.size, bool(draft.integer("linear_before_reset"))
        biases = own.biases(3)
        bias = hidden_bias = None
        if biases is not None:
            gates_bias, hidden_bias = own.pieces(biases[1], [2 * size, size], axis=0)
            zeros = draft.constant(np.zeros(size, draft.dtype(draft.operand(0)).numpy()))
            # The bias of the candidate is inside of what the reset gate scales, where the reset
            # follows the product: it cannot be added in front of the steps.
            same_time = zeros if after else hidden_bias
            bias = draft.op("Add", biases[0], draft.op("Concat", gates_bias, same_time, axis=0))
        gates_weights, weights = own.pieces(own.recurrence(), [2 * size, size])

        def step(contribution: ir.Value, states: States) -> States:
            hidden = states[0]
            # ONNX's order of gates is update, reset, candidate.
            gates, candidate = own.pieces(contribution, [2 * size, size])
            gates = own.clipped(own.plus_product(gates, hidden, gates_weights))
            update, reset = own.pieces(own.activations[0](gates), [size] * 2)
            if after:
                recurrent = draft.op("MatMul", hidden, weights)
                if hidden_bias is not None:
                    recurrent = draft.op("Add", recurrent, hidden_bias)
                candidate = draft.op("Add", candidate, draft.op("Mul", reset, recurrent))
            else:
                candidate = own.plus_product(candidate, draft.op("Mul", reset, hidden), weights)
            candidate = own.activations[1](own.clipped(candidate))
            new = draft.op("Mul", own.one_minus(update), candidate)
            return (draft.op("Add", new, draft.op("Mul", update, hidden)),)

        return own.input_product(value, bias), step

    return _layer(draft, ("Sigmoid", "Tanh"), begin, states=1)


@legalises(
    "LSTM",
    name="lstm",
    makes="a product for all steps, and a Scan of MatMul, Add, gates and a cell",
    needs=_LIMITS,
    numbers=_NUMBERS,
)
def lstm(draft: Draft) -> list[ir.Value | None]:
    """Write an LSTM."""

    def begin(own: _Direction, value: ir.Value) -> tuple[ir.Value, Step]:
        biases, peepholes = own.biases(4), own.part(7)
        bias = None if biases is None else draft.op("Add", *biases)
        weights = own.recurrence()
        holes = [None] * 3 if peepholes is None else own.pieces(peepholes, [own.size] * 3, axis=0)

        def step(contribution: ir.Value, states: States) -> States:
            hidden, cell = states
            total = own.plus_product(contribution, hidden, weights)
            return _lstm_step(own, total, cell, holes)

        return own.input_product(value, bias), step

    return _layer(draft, ("Sigmoid", "Tanh", "Tanh"), begin, states=2)


def _lstm_step(
    own: _Direction, total: ir.Value, cell: ir.Value, holes: Sequence[ir.Value | None]
) -> States:
    """Return the new states of an LSTM.

    Args:
        own: The direction.
        total: What input and hidden state contribute to the gates, in ONNX's order: input, output, forget, cell.
        cell: The cell state.
        holes: Weights by which input, output and forget gate see the cell; None where they do not.
    """
    draft, size = own.draft, own.size
    gate, inner, outer = own.activations
    # Without peepholes all three gates share one activation of one piece, instead of three small
    # ones.
    if holes[0] is None:
        gates, candidate = own.pieces(total, [3 * size, size])
        taken, shown, kept = own.pieces(gate(own.clipped(gates)), [size] * 3)
    else:
        taken, shown, kept, candidate = own.pieces(total, [size] * 4)
        taken = gate(own.clipped(_seen(draft, taken, cell, holes[0])))
        kept = gate(own.clipped(_seen(draft, kept, cell, holes[2])))
    if draft.integer("input_forget"):
        kept = own.one_minus(taken)
    new = draft.op("Mul", taken, inner(own.clipped(candidate)))
    new = draft.op("Add", draft.op("Mul", kept, cell), new)
    # The output gate sees the new cell, the others the old one, as ONNX defines it.
    if holes[1] is not None:
        shown = gate(own.clipped(_seen(draft, shown, new, holes[1])))
    return draft.op("Mul", shown, outer(new)), new


def _seen(draft: Draft, value: ir.Value, cell: ir.Value, hole: ir.Value | None) -> ir.Value:
    if hole is None:
        return value
    return draft.op("Add", value, draft.op("Mul", cell, hole))


Begin = Callable[[_Direction, ir.Value], tuple[ir.Value, Step]]


def _layer(
    draft: Draft, defaults: tuple[str, ...], begin: Begin, *, states: int
) -> list[ir.Value | None]:
    """Write all directions of a layer: 2 states with a cell state, 1 without.

    ``begin`` returns what the input contributes in all steps, and what one step does; ``defaults`` are the
    activations of a direction that states no others.
    """
    batch_first = bool(draft.integer("layout"))
    value = draft.operand(0)
    if batch_first:
        # Steps come first inside: a Scan reads along the first axis.
        value = draft.op("Transpose", value, perm=[1, 0, 2])
    sizes = draft.shape(draft.operand(0))
    batch = sizes[0] if batch_first else sizes[1]
    way = draft.text("direction", "forward")
    ways = {"forward": [0], "reverse": [1], "bidirectional": [0, 1]}.get(way)
    if ways is None:
        raise CannotExpandError(f"its direction is {way!r}")
    hidden = draft.integer("hidden_size") or draft.size(draft.operand(2), -1)
    refuse_large(hidden, batch * hidden)
    functions = Activations(draft).all(defaults, len(ways))
    # Made once: both directions end at the same lengths.
    masks = _masks(draft, sizes[1] if batch_first else sizes[0])
    results = []
    for number, backwards in enumerate(ways):
        own = _Direction(draft, number, hidden, functions[number])
        first = [_initial(own, 5 + state, batch, batch_first) for state in range(states)]
        contribution, step = begin(own, value)
        results.append(_scanned(draft, contribution, step, first, masks, backwards))
    return _joined(draft, results, batch_first)


def _initial(own: _Direction, position: int, batch: int, batch_first: bool) -> ir.Value:
    """Return the state that a direction begins with."""
    draft = own.draft
    whole = draft.optional(position)
    # ONNX begins with zeros where no state is given.
    if whole is None:
        dtype = draft.dtype(draft.operand(0)).numpy()
        return draft.constant(np.zeros((batch, own.size), dtype))
    number = draft.constant(np.array(own.number, np.int64))
    return draft.op("Gather", whole, number, axis=1 if batch_first else 0)


def _masks(draft: Draft, steps: int) -> tuple[ir.Value, ir.Value] | None:
    """Return whether a step is within a sequence, of shape (steps, batch, 1), and whether a sequence has any step.

    None where all sequences have the full length.
    """
    lengths = draft.optional(4)
    if lengths is None:
        return None
    column = draft.op("Unsqueeze", lengths, draft.integers(1))
    # int32, the type of lengths.
    numbers = draft.constant(np.arange(steps, dtype=np.int32).reshape(steps, 1, 1))
    first = draft.constant(np.array(0, np.int32))
    return draft.op("Greater", column, numbers), draft.op("Greater", column, first)


def _scanned(
    draft: Draft,
    contribution: ir.Value,
    step: Step,
    first: Sequence[ir.Value],
    masks: tuple[ir.Value, ir.Value] | None,
    backwards: int,
) -> tuple[ir.Value | None, States]:
    """Write the steps of one direction.

    Args:
        draft: The draft of the layer.
        contribution: What the input contributes in all steps, of shape (steps, batch, gates * hidden).
        step: Writes one step.
        first: The states before the first step.
        masks: Which steps are part of which sequence, and which sequences have any; None where all are.
        backwards: 1 for a direction that begins with the last element of the sequence.

    Returns:
        The hidden states after all steps in the order of the sequence, None where nobody reads them, and the last
        states. Behind the end of a sequence its state stays and its results are zeros; the state of an empty
        sequence is zero, too.
    """
    zero, is_shown = draft.scalar(0, draft.operand(0)), draft.is_read(0)

    def body(values: Sequence[ir.Value]) -> Sequence[ir.Value]:
        before, read = tuple(values[: len(first)]), values[len(first) :]
        after = step(read[0], before)
        shown = [after[0]] if is_shown else []
        if masks is None:
            return [*after, *shown]
        kept = [
            draft.op("Where", read[1], new, old) for new, old in zip(after, before, strict=True)
        ]
        return [*kept, *(draft.op("Where", read[1], value, zero) for value in shown)]

    slices = [contribution] if masks is None else [contribution, masks[0]]
    # A reversed direction reads its slices, and writes its results, from the last step on: that
    # needs no Gather.
    way = {"scan_input_directions": [backwards] * len(slices)}
    if is_shown:
        way["scan_output_directions"] = [backwards]
    results = draft.repeated(body, first, slices, **(way if backwards else {}))
    states = results[: len(first)]
    if masks is not None:  # onnxruntime states zeros, whatever an empty sequence begins with
        states = [draft.op("Where", masks[1], state, zero) for state in states]
    return (results[-1] if is_shown else None), tuple(states)


def _joined(
    draft: Draft, directions: Sequence[tuple[ir.Value | None, States]], batch_first: bool
) -> list[ir.Value | None]:
    """Return the outputs of a layer: all hidden states, and the last states."""
    # (steps, batch, hidden) gets an axis of directions: (sequence, direction, batch) or (batch, sequence, direction).
    axis = 2 if batch_first else 1
    ways = []
    for hidden, _ in directions:
        if hidden is None:
            continue
        turned = draft.op("Transpose", hidden, perm=[1, 0, 2]) if batch_first else hidden
        ways.append(draft.op("Unsqueeze", turned, draft.integers(axis)))
    outputs = [_concatenated(draft, ways, axis) if ways else None]
    axis = 1 if batch_first else 0
    for state in range(len(directions[0][1])):
        last = [
            draft.op("Unsqueeze", states[state], draft.integers(axis)) for _, states in directions
        ]
        outputs.append(_concatenated(draft, last, axis))
    return outputs


def _concatenated(draft: Draft, values: Sequence[ir.Value], axis: int) -> ir.Value:
    return values[0] if len(values) == 1 else draft.op("Concat", *values, axis=axis)
