"""``sambaflow.samba.sambatensor``: tensors with a name and a copy on the device."""

from typing import Never

from samba_onnx.sambaflow.symbols import absent
from samba_onnx.tensor import SambaTensor, from_torch_tensor

__all__ = ["SambaTensor", "from_torch_tensor"]


def __getattr__(name: str) -> Never:
    """Say of a name that is not here what to do without it."""
    raise absent("sambaflow.samba.sambatensor", name)
