"""``torch.nn`` by SambaFlow's name: modules are torch's own, ``nn.parameter`` has SambaParameter."""

from __future__ import annotations

from typing import Any

from torch import nn

from samba_onnx.nn import parameter

__all__ = ["parameter"]


def __getattr__(name: str) -> Any:
    """Return what ``torch.nn`` has under a name."""
    try:
        return getattr(nn, name)
    except AttributeError:
        raise AttributeError(f"module 'samba_onnx.nn' has no attribute {name!r}") from None


def __dir__() -> list[str]:
    return sorted({*__all__, *dir(nn)})
