"""Multiply with the weights of parallel linear layers at once."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from samba_onnx.passes.rewrites.lazy_weights import Array, lazy_tensor
from samba_onnx.passes.rewrites.refusals import ReasonedPass, Refusal
from samba_onnx.passes.rewrites.rewriting import (
    add_initializer,
    add_integers,
    constant,
    each_graph,
    inherit,
    integer_attribute,
    is_operator,
    is_read_once,
    static_shape,
    take_over,
)


@dataclass(frozen=True)
class _Linear:
    """One linear layer: a product with a weight, and maybe the addition of a bias."""

    product: ir.Node
    weight: ir.Value
    width: int
    """Numbers per row of the result."""
    bias: ir.Value | None
    addition: ir.Node | None
    """The Add of the bias; None where there is none or the product adds it."""

    @property
    def output(self) -> ir.Value:
        """The value that the layer computes, with its bias where it has one."""
        return (self.addition or self.product).outputs[0]

    @property
    def nodes(self) -> int:
        """Return how many nodes the layer is made of."""
        return 1 if self.addition is None else 2


class MergeLinearsPass(ReasonedPass):
    """Turn linear layers of one operand, as queries, keys and values, into one layer and a Split.

    1. MatMul(x, w) or Gemm(x, w, b) of the same x, where w is a matrix of the user's that nothing
       else reads; each Gemm with the same attributes and x as it lies.
    2. An Add of a constant vector that is all that reads a MatMul is merged as its bias; layers
       without a bias get one of zeros if others have one.
    3. It leaves fewer nodes than there were.

    The target's matrix units are filled better by one product than by several small ones. Weights
    are joined when they are written, one result in memory at a time.
    """

    def __init__(self, keep: bool = False) -> None:
        """Take whether linear layers stay apart.

        Args:
            keep: Whether none are merged.
        """
        super().__init__()
        self._keep = keep

    def call(self, model: ir.Model) -> ir.passes.PassResult:
        """Merge the layers of every operand that several read."""
        modified = False
        if self._keep:
            return ir.passes.PassResult(model, modified=False)
        for graph in list(each_graph(model)):
            for layers in _parallel(graph):
                outcome = _merge(model, graph, layers)
                modified |= self.refusals.applied(layers[0].product, outcome)
        return ir.passes.PassResult(model, modified=modified)


def _parallel(graph: ir.Graph) -> list[list[_Linear]]:
    """Return the layers that may be merged, grouped, in the order of the graph."""
    groups: dict[Hashable, list[_Linear]] = {}
    for node in graph:
        layer = _linear(node)
        if layer is None:
            continue
        # Case 1: equal operands, equal attributes, weights of one type and as many rows.
        attributes = tuple(sorted((key, item.value) for key, item in node.attributes.items()))
        shape = static_shape(layer.weight) or ()
        rows = shape[1] if _is_transposed(node) else shape[0]
        head = (node.op_type, attributes, layer.weight.dtype, rows)
        groups.setdefault((id(node.inputs[0]), *head), []).append(layer)
    return [layers for layers in groups.values() if len(layers) > 1]


def _linear(node: ir.Node) -> _Linear | None:
    """Return a node as a linear layer, None for others."""
    # A product of constants is folded, not merged.
    if not is_operator(node, "MatMul", "Gemm") or constant(node.inputs[0]) is not None:
        return None
    weight = node.inputs[1]
    shape = static_shape(weight)
    if weight is None or constant(weight) is None or shape is None or len(shape) != 2:
        return None
    # A weight that others read would be stored twice, merged and as it is.
    if not is_read_once(weight) or weight.dtype is None or not weight.dtype.is_floating_point():
        return None
    width = shape[0] if _is_transposed(node) else shape[1]
    if node.op_type == "MatMul":
        addition = _addition(node, width)
        bias = None if addition is None else _added(addition, node.outputs[0])
        return _Linear(node, weight, width, bias, addition)
    bias = node.inputs[2] if len(node.inputs) > 2 else None
    if bias is not None and not _is_vector(bias, width):
        return None
    return _Linear(node, weight, width, bias, None)


def _is_transposed(node: ir.Node) -> bool:
    return bool(integer_attribute(node, "transB", 0))


def _is_vector(value: ir.Value | None, width: int) -> bool:
    """Return whether a value is a constant with one number for every column."""
    return constant(value) is not None and static_shape(value) == (width,)


def _added(addition: ir.Node, product: ir.Value) -> ir.Value | None:
    first, second = addition.inputs
    return second if first is product else first


def _addition(node: ir.Node, width: int) -> ir.Node | None:
    """Return the Add of a bias that is all that reads a product (case 2)."""
    product = node.outputs[0]
    if not is_read_once(product):
        return None
    (reader,) = product.consumers()
    fits = is_operator(reader, "Add") and reader.graph is node.graph
    return reader if fits and _is_vector(_added(reader, product), width) else None


def _merge(model: ir.Model, graph: ir.Graph, layers: list[_Linear]) -> Refusal | None:
    gemm = layers[0].product.op_type == "Gemm"
    biased = any(layer.bias is not None for layer in layers)
    # Case 3: a product and a Split, and an Add where products do not add.
    if sum(layer.nodes for layer in layers) <= 2 + (biased and not gemm):
        return Refusal("one product and a Split would be as many nodes")
    first, name = layers[0].product, layers[0].output.name
    axis = 0 if _is_transposed(first) else 1
    weights = [tensor for layer in layers if (tensor := constant(layer.weight)) is not None]
    operands = [first.inputs[0], _joined(model, f"{layers[0].weight.name}_merged", weights, axis)]
    bias = _joined(model, f"{name}_bias", _biases(layers), 0) if biased else None
    if bias is not None and gemm:
        operands.append(bias)
    nodes = [ir.node(first.op_type, operands, dict(first.attributes))]
    if bias is not None and not gemm:
        nodes.append(ir.node("Add", [nodes[0].outputs[0], bias]))
    for node in nodes:
        node.outputs[0].name = f"{name}_{node.op_type.lower()}"
        node.outputs[0].type = layers[0].output.type
    widths = add_integers(model, f"{name}_widths", [layer.width for layer in layers])
    split = ir.node("Split", [nodes[-1].outputs[0], widths], {"axis": -1}, num_outputs=len(layers))
    nodes.append(split)
    inherit(nodes, first)
    graph.insert_before(first, nodes)
    for layer, output in zip(layers, split.outputs, strict=True):
        take_over(layer.output, output)
        graph.remove([node for node in (layer.addition, layer.product) if node], safe=True)
    return None


def _joined(model: ir.Model, name: str, tensors: list[ir.TensorProtocol], axis: int) -> ir.Value:
    """Add the initializer that has all of these side by side."""
    shape = list(tensors[0].shape.numpy())
    shape[axis] = sum(int(tensor.shape.numpy()[axis]) for tensor in tensors)

    def arrange(arrays: Sequence[Array]) -> Array:
        return np.concatenate(list(arrays), axis=axis)

    tensor = lazy_tensor(arrange, tensors, tuple(shape))
    return add_initializer(model, name, tensor, weight=True)


def _biases(layers: list[_Linear]) -> list[ir.TensorProtocol]:
    """Return the bias of every layer, zeros for one that has none."""
    biases: list[ir.TensorProtocol] = []
    for layer in layers:
        dtype = layer.weight.dtype or ir.DataType.FLOAT
        zeros = ir.Tensor(np.zeros(layer.width, dtype.numpy()), dtype=dtype)
        # Zeros in the type of the weight, since onnxruntime adds equal types only.
        biases.append(constant(layer.bias) or zeros)
    return biases
