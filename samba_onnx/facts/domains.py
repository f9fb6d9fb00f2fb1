"""Operator domains, and how an operator's name is written with its domain."""

from __future__ import annotations

from typing import Final

__all__ = [
    "ALL_GATHER",
    "ALL_REDUCE",
    "BLOCKED_DOMAIN",
    "CHANNELS_LAST_DOMAIN",
    "DEFAULT_DOMAINS",
    "DROPOUT_MASK",
    "EARLY_OPERATORS",
    "MISDEFINED_OPERATORS",
    "ML_DOMAIN",
    "ONNXRUNTIME_DOMAIN",
    "ONNXRUNTIME_DOMAINS",
    "ONNX_DOMAINS",
    "SAMBA_DOMAIN",
    "STOCHASTIC_ROUND",
    "is_custom",
    "is_default",
    "normal_domain",
    "qualified",
    "split_name",
]

DEFAULT_DOMAINS: Final = frozenset({"", "ai.onnx"})
"""The two spellings of the default operator domain."""
ML_DOMAIN: Final = "ai.onnx.ml"
"""ONNX's domain for what is not made of tensors only: features, linear models, trees."""
ONNX_DOMAINS: Final = DEFAULT_DOMAINS | {ML_DOMAIN, "ai.onnx.preview.training"}
"""Domains whose operators onnx itself defines and infers."""
ONNXRUNTIME_DOMAIN: Final = "com.microsoft"
"""Domain of the operators that onnxruntime's optimizer writes into models."""
BLOCKED_DOMAIN: Final = f"{ONNXRUNTIME_DOMAIN}.nchwc"
"""Domain of onnxruntime's operators for channels that lie in blocks."""
CHANNELS_LAST_DOMAIN: Final = "com.ms.internal.nhwc"
"""Domain of ONNX's operators with channels last in data, as onnxruntime writes them for other processors."""
ONNXRUNTIME_DOMAINS: Final = frozenset(
    {
        ONNXRUNTIME_DOMAIN,
        BLOCKED_DOMAIN,
        CHANNELS_LAST_DOMAIN,
        f"{ONNXRUNTIME_DOMAIN}.experimental",
    }
)
"""Domains whose operators onnxruntime brings along."""
EARLY_OPERATORS: Final = frozenset(
    {"LayerNormalization", "SimplifiedLayerNormalization", "ThresholdedRelu"}
)
"""Operators of the default domain that onnxruntime has in every version, and onnx from some version on or never;
onnxruntime's optimizers, and Keras' first exporters, write them into models of any version."""
MISDEFINED_OPERATORS: Final = frozenset({"GroupNormalization"})
"""Operators that onnx marks as deprecated in versions at which it defined them unhappily, and which
onnxruntime runs as they were defined."""
SAMBA_DOMAIN: Final = "samba"
"""Domain of the operators that ONNX lacks and the RDU has."""
ALL_REDUCE: Final = "AllReduce"
"""Operator of the domain ``samba``: ``(summand: T[shape]) -> sum: T[shape]`` over all RDUs."""
ALL_GATHER: Final = "AllGather"
"""Operator of the domain ``samba``: ``(shard: T[...]) -> whole: T[shape]`` of all RDUs."""
DROPOUT_MASK: Final = "DropoutMask"
"""Operator of the domain ``samba``: ``(rate: float[], seed: int32[]) -> mask: bool[shape]`` with the
attributes ``shape`` and ``stream``. True where a dropout keeps a value."""
STOCHASTIC_ROUND: Final = "StochasticRound"
"""Operator of the domain ``samba``: ``(value: float[shape], seed: int32[]) -> bfloat16[shape]`` with the
attribute ``stream``. One of the two neighbours of each number, at random, so that their mean is the number."""


def is_custom(domain: str) -> bool:
    """Return whether a domain is neither ONNX's, nor onnxruntime's, nor of this product.

    Args:
        domain: As a node or an operator set import spells it.
    """
    return domain not in ONNX_DOMAINS | ONNXRUNTIME_DOMAINS | {SAMBA_DOMAIN}


def is_default(domain: str) -> bool:
    """Return whether a domain is ONNX's default one.

    Args:
        domain: As a node or an operator set import spells it.
    """
    return domain in DEFAULT_DOMAINS


# Models spell the default domain in both ways, sometimes within one graph; tables have one of them.
def normal_domain(domain: str) -> str:
    """Return a domain with the default domain spelled as the empty string.

    Args:
        domain: As a node or an operator set import spells it.
    """
    return "" if domain in DEFAULT_DOMAINS else domain


def qualified(domain: str, op_type: str) -> str:
    """Return the name of an operator as tables and reports write it.

    Args:
        domain: Its domain, in either spelling of the default one.
        op_type: The operator.

    Returns:
        ``Relu`` in the default domain, ``com.example::Relu`` in another.
    """
    return op_type if domain in DEFAULT_DOMAINS else f"{domain}::{op_type}"


def split_name(name: str) -> tuple[str, str]:
    """Return domain and operator of a name as :func:`qualified` writes it.

    Args:
        name: ``Operator`` or ``domain::Operator``.

    Returns:
        The domain, the default one as the empty string; and the operator.
    """
    # From the right, so that a domain which contains colons itself stays whole.
    domain, _, op_type = name.rpartition("::")
    return normal_domain(domain), op_type
