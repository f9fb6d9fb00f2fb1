"""``samba-port example``."""

from __future__ import annotations

import math
import shlex
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from samba_onnx.cli.display import Display, refuse_overwriting, write_file
from samba_onnx.cli.failures import EXIT_YES
from samba_onnx.cli.options import JsonOption, QuietOption, VerboseOption

if TYPE_CHECKING:
    from rich.console import RenderableType

    from samba_onnx.tools.example.example_report import ExampleReport


class ExampleName(StrEnum):
    """The examples, called as their files in ``graphs`` are."""

    LSTM = "lstm"
    MLP = "mlp"
    TRANSFORMER = "transformer"
    DETECTOR = "detector"


def example(
    name: Annotated[
        ExampleName,
        typer.Argument(
            metavar="[NAME]",
            help="lstm: recurrent layers, which no RDU has; mlp: three layers; transformer: attention over a "
            "sequence; detector: convolutions and a choice of boxes that falls back to the CPU.",
        ),
    ] = ExampleName.LSTM,
    output: Annotated[
        str | None,
        typer.Option("--output", "-o", metavar="FILE", help="The model; NAME.onnx if left out."),
    ] = None,
    seed: Annotated[int, typer.Option("--seed", min=0, help="Of the random weights.")] = 0,
    json: JsonOption = None,
    quiet: QuietOption = False,
    verbose: VerboseOption = 0,
) -> int:
    """Write a small ONNX model to try commands with.

    Its graph is a text that comes with this package, its weights are random: nothing is fetched, and torch is not
    needed. One seed gives one file, byte for byte.

    Examples:
      samba-port example lstm
      samba-port example transformer -o t.onnx
      samba-port example detector --seed 3
    """
    path = output or f"{name.value}.onnx"
    refuse_overwriting(outputs={"--output": path, "--json": json})

    from samba_onnx.tools.example.example_report import ExampleReport
    from samba_onnx.tools.example.models import about, build

    model = build(name.value, seed)
    content = model.SerializeToString(deterministic=True)
    write_file(path, content)
    weights = sum(math.prod(tensor.dims) for tensor in model.graph.initializer)
    report = ExampleReport(
        headline=f"wrote {path}: {about(name.value)}",
        name=name.value,
        about=about(name.value),
        path=path,
        weights=weights,
        bytes=len(content),
        commands=_next(path),
    )
    Display(json, quiet, verbose).show(report.headline, lambda rows: _text(report), report)
    return EXIT_YES


def _next(path: str) -> tuple[str, ...]:
    """Return what to type behind it, in the order in which people do."""
    model, pef = shlex.quote(path), shlex.quote(str(Path(path).with_suffix(".pef")))
    return (
        f"samba-port convert {model} -o {pef}",
        f"samba-port run {pef} --random 0",
        f"samba-port verify {model} {pef}",
    )


def _text(report: ExampleReport) -> RenderableType:
    """Return the answer for people: what it is, and what to type next."""
    from rich.console import Group
    from rich.text import Text

    from samba_onnx.report.layout import indent, titled
    from samba_onnx.report.units import byte_text, printable

    size = f"{report.weights:,} random weights, {byte_text(report.bytes)}"
    lines = [Text(printable(command)) for command in report.commands]
    return Group(
        Text(printable(report.headline), style="bold"),
        indent(Text(size)),
        Text(""),
        titled("Go on with", *lines),
    )
