"""Dropout in graphs that train: a mask from a node of its own, its rate and seed from outside."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final

import onnx_ir as ir
import torch
from torch import Tensor, fx

from samba_onnx.errors import InternalError
from samba_onnx.export.naming import refused
from samba_onnx.export.operators.registry import Context, translates
from samba_onnx.facts.domains import DROPOUT_MASK, SAMBA_DOMAIN
from samba_onnx.facts.names import RATE, SEED
from samba_onnx.program.program import ArginSpec

_ALPHA: Final = 1.7580993408473766
"""Minus what an alpha dropout puts in the place of a dropped value: SELU's value at minus infinity."""


@torch.library.custom_op("samba::dropout_mask", mutates_args=())
def dropout_mask(rate: Tensor, seed: Tensor, shape: list[int], stream: int) -> Tensor:
    """Return which elements a dropout keeps; only the device can say, so this is traced only.

    Args:
        rate: Probability of a zero, float32, of rank 0.
        seed: Unsigned 32-bit integer of rank 0.
        shape: Sizes of the mask.
        stream: Number of the dropout among those with this seed.
    """
    raise InternalError("a dropout mask was asked for on the host: please report this")


@dropout_mask.register_fake
def _(rate: Tensor, seed: Tensor, shape: list[int], stream: int) -> Tensor:
    return rate.new_empty(shape, dtype=torch.bool)


@dataclass(frozen=True)
class Site:
    """One place of a model where values are dropped while it trains."""

    stream: int
    """Number of the site; sites with one seed still draw different masks."""
    rate: ArginSpec
    seed: ArginSpec


@dataclass(frozen=True)
class Draw:
    """The masks of one site, while a graph is traced."""

    site: Site
    rate: Tensor
    """Probability of a zero, float32, of rank 0."""
    seed: Tensor
    """Unsigned 32-bit integer of rank 0."""

    def mask(self, shape: Sequence[int]) -> Tensor:
        """Return which elements are kept."""
        mask: Tensor = dropout_mask(self.rate, self.seed, list(shape), self.site.stream)
        return mask

    def number(self, value: Tensor, like: Tensor) -> Tensor:
        """Return a number of rank 0, computed from the rate, in the type of a tensor.

        At rate 1 it is zero, as all is that torch's dropouts return then: alpha dropout, too.
        """
        return torch.where(self.rate < 1.0, value, 0.0).to(like.dtype)


def dropout(draw: Draw, value: Tensor, shape: Sequence[int] | None = None) -> Tensor:
    """Drop elements, and scale the others so that the expectation stays.

    Args:
        draw: Where the mask comes from.
        value: A floating-point tensor of any shape.
        shape: Sizes of the mask, which is broadcast; the value's own when None.
    """
    return dropped(draw, value, draw.mask(value.shape if shape is None else shape))


def dropped(draw: Draw, value: Tensor, mask: Tensor) -> Tensor:
    """Drop the elements that a mask does not keep, and scale the others.

    Like torch, this multiplies: a dropped element that is not finite becomes NaN.

    Args:
        draw: Where the rate comes from.
        value: A floating-point tensor of any shape.
        mask: The mask, which is broadcast.
    """
    scale = draw.number(1.0 / (1.0 - draw.rate), value)
    return value * torch.where(mask, scale, 0.0)


def alpha_dropout(draw: Draw, value: Tensor, shape: Sequence[int] | None = None) -> Tensor:
    """Replace elements by SELU's lower bound, then restore mean and variance.

    Like torch, this multiplies: a replaced element that is not finite becomes NaN.

    Args:
        draw: Where the mask comes from.
        value: A floating-point tensor of any shape.
        shape: Sizes of the mask, which is broadcast; the value's own when None.
    """
    mask = draw.mask(value.shape if shape is None else shape)
    gain = torch.rsqrt((_ALPHA * _ALPHA * draw.rate + 1.0) * (1.0 - draw.rate))
    kept = draw.number(gain * draw.rate * _ALPHA, value)
    replaced = draw.number(gain * (draw.rate - 1.0) * _ALPHA, value)
    scale = torch.where(mask, draw.number(gain, value), 0.0)
    return value * scale + torch.where(mask, kept, replaced)


def _feature_shape(value: Tensor) -> tuple[int, ...]:
    return (*value.shape[:2], *[1] * (value.dim() - 2))


def _feature_dropout(draw: Draw, value: Tensor) -> Tensor:
    return dropout(draw, value, _feature_shape(value))


def _feature_alpha_dropout(draw: Draw, value: Tensor) -> Tensor:
    return alpha_dropout(draw, value, _feature_shape(value))


_WAYS: Final = MappingProxyType(
    {
        "dropout": dropout,
        "native_dropout": dropout,
        "alpha_dropout": alpha_dropout,
        "feature_dropout": _feature_dropout,
        "feature_alpha_dropout": _feature_alpha_dropout,
    }
)


def operator_name(node: fx.Node) -> str:
    """Return an ATen operator's name without overload and the mark of one that works in place."""
    packet = getattr(node.target, "overloadpacket", node.target)
    return str(getattr(packet, "__name__", packet)).removesuffix("_")


def rate_of(node: fx.Node) -> float:
    """Return the probability with which an exported node drops values; 0 if it drops none.

    Args:
        node: A node of a graph that was not decomposed yet.
    """
    if not isinstance(node.target, torch._ops.OpOverload):
        return 0.0
    name = operator_name(node)
    if name in _WAYS:
        arguments = _arguments(node)
        # None is training, too, as native_dropout takes it.
        return float(arguments["p"]) if arguments["train"] is not False else 0.0
    if name == "scaled_dot_product_attention":
        return float(_arguments(node)["dropout_p"])
    if name in ("lstm", "gru", "rnn_tanh", "rnn_relu"):
        arguments = _arguments(node)
        # torch drops between layers only, so that a single one drops nothing.
        inner = arguments["num_layers"] > 1 and arguments["train"]
        return float(arguments["dropout"]) if inner else 0.0
    return 0.0


def applied(node: fx.Node, draw: Draw, value: Tensor) -> Tensor | tuple[Tensor, Tensor]:
    """Apply an exported dropout operator; ``native_dropout`` returns its mask as well.

    Args:
        node: A node of one of the dropout operators.
        draw: Where its mask comes from.
        value: Its operand.
    """
    if operator_name(node) == "native_dropout":
        mask = draw.mask(value.shape)
        return dropped(draw, value, mask), mask
    way: Callable[[Draw, Tensor], Tensor] = _WAYS[operator_name(node)]
    return way(draw, value)


def is_dropout(node: fx.Node) -> bool:
    """Return whether a node does nothing but drop values."""
    return node.op == "call_function" and operator_name(node) in _WAYS


def sites(nodes: Sequence[fx.Node], names: Callable[[fx.Node, str], str]) -> dict[fx.Node, Site]:
    """Find the places where an exported graph drops values.

    Args:
        nodes: All nodes, in order.
        names: Gives a unique name from a node and the name of its kind of dropout.

    Returns:
        The place by node; a node whose rate is 0 has none.
    """
    dropping = [(node, rate) for node in nodes if (rate := rate_of(node))]
    places = {}
    # Numbered in the order of the graph: the same model draws the same masks.
    for stream, (node, rate) in enumerate(dropping):
        name = names(node, _kind(node))
        rates = ArginSpec(f"{name}{RATE}", "tensor(float)", rate)
        seeds = ArginSpec(f"{name}{SEED}", "tensor(int32)", 0.0)
        places[node] = Site(stream, rates, seeds)
    return places


def _kind(node: fx.Node) -> str:
    """Return what a user calls it: dropout, dropout2d, alphadropout, ..."""
    name = operator_name(node).removeprefix("native_")
    if name == "feature_dropout":
        return f"dropout{max(1, node.all_input_nodes[0].meta['val'].dim() - 2)}d"
    return name.replace("_", "") if name in _WAYS else "dropout"


def _arguments(node: fx.Node) -> dict[str, Any]:
    """Return a node's arguments by the names of the operator's schema, with defaults."""
    assert isinstance(node.target, torch._ops.OpOverload)
    declared = node.target._schema.arguments
    values = {a.name: a.default_value for a in declared if a.has_default_value()}
    values.update(zip((a.name for a in declared), node.args, strict=False))
    return {**values, **node.kwargs}


def refuse_randomness(nodes: Iterable[fx.Node]) -> None:
    """Refuse what is random but no dropout: the device has no generator for it.

    Args:
        nodes: The nodes of a traced graph.

    Raises:
        ModelError: There is such a node.
    """
    for node in nodes:
        target = node.target
        if not isinstance(target, torch._ops.OpOverload) or target.namespace == SAMBA_DOMAIN:
            continue
        if torch.Tag.nondeterministic_seeded in target.tags:
            raise refused(
                node,
                " draws random numbers, which a compiled graph cannot do outside dropout: draw them "
                "on the host and pass them as an input",
            )


@translates("samba::dropout_mask")
def translate_mask(
    context: Context, rate: ir.Value, seed: ir.Value, shape: Sequence[int], stream: int
) -> ir.Value:
    """Write a dropout mask as one node of our own domain."""
    return context.build.emit_several(
        DROPOUT_MASK,
        [rate, seed],
        [(ir.DataType.BOOL, context.result.shape)],
        domain=SAMBA_DOMAIN,
        shape=list(shape),
        stream=stream,
    )[0]
