"""Products that onnxruntime fuses with what stands around them."""

from __future__ import annotations

import onnx_ir as ir

from samba_onnx.facts.domains import ONNXRUNTIME_DOMAIN
from samba_onnx.passes.rewrites.foreign.activation_functions import activate
from samba_onnx.passes.rewrites.foreign.drafting import Draft
from samba_onnx.passes.rewrites.foreign.rules import expands


@expands(ONNXRUNTIME_DOMAIN, "FusedMatMul", "TransposeMatMul")
def fused_matmul(draft: Draft) -> ir.Value:
    """Product of matrices, each maybe transposed, scaled."""
    return _scaled_product(draft)


def _scaled_product(draft: Draft) -> ir.Value:
    left = _transposed(draft, 0, "transA", "transBatchA")
    right = _transposed(draft, 1, "transB", "transBatchB")
    product = draft.op("MatMul", left, right)
    alpha = draft.number("alpha", 1.0)
    if alpha == 1:
        # A scale of one is left out: it would be a node and a rounding for nothing.
        return product
    return draft.op("Mul", product, draft.scalar(alpha, draft.operand(0)))


def _transposed(draft: Draft, position: int, matrix: str, batch: str) -> ir.Value:
    """Return an operand with the axes of its matrices swapped, or with its first axis before the last.

    ``transBatch`` moves the first axis behind the other batch axes: ``[k, b, m] -> [b, k, m]``.
    """
    value = draft.operand(position)
    if not draft.integer(matrix) and not draft.integer(batch):
        return value
    rank = draft.rank(value)
    if rank < 2:
        return value  # a vector has nothing to swap, and onnxruntime does not mind
    axes = list(range(rank))
    # First batches, then matrices, as the kernel does: both may be stated at once.
    if draft.integer(batch):
        axes = [*axes[1:-1], axes[0], axes[-1]]
    if draft.integer(matrix):
        axes[-2:] = axes[:-3:-1]
    return value if axes == sorted(axes) else draft.op("Transpose", value, perm=axes)


@expands(ONNXRUNTIME_DOMAIN, "FusedGemm")
def fused_gemm(draft: Draft) -> ir.Value:
    """General product with an activation."""
    attributes = {
        "alpha": draft.number("alpha", 1.0),
        "beta": draft.number("beta", 1.0),
        "transA": draft.integer("transA"),
        "transB": draft.integer("transB"),
    }
    inputs = [draft.operand(0), draft.operand(1)]
    addend = draft.optional(2)
    product = draft.op("Gemm", *inputs, *([] if addend is None else [addend]), **attributes)
    return _activated(draft, product)


def _activated(draft: Draft, value: ir.Value) -> ir.Value:
    """Write the activation that attributes state, each parameter by its name."""
    stated = {
        # A parameter of 0 is one that is stated; left out, the activation's own default holds.
        name: draft.number(f"activation_{name}", 0.0)
        for name in ("alpha", "beta", "gamma")
        if f"activation_{name}" in draft.node.attributes
    }
    return activate(draft, value, draft.text("activation", ""), stated)


@expands(ONNXRUNTIME_DOMAIN, "FusedMatMulActivation")
def fused_matmul_activation(draft: Draft) -> ir.Value:
    """Product of matrices, each maybe transposed, scaled, with an activation."""
    if draft.text("activation", "") != "Softmax":
        return _activated(draft, _scaled_product(draft))
    # Softmax has an axis, which other activations lack.
    return draft.op("Softmax", _scaled_product(draft), axis=draft.integer("activation_axis", -1))


@expands(ONNXRUNTIME_DOMAIN, "GemmFastGelu")
def gemm_fast_gelu(draft: Draft) -> ir.Value:
    """Gaussian error linear unit by tanh of a product, to which a bias may be added."""
    product, bias = draft.op("MatMul", draft.operand(0), draft.operand(1)), draft.optional(2)
    total = product if bias is None else draft.op("Add", product, bias)
    return draft.op("Gelu", total, approximate="tanh")
