"""``sambaflow.samba.functional.arithmetic``: operators that work on one element at a time."""

from samba_onnx.sambaflow.operator_parts import operators_of

__all__, __getattr__ = operators_of("arithmetic")
