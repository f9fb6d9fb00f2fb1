"""The rule of every operator that can be cut; all others are computed whole."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

import onnx_ir as ir

from samba_onnx.facts.operator_facts import Kind, Randomness
from samba_onnx.facts.operators import facts
from samba_onnx.passes.sharding.rules.products import gemm, matmul
from samba_onnx.passes.sharding.rules.scattering import elements, scatter_nd
from samba_onnx.passes.sharding.rules.sharded_elementwise import elementwise, per_row
from samba_onnx.passes.sharding.rules.sharded_indexing import gather
from samba_onnx.passes.sharding.rules.sharded_reductions import along_axis, normalisation, reduction
from samba_onnx.passes.sharding.rules.sharded_shapes import (
    concat,
    expand,
    pad,
    reshape,
    slice_rule,
    split_rule,
    transpose,
)
from samba_onnx.passes.sharding.sharder import Rule, Sharder
from samba_onnx.program.dataflow import subgraphs

__all__ = ["RULES", "rule_of"]

_NAMES: Final = {
    elementwise: "Identity",
    along_axis: "CumSum Hardmax LogSoftmax Softmax",
    concat: "Concat",
    elements: "GatherElements ScatterElements",
    expand: "Expand",
    gather: "Gather",
    gemm: "Gemm",
    matmul: "MatMul",
    normalisation: "LayerNormalization RMSNormalization",
    pad: "Pad",
    per_row: """
        AveragePool Conv ConvTranspose GlobalAveragePool GlobalMaxPool GroupNormalization
        InstanceNormalization LpNormalization LRN MaxPool""",
    reduction: """
        ArgMax ArgMin ReduceL1 ReduceL2 ReduceLogSum ReduceLogSumExp ReduceMax ReduceMean ReduceMin
        ReduceProd ReduceSum ReduceSumSquare""",
    reshape: "Flatten Reshape Squeeze Unsqueeze",
    scatter_nd: "ScatterND",
    slice_rule: "Slice",
    split_rule: "Split",
    transpose: "Transpose",
}

RULES: Final[Mapping[str, Rule]] = MappingProxyType(
    {name: rule for rule, names in _NAMES.items() for name in names.split()}
)
"""By operator of the default domain; the table of facts says which others are elementwise."""


def rule_of(node: ir.Node) -> Rule:
    """Return how a node is cut."""
    # Rules look at a node's own operands, and a body reads others: these must be whole.
    if any(True for _ in subgraphs(node)):
        return _whole
    row = facts(node.op_type, node.domain)
    if not node.domain and node.op_type in RULES:
        return RULES[node.op_type]
    # Random numbers are drawn for the whole: every RDU would draw those of its shard anew, and other ones
    # than a single RDU.
    if row is not None and row.kind is Kind.ELEMENTWISE and row.random is Randomness.NEVER:
        return elementwise
    return _whole


def _whole(sharder: Sharder, node: ir.Node) -> None:
    """Let every RDU compute a node whole."""
    sharder.whole(node, f"{node.op_type} has no rule for shards")
