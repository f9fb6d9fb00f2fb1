"""In a child process: prepare every stage of a PEF as a device does, and run none of them.

``safety.preparing`` starts it by its name.
"""

from __future__ import annotations

from typing import Any

from samba_onnx.errors import ExecutionError, OutOfDeviceMemoryError
from samba_onnx.pef import load_pef
from samba_onnx.runtime.engine.protocol import LACKING_HERE
from samba_onnx.runtime.parallel_device import open_device

__all__ = ["prepare"]


def prepare(pef: str, custom_ops: list[str]) -> dict[str, Any]:
    """Load a PEF onto a device with its weights mapped.

    Args:
        pef: Path of the PEF.
        custom_ops: Paths of libraries with operators of custom domains.

    Returns:
        Under ``refused``, what the engine says of a stage that it cannot prepare; nothing if there is none, or
        if only this machine lacks something.
    """
    with load_pef(pef) as opened:
        try:
            options: dict[str, Any] = {"threads": 1, "prepack": False, "verify": False}
            open_device(opened, custom_ops=custom_ops, **options).close()
        except ExecutionError as error:
            if not any(sign in str(error) for sign in LACKING_HERE):
                return {"refused": str(error)}
        except OutOfDeviceMemoryError:
            pass  # whoever loads it is told; the stages are as good as any
    return {}
