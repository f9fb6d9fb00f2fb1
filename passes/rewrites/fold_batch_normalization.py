"""Fold BatchNormalization into the convolution or Gemm before it."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
from numpy.typing import NDArray

from samba_onnx.passes.rewrites.refusals import ReasonedPass, Refusal
from samba_onnx.passes.rewrites.rewriting import (
    add_initializer,
    constant,
    each_graph,
    forward,
    integer_attribute,
    is_operator,
    is_read_once,
    small_array,
)

MOST_CHANNELS = 1 << 16

Vector = NDArray[np.float64]


class FoldBatchNormalizationPass(ReasonedPass):
    """Multiply a BatchNormalization into the weights of the node before it.

    1. Conv, ConvTranspose or Gemm before it, whose output only it reads.
    2. Weight, bias and the four operands are initializers, and nothing else reads the weight.
    3. It is in inference mode.

    Factors are computed in double precision; the new weight is computed when it is written, one
    tensor in memory at a time.
    """

    def call(self, model: ir.Model) -> ir.passes.PassResult:
        """Fold every BatchNormalization that follows weights of its own."""
        modified = False
        for graph in list(each_graph(model)):
            for node in graph:
                if is_operator(node, "BatchNormalization"):
                    modified |= self.refusals.applied(node, _fold(model, node))
        return ir.passes.PassResult(model, modified=modified)


def _fold(model: ir.Model, node: ir.Node) -> Refusal | None:
    # Case 1: what is normalised comes from a node with weights, and nothing else reads it.
    source = node.inputs[0]
    before = None if source is None else source.producer()
    if source is None or before is None or before.graph is not node.graph:
        return Refusal("no node of its graph computes its input")
    if not is_operator(before, "Conv", "ConvTranspose", "Gemm"):
        return Refusal("no Conv, ConvTranspose or Gemm is before it")
    if not is_read_once(source):
        return Refusal("other nodes read its input too")
    # Case 3: in training mode the statistics are those of the batch.
    if _is_training(node):
        return Refusal("it is in training mode")
    # Case 2: everything that is multiplied is known now, and the product replaces one weight only.
    weight = before.inputs[1]
    tensor = constant(weight)
    if weight is None or tensor is None:
        return Refusal("the weight before it is computed at run time")
    if not is_read_once(weight):
        return Refusal("other nodes read the weight before it too")
    if tensor.dtype not in (ir.DataType.FLOAT, ir.DataType.FLOAT16, ir.DataType.DOUBLE):
        return Refusal(f"products of type {tensor.dtype.name.lower()} would be rounded differently")
    vectors = _vectors(node)
    if vectors is None:
        return Refusal("its statistics are no constant vectors")
    factor, shift = vectors
    if not np.isfinite(factor).all():
        return Refusal("its factors are not finite")
    bias = _bias(before, len(factor))
    shape = _factor_shape(before, tensor, len(factor))
    if bias is None:
        return Refusal("the bias before it is no constant vector of its channels")
    if shape is None:
        return Refusal("its channels are no axis of the weight before it")
    _rewrite(model, before, weight, tensor, factor.reshape(shape), bias * factor + shift)
    return _forward_by_name(node, source)


def _forward_by_name(node: ir.Node, source: ir.Value) -> Refusal | None:
    """Drop a node, and give what is read in its place its name.

    The node before computes now what this one did: whoever compares values by their names must not take
    it for what it was.
    """
    output = node.outputs[0]
    name, refusal = output.name, forward(node, source)
    if refusal is None and name:
        output.name, source.name = None, name
    return refusal


def _is_training(node: ir.Node) -> bool:
    return bool(integer_attribute(node, "training_mode", 0)) or any(
        extra.uses() or extra.is_graph_output() for extra in node.outputs[1:]
    )


def _vectors(node: ir.Node) -> tuple[Vector, Vector] | None:
    """Return factor and shift per channel."""
    arrays = [small_array(value, MOST_CHANNELS) for value in node.inputs[1:]]
    if any(array is None or array.ndim != 1 for array in arrays):
        return None
    scale, offset, mean, variance = (
        array.astype(np.float64) for array in arrays if array is not None
    )
    epsilon = node.attributes["epsilon"].as_float() if "epsilon" in node.attributes else 1e-5
    with np.errstate(all="ignore"):
        factor = scale / np.sqrt(variance + epsilon)
    return factor, offset - mean * factor


def _bias(before: ir.Node, channels: int) -> Vector | None:
    """Return what is added after the multiplication with the weight, per channel."""
    value = before.inputs[2] if len(before.inputs) > 2 else None
    if value is None:
        return np.zeros(channels)
    array = small_array(value, MOST_CHANNELS)
    if array is None or array.size not in (1, channels):
        return None
    if array.ndim > 1 and array.shape[-1] != array.size:
        return None
    beta = before.attributes["beta"].as_float() if "beta" in before.attributes else 1.0
    return np.broadcast_to(array.astype(np.float64).ravel() * beta, channels)


def _factor_shape(
    before: ir.Node, tensor: ir.TensorProtocol, channels: int
) -> tuple[int, ...] | None:
    """Return the shape in which the factors multiply the weight, None when they do not fit."""
    shape = list(tensor.shape.numpy())
    if before.op_type == "Conv":
        axis = 0
    elif before.op_type == "Gemm":
        axis = 0 if integer_attribute(before, "transB", 0) else 1
    else:
        # Of a ConvTranspose with groups it has the channels of one of them, which do not fit.
        axis = 1
    if shape[axis : axis + 1] != [channels]:  # also where a weight has too few axes
        return None
    return tuple(channels if place == axis else 1 for place in range(len(shape)))


def _rewrite(
    model: ir.Model,
    before: ir.Node,
    weight: ir.Value,
    tensor: ir.TensorProtocol,
    factor: Vector,
    bias: Vector,
) -> None:
    def compute() -> ir.TensorProtocol:
        product = tensor.numpy() * factor.astype(_working_type(tensor))
        return ir.Tensor(product.astype(tensor.dtype.numpy()))

    lazy = ir.LazyTensor(compute, dtype=tensor.dtype, shape=ir.Shape(list(tensor.shape.numpy())))
    new_weight = add_initializer(model, f"{weight.name}_normalized", lazy, weight=True)
    before.resize_inputs(3)
    old_bias = before.inputs[2]
    name = f"{weight.name}_bias" if old_bias is None else old_bias.name
    vector = ir.Tensor(bias.astype(tensor.dtype.numpy()))
    new_bias = add_initializer(model, f"{name}_normalized", vector, weight=True)
    before.replace_input_with(1, new_weight)
    before.replace_input_with(2, new_bias)
    before.attributes.pop("beta", None)


def _working_type(tensor: ir.TensorProtocol) -> type[np.floating]:
    return np.float64 if tensor.dtype == ir.DataType.DOUBLE else np.float32
