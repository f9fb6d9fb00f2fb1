"""``sambaflow.samba.functional.logical``: comparisons, and operators on truth values and bits."""

from samba_onnx.sambaflow.operator_parts import operators_of

__all__, __getattr__ = operators_of("logical")
