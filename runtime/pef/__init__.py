"""The bundle format: one page-aligned zip file that holds a compiled model (``docs/pef.md``)."""

from samba_onnx.runtime.pef.layout import stage_member
from samba_onnx.runtime.pef.log import render_log, write_log
from samba_onnx.runtime.pef.reader import Pef, load_pef
from samba_onnx.runtime.pef.reference import can_be_sample, encode_reference
from samba_onnx.runtime.pef.sources import FileRegion
from samba_onnx.runtime.pef.weights import WeightEntry, WeightsLayout, lay_out_weights
from samba_onnx.runtime.pef.writer import write_pef

__all__ = [
    "FileRegion",
    "Pef",
    "WeightEntry",
    "WeightsLayout",
    "can_be_sample",
    "encode_reference",
    "lay_out_weights",
    "load_pef",
    "render_log",
    "stage_member",
    "write_log",
    "write_pef",
]
