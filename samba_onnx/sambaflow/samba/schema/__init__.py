"""``sambaflow.samba.schema``: what arguments may be."""

from samba_onnx.sambaflow.samba.schema import snconfig

__all__ = ["snconfig"]
