"""``sambaflow.samba.optim``: optimizers, whose steps sections of type OPT take."""

from typing import Never

from samba_onnx.optim import SGD, Adam, AdamW
from samba_onnx.sambaflow.symbols import absent

__all__ = ["SGD", "Adam", "AdamW"]


def __getattr__(name: str) -> Never:
    """Say of a name that is not here what to do without it."""
    raise absent("sambaflow.samba.optim", name)
