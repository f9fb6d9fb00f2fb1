"""``sambaflow.sambacollections``: a set that keeps its order.

Tensors are members by identity: two with equal values are two members.
"""

from samba_onnx.sessions import OrderedSet

__all__ = ["OrderedSet"]
