"""SambaParameter: a SambaTensor that modules and optimizers take for a parameter."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Self

from torch import Tensor, nn

from samba_onnx.tensor.host_side import Materializer
from samba_onnx.tensor.samba_tensor import DType, SambaTensor


class SambaParameter(SambaTensor, nn.Parameter):
    """A parameter of a module, on the host and on the device.

    Like ``torch.nn.Parameter`` it is a leaf of its own in the memory of the tensor that it wraps.
    It pickles as a torch parameter.
    """

    _repr_name = "SambaParameter"

    def __new__(
        cls,
        torch_tensor: Tensor | None = None,
        requires_grad: bool = True,
        shape: Iterable[int] | None = None,
        dtype: DType | None = None,
        name: str | None = None,
        materializer: Materializer | None = None,
        region_name: str | None = None,
    ) -> Self:
        """Wrap a tensor, or make an empty parameter.

        Args:
            torch_tensor: The tensor to wrap, of any shape and dtype.
            requires_grad: Whether gradients are computed for it.
            shape: Shape of an empty parameter.
            dtype: DType of an empty parameter; torch's default when None.
            name: Name, unique among the tensors on the device.
            materializer: A function that makes the values of an empty parameter when they are
                needed; ``SambaTensor`` says what it is called with.
            region_name: Name of the place in device memory; the parameter's name when None.

        Raises:
            UsageError: Not exactly one of ``torch_tensor`` and ``shape`` is given, ``dtype`` is
                given with a tensor, or ``torch_tensor`` is no tensor.
            RuntimeError: Gradients are required of integers; from torch.
        """
        # Without its history: what a parameter was made of gets no gradients through it.
        detached = torch_tensor.detach() if isinstance(torch_tensor, Tensor) else torch_tensor
        parameter = super().__new__(
            cls,
            detached,
            shape=shape,
            dtype=dtype,
            name=name,
            materializer=materializer,
            region_name=region_name,
        )
        # Like torch's, a parameter is the leaf itself: gradients stay with it.
        parameter._host.source = None
        parameter.requires_grad = requires_grad
        return parameter

    def _saved(self) -> Tensor:
        return nn.Parameter(super()._saved().detach(), self.requires_grad)
