"""``torch.nn.parameter`` with SambaParameter."""

from torch.nn.parameter import Parameter

from samba_onnx.tensor import SambaParameter

__all__ = ["Parameter", "SambaParameter"]
