"""What torch computes with the rates of all dropouts at 0.

The masks that torch draws are not those that the device draws, but at rate 0 both keep everything:
so a model with active dropouts can be compared after all. The device's rates are inputs of the
program; torch's are arguments of functions, which are changed on their way in.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Iterator
from types import MappingProxyType
from typing import Any, Final

import torch
from torch import fx
from torch.nn import functional
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from samba_onnx.comparing.outcome import NotComparableError
from samba_onnx.export.capture.captured_modules import Captured
from samba_onnx.export.decomposition.dropout import is_dropout, rate_of

CONDITION: Final = "with the rates of all dropouts at 0"
"""What a comparison says of itself that was made so."""

_SECOND: Final = ("p", 1)
_RATES: Final = MappingProxyType(
    {
        functional.dropout: _SECOND,
        functional.dropout1d: _SECOND,
        functional.dropout2d: _SECOND,
        functional.dropout3d: _SECOND,
        functional.alpha_dropout: _SECOND,
        functional.feature_alpha_dropout: _SECOND,
        torch.dropout: _SECOND,
        torch.dropout_: _SECOND,
        torch.native_dropout: _SECOND,
        torch.alpha_dropout: _SECOND,
        torch.alpha_dropout_: _SECOND,
        torch.feature_dropout: _SECOND,
        torch.feature_dropout_: _SECOND,
        torch.feature_alpha_dropout: _SECOND,
        torch.feature_alpha_dropout_: _SECOND,
        functional.scaled_dot_product_attention: ("dropout_p", 4),
        functional.multi_head_attention_forward: ("dropout_p", 10),
    }
)
"""Name and position of the rate among the arguments of every function of torch that drops values."""
_RECURRENT: Final = frozenset({torch.lstm, torch.gru, torch.rnn_tanh, torch.rnn_relu})
"""Their rate comes two places after the first boolean: whether there are biases, layers, rate."""
_RATE_NAMES: Final = ("p", "dropout_p", "dropout")
"""What ATen calls a rate."""


@contextlib.contextmanager
def rates_at_zero() -> Iterator[None]:
    """Let torch compute within the context as if all dropouts had the rate 0.

    Raises:
        NotComparableError: Random numbers were drawn all the same.
    """
    draws = _Draws()
    with draws, _RatesAtZero():
        yield
    if draws.operator:
        raise NotComparableError(f"{draws.operator} draws random numbers in torch")


def without_dropouts(captured: Captured) -> Captured:
    """Return a captured module in which every dropout has the rate 0.

    Args:
        captured: Stays as it is.
    """
    graph = fx.Graph()
    graph.output(graph.graph_copy(captured.graph_module.graph, {}))
    graph_module = fx.GraphModule(captured.graph_module, graph)
    # A copy's placeholder may have another name: Python has an ``input`` of its own.
    nodes = graph.find_nodes(op="placeholder")
    names = {one.name: node.name for one, node in zip(captured.placeholders, nodes, strict=True)}
    placeholders = (dataclasses.replace(p, name=names[p.name]) for p in captured.placeholders)
    for node in graph.nodes:
        if not rate_of(node):
            continue
        if is_dropout(node) and isinstance(node.meta.get("val"), torch.Tensor):
            node.replace_all_uses_with(node.all_input_nodes[0])
        else:
            _set_rate(node)
    return dataclasses.replace(
        captured,
        graph_module=graph_module,
        placeholders=tuple(placeholders),
        constants={names[name]: tensor for name, tensor in captured.constants.items()},
    )


def _set_rate(node: fx.Node) -> None:
    """Set the rate of a node that drops values besides other things to 0."""
    assert isinstance(node.target, torch._ops.OpOverload)
    names = [argument.name for argument in node.target._schema.arguments]
    position = next(index for index, name in enumerate(names) if name in _RATE_NAMES)
    if position < len(node.args):
        node.update_arg(position, 0.0)
    else:
        node.update_kwarg(names[position], 0.0)


class _RatesAtZero(TorchFunctionMode):
    """Changes the rate among the arguments of functions that drop values."""

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        arguments, named = list(args), dict(kwargs or {})
        if func in _RECURRENT:
            biases = next(i for i, one in enumerate(arguments) if isinstance(one, bool))
            arguments[biases + 2] = 0.0
        elif func in _RATES:
            name, position = _RATES[func]
            if position < len(arguments):
                arguments[position] = 0.0
            else:
                named[name] = 0.0
        return func(*arguments, **named)


class _Draws(TorchDispatchMode):  # type: ignore[no-untyped-call]  # torch annotates nothing here
    """Notices whether an operator draws random numbers."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.operator = ""
        """The first one that does."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if torch.Tag.nondeterministic_seeded in func.tags and not self.operator:
            declared = func._schema.arguments
            arguments = {one.name: one.default_value for one in declared}
            arguments.update(zip(arguments, args, strict=False))
            arguments.update(kwargs or {})
            # Attention is marked as random at whatever rate.
            if not any(arguments.get(name) == 0.0 for name in _RATE_NAMES):
                self.operator = str(func)
        return func(*args, **(kwargs or {}))
