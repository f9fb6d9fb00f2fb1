"""In which types a model is to compute, on the command line."""

from __future__ import annotations

from typing import Annotated

import typer

from samba_onnx.cli.options import TORCH
from samba_onnx.errors import UsageError
from samba_onnx.facts.precisions import precision_of, preset_precision
from samba_onnx.facts.roundings import roundings_of

PrecisionOption = Annotated[
    str | None,
    typer.Option(
        "--precision",
        metavar="NAME",
        help="Compute what states float32 in it (fp32, the default); in bfloat16 in matrix products and "
        "convolutions (mixed), in all that the model does not convert itself (bf16), or throughout "
        "(bf16-throughout).",
        show_default=False,
    ),
]
PresetOption = Annotated[
    str | None,
    typer.Option(
        "--graphamp-preset",
        metavar="NAME",
        help="The same by SambaFlow's names: mp0, mp1, mp4 or default.",
        show_default=False,
    ),
]
RoundingOption = Annotated[
    str | None,
    typer.Option(
        "--stochastic-rounding",
        metavar="NAMES",
        help="With --train, round to bfloat16 at random what optimizers store (steps), the sums that make "
        "gradients of weights (gradients), or of these convolution-gradients or bias-gradients; several "
        "with commas.",
        show_default=False,
        rich_help_panel=TORCH,
    ),
]


def chosen_roundings(names: str | None, train: bool) -> str | None:
    """Return the names of what is rounded at random; None for nothing.

    Args:
        names: As the option has them.
        train: Whether the program trains.

    Raises:
        UsageError: A name is unknown, or the program does not train.
    """
    roundings_of(names)
    if names is not None and not train:
        raise UsageError(
            "--stochastic-rounding is about what training writes: give --train with it, or leave it out"
        )
    return names


def chosen_precision(precision: str | None, preset: str | None) -> str | None:
    """Return the precision that two options name; None where neither is stated.

    Args:
        precision: Its name.
        preset: SambaFlow's name for it.

    Raises:
        UsageError: There is no such precision or preset, or both are stated.
    """
    if preset is None:
        return None if precision is None else str(precision_of(precision))
    if precision is not None:
        raise UsageError("--precision and --graphamp-preset say the same: give one of them")
    return str(preset_precision(preset))
