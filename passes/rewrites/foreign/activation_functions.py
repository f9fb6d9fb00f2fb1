"""Activations of onnxruntime's domain, and those that its fused operators apply last."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

import onnx_ir as ir

from samba_onnx.facts.domains import ONNXRUNTIME_DOMAIN
from samba_onnx.passes.rewrites.foreign.drafting import CannotExpandError, Draft
from samba_onnx.passes.rewrites.foreign.rules import expands


@expands(ONNXRUNTIME_DOMAIN, "Gelu")
def gelu(draft: Draft) -> ir.Value:
    """Gaussian error linear unit."""
    return draft.op("Gelu", draft.operand(0))


@expands(ONNXRUNTIME_DOMAIN, "BiasGelu")
def bias_gelu(draft: Draft) -> ir.Value:
    """Gaussian error linear unit of a value to which a bias is added."""
    return draft.op("Gelu", draft.op("Add", draft.operand(0), draft.operand(1)))


@expands(ONNXRUNTIME_DOMAIN, "FastGelu")
def fast_gelu(draft: Draft) -> ir.Value:
    """Gaussian error linear unit by tanh, of a value to which a bias may be added."""
    value, bias = draft.operand(0), draft.optional(1)
    total = value if bias is None else draft.op("Add", value, bias)
    return draft.op("Gelu", total, approximate="tanh")


@expands(ONNXRUNTIME_DOMAIN, "QuickGelu")
def quick_gelu(draft: Draft) -> ir.Value:
    """Value times the sigmoid of its multiple."""
    value = draft.operand(0)
    alpha = draft.number("alpha", 1.702)
    # A factor of one is left out: it would be a node and a rounding for nothing.
    inner = value if alpha == 1 else draft.op("Mul", value, draft.scalar(alpha, value))
    return draft.op("Mul", value, draft.op("Sigmoid", inner))


@expands(ONNXRUNTIME_DOMAIN, "BiasSoftmax")
def bias_softmax(draft: Draft) -> ir.Value:
    """Softmax over the last axes of a sum.

    ``is_inner_broadcast`` says which axes of the bias repeat; equal ranks broadcast either way as
    ONNX does.
    """
    value, bias = draft.operand(0), draft.operand(1)
    rank, axis = draft.rank(value), draft.integer("axis", 1)
    # ONNX's Softmax is over one axis; only over the last one is that the same as over all axes from
    # there on.
    if draft.axis(value, axis) != rank - 1:
        raise CannotExpandError(f"its axis {axis} is not the last of {rank}")
    # Bias of fewer dimensions broadcasts by is_inner_broadcast, which ONNX's Add knows nothing of.
    if draft.rank(bias) != rank:
        raise CannotExpandError("its bias has another rank than its data")
    return draft.op("Softmax", draft.op("Add", value, bias), axis=-1)


Parameters = Mapping[str, float]
"""``alpha``, ``beta`` and ``gamma`` of a fused activation, where the node states them."""


def _leaky_relu(draft: Draft, value: ir.Value, stated: Parameters) -> ir.Value:
    # Defaults are those of the operator itself, for parameters that the fused node leaves out.
    return draft.op("LeakyRelu", value, alpha=stated.get("alpha", 0.01))


def _hard_sigmoid(draft: Draft, value: ir.Value, stated: Parameters) -> ir.Value:
    return draft.op(
        "HardSigmoid", value, alpha=stated.get("alpha", 0.2), beta=stated.get("beta", 0.5)
    )


def _clip(draft: Draft, value: ir.Value, stated: Parameters) -> ir.Value:
    like = draft.operand(0)
    return draft.op(
        "Clip", value, draft.scalar(stated["alpha"], like), draft.scalar(stated["beta"], like)
    )


def _hard_swish(draft: Draft, value: ir.Value, stated: Parameters) -> ir.Value:
    # As a product: fused operators may state other numbers than HardSwish has.
    return draft.op("Mul", value, _hard_sigmoid(draft, value, {"alpha": 1 / 6, **stated}))


_APPLY: Final[Mapping[str, Callable[[Draft, ir.Value, Parameters], ir.Value]]] = {
    "Relu": lambda draft, value, stated: draft.op("Relu", value),
    "Sigmoid": lambda draft, value, stated: draft.op("Sigmoid", value),
    "Tanh": lambda draft, value, stated: draft.op("Tanh", value),
    "LeakyRelu": _leaky_relu,
    "HardSigmoid": _hard_sigmoid,
    "HardSwish": _hard_swish,
    "Clip": _clip,
}


def activate(draft: Draft, value: ir.Value, name: str, stated: Parameters) -> ir.Value:
    """Write the activation that a fused operator applies last.

    Args:
        draft: What is written into.
        value: What it is applied to.
        name: Its operator; empty for none.
        stated: Its parameters.

    Raises:
        CannotExpandError: It is an operator that onnxruntime does not fuse.
    """
    if not name:
        return value
    apply = _APPLY.get(name)
    # A Clip has no default bounds here: without both of them it would be another function.
    if apply is None or (name == "Clip" and not {"alpha", "beta"} <= stated.keys()):
        raise CannotExpandError(f"its activation {name} is none that onnxruntime fuses")
    return apply(draft, value, stated)
