"""What one run of an architecture passes between RDU and CPU."""

from __future__ import annotations

import collections
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import samba_onnx
from samba_onnx.pef.manifest import Manifest
from samba_onnx.pef.reader import load_pef
from samba_onnx.report.report import Report
from tests.architectures.catalogue import ARCHITECTURES
from tests.architectures.inference import compile_architecture, pef_path
from tests.boundaries.subjects import CAPTURED, export

__all__ = ["Counts", "count"]


@dataclass(frozen=True)
class Counts:
    """One run, as the transfer plan has it."""

    boundaries: int
    """How often the schedule passes between RDU and CPU."""
    transfers: int
    bytes: int
    """Copied between host and device: inputs, outputs, and what crosses a boundary."""
    fallbacks: Mapping[str, int] = field(default_factory=dict)
    """Nodes on the CPU by operator."""


def count(name: str) -> Counts:
    """Count one run of an architecture, with the settings that nobody changed.

    Args:
        name: In ``SUBJECTS``.
    """
    if name not in CAPTURED:
        return _counts(samba_onnx.analyze(export(name)))
    architecture = ARCHITECTURES[name]
    with tempfile.TemporaryDirectory() as folder:
        compile_architecture(architecture, Path(folder))
        with load_pef(pef_path(architecture, Path(folder))) as pef:
            return _counts(pef.manifest)


def _counts(manifest: Manifest) -> Counts:
    report = Report.from_manifest(manifest)
    fallen = collections.Counter(
        node.op_type for fallback in manifest.fallbacks for node in fallback.reasons
    )
    return Counts(
        boundaries=len(report.boundaries),
        transfers=sum(total.transfers for total in report.transfers_per_run),
        bytes=sum(total.bytes for total in report.transfers_per_run),
        fallbacks=dict(sorted(fallen.items())),
    )
