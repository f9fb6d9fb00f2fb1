"""``sambaflow.samba.sambatensor``: tensors with a name and a copy on the device."""

from samba_onnx.sessions import DimInfo
from samba_onnx.tensor import SambaTensor, from_torch_tensor

__all__ = ["DimInfo", "SambaTensor", "from_torch_tensor"]
