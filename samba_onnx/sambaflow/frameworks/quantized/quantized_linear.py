"""``sambaflow.frameworks.quantized.quantized_linear``: imported by programs that run without it, too."""

from typing import Final

from samba_onnx.sambaflow.symbols import refused

__all__ = ["QuantizedLinear"]

QuantizedLinear: Final = refused("sambaflow.frameworks.quantized.quantized_linear.QuantizedLinear")
