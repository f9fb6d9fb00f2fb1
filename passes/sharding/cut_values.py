"""What is known of the values of one model while it is cut, and constants that are added to it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
import onnx_ir as ir

from samba_onnx.passes.rewrites.rewriting import static_shape
from samba_onnx.passes.sharding.collectives import SHARDED
from samba_onnx.passes.sharding.cuts import Cut, names_in
from samba_onnx.passes.sharding.layouts import WHOLE, Shape, Sharding, local_shape
from samba_onnx.pef.sharding import Sharded
from samba_onnx.program.dataflow import name_of

__all__ = ["CutValues", "is_float"]

_SMALL: Final = 1 << 20
"""Elements of constants that are read."""


def is_float(value: ir.Value) -> bool:
    """Return whether a value is known to be of floating-point numbers."""
    return value.dtype is not None and value.dtype.is_floating_point()


class CutValues:
    """Shapes of whole values, and how they lie."""

    def __init__(self, graph: ir.Graph, cut: Cut) -> None:
        """Begin with nothing decided.

        Args:
            graph: The graph that is cut.
            cut: What is known of other models of the program.
        """
        self.graph = graph
        self.cut = cut
        self._shapes: dict[ir.Value, Shape | None] = {}
        self._shardings: dict[ir.Value, Sharding] = {}
        # Contents of earlier models go into the same PEF, under their names.
        self._names = names_in(graph) | cut.contents.keys()
        self._numbers: dict[str, int] = {}

    def shape(self, value: ir.Value) -> Shape | None:
        """Return the shape of the whole value; None where a size is not known."""
        if value not in self._shapes:
            self._shapes[value] = static_shape(value)
        return self._shapes[value]

    def sharding(self, value: ir.Value) -> Sharding:
        """Return how a value lies; whole where that is still open."""
        return self._shardings.get(value, WHOLE)

    def known(self, value: ir.Value) -> np.ndarray | None:
        """Return the whole content of a small constant, also of one that RDUs have shards of."""
        tensor = self.cut.contents.get(name_of(value)) if value.is_graph_input() else None
        if value.is_initializer() and not value.is_graph_input():
            tensor = value.const_value
        return None if tensor is None or tensor.size > _SMALL else tensor.numpy()

    def constant(self, name: str, numbers: Sequence[int]) -> ir.Value:
        """Return a vector of int64 that all RDUs have."""
        return self.initializer(name, np.array(numbers, np.int64))

    def initializer(self, name: str, array: np.ndarray) -> ir.Value:
        """Return a constant that all RDUs have."""
        return self._initializer(name, ir.Tensor(array))

    def scalar(self, value: ir.Value, number: float) -> ir.Value:
        """Return a constant of the type of a value."""
        assert value.dtype is not None
        return self.initializer("factor", np.array(number, value.dtype.numpy()))

    def _decide(self, value: ir.Value, sharding: Sharding) -> None:
        shape = self.shape(value)
        self._shardings[value] = sharding
        if sharding.axes:
            assert shape is not None
            value.meta[SHARDED] = Sharded(shape, sharding.axes)
        # An initializer keeps the shape of its content: a value and its tensor must agree.
        if shape is not None and not value.is_initializer():
            value.shape = ir.Shape(local_shape(shape, sharding))

    def _initializer(self, name: str, tensor: ir.TensorProtocol) -> ir.Value:
        free = self._free(name)
        value = ir.Value(
            name=free,
            type=ir.TensorType(tensor.dtype),
            shape=ir.Shape(list(tensor.shape.numpy())),
            const_value=tensor,
        )
        self.graph.register_initializer(value)
        return value

    def _free(self, name: str) -> str:
        free, number = name, self._numbers.get(name, 1)
        while free in self._names:
            number += 1
            free = f"{name}_{number}"
        self._names.add(free)
        self._numbers[name] = number  # all before it stay taken
        return free
