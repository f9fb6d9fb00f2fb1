"""Write compressed weights out as numbers, where the target cannot read them compressed."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import onnx_ir as ir

from samba_onnx.passes.rewrites.quantization_scales import exact_numbers, scales_fit, spread
from samba_onnx.passes.rewrites.refusals import ReasonedPass, Refusal
from samba_onnx.passes.rewrites.rewriting import (
    WEIGHT,
    add_initializer,
    constant,
    each_graph,
    folded_name,
    integer_attribute,
    is_operator,
    substitute,
)

if TYPE_CHECKING:
    from samba_onnx.passes.rewrites.expand_functions import Knows


class FoldDequantizationPass(ReasonedPass):
    """Replace DequantizeLinear of a weight by the numbers that it stands for.

    1. Weight, scale and zero point are initializers; the result is float32, float16 or bfloat16.
    2. The target does not run DequantizeLinear of the weight's type. One that does reads the weight as it
       lies, with a quarter of the bytes.
    3. Scales are of the whole weight, of an axis, or of blocks along an axis.

    Numbers are computed when they are written, one weight in memory at a time.
    """

    def __init__(self, target: Knows) -> None:
        """Take the target that decides which weights are written out.

        Args:
            target: Says whether weights may stay compressed.
        """
        super().__init__()
        self.target = target

    def call(self, model: ir.Model) -> ir.passes.PassResult:
        """Fold every weight that the target cannot read."""
        modified = False
        for graph in list(each_graph(model)):
            for node in graph:
                # Case 2.
                if is_operator(node, "DequantizeLinear") and not self.target.runs(node):
                    modified |= self.refusals.applied(node, _fold(model, node))
        return ir.passes.PassResult(model, modified=modified)


def _fold(model: ir.Model, node: ir.Node) -> Refusal | None:
    # Case 1.
    weight, scale = node.inputs[:2]
    zero = node.inputs[2] if len(node.inputs) > 2 else None
    tensor, factors, shift = constant(weight), constant(scale), constant(zero)
    if weight is None or tensor is None or factors is None or (zero is not None and shift is None):
        return Refusal("what it scales is computed at run time")
    output = node.outputs[0]
    dtype = output.dtype or factors.dtype
    if dtype not in (ir.DataType.FLOAT, ir.DataType.FLOAT16, ir.DataType.BFLOAT16):
        return Refusal("its result is of a type that the folding does not round to")
    shape, axis = tuple(tensor.shape.numpy()), integer_attribute(node, "axis", 1)
    block = integer_attribute(node, "block_size", 0)
    # Case 3.
    if not scales_fit(tuple(factors.shape.numpy()), shape, axis, block):
        return Refusal("its scales do not fit its weight")

    def compute() -> ir.TensorProtocol:
        numbers = exact_numbers(tensor)
        if shift is not None:
            numbers = numbers - spread(exact_numbers(shift), shape, axis, block)
        scales = spread(factors.numpy().astype(np.float32), shape, axis, block)
        product = numbers.astype(np.float32) * scales
        return ir.Tensor(product.astype(dtype.numpy()), dtype=dtype)

    lazy = ir.LazyTensor(compute, dtype=dtype, shape=ir.Shape(shape))
    folded = add_initializer(model, folded_name(output), lazy, weight=bool(weight.meta.get(WEIGHT)))
    substitute(node, output, folded)
    if node.graph is not None:
        node.graph.remove(node, safe=True)
    return None
