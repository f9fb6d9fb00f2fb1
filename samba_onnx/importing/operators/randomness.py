"""Random numbers; the seeds of the graph are ignored in favour of torch's generator."""

from __future__ import annotations

import torch
from torch import Tensor

from samba_onnx.importing.operators.computations import Node, computes
from samba_onnx.importing.values import torch_dtype


def _dtype(node: Node, like: Tensor | None = None) -> torch.dtype:
    default = torch.float32 if like is None else like.dtype
    return torch_dtype(node.integer("dtype")) if "dtype" in node.attributes else default


@computes("RandomNormal")
def normal(node: Node) -> Tensor:
    """Normally distributed numbers in a given shape."""
    # Numbers are drawn in torch's generator, so that manual_seed governs the model as it does any
    # module.
    numbers = torch.randn(node.integers("shape"), dtype=_dtype(node))
    return numbers * node.number("scale", 1.0) + node.number("mean", 0.0)


@computes("RandomNormalLike")
def normal_like(node: Node, like: Tensor) -> Tensor:
    """Normally distributed numbers in the shape of another value."""
    numbers = torch.randn(like.shape, dtype=_dtype(node, like))
    return numbers * node.number("scale", 1.0) + node.number("mean", 0.0)


def _between(node: Node, numbers: Tensor) -> Tensor:
    low, high = node.number("low", 0.0), node.number("high", 1.0)
    return numbers * (high - low) + low


@computes("RandomUniform")
def uniform(node: Node) -> Tensor:
    """Evenly distributed numbers in a given shape."""
    return _between(node, torch.rand(node.integers("shape"), dtype=_dtype(node)))


@computes("RandomUniformLike")
def uniform_like(node: Node, like: Tensor) -> Tensor:
    """Evenly distributed numbers in the shape of another value."""
    return _between(node, torch.rand(like.shape, dtype=_dtype(node, like)))


@computes("Bernoulli")
def bernoulli(node: Node, probabilities: Tensor) -> Tensor:
    """Ones with given probabilities."""
    drawn = torch.rand(probabilities.shape, dtype=probabilities.dtype) < probabilities
    return drawn.to(_dtype(node, probabilities))


@computes("Multinomial")
def multinomial(node: Node, scores: Tensor) -> Tensor:
    """Classes drawn by unnormalised logarithms of probabilities."""
    drawn = torch.multinomial(torch.softmax(scores, -1), node.integer("sample_size", 1), True)
    # 6 is int32, ONNX's default here.
    return drawn.to(torch_dtype(node.integer("dtype", 6)))
