"""``sambaflow.samba.optim``: optimizers, whose steps sections of type OPT take."""

from typing import Final

from samba_onnx.optim import SGD, Adam, AdamW
from samba_onnx.sambaflow.symbols import refused

__all__ = ["SGD", "Adam", "AdamW", "SparseAdamW"]

SparseAdamW: Final = refused("sambaflow.samba.optim.SparseAdamW")
