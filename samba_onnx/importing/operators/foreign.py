"""Operators of onnxruntime's own domain that its optimiser writes into models."""

from __future__ import annotations

import torch
import torch.nn.functional as F  # noqa: N812  (torch's own convention)
from torch import Tensor

from samba_onnx.facts.domains import ONNXRUNTIME_DOMAIN
from samba_onnx.importing.operators.normalisation import rms_normalization
from samba_onnx.importing.operators.registry import Node, computes, enter


@computes(f"{ONNXRUNTIME_DOMAIN}::Gelu")
def gelu(node: Node, value: Tensor) -> Tensor:
    """Gaussian error linear unit."""
    del node
    return F.gelu(value)


@computes(f"{ONNXRUNTIME_DOMAIN}::FastGelu")
def fast_gelu(node: Node, value: Tensor, bias: Tensor | None = None) -> Tensor:
    """Gaussian error linear unit by tanh, of a value to which a bias is added."""
    del node
    return F.gelu(value if bias is None else value + bias, approximate="tanh")


@computes(f"{ONNXRUNTIME_DOMAIN}::BiasGelu")
def bias_gelu(node: Node, value: Tensor, bias: Tensor) -> Tensor:
    """Gaussian error linear unit of a value to which a bias is added."""
    del node
    return F.gelu(value + bias)


@computes(f"{ONNXRUNTIME_DOMAIN}::QuickGelu")
def quick_gelu(node: Node, value: Tensor) -> Tensor:
    """Value times a sigmoid."""
    return value * torch.sigmoid(value * node.number("alpha", 1.702))


@computes(f"{ONNXRUNTIME_DOMAIN}::FusedMatMul")
def fused_matmul(node: Node, left: Tensor, right: Tensor) -> Tensor:
    """Product of matrices, each maybe transposed, scaled."""
    left = left.transpose(-1, -2) if node.integer("transA") else left
    right = right.transpose(-1, -2) if node.integer("transB") else right
    return torch.matmul(left, right) * node.number("alpha", 1.0)


@computes(f"{ONNXRUNTIME_DOMAIN}::SkipLayerNormalization")
def skip_layer_normalization(
    node: Node,
    value: Tensor,
    skip: Tensor,
    scale: Tensor,
    shift: Tensor | None = None,
    bias: Tensor | None = None,
) -> tuple[Tensor, None, None, Tensor]:
    """Layer normalisation of a sum, and the sum."""
    total = value + skip if bias is None else value + skip + bias
    sizes = list(scale.shape)
    result = F.layer_norm(total, sizes, scale, shift, node.number("epsilon", 1e-5))
    return result, None, None, total


@computes(f"{ONNXRUNTIME_DOMAIN}::SkipSimplifiedLayerNormalization")
def skip_rms_normalization(
    node: Node, value: Tensor, skip: Tensor, scale: Tensor, bias: Tensor | None = None
) -> tuple[Tensor, None, None, Tensor]:
    """Root mean square normalisation of a sum, and the sum."""
    total = value + skip if bias is None else value + skip + bias
    return rms_normalization(node, total, scale), None, None, total


enter(f"{ONNXRUNTIME_DOMAIN}::SimplifiedLayerNormalization", rms_normalization)
