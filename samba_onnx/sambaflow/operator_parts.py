"""The modules of ``sambaflow.samba.functional`` that have the operators of one part each."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from samba_onnx import functional
from samba_onnx.operator_names import TORCH_OPERATORS


def operators_of(part: str) -> tuple[list[str], Callable[[str], Any]]:
    """Return what makes a module have the operators of a part: ``__all__`` and ``__getattr__``.

    Args:
        part: Name of the part, as ``samba_onnx.operator_names`` has it, and of the module.
    """
    names = sorted(TORCH_OPERATORS[part])

    # Looked up by name when asked for, as SambaFlow's functions are torch's own where torch has them.
    def get(name: str) -> Any:
        if name in names:
            return getattr(functional, name)
        raise AttributeError(
            f"module 'sambaflow.samba.functional.{part}' has no attribute {name!r}"
        )

    return names, get
