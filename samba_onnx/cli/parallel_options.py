"""The options that cut a program for several RDUs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from samba_onnx.errors import UsageError

if TYPE_CHECKING:
    from samba_onnx.passes.sharding.programs import ParallelOptions

__all__ = ["ChipsOption", "TensorParallelOption", "parallel_options"]

SEVERAL = "Several RDUs"

ChipsOption = Annotated[
    int,
    typer.Option(
        "--n-chips",
        metavar="N",
        help="RDUs that the program is cut for, up to 16.",
        rich_help_panel=SEVERAL,
    ),
]
TensorParallelOption = Annotated[
    str | None,
    typer.Option(
        "--tensor-parallel",
        metavar="weight|batch",
        show_default=False,
        help="weight: linear layers, heads of attention and embeddings are cut, as without this option; "
        "batch: the batch is, and every RDU has all weights (docs/tensor_parallel.md).",
        rich_help_panel=SEVERAL,
    ),
]


def parallel_options(chips: int, mode: str | None) -> ParallelOptions | None:
    """Return for how many RDUs a program is cut, and how; None for one.

    Args:
        chips: Number of RDUs.
        mode: ``weight`` or ``batch``; None for ``weight``.

    Raises:
        UsageError: The number or the mode is unknown, or there is a mode for one RDU.
    """
    if chips == 1:
        if mode is not None:
            raise UsageError(
                "--tensor-parallel cuts a program for several RDUs: say how many with --n-chips"
            )
        return None
    from samba_onnx.passes.sharding.programs import ParallelOptions

    return ParallelOptions(mode or "weight", chips)
