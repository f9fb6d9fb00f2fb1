"""SambaTensors as values of Python: how they are copied, pickled and shown.

Each function is a special method; its first argument is the tensor, and ``SambaTensor`` lists it.
"""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any, TypeVar

import torch
from torch import Tensor

from samba_onnx.safety.notebook import notebook_table
from samba_onnx.tensor import native
from samba_onnx.tensor.host_side import HostSide

if TYPE_CHECKING:
    from samba_onnx.tensor.samba_tensor import SambaTensor

AnySambaTensor = TypeVar("AnySambaTensor", bound="SambaTensor")


def like(self: AnySambaTensor, data: Tensor) -> AnySambaTensor:
    """A leaf with result memory and all that a tensor carries besides values and gradient.

    Args:
        self: The tensor.
        data: The tensor whose memory the result shares; a placeholder when ``self`` is empty.
    """
    result = native.wrap(type(self), data, self.requires_grad)
    result._marks = self._marks
    vars(result)["_host"] = HostSide(None, self._host.materializer, self._host.is_empty)
    return result


def shallow_copy(self: AnySambaTensor) -> AnySambaTensor:
    """A tensor in the same memory that carries what this one carries.

    Args:
        self: The tensor; when it is the result of a calculation, the copy is one as well, without
            name and hints.
    """
    if self.is_leaf:
        return self._like(self.data)
    return native.plain(self).as_subclass(type(self))


def deep_copy(self: AnySambaTensor, memo: dict[int, Any]) -> AnySambaTensor:
    """A tensor in memory of its own that carries what this one carries, gradient included.

    Args:
        self: The tensor, a leaf.
        memo: Copies that were made already, by the identity of the original.

    Raises:
        RuntimeError: The tensor is the result of a calculation; torch refuses that, too.
    """
    if id(self) in memo:
        earlier: AnySambaTensor = memo[id(self)]
        return earlier
    if not self.is_leaf:
        raise RuntimeError(
            "only tensors that are leaves of the graph can be copied deeply: detach() first"
        )
    if self.has_data:
        # Through a plain tensor: torch keeps memory that tensors share shared in the copy.
        twin = self._like(copy.deepcopy(self.data, memo))
    else:
        twin = self._like(native.placeholder(tuple(self.shape), self.dtype))
    if self.grad is not None:
        twin.grad = copy.deepcopy(self.grad, memo)
    # Torch's deepcopy of a module asks here again for a parameter that is tied.
    memo[id(self)] = twin
    return twin


def reduce(self: SambaTensor, protocol: Any) -> Any:
    """Pickle as a plain tensor, so that ``torch.load`` needs to know nothing of this package.

    Args:
        self: The tensor; values that were not made yet are made for the purpose.
        protocol: The protocol of the pickle.

    Raises:
        UsageError: The tensor has no data and no materializer.
    """
    return self._saved().__reduce_ex__(protocol)  # type: ignore[no-untyped-call]


def saved(self: SambaTensor) -> Tensor:
    """The plain tensor that is pickled in a SambaTensor's place.

    What only stands for an output of a traced graph is a tensor on the meta device: a traced module
    has them in ``output_tensors``, and ``torch.save(model)`` keeps all that a module has.

    Args:
        self: The SambaTensor.

    Raises:
        UsageError: It has no data and no materializer.
    """
    if self._marks.stands_for_output and not self.has_data:
        return torch.empty(tuple(self.shape), dtype=self.dtype, device="meta")
    tensor = self.torch_tensor()
    with native.natively():
        return tensor.detach().requires_grad_(self.requires_grad)


def formatted(self: SambaTensor, format_spec: str) -> str:
    """A number for a tensor without dimensions, as torch formats it; else the repr.

    Args:
        self: The tensor.
        format_spec: The format, as it stands after the colon in an f-string.
    """
    if self.dim() or not self.has_data:
        return object.__format__(self, format_spec)
    return format(native.plain(self), format_spec)


def described(self: SambaTensor, *, tensor_contents: Any = None) -> str:
    """Values, name, shape, dtype and hints.

    Args:
        self: The tensor.
        tensor_contents: A text to show instead of the values; None shows the values.
    """
    plain: Any = native.plain(self)
    values = f"{plain.__repr__(tensor_contents=tensor_contents)}\n" if self.has_data else ""
    return (
        f"{values}samba.{self._repr_name}(name: {self.name}, shape: {self.shape}, "
        f"dtype: {self.dtype}, batch_dim: {self.batch_dim}, named_dims: {self.named_dims}, "
        f"keep_data: {self.has_data}, materializer_provided: {self.materializer_provided})"
    )


def table(self: SambaTensor) -> str:
    """What a notebook shows: the repr's parts as a table.

    Args:
        self: The tensor.
    """
    parts = {
        "shape": tuple(self.shape),
        "dtype": self.dtype,
        "batch_dim": self.batch_dim,
        "named_dims": self.named_dims,
        "values": native.plain(self) if self.has_data else "none on this side",
    }
    return notebook_table(f"{self._repr_name} {self.name}", parts.items())
