"""``sambaflow.samba.nn``: torch's modules, which are traced as they are."""

from __future__ import annotations

from typing import Any

from samba_onnx import nn
from samba_onnx.sambaflow.samba.nn import parameter

__all__ = ["parameter"]


def __getattr__(name: str) -> Any:
    """Return what ``torch.nn`` has under a name."""
    return getattr(nn, name)


def __dir__() -> list[str]:
    return dir(nn)
