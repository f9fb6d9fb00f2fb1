"""``sambaflow.samba.optim``: optimizers, whose steps sections of type OPT take."""

from typing import Final

from samba_onnx.optim import SGD
from samba_onnx.sambaflow.samba.optim import adam
from samba_onnx.sambaflow.samba.optim.adam import Adam, AdamW
from samba_onnx.sambaflow.symbols import refused

__all__ = ["SGD", "Adagrad", "Adam", "AdamW", "SparseAdamW", "adam"]

Adagrad: Final = refused("sambaflow.samba.optim.Adagrad")
SparseAdamW: Final = refused("sambaflow.samba.optim.SparseAdamW")
