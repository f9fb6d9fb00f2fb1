"""The passes in their order, what each did, and the guard around them."""

from __future__ import annotations

import itertools
import logging
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import TYPE_CHECKING

import onnx_ir as ir
from onnx_ir.passes.common import RemoveUnusedNodesPass, TopologicalSortPass

from samba_onnx.errors import InternalError, SambaError
from samba_onnx.passes.metadata import inherit_metadata, origins_of
from samba_onnx.passes.rewrites.bind_dimensions import BindDimensionsPass
from samba_onnx.passes.rewrites.convert_opset import ConvertOpsetPass
from samba_onnx.passes.rewrites.expand_functions import ExpandFunctionsPass
from samba_onnx.passes.rewrites.fix_names import FixNamesPass
from samba_onnx.passes.rewrites.fold_batch_normalization import FoldBatchNormalizationPass
from samba_onnx.passes.rewrites.fold_constants import FoldConstantsPass
from samba_onnx.passes.rewrites.fold_shapes import FoldShapesPass
from samba_onnx.passes.rewrites.fold_transposes import FoldTransposesPass
from samba_onnx.passes.rewrites.forget_shapes import ForgetShapesPass
from samba_onnx.passes.rewrites.hoist_over_split import HoistOverSplitPass
from samba_onnx.passes.rewrites.infer_foreign_types import InferForeignTypesPass
from samba_onnx.passes.rewrites.infer_shapes import InferShapesPass
from samba_onnx.passes.rewrites.inline_branches import InlineBranchesPass
from samba_onnx.passes.rewrites.inline_functions import InlineFunctionsPass
from samba_onnx.passes.rewrites.interface import Dimension, Interface
from samba_onnx.passes.rewrites.lift_constants import LiftConstantsPass
from samba_onnx.passes.rewrites.merge_duplicates import MergeInitializersPass, MergeNodesPass
from samba_onnx.passes.rewrites.merge_linears import MergeLinearsPass
from samba_onnx.passes.rewrites.refusals import ReasonedPass
from samba_onnx.passes.rewrites.remove_noops import RemoveNoopsPass
from samba_onnx.passes.rewrites.rewriting import WEIGHT, count_nodes
from samba_onnx.passes.rewrites.unpack_sequences import UnpackSequencesPass
from samba_onnx.pef.manifest import DynamicDimension, PassSummary

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
    """Shapes of inputs, by name; None and names leave a dimension as it is."""


@dataclass(frozen=True)
class PipelineResult:
    """A model that is ready for placement."""

    model: ir.Model
    passes: tuple[PassSummary, ...]
    """What each pass did, in the order in which they ran."""
    weight_names: frozenset[str]
    """Initializers that hold the user's weights, as given or folded; the others are constants."""
    dynamic_dimensions: tuple[DynamicDimension, ...]
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
    repetition: int = 0
    """Neighbours of one number run in their order, again and again until none changes anything; those
    of 0 run once."""


MOST_ROUNDS = 6
"""Times that entries are repeated at most; real models need three or four."""


def _plain(make: Callable[[], ir.passes.PassBase], *, training: bool = True) -> PassEntry:
    return PassEntry(lambda context: make(), training=training)


def _only_running(entries: tuple[PassEntry, ...]) -> tuple[PassEntry, ...]:
    return tuple(replace(entry, training=False) for entry in entries)


def _repeated(number: int, *entries: PassEntry) -> tuple[PassEntry, ...]:
    return tuple(replace(entry, repetition=number) for entry in entries)


def _lift_weights(context: PassContext) -> ir.passes.PassBase:
    if context.lift_weights is None:
        raise InternalError("a model is prepared for training without a choice of its weights")
    return context.lift_weights


_INFER = PassEntry(lambda context: InferShapesPass(), static_outputs=True)

_SIMPLIFY: tuple[PassEntry, ...] = (
    _plain(FoldShapesPass),
    _plain(FoldConstantsPass),
    _plain(InlineBranchesPass),
    _plain(UnpackSequencesPass),
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
        lambda context: BindDimensionsPass(context.options.dims, context.options.input_shapes),
        training=False,  # a module of torch's takes any size
        static_inputs=True,
        static_outputs=True,
    ),  # early: everything after it sees static dimensions
    _plain(InlineFunctionsPass),  # before conversion, which sees calls only as they are
    _plain(TopologicalSortPass),
    _plain(LiftConstantsPass),  # before inference: it hides large initializers, not large Constants
    _INFER,  # conversion needs ranks and types
    PassEntry(lambda context: InferForeignTypesPass(), static_outputs=True),
    _plain(ConvertOpsetPass),
    _INFER,
    *_only_running(_SIMPLIFY),  # weights that will be trained are initializers still
    *_EXPAND,  # after inference: bodies depend on types
    *_EXPAND,
    *_EXPAND,
    # As inputs they stay whole from here on.
    PassEntry(_lift_weights, running=False, adds_inputs=True),
    *_repeated(
        1,
        # Again when its operands have become constants. Its statistics move in training, and its
        # scale is trained.
        _plain(FoldBatchNormalizationPass, training=False),
        # Before folding, which may take the Transpose of a tied weight.
        _plain(FoldTransposesPass, training=False),
        *_SIMPLIFY,
        _INFER,  # folded shapes make more shapes known
    ),
    # Behind: which weights nothing else reads is known when everything is folded.
    _plain(MergeLinearsPass, training=False),
    *_repeated(2, _plain(HoistOverSplitPass, training=False), *_SIMPLIFY, _INFER),
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
    progress: Callable[[str], None] | None = None,
) -> PipelineResult:
    """Run every pass that prepares a model for running on ``model``, in place.

    Args:
        model: A checked model; weights are not read.
        target: Decides which operators are expanded.
        options: Sizes of dynamic dimensions.
        progress: Called with the name of each pass before it runs.

    Returns:
        The model with what happened to it.

    Raises:
        UsageError: The options name unknown dimensions or inputs, or contradict the model.
        InternalError: A pass failed or changed the interface.
    """
    defaults = _hide_defaults(model)
    _mark_weights(model)
    runner = _Runner(model, progress)
    runner.run(RUNNING, PassContext(target, options or PipelineOptions()))
    for value, tensor in defaults.items():
        value.const_value = tensor
        model.graph.register_initializer(value)
    notes = [note for later in runner.notes.values() for note in dict.fromkeys(later)]
    if defaults:
        names = ", ".join(sorted(str(value.name) for value in defaults)[:3])
        notes.append(
            f"{len(defaults)} inputs have defaults ({names}{', ...' if len(defaults) > 3 else ''}) "
            "and stay inputs; they are not folded"
        )
    return PipelineResult(
        model=model,
        passes=tuple(runner.summaries),
        weight_names=frozenset(
            name for name, value in model.graph.initializers.items() if value.meta.get(WEIGHT)
        ),
        dynamic_dimensions=dynamic_dimensions(model),
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
        for repetition, neighbours in itertools.groupby(entries, lambda entry: entry.repetition):
            group = list(neighbours)
            for _ in range(MOST_ROUNDS if repetition else 1):
                changes = self._changes
                for entry in group:
                    self._run(entry, entry.make(context))
                if changes == self._changes:
                    break

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
        origins = origins_of(self.model)
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
        inherit_metadata(self.model, origins)
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
            defaults[value] = value.const_value
            del graph.initializers[value.name]
            value.const_value = None
    return defaults


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


def dynamic_dimensions(model: ir.Model) -> tuple[DynamicDimension, ...]:
    """Return the inputs' dimensions that are not static, with the option that would make them so."""
    named: dict[str, list[str]] = {}
    nameless: list[DynamicDimension] = []
    for value in model.graph.inputs:
        if value.shape is None:
            continue
        example = ",".join(str(dim) if isinstance(dim, int) else "1" for dim in value.shape)
        for axis, dim in enumerate(value.shape):
            if isinstance(dim, int):
                continue
            place = f"{value.name}[{axis}]"
            if dim.value is None:
                option = f"--input-shape {value.name}={example}"
                nameless.append(DynamicDimension("", (place,), option))
            else:
                named.setdefault(dim.value, []).append(place)
    dimensions = [
        DynamicDimension(name, tuple(places), f"--dim {name}=1") for name, places in named.items()
    ]
    return (*dimensions, *nameless)
