"""The steps of one PEF, prepared by an engine once and reused."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

import onnx

from samba_onnx.errors import ExecutionError
from samba_onnx.pef import stage_checks  # noqa: F401  # here, and not in the first load
from samba_onnx.pef.layout import WEIGHTS_MEMBER
from samba_onnx.pef.manifest import Fallback, Section
from samba_onnx.pef.reader import Pef
from samba_onnx.program.kinds import SectionType
from samba_onnx.runtime.engine.assembly import merge_stages, place_weights
from samba_onnx.runtime.engine.at_load import split_at_load
from samba_onnx.runtime.engine.protocol import (
    BoundComputation,
    Computation,
    Engine,
    EngineSettings,
    HostComputation,
)
from samba_onnx.runtime.engine.registry import make_engine
from samba_onnx.runtime.inputs import own_copy
from samba_onnx.runtime.memory import DeviceMemory
from samba_onnx.runtime.schedule import Step

_PATIENCE = 4
"""Times that a step is prepared for changed values before it stops having any of them frozen."""
_LIGHT_FLOPS = 1_000_000
"""A core does this much in about 20 µs, some times what waking another one takes."""


class StepFactory:
    """Makes the steps of one PEF."""

    def __init__(self, pef: Pef, engine: str, settings: EngineSettings) -> None:
        """Prepare to make steps.

        Args:
            pef: Where stages and weights come from.
            engine: Name of the engine that executes them.
            settings: How it prepares them; whether they train is found out here.

        Raises:
            UsageError: There is no such engine.
        """
        self._pef = pef
        trains = any(section.type is SectionType.BCKWD for section in pef.manifest.sections)
        self._engine = make_engine(engine, dataclasses.replace(settings, trains=trains))
        path = Path(os.path.realpath(pef.path))
        self._folder, self._file = str(path.parent), path.name
        self._offset = pef.member_offset(WEIGHTS_MEMBER)

    def device_step(
        self, step: Step, memory: DeviceMemory, constant: Collection[str] = ()
    ) -> DeviceStep:
        """Prepare sections, bound to device memory.

        Args:
            step: One or more sections.
            memory: Where the step's inputs and outputs live.
            constant: Values that no section writes. Those that the step reads are frozen, and it is
                prepared when it runs for the first time.

        Returns:
            The step, ready to run once its values are there.

        Raises:
            ExecutionError: The engine cannot run the step.
            PefFormatError: The stages do not fit together.
        """
        frozen = frozenset(
            name
            for name, _ in step.inputs
            # An engine takes values to compute with in advance as arrays of their own shape, which
            # elements that share a byte do not have.
            if name in constant and not memory.tensor(name).element.packs
        )
        return DeviceStep(self, step, memory, frozen)

    def host_step(self, step: Step, fixed: Collection[str] = ()) -> HostStep:
        """Prepare fallbacks.

        Args:
            step: One or more fallbacks.
            fixed: Residents that no run changes: what fallbacks compute from them only is computed
                in the first run, and again when one of them was loaded anew.

        Returns:
            The step, ready to run.

        Raises:
            ExecutionError: The engine cannot run the step.
            PefFormatError: The stages do not fit together.
        """
        whole = self._computation(step)
        at_load = {
            node.name
            for stage in step.stages
            if isinstance(stage, Fallback)
            for node in stage.reasons
            if node.at_load
        }
        split = split_at_load(whole.model, at_load, fixed, step.title)

        def prepared(model: onnx.ModelProto) -> HostComputation:
            return self._engine.prepare(dataclasses.replace(whole, model=model))

        if split is None:
            return HostStep(self._engine, prepared(whole.model), step)
        first, rest = split
        every_run = None if rest is None else prepared(rest)
        return HostStep(self._engine, every_run, step, prepared(first))

    @property
    def engine(self) -> Engine:
        """What executes the steps."""
        return self._engine

    def bind(self, step: Step, memory: DeviceMemory, frozen: Collection[str]) -> BoundComputation:
        """Prepare sections now.

        Args:
            step: One or more sections.
            memory: Where the step's inputs and outputs live.
            frozen: Inputs that have values, with which the engine may compute in advance.

        Raises:
            ExecutionError: The engine cannot run the step.
            PefFormatError: The stages do not fit together.
            PefChecksumError: The file was replaced meanwhile.
        """
        bound = self._engine.bind(self._computation(step), memory, frozen)
        # This may be long after the PEF was opened, and the file be another one by now.
        if frozen:
            self._pef.ensure_unchanged()
        return bound

    def _computation(self, step: Step) -> Computation:
        models = [self._pef.stage_model(stage.id) for stage in step.stages]
        model = merge_stages(models, [name for name, _ in step.inputs], step.outputs)
        place_weights(model, self._file, self._offset)
        return Computation(
            model,
            step.title,
            self._folder,
            # The steps of optimizers are long chains of arithmetic on large tensors, for
            # which blocks pay; elsewhere products lie between.
            splits=all(stage.type is SectionType.OPT for stage in step.stages),
            light=_is_light(step),
        )


def _is_light(step: Step) -> bool:
    """Return whether waking threads would take longer than the work that they share."""
    # Of fallbacks none are known, so that they never count as light.
    flops = sum(stage.flops for stage in step.stages if isinstance(stage, Section))
    return step.on_rdu and flops < _LIGHT_FLOPS


class DeviceStep:
    """Sections that run on the emulated device."""

    def __init__(
        self, factory: StepFactory, step: Step, memory: DeviceMemory, frozen: frozenset[str]
    ) -> None:
        """Prepare the step now, or in the first run if some of its inputs are frozen.

        Args:
            factory: Prepares the step.
            step: One or more sections.
            memory: Where its inputs and outputs live.
            frozen: Names of inputs that seldom change.
        """
        self._factory = factory
        self._step = step
        self._memory = memory
        self._frozen = frozen
        self._patience = _PATIENCE
        self._failures = factory.engine.failures
        self._bound = None if frozen else factory.bind(step, memory, ())

    @property
    def frozen(self) -> frozenset[str]:
        """Inputs that the step was prepared with, or will be."""
        return self._frozen

    def run(self) -> None:
        """Execute; reads and writes device memory only.

        Raises:
            ExecutionError: An operator failed, or the engine cannot run the step.
            PefChecksumError: The file was replaced before the step was prepared.
        """
        bound = self._bound or self.prepare()
        try:
            bound.run()
        except self._failures as error:
            reason = self._factory.engine.reason(error)
            raise ExecutionError(f"{self._step.title} failed: {reason}") from None

    def prepare(self) -> BoundComputation:
        """Prepare the step if it is not; values that are frozen must be there.

        Raises:
            ExecutionError: The engine cannot run the step.
            PefChecksumError: The file was replaced meanwhile.
        """
        if self._bound is None:
            self._bound = self._factory.bind(self._step, self._memory, self._frozen)
        return self._bound

    def forget_values(self) -> None:
        """Note that a frozen input changed; the next run prepares the step once more.

        An input that keeps changing is no constant: after some times the step reads all of its
        inputs where they are.
        """
        if self._bound is not None and self._frozen:
            self._bound = None
            self._patience -= 1
            if not self._patience:
                self._frozen = frozenset()


class HostStep:
    """Fallbacks that run on the host's CPU."""

    def __init__(
        self,
        engine: Engine,
        computation: HostComputation | None,
        step: Step,
        at_load: HostComputation | None = None,
    ) -> None:
        """Take what executes.

        Args:
            engine: Prepared the computations.
            computation: What every run computes; None where that is nothing.
            step: The fallbacks.
            at_load: What is computed once, and read by the other computation, or returned.
        """
        self._engine = engine
        self._computation = computation
        self._at_load = at_load
        self._known: dict[str, Any] | None = None
        self._outputs = step.outputs
        self._title = step.title

    @property
    def frozen(self) -> frozenset[str]:
        """Inputs that something was computed from at load, or will be."""
        return frozenset() if self._at_load is None else frozenset(self._at_load.inputs)

    def forget_values(self) -> None:
        """Note that a frozen input changed; the next run computes from the new value."""
        self._known = None

    def run(self, feed: Mapping[str, Any]) -> Sequence[Any]:
        """Execute on host values.

        Args:
            feed: A value for every input of the step.

        Returns:
            The outputs, in the step's order; fresh, they share no memory with the feed.

        Raises:
            ExecutionError: An operator failed, or a value cannot be handed to the engine.
        """
        try:
            return self._computed(feed)
        except self._engine.failures as error:
            raise ExecutionError(f"{self._title} failed: {self._engine.reason(error)}") from None

    def _computed(self, feed: Mapping[str, Any]) -> Sequence[Any]:
        if self._at_load is None:
            return self._computation.run(feed) if self._computation else ()
        if self._known is None:
            self._known = _run(self._at_load, feed)
        values = _run(self._computation, {**feed, **self._known}) if self._computation else {}
        return [
            # What was computed at load is read by later runs, too, and is not the caller's.
            values[name] if name in values else own_copy(self._known[name])
            for name in self._outputs
        ]


def _run(computation: HostComputation, feed: Mapping[str, Any]) -> dict[str, Any]:
    """Execute on some of the values, and return outputs by name."""
    results = computation.run({name: feed[name] for name in computation.inputs})
    return dict(zip(computation.outputs, results, strict=True))
