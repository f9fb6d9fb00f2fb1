"""``sambaflow.models.unet``: a model that SambaFlow ships, and that is not here."""

from typing import Final

from samba_onnx.sambaflow.symbols import refused

__all__ = ["UNet"]

UNet: Final = refused("sambaflow.models.unet.UNet")
