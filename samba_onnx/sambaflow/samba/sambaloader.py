"""``sambaflow.samba.sambaloader``: batches of a DataLoader as named tensors, loaded ahead of time."""

from samba_onnx.sambaloader import DataLoaderException, SambaLoader

__all__ = ["DataLoaderException", "SambaLoader"]
