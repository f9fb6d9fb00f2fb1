"""``sambaflow.frameworks.quantized``: quantized modules, which are not here."""

from samba_onnx.sambaflow.frameworks.quantized import quantized_linear

__all__ = ["quantized_linear"]
