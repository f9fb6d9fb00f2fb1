"""``sambaflow.samba.functional.tensorarithmetic``: products of matrices and vectors."""

from samba_onnx.sambaflow.operator_parts import operators_of

__all__, __getattr__ = operators_of("tensorarithmetic")
