"""torch's data types by ONNX's numbers, from the one table of element types."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

import onnx_ir as ir
import torch

from samba_onnx.facts.dtypes import ELEMENT_TYPES

TORCH_TYPES: Final[Mapping[int, torch.dtype]] = MappingProxyType(
    {
        element.number: getattr(torch, element.dtype_name)
        for element in ELEMENT_TYPES.values()
        if element.torch_computes
    }
)
"""Types on which torch has operators, by their value in ``TensorProto.DataType``."""

FLOATING: Final = frozenset(
    ir.DataType(element.number)
    for element in ELEMENT_TYPES.values()
    if element.torch_computes and element.floating
)
"""Types whose tensors torch differentiates, so that they can be weights."""
