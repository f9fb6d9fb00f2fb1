"""Versions of ONNX that graphs are written in, and the newest that can be executed."""

from __future__ import annotations

from typing import Final

__all__ = ["IR_VERSION", "NEWEST_RUNNABLE_IR", "NEWEST_RUNNABLE_OPSET", "OLDEST_OPSET", "OPSET"]

OPSET: Final = 21
"""Version of the default operator set that every graph is brought to or written in: of all versions
that onnxruntime 1.31 knows, the one at which it runs the most cases of the ONNX backend suite."""
IR_VERSION: Final = 10
"""Version of the file format that came with this operator set; exported graphs are written in it."""
OLDEST_OPSET: Final = 7
"""The oldest version of the default operator set that onnxruntime promises to run; older models are
brought to it when they are loaded."""
NEWEST_RUNNABLE_OPSET: Final = 26
"""Newest version of the default operator set that onnxruntime 1.31 accepts."""
NEWEST_RUNNABLE_IR: Final = 13
"""Newest version of the file format that onnxruntime 1.31 accepts; nothing that is written here needs
a newer one."""
