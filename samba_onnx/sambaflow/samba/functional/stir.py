"""``sambaflow.samba.functional.stir``: what functions for ``sn_zipmapreduce`` are written with."""

from samba_onnx.functional import (
    sn_fma,
    sn_gather,
    sn_imm,
    sn_iteridx,
    sn_multinomial,
    sn_reduce,
    sn_scatter,
    sn_select,
    sn_zipmapreduce,
)

__all__ = [
    "sn_fma",
    "sn_gather",
    "sn_imm",
    "sn_iteridx",
    "sn_multinomial",
    "sn_reduce",
    "sn_scatter",
    "sn_select",
    "sn_zipmapreduce",
]
