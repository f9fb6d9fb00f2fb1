"""Host values on their way into onnxruntime and out of it, whatever their element type.

onnxruntime's Python interface takes and returns arrays of numpy's own types. Values of any other
element type, as bfloat16, float8 and int4, go in and out by their address.
"""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnxruntime as ort

from samba_onnx.facts.dtypes import ElementType, tensor_element
from samba_onnx.pef.packing import packed_bytes
from samba_onnx.runtime.elements import (
    Array,
    from_items,
    is_native,
    storage_dtype,
    to_items,
)


class HostSession:
    """A session that runs on host values."""

    def __init__(self, session: ort.InferenceSession, names: Sequence[str] | None = None) -> None:
        """Look at the session's inputs and outputs once.

        Args:
            session: A session of any model.
            names: The outputs to compute, in this order; None for all.
        """
        self._session = session
        self.inputs = {argument.name: argument.type for argument in session.get_inputs()}
        """ONNX's text forms of the inputs' types, by name, in order."""
        outputs = {argument.name: argument.type for argument in session.get_outputs()}
        self.outputs = outputs if names is None else {name: outputs[name] for name in names}
        """ONNX's text forms of the outputs' types, by name, in order."""
        self._names = list(self.outputs)
        self._foreign_inputs = _foreign(self.inputs)
        self._foreign_outputs = bool(_foreign(self.outputs))

    def run(self, feed: Mapping[str, Any]) -> Sequence[Any]:
        """Run once.

        Args:
            feed: Arrays by input name, with dtypes of :mod:`ml_dtypes` where numpy has none; lists
                and None where the input is a sequence or an optional.

        Returns:
            All outputs in order; fresh, they share no memory with the feed. Whatever onnxruntime
            raises passes through.
        """
        feeds = dict(feed)
        for name, element in self._foreign_inputs.items():
            # An empty optional is None, whatever its type.
            if feeds.get(name) is not None:
                feeds[name] = to_ort_value(np.asarray(feeds[name]), element)
        # The quick way where it is possible: 3 microseconds a call, against 27 with values of
        # onnxruntime's own, which are needed for outputs of a type that numpy lacks.
        if not self._foreign_outputs:
            results: Sequence[Any] = self._session.run(self._names, feeds)
            return results
        values = {
            name: value
            if isinstance(value, ort.OrtValue)
            else ort.OrtValue.ortvalue_from_numpy(value)
            for name, value in feeds.items()
        }
        return [to_host(value) for value in self._session.run_with_ort_values(self._names, values)]


def to_ort_value(array: Array, element: ElementType) -> ort.OrtValue:
    """Return a host array as onnxruntime's own value.

    Args:
        array: An array of dtype ``element.numpy``.
        element: A type that numpy lacks.
    """
    items = np.asarray(to_items(array, element), order="C")
    number = element.number
    if not element.packs:
        return ort.OrtValue.ortvalue_from_numpy_with_onnx_type(items, number)
    value = ort.OrtValue.ortvalue_from_shape_and_type(array.shape, number)
    ctypes.memmove(value.data_ptr(), items.ctypes.data, items.nbytes)
    return value


def to_host(value: ort.OrtValue) -> Any:
    """Return onnxruntime's value as a host array that shares no memory with it."""
    element = tensor_element(value.data_type())
    if element is None or is_native(element):
        return value.numpy()
    shape = value.shape()
    content = ctypes.string_at(value.data_ptr(), packed_bytes(element, shape))
    return from_items(np.frombuffer(content, storage_dtype(element)), element, shape)


def _foreign(types: Mapping[str, str]) -> dict[str, ElementType]:
    """Return the tensors among a session's arguments whose type numpy lacks."""
    elements = {name: tensor_element(kind) for name, kind in types.items()}
    return {
        name: element
        for name, element in elements.items()
        if element is not None and not is_native(element)
    }
