"""The update rules of optimizers, for one parameter.

Each is the formula that torch uses, with as few passes over memory as its accuracy allows:
everything that does not depend on an element of a tensor is a scalar that the host computes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, TypeAlias

import onnx_ir as ir

from samba_onnx.export.translation.builder import GraphBuilder
from samba_onnx.optim.records import Flag

LOW_PRECISION: Final = frozenset({ir.DataType.BFLOAT16, ir.DataType.FLOAT16})
"""Types that updates are not computed in."""


@dataclass(frozen=True)
class Update:
    """The operands of one update; all have the same type."""

    build: GraphBuilder
    flags: frozenset[Flag]
    scalars: Mapping[str, ir.Value]
    """Argins by name, of shape [], and what the rule computes of them for all parameters."""
    weight: ir.Value
    gradient: ir.Value
    """Gradient of the loss, of the weight's shape; so are all states."""
    state: Mapping[str, ir.Value]
    """By torch's key."""


Updated: TypeAlias = tuple[ir.Value, dict[str, ir.Value]]
"""The new weight, and the new state by torch's key."""


def sgd_scalars(build: GraphBuilder, scalars: Mapping[str, ir.Value]) -> dict[str, ir.Value]:
    """Write what SGD computes of argins alone, once for all parameters of a group.

    Args:
        build: Takes the nodes.
        scalars: The argins, with ``momentum``, in the type in which parameters are updated.

    Returns:
        ``has_momentum``, a truth value, and ``kept``, the share of the buffer that stays; of shape [].
    """
    momentum = scalars["momentum"]
    # Every run may set the momentum, so that the choice is part of the program.
    has_momentum = build.logical_not(build.compare("Equal", momentum, 0.0))
    # Without momentum torch leaves the buffer alone: it stays by a factor of 1.
    return {"has_momentum": has_momentum, "kept": build.where(has_momentum, momentum, 1.0)}


def sgd_update(update: Update) -> Updated:
    """Write a step of SGD.

    Args:
        update: With scalars ``lr``, ``weight_decay``, ``momentum``, ``one_minus_dampening`` and
            those of ``sgd_scalars``; state ``momentum_buffer``.

    Returns:
        The new weight, and the new state by torch's key. A run may set any momentum: at 0 the
        buffer stays as it is, also where the gradient is infinite or no number, and the step
        follows the gradient, as in torch.
    """
    build, scalars = update.build, update.scalars
    gradient, has_momentum = _penalized(update), scalars["has_momentum"]
    # Selected, not multiplied by 0: an infinite gradient would leave a buffer that is no number.
    dampened = build.multiply(gradient, scalars["one_minus_dampening"])
    added = build.where(has_momentum, dampened, 0.0)
    # An addition comes last, because it may write where the buffer lies that it reads.
    buffer = build.add(build.multiply(update.state["momentum_buffer"], scalars["kept"]), added)
    direction = buffer
    if Flag.NESTEROV in update.flags:
        direction = build.add(gradient, build.multiply(buffer, scalars["momentum"]))
    direction = build.where(has_momentum, direction, gradient)
    weight = build.subtract(update.weight, build.multiply(direction, scalars["lr"]))
    return weight, {"momentum_buffer": buffer}


def adam_update(update: Update) -> Updated:
    """Write a step of Adam or AdamW.

    Args:
        update: With scalars ``one_minus_beta1``, ``beta2``, ``one_minus_beta2``, ``epsilon``,
            ``step_size``, and ``decay`` for AdamW or ``weight_decay`` for Adam; state ``exp_avg``,
            ``exp_avg_sq`` and, by flag, ``max_exp_avg_sq``.

    Returns:
        The new weight, and the new state by torch's key.
    """
    build, scalars, weight = update.build, update.scalars, update.weight
    gradient, negated = update.gradient, Flag.MAXIMIZE in update.flags
    # In AdamW the weight itself decays; in Adam the penalty is part of the gradient.
    if "decay" in scalars:
        weight = build.multiply(weight, scalars["decay"])
    else:
        # The penalised gradient is negated already.
        gradient, negated = _penalized(update), False
    average = update.state["exp_avg"]
    # average + ((-gradient if negated else gradient) - average) * one_minus_beta1
    apart = build.add(gradient, average) if negated else build.subtract(gradient, average)
    moved = build.multiply(apart, scalars["one_minus_beta1"])
    average = build.subtract(average, moved) if negated else build.add(average, moved)
    square = build.multiply(build.multiply(gradient, scalars["one_minus_beta2"]), gradient)
    squares = build.add(build.multiply(update.state["exp_avg_sq"], scalars["beta2"]), square)
    state = {"exp_avg": average, "exp_avg_sq": squares}
    if Flag.AMSGRAD in update.flags:
        squares = build.binary("Max", update.state["max_exp_avg_sq"], squares)
        state["max_exp_avg_sq"] = squares
    denominator = build.add(build.unary("Sqrt", squares), scalars["epsilon"])
    change = build.multiply(build.divide(average, denominator), scalars["step_size"])
    return build.subtract(weight, change), state


def _penalized(update: Update) -> ir.Value:
    """Return the gradient of what is minimized, with the L2 penalty."""
    build = update.build
    penalty = build.multiply(update.weight, update.scalars["weight_decay"])
    if Flag.MAXIMIZE in update.flags:
        return build.subtract(penalty, update.gradient)
    return build.add(update.gradient, penalty)
