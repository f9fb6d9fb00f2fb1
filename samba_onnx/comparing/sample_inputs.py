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
import onnx_ir as ir

from samba_onnx.errors import ModelLimitError, UsageError
from samba_onnx.facts.dtypes import ELEMENT_TYPES, tensor_text
from samba_onnx.pef import Pef
from samba_onnx.pef.manifest import Graph
from samba_onnx.program.float_ranges import float_ranges
from samba_onnx.program.index_ranges import IndexRange, graph_ranges
from samba_onnx.program.intervals import Interval
from samba_onnx.runtime.engine.assembly import merge_stages
from samba_onnx.safety.files import printable

__all__ = [
    "DYNAMIC_SIZE",
    "LIMIT_BYTES",
    "RUNS",
    "InputRanges",
    "input_ranges",
    "input_specs",
    "pef_ranges",
    "random_inputs",
]

LIMIT_BYTES = 4 << 30
"""Inputs of one trial run may take this much memory."""

RUNS: Final = 3
"""How many sets of inputs a model is looked at with, of neighbouring seeds: a large table is then read
in many places, and a single truth value is both true and false."""

DYNAMIC_SIZE: Final = 2
"""Size of a dynamic dimension unless somebody says one: the smallest that is neither empty nor
broadcast."""

_WORDS = ("", "a", "alpha", "Beta 2", "gamma-delta")
_STRING = tensor_text("string")
_BOOL = tensor_text("bool")
_DTYPES: dict[str, np.dtype[Any]] = {
    _STRING: np.dtype(object),
    **{element.text: element.numpy for element in ELEMENT_TYPES.values()},
}
_FLOATS = frozenset(element.text for element in ELEMENT_TYPES.values() if element.floating) - {
    tensor_text("float8e8m0")  # it has no sign
}
_SMALL_INTEGERS = frozenset(
    element.text
    for element in ELEMENT_TYPES.values()
    if element.bits <= 8 and not element.floating and element.text != _BOOL
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
    specs: Mapping[str, tuple[str, Sequence[int]]],
    seed: int,
    ranges: InputRanges | None = None,
) -> dict[str, npt.NDArray[Any]]:
    """Make one array per input.

    The rules are those of this module's docstring.

    Args:
        specs: For each input, in the order of the graph, its type, as ``tensor(float)``, and its
            shape.
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
    for position, (name, (kind, sizes)) in enumerate(specs.items()):
        if kind not in _DTYPES:
            raise UsageError(
                f"input {printable(name)!r} has type {kind}, for which no sample can be made"
            )
        dtype, shape = _DTYPES[kind], tuple(sizes)
        total += math.prod(shape) * dtype.itemsize
        if total > LIMIT_BYTES:
            raise ModelLimitError(
                f"input {printable(name)!r} of shape {printable(list(shape), 60)} makes the sample "
                f"larger than {LIMIT_BYTES} bytes: give smaller dimensions"
            )
        generator = np.random.default_rng([seed & 0xFFFFFFFFFFFFFFFF, position])
        numbers: npt.ArrayLike
        if ranges is not None and name in ranges.integers:
            numbers = ranges.integers[name].draw(shape, generator)
        elif ranges is not None and name in ranges.floats and kind in _FLOATS:
            numbers = _inside(generator, ranges.floats[name], shape)
        elif kind == _BOOL:
            numbers = _truths(generator, shape, seed)
        else:
            numbers = _unlimited(generator, kind, shape, quantised=ranges is not None)
        arrays[name] = np.asarray(numbers, dtype=dtype)
    return arrays


def input_specs(pef: Pef, graph: Graph | None = None) -> dict[str, tuple[str, tuple[int, ...]]]:
    """Return type and shape of every input of a graph, with ``DYNAMIC_SIZE``.

    Args:
        pef: The compiled model.
        graph: One of its graphs; the first where None.

    Returns:
        By the model's name of the input, as ``random_inputs`` takes them.

    Raises:
        UsageError: An input is no tensor, or its rank is unknown.
    """
    specs: dict[str, tuple[str, tuple[int, ...]]] = {}
    graph = graph or pef.manifest.graphs[0]
    for symbol_name in graph.inputs:
        symbol, name = pef.symbol(symbol_name), graph.model_name(symbol_name)
        if not symbol.type.startswith("tensor(") or symbol.whole_shape is None:
            raise UsageError(f"input {name!r} has type {symbol.type}: give it with --input")
        shape = tuple(
            size if isinstance(size, int) else DYNAMIC_SIZE for size in symbol.whole_shape
        )
        specs[name] = (symbol.type, shape)
    return specs


def pef_ranges(pef: Pef, graph: Graph | None = None) -> InputRanges:
    """Return the numbers that the inputs of a graph can hold, by the model's names.

    Args:
        pef: The compiled model.
        graph: One of its graphs; the first where None.

    Raises:
        PefFormatError: The stages do not fit together.
    """
    graph = graph or pef.manifest.graphs[0]
    stages = dict.fromkeys(call.stage for call in graph.calls)
    models = [pef.stage_model(stage) for stage in stages]
    written = {value.name for model in models for value in model.graph.output}
    read = dict.fromkeys(value.name for model in models for value in model.graph.input)
    # What sections hand to each other is no input: only what none of them
    # writes comes from outside.
    outside = [name for name in read if name not in written]
    merged = merge_stages(models, outside, ())
    program = ir.from_proto(merged).graph
    for name, value in program.initializers.items():
        if isinstance(value.const_value, ir.ExternalTensor):
            value.const_value = _stored(pef, name, value.const_value)
    ranges = input_ranges(program)
    integers = dict(ranges.integers)
    # What a run refuses is drawn for none. Of parts of an input that have other ranges, all get what is legal in each.
    for demand in graph.index_demands:
        known = integers.get(demand.input, IndexRange(demand.lowest, demand.highest))
        integers[demand.input] = IndexRange(
            max(known.lowest, demand.lowest), min(known.highest, demand.highest)
        )
    return InputRanges(
        {graph.model_name(name): legal for name, legal in integers.items()},
        {graph.model_name(name): legal for name, legal in ranges.floats.items()},
    )


def _stored(pef: Pef, name: str, tensor: ir.ExternalTensor) -> ir.LazyTensor:
    """Return a tensor of a PEF's weights, which a stage's model names the place of only."""

    def content() -> ir.TensorProtocol:
        return ir.Tensor(pef.weight(name), dtype=tensor.dtype)

    return ir.LazyTensor(content, dtype=tensor.dtype, shape=tensor.shape, name=name)


def _unlimited(
    generator: np.random.Generator, kind: str, shape: tuple[int, ...], *, quantised: bool
) -> npt.ArrayLike:
    """Draw values of a type, of which nothing else is known."""
    dtype = _DTYPES[kind]
    if dtype.kind == "c":
        real, imaginary = generator.standard_normal((2, *shape))
        return np.asarray(real + 1j * imaginary)
    if kind in _FLOATS:
        # Of float64 all digits are drawn: numbers of float32 would not
        # show what is lost in float32.
        return generator.standard_normal(shape, np.float64 if dtype == np.float64 else np.float32)
    if kind == _STRING:
        return np.asarray(_WORDS, dtype)[generator.integers(0, len(_WORDS), shape)]
    if quantised and kind in _SMALL_INTEGERS:
        return _quantised(generator, dtype, shape)
    return _bits(generator, shape)


def _inside(
    generator: np.random.Generator, interval: Interval, shape: tuple[int, ...]
) -> npt.NDArray[np.float64]:
    """Draw numbers from an interval that has an end."""
    if interval.is_finite:
        return np.asarray(generator.uniform(interval.low, interval.high, shape))
    # With one end, numbers are dense at it and reach as far as normal ones do.
    distance = np.abs(generator.standard_normal(shape))
    if math.isfinite(interval.low):
        return np.asarray(interval.low + distance)
    return np.asarray(interval.high - distance)


def _bits(generator: np.random.Generator, shape: tuple[int, ...]) -> npt.NDArray[np.uint8]:
    """Draw 0 and 1; the first along the last axis is 1."""
    bits = np.asarray(generator.integers(0, 2, shape, dtype=np.uint8))
    np.atleast_1d(bits)[..., :1] = 1  # a view, of a scalar too
    return bits


def _truths(generator: np.random.Generator, shape: tuple[int, ...], seed: int) -> npt.ArrayLike:
    """Draw truth values, not all of them true."""
    bits = _bits(generator, shape)
    if bits.size == 1:
        return np.full(shape, seed % 2 == 0)
    if bits.all() and bits.size:
        bits.flat[-1] = 0
    return bits


def _quantised(
    generator: np.random.Generator, dtype: np.dtype[Any], shape: tuple[int, ...]
) -> npt.NDArray[Any]:
    """Draw from a type of few bits, with zeros among the numbers as in a mask."""
    lowest, highest = _ends(dtype)
    numbers = generator.integers(lowest, highest, shape, endpoint=True)
    # Two draws, of which one suffices to keep a number: a quarter is 0.
    kept = _bits(generator, shape) | _bits(generator, shape)
    values = np.where(kept, numbers, 0)
    # As in a mask, so that no row is empty and no scalar divides by zero.
    np.atleast_1d(values)[..., :1] = 1
    return values


def _ends(dtype: np.dtype[Any]) -> tuple[int, int]:
    """Return the smallest and the largest number of a type of integers."""
    limits: Any = ml_dtypes.iinfo  # has no types of its own
    ends = limits(dtype)
    return int(ends.min), int(ends.max)
