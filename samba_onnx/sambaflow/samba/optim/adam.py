"""``sambaflow.samba.optim.adam``: where the documentation places AdamW."""

from samba_onnx.optim import Adam, AdamW

__all__ = ["Adam", "AdamW"]
