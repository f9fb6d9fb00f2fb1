"""``sambaflow.samba.argconf``: settings as pydantic models."""

from samba_onnx.sambaflow.samba.argconf import args

__all__ = ["args"]
