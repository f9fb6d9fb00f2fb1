"""Options that several commands share, and what their text means."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Annotated

import typer

from samba_onnx.errors import UsageError

SHAPES = "Shapes"
LIMITS = "Limits: exit status 1 if exceeded"
OUTPUT = "Output"
TORCH = "PyTorch models"
SECTIONS = "Sections"

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
        help="Device: sn10, sn30, sn40l, or a TOML file of your own; "
        "conditions behind a colon, as sn30:4tiles (docs/timing.md).",
    ),
]
KernelLoopingOption = Annotated[
    bool,
    typer.Option(
        "--kernel-looping",
        help="Equal sections that follow each other are launched once, as with --target TARGET:kernel-looping.",
    ),
]
LevelOption = Annotated[
    str,
    typer.Option(
        "--level",
        metavar="o0|o1|o3",
        help="o0: a section per operator; o1: sections by rules of fusion; o3: sections as large as on-chip "
        "memory allows.",
    ),
]
PlacementOption = Annotated[
    str,
    typer.Option(
        "--placement",
        metavar="optimal|strict",
        help="optimal: nodes beside a fallback run on the CPU, too, where that saves time; strict: all "
        "that the target supports runs on the RDU.",
    ),
]
HostOption = Annotated[
    str,
    typer.Option(
        "--host",
        metavar="PROFILE",
        help="CPU that fallbacks' times are modelled for: default; measured, by samba-port calibrate; "
        "or a TOML file of your own.",
    ),
]
LegaliseOption = Annotated[
    str,
    typer.Option(
        "--legalise",
        metavar="auto|all|float64",
        help="auto: operators that the device lacks are written with others where that makes a run "
        "shorter; all: wherever it can be done; float64, or all,float64: float64 may be computed in "
        "float32, too, and verify says how far that is off (docs/legalisation.md).",
    ),
]
NoLegaliseOption = Annotated[
    list[str] | None,
    typer.Option(
        "--no-legalise",
        metavar="RULE",
        help="A rule of that which is not applied, as resize; or all; repeatable.",
    ),
]
DimOption = Annotated[
    list[str] | None,
    typer.Option(
        "--dim",
        metavar="NAME=SIZE[,SIZE...]",
        help="Size of a dynamic dimension; of several, each makes a graph of its own in one PEF; "
        "repeatable.",
        rich_help_panel=SHAPES,
    ),
]
InputShapeOption = Annotated[
    list[str] | None,
    typer.Option(
        "--input-shape",
        metavar="INPUT=SIZES",
        help="Set the shape of an input, as x=1,3,224,224; ? leaves a dimension as it is; "
        "repeatable.",
        rich_help_panel=SHAPES,
    ),
]
SampleInputOption = Annotated[
    list[str] | None,
    typer.Option(
        "--sample-input",
        metavar="[INPUT=]FILE",
        help="Take the shape of an input from an array in .npy, or those of several from .npz; "
        "repeatable.",
        rich_help_panel=SHAPES,
    ),
]
KeepDynamicOption = Annotated[
    bool,
    typer.Option(
        "--keep-dynamic",
        help="Leave other dimensions dynamic, for the CPU; without, they become 1.",
        rich_help_panel=SHAPES,
    ),
]
Float16Option = Annotated[
    str | None,
    typer.Option(
        "--float16",
        metavar="TYPE",
        help="Compute float16 in float32, in bfloat16, or on the cpu; in float32 by default, if the target "
        "has it.",
        show_default=False,
    ),
]
SpatialBatchesOption = Annotated[
    int | None,
    typer.Option(
        "--num-spatial-batches",
        metavar="N",
        min=1,
        show_default=False,
        help="Map spatially: all sections on the RDU at once, and a run of N mini-batches, each of the "
        "size of the example inputs, one after the other along the first dimension.",
        rich_help_panel=TORCH,
    ),
]
SeedOption = Annotated[
    int, typer.Option("--seed", metavar="N", min=0, help="Seed of the random inputs.")
]
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
        help="Shared library with operators of custom domains for onnxruntime; its code is executed; "
        "repeatable.",
    ),
]
TranslationsOption = Annotated[
    list[str] | None,
    typer.Option(
        "--translations",
        metavar="FILE",
        help="Python file that registers translations of your own operators of torch; it is executed; "
        "repeatable.",
        rich_help_panel=TORCH,
    ),
]
TrainOption = Annotated[
    bool,
    typer.Option(
        "--train",
        help="The function returns a module, inputs and an optimizer: convert for training. The "
        "PEF carries no weights.",
        rich_help_panel=TORCH,
    ),
]
LossOption = Annotated[
    list[int] | None,
    typer.Option(
        "--loss-index",
        metavar="INDEX",
        help="With --train: an output that training starts from, counted from 0 over all outputs; "
        "may be given several times. Without, those that losses of torch made, or else all.",
        rich_help_panel=TORCH,
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


def parse_dims(texts: Sequence[str] | None) -> dict[str, int]:
    """Read ``--dim`` options of one size each.

    Args:
        texts: As ``batch=8``.

    Returns:
        Sizes by dimension.

    Raises:
        UsageError: One is malformed, or names a dimension again with another size.
    """
    sizes: dict[str, int] = {}
    for text, name, choices in _named_sizes(texts):
        if len(choices) > 1:
            raise UsageError(f"--dim {text}: expected one size, as --dim {name}={choices[0]}")
        sizes[name] = choices[0]
    return sizes


def parse_sizes(texts: Sequence[str] | None) -> dict[str, int | tuple[int, ...]]:
    """Read ``--dim`` options, of which each may have several sizes.

    Args:
        texts: As ``batch=8`` or ``batch=1,8,32``.

    Returns:
        The size, or the sizes, by dimension.

    Raises:
        UsageError: One is malformed, or names a dimension again with other sizes.
    """
    return {
        name: choices if len(choices) > 1 else choices[0]
        for _, name, choices in _named_sizes(texts)
    }


def _named_sizes(texts: Sequence[str] | None) -> list[tuple[str, str, tuple[int, ...]]]:
    """Return each option with its name and sizes."""
    known: dict[str, tuple[int, ...]] = {}
    options = []
    for text in texts or ():
        name, _, sizes = text.rpartition("=")
        parts = sizes.split(",")
        if not name or not all(_is_size(part) for part in parts):
            raise UsageError(f"--dim {text}: expected NAME=SIZE, as --dim batch=8")
        choices = tuple(map(int, parts))
        if known.setdefault(name, choices) != choices:
            before = ",".join(map(str, known[name]))
            raise UsageError(f"--dim {text}: {name} is also set to {before}")
        options.append((text, name, choices))
    return options


def parse_input_shapes(texts: Sequence[str] | None) -> dict[str, tuple[int | str | None, ...]]:
    """Read ``--input-shape`` options.

    Args:
        texts: As ``x=1,3,224,224``; ``?`` leaves a dimension as it is, a word names it.

    Returns:
        Shapes by input.

    Raises:
        UsageError: One is malformed, or names an input again.
    """
    shapes: dict[str, tuple[int | str | None, ...]] = {}
    for text in texts or ():
        name, equals, sizes = text.rpartition("=")
        parts = [part.strip() for part in sizes.split(",")] if sizes.strip() else []
        if not equals or not name or not all(_is_dimension(part) for part in parts):
            raise UsageError(
                f"--input-shape {text}: expected INPUT=SIZES, as --input-shape x=1,3,224,224"
            )
        if name in shapes:
            raise UsageError(f"--input-shape {text}: the shape of {name} is given twice")
        shapes[name] = tuple(_dimension(part) for part in parts)
    return shapes


@dataclass(frozen=True)
class SectionLimits:
    """Which sections the user wants to execute; all where both are empty."""

    types: frozenset[str]
    """In upper case; sets, so that sections are executed in the order of the schedule."""
    ids: frozenset[int]


def parse_sections(types: Sequence[str] | None, ids: Sequence[str] | None) -> SectionLimits:
    """Read ``--section-types`` and ``--section-ids`` options.

    Args:
        types: As ``fwd,BCKWD``, each.
        ids: As ``0,1``, each.

    Raises:
        UsageError: One is malformed, or both are given.
    """
    kinds = [part.strip().upper() for text in types or () for part in text.split(",")]
    numbers = [part.strip() for text in ids or () for part in text.split(",")]
    if kinds and numbers:
        raise UsageError("--section-types and --section-ids were both given: give one of them")
    if not all(kinds):
        raise UsageError("--section-types: expected types, as --section-types FWD,BCKWD")
    if not all(number == "0" or _is_size(number) for number in numbers):
        raise UsageError(f"--section-ids {','.join(numbers)}: expected numbers, as 0,1")
    return SectionLimits(frozenset(kinds), frozenset(map(int, numbers)))


def _is_size(text: str) -> bool:
    # int() takes digits of all scripts, and any number of them: 18 fit into 64 bits.
    return text.isascii() and text.isdecimal() and 0 < len(text) < 19


def _is_dimension(text: str) -> bool:
    return text == "?" or _is_size(text) or text.isidentifier()


def _dimension(text: str) -> int | str | None:
    if text == "?":
        return None
    return int(text) if _is_size(text) else text


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
