"""SambaTensor, what makes them, and their copies on the device."""

from samba_onnx.tensor.conversion import (
    from_named_dict,
    from_torch,
    from_torch_tensor,
    from_torch_tensor_,
    to_torch,
)
from samba_onnx.tensor.device import DEVICE, FAST_ACCESS, DeviceConnection, DeviceStore
from samba_onnx.tensor.factories import (
    arange,
    empty,
    empty_like,
    full,
    full_like,
    ones,
    ones_like,
    rand,
    rand_like,
    randint,
    randn,
    randn_like,
    set_seed,
    zeros,
    zeros_like,
)
from samba_onnx.tensor.host_side import Materializer
from samba_onnx.tensor.modules import BUFFERS, from_torch_model_
from samba_onnx.tensor.parameter import SambaParameter
from samba_onnx.tensor.samba_tensor import SambaTensor

__all__ = [
    "BUFFERS",
    "DEVICE",
    "FAST_ACCESS",
    "DeviceConnection",
    "DeviceStore",
    "Materializer",
    "SambaParameter",
    "SambaTensor",
    "arange",
    "empty",
    "empty_like",
    "from_named_dict",
    "from_torch",
    "from_torch_model_",
    "from_torch_tensor",
    "from_torch_tensor_",
    "full",
    "full_like",
    "ones",
    "ones_like",
    "rand",
    "rand_like",
    "randint",
    "randn",
    "randn_like",
    "set_seed",
    "to_torch",
    "zeros",
    "zeros_like",
]
