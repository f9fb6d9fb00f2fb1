"""``sambaflow.samba.utils.trainer``: training loops, which programs import and do not call."""

from samba_onnx.sambaflow.samba.utils.trainer import samba, torch

__all__ = ["samba", "torch"]
