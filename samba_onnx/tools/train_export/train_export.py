"""``samba-port train-export``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from samba_onnx.cli.display import Display, refuse_overwriting
from samba_onnx.cli.failures import EXIT_YES
from samba_onnx.cli.options import JsonOption, ModelArgument, QuietOption, VerboseOption
from samba_onnx.cli.progress import Activity
from samba_onnx.compiling.torch_loading import export_trained

if TYPE_CHECKING:
    from rich.console import RenderableType


def train_export(
    model: ModelArgument,
    checkpoint: Annotated[
        str,
        typer.Argument(
            metavar="CHECKPOINT",
            help="A state_dict of the trained model: .safetensors, or a file of torch.save.",
        ),
    ],
    output: Annotated[
        str | None,
        typer.Option(
            "--output",
            "-o",
            metavar="FILE",
            help="ONNX model to write; MODEL with suffix .trained.onnx by default.",
        ),
    ] = None,
    json: JsonOption = None,
    quiet: QuietOption = False,
    verbose: VerboseOption = 0,
) -> int:
    """Write trained weights into their ONNX model.

    The checkpoint is the state_dict of what samba.from_onnx returned, saved after
    samba.session.to_cpu. Everything but the content of its weights stays as it is in the model.
    Nothing but tensors is ever unpickled.

    Examples:
      samba-port train-export model.onnx checkpoint.safetensors
      samba-port train-export model.onnx checkpoint.pt -o trained.onnx
      samba-port train-export model.onnx checkpoint.pt --json -
    """
    destination = output or str(Path(model).with_suffix(".trained.onnx"))
    refuse_overwriting(
        model,
        checkpoint,
        outputs={"--output": destination, "its data": f"{destination}.data", "--json": json},
    )
    with Activity(quiet) as activity:
        written, kept = export_trained(model, checkpoint, destination, activity.step)

    from samba_onnx.report.units import byte_text, count_text, printable
    from samba_onnx.tools.train_export.train_export_report import TrainedModelReport

    size = Path(destination).stat().st_size
    report = TrainedModelReport(
        headline=(
            f"{printable(destination)}: {count_text(len(written), 'weight')} of "
            f"{len(written) + len(kept):,} written, {byte_text(size)}"
        ),
        model=Path(model).name,
        output=destination,
        written=written,
        kept=kept,
        bytes=size,
    )

    def content(rows: int | None) -> RenderableType:
        from rich.console import Group
        from rich.text import Text

        from samba_onnx.report.layout import table, titled

        parts: list[RenderableType] = [Text(report.headline, style="bold")]
        cells = [(name, "new") for name in written] + [(name, "as it was") for name in kept]
        parts += [Text(""), titled("Weights", table(("initializer", "content"), cells, limit=rows))]
        return Group(*parts)

    Display(json, quiet, verbose).show(report.headline, content, report)
    return EXIT_YES
