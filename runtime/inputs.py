"""Checks what a user gives to a graph before any of it is copied."""

from __future__ import annotations

import functools
import logging
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import numpy as np

from samba_onnx.errors import InputError
from samba_onnx.facts.dtypes import tensor_element
from samba_onnx.pef.manifest import Symbol
from samba_onnx.program.index_demands import IndexDemand
from samba_onnx.runtime.elements import INTEGER_KINDS, Array
from samba_onnx.runtime.index_checks import IndexCheck
from samba_onnx.safety.files import printable

LOGGER: Final = logging.getLogger(__name__)

_STRING = "tensor(string)"
_TEXT_KINDS = "UST"
"""numpy's kinds of arrays of texts."""


class InputSpec:
    """What one input must look like."""

    def __init__(self, symbol: Symbol, demands: Iterable[IndexDemand] = ()) -> None:
        """Take the type and shape from the symbol that was compiled.

        Args:
            symbol: The input.
            demands: Ranges of integers that a graph demands, of this input and of others.
        """
        self.name = symbol.name
        self.type = symbol.type
        self.shape = symbol.shape
        self.index_checks = tuple(
            IndexCheck(demand) for demand in demands if demand.input == symbol.name
        )
        """Checks of the integers that it holds."""
        element = tensor_element(symbol.type)
        self.dtype: np.dtype[Any] | None = element.numpy if element else None
        """dtype of the array that a run takes; None where the input is no tensor."""
        if symbol.type == _STRING:
            self.dtype = np.dtype(object)

    def __str__(self) -> str:
        """Return type and shape for a message."""
        return describe(self.type, self.shape)

    def check(self, value: Any) -> Any:
        """Return the value as an array, or as a host value of another type.

        Args:
            value: What the user gave: an array or something that numpy makes one of; a list for a
                sequence, None for an empty optional. Integers of another width are converted.

        Returns:
            An array with the compiled dtype and shape that may share the user's memory, or the
            value itself where the input is no tensor.

        Raises:
            InputError: Type or shape differ, or an integer does not fit, or is no index of what it
                is an index of.
        """
        if self.dtype is None:
            return self._check_container(value)
        # The usual case, for which a run of a few microseconds should not pay.
        # The very same dtype is what most arrays have, and quicker to see than an equal one.
        if type(value) is np.ndarray and value.dtype is self.dtype and value.shape == self.shape:
            array = value
        else:
            array = self._check_tensor(value)
        for each in self.index_checks:
            each.check(array)
        return array

    def _check_tensor(self, value: Any) -> Any:
        try:
            array = np.asarray(value)
        except (TypeError, ValueError, RuntimeError) as error:
            raise InputError(
                f"input {self.name!r} is {type(value).__name__}, expected {self}: {error}"
            ) from None
        if self.dtype == object and array.dtype.kind in _TEXT_KINDS:
            array = array.astype(object)
        if self.dtype is not None and array.dtype != self.dtype:
            array = of_width(self.name, array, self.dtype)
        if array.dtype != self.dtype:
            raise InputError(
                f"input {self.name!r} has dtype {array.dtype}, expected {self.dtype} ({self}); "
                f"convert it with .astype"
            )
        if not fits(array.shape, self.shape):
            raise InputError(
                f"input {self.name!r} has shape {list(array.shape)}, expected {self}; give that "
                "shape, or convert the model for this one (--input-shape)"
                f"{short_batch(array.shape, self.shape)}"
            )
        return array

    def _check_container(self, value: Any) -> Any:
        if self.type.startswith("seq(") and not isinstance(value, Sequence):
            raise InputError(
                f"input {self.name!r} is {type(value).__name__}, expected {self}; give a list"
            )
        return value


def of_width(name: str, array: Array, dtype: np.dtype[Any]) -> Array:
    """Return integers in an integer type of another width; logged once per name and types.

    Token ids come as int64 from torch and as int32 or int16 from programs that were written for
    the RDU; the numbers are the same.

    Args:
        name: What the array is an input of, or written to.
        array: Any array.
        dtype: The compiled type.

    Returns:
        The same numbers in the compiled type; the array itself if one of the types is no integer.

    Raises:
        InputError: A number does not fit into the compiled type.
    """
    if array.dtype.kind not in INTEGER_KINDS or dtype.kind not in INTEGER_KINDS:
        return array
    limits = np.iinfo(dtype)
    for number in (int(array.min()), int(array.max())) if array.size else ():
        if not limits.min <= number <= limits.max:
            raise InputError(
                f"input {name!r} is {array.dtype} and holds {number}, which the compiled {dtype} "
                f"cannot: give numbers from {limits.min} to {limits.max}, or compile for "
                f"{array.dtype}"
            )
    _tell(name, str(array.dtype), str(dtype))
    return array.astype(dtype)


@functools.cache
def _tell(name: str, given: str, compiled: str) -> None:
    """Log once that an input is converted."""
    LOGGER.warning("input %r is %s, compiled was %s: it is converted", name, given, compiled)


def short_batch(shape: Sequence[int], compiled: Sequence[int | str | None] | None) -> str:
    """Return what to do with the last batch of a dataset, to follow a message about its shape.

    Args:
        shape: The shape of an input as it was given.
        compiled: The shape that it should have.

    Returns:
        Empty unless the shape has fewer rows than was compiled, and is the same otherwise.
    """
    if not shape or not compiled or tuple(shape[1:]) != tuple(compiled[1:]):
        return ""
    rows, size = shape[0], compiled[0]
    if not isinstance(size, int) or rows >= size:
        return ""
    return (
        f". A last batch of {rows} where {size} were compiled is left out, as "
        f"DataLoader(..., drop_last=True) does, or filled up to {size} rows, whose results are "
        "then ignored"
    )


def own_copy(value: Any) -> Any:
    """Return a copy of a host value that shares no array with it.

    Args:
        value: An array, or a list or dict of arrays; anything else is returned as it is.
    """
    if isinstance(value, np.ndarray):
        return np.array(value, order="C")
    if isinstance(value, list | tuple):
        return [own_copy(item) for item in value]
    if isinstance(value, dict):
        return {key: own_copy(item) for key, item in value.items()}
    return value


def check_inputs(specs: Mapping[str, InputSpec], values: Mapping[str, Any]) -> dict[str, Any]:
    """Check all inputs of a run.

    Args:
        specs: By name, in graph-input order.
        values: What the user gave, in any order.

    Returns:
        The checked values, in graph-input order.

    Raises:
        InputError: A name is unknown, or a value does not fit.
    """
    checked = {name: spec.check(values[name]) for name, spec in specs.items() if name in values}
    if len(checked) != len(values):
        unknown = next(name for name in values if name not in specs)
        expected = ", ".join(f"{name!r} {spec}" for name, spec in specs.items()) or "none"
        raise InputError(f"input {unknown!r} does not exist; the graph's inputs are: {expected}")
    return checked


def without_fixed(fixed: Mapping[str, Array], values: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return what was given of the inputs that a graph still has.

    Args:
        fixed: Inputs of the model that were fixed as constants, with their values.
        values: What the user gave. One that is fixed may be among them, as programs have it that run the
            original, too.

    Raises:
        InputError: It has another value than it was fixed to.
    """
    if fixed.keys().isdisjoint(values):
        return values
    for name in fixed.keys() & values.keys():
        given, constant = np.asarray(values[name]), fixed[name]
        if given.shape != constant.shape or not np.array_equal(
            given, constant, equal_nan=given.dtype.kind in "fc"
        ):
            raise InputError(
                f"input {name!r} was fixed as a constant when the model was converted, {_brief(constant)}, and is "
                f"given {_brief(given)}: leave it out, or convert the model for that value (--constant)"
            )
    return {name: value for name, value in values.items() if name not in fixed}


def _brief(array: Array) -> str:
    """Return the numbers of an array for a message, some of them if they are many."""
    shown = ", ".join(printable(number, 40) for number in array.ravel()[:4].tolist())
    if not array.shape:
        return shown
    return f"[{shown}{', ...' if array.size > 4 else ''}] of shape {list(array.shape)}"


def describe(kind: str, shape: tuple[int | str | None, ...] | None) -> str:
    """Return a type and shape as one readable text.

    Args:
        kind: ONNX's text form of the type.
        shape: The dimensions, or None.
    """
    if shape is None:
        return kind
    return f"{kind}[{', '.join('?' if size is None else str(size) for size in shape)}]"


def fits(shape: tuple[int, ...], expected: tuple[int | str | None, ...] | None) -> bool:
    """Return whether an array's sizes are those that were compiled.

    Args:
        shape: Sizes of the array.
        expected: Sizes of the symbol. A name or None stands for any size, None alone for any sizes.
    """
    if expected is None:
        return True
    return len(shape) == len(expected) and all(
        size == length or not isinstance(length, int)
        for size, length in zip(shape, expected, strict=True)
    )
