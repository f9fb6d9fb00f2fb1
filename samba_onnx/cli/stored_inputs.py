"""Options of commands that compare numbers: inputs from files, and tolerances."""

from __future__ import annotations

from typing import Annotated

import typer

InputFileOption = Annotated[
    list[str] | None,
    typer.Option(
        "--input",
        "-i",
        metavar="NAME=FILE",
        help="Array for an input, from .npy, .npz or .json, in place of a random one; "
        "repeatable; all inputs or none.",
    ),
]


RtolOption = Annotated[
    float | None,
    typer.Option(
        "--rtol",
        metavar="R",
        min=0.0,
        help="Relative tolerance, in place of that of the type; see docs/commands/verify.md.",
    ),
]


AtolOption = Annotated[
    float | None,
    typer.Option(
        "--atol",
        metavar="A",
        min=0.0,
        help="Absolute tolerance, per unit of an output's largest magnitude.",
    ),
]
