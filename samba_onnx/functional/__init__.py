"""The operators that a SambaTensor dispatches to.

A torch function or method that is given a SambaTensor is found in one table and returns
SambaTensors; on plain tensors torch itself is called. ``functional.add`` and its like therefore
*are* torch's functions. SambaFlow's own functions, such as ``sn_gather``, follow the same rule.
An operator that the table does not have is computed on the host, with one warning per operator;
``HOST_OPERATORS`` counts its calls.
"""

from __future__ import annotations

from typing import Any

import torch

from samba_onnx.functional.host_keywords import device_limits
from samba_onnx.functional.host_operators import HOST_OPERATORS, HostOperator, HostOperators
from samba_onnx.functional.lambdas import sn_fma, sn_imm, sn_iteridx, sn_select, sn_zipmapreduce
from samba_onnx.functional.patterns import sn_gather, sn_multinomial, sn_reduce, sn_scatter
from samba_onnx.functional.sn_types import SNType
from samba_onnx.functional.table import TABLE, FunctionKind, FunctionRow
from samba_onnx.functional.tensorarithmetic import addmm, triu_fill
from samba_onnx.operator_names import FUNCTIONAL

__all__ = [
    "HOST_OPERATORS",
    "TABLE",
    "FunctionKind",
    "FunctionRow",
    "HostOperator",
    "HostOperators",
    "SNType",
    "addmm",
    "device_limits",
    "sn_fma",
    "sn_gather",
    "sn_imm",
    "sn_iteridx",
    "sn_multinomial",
    "sn_reduce",
    "sn_scatter",
    "sn_select",
    "sn_zipmapreduce",
    "triu_fill",
]

# SambaFlow's takes a left factor of more than two dimensions, which torch's refuses.
TABLE.implement("addmm", addmm)


def __getattr__(name: str) -> Any:
    """Return the torch function, or else the method of torch.Tensor, of an operator's name."""
    if name in FUNCTIONAL:
        for home in (torch.nn.functional, torch, torch.Tensor):
            if hasattr(home, name):
                return getattr(home, name)
    raise AttributeError(f"module 'samba_onnx.functional' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*__all__, *FUNCTIONAL})
