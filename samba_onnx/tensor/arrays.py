"""Between torch tensors and the arrays that the device takes and gives, without copies."""

from __future__ import annotations

from typing import Any, Final

import ml_dtypes
import numpy as np
import numpy.typing as npt
import torch

from samba_onnx.errors import UsageError
from samba_onnx.tensor import SambaTensor
from samba_onnx.tensor.native import natively

FOREIGN: Final[dict[torch.dtype, tuple[torch.dtype, np.dtype[Any]]]] = {
    torch.bfloat16: (torch.int16, np.dtype(ml_dtypes.bfloat16)),
    torch.float8_e4m3fn: (torch.uint8, np.dtype(ml_dtypes.float8_e4m3fn)),
    torch.float8_e5m2: (torch.uint8, np.dtype(ml_dtypes.float8_e5m2)),
}
"""Types that numpy lacks: torch's type of the same width that numpy has, and numpy's extension."""

_TORCH_TYPES: Final[dict[np.dtype[Any], torch.dtype]] = {
    foreign: dtype for dtype, (_, foreign) in FOREIGN.items()
}


def to_array(tensor: torch.Tensor) -> npt.NDArray[Any]:
    """Return a tensor's values as an array that shares its memory.

    Args:
        tensor: Any dense tensor on the host; an empty SambaTensor is materialised for the purpose.

    Returns:
        An array of the same shape, of the device's dtype for the tensor's.

    Raises:
        UsageError: The tensor has neither data nor materializer, or is not on the host.
    """
    if isinstance(tensor, SambaTensor) and not tensor.has_data:
        tensor = tensor.torch_tensor()
    with natively():
        # numpy() refuses a tensor that requires gradients.
        if tensor.requires_grad:
            tensor = tensor.detach()
        if tensor.dtype in FOREIGN:
            native, foreign = FOREIGN[tensor.dtype]
            # torch hands numpy no type that numpy lacks: the bytes go over as integers of the
            # same width, and are given their type there.
            array: npt.NDArray[Any] = tensor.contiguous().view(native).numpy().view(foreign)
            return array
        try:
            # A conjugated or negated view is the same memory with a flag, which numpy has not.
            return tensor.resolve_conj().resolve_neg().numpy()
        except (RuntimeError, TypeError) as error:
            raise UsageError(
                f"a tensor of {tensor.dtype} on {tensor.device} cannot be given to the device: "
                f"{error}"
            ) from None


def compiled_array(array: npt.NDArray[Any], dtype: np.dtype[Any]) -> npt.NDArray[Any]:
    """Return values of float32 or float16 in bfloat16 where a program was compiled so; others as they are.

    Args:
        array: Values of a weight.
        dtype: The compiled type.

    Returns:
        An array of the same shape, rounded to nearest even.
    """
    if array.dtype not in (np.float32, np.float16) or dtype != ml_dtypes.bfloat16:
        return array
    with natively():
        return to_array(torch.from_numpy(array).to(torch.bfloat16))


def from_array(array: npt.NDArray[Any]) -> torch.Tensor:
    """Return an array as a plain tensor that shares its memory.

    Args:
        array: Values of one of the dtypes that torch has.

    Returns:
        A tensor of the same shape.
    """
    foreign = _TORCH_TYPES.get(array.dtype)
    if foreign is None:
        return torch.from_numpy(array)
    native, _ = FOREIGN[foreign]
    items = np.dtype(np.int16 if native is torch.int16 else np.uint8)
    return torch.from_numpy(array.view(items)).view(foreign)


def torch_dtype(array_dtype: np.dtype[Any]) -> torch.dtype:
    """Return torch's type for an array's.

    Args:
        array_dtype: Any dtype that the device has.

    Raises:
        TypeError: torch has no such type; from torch.
    """
    return from_array(np.empty(0, array_dtype)).dtype
