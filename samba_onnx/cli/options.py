"""Options that several commands share, and what their text means."""

from __future__ import annotations

import re
from fractions import Fraction
from typing import Annotated

import typer

from samba_onnx.compiling.option import option_of
from samba_onnx.compiling.options import option_fields
from samba_onnx.errors import UsageError

SHAPES = "Shapes"
LIMITS = "Limits: exit status 1 if exceeded"
OUTPUT = "Output"
SECTIONS = "Sections"

_FIELDS = {name: option_of(field) for name, field in option_fields().items()}
"""What the options of a compilation say of themselves, where another command has one of them, too."""

ModelArgument = Annotated[str, typer.Argument(metavar="MODEL", help="An ONNX model.")]
PortableArgument = Annotated[
    str,
    typer.Argument(
        metavar="MODEL",
        help="An ONNX model; a .pt2 file of torch.export.save; package.module:factory, a function "
        "that returns a torch.nn.Module and its example inputs; or a config.json of Hugging Face, of "
        "which transformers builds a model with random weights.",
    ),
]
PefArgument = Annotated[str, typer.Argument(metavar="PEF", help="A converted model.")]
TargetOption = Annotated[
    str,
    typer.Option(
        "--target",
        metavar="TARGET",
        help=_FIELDS["target"].help,
    ),
]
SeedOption = Annotated[int, typer.Option("--seed", metavar="N", min=0, help=_FIELDS["seed"].help)]
ThreadsOption = Annotated[
    int | None,
    typer.Option("--threads", metavar="N", min=1, help="Threads; all cores if left out."),
]
EngineOption = Annotated[
    str,
    typer.Option(
        "--engine",
        metavar="ENGINE",
        help="What computes: onnxruntime; or reference, ONNX's own implementation, slow and exact.",
    ),
]
CustomOpsOption = Annotated[
    list[str] | None,
    typer.Option(
        "--custom-ops",
        metavar="LIBRARY",
        help=_FIELDS["custom_ops"].help,
    ),
]
TranslationsOption = Annotated[
    list[str] | None,
    typer.Option(
        "--translations",
        metavar="FILE",
        help=_FIELDS["translations"].help,
        rich_help_panel=_FIELDS["translations"].panel,
    ),
]
AnnotatedOption = Annotated[
    str | None,
    typer.Option(
        "--annotated",
        metavar="FILE.onnx",
        help="Write the original ONNX model with placement, section and reason as metadata of its "
        "nodes, for viewers of graphs.",
        rich_help_panel=OUTPUT,
    ),
]
JsonOption = Annotated[
    str | None,
    typer.Option(
        "--json",
        metavar="FILE",
        help="Write the answer as JSON, too; - prints it in place of the text.",
        rich_help_panel=OUTPUT,
    ),
]
MarkdownOption = Annotated[
    str | None,
    typer.Option(
        "--markdown",
        metavar="FILE",
        help="Write the report as Markdown, too; - prints it in place of the text.",
        rich_help_panel=OUTPUT,
    ),
]
HtmlOption = Annotated[
    str | None,
    typer.Option(
        "--html",
        metavar="FILE",
        help="Write a page, too: one file with charts, tables and the graph, which needs no network.",
        rich_help_panel=OUTPUT,
    ),
]
GithubOption = Annotated[
    bool,
    typer.Option(
        "--github",
        help="In a job of GitHub: the report into its summary, and at most ten annotations.",
        rich_help_panel=OUTPUT,
    ),
]
QuietOption = Annotated[
    bool,
    typer.Option("--quiet", "-q", help="Only the first line.", rich_help_panel=OUTPUT),
]
VerboseOption = Annotated[
    int,
    typer.Option(
        "--verbose",
        "-v",
        count=True,
        show_default=False,
        help="Whole tables; -vv shows where an error came from.",
        rich_help_panel=OUTPUT,
    ),
]

_FACTORS: dict[str, int] = {"": 1} | {
    prefix + binary: base**power
    for power, prefix in enumerate("kmgt", start=1)
    for binary, base in (("", 1000), ("i", 1024))
}
"""Bytes by prefix: of a thousand as in ``k``, of 1024 as in ``ki``."""


def parse_bytes(option: str, text: str | None) -> int | None:
    """Read a size.

    Args:
        option: For the message.
        text: As ``1048576``, ``1.5MB`` or ``200k``, with decimal prefixes, or ``10KiB``, with binary ones, in
            either case; None for no limit.

    Returns:
        Bytes, or None.

    Raises:
        UsageError: It is malformed.
    """
    if text is None:
        return None
    pattern = r"(\d{1,18}(?:\.\d{1,9})?) ?((?:[kmgt]i?)?)b?"
    match = re.fullmatch(pattern, text.strip().lower(), re.ASCII)
    if match is None:
        raise UsageError(f"{option} {text}: expected a number of bytes, as 1048576, 1.5MB or 10KiB")
    # Exact: as floats, 1.1 times a million is a little more than 1,100,000.
    return round(Fraction(match[1]) * _FACTORS[match[2]])
