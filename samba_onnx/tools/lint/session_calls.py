"""The calls of SambaFlow's session and utilities in a program, by what they do."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import Final

from samba_onnx.tools.lint.source import SourceFile

RUN: Final = ("samba.session.run",)
COMPILE: Final = ("samba.session.compile",)
TRACE: Final = (
    "samba.utils.trace_graph",
    "samba.utils.utils.trace_graph",
    "samba.utils.trace_multigraph",
    "samba.utils.utils.trace_multigraph",
)
CONVERT: Final = (
    "samba.from_torch_model_",
    "samba.from_torch_",
    "samba.from_onnx",
)
WRAP: Final = ("samba.from_torch_tensor", "samba.from_torch", "samba.sambatensor.from_torch_tensor")
OPTIMIZER_HOMES: Final = ("torch.optim", "samba.optim")
FACTORIES: Final = (
    "samba.randn",
    "samba.rand",
    "samba.randint",
    "samba.zeros",
    "samba.ones",
    "samba.empty",
)


def calls_of(source: SourceFile, names: tuple[str, ...]) -> Iterator[ast.Call]:
    """Yield the calls of functions by their dotted names.

    Args:
        source: The file.
        names: As the constants of this module.
    """
    for call, name in source.calls:
        if name in names:
            yield call
