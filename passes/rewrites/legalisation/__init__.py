"""How operators that a target lacks are written with operators that it has, where that makes a run shorter.

Each file holds the rules of one family; importing this package enters them all.
"""

from __future__ import annotations

from samba_onnx.passes.rewrites.legalisation import (
    einsum,
    functions,
    masks,
    narrowing,
    pads,
    places,
    quotients,
    ranking,
    recurrent_layers,
    resized_values,
    reversal,
    sampled_elements,
    signal_convolutions,
    unrolling,
)
from samba_onnx.passes.rewrites.legalisation.rules import Rule, all_rules

__all__ = [
    "Rule",
    "all_rules",
    "einsum",
    "functions",
    "masks",
    "narrowing",
    "pads",
    "places",
    "quotients",
    "ranking",
    "recurrent_layers",
    "resized_values",
    "reversal",
    "sampled_elements",
    "signal_convolutions",
    "unrolling",
]
