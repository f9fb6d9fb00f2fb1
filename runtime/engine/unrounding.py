"""The reading of a quantised model in which no number is rounded to a whole one.

Two right computations of a quantised model differ by whole steps wherever a rounding error of float32
moves a number over the edge between two. Without that rounding both are smooth, and what they compute
can be compared as closely as of any model in float32. Clipping stays: it is smooth, too.

Like :mod:`~samba_onnx.runtime.engine.widening` it shares nothing with the rewrites of the compiler.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import Any, Final

import ml_dtypes
import numpy as np
import onnx
import onnx.inliner
import onnx.shape_inference
from onnx import helper, numpy_helper

from samba_onnx.facts.operators import Kind, operators
from samba_onnx.runtime.engine.widening import has_narrow_floats, widened

__all__ = ["exact_form", "needs_exact_form"]

_T: Final = onnx.TensorProto
_FLOATS: Final = frozenset({_T.FLOAT, _T.DOUBLE, _T.FLOAT16, _T.BFLOAT16})
_CARRYING: Final = (
    operators(kind=Kind.VIEW)
    | operators(kind=Kind.MOVE)
    | {"Add", "Clip", "Max", "MaxPool", "Min", "Mul", "ReduceMax", "ReduceMin", "ReduceSum", "Relu"}
    | {"Sub", "Sum", "Where"}
)
"""Operators of quantised numbers, or of sums of them, that mean the same on floats."""
_SCALING: Final = frozenset({"Mul"})
"""Those of them that make other numbers of whole ones."""
_CLIPS: Final = frozenset({"Clip"})
_SHIFTS: Final = frozenset({"Add", "Sub"})


class _CannotReadError(Exception):
    """A quantised number goes where a float does not fit."""


def needs_exact_form(model: onnx.ModelProto) -> bool:
    """Return whether a model computes anything in 16 bits, or rounds anything to a whole number.

    Args:
        model: Any model; is not changed.
    """
    nodes = (*model.graph.node, *(node for function in model.functions for node in function.node))
    return has_narrow_floats(model) or any(
        node.op_type == "Round" or _quantises(node) for node in nodes
    )


def _quantises(node: onnx.NodeProto) -> bool:
    return node.op_type in _RULES and node.op_type != "DequantizeLinear"


def exact_form(model: onnx.ModelProto) -> onnx.ModelProto | None:
    """Return a model that computes the same in float32, and without rounding to whole numbers.

    1. float16 and bfloat16 become float32 (:func:`~samba_onnx.runtime.engine.widening.widened`).
    2. What quantises a number that is computed divides it, adds the zero point and clips. The Round of
       the arithmetic that this stands for goes, where its result is clipped.
    3. Integers that were quantised numbers, and sums of their products, are floats; outputs, too.
    4. Weights that are quantised stay what they are.

    Args:
        model: Plain ONNX, and this product's own operators; is left as it is.

    Returns:
        A new model, functions inlined; None where the bits of a number are read, or where quantised
        numbers go into an operator that takes no floats in their place.
    """
    wide = widened(model)
    if wide is None and has_narrow_floats(model):
        return None
    base = onnx.inliner.inline_local_functions(model) if wide is None else wide
    try:
        _Unrounding(base).apply()
    except _CannotReadError:
        return None
    return base


class _Unrounding:
    """Takes the rounding out of one graph."""

    def __init__(self, model: onnx.ModelProto) -> None:
        """Look at a model.

        Args:
            model: Is changed in place.
        """
        self._graph = model.graph
        self._nodes: list[onnx.NodeProto] = []
        self._types, self._ranks = _known_types(model)
        self._floats: set[str] = set()
        """Values that were integers."""
        self._centred: dict[str, tuple[str, str]] = {}
        """Zero points of quantised values, and what these were before they came."""
        self._copies: dict[str, str] = {}
        """Casts to float32, and reshaped scales, by what they come from."""
        self._whole: set[str] = set()
        """Floats that were whole numbers."""
        self._known = {tensor.name for tensor in model.graph.initializer}
        self._known -= {value.name for value in model.graph.input}
        self._readers: dict[str, list[onnx.NodeProto]] = {}
        for node in model.graph.node:
            for name in node.input:
                self._readers.setdefault(name, []).append(node)

    def apply(self) -> bool:
        """Rewrite the graph; return whether anything changed.

        Raises:
            _CannotReadError: A quantised number goes where a float does not fit.
        """
        changed = False
        for node in self._graph.node:
            if node.op_type == "Constant" or all(
                name in self._known for name in node.input if name
            ):
                self._known.update(node.output)
                self._nodes.append(node)
            elif (rule := _RULES.get(node.op_type)) and self._is_quantised(node):
                rule(self, node)
                changed = True
            else:
                changed |= self._carry(node)
        if changed:
            nodes = self._nodes
            del self._graph.node[:]
            self._graph.node.extend(nodes)
            self._declare()
        return changed

    def _is_quantised(self, node: onnx.NodeProto) -> bool:
        """Return whether a node quantises, or reads what is quantised when the model runs."""
        return _quantises(node) or any(name in self._floats for name in node.input)

    def _declare(self) -> None:
        """Let declared types be those of floats."""
        kept = [value for value in self._graph.value_info if value.name not in self._floats]
        del self._graph.value_info[:]
        self._graph.value_info.extend(kept)
        for value in self._graph.output:
            if value.name in self._floats:
                value.type.tensor_type.elem_type = _T.FLOAT

    def _carry(self, node: onnx.NodeProto) -> bool:
        """Keep a node, with floats where it reads integers that are floats now."""
        if node.op_type == "Round" and self._is_clipped(node.output[0]):
            self.add("Identity", [node.input[0]], node.output[0])
            self._whole.update(node.output)
            return True
        if node.op_type == "Cast":
            return self._cast(node)
        read = [name for name in node.input if name in self._floats]
        inner = {name for attribute in node.attribute for name in _read_inside(attribute)}
        if inner & self._floats or (read and node.op_type not in _CARRYING):
            raise _CannotReadError
        if read:
            kinds = {self._types.get(name) for name in read}
            for place, name in enumerate(node.input):
                if name and name not in self._floats and self._types.get(name) in kinds:
                    node.input[place] = self.as_float(name)
            self._floats.update(
                name
                for name in node.output
                if self._types.get(name) in kinds or len(node.output) == 1
            )
        if node.op_type in _CARRYING - _SCALING and self._whole.intersection(node.input):
            others = {name for name in node.input if name} - self._whole - self._known
            if not others:
                self._whole.update(node.output)
        self._nodes.append(node)
        return bool(read)

    def _cast(self, node: onnx.NodeProto) -> bool:
        to = next(attribute.i for attribute in node.attribute if attribute.name == "to")
        source = node.input[0]
        if source in self._floats or (source in self._whole and to not in _FLOATS):
            self.add("Identity", [source], node.output[0])
            if to not in _FLOATS:
                self._floats.update(node.output)
            return True
        self._nodes.append(node)
        return False

    def _is_clipped(self, name: str) -> bool:
        """Return whether all that reads a number clips it, maybe behind a zero point."""
        readers = self._readers.get(name, [])
        return bool(readers) and all(
            reader.op_type in _CLIPS
            or (reader.op_type in _SHIFTS and self._is_clipped(reader.output[0]))
            for reader in readers
        )

    def add(self, op_type: str, inputs: Iterable[str], output: str = "", **attributes: Any) -> str:
        """Add a node with one output, and return its name."""
        name = output or f"unrounded.{len(self._nodes)}.{op_type}"
        self._nodes.append(helper.make_node(op_type, list(inputs), [name], **attributes))
        return name

    def number(self, value: float) -> str:
        """Add a constant."""
        tensor = numpy_helper.from_array(np.array(value, np.float32))
        return self.add("Constant", [], value=tensor)

    def as_float(self, name: str) -> str:
        """Return a value in float32."""
        if name in self._floats or self._types.get(name) == _T.FLOAT:
            return name
        if name not in self._copies:
            self._copies[name] = self.add("Cast", [name], to=_T.FLOAT)
        return self._copies[name]

    def along(self, name: str, value: str, node: onnx.NodeProto) -> str:
        """Return scales or zero points in float32, in a shape that broadcasts to what they scale."""
        options = {item.name: item.i for item in node.attribute}
        if options.get("block_size"):
            raise _CannotReadError
        rank, axis = self._ranks.get(value), options.get("axis", 1)
        return self.spread(name, rank, axis)

    def spread(self, name: str, rank: int | None, axis: int) -> str:
        """Return a scalar as it is, and a vector along an axis of so many."""
        number, own = self.as_float(name), self._ranks.get(name)
        if own == 0:
            return number
        if own is None or rank is None or own > 1:
            raise _CannotReadError
        behind = 0 if not rank else rank - 1 - axis % rank
        plain = rank == 0 or self._sizes(name) == 1
        key = f"{name} {'scalar' if plain else behind}"
        if key not in self._copies:
            shape = np.array([] if plain else [-1] + [1] * behind, np.int64)
            sizes = self.add("Constant", [], value=numpy_helper.from_array(shape))
            self._copies[key] = self.add("Reshape", [number, sizes])
        return self._copies[key]

    def single(self, name: str) -> str:
        """Return a scale or zero point of a whole tensor.

        Raises:
            _CannotReadError: There are several.
        """
        if self._ranks.get(name) != 0 and self._sizes(name) != 1:
            raise _CannotReadError
        return self.spread(name, 0, 0)

    def rank(self, name: str) -> int | None:
        """Return the number of dimensions of a value; None where it is unknown."""
        return self._ranks.get(name)

    def _sizes(self, name: str) -> int | None:
        for tensor in self._graph.initializer:
            if tensor.name == name:
                return int(np.prod(tensor.dims))
        return None

    def operand(self, node: onnx.NodeProto, place: int) -> str:
        """Return an input; nothing where it is left out."""
        return node.input[place] if place < len(node.input) else ""

    def ends(self, zero: str, output: str) -> tuple[float, float]:
        """Return the ends of a quantised type."""
        kind = self._types.get(zero) or self._types.get(output) or _T.UINT8
        limits: Any = ml_dtypes.iinfo  # has no types of its own
        try:
            found = limits(helper.tensor_dtype_to_np_dtype(kind))
        except (KeyError, ValueError):
            raise _CannotReadError from None  # float8
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
        self._floats.add(output)

    def scaled(self, number: str, scale: str, zero: str, output: str = "") -> str:
        """Add what makes of a quantised number what it stands for."""
        value = self.as_float(number)
        point, centred = self._centred.get(number, ("", ""))
        if zero and zero == point:
            value = centred
        elif zero:
            value = self.add("Sub", [value, zero])
        return self.add("Mul", [value, scale], output) if scale else value

    def accumulated(self, name: str) -> None:
        """Note that sums of products are floats."""
        self._floats.add(name)


def _quantize(graph: _Unrounding, node: onnx.NodeProto) -> None:
    number, scale, zero = node.input[0], node.input[1], graph.operand(node, 2)
    ends = graph.ends(zero, node.output[0])
    points = graph.along(zero, number, node) if zero else ""
    graph.quantised(number, graph.along(scale, number, node), points, ends, node.output[0])


def _dequantize(graph: _Unrounding, node: onnx.NodeProto) -> None:
    number, scale, zero = node.input[0], node.input[1], graph.operand(node, 2)
    points = graph.along(zero, number, node) if zero else ""
    graph.scaled(number, graph.along(scale, number, node), points, node.output[0])


def _quantize_dynamically(graph: _Unrounding, node: onnx.NodeProto) -> None:
    """Scale and zero point as ONNX defines them; the zero point is rounded, which costs nothing."""
    number, nothing = node.input[0], graph.number(0.0)
    low = graph.add("Min", [graph.add("ReduceMin", [number], keepdims=0), nothing])
    high = graph.add("Max", [graph.add("ReduceMax", [number], keepdims=0), nothing])
    most = graph.number(255.0)
    scale = graph.add("Div", [graph.add("Sub", [high, low]), most], node.output[1])
    zero = graph.add("Div", [graph.add("Sub", [nothing, low]), scale])
    zero = graph.add("Round", [graph.add("Clip", [zero, nothing, most])], node.output[2])
    graph.accumulated(zero)
    graph.quantised(number, scale, zero, (0.0, 255.0), node.output[0])


def _product(graph: _Unrounding, node: onnx.NodeProto) -> None:
    left, right = node.input[:2]
    zeros = [graph.operand(node, place) for place in (2, 3)]
    sides = [
        graph.scaled(left, "", graph.single(zeros[0]) if zeros[0] else ""),
        graph.scaled(right, "", graph.spread(zeros[1], 1, 0) if zeros[1] else ""),
    ]
    graph.add("MatMul", sides, node.output[0])
    graph.accumulated(node.output[0])


def _convolution(graph: _Unrounding, node: onnx.NodeProto) -> None:
    image, weight = node.input[:2]
    rank, zeros = graph.rank(weight), [graph.operand(node, place) for place in (2, 3)]
    sides = [
        graph.scaled(image, "", graph.single(zeros[0]) if zeros[0] else ""),
        graph.scaled(weight, "", graph.spread(zeros[1], rank, 0) if zeros[1] else ""),
    ]
    graph.add("Conv", sides, node.output[0], **_attributes(node))
    graph.accumulated(node.output[0])


def _scaled_product(graph: _Unrounding, node: onnx.NodeProto) -> None:
    left = graph.scaled(node.input[0], *map(graph.single, node.input[1:3]))
    scale, zero = (graph.spread(name, 1, 0) for name in node.input[4:6])
    product = graph.add("MatMul", [left, graph.scaled(node.input[3], scale, zero)])
    scale, zero = map(graph.single, node.input[6:8])
    ends = graph.ends(node.input[7], node.output[0])
    graph.quantised(product, scale, zero, ends, node.output[0])


def _scaled_convolution(graph: _Unrounding, node: onnx.NodeProto) -> None:
    rank = graph.rank(node.input[3])
    image_scale, image_zero = map(graph.single, node.input[1:3])
    image = graph.scaled(node.input[0], image_scale, image_zero)
    weight_scale = graph.spread(node.input[4], rank, 0)
    weight = graph.scaled(node.input[3], weight_scale, graph.spread(node.input[5], rank, 0))
    inputs = [image, weight]
    if graph.operand(node, 8):
        factor = graph.add("Mul", [image_scale, graph.spread(node.input[4], 1, 0)])
        inputs.append(graph.add("Mul", [graph.as_float(node.input[8]), factor]))
    result = graph.add("Conv", inputs, **_attributes(node))
    scale, zero = map(graph.single, node.input[6:8])
    graph.quantised(result, scale, zero, graph.ends(node.input[7], ""), node.output[0])


_RULES: Final[Mapping[str, Callable[[_Unrounding, onnx.NodeProto], None]]] = MappingProxyType(
    {
        "ConvInteger": _convolution,
        "DequantizeLinear": _dequantize,
        "DynamicQuantizeLinear": _quantize_dynamically,
        "MatMulInteger": _product,
        "QLinearConv": _scaled_convolution,
        "QLinearMatMul": _scaled_product,
        "QuantizeLinear": _quantize,
    }
)


def _attributes(node: onnx.NodeProto) -> dict[str, Any]:
    return {item.name: helper.get_attribute_value(item) for item in node.attribute}


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


def _read_inside(attribute: onnx.AttributeProto) -> set[str]:
    """Return the values that the subgraphs of an attribute read."""
    names: set[str] = set()
    graphs = [attribute.g] if attribute.type == onnx.AttributeProto.GRAPH else []
    for graph in (*graphs, *attribute.graphs):
        names |= {value.name for value in graph.output}
        for node in graph.node:
            names |= set(node.input)
            for inner in node.attribute:
                names |= _read_inside(inner)
    return names
