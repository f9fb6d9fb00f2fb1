"""Seeded inputs for a trial run: the same specification and seed give the same arrays anywhere."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx

from samba_onnx.errors import ModelLimitError, UsageError
from samba_onnx.facts.dtypes import ELEMENT_TYPES, tensor_element, tensor_text
from samba_onnx.safety.files import printable

__all__ = ["LIMIT_BYTES", "random_inputs"]

LIMIT_BYTES = 4 << 30
"""Inputs of one trial run may take this much memory."""

_WORDS = ("", "a", "alpha", "Beta 2", "gamma-delta")

_T = onnx.TensorProto
_DTYPES: dict[int, np.dtype[Any]] = {
    _T.STRING: np.dtype(object),
    **{element.number: element.numpy for element in ELEMENT_TYPES.values()},
}
_FLOATS = frozenset(
    {_T.FLOAT, _T.DOUBLE, _T.FLOAT16, _T.BFLOAT16, _T.FLOAT8E4M3FN, _T.FLOAT8E4M3FNUZ}
    | {_T.FLOAT8E5M2, _T.FLOAT8E5M2FNUZ, _T.FLOAT4E2M1}
)


def random_inputs(
    specs: Mapping[str, tuple[int | str, Sequence[int]]], seed: int
) -> dict[str, npt.NDArray[Any]]:
    """Make one array per input.

    Floating-point values are normally distributed with mean 0 and variance 1. Integers are 0 or 1,
    because these are valid as token ids, token types, masks, lengths and indices alike, where
    larger ones may lie outside of a table that nobody described here; the first along the last
    axis is 1, so that a mask never hides a whole row and a scalar never divides by zero. Booleans
    follow the same rule. Strings come from a short list of words.

    Args:
        specs: For each input, in the order of the graph, its data type, as
            ``onnx.TensorProto.FLOAT`` or ``"tensor(float)"``, and its shape.
        seed: Any integer; every input has its own stream, so that one input's values do not depend
            on another's shape.

    Returns:
        The arrays by input name, in the order of ``specs``.

    Raises:
        UsageError: An input is no tensor, or of a type that numpy cannot hold.
        ModelLimitError: All inputs together take more than ``LIMIT_BYTES``.
    """
    total = 0
    arrays: dict[str, npt.NDArray[Any]] = {}
    for position, (name, (kind, shape)) in enumerate(specs.items()):
        data_type = _data_type(name, kind)
        total += math.prod(shape) * _DTYPES[data_type].itemsize
        if total > LIMIT_BYTES:
            raise ModelLimitError(
                f"input {printable(name)!r} of shape {printable(list(shape), 60)} makes the sample "
                f"larger than {LIMIT_BYTES} bytes: give smaller dimensions"
            )
        generator = np.random.default_rng([seed & 0xFFFFFFFFFFFFFFFF, position])
        arrays[name] = _array(generator, data_type, tuple(shape))
    return arrays


def _data_type(name: str, kind: int | str) -> int:
    """Return the ``TensorProto`` data type that ``kind`` states in either form."""
    data_type: int | None = None
    if isinstance(kind, int):
        data_type = kind
    elif kind == tensor_text("string"):
        data_type = _T.STRING
    elif (element := tensor_element(kind)) is not None:
        data_type = element.number
    if data_type not in _DTYPES:
        raise UsageError(
            f"input {printable(name)!r} has type {kind}, for which no sample can be made"
        )
    return data_type


def _array(
    generator: np.random.Generator, data_type: int, shape: tuple[int, ...]
) -> npt.NDArray[Any]:
    dtype = _DTYPES[data_type]
    if data_type in {_T.COMPLEX64, _T.COMPLEX128}:
        pair = generator.standard_normal((2, *shape))
        return np.asarray(pair[0] + 1j * pair[1], dtype=dtype)
    if data_type in _FLOATS:
        wide = np.float64 if data_type == _T.DOUBLE else np.float32
        return np.asarray(generator.standard_normal(shape, dtype=wide)).astype(dtype, copy=False)
    if data_type == _T.STRING:
        chosen = np.asarray(_WORDS, dtype=object)[generator.integers(0, len(_WORDS), shape)]
        return np.asarray(chosen, dtype=object)
    bits = np.asarray(generator.integers(0, 2, shape, dtype=np.uint8))
    np.atleast_1d(bits)[..., :1] = 1  # a view, of a scalar too
    return bits.astype(dtype)
