"""onnxruntime as an engine: one session per computation, made once and reused."""

from __future__ import annotations

import functools
import os
from collections.abc import Collection, Mapping
from pathlib import Path

import onnx
import onnxruntime as ort

from samba_onnx.errors import ExecutionError
from samba_onnx.runtime.engine.lowerings.bfloat16 import uses_bfloat16
from samba_onnx.runtime.engine.lowerings.nodes import all_nodes
from samba_onnx.runtime.engine.lowerings.optimizer_faults import FAULTY
from samba_onnx.runtime.engine.lowerings.pipeline import lower
from samba_onnx.runtime.engine.lowerings.stage_model import StageModel
from samba_onnx.runtime.engine.onnxruntime.binding import (
    BoundSteps,
    bind_session,
    freeze_inputs,
    tensor_value,
)
from samba_onnx.runtime.engine.onnxruntime.blocks import BlockPool, bind_blocks
from samba_onnx.runtime.engine.onnxruntime.channel_blocks import channel_block
from samba_onnx.runtime.engine.onnxruntime.originals import accurate_source, runnable_source
from samba_onnx.runtime.engine.onnxruntime.saturation import departure_of
from samba_onnx.runtime.engine.onnxruntime.sessions import (
    AS_WRITTEN,
    NO_VALUES,
    make_session,
    ort_errors,
    reason_of,
    refuse_unusable_libraries,
)
from samba_onnx.runtime.engine.onnxruntime.values import HostSession
from samba_onnx.runtime.engine.onnxruntime.versions import restamp
from samba_onnx.runtime.engine.protocol import (
    BoundComputation,
    Computation,
    EngineSettings,
    HostComputation,
)
from samba_onnx.runtime.memory import DeviceMemory, release_free_memory

_CONVOLUTIONS = frozenset({"Conv", "ConvTranspose"})


def _block_for(model: onnx.ModelProto) -> int:
    """Return the channels of a block, of which only convolutions want to know."""
    has_any = any(node.op_type in _CONVOLUTIONS for node in all_nodes(model.graph))
    return channel_block() if has_any else 0


class OnnxRuntimeEngine:
    """Runs computations as sessions of onnxruntime, lowered to what its kernels do well."""

    def __init__(self, settings: EngineSettings) -> None:
        """Prepare to make sessions.

        Args:
            settings: How to make them.

        Raises:
            UsageError: A library of custom operators cannot be loaded.
        """
        refuse_unusable_libraries(settings)
        self._settings = settings
        self._pool = BlockPool(settings.threads or os.cpu_count() or 1)

    @property
    def name(self) -> str:
        """By which users choose it."""
        return "onnxruntime"

    @property
    def failures(self) -> tuple[type[Exception], ...]:
        """What running a computation raises when an operator fails."""
        return ort_errors()

    def reason(self, error: Exception) -> str:
        """Return what went wrong in a run, as one short line that names the operator.

        Args:
            error: One of ``failures``.
        """
        return reason_of(error)

    def bind(
        self, computation: Computation, memory: DeviceMemory, frozen: Collection[str] = ()
    ) -> BoundComputation:
        """Prepare a computation on values in device memory.

        Args:
            computation: Its inputs and outputs are symbols.
            memory: Where these live.
            frozen: Inputs that become initializers, which onnxruntime folds and packs.

        Returns:
            The computation, ready to run.

        Raises:
            ExecutionError: onnxruntime refuses the model.
        """
        outside = freeze_inputs(computation.model, {name: memory.tensor(name) for name in frozen})
        splits = computation.splits and not frozen
        stage = StageModel(
            computation.model,
            memory=memory,
            splits=splits,
            channel_block=_block_for(computation.model),
        )
        lower(stage)
        runs = bind_blocks(
            stage.components, memory, functools.partial(self._session, computation, threads=1)
        )
        blocks = self._pool.blocks(runs)
        # All of it is done in blocks, and no session of the rest is needed.
        if stage.components and not stage.model.graph.node:
            return BoundSteps((blocks,))
        values = {name: tensor_value(tensor) for name, tensor in outside.items()}
        session = self._session(computation, stage, values)
        # By now the session has packed copies, and has freed what it made on the way to them.
        if values:
            release_free_memory()
        rest = bind_session(session, stage.model, memory, values, stage.places)
        return BoundSteps((blocks, rest)) if runs else rest

    def prepare(self, computation: Computation) -> HostComputation:
        """Prepare a computation on host values.

        Args:
            computation: To prepare.

        Returns:
            The computation, ready to run.

        Raises:
            ExecutionError: onnxruntime refuses the model.
        """
        if not computation.rounds_as_device and uses_bfloat16(computation.model):
            # Most operators have no bfloat16 kernel; those that have one keep it.
            copy = onnx.ModelProto()
            copy.CopyFrom(computation.model)
            stage = StageModel(copy, keeps_bfloat16=True)
            lower(stage)
            try:
                return HostSession(self._session(computation, stage))
            except ExecutionError:
                pass
        stage = StageModel(computation.model)
        lower(stage)
        return HostSession(self._session(computation, stage))

    def open(self, model: onnx.ModelProto | Path, title: str, folder: str = "") -> HostComputation:
        """Prepare somebody else's model as it is; what onnxruntime does wrong or coarsely is turned off.

        A model with bfloat16 for which onnxruntime has no kernels is computed as the device
        computes it, and one that is newer than onnxruntime as the newest that it knows.

        Args:
            model: In memory, or a file that may have external data beside it.
            title: What messages call it.
            folder: Where the files of external initializers lie, of a model in memory.

        Returns:
            The model, ready to run.

        Raises:
            ExecutionError: onnxruntime refuses the model.
        """
        try:
            return HostSession(self._original_session(*accurate_source(model, folder)))
        except ort_errors() as error:
            refusal = _refusal(title, error)
        rounding = runnable_source(model, folder)
        if rounding is None:
            raise refusal
        try:
            return HostSession(self._original_session(*rounding))
        except ort_errors() as error:
            raise _refusal(title, error) from None

    def departure(self, model: onnx.ModelProto) -> str:
        """Say where kernels of onnxruntime's are not used for a model, as they are wrong on this processor.

        Args:
            model: Somebody else's model, as it is.

        Returns:
            A sentence with a count; empty where it runs the model as it is.
        """
        return departure_of(model)

    def _original_session(self, source: bytes | str, folder: str) -> ort.InferenceSession:
        return make_session(
            source,
            self._settings,
            folder=folder,
            disabled_optimizers=FAULTY,
            entries=AS_WRITTEN,
        )

    def _session(
        self,
        computation: Computation,
        stage: StageModel,
        values: Mapping[str, ort.OrtValue] = NO_VALUES,
        threads: int | None = None,
    ) -> ort.InferenceSession:
        def attempt() -> ort.InferenceSession:
            return make_session(
                stage.model.SerializeToString(),
                self._settings,
                folder=computation.folder,
                values=values,
                disabled_optimizers=stage.disabled_optimizers,
                threads=threads or (1 if computation.light else None),
            )

        try:
            return attempt()
        except ort_errors() as error:
            refusal = _refusal(computation.title, error)
        # All stages are of the newest version that one of them needs, and this onnxruntime may be older.
        if not restamp(stage.model):
            raise refusal
        try:
            return attempt()
        except ort_errors() as error:
            raise _refusal(computation.title, error) from None


def _refusal(title: str, error: Exception) -> ExecutionError:
    reason = reason_of(error)
    return ExecutionError(f"{title} cannot be prepared: {reason}", reason=reason)
