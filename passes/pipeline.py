"""Runs the passes one by one: what each did, and the guard around them."""

from __future__ import annotations

import functools
import itertools
import logging
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import onnx_ir as ir

from samba_onnx.errors import InternalError, SambaError
from samba_onnx.facts.versions import IR_VERSION, OPSET
from samba_onnx.passes.dynamic_dimensions import (
    assumption_note,
    bound_dimensions,
    dynamic_dimensions,
)
from samba_onnx.passes.metadata import inherit_metadata, origins_of
from samba_onnx.passes.order import (
    RUNNING,
    TRAINING,
    PassContext,
    PassEntry,
    PipelineOptions,
)
from samba_onnx.passes.rewrites.bind_dimensions import (
    DEFAULT_SHAPE,
)
from samba_onnx.passes.rewrites.interface import Interface
from samba_onnx.passes.rewrites.refusals import ReasonedPass
from samba_onnx.passes.rewrites.rewriting import WEIGHT, count_nodes, mark_weights
from samba_onnx.passes.watching import PassStep, PassWatch
from samba_onnx.pef.dimensions import BoundDimension, DynamicDimension
from samba_onnx.pef.rewrite_records import PassSummary
from samba_onnx.program.program import DEFAULT_GRAPH

if TYPE_CHECKING:
    from samba_onnx.passes.rewrites.expand_functions import Knows
    from samba_onnx.passes.rewrites.legalisation.legalise import Chooser

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class PipelineResult:
    """A model that is ready for placement."""

    model: ir.Model
    passes: tuple[PassSummary, ...]
    """What each pass did, in the order in which they ran."""
    weight_names: frozenset[str]
    """Initializers that hold the user's weights, as given or folded; the others are constants."""
    dynamic_dimensions: tuple[DynamicDimension, ...]
    bound_dimensions: tuple[BoundDimension, ...]
    notes: tuple[str, ...]
    metadata: Mapping[str, str] = field(default_factory=dict)
    """What passes leave for the PEF to say, by key."""


MOST_ROUNDS = 6
"""Times that entries are repeated at most; real models need three or four."""


def run_pipeline(
    model: ir.Model,
    target: Knows,
    options: PipelineOptions | None = None,
    *,
    graph: str = DEFAULT_GRAPH,
    chooser: Chooser | None = None,
    progress: Callable[[str], None] | None = None,
    watch: PassWatch | None = None,
) -> PipelineResult:
    """Run every pass that prepares a model for running on ``model``, in place.

    Args:
        model: A checked model; weights are not read.
        target: Decides which operators are expanded.
        options: Sizes of dynamic dimensions.
        graph: Name of the graph that the model becomes, for the records of its dimensions.
        chooser: Decides which nodes that the target refuses are rewritten; None leaves all as they are.
        progress: Called with the name of each pass before it runs.
        watch: Looks at the model after every pass that changed it; what it raises passes.

    Returns:
        The model with what happened to it.

    Raises:
        UsageError: The options name unknown dimensions or inputs, or contradict the model.
        InternalError: A pass failed or changed the interface.
    """
    defaults = _hide_defaults(model)
    mark_weights(model)
    dynamic = dynamic_dimensions(model)
    runner = _Runner(model, progress, watch)
    runner.run(RUNNING, PassContext(target, options or PipelineOptions(), chooser=chooser))
    for value, tensor in defaults.items():
        value.const_value = tensor
        model.graph.register_initializer(value)
    bound = bound_dimensions(model, dynamic, graph)
    notes = [assumption_note(bound)] if any(dimension.assumed for dimension in bound) else []
    notes += [*runner.last_words(), *_defaults_notes(defaults)]
    return PipelineResult(
        model=model,
        passes=tuple(runner.summaries),
        weight_names=frozenset(
            name for name, value in model.graph.initializers.items() if value.meta.get(WEIGHT)
        ),
        dynamic_dimensions=dynamic_dimensions(model),
        bound_dimensions=bound,
        notes=tuple(notes),
        metadata=runner.metadata,
    )


def run_training_pipeline(
    model: ir.Model, known: Knows, lift_weights: ir.passes.PassBase
) -> tuple[PassSummary, ...]:
    """Run every pass that prepares a model for training on ``model``, in place.

    Args:
        model: A checked model, none of whose inputs is an initializer.
        known: Decides which operators are expanded.
        lift_weights: Chooses the weights and makes inputs of them, behind those that there are; the
            passes before it leave initializers whole.

    Returns:
        What each pass did.

    Raises:
        InternalError: A pass failed or changed the interface.
    """
    runner = _Runner(model, None)
    runner.run(TRAINING, PassContext(known, lift_weights=lift_weights))
    return tuple(runner.summaries)


class _Runner:
    """Runs passes one by one, checks and records each."""

    def __init__(
        self,
        model: ir.Model,
        progress: Callable[[str], None] | None,
        watch: PassWatch | None = None,
    ) -> None:
        self.model = model
        self.progress = progress
        self.watch = watch
        self.summaries: list[PassSummary] = []
        self.notes: dict[str, tuple[str, ...]] = {}
        """By pass: when a pass runs again, its later word counts."""
        self.metadata: dict[str, str] = {}
        self._interface = Interface.of(model)
        self._nodes, self._origins = count_nodes(model), origins_of(model)
        self._length = len(model.graph)
        """How many of them are not inside a body."""
        self._changes = 0
        self._ran_at: dict[str, int] = {}

    def run(self, entries: Iterable[PassEntry], context: PassContext) -> None:
        """Run passes in their order.

        Raises:
            InternalError: One failed or changed the interface.
        """
        entries = tuple(entries)
        binding = {place for place, entry in enumerate(entries) if entry.static_inputs}
        self._binding = {id(entry) for entry in entries[: max(binding, default=0)]}
        for repetition, neighbours in itertools.groupby(entries, lambda entry: entry.repetition):
            group = list(neighbours)
            for _ in range(MOST_ROUNDS if repetition else 1):
                changes = self._changes
                for entry in group:
                    if self._version() >= entry.since:
                        self._run(entry, functools.partial(entry.make, context))
                if changes == self._changes:
                    break

    def _version(self) -> int:
        """Return the default operator set that the model is of now; a model without one is as new as any."""
        return self.model.graph.opset_imports.get("", OPSET)

    def last_words(self) -> list[str]:
        """Return what passes, and who watches them, have to say after the last one."""
        notes = [note for later in self.notes.values() for note in dict.fromkeys(later)]
        return [*notes, *(self.watch.finish() if self.watch is not None else ())]

    def _run(self, entry: PassEntry, make: Callable[[], ir.passes.PassBase]) -> None:
        """Run one pass, unless nothing has changed since it ran before.

        Raises:
            InternalError: It failed or changed the interface.
        """
        rewrite = make()
        name = type(rewrite).__name__.removesuffix("Pass")
        if self._ran_at.get(name) == self._changes:
            return
        if self.progress is not None:
            self.progress(name)
        before, origins = self._nodes, self._origins
        started = time.perf_counter()
        try:
            modified = rewrite(self.model).modified
        except SambaError:
            raise
        except Exception as error:
            raise self._failure(name, error) from error
        # A pass that found nothing may have changed something all the same; a graph without bodies knows its length.
        flat = not modified and before == self._length
        after = len(self.model.graph) if flat else count_nodes(self.model)
        modified = bool(modified) or before != after
        if modified:
            inherit_metadata(self.model, origins)
            self._nodes, self._origins = after, origins_of(self.model)
            self._length = len(self.model.graph)
            self._interface = self._interface.check(
                self.model,
                name,
                static_inputs=entry.static_inputs,
                static_outputs=entry.static_outputs,
                adds_inputs=entry.adds_inputs,
                corrects_outputs=entry.corrects_outputs,
            )
        seconds = time.perf_counter() - started
        logger.debug("%s: %.1f ms", name, seconds * 1e3)
        if isinstance(rewrite, ReasonedPass) and logger.isEnabledFor(logging.DEBUG):
            for line in rewrite.refusals.lines():
                logger.debug("%s left %s", name, line)
        self.notes[name] = tuple(getattr(rewrite, "notes", ()))
        self.metadata |= getattr(rewrite, "metadata", {})
        self._ran_at[name] = self._changes  # one that changed something may find more to change
        self._changes += modified
        self.summaries.append(PassSummary(name, modified, before, after, seconds))
        if modified and self.watch is not None:
            self.watch.see(PassStep(name, self.model, make, id(entry) in self._binding))

    def _failure(self, name: str, error: Exception) -> SambaError:
        """Return what is raised where a pass failed: what it raised itself, wrapped by onnx_ir, or a fault of ours."""
        if isinstance(error.__cause__, SambaError):
            return error.__cause__
        earlier = ", ".join(summary.name for summary in self.summaries) or "none"
        return InternalError(
            f"pass {name} failed: {error}; passes before it: {earlier}; please report this model"
        )


def _hide_defaults(model: ir.Model) -> dict[ir.Value, ir.TensorProtocol]:
    """Take the defaults of overridable inputs out of the passes' sight, and return them.

    Before IR version 4 every initializer had to be declared as an input: there, as in
    onnxruntime, they are plain constants and leave the inputs.
    """
    graph = model.graph
    both = [value for value in graph.inputs if value.is_initializer()]
    if model.ir_version < 4:
        for value in both:
            graph.inputs.remove(value)
        # Constants that passes add are no inputs, which this file format does not have.
        model.ir_version = IR_VERSION
        return {}
    defaults: dict[ir.Value, ir.TensorProtocol] = {}
    for value in both:
        if value.const_value is not None and value.name is not None:
            defaults[value] = tensor = value.const_value
            del graph.initializers[value.name]
            value.const_value = None
            value.meta[DEFAULT_SHAPE] = tuple(tensor.shape.numpy())
    return defaults


def _defaults_notes(defaults: Iterable[ir.Value]) -> list[str]:
    """Return what is to be said of inputs that have defaults."""
    names = sorted(str(value.name) for value in defaults)
    if not names:
        return []
    shown = f"{', '.join(names[:3])}{', ...' if len(names) > 3 else ''}"
    return [f"{len(names)} inputs have defaults ({shown}) and stay inputs; they are not folded"]
