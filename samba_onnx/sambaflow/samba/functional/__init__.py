"""``sambaflow.samba.functional``: the operators of the RDU."""

from __future__ import annotations

from typing import Any

from samba_onnx import functional
from samba_onnx.functional import sn_fma, sn_gather, sn_reduce, sn_scatter, sn_zipmapreduce
from samba_onnx.sambaflow.samba.functional import (
    arithmetic,
    logical,
    loss,
    reduce,
    stir,
    tensorarithmetic,
    tensorops,
)

__all__ = [
    "arithmetic",
    "logical",
    "loss",
    "reduce",
    "sn_fma",
    "sn_gather",
    "sn_reduce",
    "sn_scatter",
    "sn_zipmapreduce",
    "stir",
    "tensorarithmetic",
    "tensorops",
]


def __getattr__(name: str) -> Any:
    """Return an operator by its name."""
    return getattr(functional, name)


def __dir__() -> list[str]:
    return sorted({*__all__, *dir(functional)})
