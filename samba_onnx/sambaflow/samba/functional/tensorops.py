"""``sambaflow.samba.functional.tensorops``: operators that move elements and do not compute."""

from samba_onnx.sambaflow.operator_parts import operators_of

__all__, __getattr__ = operators_of("tensorops")
