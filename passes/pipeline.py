"""The passes in their order, what each did, and the guard around them."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import TYPE_CHECKING

import onnx_ir as ir
from onnx_ir.passes.common import RemoveUnusedNodesPass, TopologicalSortPass

from samba_onnx.errors import InternalError, SambaError
from samba_onnx.passes.dynamic_dimensions import (
    assumption_note,
    bound_dimensions,
    dynamic_dimensions,
)
from samba_onnx.passes.rewrites.bind_dimensions import (
    DEFAULT_SHAPE,
    BindDimensionsPass,
    BindOutputsPass,
)
from samba_onnx.passes.rewrites.convert_opset import ConvertOpsetPass
from samba_onnx.passes.rewrites.expand_functions import ExpandFunctionsPass
from samba_onnx.passes.rewrites.fix_names import FixNamesPass
from samba_onnx.passes.rewrites.fold_batch_normalization import FoldBatchNormalizationPass
from samba_onnx.passes.rewrites.fold_constants import FoldConstantsPass
from samba_onnx.passes.rewrites.fold_shapes import FoldShapesPass
from samba_onnx.passes.rewrites.fold_transposes import FoldTransposesPass
from samba_onnx.passes.rewrites.forget_shapes import ForgetShapesPass
from samba_onnx.passes.rewrites.infer_foreign_types import InferForeignTypesPass
from samba_onnx.passes.rewrites.infer_shapes import InferShapesPass
from samba_onnx.passes.rewrites.inline_branches import InlineBranchesPass
from samba_onnx.passes.rewrites.inline_functions import InlineFunctionsPass
from samba_onnx.passes.rewrites.interface import Dimension, Interface
from samba_onnx.passes.rewrites.lift_constants import LiftConstantsPass
from samba_onnx.passes.rewrites.merge_duplicates import MergeInitializersPass, MergeNodesPass
from samba_onnx.passes.rewrites.refusals import ReasonedPass
from samba_onnx.passes.rewrites.refuse_impossible import RefuseImpossiblePass
from samba_onnx.passes.rewrites.remove_noops import RemoveNoopsPass
from samba_onnx.passes.rewrites.rewriting import WEIGHT, count_nodes, inherit
from samba_onnx.pef.manifest import BoundDimension, DynamicDimension, PassSummary
from samba_onnx.program.dataflow import name_of
from samba_onnx.program.program import DEFAULT_GRAPH

if TYPE_CHECKING:
    from samba_onnx.passes.rewrites.expand_functions import Knows

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class PipelineOptions:
    """What the user decides about the passes."""

    dims: Mapping[str, int] = field(default_factory=lambda: MappingProxyType({}))
    """Sizes of dynamic dimensions, by name."""
    input_shapes: Mapping[str, tuple[Dimension, ...]] = field(
        default_factory=lambda: MappingProxyType({})
    )
    """Shapes of inputs, by name; None and names leave a dimension as it is. An empty name stands for
    the only input."""
    assumed_size: int | None = None
    """Size of dynamic dimensions of inputs that these leave dynamic; None leaves them so."""


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


@dataclass(frozen=True)
class PassContext:
    """What passes are made of."""

    target: Knows
    """Decides which operators are expanded."""
    options: PipelineOptions = field(default_factory=PipelineOptions)
    lift_weights: ir.passes.PassBase | None = None
    """Makes inputs of the weights of a model that is to be trained."""


@dataclass(frozen=True)
class PassEntry:
    """One entry of the pipeline."""

    make: Callable[[PassContext], ir.passes.PassBase]
    running: bool = True
    """It belongs to the selection that prepares a model for running."""
    training: bool = True
    """It belongs to the selection that prepares a model for training."""
    static_inputs: bool = False
    """It may turn dynamic dimensions of graph inputs static."""
    static_outputs: bool = False
    """It may turn dynamic dimensions of graph outputs static."""
    adds_inputs: bool = False
    """It may add graph inputs behind those that there are."""


def _plain(make: Callable[[], ir.passes.PassBase], *, training: bool = True) -> PassEntry:
    return PassEntry(lambda context: make(), training=training)


def _only_running(entries: tuple[PassEntry, ...]) -> tuple[PassEntry, ...]:
    return tuple(replace(entry, training=False) for entry in entries)


def _lift_weights(context: PassContext) -> ir.passes.PassBase:
    if context.lift_weights is None:
        raise InternalError("a model is prepared for training without a choice of its weights")
    return context.lift_weights


_INFER = PassEntry(lambda context: InferShapesPass(), static_outputs=True)

_SIMPLIFY: tuple[PassEntry, ...] = (
    _plain(FoldShapesPass),
    _plain(FoldConstantsPass),
    _plain(InlineBranchesPass),
    _plain(RemoveNoopsPass),
    # Before nodes: equal operands make equal nodes. Not for training: what is equal now is
    # trained apart, or holds state of its own.
    _plain(MergeInitializersPass, training=False),
    _plain(MergeNodesPass, training=False),
    _plain(RemoveUnusedNodesPass),
)

_EXPAND: tuple[PassEntry, ...] = (
    PassEntry(lambda context: ExpandFunctionsPass(context.target)),
    _plain(LiftConstantsPass),  # bodies hold Constant nodes
    _INFER,
    _plain(ConvertOpsetPass),  # again: bodies are of their own version, and an operator that was
    _INFER,  # too new for the conversion may be expanded now
)

PIPELINE: tuple[PassEntry, ...] = (
    _plain(ForgetShapesPass),  # before dimensions are bound: afterwards the model may look static
    PassEntry(
        lambda context: BindDimensionsPass(
            context.options.dims, context.options.input_shapes, context.options.assumed_size
        ),
        training=False,  # a module of torch's takes any size
        static_inputs=True,
        static_outputs=True,
    ),  # early: everything after it sees static dimensions
    _plain(InlineFunctionsPass),  # before conversion, which sees calls only as they are
    _plain(TopologicalSortPass),
    _plain(LiftConstantsPass),  # before inference: it hides large initializers, not large Constants
    _INFER,  # conversion needs ranks and types
    PassEntry(lambda context: InferForeignTypesPass(), static_outputs=True),
    # While nodes are those of the model; not for training, which takes any size.
    _plain(RefuseImpossiblePass, training=False),
    _plain(ConvertOpsetPass),
    _INFER,
    *_only_running(_SIMPLIFY),  # weights that will be trained are initializers still
    *_EXPAND,  # after inference: bodies depend on types
    *_EXPAND,
    *_EXPAND,
    # As inputs they stay whole from here on.
    PassEntry(_lift_weights, running=False, adds_inputs=True),
    _plain(FoldBatchNormalizationPass, training=False),  # its statistics move, its scale is trained
    _plain(FoldTransposesPass, training=False),  # before folding, which may take the Transpose of a
    *_SIMPLIFY,  # tied weight
    _INFER,  # folded shapes make more shapes known
    # What is still unknown of an output is what the model says of it.
    PassEntry(lambda context: BindOutputsPass(), training=False, static_outputs=True),
    *_SIMPLIFY,
    _plain(TopologicalSortPass),
    # Last: names must be unique however they came about. Modules tell values apart without names.
    _plain(FixNamesPass, training=False),
    _INFER,
)
"""All passes in their order, for running and for training."""

RUNNING = tuple(entry for entry in PIPELINE if entry.running)
"""The passes that prepare a model for running on a target."""

TRAINING = tuple(entry for entry in PIPELINE if entry.training)
"""The passes that prepare a model for training as a module of torch's."""


def run_pipeline(
    model: ir.Model,
    target: Knows,
    options: PipelineOptions | None = None,
    *,
    graph: str = DEFAULT_GRAPH,
    progress: Callable[[str], None] | None = None,
) -> PipelineResult:
    """Run every pass that prepares a model for running on ``model``, in place.

    Args:
        model: A checked model; weights are not read.
        target: Decides which operators are expanded.
        options: Sizes of dynamic dimensions.
        graph: Name of the graph that the model becomes, for the records of its dimensions.
        progress: Called with the name of each pass before it runs.

    Returns:
        The model with what happened to it.

    Raises:
        UsageError: The options name unknown dimensions or inputs, or contradict the model.
        InternalError: A pass failed or changed the interface.
    """
    defaults = _hide_defaults(model)
    _mark_weights(model)
    dynamic = dynamic_dimensions(model)
    runner = _Runner(model, progress)
    runner.run(RUNNING, PassContext(target, options or PipelineOptions()))
    for value, tensor in defaults.items():
        value.const_value = tensor
        model.graph.register_initializer(value)
    bound = bound_dimensions(model, dynamic, graph)
    notes = [assumption_note(bound)] if any(dimension.assumed for dimension in bound) else []
    notes += [note for later in runner.notes.values() for note in dict.fromkeys(later)]
    notes += _defaults_notes(defaults)
    return PipelineResult(
        model=model,
        passes=tuple(runner.summaries),
        weight_names=frozenset(
            name for name, value in model.graph.initializers.items() if value.meta.get(WEIGHT)
        ),
        dynamic_dimensions=dynamic_dimensions(model),
        bound_dimensions=bound,
        notes=tuple(notes),
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

    def __init__(self, model: ir.Model, progress: Callable[[str], None] | None) -> None:
        self.model = model
        self.progress = progress
        self.summaries: list[PassSummary] = []
        self.notes: dict[str, tuple[str, ...]] = {}
        """By pass: when a pass runs again, its later word counts."""
        self._interface = Interface.of(model)
        self._changes = 0
        self._ran_at: dict[str, int] = {}

    def run(self, entries: Iterable[PassEntry], context: PassContext) -> None:
        """Run passes in their order.

        Raises:
            InternalError: One failed or changed the interface.
        """
        for entry in entries:
            self._run(entry, entry.make(context))

    def _run(self, entry: PassEntry, rewrite: ir.passes.PassBase) -> None:
        """Run one pass, unless nothing has changed since it ran before.

        Raises:
            InternalError: It failed or changed the interface.
        """
        name = type(rewrite).__name__.removesuffix("Pass")
        if self._ran_at.get(name) == self._changes:
            return
        if self.progress is not None:
            self.progress(name)
        origins = _origins(self.model)
        before, started = count_nodes(self.model), time.perf_counter()
        try:
            modified = rewrite(self.model).modified
        except SambaError:
            raise
        except Exception as error:
            if isinstance(error.__cause__, SambaError):
                raise error.__cause__ from None
            earlier = ", ".join(summary.name for summary in self.summaries) or "none"
            raise InternalError(
                f"pass {name} failed: {error}; passes before it: {earlier}; "
                "please report this model"
            ) from error
        _inherit_metadata(self.model, origins)
        self._interface = self._interface.check(
            self.model,
            name,
            static_inputs=entry.static_inputs,
            static_outputs=entry.static_outputs,
            adds_inputs=entry.adds_inputs,
        )
        after, seconds = count_nodes(self.model), time.perf_counter() - started
        logger.debug("%s: %.1f ms", name, seconds * 1e3)
        if isinstance(rewrite, ReasonedPass) and logger.isEnabledFor(logging.DEBUG):
            for line in rewrite.refusals.lines():
                logger.debug("%s left %s", name, line)
        self.notes[name] = tuple(getattr(rewrite, "notes", ()))
        modified = bool(modified) or before != after
        self._ran_at[name] = self._changes  # one that changed something may find more to change
        self._changes += modified
        self.summaries.append(PassSummary(name, modified, before, after, seconds))


def _origins(model: ir.Model) -> tuple[set[int], dict[str, ir.Node]]:
    """Return the nodes that are there, and the maker of every named value."""
    nodes = list(model.graph.all_nodes())
    makers = {value.name: node for node in nodes for value in node.outputs if value.name}
    return {id(node) for node in nodes}, makers


def _inherit_metadata(model: ir.Model, origins: tuple[set[int], dict[str, ir.Node]]) -> None:
    """Give new nodes without metadata that of the node that made, reads or feeds their values."""
    present, makers = origins
    for node in model.graph.all_nodes():
        if id(node) in present or node.metadata_props:
            continue
        kin = [makers.get(name_of(value)) for value in node.outputs]
        kin += [user for value in node.outputs for user in value.consumers()]
        kin += [value.producer() for value in node.inputs if value is not None]
        for other in kin:
            if other is not None and other.metadata_props:
                inherit([node], other)
                break


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


def _mark_weights(model: ir.Model) -> None:
    """Mark the user's weights."""
    for value in model.graph.initializers.values():
        if value.const_value is not None and _is_weight(value.const_value):
            value.meta[WEIGHT] = True


def _is_weight(tensor: ir.TensorProtocol) -> bool:
    """Return whether an initializer holds numbers, narrow integers for them, or many integers."""
    dtype = tensor.dtype
    quantized = dtype.is_integer() and dtype.bitwidth < 16 and tensor.size > 1
    return dtype.is_floating_point() or quantized or tensor.size > 1024
