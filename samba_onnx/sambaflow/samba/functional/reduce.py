"""``sambaflow.samba.functional.reduce``: operators that take one number out of many."""

from samba_onnx.sambaflow.operator_parts import operators_of

__all__, __getattr__ = operators_of("reduce")
