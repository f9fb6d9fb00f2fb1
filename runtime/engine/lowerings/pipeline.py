"""All lowerings in the order in which they run, and the one place that runs them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from samba_onnx.runtime.engine.lowerings.batch_statistics import copy_running_statistics
from samba_onnx.runtime.engine.lowerings.bfloat16 import lower_stage_bfloat16
from samba_onnx.runtime.engine.lowerings.blocked_convolutions import block_convolutions
from samba_onnx.runtime.engine.lowerings.dropout_masks import expand_dropout_masks
from samba_onnx.runtime.engine.lowerings.elementwise_blocks import take_out_components
from samba_onnx.runtime.engine.lowerings.final_reshapes import shed_stage_reshapes
from samba_onnx.runtime.engine.lowerings.final_scatters import scatter_stage_in_place
from samba_onnx.runtime.engine.lowerings.function_bodies import expand_function_bodies
from samba_onnx.runtime.engine.lowerings.input_gradients import multiply_input_gradients
from samba_onnx.runtime.engine.lowerings.long_statistics import write_statistics
from samba_onnx.runtime.engine.lowerings.long_sums import add_in_stages
from samba_onnx.runtime.engine.lowerings.missing_kernels import compute_missing_kernels
from samba_onnx.runtime.engine.lowerings.node_order import put_results_first
from samba_onnx.runtime.engine.lowerings.open_branches import open_branches
from samba_onnx.runtime.engine.lowerings.optimizer_faults import disable_faulty_optimizers
from samba_onnx.runtime.engine.lowerings.recurrent_layers import lower_recurrent_layers
from samba_onnx.runtime.engine.lowerings.short_expands import concatenate_short_expands
from samba_onnx.runtime.engine.lowerings.small_convolutions import multiply_small_convolutions
from samba_onnx.runtime.engine.lowerings.stage_model import StageModel, on_model, with_blocks
from samba_onnx.runtime.engine.lowerings.stochastic_rounds import expand_stochastic_rounds
from samba_onnx.runtime.engine.lowerings.unsigned_weights import make_weights_unsigned
from samba_onnx.runtime.engine.lowerings.weight_gradients import multiply_weight_gradients


@dataclass(frozen=True)
class Lowering:
    """One step on the way from plain ONNX to a session."""

    name: str
    reason: str
    """Why it exists: what onnxruntime lacks, does slowly or does wrong."""
    apply: Callable[[StageModel], None]
    """Changes a stage in place, or leaves it as it is."""
    device_only: bool = False
    """Whether it only makes stages in device memory faster or smaller."""


LOWERINGS: Final[tuple[Lowering, ...]] = (
    Lowering(
        "dropout masks",
        "samba::DropoutMask is an operator of this product; no onnxruntime has it.",
        on_model(expand_dropout_masks),
    ),
    # While shapes are known, and before bfloat16, which makes float32 of what this returns.
    Lowering(
        "stochastic rounds",
        "samba::StochasticRound is an operator of this product; no onnxruntime has it.",
        on_model(expand_stochastic_rounds),
    ),
    # Forms for kernels that onnxruntime lacks or that are slow stand here, before anything loses
    # the types and shapes of inner values, which bfloat16 does. The gradients come before small
    # convolutions, some of which they are, too.
    # Before missing kernels and bfloat16, which write more into bodies than layers have.
    Lowering(
        "recurrent layers",
        "onnxruntime executes the body of a Scan with a kernel per operator, its LSTM, GRU and RNN with one for all.",
        on_model(lower_recurrent_layers),
        device_only=True,
    ),
    Lowering(
        "weight gradients",
        "onnxruntime's convolutions are slow for a window that is as large as the picture.",
        with_blocks(multiply_weight_gradients),
        device_only=True,
    ),
    Lowering(
        "input gradients",
        "onnxruntime reads the weight of a transposed convolution once per picture.",
        on_model(multiply_input_gradients),
        device_only=True,
    ),
    Lowering(
        "short expands",
        "onnxruntime's Expand copies row by row, however short.",
        on_model(concatenate_short_expands),
        device_only=True,
    ),
    Lowering(
        "batch statistics",
        "onnxruntime writes new running statistics over those that other nodes and callers read.",
        on_model(copy_running_statistics),
    ),
    # Before missing kernels, which then see what bodies are made of.
    Lowering(
        "function bodies",
        "onnxruntime has no kernel for some operators that ONNX defines by others, or means another remainder.",
        on_model(expand_function_bodies),
    ),
    # Before bfloat16, which loses the types by which it knows tensors.
    Lowering(
        "open branches",
        "onnxruntime refuses a branch that does not fit static sizes, although it is never taken.",
        on_model(open_branches),
    ),
    Lowering(
        "missing kernels",
        "onnxruntime has no kernel for some operators on some types.",
        on_model(compute_missing_kernels),
    ),
    # While types are known, without which nobody tells a weight of int8 from one of uint8.
    Lowering(
        "unsigned weights",
        "onnxruntime's products of uint8 and int8 saturate in 16 bits on x86 with AVX2 and without VNNI.",
        on_model(make_weights_unsigned),
    ),
    # Components are taken out before bfloat16 makes float32 of it: in blocks it is lowered, too.
    Lowering(
        "elementwise blocks",
        "onnxruntime moves every intermediate value of an optimizer's step through main memory.",
        take_out_components,
        device_only=True,
    ),
    Lowering(
        "bfloat16",
        "onnxruntime's CPU kernels mostly lack it; the device rounds every result to it.",
        lower_stage_bfloat16,
    ),
    # While shapes of 16 bits are known, too, and before long sums, which it makes some of.
    Lowering(
        "long statistics",
        "onnxruntime's means and variances of many numbers lose digits that torch keeps.",
        on_model(write_statistics),
    ),
    # After bfloat16, so that what the first of two stages returns is not rounded to it.
    Lowering(
        "long sums",
        "onnxruntime adds number after number, so that long sums lose digits that torch keeps.",
        on_model(add_in_stages),
    ),
    # After bfloat16, whose convolutions round once, while a product and a sum would round twice.
    Lowering(
        "small convolutions",
        "onnxruntime reads the weight of a convolution once per picture, however few positions.",
        on_model(multiply_small_convolutions),
        device_only=True,
    ),
    # Behind them, which are quicker than blocks where both apply.
    Lowering(
        "blocked convolutions",
        "onnxruntime lays the windows of a convolution out in memory, unless its weights are constant.",
        with_blocks(block_convolutions),
        device_only=True,
    ),
    Lowering(
        "final reshapes",
        "onnxruntime copies an output that is reshaped last.",
        shed_stage_reshapes,
        device_only=True,
    ),
    # After the reshapes, which may stand between a scatter and its output.
    Lowering(
        "final scatters",
        "onnxruntime copies the operand of a scatter to the output before it writes to it.",
        scatter_stage_in_place,
        device_only=True,
    ),
    Lowering(
        "node order",
        "onnxruntime keeps what the last weights' gradients need until all others are there.",
        on_model(put_results_first),
        device_only=True,
    ),
    # Last: it looks at the nodes that onnxruntime gets.
    Lowering(
        "optimizer faults",
        "onnxruntime fuses Pad with MaxPool, and Transpose with a product by a vector, wrongly; before "
        "1.27 it takes empty operands for neutral ones, and before 1.30 it loses means of normalisations.",
        disable_faulty_optimizers,
    ),
)


def lower(stage: StageModel, lowerings: Sequence[Lowering] = LOWERINGS) -> None:
    """Run lowerings, in their order.

    Args:
        stage: Is changed in place.
        lowerings: What runs; the ones for the device only where the stage is in its memory.

    Raises:
        ExecutionError: A lowering cannot do what the model needs.
        PefFormatError: A node of this product's own operators has wrong inputs or attributes.
    """
    for lowering in lowerings:
        if stage.memory is not None or not lowering.device_only:
            lowering.apply(stage)
