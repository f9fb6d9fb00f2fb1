"""``sambaflow.samba.profiler``: how long the steps of a program take on the host."""

from samba_onnx.sessions import Profiler

__all__ = ["Profiler"]
