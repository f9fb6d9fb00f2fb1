"""Fourier transforms, as products with real matrices, and windows."""

from __future__ import annotations

import math

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812  (torch's own convention)
from torch import Tensor

from samba_onnx.importing.operators.computations import Node, computes
from samba_onnx.importing.values import Array, tensor_of, torch_dtype


def _waves(length: int, *, inverse: bool, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """Return the cosines and sines of a transform, [frequencies, places] each."""
    steps = np.arange(length)
    # Whole turns are taken off while the product is an integer: sin and cos of large angles lose
    # digits.
    angles = 2 * np.pi * (np.outer(steps, steps) % length) / length
    factor = 1 / length if inverse else 1.0
    sign = 1.0 if inverse else -1.0
    cosines, sines = tensor_of(np.cos(angles) * factor), tensor_of(sign * np.sin(angles) * factor)
    return cosines.to(dtype), sines.to(dtype)


def _transform(value: Tensor, length: int, *, inverse: bool) -> Tensor:
    """Transform along the axis before the last, which holds one or two parts of numbers."""
    missing = length - value.shape[-2]
    # A length below the axis is negative padding, which cuts.
    value = F.pad(value, [0, 0, 0, missing])
    cosines, sines = _waves(length, inverse=inverse, dtype=value.dtype)
    real = value[..., 0]
    parts = [torch.matmul(real, cosines.t()), torch.matmul(real, sines.t())]
    if value.shape[-1] == 2:
        imaginary = value[..., 1]
        parts[0] = parts[0] - torch.matmul(imaginary, sines.t())
        parts[1] = parts[1] + torch.matmul(imaginary, cosines.t())
    return torch.stack(parts, -1)


@computes("DFT", known=(1, 2))
def fourier(
    node: Node, value: Tensor, length: Array | None = None, axis: Array | None = None
) -> Tensor:
    """Discrete Fourier transform along an axis, forward or back, of real or complex numbers."""
    place = (-2 if axis is None else int(axis.item())) % value.dim()
    inverse, half = bool(node.integer("inverse")), bool(node.integer("onesided"))
    # One half of the frequencies belongs to an even number of places, unless `length` says else.
    count = 2 * (value.shape[place] - 1) if inverse and half else value.shape[place]
    count = count if length is None else int(length.item())
    moved = value.movedim(place, -2)
    if inverse and half:
        return _real_inverse(moved, count, place)
    result = _transform(moved, count, inverse=inverse)
    if half:
        result = result.narrow(-2, 0, count // 2 + 1)
    return result.movedim(-2, place)


def _real_inverse(value: Tensor, count: int, place: int) -> Tensor:
    """Go back to real numbers from one half of the frequencies."""
    # The other half is the conjugate of the first, backwards, without the first and maybe the
    # middle.
    mirrored = value[..., 1 : count - value.shape[-2] + 1, :].flip(-2)
    signs = torch.stack([torch.ones(()), -torch.ones(())]).to(value.dtype)
    whole = torch.cat([value, mirrored * signs], -2)
    return _transform(whole, count, inverse=True)[..., :1].movedim(-2, place)


@computes("STFT", known=(1, 3))
def short_time_fourier(
    node: Node,
    signal: Tensor,
    step: Array,
    window: Tensor | None = None,
    length: Array | None = None,
) -> Tensor:
    """Fourier transforms of overlapping frames."""
    if length is None and window is None:
        raise node.refuse("neither a window nor the length of frames is given")
    count = (
        int(length.item()) if length is not None else (window.shape[0] if window is not None else 0)
    )
    frames = signal.unfold(1, count, int(step.item())).transpose(2, 3)
    if window is not None:
        frames = frames * window.unsqueeze(-1)
    result = _transform(frames, count, inverse=False)
    return result.narrow(-2, 0, count // 2 + 1) if node.integer("onesided", 1) else result


def _window(node: Node, size: Array, *coefficients: float) -> Tensor:
    """Return a sum of cosines over a window."""
    count = int(size.item())
    # A periodic window leaves out its last element, which would repeat the first.
    span = count if node.integer("periodic", 1) else count - 1
    angles = 2 * math.pi * np.arange(count) / max(span, 1)
    numbers = sum(c * np.cos(k * angles) for k, c in enumerate(coefficients))
    return tensor_of(np.asarray(numbers)).to(torch_dtype(node.integer("output_datatype", 1)))


@computes("HannWindow", known=(0,))
def hann_window(node: Node, size: Array) -> Tensor:
    """Hann window."""
    return _window(node, size, 0.5, -0.5)


@computes("HammingWindow", known=(0,))
def hamming_window(node: Node, size: Array) -> Tensor:
    """Hamming window, with the coefficients of ONNX."""
    return _window(node, size, 25 / 46, -21 / 46)


@computes("BlackmanWindow", known=(0,))
def blackman_window(node: Node, size: Array) -> Tensor:
    """Blackman window."""
    return _window(node, size, 0.42, -0.5, 0.08)
