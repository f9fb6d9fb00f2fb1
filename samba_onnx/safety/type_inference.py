"""Ask onnxruntime, in a child process, of which types a model's outputs are."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from samba_onnx.safety.leftovers import temporary_folder
from samba_onnx.safety.sandbox import run_child

if TYPE_CHECKING:
    import onnx

__all__ = ["OutputType", "channel_block", "infer_output_types"]

TASK: Final = "samba_onnx.runtime.engine.onnxruntime.child_types:output_types"
"""What the child does."""
_BLOCK_TASK: Final = "samba_onnx.runtime.engine.onnxruntime.child_types:channel_block"
_MEMORY = 4 << 30
"""Bytes that the child may take: graphs without weights need far less."""


@dataclass(frozen=True)
class OutputType:
    """What onnxruntime says of one output."""

    type: str
    """The type as ONNX writes it, for example ``tensor(float)``."""
    shape: tuple[int | str | None, ...] | None
    """None where not even the rank is known; names that the model lacks were made up."""


def infer_output_types(model: onnx.ModelProto, *, seconds: float = 120.0) -> dict[str, OutputType]:
    """Infer types and shapes, also through the operators that only onnxruntime knows.

    Args:
        model: A model whose outputs may lack types; no weights beyond a few integers.
        seconds: Wall-clock time after which the child is stopped.

    Returns:
        Type and shape by output name.

    Raises:
        ModelLimitError: It takes too much time or memory.
        ExecutionError: onnxruntime refuses the model or dies of it.
    """
    with temporary_folder("types") as name:
        path = Path(name) / "model.onnx"
        path.write_bytes(model.SerializeToString())
        answer = run_child(
            TASK,
            {"model": str(path)},
            seconds=seconds,
            memory_bytes=_MEMORY,
            doing="inferring types with onnxruntime",
        )
    return {
        output: OutputType(kind, None if shape is None else tuple(shape))
        for output, kind, shape in answer["outputs"]
    }


# Once in a process: it takes a child process, and the machine stays the same.
@functools.cache
def channel_block() -> int:
    """Return how many channels a block of onnxruntime's blocked layout has on this machine.

    Raises:
        ExecutionError: onnxruntime has no such layout for the machine's processor.
    """
    answer = run_child(
        _BLOCK_TASK,
        {},
        seconds=120.0,
        memory_bytes=_MEMORY,
        doing="asking onnxruntime for the layout of channels",
    )
    return int(answer["block"])
