"""Compute at conversion time what depends on constants only."""

from __future__ import annotations

import math

import numpy as np
import onnx_ir as ir

from samba_onnx.passes.rewrites.evaluation import FOLDABLE, LARGEST_RESULT, evaluate
from samba_onnx.passes.rewrites.lazy_weights import LAYOUT, arrangement, lazy_tensor
from samba_onnx.passes.rewrites.refusals import ReasonedPass, Refusal
from samba_onnx.passes.rewrites.rewriting import (
    SMALL,
    WEIGHT,
    add_initializer,
    constant,
    detach,
    each_graph,
    folded_name,
    is_operator,
    is_read_once,
    static_shape,
    substitute,
    would_be_no_size,
)

BUDGET = 1 << 26
"""Elements that one run of the pass computes at most, so that its time is bounded. A count and not
a clock: the same model gives the same result on every machine."""

MOST_COPIED = 1024
"""Elements that folding may take from a weight that other nodes read too."""


class FoldConstantsPass(ReasonedPass):
    """Replace nodes whose operands are all initializers by initializers.

    1. Only operators of ``evaluation.FOLDABLE`` are folded: nothing random, nothing with a
       subgraph, nothing outside the default domain.
    2. A result that is larger than its operands is folded up to 1 MiB; its size is known before
       anything is allocated.
    3. An operator that rearranges large weights that nothing else reads becomes a lazy tensor:
       they are rearranged when they are written, one result in memory at a time. A weight with
       other readers stays single.
    4. What would trap (integer division by zero), overflow a cast, or fail, stays a node; and so does what
       would be a negative size in a graph that may never be executed.
    """

    def call(self, model: ir.Model) -> ir.passes.PassResult:
        """Fold until the budget of this run is spent."""
        budget = BUDGET
        modified = False
        version = model.graph.opset_imports.get("", 0)
        for graph in list(each_graph(model)):
            folded: list[ir.Node] = []
            for node in graph:
                # Case 1: the operator may be folded, and every operand is known.
                if not _may_fold(node) or any(
                    value is not None and constant(value) is None for value in node.inputs
                ):
                    continue
                # Case 3: weights stay in their file until the result is written.
                if _is_large(node) or _would_copy_weight(node):
                    if self.refusals.applied(node, _fold_lazily(model, node)):
                        folded.append(node)
                    continue
                # Cases 2 and 4: the result is computed now.
                # Operands stand for the work: results are bounded by them or by LARGEST_RESULT.
                cost = sum(tensor.size for value in node.inputs if (tensor := constant(value)))
                outcome = (
                    _fold(model, node, version)
                    if cost <= budget
                    else Refusal("this run of the pass has computed enough")
                )
                if self.refusals.applied(node, outcome):
                    budget -= cost
                    folded.append(node)
            graph.remove(folded, safe=True)  # at once: each call looks through all outputs
            modified |= bool(folded)
        return ir.passes.PassResult(model, modified=modified)


def _may_fold(node: ir.Node) -> bool:
    # Of no operands all are constant: such a node must not be taken for one to fold.
    has_operands = any(value is not None for value in node.inputs)
    return node.domain == "" and node.op_type in FOLDABLE and has_operands


def _is_large(node: ir.Node) -> bool:
    return any(tensor.nbytes > LARGEST_RESULT for v in node.inputs if (tensor := constant(v)))


def _fold(model: ir.Model, node: ir.Node, version: int) -> Refusal | None:
    tensors = [constant(value) for value in node.inputs]
    if any(tensor is not None and tensor.dtype.is_string() for tensor in tensors):
        return Refusal("it computes with strings")
    operands = [None if tensor is None else tensor.numpy() for tensor in tensors]
    results = evaluate(node, operands, version)
    if isinstance(results, Refusal):
        return results
    for output, result in zip(list(node.outputs), results, strict=True):
        if (refusal := would_be_no_size(output, result)) is not None:
            return refusal
    # What is computed of a weight is one, too, and is stored with weights.
    weight = any(value is not None and value.meta.get(WEIGHT) for value in node.inputs)
    for output, result in zip(list(node.outputs), results, strict=True):
        # An output that nobody reads needs no initializer.
        if not output.uses() and not output.is_graph_output():
            continue
        tensor = ir.Tensor(np.ascontiguousarray(result).reshape(result.shape))
        _replace_output(model, node, output, tensor, weight=weight)
    _drop(node)
    return None


def _would_copy_weight(node: ir.Node) -> bool:
    """Return whether folding would store a weight a second time that other nodes read as it is."""
    shared = any(
        value is not None and value.meta.get(WEIGHT) and not is_read_once(value)
        for value in node.inputs
    )
    return shared and (node.op_type in LAYOUT or _elements(node.outputs[0]) > MOST_COPIED)


def _elements(value: ir.Value) -> float:
    """Return how many elements a value has; any number of them while its shape is not static."""
    shape = static_shape(value)
    return math.inf if shape is None else math.prod(shape)


def _fold_lazily(model: ir.Model, node: ir.Node) -> Refusal | None:
    output = node.outputs[0]
    shape = static_shape(output)
    tensors = [tensor for value in node.inputs if (tensor := constant(value)) is not None]
    if shape is None:
        return Refusal("the shape of its output is not static")
    arrange = arrangement(node, shape)
    if arrange is None:
        return Refusal("it computes with a large weight instead of rearranging it")
    if (refusal := _keeps_operands(node)) is not None:
        return refusal
    # Further operands of a Slice or Reshape only say how to arrange the first one.
    lazy = lazy_tensor(arrange, tensors[: _whole_operands(node)], shape)
    weight = any(value is not None and value.meta.get(WEIGHT) for value in node.inputs)
    _replace_output(model, node, output, lazy, weight=weight)
    _drop(node)
    return None


def _whole_operands(node: ir.Node) -> int:
    """Return how many operands are data; those after them only say how to arrange it."""
    return len(node.inputs) if node.op_type == "Concat" else 1


def _keeps_operands(node: ir.Node) -> Refusal | None:
    """Return why a large operand would be stored more than once after folding, if it would.

    A weight may have several readers when all of them are Slices of constant bounds that together
    take no more than there is.
    """
    for value in node.inputs[: _whole_operands(node)]:
        tensor = constant(value)
        if value is None or tensor is None:
            return Refusal("one of its operands is left out")
        if is_read_once(value) or tensor.nbytes <= SMALL:
            continue
        readers = value.consumers()
        if value.is_graph_output() or not all(is_operator(reader, "Slice") for reader in readers):
            return Refusal("other nodes read the weight as it is")
        if sum(_elements(reader.outputs[0]) for reader in readers) > tensor.size:
            return Refusal("the Slices of the weight together take more than there is")
    return None


def _replace_output(
    model: ir.Model, node: ir.Node, output: ir.Value, tensor: ir.TensorProtocol, *, weight: bool
) -> None:
    folded = add_initializer(model, folded_name(output), tensor, weight=weight)
    substitute(node, output, folded)


def _drop(node: ir.Node) -> None:
    """Let a folded node read nothing any more, and remove operands that nothing else reads."""
    operands = [value for value in node.inputs if value is not None]
    detach(node)
    for value in operands:
        owner = value.graph
        unused = value.is_initializer() and not value.uses() and not value.is_graph_output()
        if unused and isinstance(owner, ir.Graph):
            owner.initializers.pop(str(value.name))
