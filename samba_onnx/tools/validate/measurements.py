"""Measured times of sections and runs, beside what the plans of their PEFs say."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from samba_onnx.errors import UsageError
from samba_onnx.facts.families import PRODUCTS, REARRANGING
from samba_onnx.passes.timing.schedule_time import run_time
from samba_onnx.pef import load_pef
from samba_onnx.pef.manifest import Manifest, Section
from samba_onnx.pef.stage_records import SectionTime
from samba_onnx.pef.target_summary import LaunchOrigin, TargetSummary
from samba_onnx.safety.files import printable, read_document

__all__ = ["Measured", "ScaledCall", "read_measurements"]

_COLUMNS: Final = ("pef", "section", "seconds")


@dataclass(frozen=True)
class ScaledCall:
    """A call of a section, with the constants that its time scales with."""

    time: SectionTime
    launch: str
    """The constant of its launch."""
    compute: str
    """The efficiency of its operators."""

    def seconds(self, factors: Mapping[str, float]) -> float:
        """Return its time where parts take so many times as long as planned.

        Args:
            factors: By constant; ``off_chip`` for traffic.
        """
        return replace(
            self.time,
            launch=self.time.launch * factors.get(self.launch, 1.0),
            compute=self.time.compute * factors.get(self.compute, 1.0),
            off_chip=self.time.off_chip * factors.get("off_chip", 1.0),
        ).seconds


@dataclass(frozen=True)
class Measured:
    """One measured time, and what is modelled of it."""

    place: str
    """The PEF, with the section behind a colon where it is of one."""
    seconds: float
    """As measured."""
    pieces: tuple[ScaledCall, ...]
    rest: float
    """What is modelled besides the pieces: copies and fallbacks, less what goes on at once."""

    def modelled(self, factors: Mapping[str, float]) -> float:
        """Return the modelled time where constants differ by factors."""
        return max(sum(piece.seconds(factors) for piece in self.pieces) + self.rest, 1e-12)

    @property
    def bound(self) -> str:
        """The part that takes most of the modelled time."""
        parts: dict[str, float] = {"besides sections": max(self.rest, 0.0)}
        for piece in self.pieces:
            name = piece.time.dominant.value
            parts[name] = parts.get(name, 0.0) + piece.time.seconds
        return max(parts, key=lambda name: parts[name])


def read_measurements(path: str) -> tuple[list[Measured], list[TargetSummary]]:
    """Return measured times with what is modelled of them, and the targets that their PEFs are for.

    Args:
        path: A CSV file with the columns ``pef``, a path from the file's folder; ``section``, an id, or empty for
            a whole run of the PEF's first graph; and ``seconds``.

    Raises:
        UsageError: The file has other columns, no line, a time that is none, or a section that a PEF does not have.
        SambaError: A file cannot be read.
    """
    content = read_document(path, what="table of measured times", error=UsageError)
    try:
        # Spreadsheets put a mark of the byte order in front.
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise UsageError(f"{printable(path)}: it is no text in UTF-8") from None
    lines = csv.DictReader(io.StringIO(text, newline=""), strict=True)
    missing = [name for name in _COLUMNS if name not in (lines.fieldnames or ())]
    if missing:
        raise UsageError(
            f"{printable(path)}: it has no column {missing[0]}: expected {', '.join(_COLUMNS)} in the first line"
        )
    manifests: dict[str, Manifest] = {}
    measured: list[Measured] = []
    for number, line in enumerate(lines, 2):
        place = f"{printable(path)}: line {number}"
        name = (line["pef"] or "").strip()
        if not name:
            raise UsageError(f"{place}: it names no PEF")
        if name not in manifests:
            with load_pef(Path(path).parent / name) as pef:
                manifests[name] = pef.manifest
        section = (line["section"] or "").strip()
        seconds = _seconds(line["seconds"] or "", place)
        measured.append(_measured(manifests[name], name, section, seconds, place))
    if not measured:
        raise UsageError(f"{printable(path)}: it has no measured time")
    return measured, [manifest.target for manifest in manifests.values()]


def _seconds(text: str, place: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = math.nan
    if not 0 < seconds < 1e9:
        raise UsageError(f"{place}: {printable(text)!r} is no time in seconds")
    return seconds


def _measured(manifest: Manifest, name: str, section: str, seconds: float, place: str) -> Measured:
    sections = {str(one.id): one for one in manifest.sections}
    if section:
        if section not in sections:
            raise UsageError(f"{place}: {printable(name)} has no section {printable(section)}")
        own = [sections[section]]
        return Measured(f"{name}:{section}", seconds, _pieces(own, manifest.target), 0.0)
    graph = manifest.graphs[0]
    own = [sections[str(call.stage)] for call in graph.calls if str(call.stage) in sections]
    pieces = _pieces(own, manifest.target)
    # Whatever overlaps, and programs that share a launch: the fit changes nothing of that.
    rest = run_time(manifest, graph).total - sum(piece.seconds({}) for piece in pieces)
    return Measured(name, seconds, pieces, rest)


def _pieces(sections: list[Section], target: TargetSummary) -> tuple[ScaledCall, ...]:
    timing = target.timing
    origin = LaunchOrigin.DEVICE if timing is None else timing.launch
    tuned = timing is not None and timing.tuned
    return tuple(
        ScaledCall(section.time, f"timing.{origin}_launch_seconds", _efficiency(section, tuned))
        for section in sections
        # A PEF of an early version does not say which parts a time has.
        if section.time is not None and section.time.seconds > 0
    )


def _efficiency(section: Section, tuned: bool) -> str:
    """Return the constant that a section's arithmetic scales with."""
    operators = section.operators.keys() - REARRANGING
    if not operators & PRODUCTS:
        return "timing.vector_efficiency"
    if len(operators) == 1 and sum(section.operators[name] for name in operators) == 1:
        return "timing.product_efficiency"
    return "timing.tuned_efficiency" if tuned else "timing.fused_efficiency"
