"""The reading of a quantised model in which no number is rounded to a whole one.

Two right computations of a quantised model differ by whole steps wherever a rounding error of float32
moves a number over the edge between two. Without that rounding both are smooth, and what they compute
can be compared as closely as of any model in float32. Clipping stays: it is smooth, too.

Like :mod:`~samba_onnx.runtime.engine.widening` it shares nothing with the rewrites of the compiler.
"""

from __future__ import annotations

from typing import Final

import onnx
import onnx.inliner

from samba_onnx.facts.families import MOVING, SAME_ON_FLOATS
from samba_onnx.runtime.engine.float_graphs import CannotReadError, FloatGraph
from samba_onnx.runtime.engine.quantised_operators import RULES
from samba_onnx.runtime.engine.widening import has_narrow_floats, widened

__all__ = ["exact_form", "needs_exact_form"]

_T: Final = onnx.TensorProto
_FLOATS: Final = frozenset({_T.FLOAT, _T.DOUBLE, _T.FLOAT16, _T.BFLOAT16})
_INTEGERS: Final = frozenset(
    {_T.INT8, _T.UINT8, _T.INT16, _T.UINT16, _T.INT32, _T.UINT32, _T.INT64, _T.UINT64}
)
_CARRYING: Final = MOVING | SAME_ON_FLOATS
"""Operators of quantised numbers, or of sums of them, that mean the same on floats."""
_PRODUCTS: Final = frozenset({"Conv", "MatMul"})
"""Operators whose sums of products of whole numbers are whole."""
_SCALING: Final = frozenset({"Mul"})
"""Operators among these that make other numbers of whole ones."""
_CLIPS: Final = frozenset({"Clip"})
_SHIFTS: Final = frozenset({"Add", "Sub"})


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
    return node.op_type in RULES and node.op_type != "DequantizeLinear"


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
    except CannotReadError:
        return None
    return base


class _Unrounding:
    """Takes the rounding out of one graph."""

    def __init__(self, model: onnx.ModelProto) -> None:
        """Look at a model.

        Args:
            model: Is changed in place.
        """
        self._model_graph = model.graph
        self._graph = FloatGraph(model)
        self._whole: set[str] = set()
        """Floats that were whole numbers."""
        self._known = {tensor.name for tensor in model.graph.initializer}
        self._known -= {value.name for value in model.graph.input}
        self._readers: dict[str, list[onnx.NodeProto]] = {}
        for node in model.graph.node:
            for name in node.input:
                self._readers.setdefault(name, []).append(node)

    def apply(self) -> None:
        """Rewrite the graph.

        Raises:
            CannotReadError: A quantised number goes where a float does not fit.
        """
        for node in self._model_graph.node:
            # A Constant has no inputs, so that all of them are known.
            if all(name in self._known for name in node.input if name):
                self._known.update(node.output)
                self._keep(node)
            elif (rule := RULES.get(node.op_type)) and self._is_quantised(node):
                rule(self._graph, node)
            else:
                self._carry(node)
        nodes = self._graph.nodes
        del self._model_graph.node[:]
        self._model_graph.node.extend(nodes)
        self._declare()

    def _keep(self, node: onnx.NodeProto) -> None:
        """Keep a node of constants.

        What scales a weight is written out: onnxruntime makes of it and a product one with fewer digits.
        """
        if node.op_type == "DequantizeLinear":
            try:
                RULES[node.op_type](self._graph, node)
            except CannotReadError:  # what was written for it is read by nobody
                self._graph.nodes.append(node)
        else:
            self._graph.nodes.append(node)

    def _is_quantised(self, node: onnx.NodeProto) -> bool:
        """Return whether a node quantises, or reads what is quantised when the model runs."""
        return _quantises(node) or any(name in self._graph.floats for name in node.input)

    def _declare(self) -> None:
        """Let declared types be those of floats."""
        kept = [
            value for value in self._model_graph.value_info if value.name not in self._graph.floats
        ]
        del self._model_graph.value_info[:]
        self._model_graph.value_info.extend(kept)
        for value in self._model_graph.output:
            if value.name in self._graph.floats:
                value.type.tensor_type.elem_type = _T.FLOAT

    def _carry(self, node: onnx.NodeProto) -> None:
        """Keep a node, with floats where it reads integers that are floats now."""
        # Case 2: a Round that nothing clips is no quantisation, but what the model wants.
        if node.op_type == "Round" and self._is_clipped(node.output[0]):
            self._graph.add("Identity", [node.input[0]], node.output[0])
            self._whole.update(node.output)
        elif node.op_type == "Cast":
            self._cast(node)
        else:
            self._carry_other(node)

    def _carry_other(self, node: onnx.NodeProto) -> None:
        read = [name for name in node.input if name in self._graph.floats]
        inner = {name for attribute in node.attribute for name in _read_inside(attribute)}
        # Others may compute something else of floats, as a division does, which cuts off
        # what is behind the point of whole numbers only.
        if inner & self._graph.floats or (read and node.op_type not in _CARRYING):
            raise CannotReadError
        if read:
            kinds = {self._graph.types.get(name) for name in read}
            for place, name in enumerate(node.input):
                if name and name not in self._graph.floats and self._graph.types.get(name) in kinds:
                    node.input[place] = self._graph.as_float(name)
            self._graph.floats.update(
                name
                for name in node.output
                if self._graph.types.get(name) in kinds or len(node.output) == 1
            )
        whole = (_CARRYING - _SCALING) | _PRODUCTS
        if node.op_type in whole and self._whole.intersection(node.input):
            others = {name for name in node.input if name} - self._whole - self._known
            if not others:
                self._whole.update(node.output)
        self._graph.nodes.append(node)

    def _cast(self, node: onnx.NodeProto) -> None:
        to = next(attribute.i for attribute in node.attribute if attribute.name == "to")
        source = node.input[0]
        if source in self._graph.floats or (source in self._whole and to not in _FLOATS):
            self._graph.add("Identity", [source], node.output[0])
            if to not in _FLOATS:
                self._graph.floats.update(node.output)
            return
        if to in _FLOATS and self._graph.types.get(source) in _INTEGERS:
            # Where its factor is a number that was whole, too, no sum of their products is cut off.
            self._whole.update(node.output)
        self._graph.nodes.append(node)

    def _is_clipped(self, name: str) -> bool:
        """Return whether all that reads a number clips it, maybe behind a zero point."""
        readers = self._readers.get(name, [])
        return bool(readers) and all(
            reader.op_type in _CLIPS
            or (reader.op_type in _SHIFTS and self._is_clipped(reader.output[0]))
            for reader in readers
        )


def _read_inside(attribute: onnx.AttributeProto) -> set[str]:
    """Return the values that the subgraphs of an attribute read."""
    names: set[str] = set()
    for graph in (attribute.g, *attribute.graphs):  # that of another attribute is empty
        names |= {value.name for value in graph.output}
        for node in graph.node:
            names |= set(node.input)
            for inner in node.attribute:
                names |= _read_inside(inner)
    return names
