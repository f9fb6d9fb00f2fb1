"""``sambaflow.models``: models that SambaFlow ships, which are not here."""

from samba_onnx.sambaflow.models import unet

__all__ = ["unet"]
