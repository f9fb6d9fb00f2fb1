"""The bundle format: one page-aligned zip file that holds a compiled model (``docs/pef.md``).

Names are loaded on first use: whoever needs only the records in ``manifest`` pays for nothing else.
"""

import importlib
from typing import TYPE_CHECKING, Any

# For type checkers only: at run time `__getattr__` imports what is asked for, and looking into a
# PEF loads neither numpy nor onnx.
if TYPE_CHECKING:
    from samba_onnx.pef.layout import stage_member
    from samba_onnx.pef.log import render_log, write_log
    from samba_onnx.pef.reader import Pef, load_pef
    from samba_onnx.pef.reference import can_be_sample, encode_reference
    from samba_onnx.pef.sources import FileRegion
    from samba_onnx.pef.weights import WeightEntry, WeightsLayout, lay_out_weights
    from samba_onnx.pef.writer import write_pef

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

_MODULES = {
    "FileRegion": "sources",
    "Pef": "reader",
    "WeightEntry": "weights",
    "WeightsLayout": "weights",
    "can_be_sample": "reference",
    "encode_reference": "reference",
    "lay_out_weights": "weights",
    "load_pef": "reader",
    "render_log": "log",
    "stage_member": "layout",
    "write_log": "log",
    "write_pef": "writer",
}


def __getattr__(name: str) -> Any:
    """Import the module that defines ``name``."""
    if name not in _MODULES:
        # AttributeError and not ImportError, which is what `hasattr` and `from ... import` expect
        # here.
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_MODULES[name]}"), name)
