"""Versions of ONNX that graphs are written in; which ones an engine takes, the engine is asked."""

from __future__ import annotations

from typing import Final

__all__ = ["IR_VERSION", "NEWEST_IR_VERSION", "NEWEST_OPSET", "OLDEST_OPSET", "OPSET"]

OPSET: Final = 21
"""Version of the default operator set that every graph is brought to or written in: of all versions
that onnxruntime 1.31 knows, the one at which it runs the most cases of the ONNX backend suite."""
IR_VERSION: Final = 10
"""Version of the file format that came with this operator set; exported graphs are written in it."""
OLDEST_OPSET: Final = 7
"""The oldest version of the default operator set that onnxruntime promises to run; older models are
brought to it when they are loaded."""
NEWEST_OPSET: Final = 26
"""Newest version of the default operator set that graphs are written in, where a model cannot be brought
to ``OPSET``: onnxruntime 1.25 to 1.31 take it."""
NEWEST_IR_VERSION: Final = 13
"""Newest version of the file format that graphs are written in, which onnxruntime 1.25 to 1.31 take."""
