"""Normalisations and dropout."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F  # noqa: N812  (torch's own convention)
from torch import Tensor

from samba_onnx.importing.operators.computations import Node, computes
from samba_onnx.importing.values import Array


@computes("BatchNormalization")
def batch_normalization(
    node: Node, value: Tensor, scale: Tensor, bias: Tensor, mean: Tensor, variance: Tensor
) -> Tensor | tuple[Tensor, Tensor, Tensor]:
    """Normalise channels by the statistics that are given, or of the batch with ``training_mode``.

    Moving statistics are results, as ONNX has it; the module writes them back to their buffers.
    """
    epsilon = node.number("epsilon", 1e-5)
    if not node.integer("training_mode"):
        return F.batch_norm(value, mean, variance, scale, bias, False, 0.0, epsilon)
    # torch is given no statistics, since it would move them in place: the graph has them as
    # results.
    result = F.batch_norm(value, None, None, scale, bias, True, 0.0, epsilon)
    axes = [axis for axis in range(value.dim()) if axis != 1]
    # torch keeps the unbiased variance in its buffers, ONNX the population's: they are computed
    # here. No gradient flows through moving statistics.
    batch_variance, batch_mean = torch.var_mean(value.detach(), axes, correction=0)
    momentum = node.number("momentum", 0.9)
    return (
        result,
        # ONNX's momentum is the share of the old value, torch's that of the new one.
        mean * momentum + batch_mean * (1 - momentum),
        variance * momentum + batch_variance * (1 - momentum),
    )


@computes("InstanceNormalization")
def instance_normalization(node: Node, value: Tensor, scale: Tensor, bias: Tensor) -> Tensor:
    """Normalise each channel of each element by itself."""
    # Groups of one channel each are the same computation.
    return F.group_norm(value, value.shape[1], scale, bias, node.number("epsilon", 1e-5))


@computes("GroupNormalization")
def group_normalization(node: Node, value: Tensor, scale: Tensor, bias: Tensor) -> Tensor:
    """Normalise groups of channels."""
    groups = node.integer("num_groups")
    return F.group_norm(value, groups, scale, bias, node.number("epsilon", 1e-5))


@computes("LayerNormalization")
def layer_normalization(
    node: Node, value: Tensor, scale: Tensor, bias: Tensor | None = None
) -> Tensor | tuple[Tensor, Tensor, Tensor]:
    """Normalise over all axes from ``axis`` on; return mean and inverse deviation too."""
    axis = node.integer("axis", -1) % value.dim()
    epsilon = node.number("epsilon", 1e-5)
    sizes = list(value.shape[axis:])
    # F.layer_norm takes scales of exactly the normalised shape; ONNX broadcasts them.
    plain = list(scale.shape) == sizes and (bias is None or list(bias.shape) == sizes)
    if plain:
        result = F.layer_norm(value, sizes, scale, bias, epsilon)
    else:
        result = F.layer_norm(value, sizes, None, None, epsilon) * scale
        result = result if bias is None else result + bias
    if not node.wants(1) and not node.wants(2):
        return result
    axes = list(range(axis, value.dim()))
    variance, mean = torch.var_mean(value, axes, correction=0, keepdim=True)
    return result, mean, torch.rsqrt(variance + epsilon)


@computes("RMSNormalization", "SimplifiedLayerNormalization")
def rms_normalization(node: Node, value: Tensor, scale: Tensor) -> Tensor:
    """Divide by the root of the mean square over all axes from ``axis`` on."""
    axis = node.integer("axis", -1) % value.dim()
    # The specification computes in float32 (`stash_type` 1), also for float16.
    wide = value if value.dtype == torch.float64 else value.float()
    square = (wide * wide).mean(list(range(axis, value.dim())), keepdim=True)
    result = wide * torch.rsqrt(square + node.number("epsilon", 1e-5))
    # Back to the operand's type before the scale is applied, in the order of the specification.
    return result.to(value.dtype) * scale


@computes("LpNormalization")
def lp_normalization(node: Node, value: Tensor) -> Tensor:
    """Divide by the norm along an axis; zeros stay zeros."""
    return F.normalize(value, float(node.integer("p", 2)), node.integer("axis", -1))


@computes("MeanVarianceNormalization")
def mean_variance_normalization(node: Node, value: Tensor) -> Tensor:
    """Subtract the mean over some axes and divide by the deviation."""
    axes = node.integers("axes", [0, 2, 3])
    centred = value - value.mean(axes, keepdim=True)
    deviation = torch.sqrt((centred * centred).mean(axes, keepdim=True))
    # The small number stands in the specification's function body, which is no epsilon to choose.
    return centred / (deviation + 1e-9)


@computes("LRN")
def local_response_normalization(node: Node, value: Tensor) -> Tensor:
    """Divide by a power of the mean square over neighbouring channels."""
    size = node.integer("size")
    # With an even size the longer half lies behind, as the specification has it; torch's own puts
    # it before.
    before, after = math.floor((size - 1) / 2), math.ceil((size - 1) / 2)
    ends = [0, 0] * (value.dim() - 2) + [before, after]
    squares = F.pad(value * value, ends).unfold(1, size, 1).sum(-1)
    scale = node.number("bias", 1.0) + node.number("alpha", 1e-4) / size * squares
    return value / scale ** node.number("beta", 0.75)


@computes("Dropout", known=(1, 2))
def dropout(
    node: Node, value: Tensor, ratio: Array | None = None, training: Array | None = None
) -> tuple[Tensor, Tensor]:
    """Drop elements where the graph says training and the module is in training mode."""
    # The default is ONNX's.
    rate = 0.5 if ratio is None else float(ratio.item())
    # Both must train: an inference export is never noisy, and a module in evaluation mode neither.
    if training is None or not training.item() or not node.training or rate == 0.0:
        return value, torch.ones_like(value, dtype=torch.bool)
    if node.wants(1):
        # F.dropout does not return its mask.
        result, mask = torch.native_dropout(value, rate, True)
        return result, mask
    return F.dropout(value, rate), torch.ones_like(value, dtype=torch.bool)
