"""``sambaflow.samba.functional.stir``: what functions for ``sn_zipmapreduce`` are written with."""

from samba_onnx.functional import (
    sn_fma,
    sn_imm,
    sn_iteridx,
    sn_reduce,
    sn_select,
    sn_zipmapreduce,
)

__all__ = ["sn_fma", "sn_imm", "sn_iteridx", "sn_reduce", "sn_select", "sn_zipmapreduce"]
