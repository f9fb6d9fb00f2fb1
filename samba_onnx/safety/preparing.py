"""Try in a child process whether the engine can prepare all stages of a PEF."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Final

from samba_onnx.errors import ExecutionError
from samba_onnx.safety.files import printable
from samba_onnx.safety.sandbox import memory_for_a_child, run_child

__all__ = ["refuse_unpreparable"]

TASK: Final = "samba_onnx.runtime.child_preparation:prepare"
"""What the child does."""


def refuse_unpreparable(
    path: str | os.PathLike[str], *, seconds: float = 60.0, custom_ops: Sequence[str] = ()
) -> None:
    """Prepare every section and fallback of a PEF without running any.

    What converts also runs: an operator without a kernel, or a graph that the engine's own rewrites
    break, shows here instead of at the first run.

    Args:
        path: A whole PEF.
        seconds: Wall-clock time after which the child is stopped.
        custom_ops: Absolute paths of libraries with operators of custom domains.

    Raises:
        ModelLimitError: It takes too much time or memory.
        ExecutionError: The engine refuses a stage or dies of it.
    """
    shown = printable(os.fspath(path))
    answer = run_child(
        TASK,
        {"pef": os.fspath(path), "custom_ops": list(custom_ops)},
        seconds=seconds,
        memory_bytes=memory_for_a_child(),
        doing="preparing the compiled stages with onnxruntime",
    )
    if "refused" in answer:
        reason = printable(answer["refused"], 600).replace(f"{shown}: ", "")
        raise ExecutionError(
            f"the engine cannot execute what was compiled: {reason}; nothing was written. "
            "To see the plan all the same: samba-port analyze"
        )
