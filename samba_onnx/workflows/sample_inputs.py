"""Seeded inputs for whoever runs a model to look at its numbers: one maker for all of them.

Verification, the reference sample and ``samba-port run --random`` draw from here. The same
specification, ranges and seed give the same arrays anywhere.

1. Floating-point values are normally distributed with mean 0 and variance 1; those that a logarithm, a
   root or the like is taken of lie where it is defined: evenly between two ends, or beyond one of them
   by the size of such a number.
2. Integers with a range are drawn from all of it; both ends, 0 and -1 are among them.
3. Other integers of 8 bits and fewer are quantised numbers, or masks: a quarter of them is 0, and the
   rest comes from all that the type can hold.
4. Other integers are 0 or 1, because these are valid as token types, masks, lengths and shapes alike,
   where larger ones may be beyond what nobody described here. The first along the last axis is 1, so
   that a mask never hides a whole row and a scalar never divides by zero.
5. So are booleans, of which one is false wherever there are two; a single one is true for even seeds and
   false for odd ones.
6. Strings come from a short list of words.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import ml_dtypes
import numpy as np
import numpy.typing as npt
import onnx
import onnx_ir as ir

from samba_onnx.errors import ModelLimitError, UsageError
from samba_onnx.facts.dtypes import ELEMENT_TYPES, tensor_element, tensor_text
from samba_onnx.pef import Pef
from samba_onnx.program.float_ranges import float_ranges
from samba_onnx.program.index_ranges import IndexRange, graph_ranges
from samba_onnx.program.intervals import Interval
from samba_onnx.runtime.engine.assembly import merge_stages
from samba_onnx.safety.files import printable

__all__ = [
    "LIMIT_BYTES",
    "RUNS",
    "InputRanges",
    "input_ranges",
    "input_specs",
    "pef_ranges",
    "random_inputs",
    "seeded_inputs",
]

LIMIT_BYTES = 4 << 30
"""Inputs of one trial run may take this much memory."""

RUNS: Final = 3
"""How many sets of inputs a model is looked at with, of neighbouring seeds: a large table is then read
in many places, and a single truth value is both true and false."""

_T = onnx.TensorProto
_WORDS = ("", "a", "alpha", "Beta 2", "gamma-delta")
_DTYPES: dict[int, np.dtype[Any]] = {
    _T.STRING: np.dtype(object),
    **{element.number: element.numpy for element in ELEMENT_TYPES.values()},
}
_FLOATS = frozenset(
    {_T.FLOAT, _T.DOUBLE, _T.FLOAT16, _T.BFLOAT16, _T.FLOAT8E4M3FN, _T.FLOAT8E4M3FNUZ}
    | {_T.FLOAT8E5M2, _T.FLOAT8E5M2FNUZ, _T.FLOAT4E2M1}
)
_SMALL_INTEGERS = frozenset(
    element.number
    for element in ELEMENT_TYPES.values()
    if element.bits <= 8 and not element.floating and element.number != _T.BOOL
)


@dataclass(frozen=True)
class InputRanges:
    """The numbers that inputs can hold, by name; those of any number are missing."""

    integers: Mapping[str, IndexRange] = field(default_factory=dict)
    floats: Mapping[str, Interval] = field(default_factory=dict)

    def or_else(self, other: InputRanges) -> InputRanges:
        """Return these ranges, with those of another graph for inputs that are missing here.

        Args:
            other: Ranges of the same inputs, as another graph shows them.
        """
        return InputRanges({**other.integers, **self.integers}, {**other.floats, **self.floats})


def input_ranges(graph: ir.Graph) -> InputRanges:
    """Return the numbers that the inputs of a graph can hold.

    Args:
        graph: With shapes; it is looked at, not changed.
    """
    return InputRanges(graph_ranges(graph), float_ranges(graph))


def random_inputs(
    specs: Mapping[str, tuple[int | str, Sequence[int]]],
    seed: int,
    ranges: InputRanges | None = None,
) -> dict[str, npt.NDArray[Any]]:
    """Make one array per input.

    The rules are those of this module's docstring.

    Args:
        specs: For each input, in the order of the graph, its data type, as
            ``onnx.TensorProto.FLOAT`` or ``"tensor(float)"``, and its shape.
        seed: Any integer; every input has its own stream, so that one input's values do not depend
            on another's shape.
        ranges: The numbers that inputs can hold, as a graph shows them. Without them, rule 4 is for
            all integers: whatever a model does with its inputs, it takes 0 and 1.

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
        if ranges is not None and name in ranges.integers:
            drawn = ranges.integers[name].draw(shape, generator)
            arrays[name] = drawn.astype(_DTYPES[data_type])
        elif ranges is not None and name in ranges.floats and data_type in _FLOATS:
            numbers = _inside(generator, ranges.floats[name], tuple(shape))
            arrays[name] = numbers.astype(_DTYPES[data_type])
        elif data_type == _T.BOOL:
            arrays[name] = _truths(generator, tuple(shape), seed)
        else:
            arrays[name] = _array(generator, data_type, tuple(shape), quantised=ranges is not None)
    return arrays


def input_specs(pef: Pef, *, dynamic: int = 2) -> dict[str, tuple[str, tuple[int, ...]]]:
    """Return type and shape of every input of a PEF's first graph.

    Args:
        pef: The compiled model.
        dynamic: Size that dynamic dimensions take.

    Returns:
        By input name, as ``random_inputs`` takes them.

    Raises:
        UsageError: An input is no tensor, or its rank is unknown.
    """
    specs: dict[str, tuple[str, tuple[int, ...]]] = {}
    for name in pef.manifest.graphs[0].inputs:
        symbol = pef.symbol(name)
        if not symbol.type.startswith("tensor(") or symbol.shape is None:
            raise UsageError(f"input {name!r} has type {symbol.type}: give it with --input")
        shape = tuple(size if isinstance(size, int) else dynamic for size in symbol.shape)
        specs[name] = (symbol.type, shape)
    return specs


def pef_ranges(pef: Pef) -> InputRanges:
    """Return the numbers that the inputs of a PEF's first graph can hold.

    Args:
        pef: The compiled model.

    Raises:
        PefFormatError: The stages do not fit together.
    """
    graph = pef.manifest.graphs[0]
    stages = dict.fromkeys(call.stage for call in graph.calls)
    models = [pef.stage_model(stage) for stage in stages]
    written = {value.name for model in models for value in model.graph.output}
    read = dict.fromkeys(value.name for model in models for value in model.graph.input)
    outside = [name for name in read if name not in written]
    merged = merge_stages(models, outside, [name for name in graph.outputs if name in written])
    program = ir.from_proto(merged).graph
    for name, value in program.initializers.items():
        if isinstance(value.const_value, ir.ExternalTensor):
            value.const_value = _stored(pef, name, value.const_value)
    return input_ranges(program)


def _stored(pef: Pef, name: str, tensor: ir.ExternalTensor) -> ir.LazyTensor:
    """Return a tensor of a PEF's weights, which a stage's model names the place of only."""

    def content() -> ir.TensorProtocol:
        return ir.Tensor(pef.weight(name), dtype=tensor.dtype)

    return ir.LazyTensor(content, dtype=tensor.dtype, shape=tensor.shape, name=name)


def seeded_inputs(pef: Pef, seed: int, *, dynamic: int = 2) -> dict[str, npt.NDArray[Any]]:
    """Return random inputs for a PEF's first graph.

    Args:
        pef: The compiled model.
        seed: Seed of the generator; the same seed gives the same arrays.
        dynamic: Size that dynamic dimensions take.

    Returns:
        Arrays by input name.

    Raises:
        UsageError: An input is no tensor, or its rank is unknown.
        ModelLimitError: All inputs together take more than ``LIMIT_BYTES``.
        PefFormatError: The stages do not fit together.
    """
    return random_inputs(input_specs(pef, dynamic=dynamic), seed, pef_ranges(pef))


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
    generator: np.random.Generator, data_type: int, shape: tuple[int, ...], *, quantised: bool
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
    if quantised and data_type in _SMALL_INTEGERS:
        return _quantised(generator, dtype, shape)
    return _bits(generator, shape).astype(dtype)


def _inside(
    generator: np.random.Generator, interval: Interval, shape: tuple[int, ...]
) -> npt.NDArray[np.float64]:
    """Draw numbers from an interval that has an end."""
    if interval.is_finite:
        return np.asarray(generator.uniform(interval.low, interval.high, shape))
    distance = np.abs(generator.standard_normal(shape))
    if math.isfinite(interval.low):
        return np.asarray(interval.low + distance)
    return np.asarray(interval.high - distance)


def _bits(generator: np.random.Generator, shape: tuple[int, ...]) -> npt.NDArray[np.uint8]:
    """Draw 0 and 1; the first along the last axis is 1."""
    bits = np.asarray(generator.integers(0, 2, shape, dtype=np.uint8))
    np.atleast_1d(bits)[..., :1] = 1  # a view, of a scalar too
    return bits


def _truths(
    generator: np.random.Generator, shape: tuple[int, ...], seed: int
) -> npt.NDArray[np.bool_]:
    """Draw truth values, not all of them true."""
    bits = _bits(generator, shape)
    if bits.size == 1:
        return np.full(shape, seed % 2 == 0)
    if bits.all() and bits.size:
        bits.flat[-1] = 0
    return bits.astype(np.bool_)


def _quantised(
    generator: np.random.Generator, dtype: np.dtype[Any], shape: tuple[int, ...]
) -> npt.NDArray[Any]:
    """Draw from a type of few bits, with zeros among the numbers as in a mask."""
    lowest, highest = _ends(dtype)
    numbers = generator.integers(lowest, highest, shape, np.int64, endpoint=True)
    kept = _bits(generator, shape) | _bits(generator, shape)
    values = np.where(kept, np.asarray(numbers), 0)
    np.atleast_1d(values)[..., :1] = 1
    return np.asarray(values).astype(dtype)


def _ends(dtype: np.dtype[Any]) -> tuple[int, int]:
    """Return the smallest and the largest number of a type of integers."""
    limits: Any = ml_dtypes.iinfo  # has no types of its own
    ends = limits(dtype)
    return int(ends.min), int(ends.max)
