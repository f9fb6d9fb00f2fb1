"""Options of commands that compare numbers: inputs from files, and tolerances."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from samba_onnx.errors import UsageError

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
        help="Relative tolerance, in place of that of the type; see docs/cli.md.",
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


def input_arrays(pef: Any, texts: list[str] | None) -> dict[str, Any] | None:
    """Read input files.

    Args:
        pef: The open PEF whose inputs they are for.
        texts: As ``x=x.npy``, each.

    Returns:
        Arrays by the model's input names; None where there are no files, so that random ones are made.

    Raises:
        UsageError: A file does not fit, or an input has none.
    """
    if not texts:
        return None
    from samba_onnx.runtime.array_files import read_inputs
    from samba_onnx.runtime.inputs import InputSpec
    from samba_onnx.runtime.sized_graphs import SizedGraphs

    sizes = SizedGraphs(pef.manifest)
    names = pef.manifest.graphs[0].inputs
    wholes = {name: InputSpec(pef.symbol(name).whole()) for name in names}
    specs = sizes.specs() if sizes else wholes
    arrays = read_inputs(texts, specs, pef.manifest.fixed_inputs)
    missing = [f"{name} {spec}" for name, spec in specs.items() if name not in arrays]
    if missing:
        raise UsageError(f"no value for {'; '.join(missing)}: give all inputs, or none")
    return arrays
