"""Activation functions."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F  # noqa: N812  (torch's own convention)
from torch import Tensor

from samba_onnx.importing.operators.computations import Node, computes, enter
from samba_onnx.importing.operators.elementwise import direct

_DIRECT: dict[str, Callable[..., Tensor]] = {
    "HardSwish": F.hardswish,
    "Mish": F.mish,
    "Relu": torch.relu,
    "Softplus": F.softplus,
    "Softsign": F.softsign,
}

for _name, _function in _DIRECT.items():
    enter(_name, direct(_function))


@computes("Elu")
def elu(node: Node, value: Tensor) -> Tensor:
    """Exponential linear unit."""
    # ONNX states defaults per operator; torch's own differ for some, so that all are written out
    # here.
    return F.elu(value, node.number("alpha", 1.0))


@computes("Celu")
def celu(node: Node, value: Tensor) -> Tensor:
    """Continuously differentiable exponential linear unit."""
    return F.celu(value, node.number("alpha", 1.0))


@computes("Selu")
def selu(node: Node, value: Tensor) -> Tensor:
    """Scaled exponential linear unit; its constants are attributes."""
    alpha = node.number("alpha", 1.6732632423543772)
    # torch.selu has the constants built in, and the attributes may name others.
    return F.elu(value, alpha) * node.number("gamma", 1.0507009873554805)


@computes("Gelu")
def gelu(node: Node, value: Tensor) -> Tensor:
    """Gaussian error linear unit, exact or by tanh."""
    return F.gelu(value, approximate=node.text("approximate", "none"))


@computes("LeakyRelu")
def leaky_relu(node: Node, value: Tensor) -> Tensor:
    """Rectifier with a slope for negative values."""
    return F.leaky_relu(value, node.number("alpha", 0.01))


@computes("PRelu")
def prelu(node: Node, value: Tensor, slope: Tensor) -> Tensor:
    """Rectifier with trainable slopes that broadcast to the value."""
    del node
    # F.prelu takes one slope or one per channel; ONNX broadcasts slopes of any shape.
    return torch.where(value < 0, value * slope, value)


@computes("HardSigmoid")
def hard_sigmoid(node: Node, value: Tensor) -> Tensor:
    """Piecewise linear sigmoid."""
    # F.hardsigmoid has slope 1/6, ONNX an attribute that is 0.2 by default.
    line = value * node.number("alpha", 0.2) + node.number("beta", 0.5)
    return torch.clamp(line, 0.0, 1.0)


@computes("ThresholdedRelu")
def thresholded_relu(node: Node, value: Tensor) -> Tensor:
    """Keep what is above a threshold."""
    return torch.where(value > node.number("alpha", 1.0), value, torch.zeros_like(value))


@computes("Shrink")
def shrink(node: Node, value: Tensor) -> Tensor:
    """Move values towards zero by ``bias``; within ``lambd`` of it they become zero."""
    bias, limit = node.number("bias", 0.0), node.number("lambd", 0.5)
    zero = torch.zeros_like(value)
    # torch's hardshrink and softshrink are the cases of bias 0 and of bias equal to lambd.
    upper = torch.where(value > limit, value - bias, zero)
    return torch.where(value < -limit, value + bias, upper)


@computes("Swish")
def swish(node: Node, value: Tensor) -> Tensor:
    """Value times its sigmoid."""
    return value * torch.sigmoid(value * node.number("alpha", 1.0))


@computes("Softmax")
def softmax(node: Node, value: Tensor) -> Tensor:
    """Normalised exponentials along one axis."""
    return F.softmax(value, node.integer("axis", -1))


@computes("LogSoftmax")
def log_softmax(node: Node, value: Tensor) -> Tensor:
    """Logarithm of normalised exponentials along one axis."""
    return F.log_softmax(value, node.integer("axis", -1))


@computes("Hardmax")
def hardmax(node: Node, value: Tensor) -> Tensor:
    """One at the first maximum along an axis, zero elsewhere."""
    axis = node.integer("axis", -1)
    # Of equal elements torch returns the first, as ONNX demands.
    place = value.argmax(axis, keepdim=True)
    return torch.zeros_like(value).scatter(axis, place, torch.ones_like(value))
