"""Compute at conversion time what depends on constants only."""

from __future__ import annotations

import math

import numpy as np
import onnx_ir as ir

from samba_onnx.passes.evaluation import FOLDABLE, LARGEST_RESULT, evaluate
from samba_onnx.passes.rewriting import (
    WEIGHT,
    add_initializer,
    constant,
    each_graph,
    is_read_once,
    static_shape,
    substitute,
)

BUDGET = 1 << 26
"""Elements that one run of the pass computes at most, so that its time is bounded. A count and not
a clock: the same model gives the same result on every machine."""

MOST_COPIED = 1024
"""Elements that folding may take from a weight that other nodes read too."""

LAYOUT = frozenset({"Transpose", "Reshape", "Squeeze", "Unsqueeze", "Flatten"})
"""Operators that only rearrange one operand: folded lazily when the operand is large."""


class FoldConstantsPass(ir.passes.InPlacePass):
    """Replace nodes whose operands are all initializers by initializers.

    1. Only operators of ``evaluation.FOLDABLE`` are folded: nothing random, nothing with a
       subgraph, nothing outside the default domain.
    2. A result that is larger than its operands is folded up to 1 MiB; its size is known before
       anything is allocated.
    3. A layout operator on a large weight that nothing else reads becomes a lazy tensor: the
       weight is rearranged when it is written, one tensor in memory at a time. A weight with
       other readers stays single.
    4. What would trap (integer division by zero), overflow a cast, or fail, stays a node.
    """

    def call(self, model: ir.Model) -> ir.passes.PassResult:
        """Fold."""
        budget = BUDGET
        modified = False
        version = model.graph.opset_imports.get("", 0)
        for graph in list(each_graph(model)):
            for node in graph:
                if not _may_fold(node) or any(
                    value is not None and constant(value) is None for value in node.inputs
                ):
                    continue
                if _is_large(node):
                    modified |= _fold_lazily(model, node)
                    continue
                cost = sum(tensor.size for value in node.inputs if (tensor := constant(value)))
                if cost <= budget and _fold(model, node, version):
                    budget -= cost
                    modified = True
        return ir.passes.PassResult(model, modified=modified)


def _may_fold(node: ir.Node) -> bool:
    return node.domain == "" and node.op_type in FOLDABLE and bool(node.inputs)


def _is_large(node: ir.Node) -> bool:
    return any(tensor.nbytes > LARGEST_RESULT for v in node.inputs if (tensor := constant(v)))


def _fold(model: ir.Model, node: ir.Node, version: int) -> bool:
    tensors = [constant(value) for value in node.inputs]
    if any(tensor is not None and tensor.dtype.is_string() for tensor in tensors):
        return False
    if _would_copy_weight(node):
        return False
    operands = [None if tensor is None else tensor.numpy() for tensor in tensors]
    results = evaluate(node, operands, version)
    if results is None:
        return False
    weight = any(value is not None and value.meta.get(WEIGHT) for value in node.inputs)
    for output, result in zip(list(node.outputs), results, strict=True):
        if not output.uses() and not output.is_graph_output():
            continue
        dtype = output.dtype or ir.DataType.from_numpy(result.dtype)
        tensor = ir.Tensor(np.ascontiguousarray(result).reshape(result.shape), dtype=dtype)
        _replace_output(model, node, output, tensor, weight=weight)
    _drop(node)
    return True


def _would_copy_weight(node: ir.Node) -> bool:
    """Return whether folding would store a weight a second time that other nodes read as it is."""
    shared = any(
        value is not None and value.meta.get(WEIGHT) and not is_read_once(value)
        for value in node.inputs
    )
    size = math.prod(static_shape(node.outputs[0]) or (1 << 31,))
    return shared and (node.op_type in LAYOUT or size > MOST_COPIED)


def _fold_lazily(model: ir.Model, node: ir.Node) -> bool:
    source = node.inputs[0]
    shape = static_shape(node.outputs[0])
    tensor = constant(source)
    if node.op_type not in LAYOUT or source is None or tensor is None or shape is None:
        return False
    if not is_read_once(source) or math.prod(shape) != tensor.size:
        return False
    permutation = None
    if node.op_type == "Transpose":
        given = node.attributes.get("perm")
        reverse = tuple(range(len(tensor.shape)))[::-1]
        permutation = reverse if given is None else tuple(given.as_ints())
    lazy = rearranged(tensor, shape, permutation)
    _replace_output(model, node, node.outputs[0], lazy, weight=bool(source.meta.get(WEIGHT)))
    _drop(node)
    return True


def rearranged(
    tensor: ir.TensorProtocol, shape: tuple[int, ...], permutation: tuple[int, ...] | None
) -> ir.LazyTensor:
    """Return a view of ``tensor``, transposed and reshaped when somebody reads it.

    Args:
        tensor: The weight as it lies in the model's file.
        shape: Shape of the result.
        permutation: Order of dimensions for a transpose; None to only reshape.
    """

    def compute() -> ir.TensorProtocol:
        array = tensor.numpy()
        if permutation is not None:
            array = array.transpose(permutation)
        return ir.Tensor(np.ascontiguousarray(array).reshape(shape), dtype=tensor.dtype)

    return ir.LazyTensor(compute, dtype=tensor.dtype, shape=ir.Shape(shape))


def _replace_output(
    model: ir.Model, node: ir.Node, output: ir.Value, tensor: ir.TensorProtocol, *, weight: bool
) -> None:
    name = output.name or "value"
    name = f"{name}_folded" if output.is_graph_output() else name
    substitute(node, output, add_initializer(model, name, tensor, weight=weight))


def _drop(node: ir.Node) -> None:
    """Remove a folded node, and operands that nothing reads any more."""
    operands = [value for value in node.inputs if value is not None]
    graph = node.graph
    if graph is not None and not any(value.uses() for value in node.outputs):
        graph.remove(node, safe=True)
    for value in operands:
        owner = value.graph
        unused = value.is_initializer() and not value.uses() and not value.is_graph_output()
        if unused and isinstance(owner, ir.Graph):
            owner.initializers.pop(value.name or "", None)
