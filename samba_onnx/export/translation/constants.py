"""The constants of a graph: equal ones are one initializer."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx_ir as ir

from samba_onnx.facts.names import FreeNames, joined


class ConstantPool:
    """Registers constants as initializers of a graph, each content of a type and shape once."""

    def __init__(self, graph: ir.Graph, names: FreeNames) -> None:
        """Begin without constants.

        Args:
            graph: The graph that gets the initializers; its name leads theirs.
            names: The graph's names, from which constants take theirs.
        """
        self._graph = graph
        self._names = names
        self._values: dict[tuple[ir.DataType, tuple[int, ...], bytes], ir.Value] = {}

    def value(self, content: Any, dtype: ir.DataType) -> ir.Value:
        """Return the initializer of a constant, a new one if none is equal to it.

        Args:
            content: A number, a sequence or an array, which is converted to the type.
            dtype: The constant's type.
        """
        array = np.asarray(content).astype(dtype.numpy())
        # Bytes rather than numbers: zero and minus zero are two constants, equal NaNs are one.
        key = (dtype, array.shape, array.tobytes())
        value = self._values.get(key)
        if value is None:
            value = self._values[key] = self._registered(array, dtype)
        return value

    def _registered(self, array: np.ndarray[Any, Any], dtype: ir.DataType) -> ir.Value:
        name = self._names.take(joined(self._graph.name or "", "constant"))
        value = ir.Value(
            name=name,
            type=ir.TensorType(dtype),
            shape=ir.Shape(array.shape),
            const_value=ir.Tensor(array, dtype=dtype, name=name),
        )
        self._graph.register_initializer(value)
        return value
