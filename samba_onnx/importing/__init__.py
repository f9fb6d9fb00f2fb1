"""ONNX models as modules of torch's, to be trained like any other, and written back."""

from samba_onnx.importing import operators as _operators  # fills the table
from samba_onnx.importing.model_losses import Loss, LossKind
from samba_onnx.importing.module import OnnxModule, module_from_onnx
from samba_onnx.importing.writing import to_onnx

__all__ = ["Loss", "LossKind", "OnnxModule", "module_from_onnx", "to_onnx"]

# The import was for its effect alone; without this line the room would show a second `operators`.
del _operators
