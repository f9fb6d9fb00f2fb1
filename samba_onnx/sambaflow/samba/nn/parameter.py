"""``sambaflow.samba.nn.parameter``: ``torch.nn.parameter`` with SambaParameter."""

from samba_onnx.nn.parameter import Parameter, SambaParameter

__all__ = ["Parameter", "SambaParameter"]
