"""Operators of onnxruntime's domains that stay whole for the CPU, and why no rule expands them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import onnx_ir as ir

from samba_onnx.facts.domains import ONNXRUNTIME_DOMAIN, qualified

_LOOPS = (
    "it runs a model of its own in a loop until a sequence ends, and the RDU runs static graphs"
)
_DATA = "its output shape depends on the data, and the graph is static"
_PACKED = "how its sequences are packed depends on the data, and the graph is static"
_RECURRENT = "no document or program shows a recurrent layer on the RDU"
_STRINGS = "strings are no data type of the RDU"
_ENGINE = "it holds a model compiled for another device"
_LAYOUT = "its operands are laid out for a library of another device"
_BLOCKS = "its blocks of numbers are of a format that ONNX has no type for"
_HASHES = "it computes with the bits of integers, for which nothing shows the RDU to be used"
_SPARSE = "which positions it attends to depends on the data"
_SAMPLING = "its sampling positions depend on the data; no document or program shows it on the RDU"
_SPECTRUM = (
    "programs show one-dimensional transforms of limited size only, and not as this operator"
)
_TRAINING = "it is a part of onnxruntime's own training"
_EXPERTS = "which experts a row is sent to depends on the data"

_REASONS: Final[Mapping[str, str]] = {
    "AttnLSTM": _RECURRENT,
    "BeamSearch": _LOOPS,
    "BifurcationDetector": _DATA,
    "ComplexMul": "complex numbers are no data type of the RDU",
    "ComplexMulConj": "complex numbers are no data type of the RDU",
    "CropAndResize": _SAMPLING,
    "DecoderAttention": "whether it reads its cache is an operand, and the graph is static",
    "DecoderMaskedMultiHeadAttention": "its cache is shared between beams by an operand",
    "DecoderMaskedSelfAttention": "its cache is shared between beams by an operand",
    "DequantizeBFP": _BLOCKS,
    "DequantizeWithOrder": _LAYOUT,
    "DynamicQuantizeLSTM": _RECURRENT,
    "DynamicSparseAttention": _SPARSE,
    "DynamicTimeWarping": "each of its steps waits for the one before, and chooses where to go on",
    "EPContext": _ENGINE,
    "GatedDeltaNet": _RECURRENT,
    "GatedRelativePositionBias": "no model that uses it was seen, and onnxruntime has no kernel to hold a rule against",
    "GemmFloat8": "its numbers of eight bits are none that the RDU computes with",
    "GreedySearch": _LOOPS,
    "GridSample": _SAMPLING,
    "Inverse": "no document or program shows linear algebra beyond products on the RDU",
    "Irfft": _SPECTRUM,
    "IsAllFinite": _TRAINING,
    "LinearAttention": _RECURRENT,
    "LongformerAttention": _SPARSE,
    "MatMulBlockQuantizedFp4Weight": "its numbers of four bits are none that the RDU computes with",
    "MatMulBlockQuantizedFp8Weight": "its numbers of eight bits are none that the RDU computes with",
    "MatMulFpQ4": _BLOCKS,
    "MatMulInteger16": "sums of products of 16 bits are not exact in float32",
    "MaxpoolWithMask": "it is internal to onnxruntime and without a description",
    "MoE": _EXPERTS,
    "MurmurHash3": _HASHES,
    "NGramHashMapping": _HASHES,
    "NGramRepeatBlock": "which scores it hides depends on the tokens",
    "PackedAttention": _PACKED,
    "PackedMultiHeadAttention": _PACKED,
    "PackedSparseAttentionIndexer": _PACKED,
    "PagedAttention": _PACKED,
    "QMoE": _EXPERTS,
    "QOrderedAttention": _LAYOUT,
    "QOrderedGelu": _LAYOUT,
    "QOrderedLayerNormalization": _LAYOUT,
    "QOrderedLongformerAttention": _LAYOUT,
    "QOrderedMatMul": _LAYOUT,
    "QuantizeBFP": _BLOCKS,
    "QuantizeWithOrder": _LAYOUT,
    "RemovePadding": _DATA,
    "RestorePadding": _PACKED,
    "Rfft": _SPECTRUM,
    "Sampling": _LOOPS,
    "Snpe": _ENGINE,
    "SparseAttention": _SPARSE,
    "SparseAttentionIndexer": _SPARSE,
    "SparsePagedAttention": _PACKED,
    "SparseToDenseMatMul": "sparse tensors have no place in device memory",
    "Tokenizer": _STRINGS,
    "Unique": _DATA,
    "VarlenCausalConvWithState": _PACKED,
    "VarlenNGramHashMapping": _PACKED,
    "WhisperBeamSearch": _LOOPS,
    "WordConvEmbedding": "it looks characters up and takes the largest of each word, for which nothing shows the RDU to be used",
}
"""Reasons by operator of ``com.microsoft``, each to be read after "it is not expanded"."""


def reason_of(node: ir.Node) -> str:
    """Return why no rule expands the operator of a node.

    Args:
        node: A node of one of onnxruntime's domains.
    """
    # Names are unique within onnxruntime's own domain only: its other domains have operators of the
    # same names.
    known = _REASONS.get(node.op_type) if node.domain == ONNXRUNTIME_DOMAIN else None
    return known or f"there is no rule for {qualified(node.domain, node.op_type)}"


def operators_that_stay() -> Mapping[str, str]:
    """Return why operators stay whole, by the qualified names of the operators in their order."""
    return {qualified(ONNXRUNTIME_DOMAIN, name): _REASONS[name] for name in sorted(_REASONS)}
