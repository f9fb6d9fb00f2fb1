"""``sambaflow.frameworks``: modules of the vendor's in other arithmetic, which are not here."""

from samba_onnx.sambaflow.frameworks import quantized

__all__ = ["quantized"]
