"""What onnxruntime's graph optimizer does wrong."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import onnx

from samba_onnx.runtime.engine.lowerings.stage_model import StageModel

_POOLING, _PRODUCT, _NEUTRAL = "Pad_Fusion", "MatmulTransposeFusion", "NoopElimination"
FAULTY: Final = (_POOLING, _PRODUCT, _NEUTRAL)
"""Those that change numbers, for models that are not looked at."""
_STATISTICS: Final = "SkipLayerNormFusion"
_FAULTS: Final = (("MaxPool", "Pad", _POOLING), ("MatMul", "Transpose", _PRODUCT))
"""Operators with what makes their first operand when an optimizer goes wrong."""


def disable_faulty_optimizers(stage: StageModel) -> None:
    """Note which of onnxruntime's optimizers must not see a stage.

    Args:
        stage: As onnxruntime gets it otherwise.
    """
    stage.disabled_optimizers = tuple(faulty_optimizers(stage.model))


def faulty_optimizers(model: onnx.ModelProto) -> list[str]:
    """Return the optimizers of onnxruntime that would change what a model computes.

    Version 1.31 moves a Pad into the MaxPool that reads it, whatever it pads with; but a pooling
    never chooses what it has padded itself, as if that were minus infinity. And it lets a MatMul
    read a transposed matrix as it lies although the other operand is a vector, for which the
    product then is that with the matrix itself.

    Versions before 1.27 take an operand without elements for a neutral number, and leave out the
    Add, Sub, Mul or Div that reads it: the result has the shape of the other operand, or the model
    cannot be prepared. Which values are empty constants may show only when constants are folded, so
    that no model is given to this optimizer. It has nothing to do for those that the compiler wrote:
    it removes neutral operands itself.

    Versions before 1.30 fuse a LayerNormalization with the Add before it although the mean, which its
    backward reads, is not among the results of the fused node.

    Args:
        model: To be run.

    Returns:
        Names for ``InferenceSession(disabled_optimizers=...)``.
    """
    makers = {name: node for node in model.graph.node for name in node.output}
    faults = {
        fault
        for node in model.graph.node
        for operator, maker, fault in _FAULTS
        if node.op_type == operator and _made_by(maker, node.input[0], makers)
    }
    # It goes wrong with vectors only, and is worth having for all other products.
    if _PRODUCT in faults and not _multiplies_vectors(model.graph, makers):
        faults.discard(_PRODUCT)
    faults.add(_NEUTRAL)
    if any(n.op_type == "LayerNormalization" and len(n.output) > 1 for n in model.graph.node):
        faults.add(_STATISTICS)
    return [name for name in (*FAULTY, _STATISTICS) if name in faults]


def _made_by(operator: str, name: str, makers: Mapping[str, onnx.NodeProto]) -> bool:
    """Return whether a value is the result of an operator, maybe behind a Cast."""
    maker = makers.get(name)
    if maker is not None and maker.op_type == "Cast":
        maker = makers.get(maker.input[0])
    return maker is not None and maker.op_type == operator


def _multiplies_vectors(graph: onnx.GraphProto, makers: Mapping[str, onnx.NodeProto]) -> bool:
    """Return whether a transposed value is multiplied by what is, or may be, a vector."""
    ranks = {tensor.name: len(tensor.dims) for tensor in graph.initializer}
    for value in (*graph.input, *graph.output, *graph.value_info):
        if value.type.tensor_type.HasField("shape"):
            ranks[value.name] = len(value.type.tensor_type.shape.dim)
    return any(
        node.op_type == "MatMul"
        and _made_by("Transpose", node.input[0], makers)
        # A rank that is not declared may be that of a vector.
        and ranks.get(node.input[1], 1) == 1
        for node in graph.node
    )
