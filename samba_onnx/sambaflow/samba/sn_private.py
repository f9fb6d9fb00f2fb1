"""``sambaflow.samba.sn_private``: functions that published programs import from here."""

from samba_onnx.functional import sn_gather, sn_multinomial, sn_scatter

__all__ = ["sn_gather", "sn_multinomial", "sn_scatter"]
