"""A stand-in for an operator that no target runs, for tests in which a node must fall back.

It has to be one of ONNX's, as the nodes are executed on the host and their types are inferred. Which one it is
no test depends on: a target that learns it makes the next one the stand-in.
"""

from __future__ import annotations

from typing import Final

from samba_onnx.passes.targets import available_targets, load_target

_CANDIDATES: Final = ("Hardmax", "Atan", "Asin", "Acos")
"""Operators of one operand whose result has its shape and floating-point type."""


def unsupported() -> str:
    """Return an operator that falls back on every target."""
    targets = [load_target(name) for name in available_targets()]
    known = {name for name in _CANDIDATES if any(target.knows("", name) for target in targets)}
    left = [name for name in _CANDIDATES if name not in known]
    assert left, f"targets know {', '.join(_CANDIDATES)} by now: add one that they do not know"
    return left[0]


UNSUPPORTED: Final = unsupported()
