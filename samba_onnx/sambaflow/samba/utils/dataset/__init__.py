"""``sambaflow.samba.utils.dataset``: data sets of the vendor's examples."""

from samba_onnx.sambaflow.samba.utils.dataset import mnist

__all__ = ["mnist"]
