"""Products of uint8 and int8, which saturate on some processors, with uint8 on both sides.

On x86 with AVX2 and without VNNI (AMD before Zen 4, Intel before Cascade Lake) onnxruntime multiplies uint8
by int8 with ``vpmaddubsw``, which adds neighbouring products in 16 bits and cuts the sum off at 32767: of
``MatMulInteger`` on the whole range two thirds of the elements are wrong there. Its kernels for two operands
of uint8 are exact on every processor. A weight of int8 and its zero point, both moved up by 128, are uint8 and
make the same product, so that this costs nothing but one pass over the weight.

onnxruntime's own remedy, the session entry ``session.x64quantprecision``, does the same, but only for weights
that are constants, and only if the optimizer runs (measured on an emulated Haswell, of 256 elements of full
range wrong: 173 without it, none with it; 151 where the weight is computed, and 173 where nothing is optimised,
with it or without).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

import numpy as np
import onnx
import onnx.inliner
import onnx.shape_inference
from onnx import numpy_helper

from samba_onnx.runtime.engine.lowerings.graph_view import element_types, subgraphs
from samba_onnx.runtime.engine.lowerings.nodes import Nodes, all_nodes

__all__ = ["PRODUCTS", "make_weights_unsigned", "signed_products"]

_T: Final = onnx.TensorProto
_OFFSET: Final = 128
"""Distance of the smallest int8 from the smallest uint8."""


@dataclass(frozen=True)
class QuantisedProduct:
    """Where an operator has its operands; places are counted from 0."""

    weights: tuple[tuple[int, int], ...]
    """Place of each weight and of its zero point."""
    data: tuple[int, int] | None = None
    """Place of the other factor and of its zero point; None where the operator quantises it itself, as uint8."""


PRODUCTS: Final[Mapping[str, QuantisedProduct]] = MappingProxyType(
    {
        "ConvInteger": QuantisedProduct(((1, 3),), (0, 2)),
        "DynamicQuantizeLSTM": QuantisedProduct(((1, 9), (2, 11))),
        "DynamicQuantizeMatMul": QuantisedProduct(((1, 3),)),
        "MatMulInteger": QuantisedProduct(((1, 3),), (0, 2)),
        "MatMulIntegerToFloat": QuantisedProduct(((1, 5),), (0, 4)),
        "QAttention": QuantisedProduct(((1, 7),), (0, 6)),
        "QGemm": QuantisedProduct(((3, 5),), (0, 2)),
        "QLinearConv": QuantisedProduct(((3, 5),), (0, 2)),
        "QLinearMatMul": QuantisedProduct(((3, 5),), (0, 2)),
    }
)
"""Operators of ONNX and of onnxruntime's own domain that multiply integers of eight bits, by name."""


def make_weights_unsigned(model: onnx.ModelProto) -> dict[str, str]:
    """Let products of uint8 and int8 have uint8 on both sides.

    1. The operator is in the table; in the main graph, a subgraph or a function, which is inlined.
    2. The weight is int8, by its own type or by that of its zero point.
    3. The other factor is not int8: kernels for two operands of int8 are exact, too.

    Args:
        model: Is changed in place.

    Returns:
        Why products stay what they are though their weight may be int8, by the name of their result.
    """
    reasons: dict[str, str] = {}
    _rewrite(model, reasons)
    return reasons


def signed_products(model: onnx.ModelProto) -> int:
    """Return how many products of a model the lowering changes.

    Args:
        model: Any model; is left as it is.
    """
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    return _rewrite(copy, {})


def _rewrite(model: onnx.ModelProto, reasons: dict[str, str]) -> int:
    """Rewrite the products of a model; return how many were changed, and note why others stay."""
    # Case 1: types are known only where a function is called, so that it has to be inlined.
    inside = (node for function in model.functions for node in function.node)
    if any(node.op_type in PRODUCTS for node in inside):
        model.CopyFrom(onnx.inliner.inline_local_functions(model))
    if not any(node.op_type in PRODUCTS for node in all_nodes(model.graph)):
        return 0
    return _Unsigned(model.graph, _inferred_types(model), {}).rewrite(reasons)


def _inferred_types(model: onnx.ModelProto) -> dict[str, int]:
    """Return the types of values of the main graph, as far as ONNX can tell."""
    try:
        graph = onnx.shape_inference.infer_shapes(model).graph
    except Exception:  # whatever it cannot infer, or 2 GB of weights: what is declared is known
        graph = model.graph
    return element_types(graph)


class _Unsigned:
    """Rewrites one graph, and those inside of it."""

    def __init__(
        self,
        graph: onnx.GraphProto,
        types: Mapping[str, int],
        outer: Mapping[str, onnx.TensorProto],
    ) -> None:
        """Look at a graph.

        Args:
            graph: Is changed in place.
            types: Types of its values, and of those around it.
            outer: Constants of the graphs around it.
        """
        inputs = {value.name for value in graph.input}
        own = {tensor.name: tensor for tensor in graph.initializer if tensor.name not in inputs}
        self._graph = graph
        self._constants = {**outer, **own}
        self._types = {**types, **{name: tensor.data_type for name, tensor in own.items()}}
        self._copies: dict[str, str] = {}
        """Unsigned values of this graph, by the signed one."""
        self._nodes: list[onnx.NodeProto] = []

    def rewrite(self, reasons: dict[str, str]) -> int:
        """Rewrite the products; return how many were changed, and note why others stay."""
        changed = 0
        for node in self._graph.node:
            for inner in subgraphs(node):
                types = {**self._types, **element_types(inner)}
                changed += _Unsigned(inner, types, self._constants).rewrite(reasons)
            product = PRODUCTS.get(node.op_type)
            if product is not None:
                changed += self._change(node, product, reasons)
            self._nodes.append(node)
        nodes = list(self._nodes)
        del self._graph.node[:]
        self._graph.node.extend(nodes)
        return changed

    def _change(
        self, node: onnx.NodeProto, product: QuantisedProduct, reasons: dict[str, str]
    ) -> bool:
        """Rewrite one product; return whether anything of it was signed."""
        # Case 3: onnxruntime has no kernel for int8 times uint8 of most operators, and needs none.
        if product.data is not None and self._type_of(node, *product.data) == _T.INT8:
            return False
        changed = False
        for place, zero in product.weights:
            kind = self._type_of(node, place, zero)
            if not kind:
                reasons[node.output[0]] = "the type of its weight is not declared"
            if kind == _T.INT8:
                node.input[place] = self._moved(node.input[place], node)
                self._move_zero(node, zero)
                changed = True
        return changed

    def _type_of(self, node: onnx.NodeProto, place: int, zero: int) -> int:
        """Return the type of a factor, which its zero point has as well; 0 if it is unknown."""
        names = [node.input[at] for at in (place, zero) if at < len(node.input)]
        return next((self._types[name] for name in names if self._types.get(name)), 0)

    def _move_zero(self, node: onnx.NodeProto, place: int) -> None:
        node.input.extend([""] * (place + 1 - len(node.input)))
        name = node.input[place]
        if name:
            node.input[place] = self._moved(name, node)
        else:
            # Left out it stands for zero, which is in the middle now.
            node.input[place] = self._constant(f"{node.output[0]}.middle", np.uint8(_OFFSET))

    def _moved(self, name: str, node: onnx.NodeProto) -> str:
        """Return a value of int8 as uint8, moved up by the offset."""
        if name not in self._copies:
            tensor = self._constants.get(name)
            if tensor is None or tensor.data_location == _T.EXTERNAL:
                self._copies[name] = self._computed(name, node)
            else:
                # Through a wider type: int8 does not hold the sum, and uint8 not the operand.
                moved = numpy_helper.to_array(tensor).astype(np.int16) + _OFFSET
                self._copies[name] = self._constant(f"{name}.unsigned", moved.astype(np.uint8))
        return self._copies[name]

    def _computed(self, name: str, node: onnx.NodeProto) -> str:
        """Write what moves a value that the model computes, or whose content lies elsewhere."""
        build = Nodes(f"{node.output[0]}.{name}.unsigned")
        wide = build.make("Cast", [name], to=_T.INT32)
        moved = build.make("Add", [wide, build.constant(np.int32(_OFFSET))])
        result = build.make("Cast", [moved], to=_T.UINT8)
        self._nodes += build.nodes
        return result

    def _constant(self, name: str, content: np.ndarray | np.uint8) -> str:
        self._graph.initializer.append(numpy_helper.from_array(np.asarray(content), name))
        return name
