"""What to write in the place of what no RDU runs, for the people whose models have it.

Advice is about the model, in words of PyTorch and ONNX; what the compiler can write otherwise by itself is
no advice, but a rule of legalisation.
"""

from __future__ import annotations

from typing import Final

__all__ = ["ADVICE", "ADVICE_BY_REASON", "ADVICE_BY_TYPE"]

# Advice that several operators share stands once, so that it cannot differ between them.
_MASK = "keep the shape: multiply by a mask, or torch.where(mask, x, 0), and select on the host"
_OUTSIDE = "return what it reads as outputs of the model, and do this on the host after the run"
_BEFORE = "do this on the host before the run, and give the model its result as an input"
_NOISE = "draw the values on the host, and give them to the model as an input"
_TENSOR = "keep a tensor with one more dimension (torch.stack), with a static number of elements"
_TRIPS = "give the loop a constant number of iterations, or write it outside of forward"

ADVICE: Final[dict[str, str]] = {
    "ArgMax": "return the scores, and take the index on the host",
    "Bernoulli": _NOISE,
    "Compress": _MASK,
    "ConcatFromSequence": _TENSOR,
    "DFT": "a transform of static length is a product with a constant matrix; else " + _BEFORE,
    "DeformConv": "use a Conv of the same size, or " + _OUTSIDE,
    "Det": _OUTSIDE,
    "GridSample": "give it static shapes and a grid of float32: it is then legalised",
    "If": "decide while the model is exported, or compute both sides and choose with torch.where",
    "ImageDecoder": _BEFORE,
    "Loop": _TRIPS,
    "MaxRoiPool": "pool regions on the host, or all positions of a static grid",
    "MaxUnpool": "use nearest upsampling and a mask, or ConvTranspose",
    "MelWeightMatrix": _BEFORE,
    "Multinomial": "return the logits, and sample on the host",
    "NonMaxSuppression": "return boxes and scores as outputs of the model, and select on the host",
    "NonZero": _MASK,
    "Optional": "make it a tensor that is always there, as one of zeros with a mask",
    "RandomNormal": _NOISE,
    "RandomNormalLike": _NOISE,
    "RandomUniform": _NOISE,
    "RandomUniformLike": _NOISE,
    "RegexFullMatch": _BEFORE,
    "Resize": "state sizes or scales as constants: it is then legalised; or use ConvTranspose",
    "ReverseSequence": "flip sequences of one static length, or pad on the other side on the host",
    "RoiAlign": "align regions on the host, or all positions of a static grid",
    "STFT": "frames of static length are products with a constant matrix; else " + _BEFORE,
    "Scan": _TRIPS,
    "SequenceAt": _TENSOR,
    "SequenceConstruct": _TENSOR,
    "SequenceEmpty": _TENSOR,
    "SequenceErase": _TENSOR,
    "SequenceInsert": _TENSOR,
    "SequenceLength": _TENSOR,
    "SequenceMap": _TENSOR,
    "SplitToSequence": "split with static sizes (torch.split with numbers, not tensors)",
    "StringConcat": _BEFORE,
    "StringNormalizer": _BEFORE,
    "StringSplit": _BEFORE,
    "TfIdfVectorizer": _BEFORE,
    "TopK": "take the largest by Max or ArgMax where k is 1, or return the scores and choose on the host",
    "Unique": "do this on the host; on the device compare with a constant list of values",
}
"""By operator of ONNX's own domain."""

_CAST: Final = "cast what it reads to int32 before it, and its result back behind it"
_UNSIGNED: Final = "cast it to int32 or int64 where the model reads it"
_PARTS: Final = "keep the real and the imaginary part as two tensors of float32"
_FEW_BITS: Final = "export the model with weights of bfloat16 or float32: without quantisation"

ADVICE_BY_TYPE: Final[dict[str, str]] = {
    "bfloat16": "write float32 in its place (.float(), dtype=torch.float32)",
    "bool": _CAST,
    "complex128": _PARTS,
    "complex64": _PARTS,
    "float16": "write bfloat16 or float32 in its place (.bfloat16(), dtype=torch.bfloat16)",
    "float64": "write float32 in its place (.float(), dtype=torch.float32)",
    "int16": _CAST,
    "int32": "compute it in float32: whole numbers are exact there up to 2 to the 24th",
    "int64": "compute it in int32, or in float32: whole numbers are exact there up to 2 to the 24th",
    "int8": _CAST,
    "string": _BEFORE,
    "uint16": _UNSIGNED,
    "uint32": _UNSIGNED,
    "uint64": _UNSIGNED,
    "uint8": _UNSIGNED,
}
"""By data type that a target refuses; of the others see :data:`ADVICE_BY_REASON`."""

ADVICE_BY_REASON: Final[dict[str, str]] = {
    "attribute": "write it with values that the table has (samba-port targets NAME), or by other operators",
    "control_flow": ADVICE["If"],
    "domain": "export it as operators of ONNX, or state a row for it in a target file of your own (docs/targets.md)",
    "dtype": _FEW_BITS,
    "empty": "leave it out: a tensor without elements has nothing to compute",
    "limit": "write it without what the reason names, or by other operators",
    "operator": _OUTSIDE,
    "rank": "reshape what it reads to fewer dimensions before it, and its result back behind it",
    "static_input": "make the operand a constant: a number of Python in forward, or --constant NAME=VALUE for an input",
    "version": "export the model for the operator set that the reason names",
}
"""By short name of the reason that a node is refused for, where its operator has no advice of its own."""
