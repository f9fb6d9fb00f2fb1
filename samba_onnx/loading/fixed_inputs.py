"""Make constants of inputs, before anything looks at a model.

A sample rate, a switch or a number of steps that a program never changes decides which branches are taken, how
often a loop is executed and which shapes follow. As an input it leaves all of that open, and on the CPU.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NoReturn

import ml_dtypes
import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from samba_onnx.errors import UsageError
from samba_onnx.facts.dtypes import ElementType, tensor_element
from samba_onnx.pef.fixed_inputs import MOST_BYTES, FixedInput
from samba_onnx.program.dataflow import name_of
from samba_onnx.program.value_types import type_text
from samba_onnx.safety.files import printable

__all__ = ["FixedInputs", "fix_inputs"]

Array = npt.NDArray[Any]

_INTEGERS: Final = frozenset("iu")
"""numpy's kinds of integers; those of ml_dtypes have names that tell."""
_OLDEST_WITH_DEFAULTS: Final = 4
"""IR version from which an initializer that is declared as an input is a default; before, all are declared."""


@dataclass(frozen=True)
class FixedInputs:
    """The inputs that were made constants."""

    records: tuple[FixedInput, ...] = ()
    """In the order of the model's inputs."""
    sizes: Mapping[str, int] | None = None
    """Sizes that their shapes give to named dimensions, which other inputs may have, too."""


def fix_inputs(model: ir.Model, constants: Mapping[str, Any] | None) -> FixedInputs:
    """Make initializers of inputs.

    Args:
        model: A checked model, before any pass; is changed in place.
        constants: Values by name of input: an array of the input's type; or a number, truth value or nested list
            of these, which takes it. A single number is also the value of an input whose shape is one
            element, as [1].

    Returns:
        What was fixed.

    Raises:
        UsageError: There is no such input, or a value does not fit it.
    """
    # Before version 4 initializers had to be declared as inputs, and are no inputs for anybody.
    inputs = {
        value.name: value
        for value in model.graph.inputs
        if model.ir_version >= _OLDEST_WITH_DEFAULTS or not value.is_initializer()
    }
    for name in constants or {}:
        if name not in inputs:
            has = ", ".join(str(known) for known in inputs) or "none"
            raise UsageError(
                f"the model has no input {printable(name)!r} to fix as a constant; it has {has}"
            )
    sizes: dict[str, int] = {}
    records = []
    # In the model's order, and not the user's, so that records do not depend on how options were
    # given.
    for value in list(inputs.values()):
        name = name_of(value)
        if name in (constants or {}):
            array = _fitting(value, (constants or {})[name], sizes)
            records.append(FixedInput.of(name, type_text(value), array))
            _make_initializer(model.graph, value, array)
    return FixedInputs(tuple(records), sizes)


def _make_initializer(graph: ir.Graph, value: ir.Value, array: Array) -> None:
    """Put a constant in the place of an input, and of its default if it has one."""
    graph.inputs.remove(value)
    value.shape = ir.Shape(array.shape)
    dtype = value.dtype
    assert dtype is not None  # the array was made for it
    value.const_value = ir.Tensor(array, dtype=dtype, name=value.name)
    if not value.is_initializer():
        graph.register_initializer(value)


def _fitting(value: ir.Value, given: Any, sizes: dict[str, int]) -> Array:
    """Return a value of an input's type and shape."""
    kind = type_text(value)
    element = tensor_element(kind)
    if element is None:
        _refuse(
            value,
            f"is of type {kind or 'unknown'}: only tensors of numbers and truth values can be",
        )
    # As objects, Python's numbers keep their kind: numpy would make floats of a mixed list, and
    # truth values of it numbers.
    array = np.asarray(given) if hasattr(given, "dtype") else np.array(given, dtype=object)
    size = array.size * element.numpy.itemsize
    # Before the conversion, which would make the large array once more.
    if size > MOST_BYTES:
        _refuse(
            value,
            f"takes {size:,} bytes, the limit is {MOST_BYTES:,}: make it an initializer of the model",
        )
    return _of_shape(value, _of_type(value, array, element), sizes)


def _of_type(value: ir.Value, array: Array, element: ElementType) -> Array:
    """Return numbers in the type of an input; those of Python's come as an array of objects."""
    expected = element.numpy
    raw = array.dtype.kind == "V" and array.dtype.names is None
    if raw and array.dtype != expected and array.dtype.itemsize == expected.itemsize:
        array = array.view(expected)  # .npy has no name for bfloat16 and its like
    if array.dtype == expected:
        return np.ascontiguousarray(array).reshape(array.shape)
    # Integers of any width may be given, as long as each fits; floats are never converted in
    # silence.
    integers = array.dtype.kind in _INTEGERS and _is_integer(element)
    if array.dtype != object and not integers:
        _refuse(
            value, f"is {element.dtype_name}, the constant {array.dtype}: convert it with .astype"
        )
    return _converted(value, array.astype(object), element)


def _converted(value: ir.Value, array: Array, element: ElementType) -> Array:
    """Return Python's numbers in the type of an input, each of which must be one of that type."""
    numbers: list[Any] = array.ravel().tolist()
    # Python's True is an int as well, and an input of numbers is not meant by it.
    truths = [isinstance(number, bool) for number in numbers]
    if any(isinstance(number, list | tuple) for number in numbers):
        _refuse(value, "is a tensor, the constant has lists of different lengths")
    if element.name == "bool":
        fits, expected = all(truths), "true or false"
    elif _is_integer(element):
        fits = all(isinstance(number, int) for number in numbers) and not any(truths)
        expected = "whole numbers"
    else:
        kinds = (int, float) if element.floating else (int, float, complex)
        fits, expected = all(isinstance(n, kinds) for n in numbers) and not any(truths), "numbers"
    if not fits:
        _refuse(
            value, f"is {element.dtype_name}, the constant {_shown(numbers)}: expected {expected}"
        )
    if _is_integer(element):
        ends: Any = ml_dtypes.iinfo  # has no types of its own
        limits = ends(element.numpy)
        lowest, highest = int(limits.min), int(limits.max)
        if not all(lowest <= number <= highest for number in numbers):
            _refuse(
                value,
                f"is {element.dtype_name}, the constant {_shown(numbers)}: expected numbers from {lowest} to {highest}",
            )
        return np.array(numbers, dtype=element.numpy).reshape(array.shape)
    return _floats(value, numbers, element).reshape(array.shape)


def _floats(value: ir.Value, numbers: Sequence[Any], element: ElementType) -> Array:
    """Return numbers rounded to a type of floats; one that has become infinite is refused."""
    too_large = (
        f"is {element.dtype_name}, which has no number as large as the constant {_shown(numbers)}"
    )
    try:
        exact = np.array(numbers, np.float64 if element.floating else np.complex128)
    except OverflowError:
        _refuse(value, too_large)
    # Overflow is looked for below, in all types alike; numpy warns for some of them only.
    with np.errstate(over="ignore"):
        rounded = exact.astype(element.numpy)
    # A type without infinity makes NaN of a number that is too large: neither is finite.
    wide = rounded.astype(exact.dtype)
    if not np.array_equal(np.isfinite(wide), np.isfinite(exact)):
        _refuse(value, too_large)
    return rounded


def _of_shape(value: ir.Value, array: Array, sizes: dict[str, int]) -> Array:
    """Return an array in the shape of an input, and keep the sizes of its named dimensions."""
    if value.shape is None:
        return array
    declared = tuple(dim if isinstance(dim, int) else dim.value for dim in value.shape)
    # One number may stand for the one element, as exporters give scalars the shape [1].
    if not array.shape and declared and all(size == 1 for size in declared):
        return array.reshape((1,) * len(declared))  # one number for the one element
    text = f"[{', '.join('?' if size is None else str(size) for size in declared)}]"
    if len(declared) != array.ndim or any(
        isinstance(size, int) and size != length
        for size, length in zip(declared, array.shape, strict=True)
    ):
        _refuse(value, f"has shape {text}, the constant {list(array.shape)}")
    for size, length in zip(declared, array.shape, strict=True):
        # Two constants may not give one name two sizes: it is one dimension of the model.
        if isinstance(size, str) and sizes.setdefault(size, length) != length:
            _refuse(
                value,
                f"has shape {text}, the constant {list(array.shape)}: another one has {sizes[size]} for {size!r}",
            )
    return array


def _is_integer(element: ElementType) -> bool:
    return not element.floating and "int" in element.name


def _shown(numbers: Sequence[Any]) -> str:
    texts = [
        # Python writes out no integer of thousands of digits.
        "a very large number" if isinstance(n, int) and n.bit_length() > 256 else printable(n, 80)
        for n in numbers[:3]
    ]
    return f"{', '.join(texts)}{', ...' if len(numbers) > 3 else ''}" or "empty"


def _refuse(value: ir.Value, problem: str) -> NoReturn:
    raise UsageError(f"input {printable(value.name)!r} cannot be fixed as a constant: it {problem}")
