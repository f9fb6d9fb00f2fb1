"""What ``tensor.data`` stands for while a module is exported."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import torch
from torch.overrides import TorchFunctionMode

from samba_onnx.errors import ModelError

__all__ = ["DataAsValue"]

_DATA: Final = torch.Tensor.data.__get__  # type: ignore[attr-defined]
_SET_DATA: Final = torch.Tensor.data.__set__  # type: ignore[attr-defined]


class DataAsValue(TorchFunctionMode):
    """Takes ``tensor.data`` for ``tensor.detach()``: torch would take it for a constant.

    To assign it is to write into the tensor, which torch's exporter would not notice.
    """

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        # Equal and not identical: every access to the descriptor makes another wrapper of the same
        # getter.
        if func == _DATA:
            return args[0].detach()
        if func == _SET_DATA:
            return _write(*args)
        return func(*args, **(kwargs or {}))


def _write(tensor: torch.Tensor, values: torch.Tensor) -> None:
    """Write the values that are assigned to the data of a tensor."""
    if (tensor.shape, tensor.dtype) != (values.shape, values.dtype):
        raise ModelError(
            f"data of {values.dtype} of shape {list(values.shape)} are assigned to a tensor of "
            f"{tensor.dtype} of shape {list(tensor.shape)}: a compiled tensor keeps its type and shape"
        )
    # As in torch, where gradients do not see what is done to data.
    with torch.no_grad():
        tensor.detach().copy_(values)
