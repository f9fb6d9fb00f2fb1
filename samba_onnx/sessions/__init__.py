"""What programs talk to: the session, which compiles models and runs them."""

from samba_onnx.sessions.dynamic_dims import DimInfo
from samba_onnx.sessions.onnx_modules import from_onnx
from samba_onnx.sessions.ordered_set import OrderedSet
from samba_onnx.sessions.profiler import Profiler
from samba_onnx.sessions.session import SESSION, SambaSession
from samba_onnx.sessions.transfers import Transfers

__all__ = ["SESSION", "DimInfo", "OrderedSet", "Profiler", "SambaSession", "Transfers", "from_onnx"]
