"""Options of a model: its sizes, its types, what is exported of it, and what is checked."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from samba_onnx.compiling.choices import Float16
from samba_onnx.compiling.option import CommandFlag, Front, option
from samba_onnx.compiling.sambaflow_arguments import Argument, compiler_row
from samba_onnx.compiling.texts import (
    read_constants,
    read_precision,
    read_shapes,
    read_sizes,
)
from samba_onnx.facts.precisions import PRESETS, Precision, preset_precision
from samba_onnx.facts.roundings import Rounding, roundings_of

__all__ = ["CheckOptions", "NumberOptions", "SampleOptions", "SizeOptions", "TrainingOptions"]

_FILES: Final = list[str]
_ONNX: Final = frozenset({Front.ONNX})
_TORCH: Final = frozenset({Front.TORCH})
_SHAPES: Final = "Shapes"
_PYTORCH: Final = "PyTorch models"

Sizes: TypeAlias = Mapping[str, int | Sequence[int]]
"""Sizes of dimensions by name: one, or one for each graph."""
InputShapes: TypeAlias = Mapping[str, tuple[int | str | None, ...]]
"""Shapes of inputs by name; None leaves a dimension as it is."""


@dataclass(frozen=True)
class SampleOptions:
    """The run of the original model whose inputs and outputs the PEF keeps."""

    # Three states: asked for, refused, and None, which leaves it to the size of the weights.
    sample: bool | None = option(
        None,
        "Keep a seeded input with the model's outputs in the PEF, so that it can test itself. Unless asked for, none "
        "is made of more than 1 GiB of weights.",
        flag=CommandFlag(bool, spelling="--sample/--no-sample", shows_default=False),
        writes=True,
        before=True,
    )
    # A limit by default: nobody should wait for an original that never ends, and a slow one is written without a sample.
    sample_seconds: float = option(
        60.0,
        "Give up the run that makes the sample after S seconds.",
        flag=CommandFlag(float, metavar="S", default=60.0),
        least=0.001,
        fronts=_ONNX,
        writes=True,
    )
    seed: int = option(
        0,
        "Seed of the random inputs.",
        flag=CommandFlag(int, metavar="N", default=0),
        least=0,
        fronts=_ONNX,
        writes=True,
    )
    # Not from files of settings (runs_code): a folder somebody else made must not start code.
    custom_ops: str | os.PathLike[str] | Sequence[str | os.PathLike[str]] = option(
        (),
        "Shared library with operators of custom domains for onnxruntime; its code is executed; repeatable.",
        flag=CommandFlag(_FILES, metavar="LIBRARY"),
        fronts=_ONNX,
        elsewhere="--custom-ops is for ONNX models: an export of torch's has no such operators",
        python="One, or several, for the sample and the trial; their code runs in child processes only.",
        writes=True,
        runs_code=True,
    )
    # No flag: whoever converts on a command line loads the PEF later, and wants to know now.
    trial: bool = option(
        True,
        "Try in another process if the emulator's engine can prepare what was compiled, and write nothing where it "
        "cannot.",
        fronts=_ONNX,
        python="False is for whoever loads the PEF onto a device at once.",
        writes=True,
    )


_NO_SIZES: Final = (
    "--dim, --input-shape, --sample-input, --keep-dynamic and --float16 are for ONNX models: sizes and types of a "
    "PyTorch model are those of its example inputs and weights"
)


@dataclass(frozen=True)
class SizeOptions:
    """Sizes of dynamic dimensions, and inputs that become constants."""

    dims: Sizes = option(
        {},
        "Size of a dynamic dimension; of several, each makes a graph of its own in one PEF; repeatable.",
        flag=CommandFlag(_FILES, "dim", metavar="NAME=SIZE[,SIZE...]"),
        panel=_SHAPES,
        read=read_sizes,
        fronts=_ONNX,
        elsewhere=_NO_SIZES,
        python='As {"batch": 8} or {"batch": (1, 8, 32)}; Device.run takes the graph that fits its inputs.',
    )
    input_shapes: InputShapes = option(
        {},
        "Set the shape of an input, as x=1,3,224,224; ? leaves a dimension as it is; repeatable.",
        flags=(
            CommandFlag(_FILES, "input_shape", metavar="INPUT=SIZES"),
            CommandFlag(
                _FILES,
                "sample_input",
                "Take the shape of an input from an array in .npy, or those of several from .npz; repeatable.",
                metavar="[INPUT=]FILE",
            ),
        ),
        panel=_SHAPES,
        read=read_shapes,
        fronts=_ONNX,
        elsewhere=_NO_SIZES,
        python='As {"x": (1, 3, 224, 224)}; an empty name stands for the only input, None for a dimension as it is.',
    )
    keep_dynamic: bool = option(
        False,
        "Leave other dimensions dynamic, for the CPU; without, sequences get a length, all others become 1.",
        flag=CommandFlag(bool, default=False),
        panel=_SHAPES,
        fronts=_ONNX,
        elsewhere=_NO_SIZES,
    )
    constants: Mapping[str, Any] = option(
        {},
        "Fix an input as a constant, as sr=16000, flag=true, sizes=[1,2] or table=table.npy; runs are not given it; "
        "repeatable.",
        flag=CommandFlag(_FILES, "constant", metavar="INPUT=VALUE"),
        panel=_SHAPES,
        read=read_constants,
        fronts=_ONNX,
        elsewhere=(
            "--constant is for ONNX models: of a PyTorch model, what is no tensor among its example inputs is a "
            "constant already, and a module around it can hold a tensor as a buffer"
        ),
        python='Values by name: an array of the input\'s type, or a number, truth value or nested list: {"sr": 16000}.',
    )


@dataclass(frozen=True)
class NumberOptions:
    """The types in which a model is computed."""

    float16: Float16 | None = option(
        None,
        "Compute float16 in float32, in bfloat16, or on the cpu; in float32 by default, if the target has it.",
        flag=CommandFlag(str, metavar="TYPE", shows_default=False),
        choices=Float16,
        fronts=_ONNX,
        elsewhere=_NO_SIZES,
    )
    precision: Precision = option(
        Precision.FP32,
        "Compute what states float32 in it (fp32, the default); in bfloat16 in matrix products and convolutions "
        "(mixed), in all that the model does not convert itself (bf16), or throughout (bf16-throughout).",
        flags=(
            CommandFlag(str, metavar="NAME", shows_default=False),
            CommandFlag(
                str,
                "graphamp_preset",
                "The same by SambaFlow's names: mp0, mp1, mp4 or default.",
                metavar="NAME",
                shows_default=False,
            ),
        ),
        read=read_precision,
        choices=Precision,
        before=True,
        python="Inputs and outputs stay float32.",
        settings=(
            compiler_row(
                "precision",
                "the same, by name",
                choices=tuple(map(str, Precision)),
                states=lambda given: read_precision(str(given)),
            ),
            compiler_row(
                "graphamp_preset",
                "types to compute in: those of the model, bfloat16 in matrix products, or throughout",
                choices=tuple(PRESETS),
                states=lambda given: preset_precision(str(given)),
            ),
        ),
    )
    stochastic_rounding: frozenset[Rounding] = option(
        frozenset(),
        "With --train, round to bfloat16 at random what optimizers store (steps), the sums that make gradients of "
        "weights (gradients), or of these convolution-gradients or bias-gradients; several with commas.",
        flag=CommandFlag(str, metavar="NAMES", shows_default=False),
        panel=_PYTORCH,
        accept=roundings_of,
        fronts=_TORCH,
        trains=True,
        elsewhere=(
            "--stochastic-rounding is about what training writes: give --train with it, or leave it out"
        ),
        python="Names with commas between them, or several names.",
        settings=(
            compiler_row(
                "enable_stochastic_rounding",
                "round at random what optimizers store in bfloat16",
                bool,
                experimental=True,
            ),
            compiler_row("enable_safe_stochastic_rounding", "the same", Any, experimental=True),
        ),
    )


@dataclass(frozen=True)
class CheckOptions:
    """What is compared before anything is written."""

    check_passes: bool = option(
        False,
        "Run the model after every pass of the compiler that changes it; at the first that changes its numbers, write "
        "the smallest part of the model that shows it, and no PEF.",
        flag=CommandFlag(bool, default=False),
        writes=True,
    )
    check: bool = option(
        True,
        "Compare what was exported with eager torch on the example inputs, and write nothing if it computes something "
        "else.",
        flag=CommandFlag(bool, spelling="--check/--no-check", default=True, shows_default=False),
        panel=_PYTORCH,
        fronts=_TORCH,
        elsewhere="--no-check is for PyTorch models; leave out the run of an ONNX model with --no-sample",
        writes=True,
    )


@dataclass(frozen=True)
class TrainingOptions:
    """What is exported of a PyTorch model."""

    train: bool = option(
        False,
        "The function returns a module, inputs and an optimizer: convert for training. The PEF carries no weights.",
        flag=CommandFlag(bool, default=False),
        panel=_PYTORCH,
        fronts=_TORCH,
        elsewhere=(
            "--train takes package.module:factory; an ONNX model is trained from Python, with samba.from_onnx"
        ),
        python=None,
    )
    # Code that is executed: it must come from the command line itself, like custom_ops.
    translations: Sequence[str] = option(
        (),
        "Python file that registers translations of your own operators of torch; it is executed; repeatable.",
        flag=CommandFlag(_FILES, metavar="FILE"),
        panel=_PYTORCH,
        fronts=_TORCH,
        elsewhere=(
            "--translations is for PyTorch models; operators of an ONNX model's custom domains come with --custom-ops"
        ),
        python=None,
        runs_code=True,
    )
    loss_indices: Sequence[int] | None = option(
        None,
        "With --train: an output that training starts from, counted from 0 over all outputs; may be given several "
        "times. Without, those that losses of torch made, or else all.",
        flag=CommandFlag(list[int], "loss_index", metavar="INDEX"),
        panel=_PYTORCH,
        fronts=_TORCH,
        trains=True,
        elsewhere="--loss-index is for --train: a program that only runs has no losses",
    )
    spatial_batches: int = option(
        0,
        "Map spatially: all sections on the RDU at once, and a run of N mini-batches, each of the size of the example "
        "inputs, one after the other along the first dimension.",
        flag=CommandFlag(
            int, metavar="N", spelling="--num-spatial-batches", shows_default=False, least=1
        ),
        panel=_PYTORCH,
        least=0,
        fronts=_TORCH,
        elsewhere=(
            "--num-spatial-batches is for PyTorch models; an ONNX model is mapped spatially from Python, as the module "
            "that samba.from_onnx makes of it"
        ),
        python="0 for section mapping.",
        settings=(
            Argument(
                "num_spatial_batches", "batches of a run in spatial mapping", kind=int, default=1
            ),
        ),
    )
