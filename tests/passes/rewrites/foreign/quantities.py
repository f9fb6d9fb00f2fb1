"""Seeded integers, scales and zero points for the tests of quantised operators."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
import torch

ONE_STEP = {"rtol": 0.0, "atol": 1.0}
"""Tolerance of quantised results: where a number lies between two integers, the last bit of it decides, and
onnxruntime multiplies integers, or looks the result up in a table, where the expansion computes with numbers."""


INTEGER_PRODUCTS = frozenset({"ConvInteger", "MatMulInteger"})
"""Operators whose results are sums of products of integers, and nothing else."""


def is_integer_product(proto: onnx.ModelProto) -> bool:
    """Tell whether a model is one such operator."""
    return len(proto.graph.node) == 1 and proto.graph.node[0].op_type in INTEGER_PRODUCTS


def in_integers(proto: onnx.ModelProto, operands: Sequence[Any]) -> Any:
    """Return what a model of one such operator is by integer arithmetic, on no kernel of onnxruntime's.

    Args:
        proto: The model.
        operands: Its inputs, those that are initializers included; None for one that is left out.
    """
    node = proto.graph.node[0]
    left, right, *zeros = (None if x is None else x.astype(np.int64) for x in operands)
    zero, other = (0 if x is None else x for x in [*zeros, None, None][:2])
    if node.op_type == "MatMulInteger":
        rows = zero[..., None] if np.ndim(zero) and np.size(zero) > 1 else zero
        return ((left - rows) @ (right - other)).astype(np.int32)
    form = {item.name: onnx.helper.get_attribute_value(item) for item in node.attribute}
    weight = right - np.reshape(other, (-1, *[1] * (right.ndim - 1)))
    rank = right.ndim - 2
    strides = form.get("strides", [1] * rank)
    dilations = form.get("dilations", [1] * rank)
    pads = list(form.get("pads", [0] * 2 * rank))
    if form.get("auto_pad", b"NOTSET") != b"NOTSET":
        pads = _same_pads(left.shape[2:], right.shape[2:], strides, form["auto_pad"])
    sides = [number for at in reversed(range(rank)) for number in (pads[at], pads[at + rank])]
    image = torch.nn.functional.pad(torch.from_numpy(left - zero), sides)
    # torch has no convolution of int64; in float64 sums of integers below 2^53 are exact.
    result = (torch.conv1d, torch.conv2d, torch.conv3d)[rank - 1](
        image.double(),
        torch.from_numpy(weight).double(),
        stride=list(strides),
        dilation=list(dilations),
        groups=form.get("group", 1),
    )
    return result.numpy().astype(np.int32)


def _same_pads(sizes: Any, window: Any, strides: Any, kind: bytes) -> list[int]:
    """Pads by which an output is as large as the input over the stride; the odd one is first or last."""
    totals = [
        max((-(-size // stride) - 1) * stride + width - size, 0)
        for size, width, stride in zip(sizes, window, strides, strict=True)
    ]
    small, large = [total // 2 for total in totals], [-(-total // 2) for total in totals]
    return [*large, *small] if kind == b"SAME_LOWER" else [*small, *large]


def unsigned(*shape: int, seed: int = 0) -> Any:
    """Return uint8 over the whole range."""
    return np.random.default_rng(seed).integers(0, 256, shape).astype(np.uint8)


def signed(*shape: int, seed: int = 0) -> Any:
    """Return int8 over the whole range."""
    return np.random.default_rng(seed).integers(-128, 128, shape).astype(np.int8)


def scale(*items: float) -> Any:
    """Return one scale, or a vector of several."""
    return np.array(items[0] if len(items) == 1 else items, np.float32)


def point(number: Any, dtype: Any = np.uint8) -> Any:
    """Return one zero point, or a vector of several."""
    return np.array(number, dtype)
