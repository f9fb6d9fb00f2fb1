"""``sambaflow.samba.graph``: graphs that are compiled together, by ``session.add_graph``."""

from samba_onnx.graph import FwdGraph, SambaGraph

__all__ = ["FwdGraph", "SambaGraph"]
