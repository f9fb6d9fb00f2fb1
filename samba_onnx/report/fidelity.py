"""Which share of a modelled time published rows validate, and how near they are (``docs/fidelity.md``).

A row validates a program on its own device, at its own level and number of RDUs, of about its operators, data types
and sizes. Everything else is a claim by structure: a Softmax makes no decoding, nor a backward pass a GPT-2.
"""

from __future__ import annotations

import functools
import math
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from samba_onnx.facts.families import REARRANGING
from samba_onnx.passes.timing.schedule_time import run_time
from samba_onnx.pef.manifest import Graph, Manifest
from samba_onnx.pef.target_summary import SUPPOSED
from samba_onnx.program.kinds import SectionType
from samba_onnx.report.units import printable

__all__ = [
    "PublishedProgram",
    "ValidatedShare",
    "coverage",
    "published_program",
    "signature",
    "validation",
]

_FILE: Final = Path(__file__).with_name("fidelity.toml")
_ALIKE: Final = 0.8
"""Share of operators, of those of either program, that programs have in common which a row says something about.
Versions of one model differ by an activation or a norm; an MLP has a fifth of what a decoder has."""
_BEYOND: Final = 2.0
"""Factor beyond the smallest and the largest published size within which sizes are those of published rows: their own
steps are of 1.5 to 6."""
_FLOATS: Final = ("bfloat16", "float", "float16", "double")


@dataclass(frozen=True)
class PublishedProgram:
    """What of a program decides whether published rows are about it, and the ratio of a row."""

    target: str
    """With its conditions, as ``sn30:4tiles``."""
    level: str
    training: bool
    rdus: int
    types: frozenset[str]
    """Floating-point types of its values, as ONNX names them."""
    operators: frozenset[str]
    """Without those that only give elements other places."""
    flops: int
    bytes: int
    """Moved in off-chip memory by one run."""
    id: str = ""
    ratio: float = 0.0
    """Modelled over published time, by a fit that has not seen the row."""

    def alike(self, other: PublishedProgram) -> float:
        """Return how many of the operators of both programs they have in common, as a share."""
        return len(self.operators & other.operators) / max(len(self.operators | other.operators), 1)


@dataclass(frozen=True)
class ValidatedShare:
    """How much of a modelled time published rows are about."""

    share: float
    """How much of the time of a run they are about, up to 1."""
    rows: tuple[PublishedProgram, ...]
    """The rows; none where the share is 0."""
    nearest: str
    """The row that is nearest to what they are not about; empty where none has any of its operators."""


def signature(manifest: Manifest) -> PublishedProgram:
    """Return what of a program decides which published rows are about it.

    Args:
        manifest: A PEF's manifest.
    """
    sections = manifest.sections
    used = {
        name
        for section in sections
        for name in (*section.inputs, *section.outputs, *section.weights)
    }
    types = {s.type.removeprefix("tensor(").rstrip(")") for s in manifest.symbols if s.name in used}
    return PublishedProgram(
        target=manifest.target.name,
        level=manifest.level,
        training=any(section.type is SectionType.BCKWD for section in sections),
        rdus=1 if manifest.parallel is None else manifest.parallel.rdus,
        types=frozenset(types.intersection(_FLOATS)),
        operators=frozenset(name for section in sections for name in section.operators)
        - REARRANGING,
        flops=sum(section.flops for section in sections),
        bytes=sum(section.bytes for section in sections),
    )


def coverage(manifest: Manifest, graphs: Sequence[Graph]) -> ValidatedShare:
    """Return which share of the modelled time of runs published rows are about, and which rows these are.

    Args:
        manifest: A PEF's manifest.
        graphs: The graphs that are run.
    """
    own = signature(manifest)
    # A device with other figures is none on which anything was measured.
    supposed = any(assumption.note == SUPPOSED for assumption in manifest.target.assumptions)
    like = () if supposed else _about(own)
    total = sum(run_time(manifest, graph).total for graph in graphs)
    known = frozenset[str]().union(*(row.operators for row in like), REARRANGING)
    seconds = covered = 0.0
    sections = {section.id: section for section in manifest.sections}
    for call in (call for graph in graphs for call in graph.calls):
        section = sections.get(call.stage)
        # A fallback, or an exchange, whose time is that of a transfer.
        if section is not None:
            seconds += section.seconds
            covered += section.seconds if section.operators.keys() <= known else 0.0
    on_rdu = sum(run_time(manifest, graph).on_rdu for graph in graphs)
    share = on_rdu * covered / (seconds * total) if like and seconds and total else 0.0
    # Copies to and from the host, and fallbacks, are in no published row.
    return ValidatedShare(min(share, 1.0), like if share else (), _nearest(own))


def validation(manifest: Manifest, graphs: Sequence[Graph] = ()) -> str:
    """Return in a sentence what is known of the error of modelled times.

    Args:
        manifest: A PEF's manifest.
        graphs: The graphs that are run; all of the PEF's when left out.
    """
    known = coverage(manifest, graphs or manifest.graphs)
    nearest = f"; the nearest published row is {known.nearest}" if known.nearest else ""
    if not known.rows:
        return f"not validated on this device{nearest}"
    ratios = [row.ratio for row in known.rows]
    band = f"{min(ratios):.2f} to {max(ratios):.2f} times the measured ones"
    rows = f"{len(ratios)} published row{'s' if len(ratios) > 1 else ''}"
    text = f"{known.share:.0%} as in {rows}, whose times by a fit without them are {band}"
    return text if known.share > 0.995 else f"{text}; the rest is not validated on this device"


def _about(own: PublishedProgram) -> tuple[PublishedProgram, ...]:
    """Return the rows on the program's device, at its level, of its operators; none outside of their sizes."""
    like = tuple(
        row
        for row in _published()
        if (row.target, row.level, row.training, row.rdus, row.types)
        == (own.target, own.level, own.training, own.rdus, own.types)
        and row.alike(own) >= _ALIKE
    )
    sizes = [(row.flops, row.bytes, row.flops / max(row.bytes, 1)) for row in like]
    mine = (own.flops, own.bytes, own.flops / max(own.bytes, 1))
    within = all(
        min(known) / _BEYOND <= size <= max(known) * _BEYOND
        for size, known in zip(mine, zip(*sizes, strict=True), strict=False)
    )
    # All rows or none: beyond their sizes other terms may take the most, which none of them has tried.
    return like if within else ()


def _nearest(own: PublishedProgram) -> str:
    """Return the id of the row that is most like a program; empty where none has any of its operators."""

    def nearness(row: PublishedProgram) -> tuple[float, float]:
        device = row.target.partition(":")[0] == own.target.partition(":")[0]
        same = (device, row.training == own.training, row.level == own.level)
        # Operators first: what a time is of counts for more than where it was taken.
        near = row.alike(own) + sum(same) / 4
        return near, -abs(math.log(max(row.flops, row.bytes, 1) / max(own.flops, own.bytes, 1)))

    rows = [row for row in _published() if row.operators & own.operators]
    return printable(max(rows, key=nearness).id) if rows else ""


def published_program(name: str) -> PublishedProgram:
    """Return the published row with an id.

    Args:
        name: As ``sn30/gpt2/o3/1600x6``.

    Raises:
        KeyError: There is none.
    """
    return {row.id: row for row in _published()}[name]


@functools.cache
def _published() -> tuple[PublishedProgram, ...]:
    rows = tomllib.loads(_FILE.read_text(encoding="utf-8"))["rows"]
    return tuple(
        PublishedProgram(
            **{
                **row,
                "types": frozenset(row["types"]),
                "operators": frozenset(row["operators"]),
            }
        )
        for row in rows
    )
