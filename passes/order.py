"""The passes in their order, and which of them prepare a model for running or for training."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

import onnx_ir as ir
from onnx_ir.passes.common import TopologicalSortPass

from samba_onnx.errors import InternalError
from samba_onnx.facts.precisions import Precision
from samba_onnx.passes.rewrites.assume_lengths import AssumeLengthsPass
from samba_onnx.passes.rewrites.batch_scans import BatchScansPass
from samba_onnx.passes.rewrites.bind_dimensions import (
    BindDimensionsPass,
    BindOutputsPass,
)
from samba_onnx.passes.rewrites.convert_opset import ConvertOpsetPass
from samba_onnx.passes.rewrites.correct_shapes import CorrectShapesPass
from samba_onnx.passes.rewrites.drop_empty_operands import DropEmptyOperandsPass
from samba_onnx.passes.rewrites.drop_empty_pieces import DropEmptyPiecesPass
from samba_onnx.passes.rewrites.drop_zero_states import DropZeroStatesPass
from samba_onnx.passes.rewrites.expand_blocked_layouts import ExpandBlockedLayoutsPass
from samba_onnx.passes.rewrites.expand_foreign import ExpandForeignPass
from samba_onnx.passes.rewrites.expand_functions import ExpandFunctionsPass
from samba_onnx.passes.rewrites.expand_quantization import ExpandQuantizationPass
from samba_onnx.passes.rewrites.fix_names import FixNamesPass
from samba_onnx.passes.rewrites.fold_batch_normalization import FoldBatchNormalizationPass
from samba_onnx.passes.rewrites.fold_constants import FoldConstantsPass
from samba_onnx.passes.rewrites.fold_dequantization import FoldDequantizationPass
from samba_onnx.passes.rewrites.fold_shapes import FoldShapesPass
from samba_onnx.passes.rewrites.fold_transposes import FoldTransposesPass
from samba_onnx.passes.rewrites.forget_shapes import ForgetShapesPass
from samba_onnx.passes.rewrites.hoist_over_split import HoistOverSplitPass
from samba_onnx.passes.rewrites.infer_foreign_types import InferForeignTypesPass
from samba_onnx.passes.rewrites.infer_shapes import InferShapesPass
from samba_onnx.passes.rewrites.inline_branches import InlineBranchesPass
from samba_onnx.passes.rewrites.inline_functions import InlineFunctionsPass
from samba_onnx.passes.rewrites.interface import Dimension
from samba_onnx.passes.rewrites.legalisation.legalise import LegalisePass
from samba_onnx.passes.rewrites.legalisation.narrowing import NarrowPass
from samba_onnx.passes.rewrites.lift_constants import LiftConstantsPass
from samba_onnx.passes.rewrites.merge_duplicates import MergeInitializersPass, MergeNodesPass
from samba_onnx.passes.rewrites.merge_linears import MergeLinearsPass
from samba_onnx.passes.rewrites.merge_reshaped_transposes import MergeReshapedTransposesPass
from samba_onnx.passes.rewrites.normalise_loops import NormaliseLoopsPass
from samba_onnx.passes.rewrites.reduce_precision import ReducePrecisionPass
from samba_onnx.passes.rewrites.refuse_giants import RefuseGiantsPass
from samba_onnx.passes.rewrites.refuse_impossible import RefuseImpossiblePass
from samba_onnx.passes.rewrites.refuse_indices import RefuseIndicesPass
from samba_onnx.passes.rewrites.refuse_types import RefuseTypesPass
from samba_onnx.passes.rewrites.remove_noops import RemoveNoopsPass
from samba_onnx.passes.rewrites.remove_unused_nodes import RemoveUnusedNodesPass
from samba_onnx.passes.rewrites.replace_float16 import ReplaceFloat16Pass
from samba_onnx.passes.rewrites.return_stacks import ReturnStacksPass
from samba_onnx.passes.rewrites.simplify_concats import SimplifyConcatsPass
from samba_onnx.passes.rewrites.unpack_sequences import UnpackSequencesPass
from samba_onnx.passes.rewrites.unroll_loops import UnrollLoopsPass

if TYPE_CHECKING:
    from samba_onnx.passes.rewrites.expand_functions import Knows
    from samba_onnx.passes.rewrites.legalisation.legalise import Chooser


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
    float16: ir.DataType | None = None
    """Type in which float16 is computed; None leaves it as it is."""
    precision: Precision = Precision.FP32
    """In which types the operators compute that state float32."""
    keep_linears: bool = False
    """Whether linear layers of one operand stay apart, for rules of fusion that name each of them."""


@dataclass(frozen=True)
class PassContext:
    """What passes are made of."""

    target: Knows
    """Decides which operators are expanded."""
    options: PipelineOptions = field(default_factory=PipelineOptions)
    lift_weights: ir.passes.PassBase | None = None
    """Makes inputs of the weights of a model that is to be trained."""
    chooser: Chooser | None = None
    """Decides which nodes that the target refuses are rewritten; None leaves all."""


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
    corrects_outputs: bool = False
    """It may give graph outputs other shapes than the model states."""
    since: int = 0
    """Oldest default operator set in whose words it writes; it leaves out a model that cannot leave an older one."""
    repetition: int = 0
    """Neighbours of one number run in their order, again and again until none changes anything; those
    of 0 run once."""


def _plain(
    make: Callable[[], ir.passes.PassBase], *, training: bool = True, since: int = 0
) -> PassEntry:
    return PassEntry(lambda context: make(), training=training, since=since)


def _only_running(entries: tuple[PassEntry, ...]) -> tuple[PassEntry, ...]:
    return tuple(replace(entry, training=False) for entry in entries)


def _repeated(number: int, *entries: PassEntry) -> tuple[PassEntry, ...]:
    return tuple(replace(entry, repetition=number) for entry in entries)


def _lift_weights(context: PassContext) -> ir.passes.PassBase:
    if context.lift_weights is None:
        raise InternalError("a model is prepared for training without a choice of its weights")
    return context.lift_weights


_AXES_ARE_OPERANDS: Final = 13
"""From this operator set on, axes of Unsqueeze and Squeeze and sizes of Split are operands."""
_ALL_AXES_ARE_OPERANDS: Final = 18
"""From this operator set on, those of all reductions are."""

_INFER = PassEntry(lambda context: InferShapesPass(), static_outputs=True)
_CORRECT = PassEntry(
    lambda context: CorrectShapesPass(), training=False, static_outputs=True, corrects_outputs=True
)

_INFER_FOREIGN = PassEntry(lambda context: InferForeignTypesPass(), static_outputs=True)


def _unroll_first(context: PassContext) -> ir.passes.PassBase:
    # Bodies keep the types that they have: a precision is reduced in the steps, as far as these are unrolled.
    keeps = context.target.repeats_bodies and context.options.precision.is_own
    return UnrollLoopsPass(context.target, keeps_long=keeps)


def _unroll(context: PassContext) -> ir.passes.PassBase:
    return UnrollLoopsPass(context.target, keeps_long=context.target.repeats_bodies)


def _simplify(unroll: Callable[[PassContext], ir.passes.PassBase]) -> tuple[PassEntry, ...]:
    return (
        _plain(FoldShapesPass),
        _plain(FoldConstantsPass),
        # What takes the place of a node with graphs may be known better than what that node returns.
        PassEntry(lambda context: InlineBranchesPass(), static_outputs=True),
        # Before: what counts its steps is a loop whose steps are known.
        _plain(NormaliseLoopsPass, training=False),
        # Before: a Scan that is computed at once is no steps. Not for training: modules loop as the model does.
        _plain(BatchScansPass, training=False, since=_ALL_AXES_ARE_OPERANDS),
        PassEntry(unroll, training=False, static_outputs=True),
        _plain(UnpackSequencesPass, since=_AXES_ARE_OPERANDS),  # behind: steps write into sequences
        # Behind: of a loop that is unrolled, the sequence itself is put together in the order that readers want.
        _plain(ReturnStacksPass, training=False),
        _plain(DropEmptyPiecesPass),
        _plain(SimplifyConcatsPass),
        _plain(DropZeroStatesPass),
        _plain(RemoveNoopsPass),
        # Before nodes: equal operands make equal nodes. Not for training: what is equal now is
        # trained apart, or holds state of its own.
        _plain(MergeInitializersPass, training=False),
        _plain(MergeNodesPass, training=False),
        _plain(RemoveUnusedNodesPass),
    )


_SIMPLIFY = _simplify(_unroll)

_EXPAND: tuple[PassEntry, ...] = (
    # Before: bodies may be left. What it expands may make outputs known.
    PassEntry(lambda context: ExpandForeignPass(context.target), static_outputs=True),
    PassEntry(lambda context: ExpandFunctionsPass(context.target)),
    _plain(LiftConstantsPass),  # bodies hold Constant nodes
    _INFER,
    _plain(ConvertOpsetPass),  # again: bodies are of their own version, and an operator that was
    _INFER,  # too new for the conversion may be expanded now
)

PIPELINE: tuple[PassEntry, ...] = (
    _plain(ForgetShapesPass),  # before dimensions are bound: afterwards the model may look static
    PassEntry(
        lambda context: AssumeLengthsPass(
            context.options.dims, context.options.input_shapes, context.options.assumed_size
        ),
        training=False,
    ),  # before dimensions are bound, which it says the lengths for
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
    _INFER_FOREIGN,
    # While nodes are those of the model; not for training, which takes any size.
    _plain(RefuseImpossiblePass, training=False),
    # Behind: an impossible node has no shape that follows. Before the conversion, which asks for shapes.
    _CORRECT,
    _plain(RefuseGiantsPass, training=False),  # behind: a wrong statement is no giant
    # Ranks that follow from what is folded below are known when it comes again.
    PassEntry(lambda context: ConvertOpsetPass(waits_for_ranks=True)),
    _plain(DropEmptyOperandsPass),  # behind: older versions have all operands
    _INFER,
    # Before anything is folded: what is computed from constants is rounded as what runs is. Behind the
    # conversion, which sees to it that Cast names its type by a number.
    PassEntry(lambda context: ReplaceFloat16Pass(context.options.float16), training=False),
    *_only_running(_simplify(_unroll_first)),  # weights that will be trained are initializers still
    _plain(ExpandBlockedLayoutsPass),
    *_EXPAND,  # after inference: bodies depend on types
    *_EXPAND,
    *_EXPAND,
    # Behind the expansions: an operator rounds once, whatever the model wrote it with. Before the weights
    # are folded, which then are rounded as what runs is.
    PassEntry(lambda context: ReducePrecisionPass(context.options.precision), training=False),
    # As inputs they stay whole from here on.
    PassEntry(_lift_weights, running=False, adds_inputs=True),
    *_repeated(
        1,
        # First: other passes see numbers then. In training it would be trained as it is.
        PassEntry(lambda context: FoldDequantizationPass(context.target), training=False),
        # Behind: what it finds is computed at run time, with scales that are constants by now.
        PassEntry(
            lambda context: ExpandQuantizationPass(context.target),
            training=False,
            since=_AXES_ARE_OPERANDS,
        ),
        # Again when its operands have become constants. Its statistics move in training, and its
        # scale is trained.
        _plain(FoldBatchNormalizationPass, training=False),
        # Before folding, which may take the Transpose of a tied weight.
        _plain(FoldTransposesPass, training=False),
        *_SIMPLIFY,
        _INFER,  # folded shapes make more shapes known
        # Again: shapes that are computed between two operators of onnxruntime's are numbers by now.
        _INFER_FOREIGN,
    ),
    _CORRECT,  # shapes that follow from numbers that were computed until now
    # What is still unknown of an output is what the model says of it.
    PassEntry(lambda context: BindOutputsPass(), training=False, static_outputs=True),
    # Again, behind the corrected shapes.
    PassEntry(lambda context: RefuseImpossiblePass(folded=True), training=False),
    # Before the rules: reports say by name which nodes they took or left.
    _plain(FixNamesPass, training=False),
    # Behind: rules need static shapes and constants; a node that folds is no fallback.
    PassEntry(lambda context: NarrowPass(context.chooser), training=False),
    # Behind: what is of a type that the target has may need other operators. A body that is unrolled may
    # make an output known.
    PassEntry(lambda context: LegalisePass(context.chooser), training=False, static_outputs=True),
    *_repeated(4, *_only_running(_SIMPLIFY), PassEntry(_INFER.make, training=False)),
    # Behind: which weights nothing else reads is known when everything is folded.
    PassEntry(
        lambda context: MergeLinearsPass(context.options.keep_linears),
        training=False,
        since=_AXES_ARE_OPERANDS,
    ),
    *_repeated(
        2, _plain(HoistOverSplitPass, training=False, since=_AXES_ARE_OPERANDS), *_SIMPLIFY, _INFER
    ),
    # Behind: keys are split off in one order with queries and values.
    *_repeated(3, _plain(MergeReshapedTransposesPass, training=False), *_SIMPLIFY, _INFER),
    # Behind: indices that are computed from sizes are numbers by now.
    _plain(RefuseIndicesPass, training=False),
    _plain(TopologicalSortPass),
    # Last: names must be unique however they came about. Modules tell values apart without names.
    _plain(FixNamesPass, training=False),
    _INFER,
    _plain(RefuseGiantsPass, training=False),
    _plain(RefuseTypesPass, training=False),
)
"""All passes in their order, for running and for training."""

RUNNING = tuple(entry for entry in PIPELINE if entry.running)
"""The passes that prepare a model for running on a target."""

TRAINING = tuple(entry for entry in PIPELINE if entry.training)
"""The passes that prepare a model for training as a module of torch's."""
