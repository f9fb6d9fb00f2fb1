"""``sambaflow.samba.optim``: optimizers, whose steps sections of type OPT take."""

from samba_onnx.optim import SGD, Adam, AdamW

__all__ = ["SGD", "Adam", "AdamW"]
