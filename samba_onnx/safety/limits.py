"""How much a model may ask for: far above every real model, far below what harms the machine."""

from __future__ import annotations

from dataclasses import dataclass

import onnx

__all__ = ["DEFAULT_LIMITS", "Limits"]


@dataclass(frozen=True)
class Limits:
    """Bounds that a model must keep before native code sees it."""

    oldest_ir_version: int = 3
    """The first version whose models state the operator sets that they use."""
    newest_ir_version: int = int(onnx.IR_VERSION)
    oldest_opset: int = 1
    rank: int = 64
    """Dimensions of one tensor; numpy knows no more."""
    tensor_bytes: int = 1 << 40
    """Declared size of one tensor."""
    computed_elements: int = 1 << 32
    """Elements of a tensor whose size a constant operand states (a range, an expansion)."""
    nesting: int = 24
    """Subgraphs inside subgraphs."""
    type_nesting: int = 16
    """Sequences and optionals inside each other."""
    call_depth: int = 64
    """Model-local functions that call each other."""
    expanded_nodes: int = 200_000
    """Nodes after all functions are inlined, unless the file itself holds a quarter as many."""


DEFAULT_LIMITS = Limits()
"""The limits that apply unless a caller states others."""
