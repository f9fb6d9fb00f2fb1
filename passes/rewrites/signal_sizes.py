"""Sizes of images and sound that nobody states, found by what reads them: convolutions."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

import onnx_ir as ir

from samba_onnx.facts.operators import Kind, facts
from samba_onnx.passes.rewrites.interface import Dimension, dimensions

SIDE: Final = 224
"""Rows and columns of an image: what most classifiers are trained with, and a multiple of the 32 by which the networks of
detectors make images smaller."""

SAMPLES: Final = 16_000
"""Samples of sound: a second at the rate that models of speech are trained with."""

FRAMES: Final = 128
"""Steps of a signal with channels, as of a spectrogram."""

_SOUND: Final = re.compile(r"sample|wave|audio", re.IGNORECASE)
_COLORS: Final = (1, 3, 4)
"""Channels that pictures have."""
_STEPS: Final = frozenset({"BatchNormalization", "DynamicQuantizeLinear"})
"""Operators before a first convolution that compute each element by itself, but for numbers that all share."""
_MOST_STEPS: Final = 50
"""Values that are looked at behind an input: what is computed from it later is no picture any more."""


def signal_sizes(value: ir.Value) -> Iterator[tuple[str, int]]:
    """Yield the dynamic dimensions of an input that are sides of an image or go along a signal, with useful sizes.

    Args:
        value: An input of the main graph. The name of a dimension is its own, or its place, as ``x[2]``.
    """
    shape = dimensions(value.shape) or ()
    if not shape or value.dtype in (ir.DataType.INT32, ir.DataType.INT64, ir.DataType.BOOL):
        return
    axes, size = _signal(value, shape)
    for axis in axes:
        dim = shape[axis]
        if not isinstance(dim, int):
            yield dim if isinstance(dim, str) else f"{value.name}[{axis}]", size


def _signal(value: ir.Value, shape: tuple[Dimension, ...]) -> tuple[tuple[int, ...], int]:
    """Return the axes that convolutions go along, and the size of each."""
    last = len(shape) - 1
    # By name, where no convolution says more: that of the input, too, but of its first dimension, which is a batch.
    names = [str(shape[last])] if last == 0 else [str(shape[last]), value.name or ""]
    named = last < 3 and any(map(_SOUND.search, names))
    spatial = _convolved(value)
    if spatial == 2 and len(shape) == 4:
        return _sides(shape), SIDE
    if spatial == 1 and len(shape) == 3 and shape[1] not in (1, None) and not named:
        return (2,), FRAMES
    if named or (spatial == 1 and len(shape) <= 3):
        return (last,), SAMPLES
    return (), 0


def _sides(shape: tuple[Dimension, ...]) -> tuple[int, ...]:
    """Return the axes of rows and columns: channels are a number, behind the batch or at the end."""
    if shape[3] in _COLORS:
        return 1, 2
    # Where both may be channels, as in [batch, ?, ?, ?], nothing is known.
    return (2, 3) if isinstance(shape[1], int) else ()


def _convolved(value: ir.Value) -> int:
    """Return along how many axes the first convolution goes that an input leads to; 0 for none."""
    seen, pending = {value}, [value]
    while pending and len(seen) < _MOST_STEPS:
        for node, position in pending.pop(0).uses():
            if node.op_type in ("Conv", "ConvInteger", "QLinearConv") and position == 0:
                kernel = node.inputs[3 if node.op_type == "QLinearConv" else 1]
                shape = None if kernel is None else kernel.shape
                return 0 if shape is None else max(len(shape) - 2, 0)
            row = facts(node.op_type, node.domain)
            passes = row is not None and row.kind in (Kind.ELEMENTWISE, Kind.VIEW, Kind.MOVE)
            if passes or node.op_type in _STEPS:
                pending += [output for output in node.outputs if output not in seen]
                seen.update(node.outputs)
    return 0
