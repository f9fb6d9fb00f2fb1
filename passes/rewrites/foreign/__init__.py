"""How operators of other domains than ONNX's default one are written with operators of that one.

Each file holds the rules of one family; importing this package enters them all.
"""

from __future__ import annotations

from samba_onnx.passes.rewrites.foreign import (
    activation_functions,
    cached_attention,
    convolutions,
    embeddings,
    equivalents,
    features,
    gates,
    integer_products,
    label_encoders,
    linear_models,
    normalizations,
    packed_weights,
    position_biases,
    products,
    quantization,
    quantized_elements,
    quantized_products,
    rotary_embeddings,
    sequence_attention,
    support_vectors,
    tree_ensembles,
)
from samba_onnx.passes.rewrites.foreign.rules import rule_of
from samba_onnx.passes.rewrites.foreign.whole import reason_of

__all__ = [
    "activation_functions",
    "cached_attention",
    "convolutions",
    "embeddings",
    "equivalents",
    "features",
    "gates",
    "integer_products",
    "label_encoders",
    "linear_models",
    "normalizations",
    "packed_weights",
    "position_biases",
    "products",
    "quantization",
    "quantized_elements",
    "quantized_products",
    "reason_of",
    "rotary_embeddings",
    "rule_of",
    "sequence_attention",
    "support_vectors",
    "tree_ensembles",
]
