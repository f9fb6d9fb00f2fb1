"""onnxruntime sessions: one per step, made once and reused.

A device step is bound to device memory when it is made, so that running it moves nothing. A host
step takes and returns host values: arrays, lists for sequences, None for empty optionals.
"""

from __future__ import annotations

import functools
import os
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
from onnxruntime.capi import onnxruntime_pybind11_state as ort_native

from samba_onnx.errors import ExecutionError, PefFormatError
from samba_onnx.pef import stage_checks  # noqa: F401  # here, and not in the first load
from samba_onnx.pef.layout import WEIGHTS_MEMBER
from samba_onnx.pef.manifest import Section
from samba_onnx.pef.reader import Pef
from samba_onnx.program.kinds import SectionType
from samba_onnx.runtime.engine.assembly import freeze_inputs, merge_stages, place_weights
from samba_onnx.runtime.engine.lowerings.bfloat16 import uses_bfloat16
from samba_onnx.runtime.engine.lowerings.pipeline import lower
from samba_onnx.runtime.engine.lowerings.stage_model import StageModel
from samba_onnx.runtime.engine.onnxruntime.binding import (
    Bound,
    BoundSteps,
    bind_session,
)
from samba_onnx.runtime.engine.onnxruntime.blocks import BlockPool, bind_blocks
from samba_onnx.runtime.engine.onnxruntime.values import ValueRunner
from samba_onnx.runtime.memory import DeviceMemory, release_free_memory
from samba_onnx.runtime.schedule import Step

_SILENT = 4
"""onnxruntime's severity "fatal": everything else reaches the user as an exception."""
_LONGEST_REASON = 300
_PATIENCE = 4
"""Sessions that are made for changed initializers before the step stops having any."""
NO_VALUES: Mapping[str, ort.OrtValue] = MappingProxyType({})
_LIGHT_FLOPS = 1_000_000
"""A core does this much in about 20 µs, some times what waking another one takes."""


@dataclass(frozen=True)
class SessionSettings:
    """How sessions are made."""

    threads: int | None = None
    """Threads within an operator; onnxruntime's own choice, one per core, when None."""
    prepack: bool = True
    """Copy weights into the layout that kernels like best: slower to load, twice the memory,
    faster to run. Otherwise they stay mapped from the PEF."""


class SessionFactory:
    """Makes the sessions of one PEF."""

    def __init__(self, pef: Pef, settings: SessionSettings, *, several: bool) -> None:
        """Prepare to make sessions.

        Args:
            pef: Where stages and weights come from.
            settings: How to make them.
            several: Whether more than one session takes turns in a run.
        """
        self._pef = pef
        self._settings = settings
        self._several = several
        self._trains = any(section.type is SectionType.BCKWD for section in pef.manifest.sections)
        path = Path(os.path.realpath(pef.path))
        self._folder, self._file = str(path.parent), path.name
        self._offset = pef.member_offset(WEIGHTS_MEMBER)
        self._pool = BlockPool(settings.threads or os.cpu_count() or 1)

    def device_step(
        self, step: Step, memory: DeviceMemory, constant: Collection[str] = ()
    ) -> DeviceStep:
        """Make the session of sections, bound to device memory.

        Args:
            step: Of sections.
            memory: Where the step's inputs and outputs live.
            constant: Values that no section writes. The session is made with those that the step
                reads as initializers, when it runs for the first time.

        Returns:
            The step, ready to run once its values are there.

        Raises:
            ExecutionError: onnxruntime refuses the model.
            PefFormatError: The stages do not fit together.
        """
        frozen = frozenset(
            name
            for name, _ in step.inputs
            if name in constant and not memory.tensor(name).element.packs
        )
        return DeviceStep(lambda names: self._bind(step, memory, names), frozen, step.title)

    def _bind(self, step: Step, memory: DeviceMemory, frozen: Collection[str]) -> Bound:
        stage = self._stage(step)
        stage.memory = memory
        stage.splits = not frozen and all(part.type is SectionType.OPT for part in step.stages)
        outside = freeze_inputs(stage.model, {name: memory.tensor(name) for name in frozen})
        lower(stage)
        runs = bind_blocks(stage.components, memory, functools.partial(self._block_session, step))
        blocks = self._pool.blocks(runs)
        if not stage.model.graph.node:
            return BoundSteps((blocks,))
        values = {name: tensor.ort_value() for name, tensor in outside.items()}
        session = self._session(stage, step, values)
        if values:
            release_free_memory()
            self._pef.ensure_unchanged()
        rest = bind_session(session, stage.model, memory, values, stage.places)
        return BoundSteps((blocks, rest)) if runs else rest

    def _block_session(self, step: Step, stage: StageModel) -> ort.InferenceSession:
        return self._session(stage, step, threads=1)

    def host_step(self, step: Step) -> HostStep:
        """Make the session of fallbacks.

        Args:
            step: Of fallbacks.

        Returns:
            The step, ready to run.

        Raises:
            ExecutionError: onnxruntime refuses the model.
            PefFormatError: The stages do not fit together.
        """
        stage = self._stage(step)
        stage.keeps_bfloat16 = True
        lower(stage)
        try:
            session = self._session(stage, step)
        except ExecutionError:
            # Most operators have no bfloat16 kernel; those that have one keep it.
            if not uses_bfloat16(stage.model):
                raise
            stage = self._stage(step)
            lower(stage)
            session = self._session(stage, step)
        return HostStep(session, step.title)

    def _stage(self, step: Step) -> StageModel:
        models = [self._pef.stage_model(stage.id) for stage in step.stages]
        model = merge_stages(models, [name for name, _ in step.inputs], step.outputs)
        place_weights(model, self._file, self._offset)
        return StageModel(model)

    def _session(
        self,
        stage: StageModel,
        step: Step,
        values: Mapping[str, ort.OrtValue] = NO_VALUES,
        threads: int | None = None,
    ) -> ort.InferenceSession:
        options = self._options()
        if values:
            options.add_external_initializers(list(values), list(values.values()))
            # What the optimizer makes of them and then packs is freed one by one, not kept for
            # later in an arena.
            options.add_session_config_entry("session.use_device_allocator_for_initializers", "1")
        if threads or _is_light(step):
            options.intra_op_num_threads = threads or 1
        try:
            return ort.InferenceSession(
                stage.model.SerializeToString(),
                options,
                providers=["CPUExecutionProvider"],
                disabled_optimizers=list(stage.disabled_optimizers),
            )
        except _ort_errors() as error:
            raise ExecutionError(f"{step.title} cannot be prepared: {reason_of(error)}") from None

    def _options(self) -> ort.SessionOptions:
        options = ort.SessionOptions()
        options.log_severity_level = _SILENT
        options.intra_op_num_threads = self._settings.threads or 0
        options.use_deterministic_compute = True
        # A plan of all values of a run is one block as large as they are at their most, which
        # onnxruntime allocates beside what it has from the first run.
        options.enable_mem_pattern = not self._trains
        entries = {
            "session.model_external_initializers_file_folder_path": self._folder,
            # Work is dealt out in ever smaller blocks, so that a core that is disturbed does not
            # keep the others waiting at the end of each operator.
            "session.dynamic_block_base": "4",
        }
        if self._several:
            # Every session has its own threads; those that still spin after their step would take
            # the cores away from the next one.
            entries["session.force_spinning_stop"] = "1"
        if not self._settings.prepack:
            entries["session.disable_prepacking"] = "1"
        for key, value in entries.items():
            options.add_session_config_entry(key, value)
        return options


def _is_light(step: Step) -> bool:
    """Return whether waking threads would take longer than the work that they share."""
    return step.on_rdu and sum(stage.flops for stage in _sections(step)) < _LIGHT_FLOPS


def _sections(step: Step) -> list[Section]:
    return [stage for stage in step.stages if isinstance(stage, Section)]


class DeviceStep:
    """Sections that run on the emulated device."""

    def __init__(
        self, bind: Callable[[Collection[str]], Bound], frozen: frozenset[str], title: str
    ) -> None:
        """Make the session now, or in the first run if it shall have initializers.

        Args:
            bind: Makes the session, with those inputs as initializers.
            frozen: Names of inputs that seldom change.
            title: What messages call the step.
        """
        self._bind = bind
        self._title = title
        self._frozen = frozen
        self._patience = _PATIENCE
        self._bound = None if frozen else bind(())

    @property
    def frozen(self) -> frozenset[str]:
        """Inputs that the session has as initializers, or will have."""
        return self._frozen

    def run(self) -> None:
        """Execute; reads and writes device memory only.

        Raises:
            ExecutionError: An operator failed, or onnxruntime refuses the model.
            PefChecksumError: The file was replaced before the session was made.
        """
        bound = self._bound or self.prepare()
        try:
            bound.run()
        except _ort_errors() as error:
            raise ExecutionError(f"{self._title} failed: {reason_of(error)}") from None

    def prepare(self) -> Bound:
        """Make the session if there is none; values that it has as initializers must be there.

        Raises:
            ExecutionError: onnxruntime refuses the model.
            PefChecksumError: The file was replaced meanwhile.
        """
        if self._bound is None:
            self._bound = self._bind(self._frozen)
        return self._bound

    def forget_values(self) -> None:
        """Drop the session because a frozen input changed; the next run makes a new one.

        An input that keeps changing is no constant: after some sessions the step reads all of its
        inputs where they are.
        """
        if self._bound is not None and self._frozen:
            self._bound = None
            self._patience -= 1
            if not self._patience:
                self._frozen = frozenset()


class HostStep:
    """Fallbacks that run on the host's CPU."""

    def __init__(self, session: ort.InferenceSession, title: str) -> None:
        self._runner = ValueRunner(session)
        self._title = title

    def run(self, feed: Mapping[str, Any]) -> Sequence[Any]:
        """Execute on host values.

        Args:
            feed: A value for every input of the step.

        Returns:
            The outputs, in the step's order; fresh, they share no memory with the feed.

        Raises:
            ExecutionError: An operator failed, or a value cannot be handed to onnxruntime.
        """
        try:
            return self._runner.run(feed)
        except _ort_errors() as error:
            raise ExecutionError(f"{self._title} failed: {reason_of(error)}") from None


def reason_of(error: BaseException) -> str:
    """Return what onnxruntime has to say, as one short line.

    Args:
        error: An exception of onnxruntime's.

    Returns:
        The operator and its complaint, without status codes and source paths.
    """
    text = " ".join(str(error).split())
    text = re.sub(r"^\[ONNXRuntimeError\] : \d+ : \w+ : ", "", text)
    node = re.search(r"while running (\w+) node\. Name:'([^']*)' Status Message: (.*)", text)
    if node:
        text = f"{node[1]} node {node[2]!r}: {node[3]}"
    # "/source/file.cc:12 type function(arguments) condition was false." is for its developers.
    text = re.sub(r"/\S+\.(?:h|cc|cpp):\d+ \S+ .*?was false\. ", "", text)
    text = re.sub(r"/\S+\.(?:h|cc|cpp):\d+ ", "", text)
    return text if len(text) <= _LONGEST_REASON else text[: _LONGEST_REASON - 3] + "..."


@functools.cache
def _ort_errors() -> tuple[type[Exception], ...]:
    """Return what onnxruntime raises: its own classes, and builtins for values it cannot take."""
    own = [
        kind
        for kind in vars(ort_native).values()
        if isinstance(kind, type) and issubclass(kind, Exception)
    ]
    return (*own, MemoryError, RuntimeError, TypeError, ValueError)


def initializer(pef: Pef, name: str) -> Any:
    """Return the content of an initializer that is kept inside a stage's own model.

    Args:
        pef: The PEF.
        name: Of a weight or constant.

    Returns:
        A fresh array.

    Raises:
        PefFormatError: No stage has it.
    """
    for stage in pef.manifest.stages().values():
        if name in stage.weights:
            for tensor in pef.stage_model(stage.id).graph.initializer:
                if tensor.name == name:
                    array = np.array(onnx.numpy_helper.to_array(tensor), order="C")
                    return array.astype(object) if array.dtype.kind in "UST" else array
    raise PefFormatError(f"no stage holds {name!r}; convert the model again")
