"""Models come in here: an ONNX file or ``ModelProto`` goes in, a checked ``onnx_ir.Model`` comes out.

Weights are never read: those inside the file and those beside it are mapped, and stay where they
are until someone asks for their content.
"""

from samba_onnx.loading.fixed_inputs import FixedInputs, fix_inputs
from samba_onnx.loading.model import LoadedModel, load_model
from samba_onnx.loading.programs import onnx_program

__all__ = ["FixedInputs", "LoadedModel", "fix_inputs", "load_model", "onnx_program"]
