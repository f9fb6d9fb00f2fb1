"""The element types of the RDU, by the names that SambaFlow gives them."""

from __future__ import annotations

import enum

import torch


class SNType(enum.Enum):
    """An element type of the RDU."""

    BF16 = "bfloat16"
    FP32 = "float32"
    INT8 = "int8"
    UINT8 = "uint8"
    INT16 = "int16"
    UINT16 = "uint16"
    INT32 = "int32"
    INT64 = "int64"
    BOOL = "bool"

    @staticmethod
    def to_torch_reference_type(sn_type: SNType | torch.dtype) -> torch.dtype:
        """The torch dtype that computes what this type computes on the host.

        Args:
            sn_type: An element type of the RDU; a torch dtype is returned as it is.

        Returns:
            The dtype of the same name, but ``int32`` for ``UINT16``: torch has no arithmetic on
            unsigned 16-bit integers.
        """
        if isinstance(sn_type, torch.dtype):
            return sn_type
        # The next wider type that torch computes with holds all of its numbers.
        if sn_type is SNType.UINT16:
            return torch.int32
        dtype: torch.dtype = getattr(torch, sn_type.value)
        return dtype
