"""``sambaflow.samba.functional.loss``: losses."""

from samba_onnx.sambaflow.operator_parts import operators_of

__all__, __getattr__ = operators_of("loss")
