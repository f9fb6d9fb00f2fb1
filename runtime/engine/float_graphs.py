"""Graphs in which quantised numbers are floats: what their nodes are written with."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

import ml_dtypes
import numpy as np
import onnx
import onnx.shape_inference
from onnx import helper, numpy_helper

__all__ = ["CannotReadError", "FloatGraph"]

_T: Final = onnx.TensorProto


class CannotReadError(Exception):
    """A quantised number goes where a float does not fit."""


class FloatGraph:
    """The nodes of a graph in which floats take the place of quantised numbers.

    Methods that look at scales and zero points raise ``CannotReadError`` where they do not fit.
    """

    def __init__(self, model: onnx.ModelProto) -> None:
        """Look at a model.

        Args:
            model: Is not changed here.
        """
        self.nodes: list[onnx.NodeProto] = []
        """What was written, in topological order."""
        self.floats: set[str] = set()
        """Values that were integers."""
        self.types, self._ranks = _known_types(model)
        self._lengths = {
            tensor.name: int(np.prod(tensor.dims)) for tensor in model.graph.initializer
        }
        self._centred: dict[str, tuple[str, str]] = {}
        """Zero points of quantised values, and what these were before they came."""
        self._copies: dict[str, str] = {}
        """Casts to float32, and reshaped scales, by what they come from."""

    def add(self, op_type: str, inputs: Iterable[str], output: str = "", **attributes: Any) -> str:
        """Add a node with one output, and return its name."""
        name = output or f"unrounded.{len(self.nodes)}.{op_type}"
        self.nodes.append(helper.make_node(op_type, list(inputs), [name], **attributes))
        return name

    def number(self, value: float) -> str:
        """Add a constant."""
        tensor = numpy_helper.from_array(np.array(value, np.float32))
        return self.add("Constant", [], value=tensor)

    def as_float(self, name: str) -> str:
        """Return a value in float32."""
        if name in self.floats or self.types.get(name) == _T.FLOAT:
            return name
        if name not in self._copies:
            self._copies[name] = self.add("Cast", [name], to=_T.FLOAT)
        return self._copies[name]

    def along(self, name: str, value: str, node: onnx.NodeProto) -> str:
        """Return scales or zero points in float32, in a shape that broadcasts to what they scale."""
        options = {item.name: item.i for item in node.attribute}
        # A scale per block of elements does not broadcast to what it scales.
        if options.get("block_size"):
            raise CannotReadError
        rank, axis = self._ranks.get(value), options.get("axis", 1)
        return self.spread(name, rank, axis)

    def spread(self, name: str, rank: int | None, axis: int) -> str:
        """Return a scalar as it is, and a vector along an axis of so many."""
        number, own = self.as_float(name), self._ranks.get(name)
        if own == 0:
            return number
        if own is None or rank is None or own > 1:
            raise CannotReadError
        # Broadcasting counts axes from the last one: a vector along an axis needs as many axes of
        # one element behind it as the value has there.
        behind = 0 if not rank else rank - 1 - axis % rank
        plain = rank == 0 or self._lengths.get(name) == 1
        key = f"{name} {'scalar' if plain else behind}"
        if key not in self._copies:
            shape = np.array([] if plain else [-1] + [1] * behind, np.int64)
            sizes = self.add("Constant", [], value=numpy_helper.from_array(shape))
            self._copies[key] = self.add("Reshape", [number, sizes])
        return self._copies[key]

    def single(self, name: str) -> str:
        """Return a scale or zero point of a whole tensor.

        Raises:
            CannotReadError: There are several.
        """
        if self._ranks.get(name) != 0 and self._lengths.get(name) != 1:
            raise CannotReadError
        return self.spread(name, 0, 0)

    def rank(self, name: str) -> int | None:
        """Return the number of dimensions of a value; None where it is unknown."""
        return self._ranks.get(name)

    def operand(self, node: onnx.NodeProto, place: int) -> str:
        """Return an input; nothing where it is left out."""
        return node.input[place] if place < len(node.input) else ""

    def ends(self, zero: str, output: str) -> tuple[float, float]:
        """Return the ends of a quantised type."""
        # ONNX quantises to uint8 where there is no zero point to say otherwise.
        kind = self.types.get(zero) or self.types.get(output) or _T.UINT8
        limits: Any = ml_dtypes.iinfo  # has no types of its own
        try:
            found = limits(helper.tensor_dtype_to_np_dtype(kind))
        except (KeyError, ValueError):
            raise CannotReadError from None  # float8
        return float(found.min), float(found.max)

    def quantised(
        self, number: str, scale: str, zero: str, ends: tuple[float, float], output: str
    ) -> None:
        """Add what quantises a number, in floats.

        It is clipped before the zero point comes, which would cost it digits.
        """
        value = self.add("Div", [self.as_float(number), scale])
        low, high = map(self.number, ends)
        if not zero:
            self.add("Clip", [value, low, high], output)
        else:
            value = self.add("Max", [value, self.add("Sub", [low, zero])])
            value = self.add("Min", [value, self.add("Sub", [high, zero])])
            self.add("Add", [value, zero], output)
            self._centred[output] = (zero, value)
        self.floats.add(output)

    def scaled(self, number: str, scale: str, zero: str, output: str = "") -> str:
        """Add what makes of a quantised number what it stands for."""
        value = self.as_float(number)
        point, centred = self._centred.get(number, ("", ""))
        # The value of before its zero point came: to subtract that from the sum again would not
        # bring back the digits that the addition cost.
        if zero and zero == point:
            value = centred
        elif zero:
            value = self.add("Sub", [value, zero])
        return self.add("Mul", [value, scale], output) if scale else value

    def accumulated(self, name: str) -> None:
        """Note that sums of products are floats."""
        self.floats.add(name)


def _known_types(model: onnx.ModelProto) -> tuple[dict[str, int], dict[str, int]]:
    """Return element types and ranks of the values of the main graph, as far as they are known."""
    try:
        graph = onnx.shape_inference.infer_shapes(model).graph
    except Exception:  # whatever it cannot infer: what is declared is known
        graph = model.graph
    types = {tensor.name: tensor.data_type for tensor in graph.initializer}
    ranks = {tensor.name: len(tensor.dims) for tensor in graph.initializer}
    for value in (*graph.input, *graph.output, *graph.value_info):
        kind = value.type.tensor_type
        if kind.elem_type:
            types[value.name] = kind.elem_type
        if kind.HasField("shape"):
            ranks[value.name] = len(kind.shape.dim)
    return types, ranks
