"""Port PyTorch and ONNX models to SambaNova's RDU.

Convert a model, see what falls back to the CPU and why, package the result as a PEF, and run it on
an emulator that accounts for every byte between host and RDU::

    import samba_onnx

    pef = samba_onnx.convert("model.onnx", "model.pef")
    with samba_onnx.Device(pef) as device:
        outputs = device.run({"x": x})
        print(device.ledger.totals())

Importing this package costs next to nothing: each name below loads its module on first use.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

from samba_onnx.version import __version__

if TYPE_CHECKING:
    from samba_onnx.compiler import analyze, convert
    from samba_onnx.errors import SambaError
    from samba_onnx.passes.targets import available_targets, load_target
    from samba_onnx.report import Report
    from samba_onnx.runtime.device import Device
    from samba_onnx.runtime.pef import Pef, load_pef
    from samba_onnx.verification import self_test, verify

__all__ = [
    "Device",
    "Pef",
    "Report",
    "SambaError",
    "__version__",
    "analyze",
    "available_targets",
    "convert",
    "load_pef",
    "load_target",
    "self_test",
    "verify",
]

_HOMES = {
    "Device": "samba_onnx.runtime.device",
    "Pef": "samba_onnx.runtime.pef",
    "Report": "samba_onnx.report",
    "SambaError": "samba_onnx.errors",
    "analyze": "samba_onnx.compiler",
    "available_targets": "samba_onnx.passes.targets",
    "convert": "samba_onnx.compiler",
    "load_pef": "samba_onnx.runtime.pef",
    "load_target": "samba_onnx.passes.targets",
    "self_test": "samba_onnx.verification",
    "verify": "samba_onnx.verification",
}


def __getattr__(name: str) -> object:
    """Load a public name on first use (PEP 562)."""
    try:
        home = _HOMES[name]
    except KeyError:
        raise AttributeError(f"module 'samba_onnx' has no attribute {name!r}") from None
    value = getattr(importlib.import_module(home), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__
