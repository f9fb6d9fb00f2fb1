"""``onnx.reference`` as an engine."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import onnx
import onnx.inliner
from google.protobuf.message import DecodeError  # type: ignore[import-untyped]  # has no stubs

from samba_onnx.errors import ExecutionError
from samba_onnx.runtime.engine.lowerings.bfloat16 import lower_stage_bfloat16
from samba_onnx.runtime.engine.lowerings.pipeline import Lowering, lower
from samba_onnx.runtime.engine.lowerings.stage_model import StageModel
from samba_onnx.runtime.engine.protocol import Computation
from samba_onnx.runtime.engine.reference.graph import ReferenceGraph
from samba_onnx.runtime.memory import DeviceMemory, DeviceTensor

LOWERINGS: Final = (
    Lowering(
        "bfloat16",
        "numpy has no bfloat16; the device multiplies in float32 and rounds every result.",
        lower_stage_bfloat16,
    ),
)
"""All that this engine needs: it has implementations of its own of dropout masks and of stochastic rounding."""


@dataclass(frozen=True)
class BoundGraph:
    """A graph with its place in device memory."""

    graph: ReferenceGraph
    inputs: tuple[DeviceTensor, ...]
    """In the graph's order."""
    outputs: tuple[DeviceTensor, ...]
    """In the graph's order."""

    def run(self) -> None:
        """Execute once. All outputs are there before the first of them is written.

        So a region that the graph also reads may be overwritten.

        Raises:
            ExecutionError: An operator failed, or computed another shape than the model states.
        """
        names = self.graph.inputs
        feed = {name: tensor.load() for name, tensor in zip(names, self.inputs, strict=True)}
        for tensor, value in zip(self.outputs, self.graph.run(feed), strict=True):
            tensor.store(value)


class ReferenceEngine:
    """Evaluates every operator as ONNX's own reference implementation does: slow, and exact.

    No settings of engines are for this one, which has one thread and no layouts of its own.
    """

    @property
    def name(self) -> str:
        """By which users choose it."""
        return "reference"

    @property
    def failures(self) -> tuple[type[Exception], ...]:
        """What running a computation raises when an operator fails."""
        return (ExecutionError,)

    def departure(self, model: onnx.ModelProto) -> str:
        """Say nothing: it runs every model as it is, on every machine.

        Args:
            model: Somebody else's model, as it is.
        """
        return ""

    def reason(self, error: Exception) -> str:
        """Return what went wrong in a run, as one short line that names the operator.

        Args:
            error: One of ``failures``.
        """
        return (error.reason if isinstance(error, ExecutionError) else "") or str(error)

    def bind(
        self, computation: Computation, memory: DeviceMemory, frozen: Collection[str] = ()
    ) -> BoundGraph:
        """Prepare a computation on values in device memory.

        Args:
            computation: Its inputs and outputs are symbols.
            memory: Where these live.
            frozen: Not looked at: every run reads all inputs.

        Returns:
            The computation, ready to run.

        Raises:
            ExecutionError: An operator has no reference implementation.
        """
        graph = self.prepare(computation)
        return BoundGraph(
            graph,
            tuple(memory.tensor(name) for name in graph.inputs),
            tuple(memory.tensor(name) for name in graph.outputs),
        )

    def prepare(self, computation: Computation) -> ReferenceGraph:
        """Prepare a computation on host values.

        Args:
            computation: To prepare.

        Returns:
            The computation, ready to run.

        Raises:
            ExecutionError: An operator has no reference implementation.
        """
        stage = StageModel(computation.model)
        lower(stage, LOWERINGS)
        return _prepared(computation.title, lambda: ReferenceGraph(stage.model, computation.folder))

    def open(self, model: onnx.ModelProto | Path, title: str, folder: str = "") -> ReferenceGraph:
        """Prepare somebody else's model; bfloat16 is computed as the device computes it.

        Args:
            model: In memory, or a file that may have external data beside it.
            title: What messages call it.
            folder: Where the files of external initializers lie, of a model in memory.

        Returns:
            The model, ready to run.

        Raises:
            ExecutionError: The file is no model, or an operator has no reference implementation.
        """

        def prepare() -> ReferenceGraph:
            loaded = _loaded(model) if isinstance(model, Path) else model
            stage = StageModel(onnx.inliner.inline_local_functions(loaded))
            lower(stage, LOWERINGS)
            return ReferenceGraph(stage.model, folder)

        return _prepared(title, prepare)


def _loaded(path: Path) -> onnx.ModelProto:
    try:
        return onnx.load(path)
    except (DecodeError, OSError, ValueError, onnx.checker.ValidationError) as error:
        reason = " ".join(str(error).split())
        raise ExecutionError(f"{path}: {reason}", reason=reason) from error


def _prepared(title: str, prepare: Callable[[], ReferenceGraph]) -> ReferenceGraph:
    try:
        return prepare()
    except ExecutionError as error:
        reason = error.reason or str(error)
        raise ExecutionError(f"{title} cannot be prepared: {reason}", reason=reason) from None
