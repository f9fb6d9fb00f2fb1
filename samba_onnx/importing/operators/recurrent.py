"""Recurrent networks: by torch's own operators where they can, else step by step."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F  # noqa: N812  (torch's own convention)
from torch import Tensor

from samba_onnx.importing.operators.computations import Node, computes
from samba_onnx.importing.operators.shapes import reversed_steps

Activation = Callable[[Tensor], Tensor]

_GATES = {"RNN": [0], "GRU": [1, 0, 2], "LSTM": [0, 2, 3, 1]}
"""Where torch's gates lie in ONNX's: LSTM i, o, f, c to i, f, g, o; GRU z, r, h to r, z, n."""
# Per direction, in the order f, g, h of the specification.
_DEFAULT = {"RNN": ["Tanh"], "GRU": ["Sigmoid", "Tanh"], "LSTM": ["Sigmoid", "Tanh", "Tanh"]}


@dataclass(frozen=True)
class _Operands:
    """The operands of a recurrent node; sequences are [steps, batch, features]."""

    value: Tensor
    weights: Tensor
    recurrence: Tensor
    bias: Tensor | None
    lengths: Tensor | None
    hidden: Tensor
    cell: Tensor | None
    peepholes: Tensor | None

    @property
    def directions(self) -> int:
        """1 or 2."""
        return self.weights.shape[0]


@computes("RNN")
def rnn(node: Node, *operands: Tensor | None) -> tuple[Tensor, Tensor]:
    """Elman network."""
    parameters = _operands(node, operands)
    # torch's operator is one node, forward and backward, where a loop has several for each step.
    results, last = (
        _native(node, parameters) if _is_native(node, parameters) else _loop(node, parameters)
    )
    return _results(node, parameters, results), _state(node, last[0])


@computes("GRU")
def gru(node: Node, *operands: Tensor | None) -> tuple[Tensor, Tensor]:
    """Gated recurrent unit."""
    return rnn(node, *operands)


@computes("LSTM")
def lstm(node: Node, *operands: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
    """Long short-term memory."""
    parameters = _operands(node, operands)
    results, last = (
        _native(node, parameters) if _is_native(node, parameters) else _loop(node, parameters)
    )
    return _results(node, parameters, results), _state(node, last[0]), _state(node, last[1])


def _operands(node: Node, operands: Sequence[Tensor | None]) -> _Operands:
    # Operands at the end may be missing altogether; there are eight of LSTM, fewer of the others.
    full = [*operands, *[None] * (8 - len(operands))]
    value, weights, recurrence, bias, lengths, hidden, cell, peepholes = full
    if value is None or weights is None or recurrence is None:
        raise node.refuse("it lacks its sequence or weights")
    # With `layout` 1 the batch comes first; inside, time does.
    if node.integer("layout"):
        value = value.transpose(0, 1)
        hidden = None if hidden is None else hidden.transpose(0, 1)
        cell = None if cell is None else cell.transpose(0, 1)
    zeros = value.new_zeros(weights.shape[0], value.shape[1], recurrence.shape[2])
    hidden = zeros if hidden is None else hidden
    if node.operator == "LSTM":
        cell = zeros if cell is None else cell
    return _Operands(
        value=value,
        weights=weights,
        recurrence=recurrence,
        bias=bias,
        lengths=lengths,
        hidden=hidden,
        cell=cell,
        peepholes=peepholes,
    )


def _results(node: Node, parameters: _Operands, results: Tensor) -> Tensor:
    """Bring [steps, batch, directions x hidden] into ONNX's order."""
    steps, batch = results.shape[:2]
    parted = results.reshape(steps, batch, parameters.directions, -1)
    return parted.transpose(0, 1) if node.integer("layout") else parted.transpose(1, 2)


def _state(node: Node, state: Tensor) -> Tensor:
    return state.transpose(0, 1) if node.integer("layout") else state


def _activations(node: Node, directions: int) -> list[str]:
    names = node.attributes.get("activations")
    return [str(name) for name in names] if names else _DEFAULT[node.operator] * directions


def _is_native(node: Node, parameters: _Operands) -> bool:
    names = [name.lower() for name in _activations(node, parameters.directions)]
    usual = [name.lower() for name in _DEFAULT[node.operator] * parameters.directions]
    # torch has a relu form of the plain network only.
    if node.operator == "RNN" and set(names) == {"relu"}:
        usual = names
    return (
        names == usual
        and parameters.lengths is None
        and parameters.peepholes is None
        and "clip" not in node.attributes
        and not node.integer("input_forget")
        # torch applies the reset gate behind the product, which is `linear_before_reset`; ONNX's
        # default is before.
        and (node.operator != "GRU" or node.integer("linear_before_reset") == 1)
    )


def _native(node: Node, parameters: _Operands) -> tuple[Tensor, list[Tensor]]:
    """Call torch's own operator, its gates in its own order."""
    order = _GATES[node.operator]
    flat: list[Tensor] = []
    for direction in range(parameters.directions):
        flat += [_reorder(parameters.weights[direction], order)]
        flat += [_reorder(parameters.recurrence[direction], order)]
        if parameters.bias is not None:
            own, other = parameters.bias[direction].chunk(2)
            flat += [_reorder(own, order), _reorder(other, order)]
    # torch knows both directions together, or forward: a lone backward is forward on a turned
    # sequence.
    backwards = node.text("direction", "forward") == "reverse"
    value = parameters.value.flip(0) if backwards else parameters.value
    rest = (flat, parameters.bias is not None, 1, 0.0, False, parameters.directions == 2, False)
    if parameters.cell is not None:
        results, hidden, cell = torch.lstm(value, (parameters.hidden, parameters.cell), *rest)
        last = [hidden, cell]
    else:
        names = _activations(node, 1)
        simple = torch.rnn_relu if names[0].lower() == "relu" else torch.rnn_tanh
        results, hidden = (torch.gru if node.operator == "GRU" else simple)(
            value, parameters.hidden, *rest
        )
        last = [hidden]
    return (results.flip(0) if backwards else results), last


def _reorder(stacked: Tensor, order: list[int]) -> Tensor:
    parts = stacked.chunk(len(order))
    return torch.cat([parts[gate] for gate in order]) if len(order) > 1 else stacked


def _loop(node: Node, parameters: _Operands) -> tuple[Tensor, list[Tensor]]:
    """Go step by step, each direction by itself."""
    results, states = [], []
    names = _activations(node, parameters.directions)
    functions = _functions(node, names)
    count = len(names) // parameters.directions
    for direction in range(parameters.directions):
        backwards = direction == 1 or node.text("direction", "forward") == "reverse"
        chosen = functions[direction * count : (direction + 1) * count]
        # A padded sequence is turned within its length, so that its first step is its last real
        # one.
        sequence = _turned(parameters.value, parameters.lengths) if backwards else parameters.value
        outputs, state = _steps(node, parameters, direction, sequence, chosen)
        results.append(_turned(outputs, parameters.lengths) if backwards else outputs)
        states.append(state)
    return torch.cat(results, -1), [torch.stack(parts) for parts in zip(*states, strict=True)]


def _turned(value: Tensor, lengths: Tensor | None) -> Tensor:
    return value.flip(0) if lengths is None else reversed_steps(value, lengths)


def _steps(
    node: Node, parameters: _Operands, direction: int, sequence: Tensor, functions: list[Activation]
) -> tuple[Tensor, list[Tensor]]:
    step = {"RNN": _rnn_step, "GRU": _gru_step, "LSTM": _lstm_step}[node.operator]
    state = [parameters.hidden[direction]]
    if parameters.cell is not None:
        state.append(parameters.cell[direction])
    outputs = []
    for time, value in enumerate(sequence.unbind(0)):
        new = step(node, parameters, direction, value, state, functions)
        output = new[0]
        if parameters.lengths is not None:
            active = (time < parameters.lengths).unsqueeze(-1)
            # State stays as it was behind a sequence's end, and outputs are zero there, as ONNX
            # defines.
            new = [torch.where(active, one, old) for one, old in zip(new, state, strict=True)]
            output = torch.where(active, output, torch.zeros_like(output))
        state = new
        outputs.append(output)
    return torch.stack(outputs), state


def _biases(parameters: _Operands, direction: int) -> tuple[Tensor | None, Tensor | None]:
    if parameters.bias is None:
        return None, None
    own, other = parameters.bias[direction].chunk(2)
    return own, other


def _clipped(node: Node, value: Tensor) -> Tensor:
    limit = node.attributes.get("clip")
    return value if limit is None else torch.clamp(value, -float(limit), float(limit))


def _rnn_step(
    node: Node,
    parameters: _Operands,
    direction: int,
    value: Tensor,
    state: list[Tensor],
    functions: list[Activation],
) -> list[Tensor]:
    own, other = _biases(parameters, direction)
    total = F.linear(value, parameters.weights[direction], own)
    total = total + F.linear(state[0], parameters.recurrence[direction], other)
    return [functions[0](_clipped(node, total))]


def _gru_step(
    node: Node,
    parameters: _Operands,
    direction: int,
    value: Tensor,
    state: list[Tensor],
    functions: list[Activation],
) -> list[Tensor]:
    own, other = _biases(parameters, direction)
    hidden, recurrence = state[0], parameters.recurrence[direction]
    size = hidden.shape[-1]
    gates_of_input = F.linear(value, parameters.weights[direction], own)
    kept_gates = F.linear(
        hidden, recurrence[: 2 * size], None if other is None else other[: 2 * size]
    )
    gates = functions[0](_clipped(node, gates_of_input[..., : 2 * size] + kept_gates))
    update, reset = gates.chunk(2, -1)
    last_bias = None if other is None else other[2 * size :]
    # The reset gate applies to the product with its bias, or to the state before the product.
    if node.integer("linear_before_reset"):
        candidate = reset * F.linear(hidden, recurrence[2 * size :], last_bias)
    else:
        candidate = F.linear(reset * hidden, recurrence[2 * size :], last_bias)
    candidate = functions[1](_clipped(node, gates_of_input[..., 2 * size :] + candidate))
    return [(1 - update) * candidate + update * hidden]


def _lstm_step(
    node: Node,
    parameters: _Operands,
    direction: int,
    value: Tensor,
    state: list[Tensor],
    functions: list[Activation],
) -> list[Tensor]:
    own, other = _biases(parameters, direction)
    hidden, cell = state
    gates = F.linear(value, parameters.weights[direction], own)
    gates = gates + F.linear(hidden, parameters.recurrence[direction], other)
    entry, output, forget, candidate = gates.chunk(4, -1)
    # Peepholes lie in the order i, o, f.
    peep = None if parameters.peepholes is None else parameters.peepholes[direction].chunk(3)
    if peep is not None:
        # Peepholes of entry and forget look at the old cell, that of the output at the new one.
        entry, forget = entry + peep[0] * cell, forget + peep[2] * cell
    opened = functions[0](_clipped(node, entry))
    kept = 1 - opened if node.integer("input_forget") else functions[0](_clipped(node, forget))
    new = kept * cell + opened * functions[1](_clipped(node, candidate))
    if peep is not None:
        output = output + peep[1] * new
    return [functions[0](_clipped(node, output)) * functions[2](new), new]


_PLAIN: dict[str, Activation] = {
    "relu": torch.relu,
    "sigmoid": torch.sigmoid,
    "softplus": F.softplus,
    "softsign": F.softsign,
    "tanh": torch.tanh,
}


_PARAMETERS: dict[str, dict[str, float]] = {
    "affine": {"alpha": 1.0, "beta": 0.0},
    "elu": {"alpha": 1.0},
    "hardsigmoid": {"alpha": 0.2, "beta": 0.5},
    "leakyrelu": {"alpha": 0.01},
    "scaledtanh": {"alpha": 1.0, "beta": 1.0},
    "thresholdedrelu": {"alpha": 1.0},
}
"""What each activation takes from the lists of parameters, with the defaults where these are too short."""


def _functions(node: Node, names: Sequence[str]) -> list[Activation]:
    """Return the activations of all directions, which take their parameters one after the other.

    Args:
        node: With ``activation_alpha`` and ``activation_beta``.
        names: All names of the layer, those of the first direction first.
    """
    lists = {
        key: iter([float(number) for number in node.attributes.get(f"activation_{key}") or ()])
        for key in ("alpha", "beta")
    }
    functions = []
    for name in names:
        # One that takes no parameter leaves the lists to the next, in either direction: places in
        # them are no places among the activations.
        taken = {
            key: next(lists[key], default)
            for key, default in _PARAMETERS.get(name.lower(), {}).items()
        }
        functions.append(_activation(node, name, **taken))
    return functions


def _activation(node: Node, name: str, alpha: float = 0.0, beta: float = 0.0) -> Activation:
    """Return an activation function with its parameters, where it takes any."""
    kind = name.lower()
    if kind in _PLAIN:
        return _PLAIN[kind]
    activations: dict[str, Activation] = {
        "affine": lambda x: x * alpha + beta,
        "elu": lambda x: F.elu(x, alpha),
        "hardsigmoid": lambda x: torch.clamp(x * alpha + beta, 0.0, 1.0),
        "leakyrelu": lambda x: F.leaky_relu(x, alpha),
        "scaledtanh": lambda x: alpha * torch.tanh(x * beta),
        "thresholdedrelu": lambda x: torch.where(x > alpha, x, torch.zeros_like(x)),
    }
    if kind not in activations:
        raise node.refuse(f"activation {name!r} is unknown")
    return activations[kind]
