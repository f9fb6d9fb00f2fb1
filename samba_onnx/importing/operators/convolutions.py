"""Convolutions."""

from __future__ import annotations

import torch
import torch.nn.functional as F  # noqa: N812  (torch's own convention)
from torch import Tensor

from samba_onnx.importing.operators.computations import Node, computes
from samba_onnx.importing.operators.windows import SlidingWindows, windows

_FORWARD = {1: F.conv1d, 2: F.conv2d, 3: F.conv3d}
_TRANSPOSED = {1: F.conv_transpose1d, 2: F.conv_transpose2d, 3: F.conv_transpose3d}


@computes("Conv")
def conv(node: Node, value: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """Convolve, in groups, with strides, dilations and any padding."""
    place = windows(node, value, weight.shape[2:])
    padding = place.before
    # torch's convolutions take one number per axis, for both sides. Different ends are padded by an
    # operator of its own.
    if not place.symmetric:
        value, padding = F.pad(value, place.padding()), [0] * len(padding)
    function = _FORWARD[len(padding)]
    return function(
        value, weight, bias, place.strides, padding, place.dilations, node.integer("group", 1)
    )


@computes("ConvTranspose")
def conv_transpose(node: Node, value: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """Convolve backwards: each element spreads over a window of the result."""
    place = windows(node, value, weight.shape[2:])
    rank, group = len(place.kernel), node.integer("group", 1)
    added, before, after = _transposed_padding(node, value, place)
    function = _TRANSPOSED[rank]
    # torch refuses an `output_padding` that is not below stride or dilation, and ONNX allows it.
    plain = before == after and all(
        extra < max(stride, dilation)
        for extra, stride, dilation in zip(added, place.strides, place.dilations, strict=True)
    )
    # Negative pads ask for a larger result, which torch has no argument for.
    if plain and min(before) >= 0:
        return function(value, weight, bias, place.strides, before, added, group, place.dilations)
    # Else the whole spread is computed and cut or filled. The bias waits until then, for it belongs
    # to the filled places too.
    full = function(value, weight, None, place.strides, 0, 0, group, place.dilations)
    changes: list[int] = []
    for axis in reversed(range(rank)):
        changes += [-before[axis], added[axis] - after[axis]]
    result = F.pad(full, changes)
    return result if bias is None else result + bias.reshape(-1, *[1] * rank)


def _transposed_padding(
    node: Node, value: Tensor, place: SlidingWindows
) -> tuple[list[int], list[int], list[int]]:
    """Return what is added at the end, and what is cut off before and after."""
    rank = len(place.kernel)
    added = node.integers("output_padding", [0] * rank)
    automatic = node.text("auto_pad", "NOTSET")
    sizes = node.integers("output_shape")[-rank:]
    if not sizes and automatic not in ("SAME_UPPER", "SAME_LOWER"):
        return added, place.before, place.after
    before, after = [], []
    for axis in range(rank):
        size, stride = value.shape[2 + axis], place.strides[axis]
        # Elements that one window spans, gaps of a dilation included.
        reach = (place.kernel[axis] - 1) * place.dilations[axis] + 1
        target = sizes[axis] if sizes else size * stride
        excess = stride * (size - 1) + added[axis] + reach - target
        cut = max(excess, 0)
        # The specification gives the odd element to the end for SAME_UPPER alone, and to the
        # beginning for every other mode, VALID among them.
        first = cut // 2 if automatic == "SAME_UPPER" else cut - cut // 2
        before.append(first)
        # What a stated size is too large by is filled at the end whatever the mode is. SAME without
        # a size cuts only: onnxruntime keeps a result that is smaller than it.
        after.append((excess if sizes else cut) - first)
    return added, before, after


@computes("ConvInteger")
def conv_integer(
    node: Node,
    value: Tensor,
    weight: Tensor,
    value_zero: Tensor | None = None,
    weight_zero: Tensor | None = None,
) -> Tensor:
    """Convolve small integers in 32 bits."""
    # Sums of products of 8-bit integers stay far below 2^53, so that float64 computes them exactly.
    wide, kernel = value.to(torch.float64), weight.to(torch.float64)
    if value_zero is not None:
        wide = wide - value_zero
    if weight_zero is not None:
        # The zero point of a weight is one number or one per filter, which is its first axis.
        kernel = kernel - weight_zero.reshape(-1, *[1] * (weight.dim() - 1))
    return conv(node, wide, kernel).to(torch.int32)


@computes("DeformConv")
def deformable_conv(
    node: Node,
    value: Tensor,
    weight: Tensor,
    offset: Tensor,
    bias: Tensor | None = None,
    mask: Tensor | None = None,
) -> Tensor:
    """Convolve in two dimensions at places that are moved by offsets."""
    place = windows(node, value, weight.shape[2:])
    if len(place.kernel) != 2:
        raise node.refuse("deformable convolution is computed in two dimensions only")
    samples = _deformed(value, place, offset, mask, node.integer("offset_group", 1))
    group = node.integer("group", 1)
    batch, channels, taps, rows, columns = samples.shape
    # With the samples known, what remains is a product of matrices: no convolution is left.
    parts = samples.reshape(batch, group, channels // group * taps, rows * columns)
    filters = weight.reshape(group, weight.shape[0] // group, -1)
    result = torch.matmul(filters, parts).reshape(batch, -1, rows, columns)
    return result if bias is None else result + bias.reshape(-1, 1, 1)


def _deformed(
    value: Tensor, place: SlidingWindows, offset: Tensor, mask: Tensor | None, groups: int
) -> Tensor:
    """Return [batch, channels, taps, rows, columns]: what each tap of each window sees."""
    batch, channels, height, width = value.shape
    rows, columns = offset.shape[2:]
    taps = place.kernel[0] * place.kernel[1]
    moved = offset.reshape(batch, groups, taps, 2, rows, columns)
    steps = torch.arange(taps)
    down = (steps // place.kernel[1] * place.dilations[0]).reshape(-1, 1, 1)
    right = (steps % place.kernel[1] * place.dilations[1]).reshape(-1, 1, 1)
    first_row = torch.arange(rows).reshape(1, -1, 1) * place.strides[0] - place.before[0]
    first_column = torch.arange(columns).reshape(1, 1, -1) * place.strides[1] - place.before[1]
    y = (down + first_row) + moved[:, :, :, 0]
    x = (right + first_column) + moved[:, :, :, 1]
    # grid_sample counts from -1 to 1 between the outer edges of the first and last element, which
    # is what (2 x + 1) / n - 1 undoes.
    grid = torch.stack([(2 * x + 1) / width - 1, (2 * y + 1) / height - 1], -1)
    grid = grid.reshape(batch * groups, taps * rows, columns, 2)
    parts = value.reshape(batch * groups, channels // groups, height, width)
    # Zeros outside, as ONNX defines; `align_corners` must fit the formula above.
    seen = F.grid_sample(parts, grid, "bilinear", "zeros", align_corners=False)
    seen = seen.reshape(batch, groups, channels // groups, taps, rows, columns)
    if mask is not None:
        seen = seen * mask.reshape(batch, groups, 1, taps, rows, columns)
    return seen.reshape(batch, channels, taps, rows, columns)
